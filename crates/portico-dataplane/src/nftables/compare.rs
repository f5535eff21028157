//! How the kernel differs from a table, for one frontend: what would be repaired, told instead of
//! sent. Pure.

use super::adopt;
use super::element::{At, Bytes, Element, Set};
use super::installed::Pair;
use super::plan::{Plan, Wanted};
use super::rules::fixed_chains;
use super::sets::Table;
use super::snapshot::FoundTable;
use crate::early_packets::{self, Queue};
use crate::{ApplyError, Differences};
use portico_model::table::{Family, ForwardingTable, FrontendKey, ServicePort};
use std::collections::BTreeMap;
use std::net::IpAddr;

pub(super) fn differences(
    ours: Table,
    table: &ForwardingTable,
    found: Option<&FoundTable>,
    frontend: &FrontendKey,
) -> Result<Differences, ApplyError> {
    let family = frontend.family;
    let (installed, elements) = adopt::installed(family, table, found)?;
    let owner = table.find(frontend);
    let pair = owner
        .and_then(|(key, ..)| installed.pair(key))
        .filter(|pair| has_pool(found, *pair));
    let mine = Mine {
        at: at(frontend),
        port: owner.map(|(_, port, _)| &**port),
        pair,
    };
    let mut plan = Plan::default();
    let (of_all, _) = plan.repair_parts(
        Wanted::new(ours, family, &table.rules, &installed, elements),
        found,
    );
    let mut differences = Differences {
        of_all,
        ..Differences::default()
    };
    // Without a table there is nothing to be said of its elements.
    for change in found.map(|_| changes(&plan, frontend)).unwrap_or_default() {
        match (
            change.belongs(|element| mine.has(element)),
            change.belongs(is_everybodys),
        ) {
            (true, _) => differences.of_frontend.push(change.words()),
            (_, true) => differences.of_all.push(change.words()),
            _ => differences.of_others += 1,
        }
    }
    Ok(differences)
}

/// Where packets wait for their Service by the rules that are found.
pub(super) fn early_packets(
    ours: Table,
    table: &ForwardingTable,
    found: &FoundTable,
    family: Family,
) -> Option<Queue> {
    let services = &found.chains.get("services")?.rules;
    let is_found = |queue: &Queue| {
        let chains = fixed_chains(
            family,
            &table.rules,
            Table {
                early_packets: Some(*queue),
                ..ours
            },
        );
        let wanted = chains
            .iter()
            .find(|chain| &*chain.name == "services")
            .map(|chain| chain.rules.as_slice());
        wanted
            .unwrap_or_default()
            .iter()
            .map(|rule| Some(rule.fingerprint))
            .eq(services.iter().copied())
    };
    early_packets::queues().find(is_found)
}

/// A place in a set: what the kernel has there, and what it should have.
#[derive(Default)]
struct Change<'a> {
    found: Option<&'a Element>,
    wanted: Option<&'a Element>,
}

impl Change<'_> {
    fn belongs(&self, test: impl Fn(&Element) -> bool) -> bool {
        self.found.into_iter().chain(self.wanted).any(test)
    }

    fn words(&self) -> String {
        let set = self
            .found
            .or(self.wanted)
            .map(|element| element.set().name())
            .unwrap_or_default();
        match (self.found, self.wanted) {
            (Some(found), Some(wanted)) => format!("the set {set} has {found} instead of {wanted}"),
            (None, Some(wanted)) => format!("the set {set} lacks {wanted}"),
            (Some(found), None) => format!("the set {set} has {found}, which the table does not"),
            (None, None) => String::new(),
        }
    }
}

fn changes<'a>(plan: &'a Plan, frontend: &FrontendKey) -> Vec<Change<'a>> {
    let mut by_place: BTreeMap<(Set, Bytes), Change> = BTreeMap::new();
    for element in plan.removed.get(frontend.family) {
        by_place
            .entry((element.set(), element.key()))
            .or_default()
            .found = Some(element);
    }
    for element in plan.added.get(frontend.family) {
        by_place
            .entry((element.set(), element.key()))
            .or_default()
            .wanted = Some(element);
    }
    by_place.into_values().collect()
}

/// What serves the frontend that is asked about.
struct Mine<'a> {
    at: At,
    port: Option<&'a ServicePort>,
    /// Its number, if the kernel knows it: otherwise its endpoints cannot be there, which need not
    /// be said of each.
    pair: Option<Pair>,
}

impl Mine<'_> {
    fn has(&self, element: &Element) -> bool {
        match element {
            Element::Frontend { at, .. }
            | Element::Refused { at, .. }
            | Element::Dropped { at, .. }
            | Element::Guarded { at, .. }
            | Element::AllowedSource { at, .. }
            | Element::Edge { at, .. }
            | Element::EdgeLocal { at, .. } => *at == self.at,
            Element::LocalPool { pool, .. }
            | Element::Endpoint { pool, .. }
            | Element::EdgeSlot { pool, .. }
            | Element::EdgeBefore { pool, .. }
            | Element::Slot { pool, .. } => self.pair == Some(pool / 2),
            Element::Sticky { member, .. } => self.pair == Some(member.pool() / 2),
            Element::ClusterIp(address) => self.at.address == Some(*address),
            Element::Hairpin(address) => self.serves(*address),
            Element::Class { .. } | Element::NodePortAddress(_) | Element::DmzPod(_) => false,
        }
    }

    fn serves(&self, address: IpAddr) -> bool {
        let endpoints = self
            .port
            .into_iter()
            .flat_map(|port| port.cluster.iter().chain(port.local.iter()));
        endpoints
            .into_iter()
            .any(|endpoint| endpoint.address == address)
    }
}

fn is_everybodys(element: &Element) -> bool {
    matches!(
        element,
        Element::Class { .. } | Element::NodePortAddress(_) | Element::DmzPod(_)
    )
}

fn has_pool(found: Option<&FoundTable>, pair: Pair) -> bool {
    let elements = found
        .into_iter()
        .flat_map(|table| table.sets.values())
        .flat_map(|set| &set.elements);
    elements.into_iter().any(|element| match element {
        Element::Endpoint { pool, .. } | Element::Slot { pool, .. } => pool / 2 == pair,
        Element::Frontend { number, .. } => number.pool() / 2 == pair,
        _ => false,
    })
}

fn at(frontend: &FrontendKey) -> At {
    At {
        address: frontend.address,
        protocol: frontend.protocol.number(),
        port: frontend.port,
    }
}

#[cfg(test)]
mod tests;
