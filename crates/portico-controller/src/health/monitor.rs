//! Which endpoints are asked when, and which slices follow from the answers.

use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use k8s_openapi::api::discovery::v1::{Endpoint, EndpointConditions, EndpointSlice};
use portico_model::checks::{Checks, Probe};

use super::{CHECK, Check, CheckError, FAILING};
use crate::key::ObjectKey;

/// An address that is in several slices is asked once for each way in which it is.
pub type Target = (SocketAddr, Check);

pub struct Monitor {
    slices: BTreeMap<ObjectKey, Watched>,
    /// The slices of each target.
    users: BTreeMap<Target, BTreeSet<ObjectKey>>,
    checks: Checks<Target>,
    /// Slices that may have to be written.
    touched: BTreeSet<ObjectKey>,
}

struct Watched {
    slice: EndpointSlice,
    /// One for each endpoint; `None` where it cannot be asked.
    targets: Vec<Option<Target>>,
}

impl Monitor {
    /// `most`: how many probes may be under way.
    pub fn new(most: usize) -> Monitor {
        Monitor {
            slices: BTreeMap::new(),
            users: BTreeMap::new(),
            checks: Checks::new(most),
            touched: BTreeSet::new(),
        }
    }

    /// A slice as it is now. Where it does not say how to check, its endpoints are left as they
    /// are.
    pub fn apply(&mut self, slice: EndpointSlice, now: Duration) -> Result<(), CheckError> {
        let key = ObjectKey::of(&slice.metadata);
        let annotation = slice
            .metadata
            .annotations
            .as_ref()
            .and_then(|all| all.get(CHECK));
        let (check, problem) = match annotation.map(|text| text.parse::<Check>()) {
            Some(Ok(check)) => (Some(check), Ok(())),
            Some(Err(problem)) => (None, Err(problem)),
            None => (None, Ok(())),
        };
        let targets: Vec<Option<Target>> = match check {
            Some(check) => slice
                .endpoints
                .iter()
                .flatten()
                .map(|one| Some((address(&slice, one)?, check.clone())))
                .collect(),
            None => Vec::new(),
        };
        let before = self
            .slices
            .remove(&key)
            .map(|watched| watched.targets)
            .unwrap_or_default();
        for (target, endpoint) in targets.iter().zip(slice.endpoints.iter().flatten()) {
            if let Some(target) = target {
                self.want(target, &key, endpoint, now);
            }
        }
        for target in before
            .into_iter()
            .flatten()
            .filter(|target| !targets.contains(&Some(target.clone())))
        {
            self.unwant(&target, &key);
        }
        self.slices.insert(key.clone(), Watched { slice, targets });
        self.touched.insert(key);
        problem
    }

    pub fn delete(&mut self, key: &ObjectKey) {
        let Some(watched) = self.slices.remove(key) else {
            return;
        };
        watched
            .targets
            .iter()
            .flatten()
            .for_each(|target| self.unwant(target, key));
        self.touched.remove(key);
    }

    pub fn keys(&self) -> impl Iterator<Item = &ObjectKey> {
        self.slices.keys()
    }

    /// The next endpoint to ask.
    pub fn start(&mut self, now: Duration) -> Option<Probe<Target>> {
        self.checks.start(now)
    }

    pub fn next_deadline(&self) -> Option<Duration> {
        self.checks.next_deadline()
    }

    /// What it answered; `spread` is a number from 0 to 1, by chance. Tells its health where it is
    /// news.
    pub fn finish(
        &mut self,
        probe: Probe<Target>,
        answer: Result<(), String>,
        now: Duration,
        spread: f64,
    ) -> Option<bool> {
        let target = probe.target.clone();
        let news = self.checks.finish(probe, answer, now, spread)?;
        self.touched
            .extend(self.users.get(&target).into_iter().flatten().cloned());
        Some(news)
    }

    /// Slices to look at since the last call.
    pub fn take_touched(&mut self) -> BTreeSet<ObjectKey> {
        mem::take(&mut self.touched)
    }

    /// The slice as it should be written; `None` where every endpoint is as ready as it should be,
    /// and those that fail are told. Those that nobody has asked yet stay as they are.
    pub fn wanted(&self, key: &ObjectKey) -> Option<EndpointSlice> {
        let Watched { slice, targets } = self.slices.get(key)?;
        let mut wanted = slice.clone();
        let mut changed = false;
        for (endpoint, target) in wanted.endpoints.iter_mut().flatten().zip(targets) {
            let Some(target) = target else { continue };
            let Some(healthy) = self.checks.healthy(target) else {
                continue;
            };
            // One that never was ready is told, too.
            changed |=
                ready(endpoint) != Some(healthy) || is_told_to_fail(slice, target) == healthy;
            let conditions = endpoint
                .conditions
                .get_or_insert_with(EndpointConditions::default);
            (conditions.ready, conditions.serving) = (Some(healthy), Some(healthy));
        }
        if !changed {
            return None;
        }
        let failing = self.failing(targets);
        let annotations = wanted.metadata.annotations.get_or_insert_default();
        match failing.is_empty() {
            true => annotations.remove(FAILING),
            false => annotations.insert(FAILING.to_owned(), failing),
        };
        Some(wanted)
    }

    fn failing(&self, targets: &[Option<Target>]) -> String {
        let bad = targets
            .iter()
            .flatten()
            .filter(|target| self.checks.healthy(target) == Some(false));
        let lines = bad.map(|target| {
            format!(
                "{}: {}",
                target.0.ip(),
                self.checks.trouble(target).unwrap_or("does not answer")
            )
        });
        lines.collect::<Vec<_>>().join("\n")
    }

    fn want(&mut self, target: &Target, key: &ObjectKey, endpoint: &Endpoint, now: Duration) {
        self.users
            .entry(target.clone())
            .or_default()
            .insert(key.clone());
        if !self.checks.is_wanted(target) {
            // One that is ready was found so by whoever checked before, and takes a row of bad
            // answers. Any other begins with the first.
            let known = ready(endpoint).filter(|ready| *ready);
            self.checks
                .want(target.clone(), target.1.settings(), known, now);
        }
    }

    fn unwant(&mut self, target: &Target, key: &ObjectKey) {
        let Some(users) = self.users.get_mut(target) else {
            return;
        };
        users.remove(key);
        if users.is_empty() {
            self.users.remove(target);
            self.checks.unwant(target);
        }
    }
}

fn ready(endpoint: &Endpoint) -> Option<bool> {
    endpoint.conditions.as_ref()?.ready
}

/// Why it fails may change with every answer, and is not worth a write.
fn is_told_to_fail(slice: &EndpointSlice, target: &Target) -> bool {
    let told = slice
        .metadata
        .annotations
        .as_ref()
        .and_then(|all| all.get(FAILING));
    let start = format!("{}: ", target.0.ip());
    told.is_some_and(|told| told.lines().any(|line| line.starts_with(&start)))
}

/// Where an endpoint is asked: at its first address, as those who send it traffic do, and the
/// slice's first port.
fn address(slice: &EndpointSlice, endpoint: &Endpoint) -> Option<SocketAddr> {
    let ip: IpAddr = endpoint.addresses.first()?.parse().ok()?;
    let port = slice.ports.as_ref()?.first()?.port?;
    Some(SocketAddr::new(
        ip,
        u16::try_from(port).ok().filter(|port| *port > 0)?,
    ))
}

#[cfg(test)]
mod tests;
