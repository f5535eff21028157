//! The iptables rules of IPVS mode: fixed, but for what the node's settings say. Whatever depends
//! on a Service is in a set.
//!
//! Packets to an address of a Service arrive at the node, since it has the address. They pass the
//! mangle table (sources that are not let in), the nat table (sources that are masqueraded or use
//! the other server), INPUT (ports that no Service has), and are then given to an endpoint; those
//! of the node itself are given to an endpoint right after the nat table.

use super::sets::Set;
use super::shadow;
use crate::iptables::fixed::{
    Features, Hook, dmz_jumps, forward, masq_unless_pod, postrouting, service_cidrs,
};
use crate::iptables::names::{FORWARD, MARK_MASQ, POSTROUTING, SERVICES, Shared, Table, ipvs};
use crate::iptables::rules::{Chain, FROM_NODE, Rule, from_pod, masquerade_unless_pod, reject};
use portico_model::table::{Family, Masquerade, NodeRules};

/// Frontends that no address of the node has but those of our link: their other ports belong to no
/// program.
const ON_THE_LINK: [Set; 6] = [
    Set::ClusterIp,
    Set::ExternalIp,
    Set::ExternalIpLocal,
    Set::LoadBalancer,
    Set::LoadBalancerLocal,
    Set::Plain,
];

pub(super) fn chains(rules: &NodeRules, family: Family, features: Features) -> Vec<Chain> {
    let mark = format!("{:#x}", rules.masquerade_mark);
    let writer = Writer { rules, family };
    let chain = |table, name: &str, rules| Chain {
        table,
        name: name.to_owned(),
        rules,
    };
    let mut chains = vec![
        chain(Table::Mangle, ipvs::SOURCE_RANGES, writer.source_ranges()),
        chain(Table::Mangle, ipvs::OUTSIDE, writer.outside()),
        chain(Table::Mangle, ipvs::FIREWALL, writer.firewall()),
        chain(Table::Mangle, ipvs::DMZ, writer.dmz()),
        chain(Table::Mangle, Shared::Dmz.name(), writer.kept_in_dmz()),
        chain(
            Table::Nat,
            MARK_MASQ,
            vec![format!("-j MARK --set-xmark {mark}/{mark}")],
        ),
        chain(Table::Nat, ipvs::INSIDE, writer.inside()),
        chain(
            Table::Nat,
            ipvs::NODE_PORT,
            writer.treatments(&[Set::NodePort, Set::NodePortLocal]),
        ),
        chain(Table::Nat, SERVICES, writer.services()),
        chain(Table::Nat, POSTROUTING, writer.postrouting(&mark, features)),
        chain(
            Table::Filter,
            FORWARD,
            forward(
                &mark,
                Features {
                    drop_invalid: false,
                    ..features
                },
            ),
        ),
        chain(Table::Filter, ipvs::FILTER, writer.filter()),
        chain(
            Table::Filter,
            ipvs::NODE_PORT,
            vec![writer.health_checks("ACCEPT")],
        ),
        chain(
            Table::Filter,
            Shared::ClusterIps.name(),
            writer.unused_cluster_ips(),
        ),
    ];
    chains.extend(masq_unless_pod(rules, family));
    chains
}

pub(super) fn hooks() -> Vec<Hook> {
    let all = |chain: &str, comment: &str| Rule::to(chain).comment(comment).text();
    let new = |chain: &str, comment: &str| {
        Rule::to(chain)
            .matching("-m conntrack --ctstate NEW")
            .comment(comment)
            .text()
    };
    let firewall = || new(ipvs::FIREWALL, "kube-proxy firewall rules");
    let dmz = || new(ipvs::DMZ, "pods in the DMZ");
    let services = || all(SERVICES, "kubernetes service portals");
    let filter = || new(ipvs::FILTER, "kubernetes ipvs access filter");
    let health = || all(ipvs::NODE_PORT, "kubernetes health check rules");
    let unused = || new(Shared::ClusterIps.name(), "cluster IPs that no Service has");
    let hook = |table, chain, rules| Hook {
        table,
        chain,
        rules,
    };
    vec![
        hook(Table::Mangle, "PREROUTING", vec![firewall(), dmz()]),
        hook(Table::Mangle, "OUTPUT", vec![firewall()]),
        hook(Table::Nat, "PREROUTING", vec![services()]),
        hook(Table::Nat, "OUTPUT", vec![services()]),
        hook(
            Table::Nat,
            "POSTROUTING",
            vec![all(POSTROUTING, "kubernetes postrouting rules")],
        ),
        hook(Table::Filter, "INPUT", vec![filter(), health()]),
        hook(
            Table::Filter,
            "FORWARD",
            vec![all(FORWARD, "kubernetes forwarding rules"), unused()],
        ),
        hook(Table::Filter, "OUTPUT", vec![filter(), unused()]),
    ]
}

struct Writer<'a> {
    rules: &'a NodeRules,
    family: Family,
}

const FRONTEND: &str = "dst,dst";
const TO_OTHERS: &str = "-m addrtype ! --dst-type LOCAL";

impl Writer<'_> {
    fn in_set(&self, set: Set, direction: &str) -> String {
        format!("-m set --match-set {} {direction}", set.name(self.family))
    }

    fn for_set(&self, set: Set, direction: &str, target: &str) -> Rule {
        Rule::to(target).matching(&self.in_set(set, direction))
    }

    /// A rule for each way in which a packet may be one of a pod of this node.
    fn for_pods(&self, target: &str) -> Vec<String> {
        let conditions = from_pod(self.rules.local_pods.get(self.family), self.family);
        conditions
            .into_iter()
            .map(|(source, interface)| {
                Rule {
                    source,
                    interface,
                    ..Rule::to(target)
                }
                .text()
            })
            .collect()
    }

    /// Packets of pods of this node, and the node's own.
    fn for_inside(&self, target: &str) -> Vec<String> {
        let mut rules = self.for_pods(target);
        rules.push(Rule::to(target).matching(FROM_NODE).text());
        rules
    }

    fn firewall(&self) -> Vec<String> {
        vec![
            Rule::to("RETURN").matching(TO_OTHERS).text(),
            self.for_set(Set::Leaving, "dst", "DROP").text(),
            self.for_set(Set::Guarded, FRONTEND, ipvs::SOURCE_RANGES)
                .text(),
            self.for_set(Set::DroppedOutside, FRONTEND, ipvs::OUTSIDE)
                .text(),
        ]
    }

    fn source_ranges(&self) -> Vec<String> {
        let allowed = self.for_set(Set::Sources, "dst,dst,src", "RETURN").text();
        vec![allowed, Rule::to("DROP").text()]
    }

    /// What arrives at a cluster IP.
    fn dmz(&self) -> Vec<String> {
        let dmz = self.rules.dmz.get(self.family);
        if dmz.is_empty() {
            return Vec::new();
        }
        let elsewhere = format!(
            "-m set ! --match-set {} dst",
            Set::ClusterAddresses.name(self.family)
        );
        let mut rules = vec![Rule::to("RETURN").matching(&elsewhere).text()];
        rules.extend(dmz_jumps(dmz));
        rules
    }

    fn kept_in_dmz(&self) -> Vec<String> {
        match self.rules.dmz.get(self.family).is_empty() {
            true => Vec::new(),
            false => self.source_ranges(),
        }
    }

    fn outside(&self) -> Vec<String> {
        let mut rules = self.for_inside("RETURN");
        rules.push(Rule::to("DROP").text());
        rules
    }

    fn services(&self) -> Vec<String> {
        let mut rules = vec![
            Rule::to("RETURN").matching(TO_OTHERS).text(),
            // What the node sends to an address that it has comes from that address, to which no
            // other host could answer.
            self.for_set(Set::Bound, "src", MARK_MASQ).text(),
        ];
        rules.extend(self.treatments(&ON_THE_LINK));
        rules.push(Rule::to(ipvs::NODE_PORT).text());
        rules.push(self.for_set(Set::Inside, FRONTEND, ipvs::INSIDE).text());
        rules
    }

    fn treatments(&self, sets: &[Set]) -> Vec<String> {
        sets.iter()
            .filter_map(|set| self.treatment(*set))
            .map(|rule| rule.text())
            .collect()
    }

    fn treatment(&self, set: Set) -> Option<Rule> {
        let rule = self.for_set(set, FRONTEND, MARK_MASQ);
        let unless_pod =
            |rule| masquerade_unless_pod(self.rules.local_pods.get(self.family), self.family, rule);
        match set.masquerade() {
            Masquerade::Always => Some(rule),
            Masquerade::UnlessPod => unless_pod(rule),
            Masquerade::OnlyNode => unless_pod(rule.matching(FROM_NODE)),
            Masquerade::Never => None,
        }
    }

    fn inside(&self) -> Vec<String> {
        self.for_inside(&format!("NETMAP --to {}", shadow::network(self.family)))
    }

    fn postrouting(&self, mark: &str, features: Features) -> Vec<String> {
        let mut rules = vec![
            self.for_set(Set::LoopBack, "dst,dst,src", "MASQUERADE")
                .text(),
        ];
        rules.extend(postrouting(mark, features));
        rules
    }

    /// Refuses what arrives at an address of our link for a port that no Service has, except health
    /// checks of the node's own.
    fn filter(&self) -> Vec<String> {
        let elsewhere = format!("-m set ! --match-set {} dst", Set::Bound.name(self.family));
        let mut rules = vec![Rule::to("RETURN").matching(&elsewhere).text()];
        rules.extend(
            ON_THE_LINK
                .iter()
                .map(|set| self.for_set(*set, FRONTEND, "RETURN").text()),
        );
        // A load balancer may send them to its own address.
        rules.push(self.health_checks("RETURN"));
        let sent_on = Rule {
            destination: format!("-d {}", shadow::network(self.family)),
            ..Rule::to("RETURN")
        };
        rules.push(sent_on.matching("-m conntrack --ctstate DNAT").text());
        rules.push(Rule::to(reject(self.family)).text());
        rules
    }

    /// Health checks of load balancers are let in, whatever else the node lets in.
    fn health_checks(&self, target: &str) -> String {
        Rule {
            protocol: "-p tcp".to_owned(),
            ..self.for_set(Set::HealthCheck, "dst", target)
        }
        .text()
    }

    fn unused_cluster_ips(&self) -> Vec<String> {
        let drop = |destination| {
            Rule {
                destination,
                ..Rule::to("DROP")
            }
            .text()
        };
        service_cidrs(self.rules, self.family).map(drop).collect()
    }
}

#[cfg(test)]
mod tests;
