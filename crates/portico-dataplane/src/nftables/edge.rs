//! The edge: packets from outside go to the node that has their slot, as they are.
//!
//! A packet that belongs to no connection here, to an address that nodes announce, is hashed to a
//! slot. Where another node has it, that node is sent a copy and the packet is dropped, before
//! anything is translated: the connection leaves no trace here. The node that has the slot uses
//! endpoints of its own and answers the client directly. Packets of connections that are known here
//! are not looked at, so what was open before the edge was there goes on as it was.
//!
//! A packet that opens no connection and is unknown where its slot is may belong to a connection
//! from before the slot moved: the node that had the slot before is asked, and asks in its turn the
//! one that had it earlier. How often a packet was sent on shows by its hops, which are lowered each
//! time: nothing can go around in circles, even while nodes do not agree about slots.

use super::element::{Element, Set};
use super::expr::{Client, Expressions};
use super::number::{BY_ADDRESS, Number, OWN_SLOT, PAIR_MASK};
use super::rules::{Chain, Rule, chain, rule};
use super::snapshot::FoundTable;
use crate::FoundEdge;
use portico_model::edge::{Edge, SLOTS, Way};
use portico_model::table::Family;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A packet with more hops than this was not sent on by any node.
const FRESH: u8 = 32;
/// One with more than this was sent to the node that has its slot; one with fewer was passed on by
/// that node, which has another table and does not have the slot by it.
const PASSED_ON: u8 = 24;
/// One with fewer than the first of these was sent to the node that had the slot before, then to the
/// one before that, and with the last it ends.
const ASKED: [u8; 3] = [16, 8, 4];

const CHAIN: &str = "edge";
const BY_ADDRESS_CHAIN: &str = "edge-by-address";
const ERRORS_CHAIN: &str = "edge-errors";

/// Slots of this node that another one had before.
pub(super) type Before = BTreeMap<u32, IpAddr>;

/// What the kernel has of an edge.
#[derive(Clone, Debug, Default)]
pub struct Found {
    pub nodes: BTreeMap<u32, IpAddr>,
    pub before: Before,
}

/// What tables say of the edge; `None` where none of them has one.
pub(super) fn found<'a>(tables: impl Iterator<Item = &'a FoundTable>) -> Option<FoundEdge> {
    let mut edge = None;
    for table in tables.filter(|table| table.chains.contains_key(CHAIN)) {
        let edge = edge.get_or_insert_with(FoundEdge::default);
        for element in table.sets.values().flat_map(|set| &set.elements) {
            match element {
                Element::Edge { at, .. } => edge.addresses.extend(at.address),
                Element::EdgeSlot { node, .. } if !node.is_unspecified() => {
                    edge.nodes.insert(*node);
                }
                _ => {}
            }
        }
    }
    edge
}

/// Which nodes had slots before this one. What was remembered stays, also of slots that this node
/// has no longer: whoever has them asks here. Where nothing was installed the kernel may have it
/// from an earlier process.
pub(super) fn before(
    old: Option<&Edge>,
    known: &Before,
    found: &Found,
    new: Option<&Edge>,
) -> Before {
    let Some(new) = new else {
        return Before::new();
    };
    let node = |slot: u32| {
        let (other, remembered) = match old {
            Some(old) => (neighbour(old, slot), known.get(&slot)),
            None => (found.nodes.get(&slot).copied(), found.before.get(&slot)),
        };
        let other = other.filter(|node| way(new, slot) == Way::Here && !node.is_unspecified());
        other.or(remembered.copied())
    };
    let all = 0..u32::from(SLOTS);
    all.filter_map(|slot| Some((slot, node(slot)?))).collect()
}

fn neighbour(edge: &Edge, slot: u32) -> Option<IpAddr> {
    match way(edge, slot) {
        Way::Neighbour(node) => Some(node),
        Way::Here | Way::None => None,
    }
}

fn way(edge: &Edge, slot: u32) -> Way {
    let node = u16::try_from(slot).ok().and_then(|slot| edge.node(slot));
    node.map_or(Way::None, |node| node.way)
}

/// The number of a port at the edge.
pub(super) fn number(pair: u32, edge: &Edge) -> Number {
    let how = if edge.by_address { BY_ADDRESS } else { 0 };
    Number((pair * 2) | how)
}

pub(super) fn slot_elements(pair: u32, edge: &Edge, before: &Before, out: &mut Vec<Element>) {
    let pool = pair * 2;
    let unspecified = |address: &IpAddr| -> IpAddr {
        match address {
            IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        }
    };
    let Some(none) = edge.addresses.first().map(unspecified) else {
        return;
    };
    let other = |slot: u32| match way(edge, slot) {
        Way::Here => None,
        Way::Neighbour(node) => Some((slot, node)),
        Way::None => Some((slot, none)),
    };
    let others = (0..u32::from(SLOTS)).filter_map(other);
    out.extend(others.map(|(slot, node)| Element::EdgeSlot { pool, slot, node }));
    let before = before.iter().map(|(slot, node)| (*slot, *node));
    out.extend(before.map(|(slot, node)| Element::EdgeBefore { pool, slot, node }));
}

/// What leads packets to the edge, at the end of the chain that looks at source ranges.
pub(super) fn entrance(family: Family, unless_pod: impl Fn() -> Expressions) -> Vec<Rule> {
    // Too large, time exceeded and the like: all that routers on the way say.
    let errors: &[u8] = match family {
        Family::V4 => &[3, 11, 12],
        Family::V6 => &[1, 2, 3, 4],
    };
    let error = |kind: &u8| {
        let of_service = Expressions::new(family)
            .unknown_error(*kind)
            .number_of_quoted_service(Set::Edge);
        rule(of_service.goto(ERRORS_CHAIN)).because("about an answer of another node")
    };
    let packet = unless_pod().when_unknown().number_of_service(Set::Edge);
    [rule(packet.goto(CHAIN))]
        .into_iter()
        .chain(errors.iter().map(error))
        .collect()
}

/// The beginning of the chain that translates destinations.
pub(super) fn own_slots(family: Family) -> [Rule; 2] {
    let own = || Expressions::new(family).number_is(u32::MAX, OWN_SLOT);
    [
        rule(own().number_of_service(Set::EdgeLocal).goto("treat")),
        rule(own().forget_number()).because("a slot of this node, but no endpoint"),
    ]
}

pub(super) fn chains(family: Family) -> [Chain; 3] {
    let by_address = Expressions::new(family)
        .number_is(BY_ADDRESS, BY_ADDRESS)
        .goto(BY_ADDRESS_CHAIN);
    let mut by_port = vec![rule(by_address)];
    by_port.extend(of_slot(family, Client::AddressAndPort));
    [
        chain(CHAIN, None, by_port),
        chain(BY_ADDRESS_CHAIN, None, of_slot(family, Client::Address)),
        chain(ERRORS_CHAIN, None, of_error(family)),
    ]
}

fn of_slot(family: Family, client: Client) -> Vec<Rule> {
    let node = |start: Expressions, set| start.node_of_slot(client, PAIR_MASK, set);
    let start = || Expressions::new(family);
    let goes_on = || start().tcp().unless_opening();
    let other = |start| node(start, Set::EdgeSlots).node_is_near(true);
    let mut rules = vec![
        send(other(start()), FRESH).because("another node's slot"),
        send(other(goes_on()), PASSED_ON).because("sent by a node that knows another table"),
    ];
    let ask = |hops| send(node(goes_on(), Set::EdgeBefore), hops).because("had the slot before");
    rules.extend(ASKED.map(ask));
    let disagreement = other(goes_on().more_hops_than(ASKED[0]));
    let unreachable = node(start(), Set::EdgeSlots).node_is_near(false);
    rules.extend([
        // To refuse it would end a connection that some node knows.
        rule(disagreement.drop()).because("nodes do not agree yet, it will come again"),
        rule(unreachable.forget_number().leave()).because("no way to the node"),
        rule(start().when_new().set_number(OWN_SLOT).leave()).because("a slot of this node"),
        rule(start().forget_number()),
    ]);
    rules
}

fn of_error(family: Family) -> Vec<Rule> {
    let start = || Expressions::new(family);
    let kind = |value, client| {
        let slot =
            start()
                .number_is(BY_ADDRESS, value)
                .node_of_slot(client, PAIR_MASK, Set::EdgeSlots);
        send(slot.node_is_near(true), FRESH)
    };
    vec![
        kind(0, Client::QuotedAddressAndPort),
        kind(BY_ADDRESS, Client::QuotedAddress),
        rule(start().forget_number()),
    ]
}

/// To the node that was looked up, unless the packet was sent on so often already.
fn send(found: Expressions, hops: u8) -> Rule {
    let lowered = found.lower_hops(hops).forget_number();
    rule(lowered.count().send_to_node().drop())
}

#[cfg(test)]
mod tests;
