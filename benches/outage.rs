//! A client that sends a request every 5 ms, each on a new connection, whatever became of those
//! before; and for how long nobody answered.

use portico_testbed::Host;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const EVERY: Duration = Duration::from_millis(5);
/// After which a request has failed.
const LIMIT: Duration = Duration::from_secs(2);

#[derive(Clone, Copy)]
struct Sent {
    started: Instant,
    ended: Instant,
    good: bool,
}

/// What happened in a stretch of time.
pub(crate) struct Window {
    /// The longest time without an answer.
    pub outage: Duration,
    pub failed: usize,
    pub sent: usize,
}

pub(crate) struct Client {
    sent: Arc<Mutex<Vec<Sent>>>,
}

impl Client {
    /// Asks inside the host until the benchmark ends.
    pub(crate) fn start<F>(host: Host, ask: impl Fn() -> F + Send + 'static) -> Self
    where
        F: Future<Output = io::Result<()>> + Send + 'static,
    {
        let sent: Arc<Mutex<Vec<Sent>>> = Arc::default();
        let all = Arc::clone(&sent);
        std::thread::spawn(move || {
            host.enter(|| {
                let runtime = tokio::runtime::Builder::new_current_thread()
                    .enable_all()
                    .build()
                    .unwrap();
                runtime.block_on(send_forever(all, ask));
            });
        });
        Self { sent }
    }

    /// Until all requests of so long a time were answered.
    pub(crate) fn wait_until_steady(&self, time: Duration) {
        let begin = Instant::now();
        loop {
            let since = Instant::now() - time;
            let enough = begin.elapsed() >= time && {
                let sent = self.sent.lock().unwrap();
                let recent: Vec<_> = sent
                    .iter()
                    .rev()
                    .take_while(|one| one.ended > since)
                    .collect();
                recent.iter().filter(|one| one.started > since).count() > 10
                    && recent
                        .iter()
                        .filter(|one| one.started > since)
                        .all(|one| one.good)
            };
            if enough {
                return;
            }
            assert!(
                begin.elapsed() < Duration::from_secs(60),
                "the address does not come back"
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// What happened since `from`; requests that are not over yet are waited for.
    pub(crate) fn window(&self, from: Instant) -> Window {
        let until = Instant::now();
        std::thread::sleep(LIMIT);
        let sent = self.sent.lock().unwrap();
        let inside: Vec<_> = sent
            .iter()
            .filter(|one| one.started < until && one.ended > from)
            .collect();
        // What comes later are answers to those that were sent again, with nothing that was sent
        // later between them.
        let before = from.checked_sub(4 * EVERY).unwrap_or(from);
        let answers = sent
            .iter()
            .filter(|one| one.good && one.ended > before && one.ended < until);
        let mut answers: Vec<Instant> = answers.map(|one| one.ended).collect();
        answers.sort();
        let outage = answers
            .windows(2)
            .map(|pair| pair[1] - pair[0])
            .max()
            .unwrap_or_default();
        Window {
            outage,
            failed: inside.iter().filter(|one| !one.good).count(),
            sent: inside.len(),
        }
    }
}

async fn send_forever<F>(sent: Arc<Mutex<Vec<Sent>>>, ask: impl Fn() -> F)
where
    F: Future<Output = io::Result<()>> + Send + 'static,
{
    let mut ticks = tokio::time::interval(EVERY);
    loop {
        ticks.tick().await;
        let (sent, asked) = (Arc::clone(&sent), ask());
        tokio::spawn(async move {
            let started = Instant::now();
            let good = tokio::time::timeout(LIMIT, asked)
                .await
                .is_ok_and(|asked| asked.is_ok());
            sent.lock().unwrap().push(Sent {
                started,
                ended: Instant::now(),
                good,
            });
        });
    }
}
