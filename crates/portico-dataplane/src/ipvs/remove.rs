//! Takes everything out that is ours or kube-proxy's, and nothing else. The rules are iptables' own
//! ([`crate::iptables`]).

use super::kernel::{failed, find_link};
use super::read;
use super::sets::{Set, is_kube_proxys};
use super::wire::{link, server, set};
use crate::ApplyError;
use crate::netlink::{Messages, Socket, generic};
use std::path::Path;

/// Whether there is anything to remove. Cheap, so it may be asked at every start; loads no module.
pub fn present() -> bool {
    Socket::open(libc::NETLINK_ROUTE)
        .is_ok_and(|mut links| find_link(&mut links).is_ok_and(|link| link.is_some()))
}

/// Remove virtual servers, the link with its addresses, and the sets. Rules that look into the sets
/// have to be gone.
pub fn remove_leftovers() -> Result<(), ApplyError> {
    let open = |protocol| {
        Socket::open(protocol).map_err(|error| failed("opening a netlink socket", error))
    };
    let mut links = open(libc::NETLINK_ROUTE)?;
    let Some(link) = find_link(&mut links)? else {
        return Ok(());
    };
    let mut sets = open(libc::NETLINK_NETFILTER)?;
    if Path::new("/proc/thread-self/net/ip_vs").exists() {
        remove_servers(
            &mut open(libc::NETLINK_GENERIC)?,
            &mut sets,
            &mut links,
            link,
        )?;
    }
    for name in read::set_names(&mut sets)? {
        if Set::named(&name).is_some() || is_kube_proxys(&name) {
            let mut request = Messages::new();
            set::destroy(&mut request, &name);
            let done = sets
                .exchange(&request)
                .and_then(|replies| replies.into_result());
            done.map_err(|error| failed(format!("removing the set {name}"), set::explain(error)))?;
        }
    }
    // Last: where it is, there is something left to remove.
    let done = links
        .exchange(&link::remove(link))
        .and_then(|replies| replies.into_result());
    done.map(drop)
        .map_err(|error| failed(format!("removing the link {}", link::LINK), error))
}

fn remove_servers(
    servers: &mut Socket,
    sets: &mut Socket,
    links: &mut Socket,
    link: u32,
) -> Result<(), ApplyError> {
    let subsystem = generic::family(servers, server::SUBSYSTEM)
        .map_err(|error| failed("finding IPVS", error))?;
    let requests = server::Requests { subsystem };
    let snapshot = read::snapshot(servers, requests, sets, links, link)?;
    let mut messages = Messages::new();
    for at in snapshot
        .servers
        .keys()
        .filter(|at| snapshot.is_ours(at, &[]))
    {
        requests.delete_server(&mut messages, *at);
    }
    if messages.is_empty() {
        return Ok(());
    }
    let done = servers
        .exchange(&messages)
        .and_then(|replies| replies.into_result());
    done.map(drop)
        .map_err(|error| failed("removing virtual servers", error))
}
