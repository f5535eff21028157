//! One service port → its chains and its rules in the chains that all share, as `iptables-save`
//! would print them.
//!
//! The contents are kube-proxy's. Where its nftables mode does more, so does this:
//! [`Shared::ClusterIps`], [`Shared::RefusedNodePorts`], [`Shared::Refused`] for all sources, and a
//! firewall chain in the filter table, which drops denied sources before "no endpoints" is
//! answered.

use super::names::{
    MARK_MASQ, MASQ_UNLESS_POD, PortChain, Shared, Table, endpoint_chain, port_chain, socket,
};
use ipnet::IpNet;
use portico_model::table::{
    DmzPods, Endpoint, Family, Frontend, FrontendKind, LocalPods, Masquerade, NodeRules, Outcome,
    PortKey, ServicePort,
};
use std::net::IpAddr;

/// A chain with its rules, without the `-A NAME` before each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Chain {
    pub table: Table,
    pub name: String,
    pub rules: Vec<String>,
}

impl Chain {
    pub(crate) fn id(&self) -> (Table, &str) {
        (self.table, &self.name)
    }
}

/// What one service port needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PortRules {
    pub chains: Vec<Chain>,
    /// Its rules in shared chains; no two are equal, and those of another port are never equal to
    /// them.
    pub shared: Vec<(Shared, String)>,
}

pub(crate) fn port_rules(key: &PortKey, port: &ServicePort, rules: &NodeRules) -> PortRules {
    PortRules {
        chains: Writer::new(key, port, rules).chains(),
        shared: shared_rules(key, port, rules),
    }
}

/// The rules of a port in shared chains.
pub(crate) fn shared_rules(
    key: &PortKey,
    port: &ServicePort,
    rules: &NodeRules,
) -> Vec<(Shared, String)> {
    let writer = Writer::new(key, port, rules);
    let mut shared: Vec<_> = port
        .health_check
        .into_iter()
        .map(|port| writer.health_check(port))
        .collect();
    for rule in port
        .frontends
        .iter()
        .flat_map(|frontend| writer.shared_rules(frontend))
    {
        if !shared.contains(&rule) {
            shared.push(rule);
        }
    }
    shared
}

/// The parts of a rule, in the order in which `iptables-save` prints them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rule {
    pub source: String,
    pub destination: String,
    pub interface: String,
    pub protocol: String,
    pub matches: String,
    pub target: String,
}

impl Rule {
    pub(crate) fn to(target: &str) -> Self {
        Self {
            target: format!("-j {target}"),
            ..Self::default()
        }
    }

    pub(crate) fn comment(self, comment: &str) -> Self {
        self.matching(&format!("-m comment --comment \"{comment}\""))
    }

    pub(crate) fn matching(mut self, matches: &str) -> Self {
        if !self.matches.is_empty() {
            self.matches.push(' ');
        }
        self.matches.push_str(matches);
        self
    }

    pub(crate) fn text(&self) -> String {
        let parts = [
            &self.source,
            &self.destination,
            &self.interface,
            &self.protocol,
            &self.matches,
            &self.target,
        ]
        .map(String::as_str);
        parts
            .into_iter()
            .filter(|part| !part.is_empty())
            .collect::<Vec<_>>()
            .join(" ")
    }
}

/// Rules' conditions under which a packet comes from a pod of this node: one of these (source,
/// interface).
pub(crate) fn from_pod(pods: &LocalPods, family: Family) -> Vec<(String, String)> {
    match pods {
        LocalPods::Unknown => Vec::new(),
        LocalPods::Sources(networks) => {
            let networks = networks
                .iter()
                .filter(|network| family_of(network) == family);
            networks
                .map(|network| (source(network), String::new()))
                .collect()
        }
        LocalPods::Interface(name) => vec![(
            String::new(),
            format!("-i {}", portico_model::table::label(name)),
        )],
        LocalPods::InterfacePrefix(prefix) => {
            vec![(
                String::new(),
                format!("-i {}+", portico_model::table::label(prefix)),
            )]
        }
    }
}

/// A rule that asks for masquerading of all sources but pods of this node, if there may be any
/// else.
pub(crate) fn masquerade_unless_pod(
    pods: &LocalPods,
    family: Family,
    mut rule: Rule,
) -> Option<Rule> {
    let conditions = from_pod(pods, family);
    if conditions
        .iter()
        .any(|(source, interface)| source.is_empty() && interface.is_empty())
    {
        return None;
    }
    match conditions.as_slice() {
        [] => {}
        [(source, interface)] => {
            rule.source = negated(source);
            rule.interface = negated(interface);
        }
        _ => rule.target = format!("-j {MASQ_UNLESS_POD}"),
    }
    Some(rule)
}

fn negated(condition: &str) -> String {
    if condition.is_empty() {
        String::new()
    } else {
        format!("! {condition}")
    }
}

struct Writer<'a> {
    key: &'a PortKey,
    port: &'a ServicePort,
    pods: &'a LocalPods,
    dmz: &'a DmzPods,
    /// Of the port, as comments have it.
    name: String,
}

impl<'a> Writer<'a> {
    fn new(key: &'a PortKey, port: &'a ServicePort, rules: &'a NodeRules) -> Self {
        Writer {
            key,
            port,
            pods: rules.local_pods.get(key.family),
            dmz: rules.dmz.get(key.family),
            name: key.label(),
        }
    }

    fn chain(&self, chain: PortChain) -> String {
        port_chain(self.key, chain)
    }

    /// The chain that an outcome leads to.
    fn pool(&self, outcome: Outcome) -> Option<String> {
        match outcome {
            Outcome::Cluster => Some(self.chain(PortChain::Cluster)),
            Outcome::Local => Some(self.chain(PortChain::Local)),
            Outcome::Reject | Outcome::Drop => None,
        }
    }

    fn shared_rules(&self, frontend: &Frontend) -> Vec<(Shared, String)> {
        let mut rules = Vec::new();
        let firewalled = frontend.sources.is_some();
        if translates(frontend) {
            let (shared, rule) = match frontend.kind {
                FrontendKind::ClusterIp if firewalled => {
                    (Shared::Services, Some(self.chain(PortChain::Firewall)))
                }
                FrontendKind::ClusterIp => (Shared::Services, self.pool(frontend.outside)),
                // One with an address is found by it, as the other addresses of Services are.
                FrontendKind::NodePort if frontend.address.is_none() => {
                    (Shared::NodePorts, Some(self.chain(PortChain::External)))
                }
                _ if firewalled => (Shared::Services, Some(self.chain(PortChain::Firewall))),
                _ => (Shared::Services, Some(self.chain(PortChain::External))),
            };
            rules.extend(rule.map(|target| {
                (
                    shared,
                    self.rule_for(frontend, &self.about(frontend), &target)
                        .text(),
                )
            }));
        }
        rules.extend(
            self.firewall_rule(frontend)
                .map(|rule| (Shared::Firewall, rule)),
        );
        if let Some((verdict, why)) = refusal(frontend, self.key.family) {
            let shared = match frontend.address {
                None => Shared::RefusedNodePorts,
                Some(_) => Shared::Refused,
            };
            rules.push((
                shared,
                self.rule_for(frontend, &format!("{} {why}", self.name), verdict)
                    .text(),
            ));
        }
        if frontend.kind == FrontendKind::ClusterIp {
            rules.extend(
                frontend
                    .address
                    .map(|address| (Shared::ClusterIps, self.undefined_ports(address))),
            );
            rules.extend(
                frontend
                    .address
                    .filter(|_| !self.dmz.is_empty())
                    .into_iter()
                    .flat_map(|address| self.dmz_rules(frontend, address)),
            );
        }
        rules
    }

    /// Packets that were let in have another destination by now, unless there are no endpoints:
    /// then sources have to be looked at once more.
    fn firewall_rule(&self, frontend: &Frontend) -> Option<String> {
        frontend.sources.as_ref()?;
        let chain = self.chain(PortChain::Firewall);
        let comment = format!("{} traffic not accepted by {chain}", self.name);
        let target = if rejects(frontend) {
            chain.as_str()
        } else {
            "DROP"
        };
        Some(self.rule_for(frontend, &comment, target).text())
    }

    fn health_check(&self, port: u16) -> (Shared, String) {
        let rule = Rule {
            protocol: "-p tcp".to_owned(),
            ..Rule::to("ACCEPT")
        };
        let rule = rule.comment(&format!("{} health check node port", self.name));
        (
            Shared::HealthChecks,
            rule.matching(&format!("-m tcp --dport {port}")).text(),
        )
    }

    fn undefined_ports(&self, address: IpAddr) -> String {
        let rule = Rule {
            destination: destination(address),
            ..Rule::to(reject(self.key.family))
        };
        rule.comment(&format!("{} cluster IP", self.name)).text()
    }

    /// The packet may have been translated already: what counts is where it was sent to.
    fn dmz_rules(&self, frontend: &Frontend, address: IpAddr) -> Vec<(Shared, String)> {
        let sent_to = format!("-m conntrack --ctorigdst {address}");
        let open = |pod: &IpAddr| {
            let rule = Rule {
                source: source(&host(*pod)),
                protocol: format!("-p {}", self.key.protocol.lower()),
                ..Rule::to("RETURN")
            };
            let rule = rule.comment(&self.about(frontend));
            let sent_to = format!("{sent_to} --ctorigdstport {}", frontend.port);
            (Shared::Dmz, rule.matching(&sent_to).text())
        };
        let closed = Rule::to("DROP").comment(&self.about(frontend));
        let closed = (Shared::ClosedToDmz, closed.matching(&sent_to).text());
        self.port.dmz.iter().map(open).chain([closed]).collect()
    }

    fn about(&self, frontend: &Frontend) -> String {
        let what = match frontend.kind {
            FrontendKind::ClusterIp => " cluster IP",
            FrontendKind::ExternalIp => " external IP",
            FrontendKind::LoadBalancerIp => " loadbalancer IP",
            FrontendKind::NodePort => "",
        };
        format!("{}{what}", self.name)
    }

    /// A rule for packets to the frontend.
    fn rule_for(&self, frontend: &Frontend, comment: &str, target: &str) -> Rule {
        let protocol = self.key.protocol.lower();
        let rule = Rule {
            destination: frontend.address.map(destination).unwrap_or_default(),
            protocol: format!("-p {protocol}"),
            ..Rule::to(target)
        };
        rule.comment(comment)
            .matching(&format!("-m {protocol} --dport {}", frontend.port))
    }

    fn chains(&self) -> Vec<Chain> {
        let mut chains = Vec::new();
        let is_external = |frontend: &&Frontend| frontend.kind != FrontendKind::ClusterIp;
        let external = self
            .port
            .frontends
            .iter()
            .filter(is_external)
            .find(|frontend| translates(frontend));
        chains.extend(external.map(|frontend| self.external_chain(frontend)));
        let guarded = self
            .port
            .frontends
            .iter()
            .find(|frontend| frontend.sources.is_some());
        chains.extend(guarded.and_then(|frontend| self.firewall_chain(frontend)));
        for (outcome, endpoints) in [
            (Outcome::Cluster, &self.port.cluster),
            (Outcome::Local, &self.port.local),
        ] {
            let used =
                |frontend: &Frontend| frontend.inside == outcome || frontend.outside == outcome;
            if self.port.frontends.iter().any(used) {
                chains.extend(
                    self.pool(outcome)
                        .map(|name| self.pool_chain(name, outcome, endpoints)),
                );
            }
        }
        let mut endpoints: Vec<&Endpoint> = self
            .port
            .cluster
            .iter()
            .chain(self.port.local.iter())
            .collect();
        endpoints.sort_unstable();
        endpoints.dedup_by_key(|endpoint| socket(endpoint));
        chains.extend(
            endpoints
                .into_iter()
                .map(|endpoint| self.endpoint_chain(endpoint)),
        );
        chains
    }

    /// The chain of a frontend whose outcome depends on the source: pods of this node first, then
    /// the node itself, then all others.
    fn external_chain(&self, frontend: &Frontend) -> Chain {
        let (inside, outside) = (self.pool(frontend.inside), self.pool(frontend.outside));
        let external = format!("{} external destinations", self.name);
        let mut rules = Vec::new();
        if frontend.masquerade != Masquerade::OnlyNode {
            rules.extend(self.masquerade(
                frontend.masquerade,
                Rule::default().comment(&format!("masquerade traffic for {external}")),
            ));
        }
        let shortcut = inside.filter(|_| frontend.inside != frontend.outside);
        if let Some(inside) = &shortcut {
            for (source, interface) in from_pod(self.pods, self.key.family) {
                let rule = Rule {
                    source,
                    interface,
                    ..Rule::to(inside)
                };
                rules.push(rule.comment(&format!("pod traffic for {external}")));
            }
        }
        if frontend.masquerade == Masquerade::OnlyNode {
            let rule = Rule::default().comment(&format!("masquerade LOCAL traffic for {external}"));
            rules.extend(self.masquerade(frontend.masquerade, rule));
        }
        if let Some(inside) = &shortcut {
            let rule = Rule::to(inside).comment(&format!("route LOCAL traffic for {external}"));
            rules.push(rule.matching(FROM_NODE));
        }
        rules.extend(outside.map(|outside| Rule::to(&outside)));
        self.nat_chain(self.chain(PortChain::External), rules)
    }

    fn firewall_chain(&self, frontend: &Frontend) -> Option<Chain> {
        let sources = frontend.sources.as_ref()?;
        let name = self.chain(PortChain::Firewall);
        let let_in = |target: &str| -> Vec<Rule> {
            let sources = sources
                .iter()
                .filter(|network| family_of(network) == self.key.family);
            let rule = |network| Rule {
                source: source(network),
                ..Rule::to(target)
            };
            sources
                .map(|network| rule(network).comment(&self.about(frontend)))
                .collect()
        };
        if translates(frontend) {
            let chosen = match frontend.kind {
                FrontendKind::ClusterIp => self.pool(frontend.outside)?,
                _ => self.chain(PortChain::External),
            };
            return Some(self.nat_chain(name, let_in(&chosen)));
        }
        let mut rules = let_in("RETURN");
        rules.push(Rule::to("DROP"));
        let rules = rules.iter().map(Rule::text).collect();
        rejects(frontend).then_some(Chain {
            table: Table::Filter,
            name,
            rules,
        })
    }

    /// Chooses an endpoint: the one that the client had before, or any, each as likely as the
    /// others.
    fn pool_chain(&self, name: String, outcome: Outcome, endpoints: &[Endpoint]) -> Chain {
        let cluster_ips = self
            .port
            .frontends
            .iter()
            .filter(|frontend| frontend.kind == FrontendKind::ClusterIp);
        let mut rules: Vec<Rule> = cluster_ips
            .filter(|frontend| frontend.outside == outcome)
            .filter_map(|frontend| {
                self.masquerade(
                    frontend.masquerade,
                    self.rule_for(frontend, &self.about(frontend), ""),
                )
            })
            .collect();
        let comment = |endpoint: &Endpoint| format!("{} -> {}", self.name, socket(endpoint));
        for (endpoint, seconds) in endpoints
            .iter()
            .filter_map(|endpoint| Some((endpoint, self.port.affinity?)))
        {
            let chain = endpoint_chain(self.key, endpoint);
            let seen = format!(
                "-m recent --rcheck --seconds {seconds} --reap --name {chain} {}",
                self.client_mask()
            );
            rules.push(Rule::to(&chain).comment(&comment(endpoint)).matching(&seen));
        }
        for (index, endpoint) in endpoints.iter().enumerate() {
            let rule = Rule::to(&endpoint_chain(self.key, endpoint)).comment(&comment(endpoint));
            rules.push(match endpoints.len() - index {
                1 => rule,
                left => rule.matching(&format!(
                    "-m statistic --mode random --probability {}",
                    probability(left)
                )),
            });
        }
        self.nat_chain(name, rules)
    }

    /// No comments here: these are most of all rules.
    fn endpoint_chain(&self, endpoint: &Endpoint) -> Chain {
        let name = endpoint_chain(self.key, endpoint);
        let hairpin = Rule {
            source: format!("-s {}", host(endpoint.address)),
            ..Rule::to(MARK_MASQ)
        };
        let protocol = self.key.protocol.lower();
        let mut translate = Rule {
            protocol: format!("-p {protocol}"),
            ..Rule::to(&format!("DNAT --to-destination {}", socket(endpoint)))
        };
        if self.port.affinity.is_some() {
            translate = translate.matching(&format!(
                "-m recent --set --name {name} {}",
                self.client_mask()
            ));
        }
        let translate = translate.matching(&format!("-m {protocol}"));
        self.nat_chain(name, vec![hairpin, translate])
    }

    fn nat_chain(&self, name: String, rules: Vec<Rule>) -> Chain {
        Chain {
            table: Table::Nat,
            name,
            rules: rules.iter().map(Rule::text).collect(),
        }
    }

    fn client_mask(&self) -> &'static str {
        match self.key.family {
            Family::V4 => "--mask 255.255.255.255 --rsource",
            Family::V6 => "--mask ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff --rsource",
        }
    }

    /// The rule with the match for the sources that are to be masqueraded.
    fn masquerade(&self, whom: Masquerade, rule: Rule) -> Option<Rule> {
        let rule = Rule {
            target: format!("-j {MARK_MASQ}"),
            ..rule
        };
        match whom {
            Masquerade::Always => Some(rule),
            Masquerade::UnlessPod => masquerade_unless_pod(self.pods, self.key.family, rule),
            Masquerade::OnlyNode => Some(rule.matching(FROM_NODE)),
            Masquerade::Never => None,
        }
    }
}

pub(crate) const FROM_NODE: &str = "-m addrtype --src-type LOCAL";

/// Whether packets of any source are given to an endpoint.
fn translates(frontend: &Frontend) -> bool {
    [frontend.inside, frontend.outside]
        .iter()
        .any(|outcome| matches!(outcome, Outcome::Cluster | Outcome::Local))
}

fn rejects(frontend: &Frontend) -> bool {
    [frontend.inside, frontend.outside].contains(&Outcome::Reject)
}

/// What happens to packets that no endpoint gets, and why.
fn refusal(frontend: &Frontend, family: Family) -> Option<(&'static str, &'static str)> {
    [frontend.outside, frontend.inside]
        .into_iter()
        .find_map(|outcome| match outcome {
            Outcome::Reject => Some((reject(family), "has no endpoints")),
            Outcome::Drop => Some(("DROP", "has no local endpoints")),
            Outcome::Cluster | Outcome::Local => None,
        })
}

pub(crate) fn reject(family: Family) -> &'static str {
    match family {
        Family::V4 => "REJECT --reject-with icmp-port-unreachable",
        Family::V6 => "REJECT --reject-with icmp6-port-unreachable",
    }
}

pub(super) fn destination(address: IpAddr) -> String {
    format!("-d {}", host(address))
}

fn host(address: IpAddr) -> IpNet {
    IpNet::from(address)
}

/// A network with all addresses in it is no condition.
pub(super) fn source(network: &IpNet) -> String {
    if network.prefix_len() == 0 {
        String::new()
    } else {
        format!("-s {}", network.trunc())
    }
}

pub(crate) fn family_of(network: &IpNet) -> Family {
    Family::of(network.addr())
}

/// The probability of one in `left`, as it is printed after the kernel rounded what kube-proxy
/// writes (ten digits).
pub fn probability(left: usize) -> String {
    const ONE: f64 = 2_147_483_648.0;
    let written = (1e10 / left as f64).round() / 1e10;
    format!("{:.11}", (written * ONE).round() / ONE)
}

#[cfg(test)]
mod tests;
