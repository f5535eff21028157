//! A flow as the kernel's connection tracker writes it, and the requests to list and delete flows.

use super::stale::Scope;
use crate::netlink::{Attribute, Message, Messages, flags};
use portico_model::table::{Family, Protocol};
use std::net::{IpAddr, SocketAddr};

const SUBSYSTEM: u8 = 1;
const GET: u8 = 1;
const DELETE: u8 = 2;

/// Of a flow.
const ORIGINAL: u16 = 1;
const REPLY: u16 = 2;
const ID: u16 = 12;
const ZONE: u16 = 18;
const FILTER: u16 = 25;
/// Of a direction.
const ADDRESSES: u16 = 1;
const PORTS: u16 = 2;
/// Of addresses.
const SOURCE_V4: u16 = 1;
const DESTINATION_V4: u16 = 2;
const SOURCE_V6: u16 = 3;
const DESTINATION_V6: u16 = 4;
/// Of ports.
const PROTOCOL: u16 = 1;
const SOURCE_PORT: u16 = 2;
const DESTINATION_PORT: u16 = 3;
/// Of a filter: what of the original direction counts, as bits.
const FILTER_ORIGINAL: u16 = 1;
const BY_DESTINATION: u32 = 1 << 1;
const BY_PROTOCOL: u32 = 1 << 3;
const BY_DESTINATION_PORT: u32 = 1 << 5;

/// What has to be known of a flow to judge it, and to delete exactly it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flow {
    pub protocol: Protocol,
    /// The client.
    pub from: IpAddr,
    /// Where the client sends to.
    pub to: SocketAddr,
    /// Who answers: the endpoint, or `to` itself where nobody translates.
    pub answered_by: SocketAddr,
    /// The reply direction as the kernel wrote it, with its zone if it has one of its own.
    reply: Vec<u8>,
    zone: Option<Vec<u8>>,
    id: Option<Vec<u8>>,
}

impl Flow {
    /// `None` for flows of other protocols, which kernels before 5.8 list too.
    pub fn parse(message: &Message, protocol: Protocol) -> Option<Flow> {
        let attribute = |kind| message.attributes(4).find_kind(kind);
        let (original, reply) = (attribute(ORIGINAL)?, attribute(REPLY)?);
        let ports = original.nested().find_kind(PORTS)?;
        if ports.nested().find_kind(PROTOCOL)?.u8()? != protocol.number() {
            return None;
        }
        Some(Flow {
            protocol,
            from: end_of(&original, [SOURCE_V4, SOURCE_V6], SOURCE_PORT)?.ip(),
            to: end_of(
                &original,
                [DESTINATION_V4, DESTINATION_V6],
                DESTINATION_PORT,
            )?,
            answered_by: end_of(&reply, [SOURCE_V4, SOURCE_V6], SOURCE_PORT)?,
            reply: reply.data.to_vec(),
            zone: attribute(ZONE).map(|zone| zone.data.to_vec()),
            id: attribute(ID).map(|id| id.data.to_vec()),
        })
    }

    /// By who answers it, so that a flow which took this one's place meanwhile, to a better
    /// endpoint, stays.
    pub fn delete(&self, requests: &mut Messages) {
        requests.netfilter(
            SUBSYSTEM,
            DELETE,
            0,
            number(Family::of(self.to.ip())),
            |m| {
                m.nested(REPLY, |m| m.raw(&self.reply));
                for (kind, value) in [(ZONE, &self.zone), (ID, &self.id)] {
                    if let Some(value) = value {
                        m.put(kind, value);
                    }
                }
            },
        );
    }
}

/// List the flows of one family and protocol, and only those that the kernel can tell to be of
/// interest.
pub fn list(scope: &Scope) -> Messages {
    let mut request = Messages::new();
    request.netfilter(SUBSYSTEM, GET, flags::DUMP, number(scope.family), |m| {
        let mut counts = BY_PROTOCOL;
        m.nested(ORIGINAL, |m| {
            // Not for IPv6: kernels list all flows but those with the address (seen in 6.18).
            if let Some(IpAddr::V4(address)) = scope.address {
                counts |= BY_DESTINATION;
                m.nested(ADDRESSES, |m| m.put(DESTINATION_V4, &address.octets()));
            }
            m.nested(PORTS, |m| {
                m.put_u8(PROTOCOL, scope.protocol.number());
                if let Some(port) = scope.port {
                    counts |= BY_DESTINATION_PORT;
                    m.put_u16_be(DESTINATION_PORT, port);
                }
            });
        });
        m.nested(FILTER, |m| m.put_u32(FILTER_ORIGINAL, counts));
    });
    request
}

fn end_of(direction: &Attribute, [v4, v6]: [u16; 2], port: u16) -> Option<SocketAddr> {
    let addresses = direction.nested().find_kind(ADDRESSES)?;
    let find = |kind| {
        addresses
            .nested()
            .find_kind(kind)
            .map(|attribute| attribute.data)
    };
    let address = match (find(v4), find(v6)) {
        (Some(v4), _) => IpAddr::from(<[u8; 4]>::try_from(v4).ok()?),
        (None, Some(v6)) => IpAddr::from(<[u8; 16]>::try_from(v6).ok()?),
        (None, None) => return None,
    };
    let port = direction
        .nested()
        .find_kind(PORTS)?
        .nested()
        .find_kind(port)?
        .u16_be()?;
    Some(SocketAddr::new(address, port))
}

fn number(family: Family) -> u8 {
    match family {
        Family::V4 => libc::AF_INET as u8,
        Family::V6 => libc::AF_INET6 as u8,
    }
}
