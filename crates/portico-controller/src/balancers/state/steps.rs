//! What to do about a Service next, and what follows from how it ended.

use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use serde_json::Value;

use super::{Entry, Owned, State};
use crate::balancers::conditions::{Aspect, Difference, Verdict, Verdicts};
use crate::balancers::judge;
use crate::balancers::memory::{Kind, Made, Trouble};
use crate::balancers::patch;
use crate::balancers::service::{Claim, Facts};
use crate::provider::{Balancer, Endpoint, Host, IpMode, Node, ProviderError, Request};
use crate::queue::End;
use portico_model::key::ObjectKey;

/// A balancer that is on its way is looked at again.
const PENDING: Duration = Duration::from_secs(5);
/// Mere words of a condition are not written more often.
const NEWS: Duration = Duration::from_secs(5);
/// Writes for one Service in a row; more mean that another program keeps changing it back.
const MOST_WRITES: u32 = 4;
/// After such a quarrel.
const QUARREL: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub(crate) enum Step {
    Write(Write),
    Call(Call, Box<Request>),
    /// Nothing to do now.
    Rest(End),
}

/// Whether the addresses of a Service are where they were.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owners {
    Same,
    Moved,
}

/// A patch of the status of a Service.
#[derive(Debug)]
pub(crate) struct Write {
    pub what: &'static str,
    pub patch: Value,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Call {
    Ensure,
    UpdateNodes,
    /// The same as `Ensure`, with everything looked at: another program may have changed something.
    Resync,
    Delete,
    /// Delete the load balancer of a Service that is gone.
    DeleteOrphan,
}

/// How a call ended: what there is now, if it says so.
pub(crate) type Called = Result<Option<Balancer>, ProviderError>;

impl State {
    /// The work on a Service begins.
    pub(crate) fn begin(&mut self, key: &ObjectKey) {
        if let Some(entry) = self.services.get_mut(key) {
            entry.run = super::Run::default();
        }
    }

    /// What to do now for a Service that is worked on, with its provider.
    pub(crate) fn next(&mut self, key: &ObjectKey, now: Instant, clock: Timestamp) -> Step {
        let Some(entry) = self.services.get(key) else {
            return Step::Rest(End::Done);
        };
        if let Some(end) = entry.run.write_failed {
            return Step::Rest(end);
        }
        if let Some(orphan) = entry.orphans.last() {
            let request = Box::new(Request::clone(orphan));
            return if entry.run.failed {
                Step::Rest(End::Failed)
            } else {
                Step::Call(Call::DeleteOrphan, request)
            };
        }
        let Some(facts) = entry.facts.clone() else {
            return Step::Rest(End::Done);
        };
        match facts.claim {
            Claim::Wanted => self.next_wanted(key, &facts, now, clock),
            Claim::CleanUp | Claim::HandOver | Claim::NotOurs => {
                self.next_unwanted(key, &facts, now, clock)
            }
        }
    }

    fn next_wanted(
        &mut self,
        key: &ObjectKey,
        facts: &Facts,
        now: Instant,
        clock: Timestamp,
    ) -> Step {
        let Some(entry) = self.services.get(key) else {
            return Step::Rest(End::Done);
        };
        if !facts.held {
            let verdicts = self.judge(entry, facts, now).verdicts;
            let conditions = facts.conditions.patch(&verdicts, facts.generation, clock);
            return self.write(
                key,
                "hold",
                patch::hold(facts, &self.surroundings.ownership, &conditions),
                now,
            );
        }
        if self.is_elsewhere(entry, facts) {
            return Step::Rest(End::Done);
        }
        if let Some(call) = self.needed(entry, facts, now).filter(|_| !entry.run.failed) {
            return self.call(key, facts, call, now, clock);
        }
        if let Some(patch) = self.status(entry, facts, now, clock) {
            return self.write(key, "status", patch, now);
        }
        let memory = &entry.memory;
        Step::Rest(match &memory.trouble {
            Some(Trouble {
                kind: Kind::Waiting(after),
                ..
            }) => End::Again(*after),
            Some(_) => End::Failed,
            None if memory.is_pending() => End::Again(PENDING),
            None => End::Done,
        })
    }

    fn next_unwanted(
        &mut self,
        key: &ObjectKey,
        facts: &Facts,
        now: Instant,
        clock: Timestamp,
    ) -> Step {
        let Some(entry) = self.services.get(key) else {
            return Step::Rest(End::Done);
        };
        if !entry.memory.deleted && !entry.run.failed {
            return self.call(key, facts, Call::Delete, now, clock);
        }
        if entry.memory.deleted && facts.claim != Claim::NotOurs {
            return self.write(
                key,
                "release",
                patch::release(facts, &self.surroundings.ownership),
                now,
            );
        }
        if facts.claim == Claim::CleanUp
            && let Some(patch) = self.status(entry, facts, now, clock)
        {
            return self.write(key, "status", patch, now);
        }
        Step::Rest(match &entry.memory.trouble {
            Some(Trouble {
                kind: Kind::Waiting(after),
                ..
            }) => End::Again(*after),
            Some(_) => End::Failed,
            None => End::Done,
        })
    }

    /// What to write for a Service whose conditions may have changed, and when to look again. Its
    /// provider is not called.
    pub(crate) fn next_conditions(
        &mut self,
        key: &ObjectKey,
        now: Instant,
        clock: Timestamp,
    ) -> (Step, Option<Instant>) {
        let rest = |at| (Step::Rest(End::Done), at);
        let Some(entry) = self.services.get(key) else {
            return rest(None);
        };
        if let Some(end) = entry.run.write_failed {
            return (Step::Rest(end), None);
        }
        let Some(facts) = entry.facts.clone() else {
            return rest(None);
        };
        let written = entry
            .memory
            .made
            .as_ref()
            .is_none_or(|made| facts.shows(&made.balancer.ingress));
        // The first conditions come with the finalizer and the address.
        if facts.claim != Claim::Wanted
            || !facts.held
            || entry.memory.elsewhere.is_some()
            || !written
        {
            return rest(None);
        }
        let judgement = self.judge(entry, &facts, now);
        if let Some(wait) = judgement.wait {
            return rest(Some(wait));
        }
        let owners = self.look_for_owners(key, &facts, now);
        let Some(entry) = self.services.get(key) else {
            return rest(None);
        };
        match facts
            .conditions
            .differ(&judgement.verdicts, facts.generation)
        {
            Difference::None => return rest(None),
            Difference::Wording if !names_other_nodes(&facts, &judgement.verdicts) => {
                return rest(None);
            }
            // Who has an address is told at once.
            Difference::Wording if owners == Owners::Moved => {}
            Difference::Wording | Difference::News => {
                let due = entry.told.map_or(now, |told| told + NEWS);
                if due > now {
                    return rest(Some(due));
                }
            }
            Difference::Change => {}
        }
        let conditions = facts
            .conditions
            .patch(&judgement.verdicts, facts.generation, clock);
        (
            self.write(
                key,
                "conditions",
                patch::status(&facts, None, false, &conditions),
                now,
            ),
            None,
        )
    }

    /// Remembers who has the addresses of a Service, and tells people where that is another node.
    fn look_for_owners(&mut self, key: &ObjectKey, facts: &Facts, now: Instant) -> Owners {
        if !self.abilities.announced_by_nodes {
            return Owners::Same;
        }
        let Some(entry) = self.services.get(key) else {
            return Owners::Same;
        };
        let found = self.view(entry, facts, now).owners();
        let mut moved = Owners::Same;
        for owner in found {
            let Some(node) = &owner.node else { continue };
            let now = Owned {
                node: node.clone(),
                since: owner.since.clone(),
            };
            let Some(entry) = self.services.get_mut(key) else {
                break;
            };
            let before = entry.owners.insert(owner.address, now.clone());
            if before.as_ref() == Some(&now) {
                continue;
            }
            moved = Owners::Moved;
            if let Some(before) = before.filter(|before| before.node != now.node) {
                self.tell_move(key, &before.node, &owner);
            }
        }
        moved
    }

    fn is_elsewhere(&self, entry: &Entry, facts: &Facts) -> bool {
        !entry.memory.ensure_again && entry.memory.elsewhere.as_ref() == Some(&facts.request)
    }

    /// The call that makes the load balancer what is wanted.
    fn needed(&self, entry: &Entry, facts: &Facts, now: Instant) -> Option<Call> {
        let memory = &entry.memory;
        let Some(made) = &memory.made else {
            return Some(Call::Ensure);
        };
        match () {
            () if memory.ensure_again
                || memory.trouble.is_some()
                || made.request != facts.request =>
            {
                Some(Call::Ensure)
            }
            () if made.nodes != self.nodes_of(facts) => Some(Call::UpdateNodes),
            () if made.endpoints != self.endpoints_of(&facts.key) => Some(Call::UpdateNodes),
            () if memory.check.is_none_or(|check| check > now) => None,
            // It may be that a provider goes on only when it is asked to.
            () if memory.is_pending() => Some(Call::Ensure),
            () => Some(Call::Resync),
        }
    }

    fn call(
        &mut self,
        key: &ObjectKey,
        facts: &Facts,
        call: Call,
        now: Instant,
        clock: Timestamp,
    ) -> Step {
        if matches!(call, Call::Ensure | Call::Resync)
            && self.abilities.needs_health_check_port
            && facts.request.local
            && facts.request.health_check.is_none()
        {
            let message = "the provider has to ask nodes for local endpoints: set allocateLoadBalancerHCNodePort or use \
                           externalTrafficPolicy: Cluster";
            let refused = ProviderError::Refused {
                reason: "HealthCheckPortNeeded",
                message: message.to_owned(),
            };
            self.called(key, call, Err(refused), now);
            return self.next(key, now, clock);
        }
        let (nodes, endpoints) = (self.nodes_of(facts), self.endpoints_of(key));
        let asked = Asked {
            request: Arc::clone(&facts.request),
            nodes,
            endpoints,
        };
        let request = Request {
            nodes: asked.nodes.to_vec(),
            endpoints: asked.endpoints.to_vec(),
            ingress: facts.ingress.clone(),
            ..Request::clone(&facts.request)
        };
        self.tell_begin(key, facts, call, &asked);
        if let Some(entry) = self.services.get_mut(key) {
            entry.run.asked = Some(asked);
        }
        Step::Call(call, Box::new(request))
    }

    fn write(&mut self, key: &ObjectKey, what: &'static str, patch: Value, now: Instant) -> Step {
        let Some(entry) = self.services.get_mut(key) else {
            return Step::Rest(End::Done);
        };
        entry.run.writes += 1;
        entry.told = Some(now);
        match entry.run.writes > MOST_WRITES {
            true => Step::Rest(End::Again(QUARREL)),
            false => Step::Write(Write { what, patch }),
        }
    }

    /// The status, where it is not what it should be.
    fn status(
        &self,
        entry: &Entry,
        facts: &Facts,
        now: Instant,
        clock: Timestamp,
    ) -> Option<Value> {
        let ingress = entry
            .memory
            .made
            .as_ref()
            .map(|made| made.balancer.ingress.as_slice());
        let ingress =
            ingress.filter(|ingress| !facts.shows(ingress) && facts.claim == Claim::Wanted);
        let verdicts: Verdicts = self.judge(entry, facts, now).verdicts;
        let matters = facts.conditions.differ(&verdicts, facts.generation) >= Difference::News;
        let unwanted = facts.claim != Claim::Wanted && entry.memory.trouble.is_none();
        if ingress.is_none() && (!matters || unwanted) {
            return None;
        }
        let conditions = facts.conditions.patch(&verdicts, facts.generation, clock);
        let ip_mode = self.surroundings.load_balancer_ip_mode;
        Some(patch::status(facts, ingress, ip_mode, &conditions))
    }

    /// A write failed, and how to go on.
    pub(crate) fn write_failed(&mut self, key: &ObjectKey, end: End) {
        if let Some(entry) = self.services.get_mut(key) {
            entry.run.write_failed = Some(end);
        }
    }

    /// A call ended.
    pub(crate) fn called(&mut self, key: &ObjectKey, call: Call, result: Called, now: Instant) {
        let ip_mode = self.surroundings.load_balancer_ip_mode;
        let result = result.map(|balancer| balancer.map(|balancer| as_stored(balancer, ip_mode)));
        let pending = matches!(&result, Ok(Some(balancer)) if balancer.pending.is_some());
        let check = now
            + if pending {
                PENDING
            } else {
                spread(self.resync, key)
            };
        let Some(entry) = self.services.get_mut(key) else {
            return;
        };
        let asked = entry.run.asked.take().unwrap_or_default();
        let told = entry
            .facts
            .as_ref()
            .is_some_and(|facts| facts.request.service.uid == asked.request.service.uid);
        match (&result, call) {
            (Ok(_) | Err(ProviderError::Elsewhere), Call::DeleteOrphan) => _ = entry.orphans.pop(),
            (Err(_), Call::DeleteOrphan) => entry.run.failed = true,
            // The Service went away meanwhile, and what was made for it is among the orphans.
            _ if !told && asked.request.service.uid != String::new() => return,
            _ => entry.remember(call, &asked, &result, check),
        }
        self.tell_end(key, call, &result);
        self.drop_if_done(key);
    }

    /// When a Service is to be compared with what its provider has.
    pub(crate) fn check_at(&self, key: &ObjectKey) -> Option<Instant> {
        self.services.get(key).and_then(|entry| entry.memory.check)
    }
}

impl Entry {
    fn remember(&mut self, call: Call, asked: &Asked, result: &Called, check: Instant) {
        let memory = &mut self.memory;
        let before = memory.trouble.take();
        match (result, call) {
            (Ok(balancer), Call::Ensure | Call::Resync) => {
                memory.made = Some(asked.made(balancer.clone().unwrap_or_default()));
                (memory.ensure_again, memory.elsewhere, memory.deleted) = (false, None, false);
                memory.check = Some(check);
            }
            (Ok(_), Call::UpdateNodes) => {
                if let Some(made) = &mut memory.made {
                    (made.nodes, made.endpoints) =
                        (Arc::clone(&asked.nodes), Arc::clone(&asked.endpoints));
                }
            }
            (Ok(_) | Err(ProviderError::Elsewhere), Call::Delete | Call::DeleteOrphan) => {
                (memory.made, memory.deleted) = (None, true);
            }
            (Err(ProviderError::Elsewhere), _) => {
                (memory.elsewhere, memory.ensure_again) = (Some(Arc::clone(&asked.request)), false);
            }
            (Err(error), call) => {
                memory.trouble = Trouble::of(error, before.as_ref());
                memory.ensure_again |= call == Call::UpdateNodes;
                self.run.failed = true;
            }
        }
    }
}

/// What a call asked for, shared with what others ask for.
#[derive(Clone, Debug, Default)]
pub(super) struct Asked {
    pub request: Arc<Request>,
    pub nodes: Arc<[Node]>,
    pub endpoints: Arc<[Endpoint]>,
}

impl Asked {
    fn made(&self, balancer: Balancer) -> Made {
        Made {
            request: Arc::clone(&self.request),
            nodes: Arc::clone(&self.nodes),
            endpoints: Arc::clone(&self.endpoints),
            balancer,
        }
    }
}

/// Only addresses have a mode in the API, and only with the feature gate: any other mode that a
/// provider gives would differ from the status for ever.
fn as_stored(mut balancer: Balancer, ip_mode: bool) -> Balancer {
    let without = balancer
        .ingress
        .iter_mut()
        .filter(|ingress| !ip_mode || matches!(ingress.host, Host::Name(_)));
    without.for_each(|ingress| ingress.mode = IpMode::default());
    balancer
}

/// Between half and three halves of a time, always the same for a Service: not all at once.
fn spread(time: Duration, key: &ObjectKey) -> Duration {
    let letters = key.namespace.bytes().chain(key.name.bytes());
    let hash = letters.fold(2_166_136_261_u32, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(16_777_619)
    });
    time.mul_f64(0.5 + f64::from(hash >> 8) / f64::from(1 << 24))
}

/// Whether the condition would name another owner at layer 2, or, for a Local Service, whose
/// endpoints moved, other nodes. The nodes that announce other addresses by BGP change only with
/// the cluster's nodes, which would be a write for each Service.
fn names_other_nodes(facts: &Facts, verdicts: &Verdicts) -> bool {
    let named = |verdict: &Verdict| match facts.request.local {
        true => verdict.message.clone(),
        false => judge::layer2_part(&verdict.message).to_owned(),
    };
    let held = facts.conditions.verdict(Aspect::Announced).map(named);
    let at = Aspect::ALL
        .iter()
        .position(|aspect| *aspect == Aspect::Announced);
    held != at.and_then(|at| verdicts.get(at)).map(named)
}
