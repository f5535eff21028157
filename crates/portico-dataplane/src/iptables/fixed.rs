//! What does not depend on any service port: chains with fixed rules, the ends of shared chains,
//! and the hooks, rules in the kernel's own chains that lead to ours.

use super::names::{
    FORWARD, MARK_MASQ, MARTIANS, MASQ_UNLESS_POD, POSTROUTING, SERVICES, Shared, Table,
};
use super::rules::{Chain, FROM_NODE, Rule, destination, family_of, from_pod, source};
use ipnet::IpNet;
use portico_model::table::{DmzPods, Family, NodePortAddresses, NodeRules};
use std::net::IpAddr;

const NEW: &str = "-m conntrack --ctstate NEW";

/// What the programs and the kernel can do, and what the operator set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Features {
    /// `MASQUERADE --random-fully` is known.
    pub random_fully: bool,
    /// Packets that belong to no known connection are dropped (not wanted where conntrack takes
    /// stray segments).
    pub drop_invalid: bool,
}

pub(crate) fn fixed_chains(rules: &NodeRules, family: Family, features: Features) -> Vec<Chain> {
    let mark = format!("{:#x}", rules.masquerade_mark);
    let nat = |name: &str, rules: Vec<String>| Chain {
        table: Table::Nat,
        name: name.to_owned(),
        rules,
    };
    let mut chains = vec![
        nat(
            MARK_MASQ,
            vec![format!("-j MARK --set-xmark {mark}/{mark}")],
        ),
        nat(POSTROUTING, postrouting(&mark, features)),
        Chain {
            table: Table::Filter,
            name: FORWARD.to_owned(),
            rules: forward(&mark, features),
        },
        Chain {
            table: Table::Filter,
            name: SERVICES.to_owned(),
            rules: refusals(rules, family),
        },
    ];
    chains.extend(masq_unless_pod(rules, family));
    if family == Family::V4 && rules.route_localnet {
        chains.push(Chain {
            table: Table::Filter,
            name: MARTIANS.to_owned(),
            rules: vec![MARTIAN_RULE.to_owned()],
        });
    }
    chains
}

/// The chain that masquerades unless the source is a pod, for where one match cannot recognize pods
/// of this node.
pub(crate) fn masq_unless_pod(rules: &NodeRules, family: Family) -> Option<Chain> {
    let pods = from_pod(rules.local_pods.get(family), family);
    if pods.len() < 2 {
        return None;
    }
    let spared = pods.into_iter().map(|(source, interface)| {
        Rule {
            source,
            interface,
            ..Rule::to("RETURN")
        }
        .text()
    });
    let rules = spared.chain([Rule::to(MARK_MASQ).text()]).collect();
    Some(Chain {
        table: Table::Nat,
        name: MASQ_UNLESS_POD.to_owned(),
        rules,
    })
}

/// Letting packets to 127.0.0.0/8 be routed opens the node's own services to its neighbours; this
/// closes them again.
pub(crate) const MARTIAN_RULE: &str = "! -s 127.0.0.0/8 -d 127.0.0.0/8 -m comment --comment \"block incoming localnet connections\" \
                                -m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT -j DROP";

/// The mark is taken off, so that a packet that passes here again is not translated again.
pub(crate) fn postrouting(mark: &str, features: Features) -> Vec<String> {
    let masquerade = if features.random_fully {
        "MASQUERADE --random-fully"
    } else {
        "MASQUERADE"
    };
    vec![
        format!("-m mark ! --mark {mark}/{mark} -j RETURN"),
        format!("-j MARK --set-xmark {mark}/0x0"),
        Rule::to(masquerade)
            .comment("kubernetes service traffic requiring SNAT")
            .text(),
    ]
}

/// What was marked may pass even where the node forwards nothing else.
pub(crate) fn forward(mark: &str, features: Features) -> Vec<String> {
    let invalid = features
        .drop_invalid
        .then(|| "-m conntrack --ctstate INVALID -j DROP".to_owned());
    let marked = Rule::to("ACCEPT")
        .comment("kubernetes forwarding rules")
        .matching(&format!("-m mark --mark {mark}/{mark}"));
    let known = Rule::to("ACCEPT")
        .comment("kubernetes forwarding conntrack rule")
        .matching("-m conntrack --ctstate RELATED,ESTABLISHED");
    invalid
        .into_iter()
        .chain([marked.text(), known.text()])
        .collect()
}

/// The rules that stay at the end of a shared chain.
pub(crate) fn tail(shared: Shared, rules: &NodeRules, family: Family) -> Vec<String> {
    match shared {
        Shared::Services => {
            let comment =
                "kubernetes service nodeports; NOTE: this must be the last rule in this chain";
            node_port_jumps(
                rules,
                family,
                &Rule::to(Shared::NodePorts.name()).comment(comment),
            )
        }
        // Where packets have arrived, and not where the node sends them: a node that connects to
        // itself is refused there and not rejected by policy.
        Shared::HealthChecks => {
            let refused = Rule::to(Shared::RefusedNodePorts.name()).matching(NEW);
            node_port_jumps(
                rules,
                family,
                &refused.comment("node ports without endpoints"),
            )
        }
        Shared::ClusterIps if service_cidrs(rules, family).next().is_some() => {
            vec![
                Rule::to("DROP")
                    .comment("cluster IPs that no Service has")
                    .text(),
            ]
        }
        Shared::Firewall => dmz_jumps(rules.dmz.get(family)),
        Shared::Dmz => vec![Rule::to(Shared::ClosedToDmz.name()).text()],
        Shared::NodePorts
        | Shared::Refused
        | Shared::RefusedNodePorts
        | Shared::ClusterIps
        | Shared::ClosedToDmz => Vec::new(),
    }
}

/// The rules that tell packets of pods in the DMZ from others: the last of their chain. The node's
/// own pass here as well.
pub(crate) fn dmz_jumps(dmz: &DmzPods) -> Vec<String> {
    let from = |address: &IpAddr, target: &str| {
        Rule {
            source: source(&IpNet::from(*address)),
            ..Rule::to(target)
        }
        .text()
    };
    let to_dmz = Shared::Dmz.name();
    match dmz {
        DmzPods::Listed(listed) => listed.iter().map(|pod| from(pod, to_dmz)).collect(),
        DmzPods::AllBut(others) => {
            let own = Rule::to("RETURN").matching(FROM_NODE).text();
            let others = others.iter().map(|pod| from(pod, "RETURN"));
            std::iter::once(own)
                .chain(others)
                .chain([Rule::to(to_dmz).text()])
                .collect()
        }
    }
}

/// Forwarded packets and the node's own pass here, but not those that have arrived at an address of
/// the node.
fn refusals(rules: &NodeRules, family: Family) -> Vec<String> {
    let refused = Rule::to(Shared::Refused.name()).comment("addresses without endpoints");
    std::iter::once(refused.text())
        .chain(to_cluster_ips(rules, family))
        .collect()
}

/// What has not been given to an endpoint is still on its way to a cluster IP. Where it is not
/// known which addresses those are, whatever was not translated is looked at.
fn to_cluster_ips(rules: &NodeRules, family: Family) -> Vec<String> {
    let jump =
        || Rule::to(Shared::ClusterIps.name()).comment("undefined ports and unused cluster IPs");
    let mut known: Vec<String> = service_cidrs(rules, family)
        .map(|network| {
            Rule {
                destination: network,
                ..jump()
            }
            .text()
        })
        .collect();
    if known.is_empty() {
        known.push(jump().matching("-m conntrack ! --ctstate DNAT").text());
    }
    known
}

pub(crate) fn service_cidrs(rules: &NodeRules, family: Family) -> impl Iterator<Item = String> {
    let networks = rules
        .service_cidrs
        .iter()
        .filter(move |network| family_of(network) == family && network.prefix_len() > 0);
    networks.map(|network| format!("-d {}", network.trunc()))
}

/// The rule for what goes to an address of the node that has node ports.
fn node_port_jumps(rules: &NodeRules, family: Family, rule: &Rule) -> Vec<String> {
    let jump = |destination: String| Rule {
        destination,
        ..rule.clone()
    };
    match rules.node_ports.get(family) {
        NodePortAddresses::AllLocal { loopback } => {
            let but = match (family, loopback) {
                (Family::V4, true) => "",
                (Family::V4, false) => "! -d 127.0.0.0/8",
                // There are no node ports on ::1: the kernel would not route the answer.
                (Family::V6, _) => "! -d ::1/128",
            };
            vec![
                jump(but.to_owned())
                    .matching("-m addrtype --dst-type LOCAL")
                    .text(),
            ]
        }
        NodePortAddresses::Listed(addresses) => {
            let usable = |a: &&std::net::IpAddr| {
                Family::of(**a) == family && !(family == Family::V6 && a.is_loopback())
            };
            addresses
                .iter()
                .filter(usable)
                .map(|address| jump(destination(*address)).text())
                .collect()
        }
    }
}

/// The rules of the kernel's chain that lead to ours, first things first.
pub(crate) struct Hook {
    pub table: Table,
    pub chain: &'static str,
    pub rules: Vec<String>,
}

pub(crate) fn hooks() -> [Hook; 6] {
    let new = |chain: &str, comment: &str| Rule::to(chain).matching(NEW).comment(comment).text();
    let all = |chain: &str, comment: &str| Rule::to(chain).comment(comment).text();
    let firewall = || new(Shared::Firewall.name(), "kubernetes load balancer firewall");
    let services = || new(SERVICES, "kubernetes service portals");
    let external = || {
        new(
            Shared::Refused.name(),
            "kubernetes externally-visible service portals",
        )
    };
    let health = || {
        all(
            Shared::HealthChecks.name(),
            "kubernetes health check service ports",
        )
    };
    let forward = || all(FORWARD, "kubernetes forwarding rules");
    let translate = || all(SERVICES, "kubernetes service portals");
    let filter = |chain, rules| Hook {
        table: Table::Filter,
        chain,
        rules,
    };
    let nat = |chain, rules| Hook {
        table: Table::Nat,
        chain,
        rules,
    };
    [
        filter("INPUT", vec![firewall(), health(), external()]),
        filter(
            "FORWARD",
            vec![firewall(), forward(), services(), external()],
        ),
        filter("OUTPUT", vec![firewall(), services()]),
        nat("PREROUTING", vec![translate()]),
        nat("OUTPUT", vec![translate()]),
        nat(
            "POSTROUTING",
            vec![all(POSTROUTING, "kubernetes postrouting rules")],
        ),
    ]
}

/// kubelet makes the same hooks; where they stand among the others does not matter.
pub(crate) fn martian_hooks(rules: &NodeRules, family: Family) -> Vec<(&'static str, String)> {
    let needed = family == Family::V4 && rules.route_localnet;
    let chains: &[&'static str] = if needed { &["INPUT", "OUTPUT"] } else { &[] };
    chains
        .iter()
        .map(|chain| (*chain, Rule::to(MARTIANS).text()))
        .collect()
}
