//! How each set and map is declared.

use super::element::Set;
use crate::early_packets::Queue;
use crate::netlink::uapi::*;
use portico_model::table::Family;

/// A type as the `nft` tool numbers it (the kernel keeps the number for it), with its length in
/// bytes.
#[derive(Clone, Copy)]
struct Type {
    number: u32,
    length: u8,
    host_order: bool,
}

const PROTOCOL: Type = Type {
    number: 12,
    length: 1,
    host_order: false,
};
const SERVICE: Type = Type {
    number: 13,
    length: 2,
    host_order: false,
};
const MARK: Type = Type {
    number: 19,
    length: 4,
    host_order: true,
};
const CLASS_ID: Type = Type {
    number: 23,
    length: 4,
    host_order: true,
};

/// A table of ours, in both families: its name, its place among others', and how much is to fit
/// into it without making it anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Table {
    /// The name of the table.
    pub name: &'static str,
    /// The priority of the chains that translate destinations: of several tables that know an
    /// address the one with the lowest number decides.
    pub priority: i32,
    /// Sets of a given size have at least this one.
    pub room: u32,
    /// Clients with a session at any one time, in one family; the kernel makes the hash table large
    /// enough for them at once.
    pub sessions: u32,
    /// Where packets wait that come before their Service.
    pub early_packets: Option<Queue>,
}

impl Table {
    /// The node daemon's.
    pub const NODE: Self = Self {
        name: "portico",
        priority: -100,
        room: 1 << 14,
        sessions: 1 << 18,
        early_packets: None,
    };

    /// A table for a few Services, which takes next to no memory of the kernel. It decides about
    /// its addresses before other tables do.
    pub const fn small(name: &'static str) -> Self {
        Self {
            name,
            priority: -101,
            room: 1 << 6,
            sessions: 1 << 10,
            early_packets: None,
        }
    }
}

/// The declaration, as far as the kernel tells it back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Definition {
    pub flags: u32,
    pub key_type: u32,
    pub key_length: u32,
    pub data_type: u32,
    /// Zero for none and for verdicts.
    pub data_length: u32,
}

/// The rest of the declaration.
pub struct Details {
    /// Lengths of the parts of the key; empty if it has one part.
    pub parts: Vec<u8>,
    /// What `nft` needs to print numbers right, and a comment.
    pub userdata: Vec<u8>,
}

impl Set {
    pub const ALL: [Self; 22] = [
        Self::Frontends,
        Self::NodePorts,
        Self::LocalPools,
        Self::Endpoints,
        Self::Slots,
        Self::Sticky,
        Self::Classes,
        Self::ClusterIps,
        Self::Hairpin,
        Self::Refused,
        Self::RefusedPorts,
        Self::Dropped,
        Self::DroppedPorts,
        Self::Guarded,
        Self::AllowedSources,
        Self::NodePortAddresses,
        Self::DmzPods,
        Self::Edge,
        Self::EdgeLocal,
        Self::EdgeSlots,
        Self::EdgeBefore,
        Self::Affinity,
    ];

    /// Those that are made with room for elements.
    pub const SIZED: [Self; 3] = [Self::Frontends, Self::Endpoints, Self::Hairpin];

    pub fn name(self) -> &'static str {
        match self {
            Self::Frontends => "frontends",
            Self::NodePorts => "node-ports",
            Self::LocalPools => "local-pools",
            Self::Endpoints => "endpoints",
            Self::Slots => "slots",
            Self::Sticky => "sticky",
            Self::Classes => "classes",
            Self::ClusterIps => "cluster-ips",
            Self::Hairpin => "hairpin",
            Self::Refused => "refused",
            Self::RefusedPorts => "refused-ports",
            Self::Dropped => "dropped",
            Self::DroppedPorts => "dropped-ports",
            Self::Guarded => "guarded",
            Self::AllowedSources => "allowed-sources",
            Self::NodePortAddresses => "node-port-addresses",
            Self::DmzPods => "dmz-pods",
            Self::Edge => "edge",
            Self::EdgeLocal => "edge-local",
            Self::EdgeSlots => "edge-slots",
            Self::EdgeBefore => "edge-before",
            Self::Affinity => "affinity",
        }
    }

    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|set| set.name() == name)
    }

    /// How large it is made for so many elements; zero if it grows by itself.
    ///
    /// A hash table that grows while it is filled takes twice as long as one of a given size, and
    /// longer on a busy machine; so the sets that have an element for each endpoint or frontend are
    /// given one, with room for as many again.
    pub fn size_for(self, elements: usize, table: Table) -> u32 {
        match self {
            Self::Affinity => table.sessions,
            _ if Self::SIZED.contains(&self) => u32::try_from(elements * 2)
                .unwrap_or(u32::MAX / 2)
                .next_power_of_two()
                .max(table.room),
            _ => 0,
        }
    }

    /// Whether so many elements fit in.
    pub fn fits(self, elements: usize, size: u32, table: Table) -> bool {
        match self.size_for(elements, table) {
            0 => size == 0,
            _ if self == Self::Affinity => size == table.sessions,
            _ => elements <= size as usize,
        }
    }

    fn comment(self) -> &'static str {
        match self {
            Self::Frontends => "addresses of Services: treatment, class and pool",
            Self::NodePorts => "node ports of Services: treatment, class and pool",
            Self::LocalPools => "pool of the cluster: pool of this node, for Local external policy",
            Self::Endpoints => "pool . slot: endpoint",
            Self::Slots => "pool . slot: member, for session affinity",
            Self::Sticky => "member: endpoint",
            Self::Classes => "number of endpoints and affinity: how to choose",
            Self::ClusterIps => "cluster IPs of Services",
            Self::Hairpin => "endpoints that may be given their own connections",
            Self::Refused | Self::RefusedPorts => "no endpoint anywhere",
            Self::Dropped | Self::DroppedPorts => "no endpoint on this node",
            Self::Guarded => "addresses that only some sources may reach",
            Self::AllowedSources => "address . source that may reach it",
            Self::NodePortAddresses => "addresses of this node that have node ports",
            Self::DmzPods => "pods in the DMZ, or all others while one starts",
            Self::Edge => "addresses whose connections are shared out among nodes: pool",
            Self::EdgeLocal => "the same: treatment, class and pool of this node",
            Self::EdgeSlots => "pool . slot: node that has it; none for those of this node",
            Self::EdgeBefore => "pool . slot of this node: node that had it before",
            Self::Affinity => "pools . client: member",
        }
    }

    fn key(self, family: Family) -> Vec<Type> {
        let address = address_type(family);
        match self {
            Self::Frontends
            | Self::Refused
            | Self::Dropped
            | Self::Guarded
            | Self::Edge
            | Self::EdgeLocal => vec![address, PROTOCOL, SERVICE],
            Self::NodePorts | Self::RefusedPorts | Self::DroppedPorts => vec![PROTOCOL, SERVICE],
            Self::LocalPools | Self::Sticky | Self::Classes => vec![CLASS_ID],
            Self::Endpoints | Self::Slots | Self::EdgeSlots | Self::EdgeBefore => {
                vec![CLASS_ID, MARK]
            }
            Self::ClusterIps | Self::NodePortAddresses | Self::DmzPods => vec![address],
            Self::Hairpin => vec![address, address],
            Self::AllowedSources => vec![address, PROTOCOL, SERVICE, address],
            Self::Affinity => vec![CLASS_ID, address],
        }
    }

    fn data(self, family: Family) -> Vec<Type> {
        match self {
            Self::Frontends
            | Self::NodePorts
            | Self::LocalPools
            | Self::Slots
            | Self::Affinity
            | Self::Edge
            | Self::EdgeLocal => vec![CLASS_ID],
            Self::EdgeSlots | Self::EdgeBefore => vec![address_type(family)],
            Self::Endpoints | Self::Sticky => vec![address_type(family), SERVICE],
            _ => Vec::new(),
        }
    }

    pub fn definition(self, family: Family) -> Definition {
        let (key, data) = (self.key(family), self.data(family));
        let is_map = !data.is_empty() || self == Self::Classes;
        let flags = match self {
            Self::AllowedSources => NFT_SET_INTERVAL,
            Self::Affinity => NFT_SET_EVAL | NFT_SET_TIMEOUT,
            _ => 0,
        } | if is_map { NFT_SET_MAP } else { 0 }
            | if key.len() > 1 { NFT_SET_CONCAT } else { 0 };
        Definition {
            flags,
            key_type: number(&key),
            key_length: length(&key),
            data_type: if self == Self::Classes {
                NFT_DATA_VERDICT
            } else {
                number(&data)
            },
            data_length: length(&data),
        }
    }

    pub fn details(self, family: Family) -> Details {
        let (key, data) = (self.key(family), self.data(family));
        let mut userdata = Vec::new();
        byte_order(&mut userdata, 0, &key);
        if !data.is_empty() {
            byte_order(&mut userdata, 1, &data);
        }
        let comment = self.comment();
        userdata.extend([7, comment.len() as u8 + 1]);
        userdata.extend(comment.bytes().chain([0]));
        Details {
            parts: if key.len() > 1 {
                key.iter().map(|part| part.length).collect()
            } else {
                Vec::new()
            },
            userdata,
        }
    }
}

fn address_type(family: Family) -> Type {
    match family {
        Family::V4 => Type {
            number: 7,
            length: 4,
            host_order: false,
        },
        Family::V6 => Type {
            number: 8,
            length: 16,
            host_order: false,
        },
    }
}

/// `nft` joins the types of a key's parts, six bits each.
fn number(parts: &[Type]) -> u32 {
    parts
        .iter()
        .fold(0, |joined, part| joined << 6 | part.number)
}

/// Each part of a key takes whole registers of four bytes.
fn length(parts: &[Type]) -> u32 {
    match parts {
        [one] => u32::from(one.length),
        parts => parts
            .iter()
            .map(|part| u32::from(part.length).next_multiple_of(4))
            .sum(),
    }
}

fn byte_order(userdata: &mut Vec<u8>, kind: u8, parts: &[Type]) {
    let host_order = matches!(parts, [one] if one.host_order);
    let order: u32 = if host_order { 1 } else { 2 };
    userdata.extend([kind, 4]);
    userdata.extend(order.to_ne_bytes());
}
