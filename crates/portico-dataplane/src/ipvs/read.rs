//! Asks the kernel what it has.

use super::kernel::failed;
use super::server::{At, Destination, Found};
use super::sets::{Entry, Set, is_kube_proxys};
use super::snapshot::Snapshot;
use super::wire::{link, server, set};
use crate::ApplyError;
use crate::netlink::{Messages, Socket};
use portico_model::table::Family;
use std::collections::BTreeMap;

pub(super) fn snapshot(
    servers: &mut Socket,
    requests: server::Requests,
    sets: &mut Socket,
    links: &mut Socket,
    link: u32,
) -> Result<Snapshot, ApplyError> {
    let mut snapshot = Snapshot {
        servers: all_servers(servers, requests)?,
        ..Snapshot::default()
    };
    let addresses = links.query(&link::list_addresses(), |message| {
        link::parse_address(&message)
    });
    for (index, address) in
        addresses.map_err(|error| failed("listing the node's addresses", error))?
    {
        match index == link {
            true => _ = snapshot.linked.insert(address),
            false => snapshot.own.push(address),
        }
    }
    // Where the link is up, the kernel has given it one of its own.
    snapshot.linked.retain(
        |address| !matches!(address, std::net::IpAddr::V6(v6) if v6.is_unicast_link_local()),
    );
    snapshot.own.sort_unstable();
    snapshot.own.dedup();
    for name in set_names(sets)? {
        snapshot.kube_proxy |= is_kube_proxys(&name);
        let Some((set, family)) = Set::named(&name) else {
            continue;
        };
        snapshot.entries.extend(
            entries(sets, set, family)?
                .into_iter()
                .map(|entry| (set, entry)),
        );
    }
    Ok(snapshot)
}

fn all_servers(
    socket: &mut Socket,
    requests: server::Requests,
) -> Result<BTreeMap<At, Found>, ApplyError> {
    let listed = socket.query(&requests.list_servers(), |message| {
        server::parse_server(&message)
    });
    let listed = listed.map_err(|error| failed("listing virtual servers", error))?;
    let mut all = BTreeMap::new();
    for (at, settings) in listed {
        all.insert(
            at,
            Found {
                settings,
                destinations: destinations(socket, requests, at)?,
            },
        );
    }
    Ok(all)
}

pub(super) fn destinations(
    socket: &mut Socket,
    requests: server::Requests,
    at: At,
) -> Result<Vec<Destination>, ApplyError> {
    let parse = |message: crate::netlink::Message| server::parse_destination(&message, at.family());
    match socket.query(&requests.list_destinations(at), parse) {
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Ok(Vec::new()),
        result => result.map_err(|error| failed(format!("listing the endpoints of {at}"), error)),
    }
}

pub(super) fn set_names(socket: &mut Socket) -> Result<Vec<String>, ApplyError> {
    let names = socket.query(&set::list_names(), |message| set::parse_name(&message));
    names.map_err(|error| failed("listing sets (module ip_set)", set::explain(error)))
}

/// Whether a set is as we make it; `None` if it is not there.
pub(super) fn is_as_made(
    socket: &mut Socket,
    set: Set,
    family: Family,
) -> Result<Option<bool>, ApplyError> {
    let parts = parts(socket, &set::list_header(set.name(family)), set, family)?;
    Ok(parts.map(|parts| {
        parts
            .iter()
            .filter_map(|part| part.as_made)
            .all(|as_made| as_made)
    }))
}

/// None if it is not there.
pub(super) fn entries(
    socket: &mut Socket,
    set: Set,
    family: Family,
) -> Result<Vec<Entry>, ApplyError> {
    let parts = parts(socket, &set::list_entries(set.name(family)), set, family)?;
    Ok(parts
        .into_iter()
        .flatten()
        .flat_map(|part| part.entries)
        .collect())
}

fn parts(
    socket: &mut Socket,
    request: &Messages,
    set: Set,
    family: Family,
) -> Result<Option<Vec<set::Part>>, ApplyError> {
    match socket.query(request, |message| set::parse_part(&message, set, family)) {
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(None),
        Err(error) => Err(failed(
            format!("listing the set {}", set.name(family)),
            set::explain(error),
        )),
        Ok(parts) => Ok(Some(parts)),
    }
}
