//! UDP with the address that a packet was sent to: a machine has several, and an answer that comes
//! from another one than was asked is thrown away. Only the system calls.

use libc::{c_int, c_void, cmsghdr, iovec, msghdr};
use socket2::{SockAddr, Socket};
use std::io;
use std::mem;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, RawFd};

/// Room for one control message of either family, aligned for its header.
#[repr(C, align(8))]
struct Control([u8; 64]);

/// Where a packet was sent to, to be given back with the answer.
#[derive(Clone, Copy)]
pub(super) enum Local {
    V4(libc::in_pktinfo),
    V6(libc::in6_pktinfo),
    Unknown,
}

/// Ask the kernel to tell where packets are sent to.
pub(super) fn tell_local_addresses(socket: &Socket, v6: bool) -> io::Result<()> {
    let (level, name) = if v6 {
        (libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO)
    } else {
        (libc::IPPROTO_IP, libc::IP_PKTINFO)
    };
    set_on(socket.as_raw_fd(), level, name)
}

#[expect(
    unsafe_code,
    reason = "the option is not in the standard library, nor in socket2"
)]
fn set_on(fd: RawFd, level: c_int, name: c_int) -> io::Result<()> {
    let on: c_int = 1;
    // SAFETY: the value is a c_int on this stack, and its size is told.
    let result = unsafe {
        libc::setsockopt(
            fd,
            level,
            name,
            (&raw const on).cast(),
            mem::size_of::<c_int>() as libc::socklen_t,
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Receives a packet: its length, its sender, and the address that it was sent to.
#[expect(unsafe_code, reason = "control messages are only there in C")]
pub(super) fn receive(fd: RawFd, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr, Local)> {
    let mut control = Control([0; 64]);
    let mut part = iovec {
        iov_base: buffer.as_mut_ptr().cast(),
        iov_len: buffer.len(),
    };
    let mut length = 0;
    // SAFETY: the storage is large enough for every address; all pointers in the header are to
    // memory that outlives the call, with their lengths; the kernel writes the length of the
    // address, which the storage is told.
    let ((), from) = unsafe {
        SockAddr::try_init(|storage, storage_length| {
            let mut header: msghdr = mem::zeroed();
            header.msg_name = storage.cast();
            header.msg_namelen = *storage_length;
            header.msg_iov = &raw mut part;
            header.msg_iovlen = 1;
            header.msg_control = (&raw mut control).cast();
            header.msg_controllen = mem::size_of::<Control>();
            let received = libc::recvmsg(fd, &raw mut header, libc::MSG_DONTWAIT);
            length = usize::try_from(received).map_err(|_| io::Error::last_os_error())?;
            *storage_length = header.msg_namelen;
            Ok(())
        })?
    };
    let from = from
        .as_socket()
        .ok_or_else(|| io::Error::other("a packet without a sender"))?;
    Ok((length, from, local(&control)))
}

/// The first control message; no other is asked for.
#[expect(unsafe_code, reason = "control messages are only there in C")]
fn local(control: &Control) -> Local {
    // SAFETY: the memory is aligned for the header and larger than header and data of either
    // family; it was zero before, so that a message that is not there has the type 0. Both
    // structures are plain numbers.
    unsafe {
        let header = &*control.0.as_ptr().cast::<cmsghdr>();
        let data: *const c_void = libc::CMSG_DATA(header).cast();
        match (header.cmsg_level, header.cmsg_type) {
            (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
                Local::V4(data.cast::<libc::in_pktinfo>().read_unaligned())
            }
            (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
                Local::V6(data.cast::<libc::in6_pktinfo>().read_unaligned())
            }
            _ => Local::Unknown,
        }
    }
}

/// Send an answer from where its question was sent to.
#[expect(unsafe_code, reason = "control messages are only there in C")]
pub(super) fn send(fd: RawFd, bytes: &[u8], to: SocketAddr, from: Local) -> io::Result<usize> {
    let to = SockAddr::from(to);
    let mut control = Control([0; 64]);
    let mut part = iovec {
        iov_base: bytes.as_ptr().cast_mut().cast(),
        iov_len: bytes.len(),
    };
    // SAFETY: all pointers in the header are to memory that outlives the call, with their lengths,
    // and the kernel only reads what they point to; the control memory is aligned for its header
    // and large enough for header and data of either family.
    let sent = unsafe {
        let mut header: msghdr = mem::zeroed();
        header.msg_name = to.as_ptr().cast_mut().cast();
        header.msg_namelen = to.len();
        header.msg_iov = &raw mut part;
        header.msg_iovlen = 1;
        let message = control.0.as_mut_ptr().cast::<cmsghdr>();
        let (level, kind, size) = match from {
            Local::V4(_) => (
                libc::IPPROTO_IP,
                libc::IP_PKTINFO,
                mem::size_of::<libc::in_pktinfo>(),
            ),
            Local::V6(_) => (
                libc::IPPROTO_IPV6,
                libc::IPV6_PKTINFO,
                mem::size_of::<libc::in6_pktinfo>(),
            ),
            Local::Unknown => (0, 0, 0),
        };
        if size > 0 {
            (*message).cmsg_level = level;
            (*message).cmsg_type = kind;
            (*message).cmsg_len = libc::CMSG_LEN(size as u32) as usize;
            let data = libc::CMSG_DATA(message);
            match from {
                Local::V4(mut info) => {
                    // The way back may be by another interface.
                    info.ipi_ifindex = 0;
                    data.cast::<libc::in_pktinfo>().write_unaligned(info);
                }
                Local::V6(mut info) => {
                    // Only a link-local address means nothing without its interface.
                    if info.ipi6_addr.s6_addr.first() != Some(&0xfe) {
                        info.ipi6_ifindex = 0;
                    }
                    data.cast::<libc::in6_pktinfo>().write_unaligned(info);
                }
                Local::Unknown => {}
            }
            header.msg_control = (&raw mut control).cast();
            header.msg_controllen = libc::CMSG_SPACE(size as u32) as usize;
        }
        libc::sendmsg(
            fd,
            &raw const header,
            libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL,
        )
    };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}

#[cfg(test)]
mod tests {
    use super::*;
    use socket2::{Domain, Type};
    use std::net::UdpSocket;
    use std::time::Duration;

    #[test]
    fn answers_come_from_the_address_that_was_asked() {
        let socket = Socket::new(Domain::IPV4, Type::DGRAM, None).unwrap();
        tell_local_addresses(&socket, false).unwrap();
        socket
            .bind(&SocketAddr::from(([0, 0, 0, 0], 0)).into())
            .unwrap();
        let port = socket.local_addr().unwrap().as_socket().unwrap().port();
        let client = UdpSocket::bind("127.0.0.1:0").unwrap();
        client
            .set_read_timeout(Some(Duration::from_secs(10)))
            .unwrap();
        for to in ["127.0.0.1", "127.0.0.2", "127.3.4.5"] {
            let to: SocketAddr = format!("{to}:{port}").parse().unwrap();
            client.send_to(b"question", to).unwrap();
            let mut buffer = [0; 100];
            let (length, from, local) = loop {
                match receive(socket.as_raw_fd(), &mut buffer) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        std::thread::yield_now()
                    }
                    received => break received.unwrap(),
                }
            };
            assert_eq!(
                (&buffer[..length], from),
                (&b"question"[..], client.local_addr().unwrap())
            );
            assert_eq!(send(socket.as_raw_fd(), b"answer", from, local).unwrap(), 6);
            let (length, from) = client.recv_from(&mut buffer).unwrap();
            assert_eq!((&buffer[..length], from), (&b"answer"[..], to));
        }
    }
}
