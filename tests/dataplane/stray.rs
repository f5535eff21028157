//! An endpoint sends a segment far outside the window of an open TCP connection. A node that lets
//! it through without undoing the address translation makes the client answer with a reset, which
//! ends the connection.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use portico_testbed::Ask as _;
use portico_testbed::flow::Conversation;
use portico_testbed::{Cluster, Host, Seen};
use serde_json::{Value, json};
use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use std::io::Read;
use tokio::time::sleep;

use crate::probes::flow;
use crate::scenario::Probe;

const TCP: u8 = 6;
const PAYLOAD: &[u8] = b"stray";

pub(crate) async fn segment(cluster: &Cluster, probe: &Probe) -> Value {
    let endpoint = cluster.host(probe.backend.as_deref().unwrap()).unwrap();
    let flow = flow(cluster, probe);
    let mut sniffer = endpoint.enter(|| sniffer(flow.to.is_ipv4()));
    let client = cluster.host(&probe.from).unwrap();
    for _ in 0..60 {
        let Ok((answer, conversation)) = client.open(&flow).await else {
            break;
        };
        if answer.seen.host == endpoint.name() {
            let own = cluster
                .addresses
                .of(
                    endpoint.name(),
                    if flow.to.is_ipv4() { "ip" } else { "ip6" },
                )
                .unwrap();
            return disturb(endpoint, own, &mut sniffer, answer.seen, conversation).await;
        }
    }
    json!({"state": "endpoint not reached"})
}

async fn disturb(
    host: &Host,
    own: IpAddr,
    sniffer: &mut Socket,
    seen: Seen,
    mut conversation: Conversation,
) -> Value {
    // The endpoint's first answer is acknowledged a moment after the client has it.
    sleep(Duration::from_millis(100)).await;
    let Some((client_next, own_next)) = sequence_numbers(sniffer, &seen) else {
        return json!({"state": "handshake not seen"});
    };
    let stray = emit(own, &seen, own_next.wrapping_add(0x1000_0000), client_next);
    send_raw(host, &stray, seen.source.ip());
    // As much time as the client's reset needs to come back.
    sleep(Duration::from_millis(400)).await;
    match conversation.again(Duration::from_millis(1500)).await {
        Ok(_) => json!({"state": "alive"}),
        Err(failure) => json!({"state": failure.to_string()}),
    }
}

/// Sees all IP packets of the host it is made in.
fn sniffer(v4: bool) -> Socket {
    let protocol = if v4 { 0x0800_u16 } else { 0x86dd };
    let socket = Socket::new(
        Domain::PACKET,
        Type::DGRAM,
        Some(Protocol::from(i32::from(protocol.to_be()))),
    )
    .unwrap();
    socket.set_nonblocking(true).unwrap();
    socket
}

/// What the client and what the endpoint would send next, from the client's packets that were seen.
fn sequence_numbers(sniffer: &mut Socket, seen: &Seen) -> Option<(u32, u32)> {
    let (mut client, mut own) = (None, None);
    let mut buffer = [0; 2048];
    while let Ok(length) = sniffer.read(&mut buffer) {
        let packet = &buffer[..length];
        let v4 = packet[0] >> 4 == 4;
        let (header, protocol) = if v4 {
            (usize::from(packet[0] & 15) * 4, packet[9])
        } else {
            (40, packet[6])
        };
        let Some(tcp) = packet.get(header..header + 20).filter(|_| protocol == TCP) else {
            continue;
        };
        let short = |at: usize| u16::from_be_bytes([tcp[at], tcp[at + 1]]);
        let long = |at: usize| u32::from_be_bytes([tcp[at], tcp[at + 1], tcp[at + 2], tcp[at + 3]]);
        let (syn, ack) = (tcp[13] & 0x02 != 0, tcp[13] & 0x10 != 0);
        if short(0) != seen.source.port() || short(2) != seen.port {
            continue;
        }
        if syn && !ack {
            client = Some(long(4).wrapping_add(1));
        } else if ack {
            own = Some(long(8));
        }
    }
    Some((client?, own?))
}

fn emit(own: IpAddr, seen: &Seen, sequence: u32, acknowledged: u32) -> Vec<u8> {
    let mut segment = Vec::new();
    segment.extend(seen.port.to_be_bytes());
    segment.extend(seen.source.port().to_be_bytes());
    segment.extend(sequence.to_be_bytes());
    segment.extend(acknowledged.to_be_bytes());
    segment.extend([5 << 4, 0x10]); // header length, ACK
    segment.extend(1000_u16.to_be_bytes()); // window
    segment.extend([0; 4]); // checksum, urgent pointer
    segment.extend(PAYLOAD);
    let checksum = checksum(own, seen.source.ip(), &segment);
    segment[16..18].copy_from_slice(&checksum.to_be_bytes());
    segment
}

/// TCP's checksum over the segment and a header of addresses, protocol and length.
fn checksum(from: IpAddr, to: IpAddr, segment: &[u8]) -> u16 {
    let octets = |address: IpAddr| match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    };
    let length = (segment.len() as u16).to_be_bytes();
    let mut data = [&octets(from)[..], &octets(to), &[0, TCP], &length, segment].concat();
    data.resize(data.len().next_multiple_of(2), 0);
    let sum: u32 = data
        .chunks(2)
        .map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])))
        .sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    !((folded & 0xffff) + (folded >> 16)) as u16
}

fn send_raw(host: &Host, segment: &[u8], to: IpAddr) {
    let domain = if to.is_ipv4() {
        Domain::IPV4
    } else {
        Domain::IPV6
    };
    let raw = host
        .enter(|| Socket::new(domain, Type::RAW, Some(Protocol::from(i32::from(TCP)))))
        .unwrap();
    raw.send_to(segment, &SockAddr::from(SocketAddr::new(to, 0)))
        .unwrap();
}
