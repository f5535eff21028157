//! TCP connections to routers: from where, how far, and with which signature.

use super::config::{Password, PeerConfig};
use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::time::Duration;
use tokio::net::{TcpSocket, TcpStream};

/// Class selector 6: what keeps the network together goes before what uses it.
const INTERNETWORK_CONTROL: u32 = 0xc0;
/// A router that takes nothing for so long is gone, whatever it says (RFC 9687).
const SEND_HOLD: Duration = Duration::from_secs(480);

pub(super) async fn connect(config: PeerConfig) -> io::Result<TcpStream> {
    let socket = prepare(&config)?;
    TcpSocket::from_std_stream(socket.into())
        .connect(config.address)
        .await
        .map_err(explain(&config))
}

fn prepare(config: &PeerConfig) -> io::Result<Socket> {
    let socket = Socket::new(
        Domain::for_address(config.address),
        Type::STREAM,
        Some(Protocol::TCP),
    )?;
    socket.set_nonblocking(true)?;
    socket.set_tcp_nodelay(true)?;
    socket.set_tcp_user_timeout(Some(SEND_HOLD))?;
    let v4 = config.address.is_ipv4();
    // A mark that a network ignores is no reason to do without a session.
    let _ = if v4 {
        socket.set_tos_v4(INTERNETWORK_CONTROL)
    } else {
        socket.set_tclass_v6(INTERNETWORK_CONTROL)
    };
    if config.local_as != config.peer_as && !config.ebgp_multihop {
        if v4 {
            socket.set_ttl_v4(1)?
        } else {
            socket.set_unicast_hops_v6(1)?
        }
    }
    if let Some(password) = &config.password {
        sign(&socket, config.address, password)?;
    }
    if let Some(source) = config.source {
        let source = SocketAddr::new(source, 0);
        let named = |error: io::Error| {
            io::Error::other(format!(
                "{} is no address to connect from: {error}",
                source.ip()
            ))
        };
        socket.bind(&source.into()).map_err(named)?;
    }
    Ok(socket)
}

/// A wrong password looks like a router that is not there: it answers nothing that is not signed
/// right.
fn explain(config: &PeerConfig) -> impl FnOnce(io::Error) -> io::Error {
    let (refused, signed) = (io::ErrorKind::ConnectionRefused, config.password.is_some());
    let address = config.address;
    move |error| match error.kind() {
        kind if kind == refused => io::Error::new(
            kind,
            format!("{address} refuses: is BGP running there, and is this node its neighbour?"),
        ),
        kind if signed => {
            io::Error::new(kind, format!("{error} (is the password the same there?)"))
        }
        _ => error,
    }
}

/// `struct tcp_md5sig` of `linux/tcp.h`.
#[repr(C)]
struct Signature {
    peer: libc::sockaddr_storage,
    flags: u8,
    prefix: u8,
    length: u16,
    interface: i32,
    key: [u8; Password::LONGEST],
}

/// Segments to and from the router are signed with the password (RFC 2385).
#[expect(unsafe_code, reason = "TCP_MD5SIG is only there as a socket option")]
fn sign(socket: &Socket, peer: SocketAddr, password: &Password) -> io::Result<()> {
    let mut key = [0; Password::LONGEST];
    key.iter_mut()
        .zip(password.bytes())
        .for_each(|(to, from)| *to = *from);
    let length = u16::try_from(password.bytes().len()).unwrap_or_default();
    let signature = Signature {
        peer: storage(peer),
        flags: 0,
        prefix: 0,
        length,
        interface: 0,
        key,
    };
    let size = libc::socklen_t::try_from(size_of::<Signature>()).unwrap_or_default();
    // SAFETY: the option is read from `signature`, which outlives the call and has the size that is
    // told.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_MD5SIG,
            (&raw const signature).cast(),
            size,
        )
    };
    match result {
        0 => Ok(()),
        _ => {
            let error = io::Error::last_os_error();
            Err(io::Error::new(
                error.kind(),
                format!("the kernel does not sign TCP segments (TCP_MD5SIG): {error}"),
            ))
        }
    }
}

#[expect(
    unsafe_code,
    reason = "an address of socket2 is the kernel's own structure in one of its size"
)]
fn storage(address: SocketAddr) -> libc::sockaddr_storage {
    let address = SockAddr::from(address);
    // SAFETY: zeroes are an address of no family.
    let mut storage: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
    let size = usize::try_from(address.len())
        .unwrap_or_default()
        .min(size_of::<libc::sockaddr_storage>());
    // SAFETY: both are at least `size` long, and are different objects.
    unsafe {
        std::ptr::copy_nonoverlapping(
            address.as_ptr().cast::<u8>(),
            (&raw mut storage).cast::<u8>(),
            size,
        )
    };
    storage
}
