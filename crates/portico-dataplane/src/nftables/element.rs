//! What the sets and maps hold: each kind of element, its bytes in the kernel, and back.

use super::number::Number;
use ipnet::IpNet;
use portico_model::table::Family;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// Where a Service answers: an address, or (`None`) the node's own, with protocol and port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct At {
    pub address: Option<IpAddr>,
    pub protocol: u8,
    pub port: u16,
}

/// An endpoint as a packet is sent to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Target {
    pub address: IpAddr,
    pub port: u16,
}

/// One element. Ordered so that the elements of a set are together.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Element {
    /// In `frontends` or `node-ports`.
    Frontend {
        at: At,
        number: Number,
        name: Arc<str>,
    },
    LocalPool {
        pool: u32,
        number: Number,
    },
    Endpoint {
        pool: u32,
        slot: u32,
        target: Target,
    },
    Slot {
        pool: u32,
        slot: u32,
        member: Number,
    },
    Sticky {
        member: Number,
        target: Target,
    },
    Class {
        class: Number,
        chain: Arc<str>,
    },
    ClusterIp(IpAddr),
    Hairpin(IpAddr),
    /// In `refused` or `refused-ports`.
    Refused {
        at: At,
        name: Arc<str>,
    },
    /// In `dropped` or `dropped-ports`.
    Dropped {
        at: At,
        name: Arc<str>,
    },
    Guarded {
        at: At,
        name: Arc<str>,
    },
    AllowedSource {
        at: At,
        network: IpNet,
    },
    NodePortAddress(IpAddr),
    DmzPod(IpAddr),
    /// Where nodes receive packets for each other; the number is that of the port.
    Edge {
        at: At,
        number: Number,
        name: Arc<str>,
    },
    /// What this node does with packets of its own slots.
    EdgeLocal {
        at: At,
        number: Number,
    },
    /// The node that has a slot; the unspecified address where there is no way to it.
    EdgeSlot {
        pool: u32,
        slot: u32,
        node: IpAddr,
    },
    /// The node that had a slot before this one.
    EdgeBefore {
        pool: u32,
        slot: u32,
        node: IpAddr,
    },
}

/// A set or map of our tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Set {
    Frontends,
    NodePorts,
    LocalPools,
    Endpoints,
    Slots,
    Sticky,
    Classes,
    ClusterIps,
    Hairpin,
    Refused,
    RefusedPorts,
    Dropped,
    DroppedPorts,
    Guarded,
    AllowedSources,
    NodePortAddresses,
    /// Of pods in the DMZ; or of all others, while one in the DMZ starts.
    DmzPods,
    Edge,
    EdgeLocal,
    EdgeSlots,
    EdgeBefore,
    /// Filled by packets, never by us.
    Affinity,
}

/// Bytes of a key or of data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bytes {
    bytes: [u8; 40],
    length: u8,
}

impl Element {
    pub fn set(&self) -> Set {
        let by = |at: &At, address, port| if at.address.is_some() { address } else { port };
        match self {
            Self::Frontend { at, .. } => by(at, Set::Frontends, Set::NodePorts),
            Self::LocalPool { .. } => Set::LocalPools,
            Self::Endpoint { .. } => Set::Endpoints,
            Self::Slot { .. } => Set::Slots,
            Self::Sticky { .. } => Set::Sticky,
            Self::Class { .. } => Set::Classes,
            Self::ClusterIp(_) => Set::ClusterIps,
            Self::Hairpin(_) => Set::Hairpin,
            Self::Refused { at, .. } => by(at, Set::Refused, Set::RefusedPorts),
            Self::Dropped { at, .. } => by(at, Set::Dropped, Set::DroppedPorts),
            Self::Guarded { .. } => Set::Guarded,
            Self::AllowedSource { .. } => Set::AllowedSources,
            Self::NodePortAddress(_) => Set::NodePortAddresses,
            Self::DmzPod(_) => Set::DmzPods,
            Self::Edge { .. } => Set::Edge,
            Self::EdgeLocal { .. } => Set::EdgeLocal,
            Self::EdgeSlot { .. } => Set::EdgeSlots,
            Self::EdgeBefore { .. } => Set::EdgeBefore,
        }
    }

    pub fn key(&self) -> Bytes {
        let key = Bytes::EMPTY;
        match self {
            Self::Frontend { at, .. }
            | Self::Refused { at, .. }
            | Self::Dropped { at, .. }
            | Self::Guarded { at, .. }
            | Self::Edge { at, .. }
            | Self::EdgeLocal { at, .. } => key.at(at),
            Self::LocalPool { pool, .. } => key.word(*pool),
            Self::Endpoint { pool, slot, .. }
            | Self::Slot { pool, slot, .. }
            | Self::EdgeSlot { pool, slot, .. }
            | Self::EdgeBefore { pool, slot, .. } => key.word(*pool).word(*slot),
            Self::Sticky { member, .. } => key.word(member.0),
            Self::Class { class, .. } => key.word(class.0),
            Self::ClusterIp(address) | Self::NodePortAddress(address) | Self::DmzPod(address) => {
                key.address(*address)
            }
            Self::Hairpin(address) => key.address(*address).address(*address),
            Self::AllowedSource { at, network } => key.at(at).address(network.network()),
        }
    }

    /// The end of the range that the key begins, for sets of ranges.
    pub fn key_end(&self) -> Option<Bytes> {
        match self {
            Self::AllowedSource { at, network } => {
                Some(Bytes::EMPTY.at(at).address(network.broadcast()))
            }
            _ => None,
        }
    }

    /// What the key maps to, but for [`Element::Class`], which maps to a verdict.
    pub fn data(&self) -> Option<Bytes> {
        let data = Bytes::EMPTY;
        match self {
            Self::Frontend { number, .. }
            | Self::LocalPool { number, .. }
            | Self::Edge { number, .. }
            | Self::EdgeLocal { number, .. } => Some(data.word(number.0)),
            Self::EdgeSlot { node, .. } | Self::EdgeBefore { node, .. } => {
                Some(data.address(*node))
            }
            Self::Slot { member, .. } => Some(data.word(member.0)),
            Self::Endpoint { target, .. } | Self::Sticky { target, .. } => {
                Some(data.address(target.address).port(target.port))
            }
            _ => None,
        }
    }

    /// The comment of the element, for readers of `nft list`.
    pub fn comment(&self) -> Option<&str> {
        match self {
            Self::Frontend { name, .. }
            | Self::Refused { name, .. }
            | Self::Dropped { name, .. }
            | Self::Guarded { name, .. }
            | Self::Edge { name, .. } => Some(name),
            _ => None,
        }
    }

    /// An element as the kernel lists it; `None` if it cannot be one of ours.
    pub fn decode(set: Set, family: Family, raw: &Raw) -> Option<Self> {
        let mut key = Reader {
            family,
            rest: raw.key,
        };
        let mut data = Reader {
            family,
            rest: raw.data,
        };
        let name = || Arc::from(raw.comment.unwrap_or_default());
        let element = match set {
            Set::Frontends => Self::Frontend {
                at: key.at()?,
                number: Number(data.word()?),
                name: name(),
            },
            Set::NodePorts => Self::Frontend {
                at: key.port_at()?,
                number: Number(data.word()?),
                name: name(),
            },
            Set::LocalPools => Self::LocalPool {
                pool: key.word()?,
                number: Number(data.word()?),
            },
            Set::Endpoints => Self::Endpoint {
                pool: key.word()?,
                slot: key.word()?,
                target: data.target()?,
            },
            Set::Slots => Self::Slot {
                pool: key.word()?,
                slot: key.word()?,
                member: Number(data.word()?),
            },
            Set::Sticky => Self::Sticky {
                member: Number(key.word()?),
                target: data.target()?,
            },
            Set::Classes => Self::Class {
                class: Number(key.word()?),
                chain: Arc::from(raw.chain?),
            },
            Set::ClusterIps => Self::ClusterIp(key.address()?),
            Set::Hairpin => {
                let address = key.address()?;
                (key.address()? == address).then_some(Self::Hairpin(address))?
            }
            Set::Refused => Self::Refused {
                at: key.at()?,
                name: name(),
            },
            Set::RefusedPorts => Self::Refused {
                at: key.port_at()?,
                name: name(),
            },
            Set::Dropped => Self::Dropped {
                at: key.at()?,
                name: name(),
            },
            Set::DroppedPorts => Self::Dropped {
                at: key.port_at()?,
                name: name(),
            },
            Set::Guarded => Self::Guarded {
                at: key.at()?,
                name: name(),
            },
            Set::AllowedSources => Self::AllowedSource {
                at: key.at()?,
                network: key.network(raw.key_end?)?,
            },
            Set::NodePortAddresses => Self::NodePortAddress(key.address()?),
            Set::DmzPods => Self::DmzPod(key.address()?),
            Set::Edge => Self::Edge {
                at: key.at()?,
                number: Number(data.word()?),
                name: name(),
            },
            Set::EdgeLocal => Self::EdgeLocal {
                at: key.at()?,
                number: Number(data.word()?),
            },
            Set::EdgeSlots => Self::EdgeSlot {
                pool: key.word()?,
                slot: key.word()?,
                node: data.address()?,
            },
            Set::EdgeBefore => Self::EdgeBefore {
                pool: key.word()?,
                slot: key.word()?,
                node: data.address()?,
            },
            Set::Affinity => return None,
        };
        (key.rest.is_empty() && data.rest.is_empty()).then_some(element)
    }
}

/// For people, beside the name of its set.
impl fmt::Display for Element {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Frontend { at, number, .. } => write!(f, "{at} (pool {})", number.pool()),
            Self::LocalPool { pool, number } => {
                write!(f, "pool {} for pool {pool}", number.pool())
            }
            Self::Endpoint { pool, slot, target } => {
                write!(f, "endpoint {target} (slot {slot} of pool {pool})")
            }
            Self::Slot { pool, slot, member } => {
                write!(f, "member {} (slot {slot} of pool {pool})", member.index())
            }
            Self::Sticky { member, target } => {
                write!(
                    f,
                    "endpoint {target} (member {} of pool {})",
                    member.index(),
                    member.pool()
                )
            }
            Self::Class { chain, .. } => write!(f, "chain {chain}"),
            Self::ClusterIp(address) | Self::NodePortAddress(address) | Self::DmzPod(address) => {
                write!(f, "{address}")
            }
            Self::Hairpin(address) => write!(f, "{address} to itself"),
            Self::Refused { at, .. } | Self::Dropped { at, .. } | Self::Guarded { at, .. } => {
                write!(f, "{at}")
            }
            Self::AllowedSource { at, network } => write!(f, "{at} from {network}"),
            Self::Edge { at, .. } => write!(f, "{at}"),
            Self::EdgeLocal { at, number } => write!(f, "{at} (pool {})", number.pool()),
            Self::EdgeSlot { pool, slot, node } | Self::EdgeBefore { pool, slot, node } => {
                write!(f, "node {node} (slot {slot} of pool {pool})")
            }
        }
    }
}

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let protocol = match self.protocol {
            6 => "tcp",
            17 => "udp",
            132 => "sctp",
            _ => "another protocol",
        };
        match self.address {
            Some(address) => write!(f, "{}/{protocol}", SocketAddr::new(address, self.port)),
            None => write!(f, "node port {}/{protocol}", self.port),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", SocketAddr::new(self.address, self.port))
    }
}

/// An element as it comes in a message.
#[derive(Clone, Copy, Debug, Default)]
pub struct Raw<'a> {
    pub key: &'a [u8],
    pub key_end: Option<&'a [u8]>,
    pub data: &'a [u8],
    pub chain: Option<&'a str>,
    pub comment: Option<&'a str>,
}

impl Bytes {
    const EMPTY: Self = Self {
        bytes: [0; 40],
        length: 0,
    };

    pub fn as_slice(&self) -> &[u8] {
        self.bytes
            .get(..usize::from(self.length))
            .unwrap_or_default()
    }

    fn push(mut self, bytes: &[u8]) -> Self {
        let start = usize::from(self.length);
        if let Some(place) = self.bytes.get_mut(start..start + bytes.len()) {
            place.copy_from_slice(bytes);
            self.length += bytes.len() as u8;
        }
        self
    }

    /// Adds a number in the byte order of the machine, as registers have it.
    fn word(self, value: u32) -> Self {
        self.push(&value.to_ne_bytes())
    }

    fn address(self, address: IpAddr) -> Self {
        match address {
            IpAddr::V4(address) => self.push(&address.octets()),
            IpAddr::V6(address) => self.push(&address.octets()),
        }
    }

    /// Adds a port. Each part of a key takes whole registers of four bytes.
    fn port(self, port: u16) -> Self {
        let [high, low] = port.to_be_bytes();
        self.push(&[high, low, 0, 0])
    }

    fn at(self, at: &At) -> Self {
        let start = match at.address {
            Some(address) => self.address(address),
            None => self,
        };
        start.push(&[at.protocol, 0, 0, 0]).port(at.port)
    }
}

struct Reader<'a> {
    family: Family,
    rest: &'a [u8],
}

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.rest.split_first_chunk::<N>()?;
        self.rest = rest;
        Some(*head)
    }

    fn word(&mut self) -> Option<u32> {
        self.take().map(u32::from_ne_bytes)
    }

    fn address(&mut self) -> Option<IpAddr> {
        match self.family {
            Family::V4 => self.take::<4>().map(IpAddr::from),
            Family::V6 => self.take::<16>().map(IpAddr::from),
        }
    }

    fn target(&mut self) -> Option<Target> {
        Some(Target {
            address: self.address()?,
            port: self.port()?,
        })
    }

    fn port(&mut self) -> Option<u16> {
        let [high, low, ..] = self.take::<4>()?;
        Some(u16::from_be_bytes([high, low]))
    }

    fn port_at(&mut self) -> Option<At> {
        let [protocol, ..] = self.take::<4>()?;
        Some(At {
            address: None,
            protocol,
            port: self.port()?,
        })
    }

    fn at(&mut self) -> Option<At> {
        let address = self.address()?;
        Some(At {
            address: Some(address),
            ..self.port_at()?
        })
    }

    /// The rest of the key begins a range that `end` ends; the parts before it are the same in
    /// both.
    fn network(&mut self, end: &[u8]) -> Option<IpNet> {
        let first = self.address()?;
        let mut end = Reader {
            family: self.family,
            rest: end,
        };
        end.at()?;
        let last = end.address()?;
        let prefix = match (first, last) {
            (IpAddr::V4(first), IpAddr::V4(last)) => {
                (first.to_bits() ^ last.to_bits()).leading_zeros()
            }
            (IpAddr::V6(first), IpAddr::V6(last)) => {
                (first.to_bits() ^ last.to_bits()).leading_zeros()
            }
            _ => return None,
        };
        let network = IpNet::new(first, prefix as u8).ok()?;
        (network.network() == first && network.broadcast() == last).then_some(network)
    }
}

#[cfg(test)]
mod tests;
