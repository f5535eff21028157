//! A thread that others count on, such as that of an election: its clock, and that it runs when it
//! has to.

use std::cell::Cell;
use std::io;
use std::time::Duration;

/// The lowest of those that go before all ordinary threads.
const REALTIME_PRIORITY: i32 = 1;
/// Where that is not allowed: before most ordinary threads.
const NICE: i32 = -15;
/// Who goes before all others must sleep now and then. Without that the kernel ends the process,
/// and the addresses go with it.
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

/// How a thread stands to others.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Standing {
    Ordinary,
    OnTime,
    /// It may not be otherwise.
    Refused,
}

thread_local! {
    static STANDING: Cell<Standing> = const { Cell::new(Standing::Ordinary) };
}

/// Has the calling thread run before others, as far as that is allowed: a heartbeat that is late
/// for want of a processor costs us our addresses. Costs nothing where it does already.
pub fn run_on_time() {
    if STANDING.get() == Standing::Ordinary {
        STANDING.set(Standing::OnTime);
        if let Err(error) = limit_run().and_then(|()| schedule(libc::SCHED_RR, REALTIME_PRIORITY)) {
            STANDING.set(Standing::Refused);
            let nice = be_unkind();
            tracing::debug!(%error, ?nice, "the thread does not run in real time");
        }
    }
}

/// Has it run as others do again: for work that takes long.
pub fn run_as_others() {
    if STANDING.get() == Standing::OnTime {
        STANDING.set(Standing::Ordinary);
        if let Err(error) = schedule(libc::SCHED_OTHER, 0) {
            tracing::warn!(%error, "the thread goes on in real time");
        }
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
fn schedule(policy: i32, priority: i32) -> io::Result<()> {
    // SAFETY: all zero is a valid sched_param, which the kernel only reads. 0 is the calling
    // thread.
    unsafe {
        let mut parameters: libc::sched_param = std::mem::zeroed();
        parameters.sched_priority = priority;
        check(libc::sched_setscheduler(
            0,
            policy | libc::SCHED_RESET_ON_FORK,
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

    /// Of the calling thread: 0 is that of others, 2 is SCHED_RR.
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
    fn a_thread_runs_on_time_until_it_is_told_otherwise() {
        assert_eq!(policy(), 0);
        run_on_time();
        if STANDING.get() == Standing::Refused {
            return eprintln!("real time is not allowed here");
        }
        run_on_time();
        assert_eq!(policy(), 2);
        assert_eq!(
            std::thread::spawn(policy).join().unwrap(),
            0,
            "what it starts does not inherit it"
        );
        run_as_others();
        assert_eq!(policy(), 0);
        run_on_time();
        assert_eq!(policy(), 2);
    }
}
