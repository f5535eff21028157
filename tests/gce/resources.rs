//! What the cloud's resources mean for packets: from resources to the rules of the balancer's
//! kernel. Pure.

use portico_fakecloud::gce::{Gce, Kind};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::net::IpAddr;

/// The network tag that all instances have.
pub(crate) const TAG: &str = "nodes";
/// Where the cloud's health checkers ask from.
pub(crate) const CHECKERS: &str = "130.211.0.0/22";

/// The number of `nodeN`, which is also the mark of packets that go there.
pub(crate) type Instance = u8;

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ForwardingRule {
    #[serde(rename = "IPAddress")]
    address: IpAddr,
    #[serde(rename = "IPProtocol")]
    protocol: String,
    port_range: String,
    target: String,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
struct TargetPool {
    session_affinity: String,
    instances: Vec<String>,
    health_checks: Vec<String>,
}

/// What it does not say is as the cloud describes it.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct HttpHealthCheck {
    pub port: u16,
    pub request_path: String,
    pub check_interval_sec: u32,
    pub timeout_sec: u32,
    pub healthy_threshold: u32,
    pub unhealthy_threshold: u32,
}

impl Default for HttpHealthCheck {
    fn default() -> Self {
        Self {
            port: 80,
            request_path: "/".to_owned(),
            check_interval_sec: 5,
            timeout_sec: 5,
            healthy_threshold: 2,
            unhealthy_threshold: 2,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[derive(Default)]
struct Firewall {
    source_ranges: Vec<String>,
    destination_ranges: Vec<String>,
    target_tags: Vec<String>,
    allowed: Vec<Allowed>,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
struct Allowed {
    #[serde(rename = "IPProtocol")]
    protocol: String,
    ports: Vec<String>,
}

/// A forwarding rule with all that it refers to.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Balanced {
    pub address: IpAddr,
    pub instances: BTreeSet<Instance>,
    pub check: Option<HttpHealthCheck>,
    rule: ForwardingRule,
    affinity: String,
}

/// What there is at a time.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Resources {
    pub balanced: Vec<Balanced>,
    firewalls: Vec<Firewall>,
}

impl Resources {
    pub(crate) fn of(cloud: &Gce) -> Self {
        let pools: BTreeMap<String, TargetPool> = all(cloud, Kind::TargetPool).collect();
        let checks: BTreeMap<String, HttpHealthCheck> = all(cloud, Kind::HttpHealthCheck).collect();
        let balanced =
            all::<ForwardingRule>(cloud, Kind::ForwardingRule).filter_map(|(_, rule)| {
                let pool = pools.get(name_of(&rule.target))?;
                Some(Balanced {
                    address: rule.address,
                    instances: pool
                        .instances
                        .iter()
                        .filter_map(|link| instance(link))
                        .collect(),
                    check: pool
                        .health_checks
                        .first()
                        .and_then(|link| checks.get(name_of(link)))
                        .cloned(),
                    affinity: pool.session_affinity.clone(),
                    rule,
                })
            });
        let balanced = balanced.collect();
        Self {
            balanced,
            firewalls: all(cloud, Kind::Firewall)
                .map(|(_, firewall)| firewall)
                .collect(),
        }
    }
}

fn all<T: DeserializeOwned>(cloud: &Gce, kind: Kind) -> impl Iterator<Item = (String, T)> {
    let read = |(name, value): (String, serde_json::Value)| match serde_json::from_value(value) {
        Ok(resource) => (name, resource),
        Err(error) => panic!("{name} makes no sense to the cloud: {error}"),
    };
    cloud.all(kind).into_iter().map(read)
}

fn name_of(link: &str) -> &str {
    link.rsplit('/').next().unwrap_or_default()
}

fn instance(link: &str) -> Option<Instance> {
    name_of(link).strip_prefix("node")?.parse().ok()
}

impl Balanced {
    /// Those that get traffic: the healthy ones; all of them if none is, or if nobody is asked.
    pub(crate) fn chosen(&self, is_healthy: impl Fn(Instance) -> bool) -> BTreeSet<Instance> {
        let healthy: BTreeSet<_> = self
            .instances
            .iter()
            .copied()
            .filter(|instance| is_healthy(*instance))
            .collect();
        if self.check.is_none() || healthy.is_empty() {
            self.instances.clone()
        } else {
            healthy
        }
    }

    /// A connection goes where the hash of its first packet says, and stays there until its client
    /// has ended it (by a reset, as all do here).
    fn write(&self, chosen: &BTreeSet<Instance>, text: &mut String) {
        assert_eq!(self.rule.protocol, "TCP", "no other is tried here");
        let key = "ip saddr . tcp sport . ip daddr . tcp dport";
        let hashed = if self.affinity == "CLIENT_IP" {
            "ip saddr . ip daddr"
        } else {
            key
        };
        let matching = format!(
            "add rule ip gce pool ip daddr {} tcp dport {}",
            self.address, self.rule.port_range
        );
        let map: Vec<_> = chosen
            .iter()
            .enumerate()
            .map(|(at, instance)| format!("{at} : {instance}"))
            .collect();
        if map.is_empty() {
            return;
        }
        let (count, map) = (map.len(), map.join(", "));
        let first = "meta mark 0 tcp flags & (syn | ack) == syn";
        write!(
            text,
            "{matching} meta mark set {key} map @flows\n\
             {matching} {first} meta mark set jhash {hashed} mod {count} seed 0x1 map {{ {map} }}\n\
             {matching} meta mark != 0 update @flows {{ {key} timeout 30s : meta mark }}\n\
             {matching} tcp flags & rst == rst delete @flows {{ {key} : meta mark }}\n"
        )
        .unwrap();
    }
}

/// What is the same for all states. Connections that are known survive a change of the rules.
const FRAME: &str = "table ip gce {
  map flows { type ipv4_addr . inet_service . ipv4_addr . inet_service : mark; flags dynamic, timeout; size 65536; }
  counter dropped {}
  chain pool { type filter hook prerouting priority mangle; }
  chain forward { type filter hook forward priority filter; }
  chain checks { type filter hook output priority filter; }
  chain firewall {}
}
flush chain ip gce pool
flush chain ip gce forward
flush chain ip gce checks
flush chain ip gce firewall
add rule ip gce forward jump firewall
";

/// The input of `nft` for this state. Whatever no firewall allows is dropped on its way to an
/// instance.
pub(crate) fn ruleset(
    resources: &Resources,
    chosen: &BTreeMap<IpAddr, BTreeSet<Instance>>,
) -> String {
    let mut text = format!("{FRAME}add rule ip gce checks ip saddr {CHECKERS} jump firewall\n");
    for balanced in &resources.balanced {
        balanced.write(&chosen[&balanced.address], &mut text);
    }
    let for_instances = |firewall: &&Firewall| firewall.target_tags.iter().any(|tag| tag == TAG);
    for firewall in resources.firewalls.iter().filter(for_instances) {
        allow(firewall, &mut text);
    }
    text + "add rule ip gce firewall counter name dropped drop\n"
}

fn allow(firewall: &Firewall, text: &mut String) {
    let everywhere = vec!["0.0.0.0/0".to_owned()];
    let to = if firewall.destination_ranges.is_empty() {
        &everywhere
    } else {
        &firewall.destination_ranges
    };
    for (source, destination) in firewall
        .source_ranges
        .iter()
        .flat_map(|from| to.iter().map(move |to| (from, to)))
    {
        for (protocol, port) in firewall
            .allowed
            .iter()
            .flat_map(|it| it.ports.iter().map(|port| (&it.protocol, port)))
        {
            let addresses = format!("ip saddr {source} ip daddr {destination}");
            writeln!(
                text,
                "add rule ip gce firewall meta mark != 0 {addresses} {protocol} dport {port} accept"
            )
            .unwrap();
        }
    }
}
