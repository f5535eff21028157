//! Requests all the time, each on a connection of its own that lasts some milliseconds, and a few
//! connections that stay.

use crate::masters::{Lab, PORT};
use portico_testbed::Ask as _;
use portico_testbed::{Flow, Host, Protocol};
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufStream};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// A new request so often.
const EVERY: Duration = Duration::from_millis(2);
/// On a connection that stays, a line so often.
const LINE: Duration = Duration::from_millis(4);
/// A machine that is busy may take as long, a lost connection takes longer.
const PATIENCE: Duration = Duration::from_secs(10);
const LONG_LIVED: usize = 8;

/// Every server answers a line with a number of milliseconds after that time, and ends the
/// connection if it is told to.
pub(crate) fn serve(lab: &Lab) {
    for host in &lab.servers {
        let bound = host
            .enter(|| std::net::TcpListener::bind(("::", PORT)))
            .unwrap();
        bound.set_nonblocking(true).unwrap();
        let listener = TcpListener::from_std(bound).unwrap();
        let name: Arc<str> = host.name().into();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(answer(stream, name.clone()));
            }
        });
    }
}

async fn answer(stream: TcpStream, name: Arc<str>) -> io::Result<()> {
    let (mut stream, mut line) = (BufStream::new(stream), String::new());
    while stream.read_line(&mut line).await? > 0 {
        let (millis, last) = line.trim().split_once(' ').unwrap();
        tokio::time::sleep(Duration::from_millis(millis.parse().unwrap())).await;
        stream.write_all(format!("{name}\n").as_bytes()).await?;
        stream.flush().await?;
        if last == "last" {
            return stream.shutdown().await;
        }
        line.clear();
    }
    Ok(())
}

#[derive(Default)]
struct Counts {
    done: AtomicU64,
    lines: AtomicU64,
    failures: Mutex<Vec<(Instant, String)>>,
}

impl Counts {
    fn failed(&self, what: &str, error: &io::Error) {
        self.failures
            .lock()
            .unwrap()
            .push((Instant::now(), format!("{what}: {error}")));
    }
}

/// Until it is stopped.
pub(crate) struct Load {
    counts: Arc<Counts>,
    stop: Arc<AtomicBool>,
    tasks: JoinSet<()>,
    began: Instant,
}

/// What became of it.
pub(crate) struct Outcome {
    pub requests: u64,
    pub lines: u64,
    pub failures: Vec<String>,
}

impl Load {
    /// With some connections that stay, if they are wanted.
    pub(crate) async fn start(client: &Host, to: SocketAddr, long_lived: bool) -> Self {
        let (counts, stop): (Arc<Counts>, Arc<AtomicBool>) = Default::default();
        let mut tasks = JoinSet::new();
        for _ in 0..if long_lived { LONG_LIVED } else { 0 } {
            let stream = connect(client, to).await.unwrap();
            tasks.spawn(talk(stream, counts.clone(), stop.clone()));
        }
        tasks.spawn(requests(client.clone(), to, counts.clone(), stop.clone()));
        Self {
            counts,
            stop,
            tasks,
            began: Instant::now(),
        }
    }

    /// Waits until so many more requests were answered.
    pub(crate) async fn go_on(&self, requests: u64) {
        let wanted = self.counts.done.load(Ordering::Relaxed) + requests;
        let deadline = Instant::now() + 2 * PATIENCE;
        while self.counts.done.load(Ordering::Relaxed) < wanted {
            assert!(
                Instant::now() < deadline,
                "requests are not answered: {:?}",
                self.counts.failures.lock().unwrap()
            );
            tokio::time::sleep(EVERY).await;
        }
    }

    pub(crate) async fn stop(mut self) -> Outcome {
        self.stop.store(true, Ordering::Relaxed);
        while self.tasks.join_next().await.is_some() {}
        let failures = self.counts.failures.lock().unwrap();
        let told = failures
            .iter()
            .map(|(at, what)| format!("after {:?}: {what}", *at - self.began));
        Outcome {
            requests: self.counts.done.load(Ordering::Relaxed),
            lines: self.counts.lines.load(Ordering::Relaxed),
            failures: told.collect(),
        }
    }
}

async fn requests(client: Host, to: SocketAddr, counts: Arc<Counts>, stop: Arc<AtomicBool>) {
    let (mut all, mut ticks) = (JoinSet::new(), tokio::time::interval(EVERY));
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut number = 0_u64;
    while !stop.load(Ordering::Relaxed) {
        ticks.tick().await;
        number += 1;
        // 5 to 50 ms in no order that one sees.
        let hold = 5 + number * 7919 % 46;
        let (client, counts) = (client.clone(), counts.clone());
        all.spawn(async move {
            match within(request(&client, to, hold)).await {
                Ok(()) => drop(counts.done.fetch_add(1, Ordering::Relaxed)),
                Err(error) => counts.failed("request", &error),
            }
        });
        while all.try_join_next().is_some() {}
    }
    while all.join_next().await.is_some() {}
}

async fn within<T>(work: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    tokio::time::timeout(PATIENCE, work)
        .await
        .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

async fn connect(client: &Host, to: SocketAddr) -> io::Result<BufStream<TcpStream>> {
    let stream = client
        .connect(&Flow {
            patience: PATIENCE,
            ..Flow::new(Protocol::Tcp, to)
        })
        .await;
    let stream = stream.map_err(|failure| io::Error::other(format!("connect: {failure}")))?;
    stream.set_nodelay(true)?;
    Ok(BufStream::new(stream))
}

async fn request(client: &Host, to: SocketAddr, hold: u64) -> io::Result<()> {
    let mut stream = connect(client, to).await?;
    ask(&mut stream, &format!("{hold} last\n")).await?;
    // The server ends it.
    match stream.read_line(&mut String::new()).await? {
        0 => stream.shutdown().await,
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

async fn ask(stream: &mut BufStream<TcpStream>, question: &str) -> io::Result<String> {
    stream.write_all(question.as_bytes()).await?;
    stream.flush().await?;
    let mut answer = String::new();
    match stream.read_line(&mut answer).await? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        _ => Ok(answer),
    }
}

/// Always with the same server.
async fn talk(mut stream: BufStream<TcpStream>, counts: Arc<Counts>, stop: Arc<AtomicBool>) {
    let mut server = None;
    while !stop.load(Ordering::Relaxed) {
        match within(ask(&mut stream, "0 more\n")).await {
            Ok(name) => assert_eq!(*server.get_or_insert(name.clone()), name),
            Err(error) => return counts.failed("a connection that was to stay", &error),
        }
        counts.lines.fetch_add(1, Ordering::Relaxed);
        tokio::time::sleep(LINE).await;
    }
}
