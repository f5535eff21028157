//! Which endpoints are asked when, and which slices follow from the answers.

use portico_view::key_of;
use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use k8s_openapi::api::discovery::v1::{Endpoint, EndpointConditions, EndpointSlice};
use portico_model::checks::{Checks, Probe, Ranges, Refused};

use super::{CHECK, Check, CheckError, FAILING, Networks};
use portico_model::key::ObjectKey;

/// An address that is in several slices is asked once for each way in which it is.
pub(super) type Target = (SocketAddr, Check);

/// The slices that are checked, and what the answers mean for them.
pub struct Monitor {
    slices: BTreeMap<ObjectKey, Watched>,
    /// The slices of each target.
    users: BTreeMap<Target, BTreeSet<ObjectKey>>,
    checks: Checks<Target>,
    /// Slices that may have to be written.
    touched: BTreeSet<ObjectKey>,
    /// What may be asked, and what of it is the cluster.
    ranges: Ranges,
    networks: Networks,
    /// Slices with an endpoint that may not be probed, since the last call that took them.
    refused: BTreeMap<ObjectKey, (IpAddr, Refused)>,
}

struct Watched {
    slice: EndpointSlice,
    /// One for each endpoint.
    aims: Vec<Aim>,
}

/// What there is to ask about an endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Aim {
    /// It has no address or no port.
    Nothing,
    At(Target),
    /// It may not be asked.
    Refused(IpAddr, Refused),
}

impl Aim {
    fn target(&self) -> Option<&Target> {
        match self {
            Self::At(target) => Some(target),
            Self::Nothing | Self::Refused(..) => None,
        }
    }
}

impl Monitor {
    /// `most`: how many probes may be under way.
    pub fn new(most: usize, ranges: Ranges) -> Self {
        Self {
            slices: BTreeMap::new(),
            users: BTreeMap::new(),
            checks: Checks::new(most),
            touched: BTreeSet::new(),
            ranges,
            networks: Networks::default(),
            refused: BTreeMap::new(),
        }
    }

    /// The cluster's own networks changed: what may be asked is decided anew.
    pub fn set_networks(&mut self, networks: Networks, now: Duration) {
        self.networks = networks;
        let slices: Vec<EndpointSlice> =
            self.slices.values().map(|one| one.slice.clone()).collect();
        for slice in slices {
            // Problems of it were told when it came.
            let _ = self.apply(slice, now);
        }
    }

    /// A slice as it is now. Where it does not say how to check, its endpoints are left as they
    /// are.
    pub fn apply(&mut self, slice: EndpointSlice, now: Duration) -> Result<(), CheckError> {
        let key = key_of(&slice.metadata);
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
        let aims: Vec<Aim> = match &check {
            Some(check) => slice
                .endpoints
                .iter()
                .flatten()
                .map(|endpoint| self.aim(&slice, endpoint, check))
                .collect(),
            None => Vec::new(),
        };
        let before = self
            .slices
            .remove(&key)
            .map(|watched| watched.aims)
            .unwrap_or_default();
        for (aim, endpoint) in aims.iter().zip(slice.endpoints.iter().flatten()) {
            match aim {
                Aim::At(target) => self.want(target, &key, endpoint, now),
                Aim::Refused(address, why) if !before.contains(aim) => {
                    self.refused.insert(key.clone(), (*address, *why));
                }
                Aim::Refused(..) | Aim::Nothing => {}
            }
        }
        let gone = before.iter().filter(|aim| !aims.contains(aim));
        for target in gone.filter_map(Aim::target) {
            self.unwant(target, &key);
        }
        self.slices.insert(key.clone(), Watched { slice, aims });
        self.touched.insert(key);
        problem
    }

    /// Forgets a slice.
    pub fn delete(&mut self, key: &ObjectKey) {
        let Some(watched) = self.slices.remove(key) else {
            return;
        };
        watched
            .aims
            .iter()
            .filter_map(Aim::target)
            .for_each(|target| self.unwant(target, key));
        self.touched.remove(key);
        self.refused.remove(key);
    }

    /// The slices that are known.
    pub fn keys(&self) -> impl Iterator<Item = &ObjectKey> {
        self.slices.keys()
    }

    /// The next endpoint to ask.
    pub fn start(&mut self, now: Duration) -> Option<Probe<Target>> {
        self.checks.start(now)
    }

    /// When the next probe is due; `None` without any.
    pub fn next_deadline(&self) -> Option<Duration> {
        self.checks.next_deadline()
    }

    /// Takes in the answer of a probe; `spread` is a random number from 0 to 1. Returns the health
    /// of the target where it has changed.
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

    /// Slices with an endpoint that may not be asked, since the last call: one of those, and why.
    pub fn take_refused(&mut self) -> BTreeMap<ObjectKey, (IpAddr, Refused)> {
        mem::take(&mut self.refused)
    }

    /// The slice as it should be written; `None` where every endpoint is as ready as it should be,
    /// and those that fail are named. Endpoints without a probe yet, or that may not be probed,
    /// stay as they are.
    pub fn wanted(&self, key: &ObjectKey) -> Option<EndpointSlice> {
        let Watched { slice, aims } = self.slices.get(key)?;
        let mut wanted = slice.clone();
        let mut changed = false;
        for (endpoint, aim) in wanted.endpoints.iter_mut().flatten().zip(aims) {
            if let Aim::Refused(address, why) = aim {
                changed |= !told(slice).any(|line| line == refusal(*address, *why));
            }
            let Some(target) = aim.target() else { continue };
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
        let failing = self.failing(aims);
        let annotations = wanted.metadata.annotations.get_or_insert_default();
        match failing.is_empty() {
            true => annotations.remove(FAILING),
            false => annotations.insert(FAILING.to_owned(), failing),
        };
        Some(wanted)
    }

    fn failing(&self, aims: &[Aim]) -> String {
        let line = |aim: &Aim| match aim {
            Aim::Refused(address, why) => Some(refusal(*address, *why)),
            Aim::At(target) if self.checks.healthy(target) == Some(false) => Some(format!(
                "{}: {}",
                target.0.ip(),
                self.checks.trouble(target).unwrap_or("does not answer")
            )),
            Aim::At(_) | Aim::Nothing => None,
        };
        aims.iter().filter_map(line).collect::<Vec<_>>().join("\n")
    }

    fn aim(&self, slice: &EndpointSlice, endpoint: &Endpoint, check: &Check) -> Aim {
        let Some(socket) = address(slice, endpoint) else {
            return Aim::Nothing;
        };
        let ip = socket.ip();
        match self.ranges.check(ip, self.networks.contain(ip)) {
            Ok(()) => Aim::At((socket, check.clone())),
            Err(why) => Aim::Refused(ip, why),
        }
    }

    fn want(&mut self, target: &Target, key: &ObjectKey, endpoint: &Endpoint, now: Duration) {
        self.users
            .entry(target.clone())
            .or_default()
            .insert(key.clone());
        if !self.checks.is_wanted(target) {
            // A ready endpoint was found so by an earlier check, and takes several bad answers to
            // change. Any other takes the first answer.
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
    let start = format!("{}: ", target.0.ip());
    told(slice).any(|line| line.starts_with(&start))
}

/// The lines of the slice about endpoints that fail or are not asked.
fn told(slice: &EndpointSlice) -> impl Iterator<Item = &str> {
    let annotations = slice.metadata.annotations.as_ref();
    annotations
        .and_then(|all| all.get(FAILING))
        .into_iter()
        .flat_map(|text| text.lines())
}

fn refusal(address: IpAddr, why: Refused) -> String {
    format!("{address}: {why}")
}

/// Where an endpoint is asked: at its first address, as forwarding does, and the slice's first
/// port.
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
