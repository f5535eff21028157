//! A kernel in memory, for tests: refuses what the real one refuses, fails when it is told to, and
//! records clients that would be refused while operations are done.

use super::kernel::{Kernel, Sent, failed};
use super::plan::Operation;
use super::server::{At, Destination, Found};
use super::sets::{Entry, Set};
use super::snapshot::Snapshot;
use crate::{ApplyError, Report};
use portico_model::table::{Family, NodeRules};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard};

/// Clones are the same kernel.
#[derive(Clone, Default)]
pub(super) struct Fake(Arc<Mutex<State>>);

#[derive(Default)]
pub(super) struct State {
    pub own: BTreeSet<IpAddr>,
    pub linked: BTreeSet<IpAddr>,
    pub servers: BTreeMap<At, Found>,
    pub entries: BTreeSet<(Set, Entry)>,
    pub kube_proxy: bool,
    pub rules: Option<NodeRules>,
    /// Operations that were done.
    pub done: Vec<Operation>,
    /// After so many operations the kernel fails.
    pub fails_after: Option<usize>,
    /// The servers that had an endpoint at the last check, and those of them that lost all since.
    served: Option<BTreeSet<At>>,
    interrupted: BTreeSet<At>,
}

impl Fake {
    pub(super) fn new(own: &[&str]) -> Self {
        let own = own.iter().map(|address| address.parse().unwrap()).collect();
        Self(Arc::new(Mutex::new(State {
            own,
            ..State::default()
        })))
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    /// Fails if a server that had endpoints before and has some now had none in between.
    pub(super) fn check_continuity(&self) {
        let mut state = self.state();
        state.served = None;
        let blinked: Vec<_> = std::mem::take(&mut state.interrupted)
            .intersection(&state.serving())
            .copied()
            .collect();
        assert!(blinked.is_empty(), "nobody served {blinked:?} for a moment");
    }

    /// What was done since the last time, in words.
    pub(super) fn done(&self) -> Vec<String> {
        self.check_continuity();
        std::mem::take(&mut self.state().done)
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    /// An endpoint has so many established connections, and so many that end.
    pub(super) fn connections(&self, at: At, endpoint: SocketAddr, active: u32, inactive: u32) {
        let mut state = self.state();
        let destination = state.destination(at, endpoint).unwrap();
        (destination.active, destination.inactive) = (active, inactive);
    }
}

impl State {
    fn destination(&mut self, at: At, endpoint: SocketAddr) -> io::Result<&mut Destination> {
        let server = self
            .servers
            .get_mut(&at)
            .ok_or(io::Error::from_raw_os_error(libc::ESRCH))?;
        let found = server
            .destinations
            .iter_mut()
            .find(|destination| destination.at == endpoint);
        found.ok_or(io::Error::from_raw_os_error(libc::ENOENT))
    }

    fn perform(&mut self, operation: &Operation) -> io::Result<()> {
        let exists = || io::Error::from_raw_os_error(libc::EEXIST);
        let missing = || io::Error::from_raw_os_error(libc::ENOENT);
        match operation {
            Operation::AddEntry(set, entry) => self
                .entries
                .insert((*set, *entry))
                .then_some(())
                .ok_or_else(exists),
            Operation::DeleteEntry(set, entry) => self
                .entries
                .remove(&(*set, *entry))
                .then_some(())
                .ok_or_else(missing),
            Operation::AddServer(at, settings) => {
                let server = Found {
                    settings: settings.clone(),
                    destinations: Vec::new(),
                };
                self.servers
                    .insert(*at, server)
                    .map_or(Ok(()), |_| Err(exists()))
            }
            Operation::EditServer(at, settings) => {
                self.servers.get_mut(at).ok_or_else(missing)?.settings = settings.clone();
                Ok(())
            }
            Operation::DeleteServer(at) => self.servers.remove(at).map(drop).ok_or_else(missing),
            Operation::AddDestination(at, endpoint) => {
                if self.destination(*at, *endpoint).is_ok() {
                    return Err(exists());
                }
                let server = self.servers.get_mut(at).ok_or_else(missing)?;
                server.destinations.push(Destination::idle(*endpoint, 1));
                Ok(())
            }
            Operation::Weigh(at, endpoint, weight) => {
                self.destination(*at, *endpoint)?.weight = *weight;
                Ok(())
            }
            Operation::DeleteDestination(at, endpoint) => {
                self.destination(*at, *endpoint)?;
                let server = self.servers.get_mut(at).ok_or_else(missing)?;
                server
                    .destinations
                    .retain(|destination| destination.at != *endpoint);
                Ok(())
            }
            Operation::Bind(address) => self
                .linked
                .insert(*address)
                .then_some(())
                .ok_or_else(exists),
            Operation::Unbind(address) => self
                .linked
                .remove(address)
                .then_some(())
                .ok_or_else(missing),
        }
    }

    /// Servers with at least one endpoint.
    fn serving(&self) -> BTreeSet<At> {
        let serves = |server: &Found| {
            server
                .destinations
                .iter()
                .any(|destination| destination.weight > 0)
        };
        self.servers
            .iter()
            .filter(|(_, server)| serves(server))
            .map(|(at, _)| *at)
            .collect()
    }

    fn has(&self, set: Set, entry: Entry) -> bool {
        self.entries.contains(&(set, entry))
    }

    /// What must hold at any time.
    fn check(&self) {
        for address in &self.linked {
            let entry = Entry::Address(*address);
            let known = self.has(Set::Bound, entry) || self.has(Set::Leaving, entry);
            assert!(
                known,
                "the node's own ports can be reached through {address}"
            );
        }
        for (_, entry) in self.entries.iter().filter(|(set, _)| *set == Set::Inside) {
            let Entry::At(at) = entry else {
                panic!("{entry} among frontends")
            };
            let shadow = super::shadow::shadow(at.address).unwrap();
            assert!(
                self.servers.contains_key(&At {
                    address: shadow,
                    ..*at
                }),
                "{at} leads nowhere"
            );
        }
    }
}

impl Kernel for Fake {
    fn prepare(&mut self, _: Family) -> Result<(), ApplyError> {
        Ok(())
    }

    fn read(&mut self) -> Result<Snapshot, ApplyError> {
        let state = self.state();
        Ok(Snapshot {
            own: state.own.iter().copied().collect(),
            linked: state.linked.clone(),
            servers: state.servers.clone(),
            entries: state.entries.clone(),
            kube_proxy: state.kube_proxy,
        })
    }

    fn destinations(&mut self, at: At) -> Result<Vec<Destination>, ApplyError> {
        Ok(self
            .state()
            .servers
            .get(&at)
            .map(|server| server.destinations.clone())
            .unwrap_or_default())
    }

    fn send(&mut self, operations: &[Operation]) -> Result<Sent, ApplyError> {
        let mut state = self.state();
        let now = state.serving();
        let before = state.served.get_or_insert(now).clone();
        for operation in operations {
            if let Some(left) = &mut state.fails_after {
                if *left == 0 {
                    state.fails_after = None;
                    return Err(failed(
                        "a fault",
                        io::Error::from_raw_os_error(libc::ENOMEM),
                    ));
                }
                *left -= 1;
            }
            state
                .perform(operation)
                .map_err(|error| failed(operation.to_string(), error))?;
            state.check();
            let interrupted: Vec<At> = before.difference(&state.serving()).copied().collect();
            state.interrupted.extend(interrupted);
            state.done.push(operation.clone());
        }
        Ok(Sent::default())
    }

    fn compare_rules(&mut self, _: Family, rules: &NodeRules) -> Result<Vec<String>, ApplyError> {
        let same = self.state().rules.as_ref() == Some(rules);
        Ok(if same {
            Vec::new()
        } else {
            vec!["the rules differ".to_owned()]
        })
    }

    fn has_rules(&mut self) -> bool {
        self.state().rules.is_some()
    }

    fn repair_rules(
        &mut self,
        _: Family,
        rules: &NodeRules,
        _: &mut Report,
    ) -> Result<Vec<String>, ApplyError> {
        self.state().rules = Some(rules.clone());
        Ok(Vec::new())
    }

    fn tidy(&mut self) -> Result<(), ApplyError> {
        self.state().kube_proxy = false;
        Ok(())
    }
}
