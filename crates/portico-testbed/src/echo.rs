//! Servers inside hosts that answer every request with their own name and the client's address.

use crate::sctp::{self, ABORT, INIT, INIT_ACK, Packet};
use portico_netns::{Host, Result};
use socket2::{Domain, Protocol, Socket, Type};
use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::str::FromStr;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};

/// What a server answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// The host that answers.
    pub host: String,
    /// The client's address as the server sees it.
    pub source: SocketAddr,
    /// The port it was asked on.
    pub port: u16,
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.host, self.source, self.port)
    }
}

impl FromStr for Seen {
    type Err = io::Error;

    fn from_str(text: &str) -> io::Result<Self> {
        let parse = || {
            let mut words = text.split_whitespace();
            let host = words.next()?.to_owned();
            Some(Self {
                host,
                source: words.next()?.parse().ok()?,
                port: words.next()?.parse().ok()?,
            })
        };
        parse().ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::InvalidData,
                format!("strange answer: {text:?}"),
            )
        })
    }
}

/// Servers inside a host.
pub trait Echo {
    /// Answers on this port, TCP (when a connection opens, and for every line) and UDP, in both
    /// families, until the bed is gone.
    fn serve(&self, port: u16) -> Result<()>;

    /// Answers SCTP on these ports in both families; on all others it refuses.
    fn serve_sctp(&self, ports: &[u16]) -> Result<()>;
}

impl Echo for Host {
    fn serve(&self, port: u16) -> Result<()> {
        let sockets = self.enter(|| Ok((bound(Type::STREAM, port)?, bound(Type::DGRAM, port)?)));
        let registered = sockets.and_then(|(tcp, udp)| {
            let _context = self.servers().enter();
            Ok((
                TcpListener::from_std(tcp.into())?,
                UdpSocket::from_std(udp.into())?,
            ))
        });
        let (tcp, udp) = registered.map_err(self.failed(format!("serve on port {port}")))?;
        let name: Arc<str> = self.name().into();
        self.servers().spawn(serve_udp(name.clone(), udp, port));
        self.servers().spawn(serve_tcp(name, tcp, port));
        Ok(())
    }

    fn serve_sctp(&self, ports: &[u16]) -> Result<()> {
        for domain in [Domain::IPV4, Domain::IPV6] {
            let socket =
                self.enter(|| Socket::new(domain, Type::RAW, Some(Protocol::from(sctp::NUMBER))));
            let registered = socket.and_then(|socket| {
                socket.set_nonblocking(true)?;
                let _context = self.servers().enter();
                UdpSocket::from_std(socket.into())
            });
            let socket = registered.map_err(self.failed("serve SCTP"))?;
            self.servers()
                .spawn(serve_sctp(self.name().to_owned(), socket, ports.to_vec()));
        }
        Ok(())
    }
}

fn bound(kind: Type, port: u16) -> io::Result<Socket> {
    let socket = Socket::new(Domain::IPV6, kind, None)?;
    socket.set_reuse_address(true)?;
    socket.set_only_v6(false)?;
    socket.set_nonblocking(true)?;
    socket.bind(&SocketAddr::from((Ipv6Addr::UNSPECIFIED, port)).into())?;
    if kind == Type::STREAM {
        socket.listen(4096)?;
    }
    Ok(socket)
}

/// IPv4 as IPv4, also where it came through an IPv6 socket.
fn plain(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

async fn serve_tcp(host: Arc<str>, listener: TcpListener, port: u16) {
    loop {
        if let Ok((stream, source)) = listener.accept().await {
            let seen = Seen {
                host: host.to_string(),
                source: plain(source),
                port,
            };
            tokio::spawn(serve_connection(stream, format!("{seen}\n")));
        }
    }
}

async fn serve_connection(mut stream: TcpStream, answer: String) {
    let mut buffer = [0; 1024];
    let mut questions = 1;
    // Neither a peer that is gone nor one that has said enough is worth a word.
    while stream
        .write_all(answer.repeat(questions).as_bytes())
        .await
        .is_ok()
    {
        match stream.read(&mut buffer).await {
            Ok(0) | Err(_) => return,
            Ok(length) => {
                questions = buffer[..length]
                    .iter()
                    .filter(|&&byte| byte == b'\n')
                    .count()
            }
        }
    }
}

async fn serve_udp(host: Arc<str>, socket: UdpSocket, port: u16) {
    let mut buffer = [0; 2048];
    loop {
        if let Ok((_, source)) = socket.recv_from(&mut buffer).await {
            let seen = Seen {
                host: host.to_string(),
                source: plain(source),
                port,
            };
            let _ = socket.send_to(format!("{seen}\n").as_bytes(), source).await;
        }
    }
}

/// The socket is a raw one; its addresses have no port of their own.
async fn serve_sctp(host: String, socket: UdpSocket, ports: Vec<u16>) {
    let mut buffer = [0; 2048];
    loop {
        let Ok((length, from)) = socket.recv_from(&mut buffer).await else {
            continue;
        };
        let question = Packet::parse(sctp::payload(&buffer[..length], from.is_ipv4()));
        if let Some(question) = question.filter(|question| question.chunk == INIT) {
            let answer = answer_init(
                &host,
                from.ip(),
                &question,
                ports.contains(&question.destination),
            );
            let _ = socket
                .send_to(&answer.emit(), SocketAddr::new(from.ip(), 0))
                .await;
        }
    }
}

fn answer_init(host: &str, from: IpAddr, question: &Packet, served: bool) -> Packet {
    let port = question.destination;
    let seen = Seen {
        host: host.to_owned(),
        source: SocketAddr::new(from, question.source),
        port,
    };
    Packet {
        source: port,
        destination: question.source,
        verification: question.tag,
        chunk: if served { INIT_ACK } else { ABORT },
        tag: if served {
            question.tag.wrapping_add(1).max(1)
        } else {
            0
        },
        cookie: if served {
            seen.to_string().into_bytes()
        } else {
            Vec::new()
        },
    }
}
