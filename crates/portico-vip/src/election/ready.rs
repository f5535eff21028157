//! Sockets that the runtime watches: it has to be promised that their descriptors stay open.

use std::io;
use std::os::fd::AsRawFd;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Those that own one descriptor, always give out the same, and close it only when dropped.
pub(super) trait Owning: AsRawFd {}

impl Owning for socket2::Socket {}
impl Owning for portico_dataplane::netlink::Socket {}

/// To be called in an async runtime.
#[expect(
    unsafe_code,
    reason = "the runtime has to be promised that the descriptor stays open"
)]
pub(super) fn readable<T: Owning>(socket: T) -> io::Result<AsyncFd<T>> {
    // SAFETY: that is what `Owning` means.
    unsafe { AsyncFd::register_with_interest(socket, Interest::READABLE) }.map_err(io::Error::from)
}
