//! Everything the controller knows: objects as they come in, what was done about each Service, and
//! what to do next.
//!
//! Nothing here waits or sends: the driver does what [`State::next`] says and tells how it ended.

mod notes;
mod objects;
mod steps;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use portico_model::report::NodePortReach;

use super::judge::{self, Judgement, View};
use super::memory::Memory;
use super::nodes::Nodes;
use super::reports::Reports;
use super::service::{Facts, Selection, Surroundings};
use super::slices::Slices;
use crate::provider::{Abilities, Endpoint, Node, Request};
use portico_model::key::ObjectKey;

pub(super) use notes::{Note, OWNER_CHANGED};
pub(super) use steps::{Call, Called, Step, Write};

pub(super) struct State {
    pub surroundings: Surroundings,
    provider: String,
    abilities: Abilities,
    /// How often what is made is compared with what should be.
    resync: Duration,
    services: BTreeMap<ObjectKey, Entry>,
    /// By the resource version that nodes have to have installed.
    by_version: BTreeSet<(u64, ObjectKey)>,
    nodes: Nodes,
    slices: Slices,
    reports: Reports,
    /// Nodes with addresses in port partitions, and where their node ports answer.
    divided: BTreeMap<String, NodePortReach>,
    /// The fit nodes with their addresses in a partition or in none, as they were asked for.
    nodes_in: RefCell<NodesIn>,
    /// What the reports last said, as far as it is the same for all Services.
    heard: ReportSummary,
    touched: Touched,
    notes: Vec<Note>,
}

/// Nodes by the port partition that their addresses are in.
type NodesIn = BTreeMap<Option<Arc<str>>, Arc<[Node]>>;

/// Services to look at.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Touched {
    /// The provider may have to be called.
    pub syncs: BTreeSet<ObjectKey>,
    /// Conditions may have changed.
    pub conditions: BTreeSet<ObjectKey>,
    /// Nothing is left to do for them.
    pub gone: BTreeSet<ObjectKey>,
}

struct Entry {
    /// `None`: it is gone, and its load balancer is not.
    facts: Option<Arc<Facts>>,
    version: u64,
    since: Instant,
    memory: Memory,
    run: Run,
    /// Load balancers of Services that are gone although their finalizer was never removed here.
    orphans: Vec<Arc<Request>>,
    /// When conditions were last written.
    told: Option<Instant>,
    /// The nodes that answered for its addresses when they were last looked at, and since when.
    owners: BTreeMap<IpAddr, Owned>,
}

/// Who answers for an address, as people were last told.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Owned {
    node: String,
    since: String,
}

/// What happened since the work on a Service began.
#[derive(Default)]
struct Run {
    /// A call failed: no other follows.
    failed: bool,
    /// A write failed, and how to go on.
    write_failed: Option<crate::queue::End>,
    writes: u32,
    /// What the call under way asks for.
    asked: Option<steps::Asked>,
    /// Whether an Event has said that it is being ensured.
    ensuring: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct ReportSummary {
    /// Every node has at least this version. `None`: no node reports.
    floor: Option<u64>,
    /// The nodes that announce addresses, and whether at layer 2 and by BGP.
    announcers: Vec<(String, bool, bool)>,
}

impl Entry {
    fn new(now: Instant) -> Self {
        Self {
            facts: None,
            version: 0,
            since: now,
            memory: Memory::default(),
            run: Run::default(),
            orphans: Vec::new(),
            told: None,
            owners: BTreeMap::new(),
        }
    }
}

impl State {
    pub(super) fn new(
        surroundings: Surroundings,
        provider: &str,
        abilities: Abilities,
        resync: Duration,
    ) -> Self {
        Self {
            surroundings,
            provider: provider.to_owned(),
            abilities,
            resync,
            services: BTreeMap::new(),
            by_version: BTreeSet::new(),
            nodes: Nodes::default(),
            slices: Slices::default(),
            reports: Reports::default(),
            divided: BTreeMap::new(),
            nodes_in: RefCell::default(),
            heard: ReportSummary::default(),
            touched: Touched::default(),
            notes: Vec::new(),
        }
    }

    /// The Services to look at since the last call.
    pub(super) fn take_touched(&mut self) -> Touched {
        mem::take(&mut self.touched)
    }

    /// What people should be told since the last call.
    pub(super) fn take_notes(&mut self) -> Vec<Note> {
        mem::take(&mut self.notes)
    }

    pub(super) fn services(&self) -> usize {
        self.services.len()
    }

    /// When something is due although no input comes.
    pub(super) fn next_deadline(&self, now: Instant) -> Option<Instant> {
        self.reports.next_deadline(now)
    }

    /// Notes that something became free at the provider.
    pub(super) fn freed(&mut self) {
        let refused = self.services.iter().filter(|(_, entry)| {
            entry
                .memory
                .trouble
                .as_ref()
                .is_some_and(super::memory::Trouble::is_refused)
        });
        self.touched
            .syncs
            .extend(refused.map(|(key, _)| key.clone()));
    }

    /// Notes that what the provider can give has changed, so that every Service is ensured again.
    pub(super) fn ensure_all(&mut self) {
        for (key, entry) in &mut self.services {
            entry.memory.ensure_again = true;
            self.touched.syncs.insert(key.clone());
        }
    }

    /// The changes of nodes in the last moments count now. The Services whose load balancers have
    /// to know of them.
    pub(super) fn settle_nodes(&mut self, now: Instant) -> Vec<ObjectKey> {
        let outdated = match self.nodes.settle() {
            true => self.nodes_changed(),
            false => Vec::new(),
        };
        // Who reports and who is fit depends on them; most conditions do not.
        self.hear(now);
        self.touched
            .conditions
            .extend(self.services.keys().cloned());
        outdated
    }

    /// The Services whose load balancers have to know of it.
    fn nodes_changed(&mut self) -> Vec<ObjectKey> {
        self.nodes_in.get_mut().clear();
        if !self.abilities.uses_nodes {
            return Vec::new();
        }
        let services = self
            .services
            .iter()
            .filter(|(_, entry)| self.has_other_nodes(entry));
        let outdated: Vec<ObjectKey> = services.map(|(key, _)| key.clone()).collect();
        self.touched.syncs.extend(outdated.iter().cloned());
        outdated
    }

    fn has_other_nodes(&self, entry: &Entry) -> bool {
        let (Some(facts), Some(made)) = (&entry.facts, &entry.memory.made) else {
            return false;
        };
        made.nodes != self.nodes_of(facts)
    }

    /// The nodes that a provider is told for a Service. One that asks nodes for their health leaves
    /// out the wrong ones by itself.
    fn nodes_of(&self, facts: &Facts) -> Arc<[Node]> {
        let request = &facts.request;
        match () {
            () if !self.abilities.uses_nodes => Arc::default(),
            () if request.local && request.health_check.is_none() => {
                let served = self.slices.served(&facts.key);
                let fit = self.selected_nodes(&facts.selection);
                let serving = fit
                    .iter()
                    .filter(|node| served.nodes.contains(node.name.as_str()));
                serving.cloned().collect()
            }
            () => self.selected_nodes(&facts.selection),
        }
    }

    /// Those that are fit and on which the Service's node ports answer, with the addresses on which
    /// they do.
    fn selected_nodes(&self, selection: &Selection) -> Arc<[Node]> {
        if self.divided.is_empty() && *selection == Selection::default() {
            return Arc::clone(self.nodes.fit());
        }
        let select = || -> Arc<[Node]> {
            let fit = self.nodes.fit().iter();
            fit.filter_map(|node| selection.of_node(node, self.reports.reach(&node.name)))
                .collect()
        };
        if !selection.selects_no_addresses() {
            return select();
        }
        let mut known = self.nodes_in.borrow_mut();
        Arc::clone(
            known
                .entry(selection.partition.clone())
                .or_insert_with(select),
        )
    }

    fn endpoints_of(&self, key: &ObjectKey) -> Arc<[Endpoint]> {
        match self.abilities.uses_endpoints {
            true => self.slices.endpoints(key).into(),
            false => Arc::default(),
        }
    }

    fn judge(&self, entry: &Entry, facts: &Facts, now: Instant) -> Judgement {
        judge::judge(&self.view(entry, facts, now))
    }

    fn view<'a>(&'a self, entry: &'a Entry, facts: &'a Facts, now: Instant) -> View<'a> {
        View {
            facts,
            memory: &entry.memory,
            provider: &self.provider,
            abilities: self.abilities,
            served: self.slices.served(&facts.key),
            nodes: &self.nodes,
            reports: &self.reports,
            version: entry.version,
            since: entry.since,
            now,
        }
    }
}

#[cfg(test)]
mod tests;
