//! The speaker of this node: its routes come from the plan of announcing, its peers from the API.

use super::metrics::Metrics;
use super::peers::{Peers, Wanted};
use super::{Route, Speaker};
use crate::announce::RouteChanges;
use kube::Client;
use portico_bgp::{Attributes, Communities, Policy};
use portico_model::pools::PoolBgp;
use portico_model::report::Session;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use tokio::sync::{mpsc, watch};

/// What it works with.
pub struct Parts {
    /// A client of the API server.
    pub client: Client,
    /// The name of this node.
    pub node: Arc<str>,
    /// One of its addresses.
    pub own: Option<IpAddr>,
    /// The labels of the own Node, for the selectors of peers.
    pub labels: watch::Receiver<BTreeMap<String, String>>,
    /// Nothing is announced before the first, which has all that there is.
    pub routes: mpsc::Receiver<RouteChanges>,
    /// How the sessions are, for the node's report.
    pub sessions: watch::Sender<Vec<Session>>,
    /// The metrics of the sessions.
    pub metrics: Metrics,
}

/// Runs until the sender of routes is dropped: then connections are closed as for a restart, and
/// routers keep the routes.
pub async fn run(parts: Parts) {
    let Parts {
        client,
        node,
        own,
        labels,
        mut routes,
        sessions,
        metrics,
    } = parts;
    let speaker = Speaker::start(&node, own, metrics);
    let (mut state, mut conflicts) = (speaker.state(), speaker.conflicts());
    let mut peers = Peers::follow(client, labels);
    let mut wanted = Wanted::default();
    let mut policies = Policies::default();
    let mut first = true;
    loop {
        tokio::select! {
            changes = routes.recv() => match changes {
                Some(changes) if std::mem::take(&mut first) => speaker.set_routes(policies.routes(changes)),
                Some(changes) => policies.apply(&speaker, changes),
                None => return,
            },
            now = peers.next() => {
                wanted = now;
                speaker.set_peers(wanted.peers.clone());
            }
            Ok(()) = state.changed() => {}
            Ok(()) = conflicts.changed() => tell(&conflicts.borrow()),
        }
        let now = merged(
            &state.borrow_and_update(),
            &wanted.broken,
            &conflicts.borrow(),
        );
        sessions.send_if_modified(|told| {
            let news = *told != now;
            *told = now;
            news
        });
    }
}

fn tell(conflicts: &[String]) {
    conflicts
        .iter()
        .for_each(|conflict| tracing::warn!(conflict, "address pools do not agree"));
}

/// Sessions, those that cannot even be tried, and what is wrong with the routes of those that have
/// no other trouble.
fn merged(sessions: &[Session], broken: &[Session], conflicts: &[String]) -> Vec<Session> {
    let mut all: Vec<Session> = sessions.iter().chain(broken).cloned().collect();
    all.sort_by(|one, other| one.peer.cmp(&other.peer));
    if let Some(conflict) = conflicts.first() {
        all.iter_mut()
            .filter(|one| one.trouble.is_empty())
            .for_each(|one| one.trouble.clone_from(conflict));
    }
    all
}

/// Policies of pools, each only once however many addresses have it.
#[derive(Default)]
struct Policies(BTreeSet<Arc<Policy>>);

impl Policies {
    fn routes(&mut self, changes: RouteChanges) -> Vec<Route> {
        let policy =
            |(address, pool): (IpAddr, Option<Arc<PoolBgp>>)| Some((address, self.of(&*pool?)));
        changes.into_iter().filter_map(policy).collect()
    }

    fn apply(&mut self, speaker: &Speaker, changes: RouteChanges) {
        for (address, pool) in changes {
            speaker.set_address(
                address,
                pool.map(|pool| self.of(&pool)).into_iter().collect(),
            );
        }
        self.0.retain(|policy| Arc::strong_count(policy) > 1);
    }

    fn of(&mut self, pool: &PoolBgp) -> Arc<Policy> {
        let policy = Arc::new(policy(pool));
        if let Some(known) = self.0.get(&policy) {
            return Arc::clone(known);
        }
        self.0.insert(Arc::clone(&policy));
        policy
    }
}

fn policy(pool: &PoolBgp) -> Policy {
    let mut communities = Communities::default();
    for text in &pool.communities {
        match Communities::parse([text.as_str()]) {
            Ok(good) => communities.add(&good),
            Err(error) => tracing::error!(%error, "addresses are announced without it"),
        }
    }
    Policy {
        attributes: Arc::new(Attributes {
            communities,
            local_preference: pool.local_preference,
        }),
        aggregation_v4: pool.aggregation_length,
        aggregation_v6: pool.aggregation_length_v6,
        peers: pool.peers.iter().cloned().collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_is_kept_once_and_as_long_as_it_is_used() {
        let mut policies = Policies::default();
        let pool = PoolBgp {
            communities: vec!["64512:1".into(), "what?".into()],
            ..PoolBgp::default()
        };
        let (one, other) = (policies.of(&pool), policies.of(&pool.clone()));
        assert!(Arc::ptr_eq(&one, &other));
        assert_eq!(one.attributes.communities.small.len(), 1);
        assert_eq!((one.aggregation_v4, one.aggregation_v6), (32, 128));
    }

    #[test]
    fn what_cannot_be_tried_is_told_beside_the_sessions() {
        let session = |peer: &str, trouble: &str| Session {
            peer: peer.into(),
            established: true,
            routes: 1,
            trouble: trouble.into(),
        };
        let all = merged(
            &[session("b", ""), session("c", "down")],
            &[session("a", "no Secret")],
            &["conflict".into()],
        );
        let told: Vec<_> = all
            .iter()
            .map(|one| (one.peer.as_str(), one.trouble.as_str()))
            .collect();
        assert_eq!(told, [("a", "no Secret"), ("b", "conflict"), ("c", "down")]);
    }
}
