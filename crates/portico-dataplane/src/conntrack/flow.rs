//! A flow as the kernel's connection tracker writes it, and the requests to list and delete flows.

use super::stale::Scope;
use crate::netlink::uapi::*;
use crate::netlink::{Attribute, Message, Messages, flags};
use portico_model::table::{Family, Protocol};
use std::net::{IpAddr, SocketAddr};

/// What has to be known of a flow to judge it, and to delete exactly it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Flow {
    pub protocol: Protocol,
    /// The client.
    pub from: IpAddr,
    /// Where the client sends to.
    pub to: SocketAddr,
    /// The address that answers: the endpoint, or `to` itself where the flow is not translated.
    pub answered_by: SocketAddr,
    /// The reply direction as the kernel wrote it, with its zone if it has one of its own.
    reply: Vec<u8>,
    zone: Option<Vec<u8>>,
    id: Option<Vec<u8>>,
}

impl Flow {
    /// `None` for flows of other protocols, which kernels before 5.8 list too.
    pub(crate) fn parse(message: &Message, protocol: Protocol) -> Option<Self> {
        let attribute = |kind| message.attributes(4).find_kind(kind);
        let (original, reply) = (attribute(CTA_TUPLE_ORIG)?, attribute(CTA_TUPLE_REPLY)?);
        let ports = original.nested().find_kind(CTA_TUPLE_PROTO)?;
        if ports.nested().find_kind(CTA_PROTO_NUM)?.u8()? != protocol.number() {
            return None;
        }
        Some(Self {
            protocol,
            from: end_of(
                &original,
                [CTA_IP_V4_SRC, CTA_IP_V6_SRC],
                CTA_PROTO_SRC_PORT,
            )?
            .ip(),
            to: end_of(
                &original,
                [CTA_IP_V4_DST, CTA_IP_V6_DST],
                CTA_PROTO_DST_PORT,
            )?,
            answered_by: end_of(&reply, [CTA_IP_V4_SRC, CTA_IP_V6_SRC], CTA_PROTO_SRC_PORT)?,
            reply: reply.data.to_vec(),
            zone: attribute(CTA_ZONE).map(|zone| zone.data.to_vec()),
            id: attribute(CTA_ID).map(|id| id.data.to_vec()),
        })
    }

    /// Deletes the flow only with its reply direction, so that a flow which took this one's place
    /// meanwhile, to a better endpoint, stays.
    pub(crate) fn delete(&self, requests: &mut Messages) {
        requests.netfilter(
            NFNL_SUBSYS_CTNETLINK,
            IPCTNL_MSG_CT_DELETE,
            0,
            number(Family::of(self.to.ip())),
            |m| {
                m.nested(CTA_TUPLE_REPLY, |m| m.raw(&self.reply));
                for (kind, value) in [(CTA_ZONE, &self.zone), (CTA_ID, &self.id)] {
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
pub(crate) fn list(scope: &Scope) -> Messages {
    let mut request = Messages::new();
    request.netfilter(
        NFNL_SUBSYS_CTNETLINK,
        IPCTNL_MSG_CT_GET,
        flags::DUMP,
        number(scope.family),
        |m| {
            let mut counts = CTA_FILTER_F_CTA_PROTO_NUM;
            m.nested(CTA_TUPLE_ORIG, |m| {
                // Not for IPv6: kernels list all flows but those with the address (seen in 6.18).
                if let Some(IpAddr::V4(address)) = scope.address {
                    counts |= CTA_FILTER_F_CTA_IP_DST;
                    m.nested(CTA_TUPLE_IP, |m| m.put(CTA_IP_V4_DST, &address.octets()));
                }
                m.nested(CTA_TUPLE_PROTO, |m| {
                    m.put_u8(CTA_PROTO_NUM, scope.protocol.number());
                    if let Some(port) = scope.port {
                        counts |= CTA_FILTER_F_CTA_PROTO_DST_PORT;
                        m.put_u16_be(CTA_PROTO_DST_PORT, port);
                    }
                });
            });
            m.nested(CTA_FILTER, |m| m.put_u32(CTA_FILTER_ORIG_FLAGS, counts));
        },
    );
    request
}

fn end_of(direction: &Attribute, [v4, v6]: [u16; 2], port: u16) -> Option<SocketAddr> {
    let addresses = direction.nested().find_kind(CTA_TUPLE_IP)?;
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
        .find_kind(CTA_TUPLE_PROTO)?
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
