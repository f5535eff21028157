//! Questions by TCP, and transfers: so many connections at a time and no more, of them so many from
//! one address, and none that stays for nothing.

use super::{Context, seconds, sign};
use crate::answer::{self, Incoming, Transport};
use crate::metrics::Outcome;
use crate::transfer::{self, Transfer};
use crate::tsig::{Opened, Session};
use hickory_proto::op::{Message, ResponseCode};
use portico_client::connections::{Connections, Guest, Limits, Reason};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

/// Until the next question begins.
const IDLE: Duration = Duration::from_secs(10);
/// The time limit for the rest of a question, and for an answer to be taken.
const STALLED: Duration = Duration::from_secs(5);
/// The time limit for one message of a transfer to be taken.
const SLOW_TRANSFER: Duration = Duration::from_secs(30);
/// One address gets at most one in this many of all connections.
const SHARE: usize = 4;
/// The most answers on one connection; a client that wants more opens another.
const MOST_ANSWERS: usize = 10_000;

/// The bounds of all sockets together.
pub(super) fn clients(context: &Context) -> Arc<Connections> {
    let all = context.most_connections;
    let refused = context.metrics.refused_connections.clone();
    let limits = Limits {
        all,
        strangers: all,
        of_one_peer: all.div_ceil(SHARE),
        of_one_identity: all,
        first_request: IDLE,
        idle: IDLE,
    };
    Connections::new(limits, move |reason| {
        // Silence is no mistake, and was not refused anything.
        if reason != Reason::Silent {
            refused.inc();
        }
    })
}

pub(super) async fn serve(listener: TcpListener, context: Arc<Context>, clients: Arc<Connections>) {
    let mut connections = tokio::task::JoinSet::new();
    let mut sweeping = std::pin::pin!(clients.sweep());
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = connections.join_next() => continue,
            never = &mut sweeping => match never {},
        };
        match accepted {
            Ok((stream, from)) => {
                if let Some(guest) = clients.enter(from.ip()) {
                    let place = Place {
                        guest: Arc::new(guest),
                        context: Arc::clone(&context),
                    };
                    place.context.metrics.connections.inc();
                    connections.spawn(connection(stream, from, place));
                }
            }
            Err(error) => {
                // Out of file descriptors, most likely: one that is idle has to do.
                tracing::warn!(%error, "cannot accept a connection");
                clients.make_room();
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

/// A connection that is counted until it is dropped.
struct Place {
    guest: Arc<Guest>,
    context: Arc<Context>,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.context.metrics.connections.dec();
    }
}

async fn connection(mut stream: TcpStream, from: SocketAddr, place: Place) {
    tokio::select! {
        result = converse(&mut stream, from, &place) => if let Err(error) = result {
            tracing::debug!(%from, %error, "connection ended");
        },
        () = place.guest.ended() => {}
    }
}

/// Question, answer, question, answer.
async fn converse(stream: &mut TcpStream, from: SocketAddr, place: &Place) -> io::Result<()> {
    let context = &place.context;
    stream.set_nodelay(true)?;
    for turn in 0..MOST_ANSWERS {
        let Some(bytes) = receive(stream, IDLE).await? else {
            return Ok(());
        };
        let _under_way = place.guest.request(None);
        let (bytes, mut session) = match context.open(&bytes) {
            Opened::Unsigned => (bytes, None),
            Opened::Signed(bytes, session) => (bytes, Some(session)),
            Opened::Bad(_, answer) => {
                send(stream, &answer, STALLED).await?;
                continue;
            }
        };
        let left = session.as_ref().map_or(0, Session::size);
        let answer = match answer::read(&bytes) {
            // A client that sends no valid message is cut off.
            Incoming::Noise => return Ok(()),
            Incoming::Mistake(reply) => context.correct(*reply, Transport::Tcp),
            Incoming::Question(request) => context.answer(&request, Transport::Tcp, turn, left),
            Incoming::Transfer(request) => {
                let transfer = Transferral {
                    stream,
                    from,
                    context,
                    request: &request,
                    session: &mut session,
                };
                transfer.run().await?;
                continue;
            }
        };
        let Some(answer) = answer else { return Ok(()) };
        send(stream, &sign(session, answer), STALLED).await?;
    }
    Ok(())
}

async fn receive(stream: &mut TcpStream, idle: Duration) -> io::Result<Option<Vec<u8>>> {
    let late = |_| io::Error::from(io::ErrorKind::TimedOut);
    let mut first = [0; 1];
    // Silence is no mistake.
    match timeout(idle, stream.read(&mut first)).await {
        Err(_) | Ok(Ok(0)) => return Ok(None),
        Ok(read) => read?,
    };
    let rest = async {
        let length = usize::from(u16::from_be_bytes([first[0], stream.read_u8().await?]));
        let mut bytes = vec![0; length];
        stream.read_exact(&mut bytes).await?;
        Ok(Some(bytes))
    };
    timeout(STALLED, rest).await.map_err(late)?
}

async fn send(stream: &mut TcpStream, bytes: &[u8], patience: Duration) -> io::Result<()> {
    let length = u16::try_from(bytes.len()).map_err(io::Error::other)?;
    let mut framed = Vec::with_capacity(bytes.len() + 2);
    framed.extend_from_slice(&length.to_be_bytes());
    framed.extend_from_slice(bytes);
    timeout(patience, stream.write_all(&framed))
        .await
        .map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
}

/// A transfer of the zone to one client.
struct Transferral<'a> {
    stream: &'a mut TcpStream,
    from: SocketAddr,
    context: &'a Context,
    request: &'a Message,
    session: &'a mut Option<Session<'a>>,
}

impl Transferral<'_> {
    async fn run(mut self) -> io::Result<()> {
        let context = self.context;
        let count = |outcome| {
            context
                .metrics
                .transfers
                .get_or_create(&Outcome { outcome })
                .inc()
        };
        let allowed = context
            .transferring
            .allows(self.from.ip(), self.session.is_some());
        let place = context.transfers.try_acquire();
        let plan = match place {
            Ok(_) => transfer::plan(&context.zone(), self.request, allowed),
            Err(_) => Transfer::Reply(Box::new(answer::refuse(
                self.request,
                ResponseCode::ServFail,
            ))),
        };
        let snapshot = match plan {
            Transfer::All(snapshot) => snapshot,
            Transfer::Reply(reply) => {
                let code = reply.metadata.response_code;
                count(if code == ResponseCode::NoError {
                    "up_to_date"
                } else {
                    "refused"
                });
                let bytes =
                    context.send_off(self.request, *reply, usize::from(u16::MAX), Transport::Tcp);
                return self.send(bytes.unwrap_or_default()).await;
            }
        };
        tracing::info!(from = %self.from, serial = snapshot.serial(), "transferring the zone");
        let request = self.request;
        for message in transfer::messages(&snapshot, request) {
            let bytes = message.to_vec().map_err(io::Error::other)?;
            if let Err(error) = self.send(bytes).await {
                count("broken");
                return Err(error);
            }
        }
        count("done");
        Ok(())
    }

    /// Sends a message, which is signed if the question was.
    async fn send(&mut self, bytes: Vec<u8>) -> io::Result<()> {
        let bytes = match self.session {
            Some(session) => session.sign(&bytes, seconds()),
            None => bytes,
        };
        send(self.stream, &bytes, SLOW_TRANSFER).await
    }
}
