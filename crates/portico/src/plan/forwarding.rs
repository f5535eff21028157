//! How the tables of nodes change: frontends, endpoints, and flows that do not survive it. Pure.

use super::world::{Changes, Kind, World};
use ipnet::IpNet;
use portico_model::announce::Announceable;
use portico_model::index::{Index, Settings};
use portico_model::key::ObjectKey;
use portico_model::table::{
    Change, Endpoint, Frontend, FrontendKey, FrontendKind, Outcome, PortKey, Protocol, ServicePort,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// A line about a port of a Service, and the nodes on which it holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Effect {
    /// `shop/web:http`
    pub port: String,
    /// `+`, `-` or `~`
    pub sign: char,
    pub what: String,
    pub nodes: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Forwarding {
    pub rules: Vec<Effect>,
    pub flows: Vec<Effect>,
    /// `+ 192.0.2.10 of shop/web`
    pub announcements: Vec<Effect>,
    /// Objects that a node could not use.
    pub problems: Vec<String>,
}

/// Sorted by what is said, so that nodes of which the same is true are one line.
#[derive(Default)]
struct Lines(BTreeMap<(String, u8, String, char), BTreeSet<String>>);

impl Lines {
    fn add(&mut self, node: &str, port: impl ToString, sign: char, what: impl Into<String>) {
        // What goes is said before what comes.
        let order = match sign {
            '-' => 0,
            '~' => 1,
            _ => 2,
        };
        self.0
            .entry((port.to_string(), order, what.into(), sign))
            .or_default()
            .insert(node.to_owned());
    }

    fn effects(self) -> Vec<Effect> {
        let each =
            |((port, _, what, sign), nodes): ((String, u8, String, char), BTreeSet<String>)| {
                Effect {
                    port,
                    sign,
                    what,
                    nodes: nodes.into_iter().collect(),
                }
            };
        self.0.into_iter().map(each).collect()
    }
}

/// Compares the tables of every node of either world.
pub(super) fn diff(
    before: &World,
    changes: &Changes,
    settings: impl Fn(&str) -> Settings,
) -> Forwarding {
    let after = before.with(changes);
    let (mut rules, mut flows, mut announcements) =
        (Lines::default(), Lines::default(), Lines::default());
    let mut problems = BTreeSet::new();
    let nodes: BTreeSet<&str> = before
        .of(Kind::Node)
        .chain(after.of(Kind::Node))
        .filter_map(node_name)
        .collect();
    for node in nodes {
        let mut index = Index::new(settings(node)).with_announcing();
        Kind::ALL.iter().for_each(|kind| {
            before
                .of(*kind)
                .for_each(|object| feed(&mut index, *kind, object))
        });
        index.set_addresses(addresses(before.get(Kind::Node, &ObjectKey::new("", node))));
        index.take();
        let announced = index.announceables().clone();
        for (kind, key, object) in changes {
            match object {
                Some(object) => feed(&mut index, *kind, object),
                None => forget(&mut index, *kind, &key.namespace, &key.name),
            }
        }
        index.set_addresses(addresses(after.get(Kind::Node, &ObjectKey::new("", node))));
        let update = index.take();
        for change in &update.changes {
            of_change(node, change, &mut rules);
            of_flows(node, change, &mut flows);
        }
        for (service, now) in &update.announceables {
            let was = announced.get(service);
            of_announcement(
                node,
                &service.to_string(),
                was.map(|was| &**was),
                now.as_deref(),
                &mut announcements,
            );
        }
        problems.extend(update.problems.iter().map(ToString::to_string));
    }
    Forwarding {
        rules: rules.effects(),
        flows: flows.effects(),
        announcements: announcements.effects(),
        problems: problems.into_iter().collect(),
    }
}

fn node_name(node: &Value) -> Option<&str> {
    node["metadata"]["name"].as_str()
}

fn addresses(node: Option<&Value>) -> Vec<IpAddr> {
    let all = node.and_then(|node| node["status"]["addresses"].as_array());
    all.into_iter()
        .flatten()
        .filter_map(|own| own["address"].as_str()?.parse().ok())
        .collect()
}

fn feed(index: &mut Index, kind: Kind, object: &Value) {
    match kind {
        Kind::Service => read(object)
            .into_iter()
            .for_each(|one| index.apply_service(&one)),
        Kind::Slice => read(object)
            .into_iter()
            .for_each(|one| index.apply_slice(&one)),
        Kind::Node => read(object)
            .into_iter()
            .for_each(|one| index.apply_node(&one)),
        Kind::ServiceCidr => read(object)
            .into_iter()
            .for_each(|one| index.apply_service_cidr(&one)),
        Kind::Pod => read(object)
            .into_iter()
            .for_each(|one| index.apply_pod(&one)),
        Kind::PortPartition => read(object)
            .into_iter()
            .for_each(|one| index.apply_port_partition(&one)),
    }
}

fn forget(index: &mut Index, kind: Kind, namespace: &str, name: &str) {
    match kind {
        Kind::Service => index.delete_service(namespace, name),
        Kind::Slice => index.delete_slice(namespace, name),
        Kind::Node => index.delete_node(name),
        Kind::ServiceCidr => index.delete_service_cidr(name),
        Kind::Pod => index.delete_pod(namespace, name),
        Kind::PortPartition => index.delete_port_partition(name),
    }
}

fn read<T: DeserializeOwned>(object: &Value) -> Option<T> {
    serde_json::from_value(object.clone()).ok()
}

fn of_change(node: &str, change: &Change, lines: &mut Lines) {
    let nothing = ServicePort::default();
    let before = change.before.as_deref().unwrap_or(&nothing);
    let after = change.after.as_deref().unwrap_or(&nothing);
    let find = |port: &'_ ServicePort, wanted: &Frontend| -> Option<Frontend> {
        port.frontends
            .iter()
            .find(|one| (one.address, one.port) == (wanted.address, wanted.port))
            .cloned()
    };
    for old in before
        .frontends
        .iter()
        .filter(|old| find(after, old).is_none())
    {
        lines.add(
            node,
            &change.key,
            '-',
            format!("{} no longer answers", named(old, &change.key)),
        );
    }
    for new in &after.frontends {
        match find(before, new) {
            None => lines.add(
                node,
                &change.key,
                '+',
                format!("{} answers: {}", named(new, &change.key), fate(new, after)),
            ),
            Some(old) => differences(&old, new).into_iter().for_each(|what| {
                lines.add(
                    node,
                    &change.key,
                    '~',
                    format!("{}: {what}", named(new, &change.key)),
                )
            }),
        }
    }
    let (had, has) = (serving(before), serving(after));
    for lost in had.difference(&has) {
        lines.add(
            node,
            &change.key,
            '-',
            format!("endpoint {lost} gets no new connections"),
        );
    }
    for gained in has.difference(&had) {
        lines.add(
            node,
            &change.key,
            '+',
            format!("endpoint {gained} gets connections"),
        );
    }
    if before.affinity != after.affinity && change.before.is_some() && change.after.is_some() {
        let shown = |affinity: Option<u32>| {
            affinity.map_or("none".to_owned(), |seconds| format!("{seconds} s"))
        };
        let what = format!(
            "clients stay with their endpoint: {} → {}",
            shown(before.affinity),
            shown(after.affinity)
        );
        lines.add(node, &change.key, '~', what);
    }
}

fn named(frontend: &Frontend, key: &PortKey) -> String {
    let kind = match frontend.kind {
        FrontendKind::ClusterIp => "cluster IP ",
        FrontendKind::ExternalIp => "external IP ",
        FrontendKind::LoadBalancerIp => "load balancer ",
        FrontendKind::NodePort if frontend.address.is_some() => "node port ",
        // Is named as one already.
        FrontendKind::NodePort => "",
    };
    format!("{kind}{}", FrontendKey::of(frontend, key))
}

fn fate(frontend: &Frontend, port: &ServicePort) -> String {
    match frontend.outside {
        Outcome::Cluster => format!("to {} endpoints", port.cluster.len()),
        Outcome::Local => format!("to {} endpoints of the node", port.local.len()),
        Outcome::Reject => "rejects, there is no endpoint".to_owned(),
        Outcome::Drop => "drops, the node has no endpoint".to_owned(),
    }
}

fn differences(old: &Frontend, new: &Frontend) -> Vec<String> {
    let outcome = |outcome: Outcome| match outcome {
        Outcome::Cluster => "any endpoint",
        Outcome::Local => "endpoints of the node",
        Outcome::Reject => "nobody (rejects)",
        Outcome::Drop => "nobody (drops)",
    };
    let sources = |sources: &Option<Arc<[IpNet]>>| match sources {
        None => "everywhere".to_owned(),
        Some(ranges) => ranges
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join(", "),
    };
    let mut found = Vec::new();
    if old.outside != new.outside {
        found.push(format!(
            "served by {} → {}",
            outcome(old.outside),
            outcome(new.outside)
        ));
    }
    if old.inside != new.inside && (old.inside, new.inside) != (old.outside, new.outside) {
        found.push(format!(
            "for the node and its pods, served by {} → {}",
            outcome(old.inside),
            outcome(new.inside)
        ));
    }
    if old.masquerade != new.masquerade {
        found.push(format!(
            "source address replaced: {:?} → {:?}",
            old.masquerade, new.masquerade
        ));
    }
    if old.sources != new.sources {
        found.push(format!(
            "open to {} → {}",
            sources(&old.sources),
            sources(&new.sources)
        ));
    }
    found
}

/// Those that get new connections.
fn serving(port: &ServicePort) -> BTreeSet<SocketAddr> {
    port.cluster
        .iter()
        .chain(port.local.iter())
        .map(socket)
        .collect()
}

fn socket(endpoint: &Endpoint) -> SocketAddr {
    SocketAddr::new(endpoint.address, endpoint.port)
}

/// What becomes of connections that there are: those to an endpoint that leaves, or through a
/// frontend that goes.
fn of_flows(node: &str, change: &Change, lines: &mut Lines) {
    let Some(before) = change.before.as_deref() else {
        return;
    };
    let nothing = ServicePort::default();
    let after = change.after.as_deref().unwrap_or(&nothing);
    let lasting: BTreeSet<SocketAddr> = after
        .lingering
        .iter()
        .map(socket)
        .chain(serving(after))
        .collect();
    let leaving = before
        .lingering
        .iter()
        .map(socket)
        .chain(serving(before))
        .collect::<BTreeSet<SocketAddr>>();
    for lost in leaving.difference(&lasting) {
        let protocol = change.key.protocol.lower().to_uppercase();
        // As the daemon of a node ends them.
        let what = match change.key.protocol {
            Protocol::Tcp => format!("{protocol} connections to {lost} last only while it answers"),
            _ if lasting.is_empty() => {
                format!("{protocol} flows to {lost} end after 10 s; nobody else serves them")
            }
            _ => format!("{protocol} flows to {lost} end at once and go on with another endpoint"),
        };
        lines.add(node, &change.key, '-', what);
    }
    for lingering in serving(before).intersection(&after.lingering.iter().map(socket).collect()) {
        lines.add(
            node,
            &change.key,
            '~',
            format!("connections to {lingering} live on, new ones go elsewhere"),
        );
    }
}

fn of_announcement(
    node: &str,
    service: &str,
    before: Option<&Announceable>,
    after: Option<&Announceable>,
    lines: &mut Lines,
) {
    let addresses = |one: Option<&Announceable>| -> BTreeSet<IpAddr> {
        one.into_iter()
            .flat_map(|one| one.addresses.iter().copied())
            .collect()
    };
    let (had, has) = (addresses(before), addresses(after));
    for lost in had.difference(&has) {
        lines.add(node, service, '-', format!("{lost} is no longer announced"));
    }
    for gained in has.difference(&had) {
        lines.add(node, service, '+', format!("{gained} is announced"));
    }
    let (Some(before), Some(after)) = (before, after) else {
        return;
    };
    if before.local != after.local {
        let who = if after.local {
            "only nodes with an endpoint announce it"
        } else {
            "every node may announce it"
        };
        lines.add(node, service, '~', who);
    }
    if after.local && before.nodes != after.nodes {
        let shown = |one: &Announceable| {
            let all: BTreeSet<&str> = one
                .nodes
                .v4
                .iter()
                .chain(one.nodes.v6.iter())
                .map(|name| &**name)
                .collect();
            if all.is_empty() {
                "nobody".to_owned()
            } else {
                all.into_iter().collect::<Vec<_>>().join(", ")
            }
        };
        lines.add(
            node,
            service,
            '~',
            format!("announced from {} → {}", shown(before), shown(after)),
        );
    }
    if before.served != after.served && !after.served.v4 && !after.served.v6 {
        lines.add(
            node,
            service,
            '-',
            "nobody announces it, there is no endpoint",
        );
    }
}

#[cfg(test)]
mod tests;
