//! Rebuilds what was touched and says what changed.

use super::build::{Parts, claims};
use super::node::Here;
use super::parse::report;
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
            ..self.node.rules()
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
            #[expect(clippy::disallowed_methods, reason = "it is sorted before it is used")]
            let again = self.services.iter().filter_map(|(name, known)| {
                let record = known.record.as_deref().filter(|record| touched(record))?;
                Some((name.clone(), Some(Box::new(record.clone()))))
            });
            let mut again: Vec<_> = again.collect();
            again.sort_by(|(one, _), (other, _)| one.cmp(other));
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
        if self.replaced.is_empty() {
            self.claimed_with = self.here.own;
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
            let before = old
                .map(|record| claims(&name, &record, &self.claimed_with))
                .unwrap_or_default();
            let after = new
                .map(|record| claims(&name, record, &self.here.own))
                .unwrap_or_default();
            if before != after {
                released.extend(before);
                claimed.extend(after);
            }
        }
        self.claimed_with = self.here.own;
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
        match wanted {
            Some(wanted) => self.health_checks.insert(name.clone(), wanted),
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
