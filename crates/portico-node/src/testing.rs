//! For tests: a network of one's own, where every port is free and only the test's addresses
//! appear.

use std::io;
use std::process::Command;

/// Takes the calling thread, which is the test's own, into a new network namespace with a loopback
/// that is up.
#[expect(unsafe_code, reason = "unshare is only there as a system call")]
pub(crate) fn own_network() {
    // SAFETY: takes an integer, touches no memory of ours.
    let made = unsafe { libc::unshare(libc::CLONE_NEWNET) };
    assert_eq!(made, 0, "{}", io::Error::last_os_error());
    ip("link set lo up");
}

pub(crate) fn ip(arguments: &str) {
    let status = Command::new("ip")
        .args(arguments.split_whitespace())
        .status()
        .expect("iproute2 is installed");
    assert!(status.success(), "ip {arguments}");
}
