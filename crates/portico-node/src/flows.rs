//! Ends flows in the connection tracker whose endpoint is gone, at once or, where no other endpoint
//! could serve them, after a while.

use crate::sync::{Ended, Flows};
use portico_dataplane::conntrack::{ABANDONED_AFTER, Conntrack, Stale, check, plan};
use portico_model::table::{Change, ForwardingTable, PortKey};
use std::collections::VecDeque;
use std::io;
use std::time::Instant;

/// The connection tracker of this node.
pub(crate) struct Tracker {
    /// `None` where it cannot be reached; told once.
    conntrack: Option<Conntrack>,
    /// Ports that lost their last endpoint, in the order in which they are due. One port may be in
    /// it several times.
    abandoned: VecDeque<(Instant, Vec<PortKey>)>,
}

impl Tracker {
    /// Opens the connection tracker of the calling thread's network namespace.
    pub(crate) fn open() -> Self {
        let opened = Conntrack::open();
        if let Err(error) = &opened {
            tracing::warn!(%error, "the connection tracker cannot be reached: UDP flows outlive their endpoints");
        }
        Self {
            conntrack: opened.ok(),
            abandoned: VecDeque::new(),
        }
    }

    fn end(&mut self, stale: &Stale) -> io::Result<Ended> {
        let Some(conntrack) = self.conntrack.as_mut().filter(|_| !stale.is_empty()) else {
            return Ok(Ended::default());
        };
        conntrack
            .end(stale)
            .inspect_err(|error| tracing::warn!(%error, "cannot end flows whose endpoint is gone"))
    }
}

impl Flows for Tracker {
    fn changed(&mut self, changes: &[Change], table: &ForwardingTable, now: Instant) -> Ended {
        let mut stale = plan(changes, &table.rules);
        let abandoned = std::mem::take(&mut stale.abandoned);
        if !abandoned.is_empty() {
            self.abandoned.push_back((now + ABANDONED_AFTER, abandoned));
        }
        self.end(&stale).unwrap_or_default()
    }

    fn check(&mut self, table: &ForwardingTable) -> Ended {
        self.end(&check(table, table.ports.keys()))
            .unwrap_or_default()
    }

    fn check_due(&mut self, table: &ForwardingTable, now: Instant) -> Ended {
        // Together: however many they are, all flows are looked at once.
        let count = self.abandoned.partition_point(|(due, _)| *due <= now);
        let mut due: Vec<PortKey> = self
            .abandoned
            .drain(..count)
            .flat_map(|(_, ports)| ports)
            .collect();
        due.sort_unstable();
        due.dedup();
        self.end(&check(table, &due)).unwrap_or_else(|_| {
            self.abandoned.push_back((now + ABANDONED_AFTER, due));
            Ended::default()
        })
    }

    fn due(&self) -> Option<Instant> {
        self.abandoned.front().map(|(due, _)| *due)
    }
}
