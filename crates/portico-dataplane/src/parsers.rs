//! Every reader of what the kernel says, at once: for tests that throw any bytes at them.

use crate::conntrack::flow::Flow;
use crate::ipvs::sets::Set;
use crate::ipvs::wire::{link, server, set};
use crate::netlink::{Message, messages};
use crate::nftables::read;
use portico_model::table::{Family, Protocol};

/// How many things readers made of these bytes. Whatever they are, none of them panics.
pub fn understood(bytes: &[u8]) -> usize {
    messages(bytes).map(in_message).sum()
}

fn in_message(message: Message) -> usize {
    let servers = [
        server::parse_server(&message).is_some(),
        server::parse_destination(&message, Family::V4).is_some(),
        link::parse_link(&message).is_some(),
        link::parse_address(&message).is_some(),
        set::parse_name(&message).is_some(),
    ];
    let flows = [Protocol::Tcp, Protocol::Udp, Protocol::Sctp]
        .map(|protocol| Flow::parse(&message, protocol).is_some());
    let yes = servers
        .into_iter()
        .chain(flows)
        .filter(|understood| *understood)
        .count();
    let entries =
        |set, family| set::parse_part(&message, set, family).map_or(0, |part| part.entries.len());
    let sets = Family::BOTH
        .into_iter()
        .flat_map(|family| Set::ALL.map(|set| entries(set, family)));
    yes + sets.sum::<usize>() + read::understood(message)
}
