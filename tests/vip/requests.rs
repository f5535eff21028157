//! Requests without end from every place, each on a connection of its own, until somebody says
//! stop.

use crate::rig::{PLACES, Rig, pace};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Instant;

#[derive(Debug)]
pub(crate) struct Seen {
    pub place: &'static str,
    pub started: Instant,
    pub ended: Instant,
    pub result: Result<String, String>,
}

pub(crate) struct Requests {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Vec<Seen>>>,
}

impl Requests {
    pub(crate) fn start(rig: &Rig, to: SocketAddr) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let place = |place: &'static str| {
            let (asker, stop) = (rig.asker(place), Arc::clone(&stop));
            std::thread::spawn(move || {
                let mut seen = Vec::new();
                while !stop.load(Ordering::Relaxed) {
                    let started = Instant::now();
                    let result = asker.ask(to);
                    seen.push(Seen {
                        place,
                        started,
                        ended: Instant::now(),
                        result,
                    });
                    std::thread::sleep(pace().gap.saturating_sub(started.elapsed()));
                }
                seen
            })
        };
        Self {
            threads: PLACES.into_iter().map(place).collect(),
            stop,
        }
    }

    pub(crate) fn stop(self) -> Vec<Seen> {
        self.stop.store(true, Ordering::Relaxed);
        self.threads
            .into_iter()
            .flat_map(|thread| thread.join().unwrap())
            .collect()
    }
}
