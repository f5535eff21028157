//! Tells when somebody else changes our nftables rules.
//!
//! The kernel sends notifications about every change of any rule. A filter on the socket lets our own go by unseen (a cold
//! start is a hundred thousand of them), and of others' only those about our tables count.

use portico_dataplane::netlink::Socket;
use std::io;
use tokio::io::unix::AsyncFd;

/// NFNLGRP_NFTABLES
const GROUP: u32 = 7;
/// The name of our tables, and where every nftables message has the name of its table.
const TABLE: &str = "portico";
const TABLE_NAME: u16 = 1;
/// struct nfgenmsg
const HEADER: usize = 4;
/// Where a message says who asked for the change.
const SENDER_AT: u32 = 12;

/// Belongs to the network namespace of the thread that opened it.
pub struct Disturbances {
    socket: AsyncFd<Socket>,
}

impl Disturbances {
    /// `own`: who does not count.
    pub fn open(own: u32) -> io::Result<Disturbances> {
        let socket = Socket::netfilter()?;
        ignore(&socket, own)?;
        socket.join(GROUP)?;
        Ok(Disturbances { socket: watched(socket)? })
    }

    /// Somebody touched our tables, or so much happened that it cannot be told.
    pub async fn next(&mut self) -> io::Result<()> {
        loop {
            let mut ready = self.socket.readable_mut().await?;
            let mut touched = false;
            let read = ready.get_inner_mut().notifications(|message| {
                let table = message.attributes(HEADER).find_kind(TABLE_NAME);
                touched |= table.is_some_and(|name| name.text() == Some(TABLE));
            });
            ready.clear_ready();
            match read {
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => return Ok(()),
                Err(error) => return Err(error),
                Ok(()) if touched => return Ok(()),
                Ok(()) => {}
            }
        }
    }
}

#[expect(unsafe_code, reason = "the runtime has to be promised that the descriptor stays open")]
fn watched(socket: Socket) -> io::Result<AsyncFd<Socket>> {
    // SAFETY: a `Socket` owns its descriptor, always returns the same one, and closes it only when dropped.
    unsafe { AsyncFd::register(socket) }.map_err(io::Error::from)
}

/// Drop what this sender caused before it is queued: all messages of a notification have the same sender.
fn ignore(socket: &Socket, sender: u32) -> io::Result<()> {
    // The filter reads numbers in network byte order; the kernel wrote it in its own.
    let sender = u32::from_be_bytes(sender.to_ne_bytes());
    let load = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
    let same = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    let verdict = libc::BPF_RET | libc::BPF_K;
    let step = |code: u32, jt, jf, k| libc::sock_filter { code: code as u16, jt, jf, k };
    let mut program =
        [step(load, 0, 0, SENDER_AT), step(same, 0, 1, sender), step(verdict, 0, 0, 0), step(verdict, 0, 0, u32::MAX)];
    let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    attach(socket, &filter)
}

#[expect(unsafe_code, reason = "a socket filter is attached by setsockopt")]
fn attach(socket: &Socket, filter: &libc::sock_fprog) -> io::Result<()> {
    use std::os::fd::AsRawFd;
    let length = size_of::<libc::sock_fprog>() as libc::socklen_t;
    let pointer = std::ptr::from_ref(filter).cast();
    // SAFETY: the pointer and the length describe a filter that lives, with its program, until the call is over.
    let result =
        unsafe { libc::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, pointer, length) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::own_network;
    use portico_dataplane::Dataplane;
    use portico_dataplane::nftables::Nftables;
    use portico_model::table::ForwardingTable;
    use std::process::Command;
    use std::time::Duration;
    use tokio::time::timeout;

    fn nft(words: &str) {
        assert!(Command::new("nft").args(words.split(' ')).status().unwrap().success(), "nft {words}");
    }

    #[tokio::test]
    async fn others_are_noticed_and_we_are_not() {
        own_network();
        let mut nftables = Nftables::open().unwrap();
        let mut disturbances = Disturbances::open(nftables.port()).unwrap();
        let mut next = async || timeout(Duration::from_secs(10), disturbances.next()).await.unwrap().unwrap();
        nftables.replace(&ForwardingTable::default()).unwrap();
        nft("add table ip other");
        nft("add table ip portico-not");
        // Were one of the above noticed, there would be one too many.
        nft("delete table ip portico");
        next().await;
        nftables.replace(&ForwardingTable::default()).unwrap();
        nft("flush ruleset");
        next().await;
        assert!(timeout(Duration::from_millis(50), disturbances.next()).await.is_err());
    }
}
