//! The network namespace itself: making one, being in one. All of it is system calls.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::path::Path;

const CURRENT: &str = "/proc/thread-self/ns/net";

/// A network namespace that lives as long as this, or something in it, does.
pub(crate) struct Namespace(File);

impl Namespace {
    /// A new one, empty but for a loopback link that is down.
    pub(crate) fn new() -> io::Result<Self> {
        // A thread of its own leaves its namespace behind as it ends, so that the caller's thread
        // never leaves its own.
        let made = std::thread::spawn(|| {
            unshare()?;
            File::open(CURRENT).map(Namespace)
        });
        made.join().unwrap_or_else(|_| {
            Err(io::Error::other(
                "the thread that makes a namespace panicked",
            ))
        })
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// Takes the calling thread inside until the guard is dropped.
    pub(crate) fn enter(&self) -> io::Result<Inside> {
        let inside = Inside(File::open(CURRENT)?);
        join(self.fd())?;
        Ok(inside)
    }
}

/// The calling thread is in another namespace; the one to return to.
pub(crate) struct Inside(File);

impl Drop for Inside {
    fn drop(&mut self) {
        if join(self.0.as_raw_fd()).is_err() {
            // A thread that goes on in the wrong namespace would send packets from a host that is
            // not its own.
            std::process::abort();
        }
    }
}

/// Does something on a thread of its own that is in the namespace at this path.
pub fn inside<T: Send>(namespace: &Path, job: impl FnOnce() -> T + Send) -> io::Result<T> {
    let namespace = File::open(namespace)?;
    std::thread::scope(|scope| {
        let working = scope.spawn(|| join(namespace.as_raw_fd()).map(|()| job()));
        working
            .join()
            .unwrap_or_else(|_| Err(io::Error::other("what was done in a namespace panicked")))
    })
}

/// Moves the calling thread (in a forked child: the process) into the namespace. Safe between fork
/// and exec.
#[expect(unsafe_code, reason = "setns is only there as a system call")]
pub(crate) fn join(namespace: RawFd) -> io::Result<()> {
    // SAFETY: takes two integers, touches no memory of ours.
    match unsafe { libc::setns(namespace, libc::CLONE_NEWNET) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[expect(unsafe_code, reason = "unshare is only there as a system call")]
fn unshare() -> io::Result<()> {
    // SAFETY: takes an integer, touches no memory of ours.
    match unsafe { libc::unshare(libc::CLONE_NEWNET) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
