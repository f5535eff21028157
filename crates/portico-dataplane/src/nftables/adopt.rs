//! Numbers that the kernel already uses are taken over, so that a restart changes nothing that has
//! not changed.

use super::delta::Delta;
use super::element::{At, Element, Target};
use super::installed::{Found, Installed, Pair};
use super::number::{MEMBERS, Number};
use super::port;
use super::rules::Class;
use super::snapshot::FoundTable;
use crate::ApplyError;
use portico_model::table::{Family, ForwardingTable, PortKey, ServicePort};
use std::collections::HashMap;
use std::sync::Arc;

/// Slots beyond this are not taken over.
const SLOTS: usize = 1 << 16;

/// The state that is wanted, numbered as what was found as far as possible, and all its elements.
pub(super) fn installed(
    family: Family,
    table: &ForwardingTable,
    found: Option<&FoundTable>,
) -> Result<(Installed, Vec<Element>), ApplyError> {
    let mut installed = Installed::new(family);
    let mut found = found.map(Numbers::read).unwrap_or_default();
    for (number, class) in &found.classes {
        installed.adopt_class(*number, *class);
    }
    let mut ports: Vec<(&PortKey, &Arc<ServicePort>, Option<Pair>)> = Vec::new();
    for (key, port) in table.ports.iter().filter(|(key, _)| key.family == family) {
        ports.push((key, port, found.take_pair(key, port)));
    }
    let taken = found.taken(&ports);
    installed.reserve(taken.len() as Pair, |pair| {
        taken.get(pair as usize) == Some(&true)
    });
    let mut all = Delta {
        added: installed.class_elements().collect(),
        ..Delta::default()
    };
    // Growing such a list takes longer than filling it.
    all.added.reserve(
        ports
            .iter()
            .map(|(_, port, _)| port::most_elements(port))
            .sum(),
    );
    installed.prepare_classes(&mut all)?;
    installed.set_node_port_addresses(table.rules.node_ports.get(family), &mut all);
    installed.set_dmz_pods(table.rules.dmz.get(family), &mut all);
    for (key, port, pair) in ports {
        let slots = pair
            .and_then(|pair| found.pools.remove(&pair))
            .unwrap_or_default();
        installed.adopt(key, port, pair, &slots, &mut all)?;
    }
    installed.committed();
    if !all.removed.is_empty() {
        // A class that was taken over gave its number up.
        all.settle();
    }
    Ok((installed, all.added))
}

/// What the kernel has, by number.
#[derive(Default)]
struct Numbers {
    classes: Vec<(u32, Class)>,
    pairs: HashMap<At, Pair>,
    pools: HashMap<Pair, Found>,
    given: HashMap<Pair, ()>,
}

impl Numbers {
    fn read(table: &FoundTable) -> Self {
        let mut numbers = Self::default();
        for element in table.sets.values().flat_map(|set| &set.elements) {
            match element {
                Element::Frontend { at, number, .. } => {
                    numbers.pairs.insert(*at, number.pool() / 2);
                }
                Element::Class { class, chain } => {
                    numbers
                        .classes
                        .extend(Class::from_chain_name(chain).map(|known| (class.index(), known)));
                }
                Element::Endpoint { pool, slot, target } => numbers.slot(*pool, *slot, *target),
                Element::Sticky { member, target } => numbers.member(*member, *target),
                Element::EdgeSlot { pool, slot, node } => {
                    let found = numbers.pools.entry(pool / 2).or_default();
                    found.edge.nodes.insert(*slot, *node);
                }
                Element::EdgeBefore { pool, slot, node } => {
                    let found = numbers.pools.entry(pool / 2).or_default();
                    found.edge.before.insert(*slot, *node);
                }
                _ => {}
            }
        }
        numbers.members_of_slots(table);
        numbers
    }

    /// Slots of pools with affinity name members; these are known by now.
    fn members_of_slots(&mut self, table: &FoundTable) {
        for element in table.sets.values().flat_map(|set| &set.elements) {
            let Element::Slot { pool, slot, member } = element else {
                continue;
            };
            let members = self.pools.get(&(pool / 2)).map(|found| &found.members);
            let target = members.and_then(|members| *members.get(member.index() as usize)?);
            if let Some(target) = target {
                self.slot(*pool, *slot, target);
            }
        }
    }

    fn slot(&mut self, pool: u32, slot: u32, target: Target) {
        let found = self.pools.entry(pool / 2).or_default();
        if let Some(slots) = found.slots.get_mut(pool as usize % 2) {
            put(slots, slot as usize, target, SLOTS);
        }
    }

    fn member(&mut self, member: Number, target: Target) {
        let found = self.pools.entry(member.pool() / 2).or_default();
        put(&mut found.members, member.index() as usize, target, MEMBERS);
    }

    /// The number that the port's frontends have in the kernel, given to one port only.
    fn take_pair(&mut self, key: &PortKey, port: &ServicePort) -> Option<Pair> {
        let places = port
            .frontends
            .iter()
            .map(|frontend| port::at(key, frontend));
        let pair = places
            .filter_map(|at| self.pairs.get(&at))
            .find(|pair| **pair > 0 && !self.given.contains_key(pair))
            .copied();
        pair.inspect(|pair| {
            self.given.insert(*pair, ());
        })
    }

    /// Whether a number is taken over, for each up to the greatest that is.
    fn taken(&self, ports: &[(&PortKey, &Arc<ServicePort>, Option<Pair>)]) -> Vec<bool> {
        let greatest = ports.iter().filter_map(|(_, _, pair)| *pair).max();
        let mut taken = vec![false; greatest.map_or(0, |greatest| greatest as usize + 1)];
        for pair in ports.iter().filter_map(|(_, _, pair)| *pair) {
            if let Some(place) = taken.get_mut(pair as usize) {
                *place = true;
            }
        }
        taken
    }
}

fn put(slots: &mut Vec<Option<Target>>, place: usize, target: Target, limit: usize) {
    if place >= limit {
        return;
    }
    if slots.len() <= place {
        slots.resize(place + 1, None);
    }
    if let Some(slot) = slots.get_mut(place) {
        *slot = Some(target);
    }
}
