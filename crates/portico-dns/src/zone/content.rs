//! What stands at a name. Services on nodes refer to the nodes instead of repeating them: a node
//! that comes or goes changes one list, not ten thousand Services.

use hickory_proto::rr::rdata::{A, AAAA, CNAME, SRV};
use hickory_proto::rr::{Name, RData, RecordType};
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

/// Families in which something can be reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Families {
    pub v4: bool,
    pub v6: bool,
}

impl Families {
    pub const BOTH: Self = Self { v4: true, v6: true };

    pub fn has(self, address: &IpAddr) -> bool {
        if address.is_ipv4() { self.v4 } else { self.v6 }
    }
}

/// A node with its name in the zone.
#[derive(Debug, PartialEq, Eq)]
pub struct Node {
    pub name: Name,
    pub addresses: Vec<IpAddr>,
}

/// A node that serves something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    pub node: Arc<Node>,
    /// How much of the traffic it is to get.
    pub weight: u16,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Nodes {
    /// The zone's list of nodes that are fit: of those that have addresses in this port partition,
    /// or in none.
    Shared(Option<Arc<str>>),
    Own(Arc<[Member]>),
}

/// Nodes that are fit, by the port partition in which they have addresses.
pub(crate) type Lists = HashMap<Option<Arc<str>>, Arc<[Member]>>;

/// Where a port is found, other than on nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    pub name: Name,
    pub port: u16,
    /// Where the name is in the zone.
    pub addresses: Arc<[IpAddr]>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    Addresses(Arc<[IpAddr]>),
    Alias(Name),
    /// The addresses of nodes.
    Nodes {
        nodes: Nodes,
        families: Families,
    },
    /// SRV
    Targets(Vec<Target>),
    /// SRV with a port of nodes.
    NodePort {
        nodes: Nodes,
        families: Families,
        port: u16,
    },
}

/// What is wanted of a content.
pub struct Wanted<'a> {
    pub content: &'a Content,
    /// The zone's lists of fit nodes.
    pub shared: &'a Lists,
}

impl<'a> Wanted<'a> {
    fn members(
        &self,
        nodes: &'a Nodes,
        families: Families,
    ) -> impl Iterator<Item = &'a Member> + use<'a> {
        let members = match nodes {
            Nodes::Shared(partition) => self.shared.get(partition).map_or(&[][..], AsRef::as_ref),
            Nodes::Own(members) => members,
        };
        members.iter().filter(move |member| {
            member
                .node
                .addresses
                .iter()
                .any(|address| families.has(address))
        })
    }

    /// The records of a type.
    pub fn records(&self, kind: RecordType) -> Vec<RData> {
        match (self.content, kind) {
            (Content::Addresses(addresses), _) => addresses
                .iter()
                .filter_map(|ip| address(*ip, kind))
                .collect(),
            (Content::Alias(name), RecordType::CNAME) => vec![RData::CNAME(CNAME(name.clone()))],
            (Content::Alias(_), _) => Vec::new(),
            (Content::Nodes { nodes, families }, _) => {
                let of =
                    |member: &'a Member| member.node.addresses.iter().filter(|ip| families.has(ip));
                let all = self.members(nodes, *families).flat_map(of);
                let mut records: Vec<RData> = all.filter_map(|ip| address(*ip, kind)).collect();
                dedup(&mut records);
                records
            }
            (Content::Targets(targets), RecordType::SRV) => targets
                .iter()
                .map(|target| RData::SRV(SRV::new(0, 1, target.port, target.name.clone())))
                .collect(),
            (
                Content::NodePort {
                    nodes,
                    families,
                    port,
                },
                RecordType::SRV,
            ) => self
                .members(nodes, *families)
                .map(|member| {
                    RData::SRV(SRV::new(0, member.weight, *port, member.node.name.clone()))
                })
                .collect(),
            (Content::Targets(_) | Content::NodePort { .. }, _) => Vec::new(),
        }
    }

    /// The addresses of what SRV records point to, which clients would ask for next.
    pub fn additional(&self) -> Vec<(Name, IpAddr)> {
        match self.content {
            Content::Targets(targets) => targets
                .iter()
                .flat_map(|target| target.addresses.iter().map(|ip| (target.name.clone(), *ip)))
                .collect(),
            Content::NodePort {
                nodes, families, ..
            } => self
                .members(nodes, *families)
                .flat_map(|member| {
                    member
                        .node
                        .addresses
                        .iter()
                        .map(|ip| (&member.node.name, *ip))
                })
                .filter(|(_, ip)| families.has(ip))
                .map(|(name, ip)| (name.clone(), ip))
                .collect(),
            _ => Vec::new(),
        }
    }
}

impl Content {
    /// The types that there may be, those that people ask for first.
    pub fn types(&self) -> &'static [RecordType] {
        match self {
            Self::Addresses(_) | Self::Nodes { .. } => &[RecordType::A, RecordType::AAAA],
            Self::Alias(_) => &[RecordType::CNAME],
            Self::Targets(_) | Self::NodePort { .. } => &[RecordType::SRV],
        }
    }
}

/// The address as a record of that type, if it is of that family.
pub(crate) fn address(ip: IpAddr, kind: RecordType) -> Option<RData> {
    match (ip, kind) {
        (IpAddr::V4(ip), RecordType::A) => Some(RData::A(A(ip))),
        (IpAddr::V6(ip), RecordType::AAAA) => Some(RData::AAAA(AAAA(ip))),
        _ => None,
    }
}

/// Two nodes may have the same address by mistake; a set has it once.
fn dedup(records: &mut Vec<RData>) {
    let mut seen = std::collections::HashSet::new();
    records.retain(|record| match record {
        RData::A(A(ip)) => seen.insert(IpAddr::V4(*ip)),
        RData::AAAA(AAAA(ip)) => seen.insert(IpAddr::V6(*ip)),
        _ => true,
    });
}
