//! The sockets: UDP and TCP at each address. What is answered is decided in `answer` and
//! `transfer`; which clients get an answer, in `limit`.

mod packet;
mod tcp;
mod udp;

use crate::answer::{self, Transport};
use crate::config::Listen;
use crate::limit::Limit;
use crate::metrics::Metrics;
use crate::transfer::Allowed;
use crate::tsig::{self, Key, Opened, Session};
use crate::zone::Zone;
use hickory_proto::op::Message;
use hickory_proto::rr::RecordType;
use ipnet::IpNet;
use socket2::{Domain, Protocol, Socket, Type};
use std::hash::RandomState;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};
use std::time::{Instant, SystemTime, UNIX_EPOCH};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

/// Packets that wait for us in the kernel.
const RECEIVE_BUFFER: usize = 1 << 20;
const MOST_WORKERS: usize = 8;
/// Transfers at a time.
const MOST_TRANSFERS: usize = 4;
const BACKLOG: i32 = 256;

/// What answering needs, for all sockets.
pub(crate) struct Context {
    pub zone: Arc<RwLock<Zone>>,
    pub metrics: Arc<Metrics>,
    pub transferring: Transferring,
    pub limit: Limit<RandomState>,
    /// Times are counted from here.
    pub start: Instant,
    pub most_connections: usize,
    transfers: Semaphore,
}

/// The clients that may have the whole zone.
pub(crate) struct Transferring {
    networks: Vec<IpNet>,
    keys: Vec<Key>,
}

impl Transferring {
    pub(crate) fn new(networks: Vec<IpNet>, keys: Vec<Key>) -> Self {
        Self { networks, keys }
    }

    fn allows(&self, client: IpAddr, is_signed: bool) -> Allowed {
        let client = client.to_canonical();
        let by_key = is_signed || self.keys.is_empty();
        let anywhere = self.networks.is_empty() && !self.keys.is_empty();
        Allowed(by_key && (anywhere || self.networks.iter().any(|net| net.contains(&client))))
    }
}

#[derive(Debug, thiserror::Error)]
#[error("cannot answer at {address} by {transport}{hint}")]
pub struct BindError {
    address: SocketAddr,
    transport: &'static str,
    hint: &'static str,
    source: io::Error,
}

/// Bound sockets that are not read yet.
pub(crate) struct Sockets {
    udp: Vec<Vec<tokio::net::UdpSocket>>,
    tcp: Vec<TcpListener>,
}

impl Context {
    pub(crate) fn new(
        zone: Arc<RwLock<Zone>>,
        metrics: Arc<Metrics>,
        transferring: Transferring,
        rate_limit: u32,
        most_connections: usize,
    ) -> Self {
        Self {
            zone,
            metrics,
            transferring,
            limit: Limit::new(rate_limit, RandomState::new()),
            start: Instant::now(),
            most_connections,
            transfers: Semaphore::new(MOST_TRANSFERS),
        }
    }

    fn zone(&self) -> RwLockReadGuard<'_, Zone> {
        self.zone.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn open(&self, bytes: &[u8]) -> Opened<'_> {
        tsig::open(&self.transferring.keys, bytes, seconds())
    }

    /// The bytes of the answer to a question, with so much room left for a signature.
    fn answer(
        &self,
        request: &Message,
        transport: Transport,
        chance: usize,
        left: usize,
    ) -> Option<Vec<u8>> {
        let room = answer::room(request, transport).saturating_sub(left);
        let reply = answer::answer(&self.zone(), request, transport, chance);
        self.send_off(request, reply, room, transport)
    }

    fn send_off(
        &self,
        request: &Message,
        reply: Message,
        room: usize,
        transport: Transport,
    ) -> Option<Vec<u8>> {
        let name = if transport == Transport::Udp {
            "udp"
        } else {
            "tcp"
        };
        let kind: Option<RecordType> = request.queries.first().map(|query| query.query_type());
        self.metrics
            .answered(name, kind, reply.metadata.response_code);
        answer::write(reply, room, transport)
    }

    /// The answer to what is no question.
    fn correct(&self, reply: Message, transport: Transport) -> Option<Vec<u8>> {
        let room = usize::from(answer::MOST_UDP);
        self.send_off(
            &Message::response(0, reply.metadata.op_code),
            reply,
            room,
            transport,
        )
    }
}

/// With a signature where the question had one.
fn sign(session: Option<Session<'_>>, answer: Vec<u8>) -> Vec<u8> {
    match session {
        Some(mut session) => session.sign(&answer, seconds()),
        None => answer,
    }
}

fn seconds() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs()
}

/// Bind everything; an address of a family that the machine does not have is left out where that is
/// allowed.
pub(crate) fn bind(listen: &[Listen]) -> Result<Sockets, BindError> {
    let workers = std::thread::available_parallelism()
        .map_or(1, usize::from)
        .min(MOST_WORKERS);
    let mut sockets = Sockets {
        udp: Vec::new(),
        tcp: Vec::new(),
    };
    for Listen { address, optional } in listen {
        let bad = |transport, source: io::Error| {
            let hint = match source.kind() {
                io::ErrorKind::PermissionDenied => " (ports below 1024 need CAP_NET_BIND_SERVICE)",
                io::ErrorKind::AddrInUse => {
                    " (does another DNS server run here? --listen takes single addresses)"
                }
                _ => "",
            };
            BindError {
                address: *address,
                transport,
                hint,
                source,
            }
        };
        let bound = (0..workers)
            .map(|_| udp::bind(*address))
            .collect::<io::Result<Vec<_>>>();
        match bound {
            Err(error) if *optional && error.raw_os_error() == Some(libc::EAFNOSUPPORT) => {
                tracing::info!(%address, "this machine does not have this family, going on without");
                continue;
            }
            bound => sockets.udp.push(bound.map_err(|error| bad("UDP", error))?),
        }
        sockets
            .tcp
            .push(bind_tcp(*address).map_err(|error| bad("TCP", error))?);
    }
    Ok(sockets)
}

fn bind_tcp(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM,
        Some(Protocol::TCP),
    )?;
    socket.set_reuse_address(true)?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    TcpListener::from_std(socket.into())
}

/// Answer until the set is dropped.
pub(crate) fn serve(sockets: Sockets, context: &Arc<Context>) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    for socket in sockets.udp.into_iter().flatten() {
        tasks.spawn(udp::serve(socket, Arc::clone(context)));
    }
    let clients = tcp::clients(context);
    for listener in sockets.tcp {
        tasks.spawn(tcp::serve(
            listener,
            Arc::clone(context),
            Arc::clone(&clients),
        ));
    }
    tasks
}
