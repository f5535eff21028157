//! OPEN: the identity of a speaker and its capabilities. RFC 4271 section 4.2, capabilities of RFC
//! 5492, long parameters of RFC 9072.

use super::{Notification, OPEN, code, frame};
use crate::family::AfiSafi;
use crate::wire::Reader;
use std::net::Ipv4Addr;

const VERSION: u8 = 4;
/// Stands for an AS number that needs four octets where there are two (RFC 6793).
pub(super) const AS_TRANS: u16 = 23456;
const CAPABILITIES: u8 = 2;
/// As the length and as the type of the first parameter: lengths have two octets from there on.
const EXTENDED: u8 = 255;
const RESTARTED: u16 = 0x8000;
const MOST_RESTART_TIME: u16 = 0x0fff;
const PRESERVED: u8 = 0x80;

/// The content of an OPEN.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Open {
    /// The AS of the speaker: from the capability where it is there, otherwise from the header.
    pub asn: u32,
    /// In seconds.
    pub hold_time: u16,
    /// The BGP identifier of the speaker.
    pub router_id: Ipv4Addr,
    /// What the speaker can do, as far as it says.
    pub capabilities: Vec<Capability>,
}

/// A capability of RFC 5492.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Capability {
    /// Routes of this family can be told (RFC 4760).
    Multiprotocol(AfiSafi),
    /// Asks and answers for everything again (RFC 2918).
    RouteRefresh,
    /// Takes routes of IPv4 whose next hop is IPv6 (RFC 8950).
    Ipv4ByIpv6,
    /// RFC 4724.
    GracefulRestart(GracefulRestart),
    /// RFC 6793.
    FourOctetAs(u32),
    /// A capability that this speaker does not know.
    Other {
        /// Its number.
        code: u8,
        /// Its content.
        value: Vec<u8>,
    },
}

/// The capability of graceful restart (RFC 4724).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GracefulRestart {
    /// The speaker comes from a restart: do not wait for its routes with your own.
    pub restarted: bool,
    /// In seconds: for so long its routes stay when a session breaks.
    pub time: u16,
    /// For these, and whether what was forwarded before still is.
    pub families: Vec<(AfiSafi, bool)>,
}

impl Open {
    pub(super) fn decode(mut reader: Reader<'_>) -> Result<Self, Notification> {
        let malformed = || Notification::new(code::OPEN, 0);
        let version = reader.u8().ok_or_else(malformed)?;
        if version != VERSION {
            return Err(Notification::with(
                code::OPEN,
                1,
                u16::from(VERSION).to_be_bytes().to_vec(),
            ));
        }
        let short_as = reader.u16().ok_or_else(malformed)?;
        let hold_time = reader.u16().ok_or_else(malformed)?;
        let router_id = Ipv4Addr::from(reader.array::<4>().ok_or_else(malformed)?);
        let capabilities = parameters(reader)?;
        let long_as = capabilities.iter().find_map(|capability| match capability {
            Capability::FourOctetAs(asn) => Some(*asn),
            _ => None,
        });
        Ok(Self {
            asn: long_as.unwrap_or(short_as.into()),
            hold_time,
            router_id,
            capabilities,
        })
    }

    /// Encodes the message with as many capabilities as have room.
    pub fn encode(&self) -> Vec<u8> {
        let mut values = Vec::new();
        for capability in &self.capabilities {
            let one = capability.encode();
            if values.len() + one.len() <= usize::from(EXTENDED) - 3 {
                values.extend(one);
            }
        }
        let count = u8::try_from(values.len()).unwrap_or_default();
        let short_as = u16::try_from(self.asn).unwrap_or(AS_TRANS);
        let mut body = vec![VERSION];
        body.extend(short_as.to_be_bytes());
        body.extend(self.hold_time.to_be_bytes());
        body.extend(self.router_id.octets());
        match count {
            0 => body.push(0),
            _ => body.extend([count + 2, CAPABILITIES, count]),
        }
        body.extend(values);
        frame(OPEN, &body)
    }
}

fn parameters(mut reader: Reader<'_>) -> Result<Vec<Capability>, Notification> {
    let malformed = || Notification::new(code::OPEN, 0);
    let extended = reader.0.starts_with(&[EXTENDED, EXTENDED]);
    let block = match extended {
        true => {
            reader.take(2);
            reader.long_block()
        }
        false => reader.short_block(),
    };
    let mut parameters = Reader(block.filter(|_| reader.is_empty()).ok_or_else(malformed)?);
    let mut capabilities = Vec::new();
    while !parameters.is_empty() {
        let kind = parameters.u8().ok_or_else(malformed)?;
        let value = if extended {
            parameters.long_block()
        } else {
            parameters.short_block()
        };
        let value = value.ok_or_else(malformed)?;
        if kind != CAPABILITIES {
            return Err(Notification::new(code::OPEN, 4));
        }
        let mut values = Reader(value);
        while !values.is_empty() {
            let code = values.u8().ok_or_else(malformed)?;
            let value = values.short_block().ok_or_else(malformed)?;
            capabilities.push(Capability::decode(code, value));
        }
    }
    Ok(capabilities)
}

const MULTIPROTOCOL: u8 = 1;
const ROUTE_REFRESH: u8 = 2;
const EXTENDED_NEXT_HOP: u8 = 5;
const GRACEFUL_RESTART: u8 = 64;
const FOUR_OCTET_AS: u8 = 65;

impl Capability {
    /// Decodes a capability. One whose value makes no sense counts as unknown.
    fn decode(code: u8, value: &[u8]) -> Self {
        let known = match code {
            MULTIPROTOCOL => multiprotocol(value),
            ROUTE_REFRESH => value.is_empty().then_some(Self::RouteRefresh),
            EXTENDED_NEXT_HOP => ipv4_by_ipv6(value),
            GRACEFUL_RESTART => graceful_restart(value),
            FOUR_OCTET_AS => value
                .try_into()
                .ok()
                .map(u32::from_be_bytes)
                .map(Capability::FourOctetAs),
            _ => None,
        };
        known.unwrap_or_else(|| Self::Other {
            code,
            value: value.to_vec(),
        })
    }

    fn encode(&self) -> Vec<u8> {
        let family = |family: AfiSafi| {
            let [high, low] = family.afi().to_be_bytes();
            [high, low, 0, family.safi()]
        };
        let (code, value) = match self {
            Self::Multiprotocol(of) => (MULTIPROTOCOL, family(*of).to_vec()),
            Self::RouteRefresh => (ROUTE_REFRESH, vec![]),
            Self::Ipv4ByIpv6 => (EXTENDED_NEXT_HOP, vec![0, 1, 0, 1, 0, 2]),
            Self::GracefulRestart(restart) => (GRACEFUL_RESTART, restart.encode()),
            Self::FourOctetAs(asn) => (FOUR_OCTET_AS, asn.to_be_bytes().to_vec()),
            Self::Other { code, value } => {
                (*code, value.iter().take(u8::MAX.into()).copied().collect())
            }
        };
        let length = u8::try_from(value.len()).unwrap_or_default();
        [vec![code, length], value].concat()
    }
}

fn multiprotocol(value: &[u8]) -> Option<Capability> {
    let &[high, low, _, safi] = value else {
        return None;
    };
    AfiSafi::from_wire(u16::from_be_bytes([high, low]), safi).map(Capability::Multiprotocol)
}

fn ipv4_by_ipv6(value: &[u8]) -> Option<Capability> {
    let has = value.chunks(6).any(|one| one == [0, 1, 0, 1, 0, 2]);
    has.then_some(Capability::Ipv4ByIpv6)
}

fn graceful_restart(value: &[u8]) -> Option<Capability> {
    let mut reader = Reader(value);
    let first = reader.u16()?;
    let mut families = Vec::new();
    while let Some([high, low, safi, flags]) = reader.array() {
        let family = AfiSafi::from_wire(u16::from_be_bytes([high, low]), safi);
        families.extend(family.map(|family| (family, flags & PRESERVED != 0)));
    }
    let (restarted, time) = (first & RESTARTED != 0, first & MOST_RESTART_TIME);
    Some(Capability::GracefulRestart(GracefulRestart {
        restarted,
        time,
        families,
    }))
}

impl GracefulRestart {
    fn encode(&self) -> Vec<u8> {
        let restarted = if self.restarted { RESTARTED } else { 0 };
        let mut value = (restarted | self.time.min(MOST_RESTART_TIME))
            .to_be_bytes()
            .to_vec();
        for (family, preserved) in &self.families {
            value.extend(family.afi().to_be_bytes());
            value.extend([family.safi(), if *preserved { PRESERVED } else { 0 }]);
        }
        value
    }
}
