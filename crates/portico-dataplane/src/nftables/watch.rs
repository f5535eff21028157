//! Notices when somebody else touches our tables.
//!
//! The kernel tells listeners of every change of any rule or element. A filter on the socket lets
//! our own go by unseen. Listening is not free: for each element of a batch the kernel makes a
//! message of some kilobytes before it sends any, so that a cold start would take a gigabyte.
//! During large batches nobody listens.

use super::element::Set;
use crate::netlink::{Message, Socket};
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// NFNLGRP_NFTABLES
const GROUP: u32 = 7;

/// Clones are the same listener; belongs to the network namespace that it was opened in.
#[derive(Clone)]
pub struct Watch {
    listener: Arc<Mutex<Listener>>,
    fd: RawFd,
    table: &'static str,
}

struct Listener {
    socket: Socket,
    touched: bool,
}

impl Watch {
    /// Watches the tables of this name; `own` is the port of the socket whose changes do not count.
    pub fn open(own: u32, table: &'static str) -> io::Result<Watch> {
        let socket = Socket::netfilter()?;
        socket.ignore_sender(own)?;
        socket.join(GROUP)?;
        let fd = socket.as_raw_fd();
        Ok(Watch {
            listener: Arc::new(Mutex::new(Listener {
                socket,
                touched: false,
            })),
            fd,
            table,
        })
    }

    /// Somebody else touched our tables since they were last read; or so much happened that it
    /// cannot be told. When the descriptor becomes readable, ask.
    pub fn touched(&self) -> io::Result<bool> {
        let mut listener = self.lock();
        let mut touched = false;
        match listener
            .socket
            .notifications(|message| touched |= is_about(self.table, &message))
        {
            Ok(()) => {}
            Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => touched = true,
            Err(error) => return Err(error),
        }
        listener.touched |= touched;
        Ok(listener.touched)
    }

    /// The tables are about to be read: what was until now does not count any more.
    pub(super) fn reset(&self) -> io::Result<()> {
        self.touched()?;
        self.lock().touched = false;
        Ok(())
    }

    /// What happened cannot be told.
    pub(super) fn suspect(&self) {
        self.lock().touched = true;
    }

    pub(super) fn pause(&self) -> io::Result<()> {
        self.lock().socket.leave(GROUP)
    }

    pub(super) fn resume(&self) -> io::Result<()> {
        self.lock().socket.join(GROUP)
    }

    fn lock(&self) -> MutexGuard<'_, Listener> {
        self.listener.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AsRawFd for Watch {
    fn as_raw_fd(&self) -> RawFd {
        self.fd
    }
}

/// Every message but that of a new generation begins with the name of the table. What packets do to
/// the map of clients is nobody's interference.
fn is_about(table: &str, message: &Message) -> bool {
    let text = |kind| {
        message
            .attributes(4)
            .find_kind(kind)
            .and_then(|attribute| attribute.text())
    };
    text(1) == Some(table) && text(2) != Some(Set::Affinity.name())
}
