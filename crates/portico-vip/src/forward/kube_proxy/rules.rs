//! The rules beside kube-proxy's, and what has to be done for the nat table to have them. Pure.

use crate::forward::route::Route;
use ipnet::IpNet;
use portico_dataplane::iptables::{
    MARK_MASQ, PortChain, endpoint_chain, meaning, port_chain, probability, target,
};
use portico_model::key::ObjectKey;
use portico_model::table::{Endpoint, Family, PortKey, Protocol};
use std::collections::BTreeSet;
use std::fmt::Write;
use std::net::SocketAddr;

/// How kube-proxy forwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Iptables,
    Ipvs,
}

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Iptables => "iptables",
            Self::Ipvs => "ipvs",
        }
    }

    /// Our own chain, which gives connections to the servers.
    pub(crate) fn chain(self) -> &'static str {
        match self {
            Self::Iptables => "PORTICO-VIP-IPTABLES",
            Self::Ipvs => "PORTICO-VIP-IPVS",
        }
    }

    /// The comment by which our rules are found, whatever address they are for.
    fn comment(self) -> String {
        format!(
            "-m comment --comment \"portico vip beside kube-proxy ({})\"",
            self.name()
        )
    }
}

/// Where what comes to a virtual address is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// kube-proxy's chain of `default/kubernetes:https`.
    Service,
    /// The cluster IP, which IPVS answers.
    ClusterIp(SocketAddr),
    /// The servers that get connections, by our own chain.
    Servers,
}

/// The kernel's chains that lead to ours.
pub(super) const HOOKS: [&str; 3] = ["PREROUTING", "OUTPUT", "POSTROUTING"];

/// Rules of ours, be they wanted or there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Rules {
    /// In each of [`HOOKS`].
    pub hooks: [Vec<String>; 3],
    /// In our own chain; `None` where there is none.
    pub own: Option<Vec<String>>,
}

fn kubernetes(family: Family) -> PortKey {
    let service = ObjectKey::new("default", "kubernetes");
    PortKey {
        service,
        port: "https".into(),
        protocol: Protocol::Tcp,
        family,
    }
}

/// The name of kube-proxy's chain for `default/kubernetes:https`.
pub(crate) fn service_chain(family: Family) -> String {
    port_chain(&kubernetes(family), PortChain::Cluster)
}

fn endpoints_of(chain: &[String]) -> BTreeSet<&str> {
    chain
        .iter()
        .filter_map(|rule| target(rule))
        .filter(|target| target.starts_with("KUBE-SEP-"))
        .collect()
}

/// The chain leads somewhere.
pub(super) fn has_endpoints(chain: &[String]) -> bool {
    !endpoints_of(chain).is_empty()
}

/// The chain gives connections to all of these servers, and to no other.
pub(super) fn covers(chain: &[String], servers: &[SocketAddr], family: Family) -> bool {
    let endpoint = |at: &SocketAddr| Endpoint {
        address: at.ip(),
        port: at.port(),
        local: false,
    };
    let wanted: Vec<String> = servers
        .iter()
        .map(|at| endpoint_chain(&kubernetes(family), &endpoint(at)))
        .collect();
    endpoints_of(chain) == wanted.iter().map(String::as_str).collect()
}

/// `marks`: kube-proxy's chain that asks for masquerading is there.
pub(super) fn rules(kind: Kind, route: &Route, target: &Target, marks: bool) -> Rules {
    let mut rules = Rules::default();
    let [prerouting, output, postrouting] = &mut rules.hooks;
    for frontend in &route.frontends {
        let to = |target: &str| {
            let (address, port) = (IpNet::from(frontend.ip()), frontend.port());
            format!(
                "-d {address} -p tcp {} -m tcp --dport {port} -j {target}",
                kind.comment()
            )
        };
        let pair =
            marks
                .then(|| to(MARK_MASQ))
                .into_iter()
                .chain([to(&jump(kind, route.family, target))]);
        prerouting.extend(pair.clone());
        output.extend(pair);
        if !marks {
            postrouting.push(masquerade(kind, frontend));
        }
    }
    if *target == Target::Servers {
        rules.own = Some(share_out(kind, &route.eligible));
    }
    rules
}

fn jump(kind: Kind, family: Family, target: &Target) -> String {
    match target {
        Target::Service => service_chain(family),
        Target::ClusterIp(address) => format!("DNAT --to-destination {address}"),
        Target::Servers => kind.chain().to_owned(),
    }
}

/// Our own masquerading of marked packets, by the kind that was asked for, where kube-proxy has no
/// rule for them.
fn masquerade(kind: Kind, frontend: &SocketAddr) -> String {
    let (address, port) = (frontend.ip(), frontend.port());
    let translated =
        format!("-m conntrack --ctstate DNAT --ctorigdst {address} --ctorigdstport {port}");
    format!("-p tcp {translated} {} -j MASQUERADE", kind.comment())
}

/// Each server gets as much as the others.
fn share_out(kind: Kind, servers: &[SocketAddr]) -> Vec<String> {
    let rule = |(index, server): (usize, &SocketAddr)| {
        let share = match servers.len() - index {
            1 => String::new(),
            left => format!(
                " -m statistic --mode random --probability {}",
                probability(left)
            ),
        };
        format!(
            "-p tcp {}{share} -j DNAT --to-destination {server}",
            kind.comment()
        )
    };
    servers.iter().enumerate().map(rule).collect()
}

/// Rules of a chain that are ours.
pub(super) fn ours(kind: Kind, chain: Vec<String>) -> Vec<String> {
    let comment = kind.comment();
    chain
        .into_iter()
        .filter(|rule| rule.contains(&comment))
        .collect()
}

/// Input for one `iptables-restore --noflush`; `None` if there is nothing to do.
pub(super) fn plan(kind: Kind, found: &Rules, wanted: &Rules) -> Option<String> {
    let mut lines = String::new();
    let own = kind.chain();
    if let Some(rules) = wanted
        .own
        .as_ref()
        .filter(|rules| found.own.as_deref().is_none_or(|old| differ(old, rules)))
    {
        declare(&mut lines, own);
        rules
            .iter()
            .for_each(|rule| _ = writeln!(lines, "-A {own} {rule}"));
    }
    for (hook, (old, new)) in HOOKS.iter().zip(found.hooks.iter().zip(&wanted.hooks)) {
        if differ(old, new) {
            old.iter()
                .for_each(|rule| _ = writeln!(lines, "-D {hook} {rule}"));
            // First of all, whatever else is in the chain.
            new.iter()
                .rev()
                .for_each(|rule| _ = writeln!(lines, "-I {hook} {rule}"));
        }
    }
    if found.own.is_some() && wanted.own.is_none() {
        declare(&mut lines, own);
        _ = writeln!(lines, "-X {own}");
    }
    (!lines.is_empty()).then(|| format!("*nat\n{lines}COMMIT\n"))
}

/// Make the chain, or empty it.
fn declare(lines: &mut String, chain: &str) {
    _ = writeln!(lines, ":{chain} - [0:0]");
}

fn differ(old: &[String], new: &[String]) -> bool {
    !old.iter()
        .map(|rule| meaning(rule))
        .eq(new.iter().map(|rule| meaning(rule)))
}
