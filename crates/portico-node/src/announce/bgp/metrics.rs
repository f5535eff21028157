//! What is counted of BGP sessions.

use portico_client::metrics::Show;
use portico_model::report::Session;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub(super) struct OfPeer {
    peer: String,
}

/// The metrics of BGP sessions.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    up: Family<OfPeer, Gauge>,
    routes: Family<OfPeer, Gauge>,
    pub(super) updates_sent: Family<OfPeer, Counter>,
    pub(super) updates_received: Family<OfPeer, Counter>,
    pub(super) sessions: Family<OfPeer, Counter>,
    pub(super) failures: Family<OfPeer, Counter>,
}

pub(super) fn of(peer: &str) -> OfPeer {
    OfPeer {
        peer: peer.to_owned(),
    }
}

impl Metrics {
    /// Adds them to the registry.
    pub fn register(&self, registry: &mut Registry) {
        let bgp = registry.sub_registry_with_prefix("bgp");
        bgp.show(
            "session_up",
            "Whether there is a session with the router",
            self.up.clone(),
        );
        bgp.show(
            "announced_routes",
            "Routes that the router has been told",
            self.routes.clone(),
        );
        bgp.show(
            "updates_sent",
            "Messages with routes to the router",
            self.updates_sent.clone(),
        );
        bgp.show(
            "updates_received",
            "Messages with routes from the router",
            self.updates_received.clone(),
        );
        bgp.show(
            "sessions",
            "Sessions that came to be",
            self.sessions.clone(),
        );
        bgp.show(
            "failures",
            "Sessions that ended or did not come to be",
            self.failures.clone(),
        );
    }

    pub(super) fn session(&self, session: &Session) {
        self.up
            .get_or_create(&of(&session.peer))
            .set(session.established.into());
        self.routes
            .get_or_create(&of(&session.peer))
            .set(i64::try_from(session.routes).unwrap_or(i64::MAX));
    }

    pub(super) fn forget(&self, peer: &str) {
        let peer = of(peer);
        [&self.up, &self.routes]
            .iter()
            .for_each(|family| _ = family.remove(&peer));
        let counters = [
            &self.updates_sent,
            &self.updates_received,
            &self.sessions,
            &self.failures,
        ];
        counters.iter().for_each(|family| _ = family.remove(&peer));
    }
}
