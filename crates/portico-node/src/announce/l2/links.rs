//! The node's links: which of them an address is announced on.

use crate::announce::Share;
use ipnet::IpNet;
use portico_dataplane::link::rtnetlink::{
    self, GROUP_LINK, GROUP_V4_ADDRESS, GROUP_V4_ROUTE, GROUP_V6_ADDRESS, GROUP_V6_ROUTE,
};
use portico_dataplane::netlink::Socket;
use portico_l2::{Mac, rank};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::IpAddr;
use tokio::io::unix::AsyncFd;

/// A link that frames can be sent on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Link {
    pub name: String,
    pub mac: Mac,
    networks: Vec<IpNet>,
    /// Whether there is a default route of IPv4, and of IPv6.
    has_default: [bool; 2],
}

/// All that are up, by number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::announce) struct Links(BTreeMap<u32, Link>);

impl Links {
    pub(in crate::announce) fn read(kernel: &mut Socket) -> io::Result<Self> {
        let links = kernel.query(&rtnetlink::get_links(), |message| rtnetlink::link(&message))?;
        let held = kernel.query(&rtnetlink::get_all_addresses(), |message| {
            rtnetlink::address(&message)
        })?;
        let mut defaults = |v4| {
            kernel.query(&rtnetlink::get_routes(v4), |message| {
                rtnetlink::default_route(&message)
            })
        };
        let defaults = [defaults(true)?, defaults(false)?];
        let usable = links
            .into_iter()
            .map(|(link, _)| link)
            .filter(|link| link.running && link.mac != Mac::default());
        let all = usable.map(|link| {
            let networks = held
                .iter()
                .filter(|(held, _)| held.link == link.index && !is_on_every_link(held.address));
            let networks = networks
                .filter_map(|(held, _)| IpNet::new(held.address, held.prefix).ok())
                .collect();
            let has_default = defaults.each_ref().map(|links| links.contains(&link.index));
            (
                link.index,
                Link {
                    name: link.name,
                    mac: link.mac,
                    networks,
                    has_default,
                },
            )
        });
        Ok(Self(all.collect()))
    }

    pub(super) fn get(&self, link: u32) -> Option<&Link> {
        self.0.get(&link)
    }

    pub(in crate::announce) fn macs(&self) -> Vec<Mac> {
        let macs: BTreeSet<Mac> = self
            .0
            .values()
            .filter(|link| link.is_attached())
            .map(|link| link.mac)
            .collect();
        macs.into_iter().collect()
    }

    /// Where an address is announced: on the links that are named, or on those with its network, or
    /// with a default route.
    pub(in crate::announce) fn of(&self, address: IpAddr, share: &Share) -> Vec<(u32, Mac)> {
        let chosen = |choose: &dyn Fn(&Link) -> bool| -> Vec<(u32, Mac)> {
            self.0
                .iter()
                .filter(|(_, link)| choose(link))
                .map(|(index, link)| (*index, link.mac))
                .collect()
        };
        if !share.interfaces.is_empty() {
            return chosen(&|link| {
                share
                    .interfaces
                    .iter()
                    .any(|pattern| matches(pattern, &link.name))
            });
        }
        let near = chosen(&|link| {
            link.networks
                .iter()
                .any(|network| network.contains(&address))
        });
        if near.is_empty() {
            chosen(&|link| link.has_default[usize::from(address.is_ipv6())])
        } else {
            near
        }
    }

    /// An address is on a network that this node is attached to, and is not its own.
    pub(crate) fn reach(&self, address: IpAddr) -> bool {
        let networks = || self.0.values().flat_map(|link| &link.networks);
        networks().any(|network| network.contains(&address))
            && networks().all(|network| network.addr() != address)
    }

    /// Of such needs, those that cannot be met.
    pub(crate) fn lacks(&self, needs: &BTreeMap<u64, (IpAddr, Share)>) -> Vec<u64> {
        needs
            .iter()
            .filter(|(_, (address, share))| self.of(*address, share).is_empty())
            .map(|(need, _)| *need)
            .collect()
    }
}

impl Link {
    /// Whether it leads to a network with other hosts, unlike the links of pods.
    fn is_attached(&self) -> bool {
        self.has_default.contains(&true) || !self.networks.is_empty()
    }
}

/// Such addresses say nothing of where a link leads.
fn is_on_every_link(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    }
}

/// Which links an address needs, as a number that means the same on every node. Where no names are
/// given that depends on the address, of which only the network matters.
pub(in crate::announce) fn need(address: IpAddr, share: &Share) -> u64 {
    let mut text = share.interfaces.join("\n");
    text.push(if address.is_ipv4() { '4' } else { '6' });
    if share.interfaces.is_empty() {
        let length = if address.is_ipv4() { 16 } else { 64 };
        let network = IpNet::new(address, length).map(|network| network.trunc().to_string());
        text.push_str(&network.unwrap_or_default());
    }
    rank::hash(text.as_bytes())
}

/// `*` is any text.
fn matches(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((before, after)) => {
            let Some(rest) = name.strip_prefix(before) else {
                return false;
            };
            (0..=rest.len())
                .filter_map(|at| rest.get(at..))
                .any(|rest| matches(after, rest))
        }
    }
}

/// Tells that something happened to links, addresses or routes. Belongs to the network namespace of
/// the thread that opened it.
pub(in crate::announce) struct Watch(AsyncFd<Socket>);

impl Watch {
    /// From here on no change is missed. To be called in an async runtime.
    pub(in crate::announce) fn open() -> io::Result<Self> {
        let socket = Socket::open(libc::NETLINK_ROUTE)?;
        for group in [
            GROUP_LINK,
            GROUP_V4_ADDRESS,
            GROUP_V6_ADDRESS,
            GROUP_V4_ROUTE,
            GROUP_V6_ROUTE,
        ] {
            socket.join(group)?;
        }
        super::wire::readable(socket).map(Watch)
    }

    /// What happened does not matter, only that something did. Nothing is lost if it is dropped
    /// half way.
    pub(in crate::announce) async fn changed(&mut self) {
        if let Ok(mut ready) = self.0.readable_mut().await {
            // What did not fit has happened as well.
            let _ = ready.get_inner_mut().notifications(|_| {});
            ready.clear_ready();
        }
    }
}

#[cfg(test)]
mod tests;
