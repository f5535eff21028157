//! The cloud's health checkers: they ask each instance of a pool through the balancer's address, as
//! often as the health check says, and go by its thresholds.

use crate::resources::{HttpHealthCheck, Instance};
use portico_testbed::Ask as _;
use portico_testbed::{Flow, Host, Protocol};
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

/// From where it is asked.
pub(crate) const CHECKER: &str = "130.211.0.1";
/// A second between two checks.
const SECOND: Duration = Duration::from_millis(100);
/// A second for an answer is longer than one: a busy machine is not to be taken for a stuck daemon.
const PATIENT_SECOND: Duration = Duration::from_secs(5);

/// Which instance behind which address.
pub(crate) type Place = (IpAddr, Instance);

/// What is known of an instance.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Health {
    pub healthy: bool,
    /// The last answer, and how many like it there were in a row.
    pub last: Option<bool>,
    pub row: u32,
    /// All answers so far.
    pub asked: u32,
    /// Each time it changed: to what, and after how many answers in a row.
    pub changes: Vec<(bool, u32)>,
}

impl Health {
    fn heard(&mut self, good: bool, check: &HttpHealthCheck) {
        self.row = if self.last == Some(good) {
            self.row + 1
        } else {
            1
        };
        self.last = Some(good);
        self.asked += 1;
        let threshold = if good {
            check.healthy_threshold
        } else {
            check.unhealthy_threshold
        };
        if good != self.healthy && self.row >= threshold {
            self.healthy = good;
            self.changes.push((good, self.row));
        }
    }
}

pub(crate) type Healths = Arc<Mutex<BTreeMap<Place, Health>>>;

/// All that are asked, each by a task of its own.
pub(crate) struct Checkers {
    host: Host,
    healths: Healths,
    tasks: BTreeMap<Place, (HttpHealthCheck, JoinHandle<()>)>,
}

impl Checkers {
    pub(crate) fn new(host: Host, healths: Healths) -> Self {
        Self {
            host,
            healths,
            tasks: BTreeMap::new(),
        }
    }

    /// From now on these are asked, and no others. What is new, or asked in another way, begins
    /// unhealthy.
    pub(crate) fn follow(&mut self, wanted: &BTreeMap<Place, HttpHealthCheck>) {
        self.tasks.retain(|place, (check, task)| {
            let stays = wanted.get(place) == Some(check);
            if !stays {
                task.abort();
                self.healths.lock().unwrap().remove(place);
            }
            stays
        });
        for (place, check) in wanted {
            self.tasks.entry(*place).or_insert_with(|| {
                let checker = Checker {
                    host: self.host.clone(),
                    place: *place,
                    check: check.clone(),
                    healths: Arc::clone(&self.healths),
                };
                self.healths
                    .lock()
                    .unwrap()
                    .insert(*place, Health::default());
                (check.clone(), tokio::spawn(checker.run()))
            });
        }
    }
}

struct Checker {
    host: Host,
    place: Place,
    check: HttpHealthCheck,
    healths: Healths,
}

impl Checker {
    async fn run(self) {
        loop {
            let good = self.ask().await == Some(200);
            if let Some(health) = self.healths.lock().unwrap().get_mut(&self.place) {
                health.heard(good, &self.check);
            }
            sleep(SECOND * self.check.check_interval_sec).await;
        }
    }

    async fn ask(&self) -> Option<u16> {
        let (address, instance) = self.place;
        let flow = Flow {
            source: Some(CHECKER.parse().unwrap()),
            mark: Some(instance.into()),
            patience: PATIENT_SECOND * self.check.timeout_sec,
            ..Flow::new(Protocol::Tcp, SocketAddr::new(address, self.check.port))
        };
        status(&self.host, &flow, &self.check.request_path).await
    }
}

/// What is answered to a request for a path, if anything is.
pub(crate) async fn status(host: &Host, flow: &Flow, path: &str) -> Option<u16> {
    let exchange = async {
        let mut stream = host.connect(flow).await.ok()?;
        let request = format!(
            "GET {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n",
            flow.to
        );
        stream.write_all(request.as_bytes()).await.ok()?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.ok()?;
        String::from_utf8_lossy(&answer)
            .strip_prefix("HTTP/1.1 ")?
            .split(' ')
            .next()?
            .parse()
            .ok()
    };
    timeout(flow.patience, exchange).await.ok().flatten()
}

#[test]
fn thresholds_count_answers_in_a_row() {
    let check = HttpHealthCheck {
        healthy_threshold: 2,
        unhealthy_threshold: 3,
        ..HttpHealthCheck::default()
    };
    let mut health = Health::default();
    let mut after = |answers: &[bool]| {
        answers.iter().for_each(|good| health.heard(*good, &check));
        health.healthy
    };
    assert!(!after(&[true, false, true]));
    assert!(after(&[true]));
    assert!(after(&[false, false, true, false, false]));
    assert!(!after(&[false]));
    assert_eq!(health.changes, [(true, 2), (false, 3)]);
}
