//! The IPVS dataplane: a virtual server for each frontend, the addresses on a link of their own,
//! and a few fixed iptables rules with sets for what IPVS does not do.
//!
//! [`wanted`] says what a port needs, [`plan`] how to get there, in which order; [`installed`] what
//! we believe to be in the kernel (with [`leaving`], what is kept for connections that live on);
//! [`rules`] and [`sets`] are the fixed part; [`snapshot`] and [`read`] what the kernel has,
//! [`compare`] how that differs from a table; [`kernel`] is the way there ([`wire`] the messages),
//! `fake` one for tests.

mod compare;
#[cfg(test)]
mod fake;
mod installed;
mod kernel;
mod leaving;
mod plan;
mod read;
mod remove;
mod rules;
mod server;
pub(crate) mod sets;
mod shadow;
mod snapshot;
mod sysctls;
mod wanted;
pub(crate) mod wire;

pub use remove::{present, remove_leftovers};
pub use wire::link::LINK;

use crate::iptables::{Variant, take_over};
use crate::{ApplyError, Dataplane, Differences, Report};
use installed::{Installed, Ports, Start};
use ipnet::IpNet;
use kernel::{Kernel, Netlink};
use leaving::Leaving;
use plan::Plan;
use portico_model::table::{
    Change, Family, ForwardingTable, FrontendKey, NodeRules, PerFamily, PortKey,
};
use server::{At, Destination};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What the operator may decide.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Round robin where it is empty.
    pub scheduler: String,
    /// Virtual servers on these addresses belong to other programs, unless a Service has the
    /// address.
    pub excluded: Vec<IpNet>,
    /// The kernel does not answer ARP requests for the addresses of Services.
    pub strict_arp: bool,
    /// After which connections are forgotten; zero leaves the kernel's.
    pub tcp_timeout: Duration,
    /// The same for TCP connections after a FIN.
    pub tcp_fin_timeout: Duration,
    /// The same for UDP.
    pub udp_timeout: Duration,
    /// Instead of finding out which variant of iptables the node uses.
    pub variant: Option<Variant>,
}

/// The dataplane of IPVS mode.
pub struct Ipvs<K = Netlink> {
    kernel: K,
    scheduler: Arc<str>,
    excluded: Vec<IpNet>,
    /// What is installed, if it is known.
    installed: Option<Installed>,
    /// Families that the node has.
    served: PerFamily<bool>,
}

impl Ipvs {
    /// Opens the dataplane of the calling thread's network namespace.
    pub fn open(options: &Options) -> Result<Self, ApplyError> {
        let mut kernel = Netlink::open(options)?;
        let wanted = if options.scheduler.is_empty() {
            "rr"
        } else {
            &options.scheduler
        };
        let scheduler = kernel.scheduler(&wanted.into())?;
        kernel.set_timeouts(options)?;
        Ok(Self::new(kernel, scheduler, options.excluded.clone()))
    }

    /// Opens the dataplane for [`Ipvs::compare`] alone, without changing anything.
    pub fn open_to_look(options: &Options) -> Result<Self, ApplyError> {
        let scheduler = if options.scheduler.is_empty() {
            "rr"
        } else {
            &options.scheduler
        };
        Ok(Self::new(
            Netlink::open_to_look(options)?,
            scheduler.into(),
            options.excluded.clone(),
        ))
    }

    /// The programs of iptables for the few fixed rules.
    pub fn variant(&self) -> Variant {
        self.kernel.variant()
    }
}

impl<K: Kernel> Ipvs<K> {
    fn new(kernel: K, scheduler: Arc<str>, excluded: Vec<IpNet>) -> Self {
        Self {
            kernel,
            scheduler,
            excluded,
            installed: None,
            served: PerFamily { v4: true, v6: true },
        }
    }

    /// How the kernel differs from a table. Changes nothing.
    pub fn compare(
        &mut self,
        table: &ForwardingTable,
        frontend: &FrontendKey,
    ) -> Result<Differences, ApplyError> {
        let snapshot = self.kernel.look()?;
        // Round robin takes the place of a scheduler that the kernel does not have.
        if snapshot
            .servers
            .values()
            .all(|server| &*server.settings.scheduler == "rr")
        {
            self.scheduler = "rr".into();
        }
        let (_, plan) = self.plan(
            &table.rules,
            table.ports.to_tree(),
            &snapshot,
            Leaving::default(),
        );
        let mut differences = compare::differences(&plan, table, frontend);
        differences.of_all = self.kernel.compare_rules(frontend.family, &table.rules)?;
        Ok(differences)
    }

    /// Make everything equal to the table, whatever is there.
    fn install(
        &mut self,
        rules: &NodeRules,
        ports: Ports,
        known: Option<Installed>,
    ) -> Result<Report, ApplyError> {
        self.prepare(&ports)?;
        let snapshot = self.kernel.read()?;
        let same = known.as_ref().is_some_and(|known| {
            known.rules() == rules && known.ports == ports && **known.own() == *snapshot.own
        });
        let leaving = known.map(Installed::into_leaving).unwrap_or_default();
        let (installed, plan) = self.plan(rules, ports, &snapshot, leaving);
        drop(snapshot);
        let mut report = Report {
            drift: words(&plan).filter(|_| same).collect(),
            ..Report::default()
        };
        // Rules of another mode are in force until the servers are ready; without any, no packet is
        // served before the rules are there.
        let warm = self.kernel.has_rules();
        let mut drift = if warm {
            Vec::new()
        } else {
            self.repair_rules(rules, &installed.ports, &mut report)?
        };
        self.send(plan, &mut report)?;
        if warm {
            drift = self.repair_rules(rules, &installed.ports, &mut report)?;
        }
        self.kernel.tidy()?;
        report.drift.extend(drift.into_iter().filter(|_| same));
        self.installed = Some(installed);
        Ok(report)
    }

    fn plan(
        &self,
        rules: &NodeRules,
        ports: Ports,
        snapshot: &snapshot::Snapshot,
        leaving: Leaving,
    ) -> (Installed, Plan) {
        let (excluded, scheduler) = (&self.excluded, &self.scheduler);
        let start = Start {
            snapshot,
            excluded,
            scheduler,
            leaving,
            now: Instant::now(),
        };
        Installed::repair(rules, ports, start)
    }

    /// A family that the node does not have is no error if no Service needs it.
    fn prepare(&mut self, ports: &Ports) -> Result<(), ApplyError> {
        for family in Family::BOTH {
            if let Err(error) = self.kernel.prepare(family) {
                self.do_without(family, error, ports)?;
            }
        }
        Ok(())
    }

    fn repair_rules(
        &mut self,
        rules: &NodeRules,
        ports: &Ports,
        report: &mut Report,
    ) -> Result<Vec<String>, ApplyError> {
        let mut drift = Vec::new();
        for family in Family::BOTH {
            match self.kernel.repair_rules(family, rules, report) {
                Ok(mut words) => {
                    *self.served.get_mut(family) = true;
                    drift.append(&mut words);
                }
                Err(error) => self.do_without(family, error, ports)?,
            }
        }
        Ok(drift)
    }

    fn do_without(
        &mut self,
        family: Family,
        error: ApplyError,
        ports: &Ports,
    ) -> Result<(), ApplyError> {
        if ports.keys().any(|key| key.family == family) {
            return Err(error);
        }
        if std::mem::replace(self.served.get_mut(family), false) {
            tracing::warn!(%error, ?family, "IPVS mode does not work for this address family");
        }
        Ok(())
    }

    fn send(&mut self, plan: Plan, report: &mut Report) -> Result<(), ApplyError> {
        for turn in plan.into_turns() {
            let sent = self.kernel.send(&turn)?;
            report.operations += turn.len();
            report.bytes += sent.bytes;
            report.kernel += sent.kernel;
        }
        Ok(())
    }

    fn destinations(
        &mut self,
        servers: Vec<At>,
    ) -> Result<BTreeMap<At, Vec<Destination>>, ApplyError> {
        servers
            .into_iter()
            .map(|at| Ok((at, self.kernel.destinations(at)?)))
            .collect()
    }

    fn change(
        &mut self,
        mut installed: Installed,
        changes: &[Change],
    ) -> Result<Report, ApplyError> {
        let prepared = installed.prepare(changes);
        let found = self.destinations(installed.abandoned(&prepared))?;
        let plan = installed.change(prepared, &found, Instant::now());
        let mut report = Report::default();
        self.send(plan, &mut report)?;
        self.installed = Some(installed);
        Ok(report)
    }
}

impl<K: Kernel> Dataplane for Ipvs<K> {
    fn name(&self) -> &'static str {
        "ipvs"
    }

    fn replace(&mut self, table: &ForwardingTable) -> Result<Report, ApplyError> {
        let known = self.installed.take();
        self.install(&table.rules, table.ports.to_tree(), known)
    }

    fn apply(&mut self, rules: &NodeRules, changes: &[Change]) -> Result<Report, ApplyError> {
        let served = changes
            .iter()
            .all(|change| *self.served.get(change.key.family));
        let Some(mut installed) = self.installed.take() else {
            return Err(ApplyError::Limit(
                "what is installed is not known; it has to be replaced first".to_owned(),
            ));
        };
        let changes = collapsed(take_over(&mut installed.ports, changes));
        if !served || installed.rules() != rules || installed.reaches_further(&changes) {
            let ports = std::mem::take(&mut installed.ports);
            return self.install(rules, ports, Some(installed));
        }
        self.change(installed, &changes)
    }

    fn depends_on_addresses(&self) -> bool {
        true
    }

    fn due(&self) -> Option<Instant> {
        self.installed.as_ref()?.due()
    }

    fn tend(&mut self, now: Instant) -> Result<Report, ApplyError> {
        let Some(mut installed) = self.installed.take() else {
            return Ok(Report::default());
        };
        let found = self.destinations(installed.leaving())?;
        let plan = installed.tend(&found, now);
        let mut report = Report::default();
        self.send(plan, &mut report)?;
        self.installed = Some(installed);
        Ok(report)
    }

    fn is_installed(&mut self) -> Result<bool, ApplyError> {
        Ok(present())
    }

    fn remove(&mut self) -> Result<(), ApplyError> {
        self.installed = None;
        crate::iptables::remove_all_iptables()?;
        remove_leftovers()
    }
}

/// One change for each port.
fn collapsed(changes: Vec<Change>) -> Vec<Change> {
    let mut collapsed: BTreeMap<PortKey, Change> = BTreeMap::new();
    for change in changes {
        match collapsed.get_mut(&change.key) {
            Some(earlier) => earlier.after = change.after,
            None => _ = collapsed.insert(change.key.clone(), change),
        }
    }
    collapsed.into_values().collect()
}

/// Where everything differs, a few examples say enough.
fn words(plan: &Plan) -> impl Iterator<Item = String> {
    const MOST: usize = 20;
    let more = plan.operations().skip(MOST).count();
    let rest = (more > 0).then(|| format!("and {more} more"));
    plan.operations()
        .take(MOST)
        .map(|operation| format!("it was necessary to {operation}"))
        .chain(rest)
}

#[cfg(test)]
mod tests;
