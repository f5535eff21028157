//! What the kernel has.

use super::server::{At, Found};
use super::sets::{Entry, Set};
use ipnet::IpNet;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// All addresses of the node but those of our link; sorted.
    pub own: Vec<IpAddr>,
    /// The addresses of our link.
    pub linked: BTreeSet<IpAddr>,
    /// All virtual servers, whosever they are.
    pub servers: BTreeMap<At, Found>,
    /// The entries of our sets.
    pub entries: BTreeSet<(Set, Entry)>,
    /// There are sets that only kube-proxy makes.
    pub kube_proxy: bool,
}

impl Snapshot {
    /// Servers that only Portico (or kube-proxy, which it replaces) can have made: they are on an
    /// address of our link, or in our sets. kube-proxy takes every server for its own.
    pub fn is_ours(&self, at: &At, excluded: &[IpNet]) -> bool {
        if excluded.iter().any(|network| network.contains(&at.address)) {
            return false;
        }
        let listed = || {
            Set::FRONTENDS
                .iter()
                .any(|set| self.entries.contains(&(*set, Entry::At(*at))))
        };
        self.linked.contains(&at.address) || self.kube_proxy || listed()
    }
}
