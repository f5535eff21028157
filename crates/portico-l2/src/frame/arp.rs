//! ARP (RFC 826), and how an address is claimed and defended with it (RFC 5227).

use super::{BROADCAST, Mac, chunk, ethernet, is_unicast};
use std::net::Ipv4Addr;

/// The EtherType of ARP.
pub const ETHERTYPE: u16 = 0x0806;

/// Ethernet, IPv4, and the lengths of their addresses.
const HEADER: [u8; 6] = [0, 1, 8, 0, 6, 4];
const REQUEST: u16 = 1;
const REPLY: u16 = 2;
const LENGTH: usize = 28;
const OPERATION: usize = 6;
const SENDER_MAC: usize = 8;
/// Where the sender's address is, for socket filters.
pub const SENDER: usize = 14;
const TARGET_MAC: usize = 18;
const TARGET: usize = 24;

/// Whether a packet asks or answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// It asks for the hardware address of the target.
    Request,
    /// It tells the hardware address of the sender.
    Reply,
}

/// An ARP packet for IPv4 on Ethernet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// Whether it asks or answers.
    pub operation: Operation,
    /// The hardware address of the sender.
    pub sender_mac: Mac,
    /// `0.0.0.0`: a probe, which asks whether any host has the target (RFC 5227).
    pub sender: Ipv4Addr,
    /// The hardware address of the target; zeros in a request.
    pub target_mac: Mac,
    /// The address that is asked for, or the receiver of a reply.
    pub target: Ipv4Addr,
}

impl Packet {
    /// A packet without its link header. `None`: it is not about IPv4 on Ethernet, or not from a
    /// host.
    pub fn parse(packet: &[u8]) -> Option<Self> {
        let packet = packet
            .get(..LENGTH)
            .filter(|packet| packet.starts_with(&HEADER))?;
        let operation = match u16::from_be_bytes(chunk(packet, OPERATION)?) {
            REQUEST => Operation::Request,
            REPLY => Operation::Reply,
            _ => return None,
        };
        let sender_mac = chunk(packet, SENDER_MAC).filter(|mac| is_unicast(*mac))?;
        Some(Self {
            operation,
            sender_mac,
            sender: chunk::<4>(packet, SENDER)?.into(),
            target_mac: chunk(packet, TARGET_MAC)?,
            target: chunk::<4>(packet, TARGET)?.into(),
        })
    }

    /// Encodes a frame to this hardware address.
    pub fn emit(&self, to: Mac) -> Vec<u8> {
        let operation = match self.operation {
            Operation::Request => REQUEST,
            Operation::Reply => REPLY,
        };
        let mut bytes = ethernet(to, self.sender_mac, ETHERTYPE, LENGTH);
        bytes.extend(HEADER);
        bytes.extend(operation.to_be_bytes());
        for (mac, address) in [
            (self.sender_mac, self.sender),
            (self.target_mac, self.target),
        ] {
            bytes.extend(mac);
            bytes.extend(address.octets());
        }
        bytes
    }

    /// The address that the sender says to have; of a probe, the one that it is about to take.
    pub fn claim(&self) -> Ipv4Addr {
        if self.sender.is_unspecified() {
            self.target
        } else {
            self.sender
        }
    }

    /// It asks where the target is.
    pub fn is_question(&self) -> bool {
        self.operation == Operation::Request && self.sender != self.target
    }

    /// The reply that the target is at `mac`, to the sender of this request.
    pub fn answer(&self, mac: Mac) -> Vec<u8> {
        let reply = Self {
            operation: Operation::Reply,
            sender_mac: mac,
            sender: self.target,
            target_mac: self.sender_mac,
            target: self.sender,
        };
        reply.emit(self.sender_mac)
    }
}

/// "It is here": as a request, which every stack takes note of, and as a reply, for those that look
/// at nothing else.
pub fn announcements(mac: Mac, address: Ipv4Addr) -> [Vec<u8>; 2] {
    [Operation::Request, Operation::Reply].map(|operation| {
        let target_mac = if operation == Operation::Request {
            [0; 6]
        } else {
            BROADCAST
        };
        Packet {
            operation,
            sender_mac: mac,
            sender: address,
            target_mac,
            target: address,
        }
        .emit(BROADCAST)
    })
}

/// A probe for the address. Its sender address is 0.0.0.0, so that no host changes its ARP cache.
pub fn probe(mac: Mac, address: Ipv4Addr) -> Vec<u8> {
    let packet = Packet {
        operation: Operation::Request,
        sender_mac: mac,
        sender: Ipv4Addr::UNSPECIFIED,
        target_mac: [0; 6],
        target: address,
    };
    packet.emit(BROADCAST)
}
