//! Expressions of the edge: which node has the slot of a client, and the way to it.

use super::{Expressions, REGISTER};
use crate::netlink::uapi::*;
use crate::nftables::element::Set;
use portico_model::edge::SLOTS;
use portico_model::edge::hash::SEED;
use portico_model::table::Family;

/// The first of the registers that the address of a node is put into.
const NODE: u32 = REGISTER + 8;
/// Where the packet begins that an ICMP error quotes.
const QUOTED: u32 = 8;

/// What is hashed of a packet that belongs to a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::nftables) enum Client {
    AddressAndPort,
    Address,
    /// Of the client that an ICMP error was sent on behalf of: it quotes an answer to this client.
    QuotedAddressAndPort,
    QuotedAddress,
}

impl Expressions {
    /// `ct state invalid meta l4proto icmp icmp type kind`, where the quoted packet has no options.
    pub(in crate::nftables) fn unknown_error(self, kind: u8) -> Self {
        let (protocol, version): (u8, u8) = match self.family {
            Family::V4 => (1, 0x45),
            Family::V6 => (58, 0x60),
        };
        let error = self
            .connection(NFT_CT_STATE, NF_CT_STATE_INVALID)
            .meta(NFT_META_L4PROTO, REGISTER)
            .compare(REGISTER, NFT_CMP_EQ, &[protocol])
            .payload(NFT_PAYLOAD_TRANSPORT_HEADER, 0, 1, REGISTER)
            .compare(REGISTER, NFT_CMP_EQ, &[kind])
            .payload(NFT_PAYLOAD_TRANSPORT_HEADER, QUOTED, 1, REGISTER);
        match error.family {
            Family::V4 => error.compare(REGISTER, NFT_CMP_EQ, &[version]),
            Family::V6 => {
                error
                    .bitwise(REGISTER, &[0xf0], &[0])
                    .compare(REGISTER, NFT_CMP_EQ, &[version])
            }
        }
    }

    /// Where the quoted packet has its protocol, its source and what follows its IP header.
    fn quoted(&self) -> (u32, u32, u32) {
        match self.family {
            Family::V4 => (QUOTED + 9, QUOTED + 12, QUOTED + 20),
            Family::V6 => (QUOTED + 6, QUOTED + 8, QUOTED + 40),
        }
    }

    /// As [`number_of_service`](Expressions::number_of_service), by the source of the packet that
    /// an ICMP error quotes: that was an answer.
    pub(in crate::nftables) fn number_of_quoted_service(self, set: Set) -> Self {
        let (protocol, source, transport) = self.quoted();
        let (width, length) = (self.width(), self.address_length());
        self.payload(NFT_PAYLOAD_TRANSPORT_HEADER, source, length, REGISTER)
            .payload(NFT_PAYLOAD_TRANSPORT_HEADER, protocol, 1, REGISTER + width)
            .payload(
                NFT_PAYLOAD_TRANSPORT_HEADER,
                transport,
                2,
                REGISTER + width + 1,
            )
            .look_up(set, REGISTER, Some(REGISTER), false)
            .keep_number()
    }

    /// `meta priority & mask . jhash client mod slots seed seed map @set`, kept for
    /// [`send_to_node`](Expressions::send_to_node).
    pub(in crate::nftables) fn node_of_slot(self, client: Client, mask: u32, set: Set) -> Self {
        let from = REGISTER + 2;
        let (_, source, transport) = self.quoted();
        let (port_at, width, length) = (from + self.width(), self.width(), self.address_length());
        let (loaded, words) = match client {
            Client::Address => (self.source(from), width),
            Client::AddressAndPort => {
                let loaded = self
                    .source(from)
                    .payload(NFT_PAYLOAD_TRANSPORT_HEADER, 0, 2, port_at);
                (loaded, width + 1)
            }
            Client::QuotedAddress | Client::QuotedAddressAndPort => {
                let destination = source + length;
                let loaded = self.payload(NFT_PAYLOAD_TRANSPORT_HEADER, destination, length, from);
                match client {
                    Client::QuotedAddress => (loaded, width),
                    _ => {
                        let port = transport + 2;
                        let loaded = loaded.payload(NFT_PAYLOAD_TRANSPORT_HEADER, port, 2, port_at);
                        (loaded, width + 1)
                    }
                }
            }
        };
        loaded
            .add("hash", |m| {
                m.put_u32_be(NFTA_HASH_SREG, from);
                m.put_u32_be(NFTA_HASH_DREG, REGISTER + 1);
                m.put_u32_be(NFTA_HASH_LEN, words * 4);
                m.put_u32_be(NFTA_HASH_MODULUS, SLOTS.into());
                m.put_u32_be(NFTA_HASH_SEED, SEED);
            })
            .masked_number(mask, REGISTER)
            .look_up(set, REGISTER, Some(NODE), false)
    }

    /// There is a way to the node that was looked up, or (`false`) there is none.
    pub(in crate::nftables) fn node_is_near(self, near: bool) -> Self {
        let unspecified = vec![0; self.address_length() as usize];
        self.compare(
            NODE,
            if near { NFT_CMP_NEQ } else { NFT_CMP_EQ },
            &unspecified,
        )
    }

    /// `dup to` the node that was looked up.
    pub(in crate::nftables) fn send_to_node(self) -> Self {
        self.add("dup", |m| m.put_u32_be(NFTA_DUP_SREG_ADDR, NODE))
    }
}
