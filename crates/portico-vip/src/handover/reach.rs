//! Whether a host on the link is there: the kernel asks (ARP, neighbour discovery), and we ask the
//! kernel.

use portico_dataplane::netlink::{Message, Messages, Socket, flags};
use std::io;
use std::net::IpAddr;

/// struct ndmsg
const HEADER: usize = 12;
/// Neighbour entries that the kernel does not probe.
const FIXED: u16 = libc::NUD_NOARP | libc::NUD_PERMANENT;

/// Has the kernel ask now, and says whether the host has answered since it was last asked to.
pub(super) fn look_and_ask(kernel: &mut Socket, link: u32, host: IpAddr) -> bool {
    match kernel
        .query(&get(link, host), |message| state(&message))
        .map(|found| found.first().copied())
    {
        Ok(Some(state)) if state & FIXED != 0 => true,
        Ok(Some(state)) => {
            note(ask(kernel, link, host));
            state & libc::NUD_REACHABLE != 0
        }
        Ok(None) | Err(_) => {
            note(ask(kernel, link, host));
            false
        }
    }
}

/// One that is not known yet is looked up; one that is must prove itself.
fn ask(kernel: &mut Socket, link: u32, host: IpAddr) -> io::Result<()> {
    let mut request = Messages::new();
    entry(
        &mut request,
        libc::RTM_NEWNEIGH,
        flags::ACK | flags::CREATE,
        link,
        host,
        (0, libc::NTF_USE),
    );
    entry(
        &mut request,
        libc::RTM_NEWNEIGH,
        flags::ACK,
        link,
        host,
        (libc::NUD_PROBE, 0),
    );
    let mut replies = kernel.exchange(&request)?;
    // One that is being looked up has nothing to prove.
    replies
        .refused
        .retain(|refusal| refusal.error.raw_os_error() != Some(libc::EINVAL));
    replies.into_result().map(drop)
}

fn note(asked: io::Result<()>) {
    if let Err(error) = asked {
        tracing::debug!(%error, "cannot ask whether the owner before us is there");
    }
}

fn get(link: u32, host: IpAddr) -> Messages {
    let mut request = Messages::new();
    entry(&mut request, libc::RTM_GETNEIGH, 0, link, host, (0, 0));
    request
}

fn entry(
    request: &mut Messages,
    kind: u16,
    flags: u16,
    link: u32,
    host: IpAddr,
    (state, flag): (u16, u8),
) {
    let family = if host.is_ipv4() {
        libc::AF_INET
    } else {
        libc::AF_INET6
    } as u8;
    request.message(kind, flags, |m| {
        m.raw(&[family, 0, 0, 0]);
        m.raw(&link.to_ne_bytes());
        let [low, high] = state.to_ne_bytes();
        m.raw(&[low, high, flag, 0]);
        match host {
            IpAddr::V4(host) => m.put(libc::NDA_DST, &host.octets()),
            IpAddr::V6(host) => m.put(libc::NDA_DST, &host.octets()),
        }
    });
}

fn state(message: &Message) -> Option<u16> {
    let header = message
        .payload
        .first_chunk::<HEADER>()
        .filter(|_| message.kind == libc::RTM_NEWNEIGH)?;
    Some(u16::from_ne_bytes([header[8], header[9]]))
}
