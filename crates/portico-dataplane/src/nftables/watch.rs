//! Notices when another program changes our tables.
//!
//! The kernel tells listeners of every change of any rule or element. A filter on the socket drops
//! those of our own changes. Listening is not free: for each element of a batch the kernel makes a
//! message of some kilobytes before it sends any, so that a cold start would take a gigabyte. So
//! the watch pauses during large batches.

use super::element::Set;
use crate::netlink::uapi::*;
use crate::netlink::{Message, Socket};
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

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
    pub fn open(own: u32, table: &'static str) -> io::Result<Self> {
        let socket = Socket::netfilter()?;
        socket.ignore_sender(own)?;
        socket.join(NFNLGRP_NFTABLES)?;
        let fd = socket.as_raw_fd();
        Ok(Self {
            listener: Arc::new(Mutex::new(Listener {
                socket,
                touched: false,
            })),
            fd,
            table,
        })
    }

    /// Whether another program changed our tables since they were last read, or notifications were
    /// lost. To be called when the descriptor is readable.
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

    /// Notes that changes may have been missed.
    pub(super) fn suspect(&self) {
        self.lock().touched = true;
    }

    pub(super) fn pause(&self) -> io::Result<()> {
        self.lock().socket.leave(NFNLGRP_NFTABLES)
    }

    pub(super) fn resume(&self) -> io::Result<()> {
        self.lock().socket.join(NFNLGRP_NFTABLES)
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

/// Every message but that of a new generation begins with the name of the table. Elements that
/// packets add to the map of clients are no interference.
fn is_about(table: &str, message: &Message) -> bool {
    let text = |kind| {
        message
            .attributes(4)
            .find_kind(kind)
            .and_then(|attribute| attribute.text())
    };
    text(NFTA_TABLE_NAME) == Some(table)
        && text(NFTA_SET_ELEM_LIST_SET) != Some(Set::Affinity.name())
}
