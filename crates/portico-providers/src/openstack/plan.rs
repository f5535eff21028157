//! From what is wanted and what is there to the writes that are needed, in an order in which every
//! one of them leaves something that works, and that the next call can go on from. Pure.
//!
//! A listener is known by its protocol and port, a pool by its name, in which its protocol is: what
//! cannot be changed is made anew beside, and the old one goes when the listener has left it.

use super::octavia::{Listener, Made, Member, Monitor, NewListener, NewPool, Pool, Tree};

/// Everything of a Service in its load balancer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Observed {
    pub listeners: Vec<Made<Listener>>,
    pub pools: Vec<ObservedPool>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ObservedPool {
    pub pool: Made<Pool>,
    pub members: Vec<Member>,
    pub monitor: Option<Made<Monitor>>,
}

/// One write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    DeleteListener(String),
    CreatePool(Pool),
    UpdatePool(String, Pool),
    SetMembers(Target, Vec<Member>),
    CreateMonitor(Target, Monitor),
    UpdateMonitor(String, Monitor),
    DeleteMonitor(String),
    CreateListener(Listener, Target),
    UpdateListener(String, Listener, Target),
    DeletePool(String),
}

/// A pool that a step is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Target {
    Id(String),
    /// By the name under which a step before created it.
    Created(String),
}

impl Observed {
    /// What was created in one call; `None` if the answer left out what it is.
    pub(super) fn created(wanted: &[NewListener], tree: &Tree) -> Option<Self> {
        let mut observed = Self::default();
        for NewListener { spec, default_pool } in wanted {
            let is_it = (spec.protocol_port, &spec.protocol);
            let listener = tree
                .listeners
                .iter()
                .find(|made| (made.protocol_port, &made.protocol) == is_it)?;
            let id = listener.default_pool_id.clone()?;
            let pool = tree.pools.iter().find(|made| made.id == id)?;
            let monitor = match (&default_pool.healthmonitor, &pool.healthmonitor) {
                (Some(spec), made) => Some(Made {
                    id: made.clone()?.id,
                    spec: spec.clone(),
                }),
                (None, _) => None,
            };
            let (members, spec) = (default_pool.members.clone(), spec.clone());
            let pool = Made {
                id: id.clone(),
                spec: default_pool.spec.clone(),
            };
            observed.pools.push(ObservedPool {
                pool,
                members,
                monitor,
            });
            let spec = Listener {
                default_pool_id: Some(id),
                ..spec
            };
            observed.listeners.push(Made {
                id: listener.id.clone(),
                spec,
            });
        }
        Some(observed)
    }

    /// The id of a pool that a step is about.
    pub(super) fn resolve(&self, target: &Target) -> String {
        match target {
            Target::Id(id) => id.clone(),
            Target::Created(name) => {
                let found = self
                    .pools
                    .iter()
                    .rev()
                    .find(|pool| pool.pool.spec.name == *name);
                found.map(|found| found.pool.id.clone()).unwrap_or_default()
            }
        }
    }

    /// A step was done; `created` is the id of what it made.
    pub(super) fn done(&mut self, step: &Step, created: String) {
        match step {
            Step::DeleteListener(id) => self.listeners.retain(|listener| listener.id != *id),
            Step::CreateListener(listener, target) => {
                let spec = self.with_pool(listener, target);
                self.listeners.push(Made { id: created, spec });
            }
            Step::UpdateListener(id, listener, target) => {
                let spec = self.with_pool(listener, target);
                let listeners = self
                    .listeners
                    .iter_mut()
                    .filter(|listener| listener.id == *id);
                listeners.for_each(|listener| listener.spec = spec.clone());
            }
            Step::CreatePool(pool) => {
                let pool = Made {
                    id: created,
                    spec: pool.clone(),
                };
                self.pools.push(ObservedPool {
                    pool,
                    members: Vec::new(),
                    monitor: None,
                });
            }
            Step::UpdatePool(id, spec) => self.pool(id, |it| it.pool.spec = spec.clone()),
            Step::DeletePool(id) => self.pools.retain(|pool| pool.pool.id != *id),
            Step::SetMembers(target, members) => {
                self.pool(&self.resolve(target), |it| it.members.clone_from(members));
            }
            Step::CreateMonitor(target, spec) => {
                let made = Made {
                    id: created,
                    spec: spec.clone(),
                };
                self.pool(&self.resolve(target), |it| it.monitor = Some(made.clone()));
            }
            Step::UpdateMonitor(id, spec) => {
                let monitors = self
                    .pools
                    .iter_mut()
                    .filter_map(|pool| pool.monitor.as_mut());
                monitors
                    .filter(|monitor| monitor.id == *id)
                    .for_each(|monitor| monitor.spec = spec.clone());
            }
            Step::DeleteMonitor(id) => {
                self.pools
                    .iter_mut()
                    .for_each(|pool| _ = pool.monitor.take_if(|monitor| monitor.id == *id));
            }
        }
    }

    fn with_pool(&self, listener: &Listener, target: &Target) -> Listener {
        Listener {
            default_pool_id: Some(self.resolve(target)),
            ..listener.clone()
        }
    }

    fn pool(&mut self, id: &str, change: impl Fn(&mut ObservedPool)) {
        self.pools
            .iter_mut()
            .filter(|pool| pool.pool.id == id)
            .for_each(change);
    }
}

pub(super) fn plan(wanted: &[NewListener], observed: &Observed) -> Vec<Step> {
    let mut steps = Vec::new();
    let kept = |found: &&Made<Listener>| {
        wanted
            .iter()
            .any(|wanted| is_same(&wanted.spec, &found.spec))
    };
    // First, because a port can be taken only once, and because a pool in use cannot go.
    let gone = observed.listeners.iter().filter(|found| !kept(found));
    steps.extend(gone.map(|found| Step::DeleteListener(found.id.clone())));
    let mut used = Vec::new();
    for wanted in wanted {
        let listener = observed
            .listeners
            .iter()
            .find(|found| is_same(&wanted.spec, &found.spec));
        let pool = pool_of(&wanted.default_pool.spec, listener, &observed.pools);
        used.extend(pool.map(|pool| &pool.pool.id));
        let target = plan_pool(&wanted.default_pool, pool, &mut steps);
        // Last, so that it never sends clients to a pool without members.
        steps.extend(plan_listener(&wanted.spec, listener, target));
    }
    let left = observed
        .pools
        .iter()
        .map(|pool| &pool.pool.id)
        .filter(|id| !used.contains(id));
    steps.extend(left.map(|id| Step::DeletePool(id.clone())));
    steps
}

fn is_same(wanted: &Listener, found: &Listener) -> bool {
    (wanted.protocol_port, &wanted.protocol) == (found.protocol_port, &found.protocol)
}

/// The pool with this name; of several (an answer was lost) the one that is in use.
fn pool_of<'a>(
    wanted: &Pool,
    listener: Option<&Made<Listener>>,
    pools: &'a [ObservedPool],
) -> Option<&'a ObservedPool> {
    let in_use = listener.and_then(|listener| listener.spec.default_pool_id.as_ref());
    let named = || {
        pools.iter().filter(|found| {
            (&found.pool.spec.name, &found.pool.spec.protocol) == (&wanted.name, &wanted.protocol)
        })
    };
    named()
        .find(|found| Some(&found.pool.id) == in_use)
        .or_else(|| named().min_by_key(|found| &found.pool.id))
}

fn plan_pool(wanted: &NewPool, found: Option<&ObservedPool>, steps: &mut Vec<Step>) -> Target {
    let target = match found {
        None => {
            steps.push(Step::CreatePool(wanted.spec.clone()));
            Target::Created(wanted.spec.name.clone())
        }
        Some(found) => {
            if found.pool.spec != wanted.spec {
                steps.push(Step::UpdatePool(found.pool.id.clone(), wanted.spec.clone()));
            }
            Target::Id(found.pool.id.clone())
        }
    };
    // Before the monitor: one for HTTP asks members at the port that they name.
    steps.extend(set_members(wanted, found, target.clone()));
    plan_monitor(
        wanted.healthmonitor.as_ref(),
        found.and_then(|found| found.monitor.as_ref()),
        &target,
        steps,
    );
    target
}

fn set_members(wanted: &NewPool, found: Option<&ObservedPool>, target: Target) -> Option<Step> {
    // The subnet of one that is there cannot be changed, so it is not looked at.
    let bare = |members: &[Member]| {
        let mut members: Vec<Member> = members
            .iter()
            .map(|member| Member {
                subnet_id: None,
                ..member.clone()
            })
            .collect();
        members.sort();
        members
    };
    let current = found.map(|found| bare(&found.members)).unwrap_or_default();
    (current != bare(&wanted.members)).then(|| Step::SetMembers(target, wanted.members.clone()))
}

fn plan_monitor(
    wanted: Option<&Monitor>,
    found: Option<&Made<Monitor>>,
    target: &Target,
    steps: &mut Vec<Step>,
) {
    match (wanted, found) {
        (Some(wanted), Some(found)) if wanted.kind == found.spec.kind => {
            if *wanted != found.spec {
                steps.push(Step::UpdateMonitor(found.id.clone(), wanted.clone()));
            }
        }
        (wanted, found) => {
            steps.extend(found.map(|found| Step::DeleteMonitor(found.id.clone())));
            steps.extend(wanted.map(|wanted| Step::CreateMonitor(target.clone(), wanted.clone())));
        }
    }
}

fn plan_listener(
    wanted: &Listener,
    found: Option<&Made<Listener>>,
    target: Target,
) -> Option<Step> {
    let Some(found) = found else {
        return Some(Step::CreateListener(wanted.clone(), target));
    };
    let attached =
        matches!(&target, Target::Id(id) if found.spec.default_pool_id.as_ref() == Some(id));
    (!attached || !agrees(wanted, &found.spec))
        .then(|| Step::UpdateListener(found.id.clone(), wanted.clone(), target))
}

/// In all that is said.
fn agrees(wanted: &Listener, found: &Listener) -> bool {
    fn said<T: PartialEq>(wanted: &Option<T>, found: &Option<T>) -> bool {
        wanted.is_none() || wanted == found
    }
    let sorted = |ranges: &Option<Vec<String>>| {
        ranges.clone().map(|mut ranges| {
            ranges.sort();
            ranges
        })
    };
    wanted.name == found.name
        && wanted.connection_limit == found.connection_limit
        && said(&wanted.timeout_client_data, &found.timeout_client_data)
        && said(
            &wanted.timeout_member_connect,
            &found.timeout_member_connect,
        )
        && said(&wanted.timeout_member_data, &found.timeout_member_data)
        && said(&wanted.timeout_tcp_inspect, &found.timeout_tcp_inspect)
        && said(
            &sorted(&wanted.allowed_cidrs),
            &sorted(&found.allowed_cidrs),
        )
        && said(&wanted.insert_headers, &found.insert_headers)
        && said(
            &wanted.default_tls_container_ref,
            &found.default_tls_container_ref,
        )
        && wanted.tags == found.tags
}

#[cfg(test)]
mod tests;
