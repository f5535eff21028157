//! How late the machine itself is: a thread that goes before others sleeps and looks how much too
//! long that was. Whoever waits for something on this machine is as late, whatever the program.

use portico_dataplane::thread;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Seldom enough to cost nothing.
const SLEEP: Duration = Duration::from_millis(5);

pub(crate) struct Watched {
    over: Arc<AtomicBool>,
    sleeper: JoinHandle<Vec<f64>>,
}

impl Watched {
    pub(crate) fn start() -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let until = Arc::clone(&over);
        let sleeper = std::thread::spawn(move || {
            thread::run_on_time();
            let mut late = vec![];
            while !until.load(Ordering::Relaxed) {
                let start = Instant::now();
                std::thread::sleep(SLEEP);
                late.push((start.elapsed() - SLEEP).as_secs_f64() * 1e3);
            }
            late
        });
        Self { over, sleeper }
    }

    /// By how many milliseconds it was late, each time.
    pub(crate) fn end(self) -> Vec<f64> {
        self.over.store(true, Ordering::Relaxed);
        self.sleeper.join().unwrap()
    }
}
