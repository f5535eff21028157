//! How far the kernel is: the resource versions up to which everything is installed, and what of it
//! is not.

use crate::objects::Kind;
use crate::report::Installed;
use portico_dataplane::ApplyError;
use portico_model::index::{Index, Update};
use portico_model::report::{Behind, MOST_BEHIND};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// The time between two looks for conflicts, which there may be many of.
const LOOK: Duration = Duration::from_millis(500);

#[derive(Default)]
pub(super) struct Reporting {
    services: Option<u64>,
    slices: Option<u64>,
    behind: Vec<Behind>,
    more_behind: usize,
    trouble: String,
    /// Whether a change is to be reported at once.
    awaited: bool,
    /// Frontends that two Services want may have come or gone.
    look: bool,
    looked: Option<Instant>,
}

impl Reporting {
    /// All of a kind has come in up to this version.
    pub(super) fn reached(&mut self, kind: Kind, version: u64) {
        match kind {
            Kind::Service => self.services = Some(version),
            Kind::Slice => self.slices = Some(version),
            Kind::Node | Kind::Cidr | Kind::Pod | Kind::Partition => {}
        }
    }

    /// A load balancer's condition says on how many nodes it is live, so that is told before other
    /// changes, where they have to wait.
    pub(super) fn is_awaited(&mut self) {
        self.awaited = true;
    }

    pub(super) fn changed(&mut self, update: &Update) {
        let may_end = !self.behind.is_empty() && !update.changes.is_empty();
        // A Service may wait for a port partition that has no address here.
        self.look |= may_end
            || update.partitions
            || update
                .problems
                .iter()
                .any(|problem| problem.kind == "Service");
    }

    pub(super) fn failed(&mut self, error: &ApplyError) {
        self.trouble = error.to_string();
    }

    /// When there is something to look for though nothing comes in.
    pub(super) fn due(&self) -> Option<Instant> {
        self.looked
            .filter(|_| self.look)
            .map(|looked| looked + LOOK)
    }

    /// A step is over; `done` if the kernel has everything that came in.
    pub(super) fn tell(
        &mut self,
        report: &watch::Sender<Option<Installed>>,
        done: bool,
        index: &Index,
        now: Instant,
    ) {
        if done {
            self.trouble.clear();
        }
        if self.look && self.looked.is_none_or(|looked| looked + LOOK <= now) {
            self.look_for_conflicts(index);
            (self.look, self.looked) = (false, Some(now));
        }
        // What is of no interest by itself is there for the next report.
        report.send_if_modified(|told| {
            let first = told.is_none();
            // Before the first table is in, there is nothing to tell.
            let (Some(services), Some(slices)) = (self.services, self.slices) else {
                return false;
            };
            if first && !done {
                return false;
            }
            let told = told.get_or_insert_default();
            let (mut changed, mut awaited) = (first, first);
            if done {
                // The version comes after the object.
                let is_newer = told.services != services;
                changed |= is_newer;
                awaited |= is_newer && std::mem::take(&mut self.awaited);
                (told.services, told.slices) = (services, slices);
                let node_ports = index.node_port_networks();
                let partitions = index.partition_networks();
                awaited |= told.node_ports != node_ports || told.partitions != partitions;
                (told.node_ports, told.partitions) = (node_ports, partitions);
            }
            if told.trouble != self.trouble
                || told.behind != self.behind
                || told.more_behind != self.more_behind
            {
                told.trouble.clone_from(&self.trouble);
                told.behind.clone_from(&self.behind);
                told.more_behind = self.more_behind;
                awaited = true;
            }
            told.awaited += u64::from(awaited);
            changed || awaited
        });
    }

    fn look_for_conflicts(&mut self, index: &Index) {
        let frontends = &index.table().frontends;
        let mut losers = BTreeMap::new();
        for conflict in frontends.conflicts() {
            losers
                .entry(conflict.loser.service.to_string())
                .or_insert_with(|| conflict.to_string());
        }
        for refusal in frontends.refusals() {
            losers
                .entry(refusal.key.service.to_string())
                .or_insert_with(|| refusal.to_string());
        }
        for problem in index.without_pods() {
            losers
                .entry(format!("{}/{}", problem.namespace, problem.name))
                .or_insert(problem.sentence);
        }
        self.more_behind = losers.len().saturating_sub(MOST_BEHIND);
        let behind = losers.into_iter().take(MOST_BEHIND);
        self.behind = behind
            .map(|(service, reason)| Behind { service, reason })
            .collect();
    }
}
