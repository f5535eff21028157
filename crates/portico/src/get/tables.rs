//! The tables of `portico get`.

use super::Shown;
use crate::output::Table;
use portico_view::text::{age, few};
use portico_view::{EndpointView, NodeView, Owner, PartitionView, PoolView, ServiceView};
use serde::Serialize;
use std::fmt;

/// So many of a list in a cell.
const FEW: usize = 3;

/// A Service, shown by its conditions.
#[derive(Serialize)]
#[serde(transparent)]
pub(super) struct Balancer(pub ServiceView);

/// With the namespace, where several are shown.
fn named(with_namespace: bool, namespace: &str, name: &str) -> String {
    if with_namespace {
        format!("{namespace}/{name}")
    } else {
        name.to_owned()
    }
}

fn table<T>(f: &mut fmt::Formatter<'_>, what: &str, items: &[T], table: &Table) -> fmt::Result {
    match items.is_empty() {
        true => writeln!(f, "there are no {what}"),
        false => write!(f, "{table}"),
    }
}

impl fmt::Display for Shown<ServiceView> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut head = vec![
            "name",
            "type",
            "addresses",
            "ports",
            "ready",
            "live",
            "conditions",
        ];
        if self.is_wide {
            head.extend(["answered-by", "since", "why"]);
        }
        let mut rows = Table::new(head);
        for service in &self.items {
            let mut row = vec![
                named(self.with_namespace, &service.namespace, &service.name),
                match service.visibility.as_str() {
                    "" => service.type_.clone(),
                    narrow => format!("{} ({narrow})", service.type_),
                },
                few(&service.addresses, FEW),
                few(&service.ports, FEW),
                format!("{} of {}", service.endpoints.ready, service.endpoints.total),
                service.live_in_words(),
                service.conditions_in_words(),
            ];
            if self.is_wide {
                row.extend(owners(service));
            }
            rows.row(row);
        }
        table(f, "Services", &self.items, &rows)
    }
}

/// Who answers for its addresses, since when, and why.
fn owners(service: &ServiceView) -> [String; 3] {
    let each = |told: &dyn Fn(&Owner) -> String| -> String {
        let all: Vec<String> = service.owners.iter().map(told).collect();
        few(&all, FEW)
    };
    let node = |owner: &Owner| {
        let none = || owner.bgp.is_empty().then(|| "none".to_owned());
        let layer2 = owner.node.clone().or_else(none);
        let bgp = (!owner.bgp.is_empty()).then(|| format!("BGP: {}", few(&owner.bgp, FEW)));
        let both: Vec<String> = layer2.into_iter().chain(bgp).collect();
        both.join(", ")
    };
    [
        each(&node),
        each(&|owner| owner.since.clone()),
        each(&|owner| owner.why.clone()),
    ]
}

impl fmt::Display for Shown<NodeView> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rows = Table::new([
            "name",
            "addresses",
            "health",
            "mode",
            "revision",
            "reported",
            "announces",
            "trouble",
        ]);
        for node in &self.items {
            let report = node.report.as_ref();
            let problems = node.problems.iter().map(|problem| problem.what.clone());
            let trouble: Vec<String> = problems.chain(node.draining.clone()).collect();
            rows.row([
                node.name.clone(),
                few(&node.addresses, FEW),
                node.state.to_string(),
                report
                    .map(|report| report.content.mode.clone())
                    .unwrap_or_default(),
                report
                    .map(|report| report.revision.to_string())
                    .unwrap_or_default(),
                report
                    .map(|report| format!("{} ago", age(report.seconds_ago)))
                    .unwrap_or_default(),
                report.map(|report| report.announces()).unwrap_or_default(),
                few(&trouble, FEW),
            ]);
        }
        table(f, "nodes", &self.items, &rows)
    }
}

impl fmt::Display for Shown<EndpointView> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rows = Table::new([
            "service", "port", "address", "state", "node", "zone", "check", "trouble",
        ]);
        for endpoint in &self.items {
            rows.row([
                named(self.with_namespace, &endpoint.namespace, &endpoint.service),
                endpoint.port_name.clone(),
                endpoint.address.clone(),
                endpoint.state.to_string(),
                endpoint.node.clone(),
                endpoint.zone.clone(),
                endpoint
                    .check
                    .split(' ')
                    .next()
                    .unwrap_or_default()
                    .to_owned(),
                endpoint.trouble.clone(),
            ]);
        }
        table(f, "endpoints", &self.items, &rows)
    }
}

impl fmt::Display for Shown<PartitionView> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rows = Table::new(["name", "addresses", "nodes", "in-use", "trouble"]);
        for partition in &self.items {
            let all = ["all".to_owned()];
            let addresses = match partition.addresses.as_slice() {
                [] => &all[..],
                some => some,
            };
            rows.row([
                partition.name.clone(),
                few(addresses, FEW),
                partition.nodes.to_string(),
                few(&partition.in_use, FEW),
                few(&partition.trouble, FEW),
            ]);
        }
        table(f, "port partitions", &self.items, &rows)
    }
}

impl fmt::Display for Shown<PoolView> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rows = Table::new([
            "name",
            "addresses",
            "auto",
            "assigned",
            "free-ipv4",
            "free-ipv6",
            "announce",
            "trouble",
        ]);
        let number = |free: Option<i64>| free.map(|free| free.to_string()).unwrap_or_default();
        for pool in &self.items {
            rows.row([
                pool.name.clone(),
                few(&pool.addresses, FEW),
                pool.auto_assign.to_string(),
                pool.assigned.to_string(),
                number(pool.free_ipv4),
                number(pool.free_ipv6),
                few(&pool.announce, FEW),
                few(&pool.trouble, FEW),
            ]);
        }
        table(f, "pools", &self.items, &rows)
    }
}

impl fmt::Display for Shown<Balancer> {
    /// What a condition that is not true says stands under the table.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rows = Table::new([
            "name",
            "class",
            "addresses",
            "ports",
            "allocated",
            "programmed",
            "announced",
            "reachable",
        ]);
        let mut notes = String::new();
        for Balancer(service) in &self.items {
            let name = named(self.with_namespace, &service.namespace, &service.name);
            let held = |aspect: &str| {
                service
                    .condition(aspect)
                    .map(|held| held.reason.clone())
                    .unwrap_or_default()
            };
            for bad in service
                .conditions
                .iter()
                .filter(|held| held.status != "True")
            {
                notes.push_str(&format!(
                    "{name}: {} is {}: {}\n",
                    bad.type_, bad.status, bad.message
                ));
            }
            rows.row([
                name,
                service.class.clone(),
                few(&service.addresses, FEW),
                few(&service.ports, FEW),
                held("Allocated"),
                service
                    .condition("Programmed")
                    .map(|held| held.message.clone())
                    .unwrap_or_else(|| service.live_in_words()),
                held("Announced"),
                held("Reachable"),
            ]);
        }
        table(f, "Services with a load balancer", &self.items, &rows)?;
        if !notes.is_empty() {
            write!(f, "\n{notes}")?;
        }
        Ok(())
    }
}
