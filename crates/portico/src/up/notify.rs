//! Telling systemd how far a service of the type `notify` is.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Tells systemd that the program is ready, where it was started by it (`NOTIFY_SOCKET`).
pub(crate) fn ready() {
    if let Some(to) = std::env::var_os("NOTIFY_SOCKET").and_then(|path| address(path.to_str()?)) {
        let told = UnixDatagram::unbound().and_then(|socket| socket.send_to_addr(b"READY=1", &to));
        if let Err(error) = told {
            tracing::warn!(%error, "cannot tell systemd that everything is up");
        }
    }
}

/// A file, or a name in the abstract namespace.
fn address(path: &str) -> Option<SocketAddr> {
    match path.strip_prefix('@') {
        Some(name) => SocketAddr::from_abstract_name(name).ok(),
        None => SocketAddr::from_pathname(path).ok(),
    }
}
