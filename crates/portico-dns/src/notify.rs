//! Tells secondaries that the zone changed (NOTIFY, RFC 1996), so that they do not have to ask all
//! the time. One that does not answer is told a few times; it will ask by itself some day.

use crate::config::Listen;
use crate::metrics::{Metrics, Outcome};
use hickory_proto::op::{Message, MessageType, OpCode, Query};
use hickory_proto::rr::{Record, RecordType};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::UdpSocket;
use tokio::sync::watch;

/// Waits for an answer, one after the other.
const WAITS: [Duration; 5] = [
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(4),
    Duration::from_secs(8),
    Duration::from_secs(16),
];

/// Tell one secondary of every change, for ever. `changes` holds the newest SOA; those in between
/// are of no interest.
pub(crate) async fn tell(
    secondary: SocketAddr,
    listen: Vec<Listen>,
    mut changes: watch::Receiver<Option<Record>>,
    metrics: Arc<Metrics>,
) {
    let mut newest = None;
    loop {
        let Some(soa) = newest.take() else {
            if changes.changed().await.is_err() {
                return;
            }
            newest = changes.borrow_and_update().clone();
            continue;
        };
        let outcome = tokio::select! {
            told = tell_once(secondary, &listen, &soa) => match told {
                Ok(true) => "answered",
                Ok(false) => "unanswered",
                Err(error) => {
                    tracing::debug!(%secondary, %error, "cannot tell of a change");
                    "failed"
                }
            },
            Ok(()) = changes.changed() => "overtaken",
        };
        if outcome == "overtaken" {
            newest = changes.borrow_and_update().clone();
        }
        metrics.notifies.get_or_create(&Outcome { outcome }).inc();
    }
}

/// Whether it answered.
async fn tell_once(secondary: SocketAddr, listen: &[Listen], soa: &Record) -> io::Result<bool> {
    let socket = UdpSocket::bind(source(secondary, listen)).await?;
    socket.connect(secondary).await?;
    let id = (portico_client::wait::fraction() * f64::from(u16::MAX)) as u16;
    let bytes = message(id, soa).to_vec().map_err(io::Error::other)?;
    for wait in WAITS {
        socket.send(&bytes).await?;
        match tokio::time::timeout(wait, answer(&socket, id)).await {
            Ok(Ok(())) => return Ok(true),
            // No server listens there at the moment.
            Ok(Err(_)) => tokio::time::sleep(wait).await,
            Err(_) => {}
        }
    }
    Ok(false)
}

async fn answer(socket: &UdpSocket, id: u16) -> io::Result<()> {
    let mut buffer = [0; 512];
    loop {
        let length = socket.recv(&mut buffer).await?;
        let Ok(message) = Message::from_vec(buffer.get(..length).unwrap_or_default()) else {
            continue;
        };
        let metadata = message.metadata;
        if metadata.id == id
            && metadata.message_type == MessageType::Response
            && metadata.op_code == OpCode::Notify
        {
            return Ok(());
        }
    }
}

/// Secondaries believe the address that they transfer from.
fn source(secondary: SocketAddr, listen: &[Listen]) -> SocketAddr {
    let same = |ip: &IpAddr| ip.is_ipv4() == secondary.is_ipv4();
    let any = if secondary.is_ipv4() {
        IpAddr::from(Ipv4Addr::UNSPECIFIED)
    } else {
        Ipv6Addr::UNSPECIFIED.into()
    };
    let ip = listen
        .iter()
        .map(|listen| listen.address.ip())
        .find(same)
        .unwrap_or(any);
    SocketAddr::new(ip, 0)
}

fn message(id: u16, soa: &Record) -> Message {
    let mut message = Message::new(id, MessageType::Query, OpCode::Notify);
    message.metadata.authoritative = true;
    message
        .queries
        .push(Query::query(soa.name.clone(), RecordType::SOA));
    message.answers.push(soa.clone());
    message
}
