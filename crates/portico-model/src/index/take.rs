//! Rebuilds what was touched and says what changed.

use super::build::{ClaimedWith, Parts, claims};
use super::node::Here;
use super::parse::report;
use super::partitions::Overlap;
use super::services::ServiceRecord;
use super::{Index, Problem, Update};
use crate::announce::Announceable;
use crate::key::ObjectKey;
use crate::table::{Change, Claims, Family, HealthCheck, NodeRules, PortKey, ServicePort};
use std::mem;
use std::sync::Arc;

impl Index {
    /// Rebuild what was touched and say what changed. Equal pairs vanish.
    pub fn take(&mut self) -> Update {
        let mut update = Update::default();
        let pods_changed = self.pods.take_changed();
        if pods_changed {
            self.take_pods();
        }
        if self.node.take_changed() || pods_changed {
            update.partitions = self.take_division();
            update.rules = self.take_rules();
            update.eligible = self.take_eligible();
        }
        self.change_claims();
        let mut dirty = mem::take(&mut self.dirty);
        dirty.sort_unstable();
        dirty.dedup();
        for name in &dirty {
            self.rebuild(name, &mut update);
        }
        update.changes.sort_unstable_by(|a, b| a.key.cmp(&b.key));
        update.problems = mem::take(&mut self.problems);
        update
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "what is dirty is sorted before it is looked at"
    )]
    fn take_rules(&mut self) -> bool {
        let here = self.node.here();
        if here != self.here {
            self.claim_again(&here);
            self.here = here;
            self.dirty.extend(self.services.keys().cloned());
        }
        let rules = NodeRules {
            dmz: self.access.dmz_pods(),
            ..self.node.rules(&self.division)
        };
        let changed = rules != self.table.rules;
        self.table.rules = rules;
        changed
    }

    /// Services that other pods may use than before are rebuilt.
    fn take_pods(&mut self) {
        let access = self.pods.access();
        let touched = self
            .narrow
            .iter()
            .filter(|service| !access.is_same_for(&self.access, &service.namespace));
        self.dirty.extend(touched.cloned());
        self.access = access;
    }

    /// Services whose node ports answer on other addresses than before claim anew.
    fn take_division(&mut self) -> bool {
        let (division, overlaps) = self.node.divide();
        self.report_overlaps(&overlaps);
        self.overlaps = overlaps;
        if division == *self.division {
            return false;
        }
        let before = mem::replace(&mut self.division, Arc::new(division));
        let touched = |record: &ServiceRecord| {
            let selection = record.selection.as_ref();
            selection.is_some_and(|selection| !before.is_same_for(selection, &self.division))
        };
        let touched = self.records_where(touched);
        self.dirty
            .extend(touched.iter().map(|(name, _)| name.clone()));
        self.replaced.extend(touched);
        let changed = self.table.partitions != self.division.partitions;
        self.table.partitions.clone_from(&self.division.partitions);
        changed
    }

    fn report_overlaps(&mut self, overlaps: &[Overlap]) {
        for overlap in overlaps.iter().filter(|one| !self.overlaps.contains(one)) {
            let Overlap {
                address,
                owner,
                other,
            } = overlap;
            let problem = Problem {
                kind: "PortPartition",
                namespace: String::new(),
                name: other.to_string(),
                sentence: format!(
                    "{address} is in port partition {owner} as well, which is older, so node ports \
                     of {other} do not answer there; take it out of one of them"
                ),
            };
            report(&mut self.problems, problem);
        }
    }

    /// Services that are looked at again though they did not change, as `replaced` has them.
    #[expect(clippy::disallowed_methods, reason = "they are sorted")]
    fn records_where(
        &self,
        touched: impl Fn(&ServiceRecord) -> bool,
    ) -> Vec<(ObjectKey, Option<Box<ServiceRecord>>)> {
        let again = self.services.iter().filter_map(|(name, known)| {
            let record = known.record.as_deref().filter(|record| touched(record))?;
            Some((name.clone(), Some(Box::new(record.clone()))))
        });
        let mut again: Vec<_> = again.collect();
        again.sort_by(|(one, _), (other, _)| one.cmp(other));
        again
    }

    /// Services whose cluster IP was, or becomes, the node's own address claim anew.
    fn claim_again(&mut self, here: &Here) {
        for family in Family::BOTH {
            let (before, after) = (*self.here.own.get(family), *here.own.get(family));
            if before == after {
                continue;
            }
            let touched = |record: &ServiceRecord| {
                let cluster_ip = *record.cluster_ips.get(family);
                cluster_ip.is_some() && (cluster_ip == before || cluster_ip == after)
            };
            let again = self.records_where(touched);
            self.replaced.extend(again);
        }
    }

    fn take_eligible(&mut self) -> bool {
        let before = mem::replace(&mut self.eligible, self.node.eligible());
        before != self.eligible
    }

    /// Give up the frontends that Services no longer want, claim those that they want now, and
    /// rebuild the Services that gain or lose one by it.
    fn change_claims(&mut self) {
        let now = ClaimedWith {
            own: self.here.own,
            division: self.division.clone(),
        };
        let before = mem::replace(&mut self.claimed_with, now);
        if self.replaced.is_empty() {
            return;
        }
        let (mut released, mut claimed) = (Claims::default(), Claims::default());
        let mut replaced = mem::take(&mut self.replaced);
        // The order of one Service's stays, so that the first of them is kept.
        replaced.sort_by(|(a, _), (b, _)| a.cmp(b));
        replaced.dedup_by(|(later, _), (first, _)| later == first);
        for (name, old) in replaced {
            let new = self
                .services
                .get(&name)
                .and_then(|known| known.record.as_deref());
            let given_up = old
                .map(|record| claims(&name, &record, &before))
                .unwrap_or_default();
            let wanted = new
                .map(|record| claims(&name, record, &self.claimed_with))
                .unwrap_or_default();
            if given_up != wanted {
                released.extend(given_up);
                claimed.extend(wanted);
            }
        }
        let moved = self.table.frontends.exchange(released, claimed);
        self.dirty.extend(moved.services);
        moved
            .conflicts
            .iter()
            .for_each(|conflict| report(&mut self.problems, Problem::from(conflict)));
        moved
            .refusals
            .iter()
            .for_each(|refusal| report(&mut self.problems, Problem::from(refusal)));
    }

    fn rebuild(&mut self, name: &ObjectKey, update: &mut Update) {
        let known = self.services.get_mut(name);
        let is_there = known.as_ref().is_some_and(|known| known.record.is_some());
        let was_there = known.is_none_or(|known| mem::replace(&mut known.built, is_there));
        let known = self.services.get(name);
        let record = known.and_then(|known| known.record.as_deref());
        let slices = known.map_or(&[][..], |known| &known.slices);
        let parts = record.map(|record| Parts {
            name,
            record,
            slices,
            here: &self.here,
            access: &self.access,
            division: &self.division,
        });
        let ports = parts
            .as_ref()
            .map(|parts| parts.service_ports(&self.table.frontends))
            .unwrap_or_default();
        let health_check = parts.as_ref().and_then(Parts::health_check);
        let announceable = parts
            .as_ref()
            .filter(|_| self.announcing)
            .and_then(Parts::announceable);
        if known.is_some_and(|known| known.record.is_none() && known.slices.is_empty()) {
            self.services.remove(name);
        }
        if !is_there && !was_there {
            return;
        }
        self.replace_ports(name, ports, &mut update.changes);
        self.replace_health_check(name, health_check, update);
        self.replace_announceable(name, announceable, update);
    }

    fn replace_ports(
        &mut self,
        name: &ObjectKey,
        mut ports: Vec<(PortKey, ServicePort)>,
        changes: &mut Vec<Change>,
    ) {
        ports.sort_by(|(a, _), (b, _)| a.cmp(b));
        let is_gone = |key: &&PortKey| ports.binary_search_by(|(other, _)| other.cmp(key)).is_err();
        let known = self.table.ports.of(name).iter().map(|(key, _)| key);
        let gone: Vec<PortKey> = known.filter(is_gone).cloned().collect();
        for (key, port) in ports {
            let before = self.table.ports.get(&key);
            if before.is_none_or(|before| **before != port) {
                let after = Arc::new(port);
                let before = self.table.ports.insert(key.clone(), after.clone());
                changes.push(Change {
                    key,
                    before,
                    after: Some(after),
                });
            }
        }
        for key in gone {
            let before = self.table.ports.remove(&key);
            changes.push(Change {
                key,
                before,
                after: None,
            });
        }
    }

    fn replace_health_check(
        &mut self,
        name: &ObjectKey,
        wanted: Option<HealthCheck>,
        update: &mut Update,
    ) {
        if self.health_checks.get(name) == wanted.as_ref() {
            return;
        }
        match &wanted {
            Some(wanted) => self.health_checks.insert(name.clone(), wanted.clone()),
            None => self.health_checks.remove(name),
        };
        update.health_checks.push((name.clone(), wanted));
    }

    fn replace_announceable(
        &mut self,
        name: &ObjectKey,
        wanted: Option<Announceable>,
        update: &mut Update,
    ) {
        if self.announceables.get(name).map(Arc::as_ref) == wanted.as_ref() {
            return;
        }
        let wanted = wanted.map(Arc::new);
        match &wanted {
            Some(wanted) => self.announceables.insert(name.clone(), wanted.clone()),
            None => self.announceables.remove(name),
        };
        update.announceables.push((name.clone(), wanted));
    }
}
