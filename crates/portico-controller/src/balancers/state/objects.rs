//! Objects in: what a change of each kind touches.

use portico_view::key_of;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;

use super::{Entry, ReportSummary, State};
use crate::balancers::reports::Changed;
use crate::balancers::service::{Claim, Facts};
use crate::provider::Host;
use portico_model::key::ObjectKey;

impl State {
    /// A Service is there, or changed: from the watch or in the answer to a write.
    pub(crate) fn apply_service(&mut self, service: &Service, now: Instant) {
        let key = key_of(&service.metadata);
        let known = self.services.get(&key);
        let before = known.and_then(|entry| entry.facts.clone());
        // Most changes are own writes, which the watch shows after their answer came.
        if before
            .as_ref()
            .is_some_and(|before| before.is_not_older(&service.metadata))
        {
            return;
        }
        let facts = Arc::new(Facts::of(service, &self.surroundings));
        if known.is_none() && facts.claim == Claim::NotOurs {
            return;
        }
        if before
            .as_ref()
            .is_some_and(|before| before.uid() != facts.uid())
        {
            self.lost(&key);
        }
        let same = before.filter(|before| before.uid() == facts.uid());
        let entry = self
            .services
            .entry(key.clone())
            .or_insert_with(|| Entry::new(now));
        let forwards_the_same = same.as_ref().is_some_and(|before| {
            before.request == facts.request
                && before.ingress == facts.ingress
                && before.selection == facts.selection
        });
        let calls_for_the_same = forwards_the_same
            && same
                .as_ref()
                .is_some_and(|before| before.claim == facts.claim && before.held == facts.held);
        if !forwards_the_same {
            self.by_version.remove(&(entry.version, key.clone()));
            self.by_version.insert((facts.version, key.clone()));
            (entry.version, entry.since) = (facts.version, now);
        }
        entry.facts = Some(facts);
        if !calls_for_the_same {
            self.touched.syncs.insert(key.clone());
        }
        self.touched.conditions.insert(key.clone());
        self.drop_if_done(&key);
    }

    pub(crate) fn delete_service(&mut self, key: &ObjectKey) {
        self.lost(key);
        self.drop_if_done(key);
    }

    /// A list had none but these.
    pub(crate) fn retain_services(&mut self, listed: &BTreeSet<ObjectKey>) {
        let gone: Vec<ObjectKey> = self
            .services
            .keys()
            .filter(|key| !listed.contains(*key))
            .cloned()
            .collect();
        gone.iter().for_each(|key| self.delete_service(key));
    }

    /// The Service is gone. What was made for it, and not deleted, is still to be.
    fn lost(&mut self, key: &ObjectKey) {
        let Some(entry) = self.services.get_mut(key) else {
            return;
        };
        let facts = entry.facts.take();
        let memory = std::mem::take(&mut entry.memory);
        // A call under way may make something yet.
        if memory.made.is_some() || entry.run.asked.is_some() {
            entry
                .orphans
                .extend(facts.map(|facts| Arc::clone(&facts.request)));
            self.touched.syncs.insert(key.clone());
        }
    }

    /// Forgets a Service that is neither ours nor has anything of ours.
    pub(super) fn drop_if_done(&mut self, key: &ObjectKey) {
        let Some(entry) = self.services.get(key) else {
            return;
        };
        let ours = entry
            .facts
            .as_ref()
            .is_some_and(|facts| facts.claim != Claim::NotOurs);
        if !ours
            && entry.memory.made.is_none()
            && entry.run.asked.is_none()
            && entry.orphans.is_empty()
        {
            self.by_version.remove(&(entry.version, key.clone()));
            self.services.remove(key);
            self.touched.syncs.remove(key);
            self.touched.conditions.remove(key);
            self.touched.gone.insert(key.clone());
        }
    }

    /// Says whether a pass over the nodes is due.
    pub(crate) fn apply_node(&mut self, node: &Node) -> bool {
        self.nodes.apply(node)
    }

    pub(crate) fn delete_node(&mut self, name: &str) -> bool {
        self.nodes.delete(name)
    }

    pub(crate) fn retain_nodes(&mut self, listed: &BTreeSet<ObjectKey>) -> bool {
        self.nodes
            .retain(|name| listed.contains(&ObjectKey::new("", name)))
    }

    pub(crate) fn apply_slice(&mut self, slice: &EndpointSlice) {
        let services = self.slices.apply(slice);
        self.endpoints_changed(services);
    }

    pub(crate) fn delete_slice(&mut self, key: &ObjectKey) {
        let services = self.slices.delete(key);
        self.endpoints_changed(services.into_iter().collect());
    }

    pub(crate) fn retain_slices(&mut self, listed: &BTreeSet<ObjectKey>) {
        let services = self.slices.retain(|key| listed.contains(key));
        self.endpoints_changed(services);
    }

    fn endpoints_changed(&mut self, services: Vec<ObjectKey>) {
        for key in services {
            let Some(entry) = self.services.get(&key) else {
                continue;
            };
            let Some(facts) = entry.facts.as_ref() else {
                continue;
            };
            let follows = facts.request.local && facts.request.health_check.is_none();
            let made = entry.memory.made.as_ref();
            let outdated = made.is_some_and(|made| {
                self.abilities.uses_endpoints && made.endpoints != self.endpoints_of(&key)
                    || self.abilities.uses_nodes && follows && made.nodes != self.nodes_of(facts)
            });
            if outdated {
                self.touched.syncs.insert(key.clone());
            }
            self.touched.conditions.insert(key);
        }
    }

    pub(crate) fn apply_report(&mut self, lease: &Lease, now: Instant, clock: Timestamp) {
        let changed = self.reports.apply(lease, now, clock);
        self.reach_changed();
        self.reports_changed(&changed);
        self.hear(now);
    }

    pub(crate) fn delete_report(&mut self, lease: &str, now: Instant) {
        let changed = self.reports.delete(lease);
        self.reach_changed();
        self.reports_changed(&changed);
        self.hear(now);
    }

    pub(crate) fn retain_reports(&mut self, listed: &BTreeSet<ObjectKey>, now: Instant) {
        let missing = self
            .reports
            .missing(|lease| listed.iter().any(|key| &*key.name == lease));
        for lease in missing {
            self.delete_report(&lease, now);
        }
    }

    /// Time has passed.
    pub(crate) fn tick(&mut self, now: Instant) {
        self.hear(now);
    }

    /// Load balancers send only to addresses on which node ports answer.
    fn reach_changed(&mut self) {
        let divided = self.reports.divided();
        if divided != self.divided {
            self.divided = divided;
            self.nodes_changed();
        }
    }

    fn reports_changed(&mut self, changed: &Changed) {
        let keys = changed.services.iter();
        let keys = keys.filter_map(|name| name.split_once('/'));
        let keys = keys.map(|(namespace, name)| ObjectKey::new(namespace, name));
        self.touched
            .conditions
            .extend(keys.filter(|key| self.services.contains_key(key)));
        if !changed.addresses.is_empty() {
            let has_one = |facts: &Arc<Facts>| {
                let hosts = facts.ingress.iter().map(|ingress| &ingress.host);
                hosts
                    .into_iter()
                    .any(|host| matches!(host, Host::Ip(ip) if changed.addresses.contains(ip)))
            };
            let moved = self
                .services
                .iter()
                .filter(|(_, entry)| entry.facts.as_ref().is_some_and(has_one));
            self.touched
                .conditions
                .extend(moved.map(|(key, _)| key.clone()));
        }
    }

    /// Touch the Services for which the reports now say something else.
    pub(super) fn hear(&mut self, now: Instant) {
        let alive = self
            .reports
            .alive(now)
            .filter(|(name, _)| self.nodes.exists(name));
        let mut heard = ReportSummary::default();
        for (name, node) in alive {
            heard.floor = Some(
                heard
                    .floor
                    .map_or(node.installed, |floor| floor.min(node.installed)),
            );
            if node.answers() || node.peers() {
                heard
                    .announcers
                    .push((name.to_owned(), node.answers(), node.peers()));
            }
        }
        let before = std::mem::replace(&mut self.heard, heard);
        match (before.floor, self.heard.floor) {
            _ if before.announcers != self.heard.announcers => self.touch_all_conditions(),
            (Some(before), Some(after)) => self.touch_between(before, after),
            (None, None) => {}
            _ => self.touch_all_conditions(),
        }
    }

    fn touch_between(&mut self, one: u64, other: u64) {
        let (low, high) = (one.min(other), one.max(other));
        let start = (low.saturating_add(1), ObjectKey::new("", ""));
        let end = (high.saturating_add(1), ObjectKey::new("", ""));
        if start < end {
            self.touched.conditions.extend(
                self.by_version
                    .range(start..end)
                    .map(|(_, key)| key.clone()),
            );
        }
    }

    fn touch_all_conditions(&mut self) {
        self.touched
            .conditions
            .extend(self.services.keys().cloned());
    }
}
