//! What the thread of an election needs: a clock that does not stop while the machine sleeps, and a
//! priority above ordinary threads, so that its heartbeats are not late.

use std::cell::Cell;
use std::io;
use std::time::Duration;

/// The lowest of those that go before all ordinary threads.
const REALTIME_PRIORITY: i32 = 1;
/// Where that is not allowed: before most ordinary threads.
const NICE: i32 = -15;
/// A thread of this priority that does not sleep for so long has the kernel end the process: a loop
/// that never ends must not take the processor from everything else.
const LONGEST_RUN: Duration = Duration::from_secs(2);

/// Since the machine was started, on a clock that goes on while it sleeps.
#[expect(
    unsafe_code,
    reason = "the clock of the standard library stands still while the machine sleeps"
)]
pub fn now() -> Duration {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the kernel writes one timespec. The clock is there in every kernel since 2.6.39, so
    // it does not fail.
    unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &raw mut time) };
    Duration::new(
        time.tv_sec.unsigned_abs(),
        time.tv_nsec.unsigned_abs() as u32,
    )
}

thread_local! {
    static ASKED: Cell<bool> = const { Cell::new(false) };
}

/// Gives the calling thread a real-time priority, or a better niceness where that is not allowed: a
/// heartbeat that is late for want of a processor costs this node its addresses. A second call on
/// the same thread does nothing.
pub fn run_on_time() {
    if ASKED.replace(true) {
        return;
    }
    if let Err(error) = limit_run().and_then(|()| run_in_real_time()) {
        let nice = be_unkind();
        tracing::debug!(%error, ?nice, "the thread does not run in real time");
    }
}

#[expect(unsafe_code, reason = "limits are only there as a system call")]
fn limit_run() -> io::Result<()> {
    // SAFETY: the kernel reads and writes one rlimit.
    unsafe {
        let mut limit = libc::rlimit {
            rlim_cur: 0,
            rlim_max: 0,
        };
        check(libc::getrlimit(libc::RLIMIT_RTTIME, &raw mut limit))?;
        limit.rlim_cur = limit.rlim_max.min(LONGEST_RUN.as_micros() as u64);
        check(libc::setrlimit(libc::RLIMIT_RTTIME, &raw const limit))
    }
}

#[expect(unsafe_code, reason = "scheduling is only there as a system call")]
fn run_in_real_time() -> io::Result<()> {
    // SAFETY: all zero is a valid sched_param, which the kernel only reads. 0 is the calling
    // thread.
    unsafe {
        let mut parameters: libc::sched_param = std::mem::zeroed();
        parameters.sched_priority = REALTIME_PRIORITY;
        check(libc::sched_setscheduler(
            0,
            libc::SCHED_RR | libc::SCHED_RESET_ON_FORK,
            &raw const parameters,
        ))
    }
}

#[expect(unsafe_code, reason = "scheduling is only there as a system call")]
fn be_unkind() -> io::Result<()> {
    // SAFETY: takes integers only. 0 is the calling thread, not its process, in Linux.
    check(unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, NICE) })
}

fn check(result: i32) -> io::Result<()> {
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// The scheduling policy of the calling thread: 0 is SCHED_OTHER, 2 is SCHED_RR.
    fn policy() -> u32 {
        let text = fs::read_to_string("/proc/thread-self/stat").unwrap();
        text.rsplit(')')
            .next()
            .unwrap()
            .split_ascii_whitespace()
            .nth(38)
            .unwrap()
            .parse()
            .unwrap()
    }

    #[test]
    fn a_thread_runs_in_real_time_where_that_is_allowed() {
        std::thread::spawn(|| {
            assert_eq!(policy(), 0);
            if limit_run().and_then(|()| run_in_real_time()).is_err() {
                return eprintln!("real time is not allowed here");
            }
            run_on_time();
            assert_eq!(policy(), 2);
            assert_eq!(
                std::thread::spawn(policy).join().unwrap(),
                0,
                "what it starts does not inherit it"
            );
        })
        .join()
        .unwrap();
    }
}
