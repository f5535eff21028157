//! A small cluster for tests: facts by short words, and what a zone says.

use crate::facts::{AddressKind, Node, Port, Reach, Service, Slice};
use crate::index::{Index, Settings};
use crate::zone::names::host_name;
use crate::zone::{self, Families, Origin, Zone};
use hickory_proto::rr::Record;
use portico_model::checks::Ranges;
use portico_model::key::ObjectKey;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

pub(crate) const HEALTHZ: u16 = 10256;

pub(crate) fn ips(texts: &[&str]) -> Vec<IpAddr> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

pub(crate) fn name(text: &str) -> ObjectKey {
    let (namespace, name) = text.split_once('/').unwrap();
    ObjectKey::new(namespace, name)
}

/// A Service with the ports `http` (80) and, without a name, 443, on the nodes 30080 and 30443.
pub(crate) fn service(reach: Reach) -> Service {
    let port = |name: &str, port, node_port| Port {
        name: name.to_owned(),
        protocol: "_tcp",
        port,
        node_port,
    };
    let on_nodes = reach != Reach::Cluster;
    Service {
        reach,
        cluster_ips: ips(&["10.96.0.1"]),
        families: Families::BOTH,
        ports: vec![
            port("http", 80, on_nodes.then_some(30080)),
            port("", 443, on_nodes.then_some(30443)),
        ],
        local: false,
        health_port: None,
        partition: None,
        within: None,
        addresses: Vec::new(),
        hosts: Vec::new(),
    }
}

pub(crate) fn node(addresses: &[&str]) -> Node {
    Node {
        addresses: ips(addresses)
            .into_iter()
            .map(|ip| (AddressKind::Internal, ip))
            .collect(),
        unfit: None,
    }
}

/// Ready endpoints of a Service: a node and how many.
pub(crate) fn slice(service: &str, kind: &str, ready: &[(&str, u16)]) -> Slice {
    let ready = ready
        .iter()
        .map(|(node, count)| ((*node).to_owned(), *count))
        .collect::<BTreeMap<_, _>>();
    Slice {
        service: name(service),
        kind: kind.to_owned(),
        ready,
    }
}

pub(crate) struct Rig {
    pub index: Index,
    pub zone: Zone,
    /// Patches that changed something, since the last look.
    pub patches: usize,
}

impl Rig {
    pub(crate) fn new() -> Self {
        Self::with(|_| {})
    }

    pub(crate) fn with(change: impl FnOnce(&mut Settings)) -> Self {
        let origin = Origin::new("example.com").unwrap();
        let mut settings = Settings {
            origin: origin.clone(),
            given: vec![AddressKind::External, AddressKind::Internal],
            ranges: Ranges::default(),
            probed: Vec::new(),
            healthz_port: HEALTHZ,
            cluster_services: false,
        };
        change(&mut settings);
        let zone = zone::Settings {
            servers: vec![
                (host_name("ns1.example.com").unwrap(), ips(&["192.0.2.53"])),
                (host_name("ns.example.net").unwrap(), vec![]),
            ],
            hostmaster: host_name("hostmaster.example.com").unwrap(),
            ttl: 30,
            negative_ttl: 10,
            origin,
        };
        let mut zone = Zone::new(zone, 1);
        zone.complete();
        Self {
            index: Index::new(settings),
            zone,
            patches: 0,
        }
    }

    /// Two nodes that are fit, `n1` and `n2`.
    pub(crate) fn with_nodes() -> Self {
        let mut rig = Self::new();
        for (name, addresses) in [
            ("n1", ["10.0.0.1", "fd00::1"]),
            ("n2", ["10.0.0.2", "fd00::2"]),
        ] {
            rig.index.set_node(name, Some(node(&addresses)));
            rig.health(&format!("{}:{HEALTHZ}", addresses[0]), true);
        }
        rig
    }

    pub(crate) fn health(&mut self, address: &str, healthy: bool) {
        self.index
            .set_health(address.parse::<SocketAddr>().unwrap(), healthy);
        self.settle();
    }

    pub(crate) fn settle(&mut self) {
        for patch in self.index.take() {
            self.patches += usize::from(self.zone.apply(patch));
        }
    }

    /// Names below the origin that begin with this, their types and data.
    pub(crate) fn records(&mut self, below: &str) -> Vec<String> {
        self.settle();
        let text = |record: Record| {
            let name = record.name.to_ascii();
            let name = name
                .strip_suffix(".example.com.")
                .unwrap_or(&name)
                .to_owned();
            format!("{name} {} {}", record.record_type(), record.data)
        };
        let all = self.zone.snapshot();
        let mut found: Vec<String> = all
            .records()
            .map(text)
            .filter(|text| text.contains(below))
            .collect();
        found.sort();
        found
    }
}
