//! The chains: few, and the same for any number of Services.

use super::edge;
use super::element::Set;
use super::expr::Expressions;
use super::number::{CLASS_MASK, PAIR_MASK, POOL_MASK, TREATMENT_MASK, Treatment};
use super::sets::Table;
use crate::early_packets::Queue;
use ipnet::IpNet;
use portico_model::hash;
use portico_model::table::{DmzPods, Family, LocalPods, NodePortAddresses, NodeRules};
use std::sync::Arc;

/// So many packets a second may wait for their Service.
const EARLY: u32 = 100;

/// Where a base chain hooks into the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Base {
    pub kind: &'static str,
    pub hook: u32,
    pub priority: i32,
}

/// A rule as it is sent, and a fingerprint that is stored with it, by which it is known again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    pub expressions: Vec<u8>,
    pub fingerprint: u64,
    pub comment: Option<&'static str>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chain {
    pub name: Arc<str>,
    pub base: Option<Base>,
    pub rules: Vec<Rule>,
}

/// Pools that are chosen from in the same way: as many endpoints, the same affinity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Class {
    pub endpoints: u32,
    pub affinity: Option<Affinity>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Affinity {
    pub seconds: u32,
    /// For the pool of this node, which is the odd one of the two.
    pub local: bool,
}

impl Class {
    pub fn chain_name(&self) -> String {
        match self.affinity {
            None => format!("pick-{}", self.endpoints),
            Some(Affinity {
                seconds,
                local: false,
            }) => format!("pick-{}-sticky-{seconds}", self.endpoints),
            Some(Affinity {
                seconds,
                local: true,
            }) => format!("pick-{}-sticky-{seconds}-local", self.endpoints),
        }
    }

    /// The class of a chain by its name; `None` for other chains.
    pub fn from_chain_name(name: &str) -> Option<Self> {
        let rest = name.strip_prefix("pick-")?;
        let class = match rest.split_once("-sticky-") {
            None => Self {
                endpoints: rest.parse().ok()?,
                affinity: None,
            },
            Some((endpoints, seconds)) => {
                let (seconds, local) = match seconds.strip_suffix("-local") {
                    Some(seconds) => (seconds, true),
                    None => (seconds, false),
                };
                let affinity = Affinity {
                    seconds: seconds.parse().ok()?,
                    local,
                };
                Self {
                    endpoints: endpoints.parse().ok()?,
                    affinity: Some(affinity),
                }
            }
        };
        (class.endpoints > 0 && class.chain_name() == name).then_some(class)
    }

    pub fn chain(&self, family: Family) -> Chain {
        let rules = match self.affinity {
            None => pick(family, self.endpoints),
            Some(affinity) => pick_sticky(family, self.endpoints, affinity),
        };
        chain(&self.chain_name(), None, rules)
    }
}

/// All chains but those of classes, base chains first.
pub(super) fn fixed_chains(family: Family, rules: &NodeRules, table: Table) -> Vec<Chain> {
    let node = Node {
        family,
        rules,
        early_packets: table.early_packets,
    };
    let mut chains = vec![
        node.base(
            "firewall-prerouting",
            "filter",
            0,
            -110,
            &[("firewall", true), ("dmz", true)],
        ),
        node.base("firewall-output", "filter", 3, -110, &[("firewall", true)]),
        node.base(
            "filter-input",
            "filter",
            1,
            0,
            &[
                ("node-ports-without-endpoints", true),
                ("without-endpoints", true),
            ],
        ),
        node.base(
            "filter-forward",
            "filter",
            2,
            0,
            &[("without-endpoints", true), ("cluster-ips-rest", true)],
        ),
        node.base(
            "filter-output",
            "filter",
            3,
            0,
            &[("without-endpoints", true), ("cluster-ips-rest", true)],
        ),
        node.base(
            "nat-prerouting",
            "nat",
            0,
            table.priority,
            &[("services", false)],
        ),
        node.base(
            "nat-output",
            "nat",
            3,
            table.priority,
            &[("services", false)],
        ),
        node.base("nat-postrouting", "nat", 4, 100, &[("masquerading", false)]),
    ];
    if *rules.edge.get(family) {
        node.add_edge(&mut chains);
    }
    chains.extend([
        chain("firewall", None, vec![node.firewall()]),
        chain("dmz", None, node.dmz().into_iter().collect()),
        chain(
            "node-ports-without-endpoints",
            None,
            node.node_ports_without_endpoints(),
        ),
        chain("without-endpoints", None, node.without_endpoints()),
        chain("cluster-ips-rest", None, node.cluster_ips_rest()),
        chain("services", None, node.services()),
        chain("treat", None, node.treat()),
        chain(Treatment::Internal.chain(), None, node.internal()),
        chain(Treatment::External.chain(), None, node.external()),
        chain(
            Treatment::ExternalLocal.chain(),
            None,
            node.external_local(),
        ),
        chain(Treatment::Plain.chain(), None, node.plain()),
        chain("masquerading", None, node.masquerading()),
    ]);
    chains
}

struct Node<'a> {
    family: Family,
    rules: &'a NodeRules,
    early_packets: Option<Queue>,
}

impl Node<'_> {
    fn start(&self) -> Expressions {
        Expressions::new(self.family)
    }

    fn base(
        &self,
        name: &str,
        kind: &'static str,
        hook: u32,
        priority: i32,
        jumps: &[(&str, bool)],
    ) -> Chain {
        let jump = |(to, only_new): &(&str, bool)| match only_new {
            true => rule(self.start().when_new().jump(to)),
            false => rule(self.start().jump(to)),
        };
        chain(
            name,
            Some(Base {
                kind,
                hook,
                priority,
            }),
            jumps.iter().map(jump).collect(),
        )
    }

    /// After the source ranges of load balancers have been looked at. Packets of pods of this node
    /// go where the table says, since their answers have to come back through it.
    fn add_edge(&self, chains: &mut Vec<Chain>) {
        let unless_pod = || self.unless_pod();
        for chain in chains.iter_mut() {
            match &*chain.name {
                "firewall-prerouting" => {
                    chain.rules.extend(edge::entrance(self.family, unless_pod))
                }
                "nat-prerouting" => drop(chain.rules.splice(0..0, edge::own_slots(self.family))),
                _ => {}
            }
        }
        chains.extend(edge::chains(self.family));
    }

    fn firewall(&self) -> Rule {
        rule(
            self.start()
                .service_in(Set::Guarded)
                .service_and_source_not_in(Set::AllowedSources)
                .drop(),
        )
        .because("source ranges, or pods of one namespace")
    }

    /// Pods in the DMZ reach the cluster IPs that let them in.
    fn dmz(&self) -> Option<Rule> {
        let dmz = self.rules.dmz.get(self.family);
        let listed = matches!(dmz, DmzPods::Listed(_));
        let rule = rule(
            self.start()
                .source_in(Set::DmzPods, listed)
                .destination_in(Set::ClusterIps)
                .service_and_source_not_in(Set::AllowedSources)
                .drop(),
        );
        (!dmz.is_empty()).then(|| rule.because("pods in the DMZ"))
    }

    fn node_ports_without_endpoints(&self) -> Vec<Rule> {
        vec![
            rule(self.to_node_port().port_in(Set::RefusedPorts).reject()),
            rule(self.to_node_port().port_in(Set::DroppedPorts).drop()),
        ]
    }

    fn without_endpoints(&self) -> Vec<Rule> {
        vec![
            rule(self.start().service_in(Set::Refused).reject()),
            rule(self.start().service_in(Set::Dropped).drop()),
        ]
    }

    fn cluster_ips_rest(&self) -> Vec<Rule> {
        let undefined = rule(self.start().destination_in(Set::ClusterIps).reject());
        let drop = |network: &IpNet| rule(self.start().destination_network(network, true).drop());
        let unallocated = self
            .networks(&self.rules.service_cidrs)
            .map(|network| drop(network).because("no such Service"));
        [undefined.because("no such port")]
            .into_iter()
            .chain(unallocated)
            .collect()
    }

    fn services(&self) -> Vec<Rule> {
        let served = [
            rule(self.start().number_of_service(Set::Frontends).goto("treat")),
            rule(
                self.to_node_port()
                    .number_of_port(Set::NodePorts)
                    .goto("treat"),
            ),
        ];
        served.into_iter().chain(self.too_early()).collect()
    }

    /// The rules for packets to addresses that a Service may have and none has. Only TCP takes a
    /// second to try again, and others are told at once of what the node itself cannot send. A
    /// limit keeps a scan of all addresses from filling the queue.
    fn too_early(&self) -> Vec<Rule> {
        let Some(queue) = self.early_packets else {
            return Vec::new();
        };
        let wait = |network: &IpNet| {
            let unserved = self
                .start()
                .destination_network(network, true)
                .destination_not_in(Set::ClusterIps);
            rule(unserved.tcp().at_most(EARLY).queue(queue)).because("waits for its Service")
        };
        self.networks(&self.rules.service_cidrs).map(wait).collect()
    }

    /// The packet is for an address that has node ports.
    fn to_node_port(&self) -> Expressions {
        match self.rules.node_ports.get(self.family) {
            NodePortAddresses::Listed(_) => self.start().destination_in(Set::NodePortAddresses),
            NodePortAddresses::AllLocal { loopback: true } => self.start().destination_is_local(),
            NodePortAddresses::AllLocal { loopback: false } => self
                .start()
                .destination_is_local()
                .destination_network(&loopback(self.family), false),
        }
    }

    fn treat(&self) -> Vec<Rule> {
        let rule_for = |treatment: Treatment| {
            rule(
                self.start()
                    .number_is(TREATMENT_MASK, treatment.bits())
                    .goto(treatment.chain()),
            )
        };
        Treatment::ALL.into_iter().map(rule_for).collect()
    }

    /// The last rules of each treatment: choose, or (which does not happen) let go.
    fn choose(&self) -> [Rule; 2] {
        [rule(self.by_class(self.start())), self.let_go()]
    }

    fn by_class(&self, start: Expressions) -> Expressions {
        start.number_verdict(CLASS_MASK, Set::Classes)
    }

    fn let_go(&self) -> Rule {
        rule(self.start().forget_number())
    }

    fn mark(&self, start: Expressions) -> Rule {
        rule(start.set_mark(self.rules.masquerade_mark)).because("masquerade")
    }

    fn internal(&self) -> Vec<Rule> {
        [self.mark(self.unless_pod())]
            .into_iter()
            .chain(self.choose())
            .collect()
    }

    fn external(&self) -> Vec<Rule> {
        [self.mark(self.start())]
            .into_iter()
            .chain(self.choose())
            .collect()
    }

    fn external_local(&self) -> Vec<Rule> {
        let mut rules: Vec<Rule> = self
            .if_pod()
            .into_iter()
            .map(|pod| rule(self.by_class(pod)))
            .collect();
        rules.extend([
            self.mark(self.start().source_is_local()),
            rule(self.by_class(self.start().source_is_local())),
            rule(self.by_class(self.start().translate_number(POOL_MASK, Set::LocalPools))),
            self.let_go(),
        ]);
        rules
    }

    fn plain(&self) -> Vec<Rule> {
        // The number of a member looks like one with this treatment.
        [rule(self.start().change_number(!TREATMENT_MASK, 0))]
            .into_iter()
            .chain(self.choose())
            .collect()
    }

    fn masquerading(&self) -> Vec<Rule> {
        vec![
            rule(
                self.start()
                    .take_mark(self.rules.masquerade_mark)
                    .masquerade(),
            ),
            rule(
                self.start()
                    .when_translated()
                    .both_addresses_in(Set::Hairpin)
                    .masquerade(),
            )
            .because("hairpin"),
        ]
    }

    /// The beginnings of rules that match pods of this node, one for each way to recognize them.
    fn if_pod(&self) -> Vec<Expressions> {
        match self.rules.local_pods.get(self.family) {
            LocalPods::Unknown => Vec::new(),
            LocalPods::Sources(networks) => self
                .networks(networks)
                .map(|network| self.start().source_network(network, true))
                .collect(),
            LocalPods::Interface(name) => vec![self.start().input_interface(name, false, true)],
            LocalPods::InterfacePrefix(name) => {
                vec![self.start().input_interface(name, true, true)]
            }
        }
    }

    fn unless_pod(&self) -> Expressions {
        match self.rules.local_pods.get(self.family) {
            LocalPods::Unknown => self.start(),
            LocalPods::Sources(networks) => self
                .networks(networks)
                .fold(self.start(), |start, network| {
                    start.source_network(network, false)
                }),
            LocalPods::Interface(name) => self.start().input_interface(name, false, false),
            LocalPods::InterfacePrefix(name) => self.start().input_interface(name, true, false),
        }
    }

    fn networks<'n>(&self, all: &'n [IpNet]) -> impl Iterator<Item = &'n IpNet> + use<'n> {
        let family = self.family;
        all.iter()
            .filter(move |network| Family::of(network.addr()) == family)
    }
}

/// A random slot. A packet that was numbered just before the pool shrank may ask for a slot that is
/// gone: it gets the first.
fn pick(family: Family, endpoints: u32) -> Vec<Rule> {
    let of =
        |count| rule(Expressions::new(family).translate_to_slot(POOL_MASK, count, Set::Endpoints));
    let mut rules = vec![
        of(endpoints),
        of(1),
        rule(Expressions::new(family).forget_number()),
    ];
    if endpoints == 1 {
        rules.remove(0);
    }
    rules
}

/// The member that the client had if it still is one, else a new one.
fn pick_sticky(family: Family, endpoints: u32, affinity: Affinity) -> Vec<Rule> {
    let start = || Expressions::new(family);
    let remembered =
        || rule(start().remember_client(PAIR_MASK, Set::Affinity, affinity.seconds, Set::Sticky));
    let choose_of = |count| rule(start().choose_member(POOL_MASK, count, Set::Slots));
    vec![
        rule(start().member_of_client(PAIR_MASK, Set::Affinity)),
        rule(start().change_number(!1, affinity.local.into())).because("the member of this pool"),
        remembered(),
        rule(
            start()
                .number_is(TREATMENT_MASK, Treatment::Plain.bits())
                .forget_client(PAIR_MASK, Set::Affinity),
        )
        .because("it is no longer one"),
        choose_of(1),
        choose_of(endpoints),
        remembered(),
        rule(start().translate_to_member(Set::Sticky)).because("no room to remember more clients"),
        rule(start().forget_number()),
    ]
}

fn loopback(family: Family) -> IpNet {
    use std::net::{Ipv4Addr, Ipv6Addr};
    match family {
        Family::V4 => IpNet::new_assert(Ipv4Addr::new(127, 0, 0, 0).into(), 8),
        Family::V6 => IpNet::new_assert(Ipv6Addr::LOCALHOST.into(), 128),
    }
}

pub(super) fn chain(name: &str, base: Option<Base>, rules: Vec<Rule>) -> Chain {
    Chain {
        name: Arc::from(name),
        base,
        rules,
    }
}

pub(super) fn rule(expressions: Expressions) -> Rule {
    let expressions = expressions.bytes().to_vec();
    Rule {
        fingerprint: hash::stable(&expressions),
        expressions,
        comment: None,
    }
}

impl Rule {
    pub fn because(mut self, comment: &'static str) -> Self {
        self.comment = Some(comment);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_known_by_the_names_of_their_chains() {
        for affinity in [None, Some((3600, false)), Some((1, true))] {
            let affinity = affinity.map(|(seconds, local)| Affinity { seconds, local });
            let class = Class {
                endpoints: 12,
                affinity,
            };
            assert_eq!(Class::from_chain_name(&class.chain_name()), Some(class));
        }
        for name in [
            "pick-",
            "pick-0",
            "pick-01",
            "pick-+1",
            "pick-3-sticky-",
            "pick-3-sticky-x-local",
            "services",
        ] {
            assert_eq!(Class::from_chain_name(name), None, "{name}");
        }
    }

    #[test]
    fn rules_differ_by_fingerprint_where_settings_differ() {
        let prints = |rules: &NodeRules| -> Vec<u64> {
            fixed_chains(Family::V4, rules, Table::NODE)
                .iter()
                .flat_map(|c| c.rules.iter().map(|r| r.fingerprint))
                .collect()
        };
        let one = NodeRules {
            masquerade_mark: 0x4000,
            ..NodeRules::default()
        };
        let other = NodeRules {
            masquerade_mark: 0x8000,
            ..NodeRules::default()
        };
        assert_eq!(prints(&one), prints(&one.clone()));
        assert_ne!(prints(&one), prints(&other));
    }
}
