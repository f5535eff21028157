//! The nftables dataplane: Services and endpoints as data in maps, a few fixed chains, one atomic
//! netlink batch per change.
//!
//! `number` is what a packet carries from rule to rule, `element` what maps hold, `sets`, `expr`
//! and `rules` the fixed part; `installed` (with `port`, `slots`, `sticky`, `classes`, `counts`)
//! what we believe is in the kernel and how changes change it, `edge` who of the nodes has a packet, `adopt` takes numbers over from the
//! kernel; `plan` is what is to be sent, `encode` the messages; `snapshot` and `read` are what the
//! kernel has, `compare` how that differs from a table; `kernel` is the way there, `fake` one for
//! tests; `watch` notices changes of other programs. `relay` is a table of its own, for the
//! hand-over of an address.

mod adopt;
mod classes;
mod compare;
mod counts;
mod delta;
mod edge;
pub(crate) mod element;
mod encode;
mod expr;
#[cfg(test)]
mod fake;
mod installed;
pub mod kernel;
mod number;
pub mod plan;
mod port;
pub(crate) mod read;
pub mod relay;
mod rules;
mod sets;
mod slots;
pub mod snapshot;
mod sticky;
mod watch;

pub use sets::Table;
pub use watch::Watch;

use crate::early_packets::{Queue, Way};
use crate::netlink::Socket;
use crate::{ApplyError, Dataplane, Differences, FoundEdge, Report};
use delta::Delta;
use element::Set;
use expr::Expressions;
use installed::Installed;
use kernel::{CommitError, Kernel, Netlink};
use plan::{Plan, Step, Wanted};
use portico_model::table::{Change, Family, ForwardingTable, FrontendKey, NodeRules, PerFamily};
use snapshot::Snapshot;

/// How often the kernel is read again because rules changed between reading and writing.
const ATTEMPTS: usize = 5;

/// One table in each family, `ip portico` and `ip6 portico` for the node daemon.
pub struct Nftables<K = Netlink> {
    kernel: K,
    /// What we know to be installed; nothing at start and after an error.
    state: Option<State>,
    /// Something was installed by us.
    installed_before: bool,
}

struct State {
    rules: NodeRules,
    families: PerFamily<Installed>,
    /// How much fits into the sets that were given a size.
    sizes: PerFamily<Vec<(Set, usize)>>,
}

impl State {
    /// Whether all sets are large enough for these changes, whatever they take out. If they are
    /// not, the kernel would find out at the end of the work.
    fn has_room_for(&self, changes: &[Change]) -> bool {
        Family::BOTH.into_iter().all(|family| {
            let (installed, sizes) = (self.families.get(family), self.sizes.get(family));
            changes.is_empty()
                || sizes
                    .iter()
                    .all(|(set, size)| installed.at_most(*set, changes) <= *size)
        })
    }
}

impl Nftables {
    /// Opens the dataplane of the calling thread's network namespace. Tables of other names are
    /// left alone.
    pub fn open(table: Table) -> Result<Self, ApplyError> {
        Ok(Self::new(Netlink::open(table)?))
    }

    /// Tells when another program changes our tables, if the kernel allows it; then call `replace`.
    pub fn watch(&self) -> Option<Watch> {
        self.kernel.watch()
    }
}

impl<K: Kernel> Nftables<K> {
    /// A dataplane that has not read the kernel yet.
    pub fn new(kernel: K) -> Self {
        Self {
            kernel,
            state: None,
            installed_before: false,
        }
    }

    /// How the kernel differs from a table. Changes nothing. The queue of early packets is not
    /// compared: it depends on the process that installed the rules.
    pub fn compare(
        &mut self,
        table: &ForwardingTable,
        frontend: &FrontendKey,
    ) -> Result<Differences, ApplyError> {
        let snapshot = self.kernel.read()?;
        let found = snapshot.tables.get(frontend.family).as_ref();
        let early_packets = found.and_then(|found| {
            compare::early_packets(self.kernel.table(), table, found, frontend.family)
        });
        compare::differences(
            Table {
                early_packets,
                ..self.kernel.table()
            },
            table,
            found,
            frontend,
        )
    }

    /// The edge as it is in the kernel, if it is there.
    pub fn edge(&mut self) -> Result<Option<FoundEdge>, ApplyError> {
        let snapshot = self.kernel.read()?;
        let tables = [&snapshot.tables.v4, &snapshot.tables.v6];
        Ok(edge::found(tables.into_iter().flatten()))
    }

    /// What differs from what we installed, in words.
    fn drift(&self, snapshot: &Snapshot) -> Vec<String> {
        let Some(state) = &self.state else {
            return Vec::new();
        };
        let mut plan = Plan::default();
        let differences = |family| {
            let installed = state.families.get(family);
            let wanted = Wanted::new(
                self.kernel.table(),
                family,
                &state.rules,
                installed,
                installed.elements(),
            );
            plan.repair(wanted, snapshot.tables.get(family).as_ref())
        };
        Family::BOTH.into_iter().flat_map(differences).collect()
    }

    fn plan_changes(&mut self, rules: &NodeRules, changes: &[Change]) -> Result<Plan, ApplyError> {
        let mut plan = Plan::default();
        let state = self
            .state
            .as_mut()
            .ok_or_else(|| ApplyError::Limit("nothing is installed yet".to_owned()))?;
        let other_rules = *rules != state.rules;
        for family in Family::BOTH {
            let (mut delta, installed) = (Delta::default(), state.families.get_mut(family));
            if other_rules {
                plan.change_rules(self.kernel.table(), family, &state.rules, rules);
                installed.set_node_port_addresses(rules.node_ports.get(family), &mut delta);
                installed.set_dmz_pods(rules.dmz.get(family), &mut delta);
            }
            for change in changes.iter().filter(|change| change.key.family == family) {
                installed.set(&change.key, change.after.as_ref(), &mut delta)?;
            }
            plan.change(family, delta);
        }
        if other_rules {
            state.rules = rules.clone();
        }
        Ok(plan)
    }

    fn try_apply(&mut self, rules: &NodeRules, changes: &[Change]) -> Result<Report, ApplyError> {
        let plan = self.plan_changes(rules, changes)?;
        let report = self.commit(&plan, None)?;
        if let Some(state) = &mut self.state {
            Family::BOTH
                .into_iter()
                .for_each(|family| state.families.get_mut(family).committed());
        }
        Ok(report)
    }

    fn commit(&mut self, plan: &Plan, generation: Option<u32>) -> Result<Report, CommitError> {
        if plan.is_empty() {
            return Ok(Report::default());
        }
        let sent = self.kernel.commit(plan, generation)?;
        Ok(Report {
            operations: plan.operations(),
            bytes: sent.bytes,
            kernel: sent.kernel,
            drift: Vec::new(),
        })
    }

    /// Replaces the table without reading the kernel, if no other program changed it: reading which
    /// takes seconds for many elements.
    fn try_replace_undisturbed(&mut self, table: &ForwardingTable) -> Option<Report> {
        let state = self
            .state
            .as_ref()
            .filter(|_| self.kernel.is_undisturbed())?;
        let changes: Vec<Change> = Family::BOTH
            .into_iter()
            .flat_map(|family| state.families.get(family).changes_to(table))
            .collect();
        if !state.has_room_for(&changes) {
            return None;
        }
        self.apply(&table.rules, &changes).ok()
    }

    /// Read, take over, repair; `None` if the kernel changed between reading and repairing.
    fn try_replace(
        &mut self,
        table: &ForwardingTable,
        may_overwrite: bool,
    ) -> Result<Option<Report>, ApplyError> {
        let snapshot = self.kernel.read()?;
        let mut drift = self.drift(&snapshot);
        let (ours, mut plan, mut words) = (self.kernel.table(), Plan::default(), Vec::new());
        let generation = (!may_overwrite).then_some(snapshot.generation);
        let mut repair = |family| {
            let found = snapshot.tables.get(family).as_ref();
            let (installed, elements) = adopt::installed(family, table, found)?;
            words.append(&mut plan.repair(
                Wanted::new(ours, family, &table.rules, &installed, elements),
                found,
            ));
            Ok::<_, ApplyError>(installed)
        };
        let families = PerFamily {
            v4: repair(Family::V4)?,
            v6: repair(Family::V6)?,
        };
        let sizes = |family| plan.sizes(family, snapshot.tables.get(family).as_ref());
        let sizes = PerFamily {
            v4: sizes(Family::V4),
            v6: sizes(Family::V6),
        };
        drop(snapshot);
        let report = match self.commit(&plan, generation) {
            Ok(report) => report,
            Err(CommitError::Changed) => return Ok(None),
            Err(CommitError::Failed(error)) => return Err(error),
        };
        if self.installed_before && self.state.is_none() {
            drift = words;
        }
        self.state = Some(State {
            rules: table.rules.clone(),
            families,
            sizes,
        });
        self.installed_before = true;
        Ok(Some(Report { drift, ..report }))
    }
}

impl<K: Kernel> Dataplane for Nftables<K> {
    fn name(&self) -> &'static str {
        "nftables"
    }

    fn replace(&mut self, table: &ForwardingTable) -> Result<Report, ApplyError> {
        if let Some(report) = self.try_replace_undisturbed(table) {
            return Ok(report);
        }
        for attempt in 1..=ATTEMPTS {
            match self.try_replace(table, attempt == ATTEMPTS) {
                Ok(Some(report)) => return Ok(report),
                Ok(None) => {}
                Err(error) => {
                    self.state = None;
                    return Err(error);
                }
            }
        }
        Err(CommitError::Changed.into())
    }

    fn apply(&mut self, rules: &NodeRules, changes: &[Change]) -> Result<Report, ApplyError> {
        self.try_apply(rules, changes)
            .inspect_err(|_| self.state = None)
    }

    fn is_undisturbed(&mut self) -> bool {
        self.state.is_some() && self.kernel.is_undisturbed()
    }

    fn is_installed(&mut self) -> Result<bool, ApplyError> {
        let tables = self.kernel.tables()?;
        Ok(tables.v4 || tables.v6)
    }

    fn remove(&mut self) -> Result<(), ApplyError> {
        self.state = None;
        self.installed_before = false;
        let tables = self.kernel.tables()?;
        let present = Family::BOTH
            .into_iter()
            .filter(|family| *tables.get(*family));
        let plan = Plan {
            after: present.map(Step::DeleteTable).collect(),
            ..Plan::default()
        };
        self.commit(&plan, None).map(drop).map_err(ApplyError::from)
    }
}

/// How rules of this kernel can have packets wait, if they can: tried with a table that is gone in
/// the same moment.
pub fn way_to_wait() -> Result<Option<Way>, ApplyError> {
    let mut kernel = Netlink::unwatched(Table::small("portico-probe"))?;
    let works = |way: &Way| {
        let (family, queue) = (
            Family::V4,
            Queue {
                number: 0,
                way: *way,
            },
        );
        let chain = rules::chain(
            "probe",
            None,
            vec![rules::rule(Expressions::new(family).queue(queue))],
        );
        let steps = chain
            .rules
            .into_iter()
            .map(|rule| Step::AddRule(family, chain.name.clone(), rule));
        let before = [
            Step::AddTable(family),
            Step::AddChain(family, chain.name.clone(), None),
        ]
        .into_iter()
        .chain(steps);
        let plan = Plan {
            before: before.collect(),
            after: vec![Step::DeleteTable(family)],
            ..Plan::default()
        };
        kernel.commit(&plan, None).is_ok()
    };
    Ok(Way::ALL.into_iter().find(works))
}

/// Delete kube-proxy's nftables tables, if there are any, and nothing else. Returns how many there
/// were.
pub fn remove_kube_proxy_nftables() -> Result<usize, ApplyError> {
    Netlink::open(Table::NODE)?.delete_tables("kube-proxy")
}

/// What others have in the way of packets, in words: chains that drop what none of their rules
/// accepts.
pub fn in_the_way(family: Family) -> std::io::Result<Vec<String>> {
    let chains = read::base_chains(&mut Socket::netfilter()?, family)?;
    let dropping = chains.into_iter().filter(|(.., base)| !base.accepts);
    let words = |(table, chain, _): (_, _, _)| {
        format!("chain {chain} of table {table} drops what its rules do not accept")
    };
    Ok(dropping.map(words).collect())
}

/// Whether a table of this name exists in either family.
pub fn has_table(family: Family, name: &str) -> std::io::Result<bool> {
    read::has_table(&mut Socket::netfilter()?, family, name)
}

#[cfg(test)]
mod tests;
