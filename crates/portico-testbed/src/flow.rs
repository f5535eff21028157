//! Asking an echo server from inside a host, and what became of it.

use crate::echo::Seen;
use crate::sctp::{self, ABORT, INIT, INIT_ACK, Packet};
use portico_netns::Host;
use socket2::{Domain, Socket, Type};
use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use tokio::net::{TcpSocket, TcpStream, UdpSocket};
use tokio::time::timeout;

const EVENTS: Interest = Interest::READABLE.add(Interest::ERROR);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Protocol {
    Tcp,
    Udp,
    Sctp,
}

/// Where to, how, and how long to wait for the answer.
#[derive(Clone, Debug)]
pub struct Flow {
    pub protocol: Protocol,
    pub to: SocketAddr,
    /// One of the host's own addresses, if it matters which.
    pub source: Option<IpAddr>,
    /// Not for SCTP. 0 is any.
    pub source_port: u16,
    /// The packet mark, by which the host's rules may route.
    pub mark: Option<u32>,
    pub patience: Duration,
    /// SCTP only: a packet that rules drop on its way out is an answer of its own, since a raw
    /// socket gets that error, whatever ICMP says then.
    pub heeds_sending: bool,
}

impl Flow {
    pub fn new(protocol: Protocol, to: SocketAddr) -> Self {
        let patience = Duration::from_secs(3);
        Self {
            protocol,
            to,
            source: None,
            source_port: 0,
            mark: None,
            patience,
            heeds_sending: false,
        }
    }
}

/// An answer, and the address it was asked from.
#[derive(Clone, Debug)]
pub struct Answer {
    pub seen: Seen,
    pub local: IpAddr,
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Failure {
    Timeout,
    /// By a reset or by ICMP.
    Refused,
    Unreachable,
    /// In the middle of the conversation.
    Reset,
    /// The other side ended the conversation.
    Closed,
    Other(String),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Timeout => "timeout",
            Self::Refused => "refused",
            Self::Unreachable => "unreachable",
            Self::Reset => "reset",
            Self::Closed => "closed",
            Self::Other(text) => text,
        })
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        match (error.raw_os_error(), error.kind()) {
            (Some(libc::ETIMEDOUT), _) => Self::Timeout,
            (Some(libc::ECONNREFUSED), _) => Self::Refused,
            (Some(libc::EHOSTUNREACH | libc::ENETUNREACH | libc::EACCES | libc::EPERM), _) => {
                Self::Unreachable
            }
            (Some(libc::ECONNRESET | libc::EPIPE), _) => Self::Reset,
            (None, io::ErrorKind::UnexpectedEof) => Self::Closed,
            _ => Self::Other(error.to_string()),
        }
    }
}

/// Asking from inside a host.
pub trait Ask {
    /// Asks once.
    fn ask(&self, flow: &Flow) -> impl Future<Output = Result<Answer, Failure>> + Send;

    /// Asks over TCP or UDP and keeps the socket, so that one can ask again.
    fn open(
        &self,
        flow: &Flow,
    ) -> impl Future<Output = Result<(Answer, Conversation), Failure>> + Send;

    /// A TCP connection to any server, which need not be an echo server.
    fn connect(&self, flow: &Flow) -> impl Future<Output = Result<TcpStream, Failure>> + Send;

    /// Sends a question over UDP and keeps the socket without waiting for an answer.
    fn open_unanswered(
        &self,
        flow: &Flow,
    ) -> impl Future<Output = Result<Conversation, Failure>> + Send;
}

impl Ask for Host {
    async fn ask(&self, flow: &Flow) -> Result<Answer, Failure> {
        match flow.protocol {
            Protocol::Sctp => ask_sctp(self, flow).await,
            _ => self.open(flow).await.map(|(answer, _)| answer),
        }
    }

    async fn open(&self, flow: &Flow) -> Result<(Answer, Conversation), Failure> {
        within(flow.patience, async {
            let (conversation, seen, local) = match flow.protocol {
                Protocol::Tcp => open_tcp(self, flow).await?,
                _ => {
                    let socket = udp(self, flow)?;
                    let seen = ask_udp(&socket).await?;
                    let local = socket.local_addr()?;
                    (Conversation::Udp(socket), seen, local)
                }
            };
            Ok((
                Answer {
                    seen,
                    local: local.ip(),
                },
                conversation,
            ))
        })
        .await
    }

    async fn connect(&self, flow: &Flow) -> Result<TcpStream, Failure> {
        within(flow.patience, connect_tcp(self, flow)).await
    }

    async fn open_unanswered(&self, flow: &Flow) -> Result<Conversation, Failure> {
        let socket = udp(self, flow)?;
        let _ = socket.send(b"?\n").await;
        Ok(Conversation::Udp(socket))
    }
}

async fn connect_tcp(host: &Host, flow: &Flow) -> io::Result<TcpStream> {
    let socket = socket(host, flow, Type::STREAM, None)?;
    // Nothing of a test's many connections is to stay around.
    socket.set_linger(Some(Duration::ZERO))?;
    TcpSocket::from_std_stream(socket.into())
        .connect(flow.to)
        .await
}

async fn open_tcp(host: &Host, flow: &Flow) -> io::Result<(Conversation, Seen, SocketAddr)> {
    let mut stream = connect_tcp(host, flow).await?;
    let seen = read_line(&mut stream).await?;
    let local = stream.local_addr()?;
    Ok((Conversation::Tcp(stream), seen, local))
}

fn udp(host: &Host, flow: &Flow) -> io::Result<UdpSocket> {
    let socket = socket(host, flow, Type::DGRAM, None)?;
    socket.connect(&flow.to.into())?;
    UdpSocket::from_std(socket.into())
}

/// A socket of this host, ready to connect.
fn socket(
    host: &Host,
    flow: &Flow,
    kind: Type,
    protocol: Option<socket2::Protocol>,
) -> io::Result<Socket> {
    let socket = host.enter(|| Socket::new(Domain::for_address(flow.to), kind, protocol))?;
    socket.set_nonblocking(true)?;
    if let Some(mark) = flow.mark {
        socket.set_mark(mark)?;
    }
    if flow.source.is_some() || flow.source_port != 0 {
        let any = if flow.to.is_ipv4() {
            Ipv4Addr::UNSPECIFIED.into()
        } else {
            Ipv6Addr::UNSPECIFIED.into()
        };
        socket.set_reuse_address(true)?;
        socket.bind(&SocketAddr::new(flow.source.unwrap_or(any), flow.source_port).into())?;
    }
    Ok(socket)
}

async fn ask_sctp(host: &Host, flow: &Flow) -> Result<Answer, Failure> {
    static COUNT: AtomicU32 = AtomicU32::new(1);
    let tag = COUNT.fetch_add(1, Ordering::Relaxed);
    let source = 20_000 + (tag % 40_000) as u16;
    let raw = socket(host, flow, Type::RAW, Some(sctp::NUMBER.into()))?;
    collect_errors(raw.as_fd(), flow.to.is_ipv4())?;
    raw.connect(&SocketAddr::new(flow.to.ip(), 0).into())?;
    // It is read and written like one of UDP.
    let socket = UdpSocket::from_std(raw.into())?;
    let local = socket.local_addr()?.ip();
    let question = Packet {
        source,
        destination: flow.to.port(),
        verification: 0,
        chunk: INIT,
        tag,
        cookie: Vec::new(),
    };
    within(flow.patience, async {
        match socket.send(&question.emit()).await {
            // Dropped on the way out; an ICMP error, if any, follows.
            Err(error) if error.raw_os_error() == Some(libc::EPERM) && !flow.heeds_sending => {}
            sent => drop(sent?),
        }
        let seen = sctp_answer(&socket, &question, flow.to.is_ipv4()).await?;
        Ok(Answer { seen, local })
    })
    .await
}

/// A TCP connection or a UDP flow, kept.
pub enum Conversation {
    Tcp(TcpStream),
    Udp(UdpSocket),
}

impl Conversation {
    /// Asks again.
    pub async fn again(&mut self, patience: Duration) -> Result<Seen, Failure> {
        within(patience, async {
            match self {
                Self::Tcp(stream) => {
                    stream.write_all(b"?\n").await?;
                    read_line(stream).await
                }
                Self::Udp(socket) => ask_afresh(socket).await,
            }
        })
        .await
    }
}

async fn within<T>(
    patience: Duration,
    asking: impl Future<Output = io::Result<T>>,
) -> Result<T, Failure> {
    match timeout(patience, asking).await {
        Ok(outcome) => outcome.map_err(Failure::from),
        Err(_) => Err(Failure::Timeout),
    }
}

async fn read_line(stream: &mut TcpStream) -> io::Result<Seen> {
    let mut text = Vec::new();
    while !text.ends_with(b"\n") {
        if stream.read_buf(&mut text).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    String::from_utf8_lossy(&text).parse()
}

async fn ask_udp(socket: &UdpSocket) -> io::Result<Seen> {
    match socket.send(b"?\n").await {
        // Dropped on the way out; an ICMP error, if any, follows.
        Err(error) if error.raw_os_error() == Some(libc::EPERM) => {}
        sent => drop(sent?),
    }
    let mut buffer = [0; 2048];
    loop {
        socket.ready(EVENTS).await?;
        if let Some(length) = unless_would_block(socket.try_recv(&mut buffer))? {
            return String::from_utf8_lossy(&buffer[..length]).parse();
        }
        unless_would_block(socket.try_io(Interest::ERROR, || pending_error(socket)))?;
    }
}

/// Forgets answers and errors of the past, then asks.
async fn ask_afresh(socket: &UdpSocket) -> io::Result<Seen> {
    let _ = socket.take_error();
    while !matches!(socket.try_recv(&mut [0; 2048]), Err(error) if error.kind() == io::ErrorKind::WouldBlock)
    {
    }
    ask_udp(socket).await
}

/// Raw sockets see the packets of all flows: picks the answer to this question out of them.
async fn sctp_answer(socket: &UdpSocket, question: &Packet, v4: bool) -> io::Result<Seen> {
    let (mut buffer, ports) = ([0; 2048], question.emit());
    loop {
        socket.ready(EVENTS).await?;
        while let Some((payload, error)) =
            unless_would_block(socket.try_io(Interest::ERROR, || take_error(socket.as_fd())))?
        {
            if payload.starts_with(&ports[..4]) {
                return Err(error);
            }
        }
        let length = match socket.try_recv(&mut buffer) {
            Ok(length) => length,
            Err(_) => continue, // nothing, or what the error queue tells in detail
        };
        let packet = Packet::parse(sctp::payload(&buffer[..length], v4));
        let ours = |packet: &Packet| {
            packet.source == question.destination && packet.destination == question.source
        };
        match packet.filter(ours) {
            Some(packet) if packet.chunk == INIT_ACK && packet.verification == question.tag => {
                return String::from_utf8_lossy(&packet.cookie).parse();
            }
            Some(packet) if packet.chunk == ABORT => {
                return Err(io::Error::from_raw_os_error(libc::ECONNREFUSED));
            }
            _ => {}
        }
    }
}

fn pending_error(socket: &UdpSocket) -> io::Result<()> {
    Err(socket
        .take_error()?
        .unwrap_or(io::ErrorKind::WouldBlock.into()))
}

fn unless_would_block<T>(outcome: io::Result<T>) -> io::Result<Option<T>> {
    match outcome {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        outcome => outcome.map(Some),
    }
}

/// Asks the kernel to keep ICMP errors with the packets they are about.
#[expect(unsafe_code, reason = "IP_RECVERR has no safe wrapper")]
fn collect_errors(socket: BorrowedFd<'_>, v4: bool) -> io::Result<()> {
    let (level, option) = if v4 {
        (libc::IPPROTO_IP, libc::IP_RECVERR)
    } else {
        (libc::IPPROTO_IPV6, libc::IPV6_RECVERR)
    };
    let on: libc::c_int = 1;
    // SAFETY: the option is an int; the pointer and its length are those of one that lives until
    // the call returns.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            option,
            (&raw const on).cast(),
            size_of_val(&on) as libc::socklen_t,
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// The next ICMP error in the socket's queue: the beginning of the packet it is about, and what it
/// says.
#[expect(unsafe_code, reason = "the error queue is only reached by recvmsg")]
fn take_error(socket: BorrowedFd<'_>) -> io::Result<(Vec<u8>, io::Error)> {
    let (mut payload, mut control) = (vec![0_u8; 512], [0_u64; 64]);
    let mut part = libc::iovec {
        iov_base: payload.as_mut_ptr().cast(),
        iov_len: payload.len(),
    };
    // SAFETY: a msghdr is integers and pointers; all zero is a valid, empty one.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    header.msg_iov = &raw mut part;
    header.msg_iovlen = 1;
    header.msg_control = control.as_mut_ptr().cast();
    header.msg_controllen = size_of_val(&control) as _;
    // SAFETY: the header points at buffers with their lengths, all of which outlive the call.
    let length = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut header, libc::MSG_ERRQUEUE) };
    match usize::try_from(length) {
        Err(_) => Err(io::Error::last_os_error()),
        Ok(length) => {
            payload.truncate(length);
            // One control message: its header, then an error description that begins with the
            // number.
            let number = control[size_of::<libc::cmsghdr>() / 8].to_ne_bytes();
            let number = i32::from_ne_bytes([number[0], number[1], number[2], number[3]]);
            Ok((payload, io::Error::from_raw_os_error(number)))
        }
    }
}
