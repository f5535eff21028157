//! How the kernel differs from a table, for one frontend: what would be done, told instead. Pure.

use super::plan::{Operation, Plan};
use super::server::At;
use super::sets::Entry;
use super::shadow::shadow;
use super::wire::link::LINK;
use crate::Differences;
use portico_model::table::{Family, ForwardingTable, FrontendKey, ServicePort};
use std::net::IpAddr;

/// The differences of servers, sets and addresses; the fixed rules are not in a plan.
pub(super) fn differences(
    plan: &Plan,
    table: &ForwardingTable,
    frontend: &FrontendKey,
) -> Differences {
    let mine = Mine {
        frontend,
        port: table.find(frontend).map(|(_, port, _)| &**port),
    };
    let of_family = plan
        .operations()
        .filter(|operation| family_of(operation) == frontend.family);
    let (ours, others): (Vec<&Operation>, Vec<&Operation>) =
        of_family.partition(|operation| mine.has(operation));
    Differences {
        of_frontend: ours.into_iter().map(words).collect(),
        of_all: Vec::new(),
        of_others: others.len(),
    }
}

struct Mine<'a> {
    frontend: &'a FrontendKey,
    port: Option<&'a ServicePort>,
}

impl Mine<'_> {
    fn has(&self, operation: &Operation) -> bool {
        match place(operation) {
            Place::At(at) => self.is_frontend(&at),
            Place::Endpoint(at) => self.serves(&at),
            Place::HealthCheck(_) => false,
            Place::Address(address) => self.is_address(address),
        }
    }

    /// A node port is on many addresses, and some frontends have a second one for this node and its
    /// pods.
    fn is_frontend(&self, at: &At) -> bool {
        let FrontendKey {
            address,
            port,
            protocol,
            ..
        } = *self.frontend;
        (at.port, at.protocol) == (port, protocol)
            && (address.is_none() || self.is_address(at.address))
    }

    fn is_address(&self, address: IpAddr) -> bool {
        self.frontend
            .address
            .is_some_and(|own| own == address || shadow(own) == Some(address))
    }

    fn serves(&self, at: &At) -> bool {
        let endpoints = self
            .port
            .into_iter()
            .flat_map(|port| port.cluster.iter().chain(port.local.iter()));
        endpoints
            .into_iter()
            .any(|endpoint| (endpoint.address, endpoint.port) == (at.address, at.port))
    }
}

/// What an operation is about.
enum Place {
    At(At),
    Endpoint(At),
    /// Not of a frontend.
    HealthCheck(Family),
    Address(IpAddr),
}

fn place(operation: &Operation) -> Place {
    match operation {
        Operation::AddEntry(_, entry) | Operation::DeleteEntry(_, entry) => match *entry {
            Entry::At(at) | Entry::Source(at, _) => Place::At(at),
            Entry::Loop(at) => Place::Endpoint(at),
            Entry::Port(family, _) => Place::HealthCheck(family),
            Entry::Address(address) => Place::Address(address),
        },
        Operation::AddServer(at, _)
        | Operation::EditServer(at, _)
        | Operation::DeleteServer(at)
        | Operation::AddDestination(at, _)
        | Operation::Weigh(at, ..)
        | Operation::DeleteDestination(at, _) => Place::At(*at),
        Operation::Bind(address) | Operation::Unbind(address) => Place::Address(*address),
    }
}

fn family_of(operation: &Operation) -> Family {
    match place(operation) {
        Place::At(at) | Place::Endpoint(at) => at.family(),
        Place::HealthCheck(family) => family,
        Place::Address(address) => Family::of(address),
    }
}

fn words(operation: &Operation) -> String {
    match operation {
        Operation::AddEntry(set, entry) => {
            format!("the set {} lacks {entry}", set.name(entry.family()))
        }
        Operation::DeleteEntry(set, entry) => {
            format!(
                "the set {} has {entry}, which the table does not",
                set.name(entry.family())
            )
        }
        Operation::AddServer(at, _) => format!("virtual server {at} is missing"),
        Operation::EditServer(at, settings) => {
            format!("virtual server {at} does not choose by {settings}")
        }
        Operation::DeleteServer(at) => {
            format!("virtual server {at} is there, which the table does not have")
        }
        Operation::AddDestination(at, endpoint) => {
            format!("virtual server {at} lacks endpoint {endpoint}")
        }
        Operation::Weigh(at, endpoint, 0) => {
            format!("virtual server {at} gives connections to {endpoint}, which the table does not")
        }
        Operation::Weigh(at, endpoint, _) => {
            format!("virtual server {at} gives no connections to {endpoint}")
        }
        Operation::DeleteDestination(at, endpoint) => {
            format!("virtual server {at} has endpoint {endpoint}, which the table does not")
        }
        Operation::Bind(address) => format!("{LINK} lacks the address {address}"),
        Operation::Unbind(address) => {
            format!("{LINK} has the address {address}, which the table does not")
        }
    }
}

#[cfg(test)]
mod tests;
