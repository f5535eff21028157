//! A small dual-stack cluster: a control plane, three nodes with three pods each, two clients
//! outside, and a box behind the nodes' default route that answers on every address and port. There
//! are no programs of Kubernetes in it, only the network.
//!
//! | host | addresses |
//! |---|---|
//! | `cp`, `lb` | `172.30.0.2`, `172.30.0.5` and `fd00:30::2`, `fd00:30::5` |
//! | `nodeN` | `172.30.0.1N`, `fd00:30::1N`; `alt` `172.31.0.1N`, `fd00:31::1N`; `gw` on `cni0` `10.244.N.1`, `fd00:10:244:N::1` |
//! | `podN-J` | `10.244.N.1J`, `fd00:10:244:N::1J` |
//! | `client`, `client2` | `198.51.100.10` and `.20`, `2001:db8:51::10` and `::20`, and 32 more of each |
//!
//! Clients and `lb` send packets with the mark N through node N.

use crate::echo::Echo;
use portico_netns::{Error, Host, Result, Route, Rule, Testbed};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::process::Command;

pub const NODES: [u8; 3] = [1, 2, 3];
pub const PODS: [u8; 3] = [1, 2, 3];
pub const SERVICE_RANGES: &str = "10.96.0.0/16,fd00:10:96::/112";
pub const POD_RANGES: &str = "10.244.0.0/16,fd00:10:244::/48";
/// Every pod answers on these, over TCP, UDP and SCTP.
pub const POD_PORTS: [u16; 7] = [80, 443, 53, 8080, 8081, 8082, 9000];
/// Every node answers on this one.
pub const HOST_PORT: u16 = 18080;
/// Further addresses of each client.
pub const EXTRA_SOURCES: u16 = 32;
/// Behind this port `lb` answers for all others.
const CATCH_ALL: u16 = 7;

/// The zone of a node.
pub fn zone(node: u8) -> &'static str {
    if node == 1 { "zone-a" } else { "zone-b" }
}

/// A host's further addresses, from which it does not send by itself.
pub fn extra_sources(client: &str, v6: bool) -> impl Iterator<Item = String> + use<> {
    let (first, prefix) = (
        if client == "client" { 101 } else { 151 },
        if v6 { "2001:db8:51::" } else { "198.51.100." },
    );
    (first..first + EXTRA_SOURCES).map(move |last| format!("{prefix}{last}"))
}

/// The addresses of each host. It is the same in every cluster.
pub struct Addresses {
    /// By host and by which: `ip`, `ip6`, and for nodes `alt`, `alt6`, `gw`, `gw6`.
    by_host: BTreeMap<String, BTreeMap<&'static str, IpAddr>>,
    owners: BTreeMap<IpAddr, String>,
}

impl Default for Addresses {
    fn default() -> Self {
        let by_host = by_host();
        Self {
            owners: owners(&by_host),
            by_host,
        }
    }
}

impl Addresses {
    /// One of the addresses of a host, by its name in the table above.
    pub fn of(&self, host: &str, which: &str) -> Option<IpAddr> {
        self.by_host.get(host)?.get(which).copied()
    }

    pub fn all_of(&self, host: &str) -> impl Iterator<Item = IpAddr> {
        self.by_host
            .get(host)
            .into_iter()
            .flat_map(|all| all.values().copied())
    }

    /// The host that has this address.
    pub fn owner(&self, address: IpAddr) -> Option<&str> {
        self.owners.get(&address.to_canonical()).map(String::as_str)
    }
}

pub struct Cluster {
    pub addresses: Addresses,
    hosts: BTreeMap<String, Host>,
    switch: Host,
    _bed: Testbed,
}

impl Cluster {
    pub fn new() -> Result<Self> {
        let in_all = |source| Error {
            host: "all".to_owned(),
            doing: "make the bed".to_owned(),
            source,
        };
        let bed = Testbed::new().map_err(in_all)?;
        let addresses = Addresses::default();
        let mut hosts = BTreeMap::new();
        for name in addresses.by_host.keys() {
            hosts.insert(name.clone(), bed.host(name)?);
        }
        let switch = bed.host("switch")?;
        let cluster = Self {
            addresses,
            hosts,
            switch,
            _bed: bed,
        };
        cluster.build(&cluster.switch)?;
        cluster.serve()?;
        Ok(cluster)
    }

    pub fn host(&self, name: &str) -> Option<&Host> {
        self.hosts.get(name)
    }

    /// Pulls the cable of a host out of the switch.
    pub fn unplug(&self, host: &str) -> Result<()> {
        self.switch.link_down(&format!("to-{host}"))
    }

    pub fn plug_in(&self, host: &str) -> Result<()> {
        self.switch.link_up(&format!("to-{host}"))
    }

    fn build(&self, switch: &Host) -> Result<()> {
        switch.bridge("br0")?;
        for (name, host) in self
            .hosts
            .iter()
            .filter(|(name, _)| !name.starts_with("pod"))
        {
            host.cable_to_silent_switch("eth0", switch, &format!("to-{name}"), "br0")?;
            let [ip, ip6] = self.text(name, ["ip", "ip6"]);
            host.address("eth0", &format!("{ip}/24"))?;
            host.address("eth0", &format!("{ip6}/64"))?;
            match name.as_str() {
                "cp" => routes_to_pods(host, 0)?,
                "lb" => lb(host)?,
                "client" | "client2" => client(host)?,
                _ => {}
            }
        }
        // The nodes' MAC addresses are known to `lb`, and change before the first request for them.
        NODES.iter().try_for_each(|&node| self.build_node(node))?;
        NODES.iter().try_for_each(|node| {
            self.hosts[&format!("node{node}")].wait_until_it_carries("cni0")
        })?;
        switch.wait_until_it_carries("br0")
    }

    fn build_node(&self, node: u8) -> Result<()> {
        let name = format!("node{node}");
        let host = &self.hosts[&name];
        host.link_mac("eth0", mac(node))?;
        for setting in [
            "net/ipv4/ip_forward",
            "net/ipv6/conf/all/forwarding",
            "net/ipv6/conf/default/forwarding",
        ] {
            host.sysctl(setting, "1")?;
        }
        let [alt, alt6, gw, gw6] = self.text(&name, ["alt", "alt6", "gw", "gw6"]);
        host.secondary_address("eth0", &alt)?;
        host.secondary_address("eth0", &alt6)?;
        routes_to_clients(host)?;
        routes_to_pods(host, node)?;
        for other in NODES.into_iter().filter(|&other| other != node) {
            host.route(
                Route::to(&format!("172.31.0.1{other}")).via(&format!("172.30.0.1{other}")),
            )?;
            host.route(
                Route::to(&format!("fd00:31::1{other}")).via(&format!("fd00:30::1{other}")),
            )?;
        }
        default_routes_to_lb(host)?;
        host.bridge("cni0")?;
        host.address("cni0", &format!("{gw}/24"))?;
        host.address("cni0", &format!("{gw6}/64"))?;
        PODS.iter()
            .try_for_each(|&pod| self.build_pod(host, &format!("pod{node}-{pod}"), pod, &gw, &gw6))
    }

    fn build_pod(&self, node: &Host, name: &str, pod: u8, gw: &str, gw6: &str) -> Result<()> {
        let host = &self.hosts[name];
        host.cable_to_silent_switch("eth0", node, &format!("veth{pod}"), "cni0")?;
        let [ip, ip6] = self.text(name, ["ip", "ip6"]);
        for (address, gateway, everything) in [(&ip, gw, "default"), (&ip6, gw6, "default6")] {
            host.address("eth0", address)?;
            host.route(Route::to(gateway).link("eth0"))?;
            host.route(Route::to(everything).via(gateway).link("eth0"))?;
        }
        Ok(())
    }

    fn serve(&self) -> Result<()> {
        for (name, host) in &self.hosts {
            match name.as_str() {
                "lb" => host.serve(CATCH_ALL)?,
                name if name.starts_with("node") => host.serve(HOST_PORT)?,
                name if name.starts_with("pod") => {
                    POD_PORTS.iter().try_for_each(|&port| host.serve(port))?;
                    host.serve_sctp(&POD_PORTS)?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn text<const N: usize>(&self, host: &str, which: [&'static str; N]) -> [String; N] {
        which.map(|which| self.addresses.by_host[host][which].to_string())
    }
}

fn by_host() -> BTreeMap<String, BTreeMap<&'static str, IpAddr>> {
    let mut all = BTreeMap::new();
    let mut add = |host: String, pairs: &[(&'static str, String)]| {
        let parsed = pairs
            .iter()
            .filter_map(|(which, text)| Some((*which, text.parse().ok()?)));
        all.insert(host, parsed.collect::<BTreeMap<_, IpAddr>>());
    };
    for (host, last) in [("cp", 2), ("lb", 5)] {
        add(
            host.to_owned(),
            &[
                ("ip", format!("172.30.0.{last}")),
                ("ip6", format!("fd00:30::{last}")),
            ],
        );
    }
    for (host, last) in [("client", 10), ("client2", 20)] {
        add(
            host.to_owned(),
            &[
                ("ip", format!("198.51.100.{last}")),
                ("ip6", format!("2001:db8:51::{last}")),
            ],
        );
    }
    for node in NODES {
        let of_node = [
            ("ip", format!("172.30.0.1{node}")),
            ("ip6", format!("fd00:30::1{node}")),
            ("alt", format!("172.31.0.1{node}")),
            ("alt6", format!("fd00:31::1{node}")),
            ("gw", format!("10.244.{node}.1")),
            ("gw6", format!("fd00:10:244:{node}::1")),
        ];
        add(format!("node{node}"), &of_node);
        for pod in PODS {
            let of_pod = [
                ("ip", format!("10.244.{node}.1{pod}")),
                ("ip6", format!("fd00:10:244:{node}::1{pod}")),
            ];
            add(format!("pod{node}-{pod}"), &of_pod);
        }
    }
    all
}

fn owners(by_host: &BTreeMap<String, BTreeMap<&'static str, IpAddr>>) -> BTreeMap<IpAddr, String> {
    let named = by_host
        .iter()
        .flat_map(|(host, all)| all.values().map(move |&address| (address, host.clone())));
    let extra = ["client", "client2"].into_iter().flat_map(|client| {
        let texts = extra_sources(client, false).chain(extra_sources(client, true));
        texts.filter_map(move |text| Some((text.parse().ok()?, client.to_owned())))
    });
    named.chain(extra).collect()
}

fn mac(node: u8) -> [u8; 6] {
    [2, 0xfa, 0, 0, 0, node]
}

fn routes_to_clients(host: &Host) -> Result<()> {
    host.route(Route::to("198.51.100.0/24").link("eth0"))?;
    host.route(Route::to("2001:db8:51::/64").link("eth0"))
}

fn routes_to_pods(host: &Host, own: u8) -> Result<()> {
    for node in NODES.into_iter().filter(|&node| node != own) {
        host.route(Route::to(&format!("10.244.{node}.0/24")).via(&format!("172.30.0.1{node}")))?;
        host.route(
            Route::to(&format!("fd00:10:244:{node}::/64")).via(&format!("fd00:30::1{node}")),
        )?;
    }
    Ok(())
}

fn default_routes_to_lb(host: &Host) -> Result<()> {
    host.route(Route::to("default").via("172.30.0.5"))?;
    host.route(Route::to("default6").via("fd00:30::5"))
}

/// Packets with the mark N go through node N.
fn routes_by_mark(host: &Host) -> Result<()> {
    for node in NODES {
        let (mark, table) = (u32::from(node), 200 + u32::from(node));
        host.route(
            Route::to("default")
                .via(&format!("172.30.0.1{node}"))
                .table(table),
        )?;
        host.route(
            Route::to("default6")
                .via(&format!("fd00:30::1{node}"))
                .table(table),
        )?;
        host.rule(Rule {
            mark: Some(mark),
            input: None,
            table,
            priority: 100 + mark,
        })?;
    }
    Ok(())
}

fn client(host: &Host) -> Result<()> {
    for (v6, length) in [(false, 32), (true, 128)] {
        for address in extra_sources(host.name(), v6) {
            host.secondary_address("eth0", &format!("{address}/{length}"))?;
        }
    }
    for network in [
        "172.30.0.0/24",
        "172.31.0.0/24",
        "fd00:30::/64",
        "fd00:31::/64",
    ] {
        host.route(Route::to(network).link("eth0"))?;
    }
    default_routes_to_lb(host)?;
    routes_by_mark(host)
}

/// Takes every address for its own and answers for every port, back through the node that the
/// question came from.
fn lb(host: &Host) -> Result<()> {
    for setting in [
        "net/ipv4/conf/all/arp_ignore",
        "net/ipv4/conf/default/arp_ignore",
    ] {
        host.sysctl(setting, "1")?;
    }
    routes_to_clients(host)?;
    routes_to_pods(host, 0)?;
    routes_by_mark(host)?;
    host.route(Route::to("default").local().table(100))?;
    host.route(Route::to("default6").local().table(100))?;
    host.rule(Rule {
        mark: None,
        input: Some("eth0"),
        table: 100,
        priority: 10,
    })?;
    // With iptables, which every kernel has in one way or the other.
    let remember = NODES.map(|node| {
        format!(
            "-A PREROUTING -m mac --mac-source 02:fa:00:00:00:{node:02x} -m conntrack --ctdir \
             ORIGINAL -j CONNMARK --set-mark {node}\n"
        )
    });
    let answer = ["tcp", "udp"].map(|protocol| {
        format!("-A PREROUTING -i eth0 -p {protocol} -j REDIRECT --to-ports {CATCH_ALL}\n")
    });
    let rules = format!(
        "*mangle\n{}-A OUTPUT -m connmark ! --mark 0 -j CONNMARK \
         --restore-mark\nCOMMIT\n*nat\n{}COMMIT\n",
        remember.concat(),
        answer.concat()
    );
    ["iptables-restore", "ip6tables-restore"]
        .into_iter()
        .try_for_each(|program| {
            let mut restore = Command::new(program);
            restore.arg("--wait");
            host.run(restore, &rules).map(drop)
        })
}
