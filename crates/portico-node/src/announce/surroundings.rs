//! What the edge has to know of other nodes: which of their addresses are on a network that this
//! node is attached to, so that packets get there as they are.

use super::l2::links::{Links, Watch};
use super::plan::Plan;
use portico_dataplane::netlink::Socket;
use portico_model::edge::Surroundings;
use portico_model::table::{Family, PerFamily};
use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// Links change several times in a row, and at every pod that comes or goes.
const SETTLING: Duration = Duration::from_millis(100);
/// After a failure that only time can heal.
const RETRY: Duration = Duration::from_secs(2);

/// Follows the links of this node.
pub(super) struct Neighbours {
    watch: Option<Watch>,
    /// As they were read last.
    links: Option<Links>,
    /// They are others now.
    stale: bool,
}

impl Neighbours {
    /// Belongs to the network namespace of the calling thread.
    pub(super) fn new() -> Self {
        Self {
            watch: None,
            links: None,
            stale: true,
        }
    }

    /// The links were read anew. Nothing is lost if it is dropped half way.
    pub(super) async fn changed(&mut self) {
        if let Some(watch) = self.watch.as_mut().filter(|_| !self.stale) {
            watch.changed().await;
            self.stale = true;
            tokio::time::sleep(SETTLING).await;
        }
        while let Err(error) = self.read() {
            tracing::warn!(%error, "cannot read the links of this node, will try again");
            tokio::time::sleep(RETRY).await;
        }
    }

    fn read(&mut self) -> io::Result<()> {
        if self.watch.is_none() {
            self.watch = Some(Watch::open()?);
        }
        let mut kernel = Socket::open(libc::NETLINK_ROUTE)?;
        self.links = Some(Links::read(&mut kernel)?);
        self.stale = false;
        Ok(())
    }

    /// `None` until the links are known.
    pub(super) fn surroundings(&self, plan: &Plan) -> Option<Surroundings> {
        let links = self.links.as_ref()?;
        Some(surroundings(plan, |address| links.reach(address)))
    }
}

/// Also nodes that are leaving: they have connections as long as they are there.
fn surroundings(plan: &Plan, reach: impl Fn(IpAddr) -> bool) -> Surroundings {
    let near = |addresses: &[IpAddr]| {
        let first = |family| {
            let of_family = |address: &&IpAddr| Family::of(**address) == family;
            let mut all = addresses.iter().filter(of_family).copied();
            all.find(|address| reach(*address))
        };
        PerFamily {
            v4: first(Family::V4),
            v6: first(Family::V6),
        }
    };
    let neighbours: BTreeMap<Arc<str>, PerFamily<Option<IpAddr>>> = plan
        .nodes()
        .map(|(name, addresses)| (Arc::clone(name), near(addresses)))
        .filter(|(_, near)| *near != PerFamily::default())
        .collect();
    Surroundings {
        announced: plan.announced().collect(),
        neighbours,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::announce::plan::NodeFacts;
    use portico_model::pools::{AddressPoolSpec, Announce};

    #[test]
    fn nodes_on_a_network_of_this_one_are_neighbours() {
        let mut plan = Plan::new("a".into());
        for (name, addresses, leaving) in [
            ("a", &["10.0.0.1", "fd00::1"][..], false),
            ("b", &["192.0.2.2", "10.0.0.2", "10.0.0.22"], true),
            ("c", &["192.0.2.3"], false),
        ] {
            let addresses = addresses.iter().map(|address| address.parse().unwrap());
            let facts = NodeFacts {
                addresses: addresses.collect(),
                leaving,
                ..NodeFacts::default()
            };
            plan.set_node(name, Some(facts));
        }
        let spec = |range: &str, announce: Vec<Announce>| AddressPoolSpec {
            addresses: vec![range.to_owned()],
            announce,
            ..AddressPoolSpec::default()
        };
        let announced = spec("203.0.113.0/24", vec![Announce::Layer2]);
        plan.set_pool("one", Some((1, &announced)));
        plan.set_pool("two", Some((2, &spec("198.51.100.0/24", vec![]))));
        let here: IpAddr = "10.0.0.1".parse().unwrap();
        let on_network = |address: IpAddr| address.to_string().starts_with("10.0.0.");
        let known = surroundings(&plan, |address| on_network(address) && address != here);
        let b = PerFamily {
            v4: Some("10.0.0.2".parse().unwrap()),
            v6: None,
        };
        assert_eq!(known.neighbours, BTreeMap::from([("b".into(), b)]));
        assert!(known.announces("203.0.113.9".parse().unwrap()));
        assert!(!known.announces("198.51.100.9".parse().unwrap()));
    }
}
