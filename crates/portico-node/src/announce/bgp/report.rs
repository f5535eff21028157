//! How the sessions are: for the node's report, and as metrics.

use super::metrics::Metrics;
use portico_bgp::Status;
use portico_model::report::Session;
use std::sync::Arc;
use tokio::sync::watch;

/// The reports of all peers.
pub(super) struct Reports {
    sessions: watch::Sender<Vec<Session>>,
    metrics: Metrics,
}

impl Reports {
    pub(super) fn new(metrics: Metrics) -> Self {
        Self {
            sessions: watch::Sender::default(),
            metrics,
        }
    }

    pub(super) fn subscribe(&self) -> watch::Receiver<Vec<Session>> {
        self.sessions.subscribe()
    }

    /// A new session with a peer.
    pub(super) fn of(self: &Arc<Self>, peer: &str) -> Report {
        self.put(Session {
            peer: peer.to_owned(),
            ..Session::default()
        });
        Report {
            reports: Arc::clone(self),
            peer: peer.to_owned(),
        }
    }

    pub(super) fn forget(&self, peer: &str) {
        self.sessions
            .send_modify(|all| all.retain(|session| session.peer != peer));
        self.metrics.forget(peer);
    }

    fn put(&self, session: Session) {
        self.metrics.session(&session);
        self.sessions.send_if_modified(|all| {
            match all.binary_search_by(|have| have.peer.cmp(&session.peer)) {
                Ok(at) => all
                    .get_mut(at)
                    .is_some_and(|have| std::mem::replace(have, session.clone()) != session),
                Err(at) => {
                    all.insert(at, session);
                    true
                }
            }
        });
    }
}

/// The report of one peer.
pub(super) struct Report {
    reports: Arc<Reports>,
    peer: String,
}

impl Report {
    pub(super) fn status(&self, status: Status) {
        let Status {
            established,
            routes,
            trouble,
            ..
        } = status;
        self.reports.put(Session {
            peer: self.peer.clone(),
            established,
            routes,
            trouble,
        });
    }

    pub(super) fn metrics(&self) -> (&Metrics, &str) {
        (&self.reports.metrics, &self.peer)
    }
}
