//! The network of the lab: a control plane, three nodes with a pod each, and a client behind a
//! router. There are no programs of Kubernetes in it, only the network, and servers in the pods
//! that answer HTTP with their names.
//!
//! ```text
//!  client ───────── router ─────┬─── cp      192.0.2.2
//!  198.51.100.10    192.0.2.1   ├─── node1   192.0.2.11 ─── web-1  10.244.1.10
//!                               ├─── node2   192.0.2.12 ─── web-2  10.244.2.10
//!                               └─── node3   192.0.2.13 ─── web-3  10.244.3.10
//! ```

use crate::Result;
use crate::host::{Host, Testbed};
use crate::network::Route;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr};

/// The name of the control plane's host.
pub const CONTROL_PLANE: &str = "cp";
/// The name of the client's host.
pub const CLIENT: &str = "client";
/// The name of the router's host.
pub const ROUTER: &str = "router";
/// The range of all pods.
pub const POD_RANGE: &str = "10.244.0.0/16";
/// Addresses for load balancers, on the network of the nodes.
pub const POOL: &str = "192.0.2.200-192.0.2.220";
/// Where pods answer.
pub const POD_PORT: u16 = 8080;

/// The client's address, which is not in the network of the nodes.
pub const CLIENT_ADDRESS: &str = "198.51.100.10";
const LAN: &str = "br0";

/// One of the nodes, and what is on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The name of the node's host.
    pub node: &'static str,
    /// The node's address.
    pub address: Ipv4Addr,
    /// The name of the pod's host.
    pub pod: &'static str,
    /// The pod's address.
    pub pod_address: Ipv4Addr,
    number: u8,
}

/// The three nodes of the lab, each with its pod.
pub const PLACES: [Place; 3] = [
    place(1, "node1", "web-1"),
    place(2, "node2", "web-2"),
    place(3, "node3", "web-3"),
];

const fn place(number: u8, node: &'static str, pod: &'static str) -> Place {
    let address = Ipv4Addr::new(192, 0, 2, 10 + number);
    Place {
        node,
        address,
        pod,
        pod_address: Ipv4Addr::new(10, 244, number, 10),
        number,
    }
}

impl Place {
    /// The hardware address of its link, by which a neighbour table tells which host has an
    /// address.
    pub const fn mac(self) -> [u8; 6] {
        [2, 0xfa, 0, 0, 0, self.number]
    }

    fn gateway(self) -> String {
        format!("10.244.{}.1", self.number)
    }
}

/// Its hosts are gone with it.
pub struct Lab {
    hosts: BTreeMap<&'static str, Host>,
    switch: Host,
    _bed: Testbed,
}

impl Lab {
    /// Makes the hosts, links and routes.
    pub fn new() -> Result<Self> {
        let in_all = |source| crate::Error {
            host: "lab".to_owned(),
            doing: "start its thread".to_owned(),
            source,
        };
        let bed = Testbed::new().map_err(in_all)?;
        let switch = bed.host("switch")?;
        let mut hosts = BTreeMap::new();
        let named = [CONTROL_PLANE, CLIENT, ROUTER].into_iter();
        for name in named.chain(PLACES.iter().flat_map(|place| [place.node, place.pod])) {
            hosts.insert(name, bed.host(name)?);
        }
        let lab = Self {
            hosts,
            switch,
            _bed: bed,
        };
        lab.build()?;
        Ok(lab)
    }

    /// The host with one of the names in the picture above.
    pub fn host(&self, name: &str) -> Option<&Host> {
        self.hosts.get(name)
    }

    /// The names of all hosts.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.hosts.keys().copied()
    }

    /// Pulls the cable of a host out of the switch.
    pub fn unplug(&self, host: &str) -> Result<()> {
        self.switch.link_down(&port_of(host))
    }

    /// Brings the host's link up again after it was unplugged.
    pub fn plug(&self, host: &str) -> Result<()> {
        self.switch.link_up(&port_of(host))
    }

    /// Which node answers for an address at the moment, as the router last learned.
    pub fn owner(&self, address: IpAddr) -> io::Result<Option<Place>> {
        let table = self.hosts[ROUTER].enter(|| fs::read_to_string("/proc/thread-self/net/arp"))?;
        let text = address.to_string();
        let line = table
            .lines()
            .find(|line| line.split_whitespace().next() == Some(&text));
        let mac = line.and_then(|line| line.split_whitespace().nth(3));
        let has = |place: &&Place| {
            mac.is_some_and(|mac| mac.eq_ignore_ascii_case(&mac_text(place.mac())))
        };
        Ok(PLACES.iter().find(has).copied())
    }

    fn build(&self) -> Result<()> {
        self.switch.bridge(LAN)?;
        self.on_lan(CONTROL_PLANE, "192.0.2.2")?;
        self.on_lan(ROUTER, "192.0.2.1")?;
        let (router, client) = (&self.hosts[ROUTER], &self.hosts[CLIENT]);
        router.sysctl("net/ipv4/ip_forward", "1")?;
        router.cable("eth1", client, "eth0")?;
        router.address("eth1", "198.51.100.1/24")?;
        client.address("eth0", &format!("{CLIENT_ADDRESS}/24"))?;
        client.route(Route::to("default").via("198.51.100.1"))?;
        self.hosts[CONTROL_PLANE].route(Route::to("default").via("192.0.2.1"))?;
        PLACES
            .iter()
            .try_for_each(|place| self.build_place(*place))?;
        PLACES
            .iter()
            .try_for_each(|place| self.hosts[place.pod].serve_http(POD_PORT))
    }

    fn on_lan(&self, name: &str, address: &str) -> Result<()> {
        let host = &self.hosts[name];
        host.cable_to_switch("eth0", &self.switch, &port_of(name), LAN)?;
        host.address("eth0", &format!("{address}/24"))
    }

    fn build_place(&self, place: Place) -> Result<()> {
        let (node, pod) = (&self.hosts[place.node], &self.hosts[place.pod]);
        self.on_lan(place.node, &place.address.to_string())?;
        node.link_mac("eth0", place.mac())?;
        node.sysctl("net/ipv4/ip_forward", "1")?;
        node.route(Route::to("default").via("192.0.2.1"))?;
        for other in PLACES.iter().filter(|other| **other != place) {
            let pods = format!("10.244.{}.0/24", other.number);
            node.route(Route::to(&pods).via(&other.address.to_string()))?;
        }
        node.bridge("cni0")?;
        node.address("cni0", &format!("{}/24", place.gateway()))?;
        pod.cable_to_switch("eth0", node, "veth1", "cni0")?;
        pod.address("eth0", &format!("{}/24", place.pod_address))?;
        pod.route(Route::to("default").via(&place.gateway()))
    }
}

fn port_of(host: &str) -> String {
    format!("to-{host}")
}

fn mac_text(mac: [u8; 6]) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}
