//! The sockets that VRRP packets go through. What is in them is for `portico-vrrp`; of other
//! virtual routers' packets nothing is seen here.

use super::filter;
use super::ready::readable;
use super::wire::chunk;
use portico_vrrp::Config;
use portico_vrrp::packet::{GROUP_V4, GROUP_V6, HOPS, PROTOCOL, group};
use socket2::{Domain, InterfaceIndexOrAddress, SockAddr, Socket, Type};
use std::io::{self, Read};
use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::os::fd::AsRawFd;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// What routers tell each other goes before everything else (internetwork control).
const TRAFFIC_CLASS: u32 = 0xc0;
/// Bytes of packets of our own virtual router that wait in the socket; more of them are a flood.
const RECEIVE_QUEUE: usize = 64 << 10;
const VRID: u32 = 1;

/// A packet that came in; the payload is in the buffer it was read into.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Received {
    pub from: IpAddr,
    pub to: IpAddr,
    pub hops: u8,
    pub payload: std::ops::Range<usize>,
}

/// On one link. Belongs to the network namespace of the thread that opened it.
pub(super) struct Adverts {
    receiver: AsyncFd<Socket>,
    sender: Socket,
    /// Sends with the hardware address of the virtual router.
    virtual_sender: Option<Socket>,
    group: SockAddr,
    link: u32,
}

impl Adverts {
    /// Hears and sends on the link with this name and number. To be called in an async runtime.
    pub(super) fn open(config: &Config, name: &str, link: u32) -> io::Result<Self> {
        let receiver = receiver(config, name, link)?;
        Ok(Self {
            receiver: readable(receiver)?,
            sender: sender(config.own, name, link)?,
            virtual_sender: None,
            group: on_link(group(config.own), link),
            link,
        })
    }

    /// Sends packets for the group through this link from now on.
    pub(super) fn send_through(&mut self, own: IpAddr, name: &str, link: u32) -> io::Result<()> {
        self.virtual_sender = Some(sender(own, name, link)?);
        Ok(())
    }

    pub(super) fn send_through_own_link(&mut self) {
        self.virtual_sender = None;
    }

    pub(super) fn send(&self, payload: &[u8]) -> io::Result<()> {
        let sender = self.virtual_sender.as_ref().unwrap_or(&self.sender);
        sender.send_to(payload, &self.group).map(drop)
    }

    pub(super) fn send_to(&self, peer: IpAddr, payload: &[u8]) -> io::Result<()> {
        self.sender
            .send_to(payload, &on_link(peer, self.link))
            .map(drop)
    }

    /// Nothing is lost if it is dropped half way.
    pub(super) async fn receive(&self, buffer: &mut [u8]) -> io::Result<Received> {
        loop {
            let received = self
                .receiver
                .async_io(Interest::READABLE, |socket| {
                    receive(socket, &self.group, buffer)
                })
                .await?;
            if let Some(received) = received {
                return Ok(received);
            }
        }
    }

    /// What has come already.
    pub(super) fn waiting(&self, buffer: &mut [u8]) -> Option<Received> {
        receive(self.receiver.get_ref(), &self.group, buffer)
            .ok()
            .flatten()
    }
}

fn receiver(config: &Config, name: &str, link: u32) -> io::Result<Socket> {
    let socket = raw(config.own)?;
    socket.bind_device(Some(name.as_bytes()))?;
    let multicast = config.peers.is_empty();
    match config.own {
        IpAddr::V4(_) => {
            let mut steps = Vec::from(filter::byte_after_ipv4(VRID));
            steps.extend(filter::require(config.vrid.into()));
            steps.push(filter::accept());
            socket.attach_filter(&steps)?;
            socket.set_multicast_all_v4(false)?;
            if multicast {
                socket.join_multicast_v4_n(&GROUP_V4, &InterfaceIndexOrAddress::Index(link))?;
            }
        }
        IpAddr::V6(_) => {
            let mut steps = vec![filter::byte(VRID)];
            steps.extend(filter::require(config.vrid.into()));
            steps.push(filter::accept());
            socket.attach_filter(&steps)?;
            socket.set_multicast_all_v6(false)?;
            socket.set_recv_hoplimit_v6(true)?;
            want_destination_v6(&socket)?;
            if multicast {
                socket.join_multicast_v6(&GROUP_V6, link)?;
            }
        }
    }
    socket.set_recv_buffer_size(RECEIVE_QUEUE)?;
    Ok(socket)
}

fn sender(own: IpAddr, name: &str, link: u32) -> io::Result<Socket> {
    let socket = raw(own)?;
    socket.attach_filter(&[filter::refuse()])?;
    socket.bind_device(Some(name.as_bytes()))?;
    match own {
        IpAddr::V4(_) => {
            socket.set_multicast_loop_v4(false)?;
            socket.set_multicast_ttl_v4(HOPS.into())?;
            socket.set_ttl_v4(HOPS.into())?;
            socket.set_tos_v4(TRAFFIC_CLASS)?;
        }
        IpAddr::V6(_) => {
            socket.set_multicast_loop_v6(false)?;
            socket.set_multicast_hops_v6(HOPS.into())?;
            socket.set_unicast_hops_v6(HOPS.into())?;
            socket.set_tclass_v6(TRAFFIC_CLASS)?;
            // The link of the virtual hardware address does not have our own address.
            socket.set_freebind_v6(true)?;
        }
    }
    socket.bind(&on_link(own, link))?;
    Ok(socket)
}

fn raw(family_of: IpAddr) -> io::Result<Socket> {
    let socket = Socket::new(
        Domain::for_address((family_of, 0).into()),
        Type::RAW,
        Some(i32::from(PROTOCOL).into()),
    )?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// Addresses that every link has need to say which link is meant.
fn on_link(address: IpAddr, link: u32) -> SockAddr {
    match address {
        IpAddr::V4(_) => SocketAddr::new(address, 0).into(),
        IpAddr::V6(v6) if v6.is_unicast_link_local() || v6.is_multicast() => {
            SocketAddrV6::new(v6, 0, 0, link).into()
        }
        IpAddr::V6(_) => SocketAddr::new(address, 0).into(),
    }
}

/// `None` if it cannot be made sense of.
fn receive(
    socket: &Socket,
    family_of: &SockAddr,
    buffer: &mut [u8],
) -> io::Result<Option<Received>> {
    if family_of.is_ipv4() {
        let length = (&*socket).read(buffer)?;
        return Ok(buffer.get(..length).and_then(received_v4));
    }
    let mut control = [0; 128];
    let (length, control_length, from) = receive_message(socket, buffer, &mut control)?;
    let Some((to, hops)) = control.get(..control_length).and_then(ancillary) else {
        return Ok(None);
    };
    Ok(Some(Received {
        from: from.into(),
        to: to.into(),
        hops,
        payload: 0..length,
    }))
}

/// IPv4 comes with its header.
fn received_v4(packet: &[u8]) -> Option<Received> {
    let header = usize::from(packet.first()? & 0xf) * 4;
    packet.get(header..)?;
    let address = |at| chunk::<4>(packet, at).map(IpAddr::from);
    Some(Received {
        from: address(12)?,
        to: address(16)?,
        hops: *packet.get(8)?,
        payload: header..packet.len(),
    })
}

/// Destination and hop limit, which come beside an IPv6 packet.
fn ancillary(mut control: &[u8]) -> Option<(Ipv6Addr, u8)> {
    const LENGTH: usize = size_of::<usize>();
    const HEADER: usize = LENGTH + 8;
    let (mut to, mut hops) = (None, None);
    while let Some(length) = chunk(control, 0).map(usize::from_ne_bytes) {
        let kind = i32::from_ne_bytes(chunk(control, LENGTH + 4)?);
        let data = control.get(HEADER..length)?;
        match (i32::from_ne_bytes(chunk(control, LENGTH)?), kind) {
            (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
                to = chunk::<16>(data, 0).map(Ipv6Addr::from)
            }
            (libc::IPPROTO_IPV6, libc::IPV6_HOPLIMIT) => {
                hops = chunk(data, 0).map(i32::from_ne_bytes)
            }
            _ => {}
        }
        control = control
            .get(length.next_multiple_of(LENGTH)..)
            .unwrap_or_default();
    }
    Some((to?, u8::try_from(hops?).ok()?))
}

#[expect(unsafe_code, reason = "this option is not in the libraries")]
fn want_destination_v6(socket: &Socket) -> io::Result<()> {
    let (yes, length) = (1_i32, size_of::<i32>() as u32);
    // SAFETY: the value is an int that lives through the call, and its length is given.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_IPV6,
            libc::IPV6_RECVPKTINFO,
            (&raw const yes).cast(),
            length,
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// The lengths of what was written to the two buffers, and the sender.
#[expect(
    unsafe_code,
    reason = "the standard library does not give out what comes beside a packet"
)]
fn receive_message(
    socket: &Socket,
    buffer: &mut [u8],
    control: &mut [u8],
) -> io::Result<(usize, usize, Ipv6Addr)> {
    // SAFETY: all zero is valid for both structs. Every pointer comes with the length of what it
    // points to, which outlives the call and which the kernel writes no further than.
    unsafe {
        let mut from: libc::sockaddr_in6 = std::mem::zeroed();
        let mut part = libc::iovec {
            iov_base: buffer.as_mut_ptr().cast(),
            iov_len: buffer.len(),
        };
        let mut message: libc::msghdr = std::mem::zeroed();
        message.msg_name = (&raw mut from).cast();
        message.msg_namelen = size_of::<libc::sockaddr_in6>() as u32;
        message.msg_iov = &raw mut part;
        message.msg_iovlen = 1;
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = control.len() as _;
        let length = libc::recvmsg(socket.as_raw_fd(), &raw mut message, 0);
        let length = usize::try_from(length).map_err(|_| io::Error::last_os_error())?;
        Ok((
            length,
            message.msg_controllen as usize,
            from.sin6_addr.s6_addr.into(),
        ))
    }
}

/// Reads bytes in every way that this module does, for tests.
#[cfg(test)]
pub(super) fn read(bytes: &[u8]) {
    let _ = (received_v4(bytes), ancillary(bytes));
}

#[cfg(test)]
mod tests;
