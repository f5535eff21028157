//! What was read and what is wanted → a plan that touches only what differs, and what differed in
//! words.

use super::fixed::{Hook, fixed_chains, hooks, martian_hooks, tail};
use super::names::{CANARY, MARTIANS, SERVICES, Shared, Table};
use super::plan::{Edit, Planner, Ports, Sink, remove_all};
use super::read::{Installed, fingerprint, meaning, target};
use super::rules::{Chain, port_rules};
use portico_model::key::ObjectKey;
use portico_model::table::{PortKey, ServicePort};
use std::collections::{BTreeMap, HashMap};
use std::fmt;

/// Where nothing is installed yet and there are more ports than this, the urgent ones do not wait
/// for the others.
const WORTH_WAITING_FOR: usize = 300;

/// The API server's own Service, and what runs the cluster (its DNS, above all).
fn is_urgent(key: &PortKey) -> bool {
    let ObjectKey { namespace, name } = &key.service;
    &**namespace == "kube-system" || (&**namespace == "default" && &**name == "kubernetes")
}

/// Plans the whole table, whatever is installed.
pub(crate) fn repair<E>(
    planner: Planner<'_>,
    installed: Installed,
    ports: &Ports,
    sink: &mut Sink<'_, E>,
) -> Result<Drift, E> {
    let cold = !installed.nat.others.contains_key(SERVICES);
    let mut repair = Repair {
        planner,
        installed,
        shared: BTreeMap::new(),
        sink,
        drift: Drift::default(),
    };
    repair.fixed(&fixed_chains(
        planner.rules,
        planner.family,
        planner.features,
    ));
    repair.begin_shared();
    repair.hooks(&hooks());
    repair.martians();
    repair.drift.fixed = repair.drift.said.len();
    let ours = || ports.iter().filter(|(key, _)| key.family == planner.family);
    for (key, port) in ours().filter(|(key, _)| is_urgent(key)) {
        repair.port(key, port)?;
    }
    if cold && ports.len() > WORTH_WAITING_FOR {
        repair.open_early()?;
    }
    for (key, port) in ours().filter(|(key, _)| !is_urgent(key)) {
        repair.port(key, port)?;
    }
    repair.finish_shared(ports);
    repair.surplus_chains()?;
    repair.sink.finish()?;
    Ok(repair.drift)
}

/// Plans these chains and hooks and nothing else of ours, whatever is installed.
pub(crate) fn repair_fixed<E>(
    planner: Planner<'_>,
    installed: Installed,
    chains: &[Chain],
    hooks: &[Hook],
    sink: &mut Sink<'_, E>,
) -> Result<Drift, E> {
    let mut repair = Repair {
        planner,
        installed,
        shared: BTreeMap::new(),
        sink,
        drift: Drift::default(),
    };
    repair.fixed(chains);
    repair.hooks(hooks);
    repair.surplus_chains()?;
    repair.sink.finish()?;
    Ok(repair.drift)
}

struct Repair<'a, 's, E> {
    planner: Planner<'a>,
    /// What was found and not asked for yet.
    installed: Installed,
    shared: BTreeMap<Shared, SharedRepair>,
    sink: &'a mut Sink<'s, E>,
    drift: Drift,
}

impl<E> Repair<'_, '_, E> {
    fn fixed(&mut self, chains: &[Chain]) {
        for chain in chains {
            let found = self
                .installed
                .table_mut(chain.table)
                .others
                .remove(&chain.name);
            match found {
                Some(found) if meanings(&found) == meanings(&chain.rules) => continue,
                // It may be kubelet's: only what is missing is added.
                Some(found) if chain.name == MARTIANS => {
                    let found = meanings(&found);
                    for rule in chain
                        .rules
                        .iter()
                        .filter(|rule| !found.contains(&meaning(rule)))
                    {
                        self.sink.run().append(chain.table, &chain.name, rule);
                        self.drift.note(format_args!(
                            "{} chain {} lacked a rule",
                            chain.table.name(),
                            chain.name
                        ));
                    }
                    continue;
                }
                found => self.drift.chain(chain.table, &chain.name, found.is_some()),
            }
            self.sink.run().write(chain);
        }
    }

    fn begin_shared(&mut self) {
        for shared in Shared::ALL {
            let tail = tail(shared, self.planner.rules, self.planner.family);
            let found = self
                .installed
                .table_mut(shared.table())
                .others
                .remove(shared.name());
            let repair = match found {
                Some(found) => {
                    let repair = SharedRepair::of(found, &tail);
                    if !repair.ends_well {
                        self.drift.note(format_args!(
                            "{} chain {} did not end as it should",
                            shared.table().name(),
                            shared.name()
                        ));
                    }
                    repair
                }
                None => {
                    self.drift.chain(shared.table(), shared.name(), false);
                    self.sink.run().write(&Chain {
                        table: shared.table(),
                        name: shared.name().to_owned(),
                        rules: tail,
                    });
                    SharedRepair {
                        ends_well: true,
                        found: HashMap::new(),
                        edit: Edit::default(),
                    }
                }
            };
            self.shared.insert(shared, repair);
        }
    }

    fn hooks(&mut self, hooks: &[Hook]) {
        for hook in hooks {
            self.hook(hook.table, hook.chain, &hook.rules);
        }
        // Those of another mode, in chains where this one has none.
        let wanted = |table: Table, chain: &str| {
            hooks
                .iter()
                .any(|hook| (hook.table, hook.chain) == (table, chain))
        };
        let chains = Table::ALL.into_iter().flat_map(|table| {
            self.installed
                .table(table)
                .hooks
                .keys()
                .map(move |chain| (table, chain))
        });
        let others: Vec<(Table, String)> = chains
            .filter(|(table, chain)| !wanted(*table, chain))
            .map(|(table, chain)| (table, chain.clone()))
            .collect();
        for (table, chain) in others {
            self.hook(table, &chain, &[]);
        }
    }

    fn martians(&mut self) {
        for (chain, rule) in martian_hooks(self.planner.rules, self.planner.family) {
            let found = self
                .installed
                .filter
                .hooks
                .get(chain)
                .map(Vec::as_slice)
                .unwrap_or_default();
            if !meanings(found).contains(&meaning(&rule)) {
                self.drift.note(format_args!(
                    "filter chain {chain} did not lead to {MARTIANS}"
                ));
                self.sink.run().insert(Table::Filter, chain, &rule);
            }
        }
    }

    /// The rules of one of the kernel's chains that lead to ours.
    fn hook(&mut self, table: Table, chain: &str, wanted: &[String]) {
        let found = self
            .installed
            .table(table)
            .hooks
            .get(chain)
            .map(Vec::as_slice)
            .unwrap_or_default();
        let found: Vec<&String> = found
            .iter()
            .filter(|rule| target(rule) != Some(MARTIANS))
            .collect();
        if found
            .iter()
            .map(|rule| meaning(rule))
            .eq(wanted.iter().map(|rule| meaning(rule)))
        {
            return;
        }
        self.drift.note(format_args!(
            "{} chain {chain} did not lead to ours as it should",
            table.name()
        ));
        for rule in found {
            self.sink.run().delete(table, chain, rule);
        }
        for rule in wanted.iter().rev() {
            self.sink.run().insert(table, chain, rule);
        }
    }

    fn port(&mut self, key: &PortKey, port: &ServicePort) -> Result<(), E> {
        let wanted = port_rules(key, port, self.planner.rules);
        for chain in &wanted.chains {
            let found = self
                .installed
                .table_mut(chain.table)
                .ports
                .remove(chain.name.as_str());
            if found != Some(fingerprint(&chain.rules)) {
                self.sink.run().write(chain);
                self.drift.chain(
                    chain.table,
                    &format!("{} of {key}", chain.name),
                    found.is_some(),
                );
            }
        }
        for (chain, rule) in wanted.shared {
            if let Some(repair) = self.shared.get_mut(&chain) {
                repair.want(rule);
            }
        }
        self.sink.may_split()
    }

    /// Lets what was compared so far be served from now on.
    fn open_early(&mut self) -> Result<(), E> {
        for (chain, repair) in &mut self.shared {
            std::mem::take(&mut repair.edit).write(*chain, self.sink.run());
        }
        self.sink.finish()
    }

    fn finish_shared(&mut self, ports: &Ports) {
        for (shared, mut repair) in std::mem::take(&mut self.shared) {
            repair
                .edit
                .surplus
                .extend(repair.found.into_values().flatten());
            let edit = repair.edit;
            self.drift.shared(shared, &edit);
            if edit.is_large() {
                self.planner.rewrite(shared, ports, self.sink.run());
                continue;
            }
            edit.write(shared, self.sink.run());
            let tail = tail(shared, self.planner.rules, self.planner.family);
            for rule in tail.iter().filter(|_| !repair.ends_well) {
                self.sink.run().append(shared.table(), shared.name(), rule);
            }
        }
    }

    /// Chains of ports that are not wanted, and other chains of ours that are not needed. A port's
    /// chain that other programs' rules lead to stays, empty: the chains that it led to go.
    fn surplus_chains(&mut self) -> Result<(), E> {
        let (mut gone, mut emptied) = (Vec::new(), Vec::new());
        for table in Table::ALL {
            let found = self.installed.table(table);
            let others = found
                .others
                .keys()
                .filter(|name| ![MARTIANS, CANARY].contains(&name.as_str()));
            let names = found
                .ports
                .keys()
                .map(|name| name.to_string())
                .chain(others.cloned());
            gone.extend(
                names
                    .filter(|name| !found.used_by_others.contains(name))
                    .map(|name| (table, name)),
            );
            let held = found
                .ports
                .iter()
                .filter(|(name, _)| found.used_by_others.contains(name.as_ref()));
            let full = held.filter(|(_, rules)| **rules != fingerprint(&[]));
            emptied.extend(full.map(|(name, _)| (table, name.to_string())));
        }
        gone.sort_unstable();
        emptied.sort_unstable();
        for (table, name) in gone.iter().chain(&emptied) {
            self.drift.note(format_args!(
                "{} chain {name} belonged to nothing",
                table.name()
            ));
        }
        emptied
            .iter()
            .for_each(|(table, name)| self.sink.run().declare(*table, name));
        remove_all(gone, self.sink)
    }
}

fn meanings(rules: &[String]) -> Vec<u64> {
    rules.iter().map(|rule| meaning(rule)).collect()
}

/// A shared chain while it is compared.
struct SharedRepair {
    /// The rules that belong at its end are there.
    ends_well: bool,
    /// Rules before the tail that were not asked for yet, by what they mean.
    found: HashMap<u64, Vec<String>>,
    edit: Edit,
}

impl SharedRepair {
    fn of(mut found: Vec<String>, tail: &[String]) -> Self {
        let body = found.len().saturating_sub(tail.len());
        let ends_well = found
            .get(body..)
            .is_some_and(|end| meanings(end) == meanings(tail));
        if ends_well {
            found.truncate(body);
        }
        let mut by_meaning: HashMap<u64, Vec<String>> = HashMap::new();
        for rule in found {
            by_meaning.entry(meaning(&rule)).or_default().push(rule);
        }
        Self {
            ends_well,
            found: by_meaning,
            edit: Edit::default(),
        }
    }

    fn want(&mut self, rule: String) {
        if self
            .found
            .get_mut(&meaning(&rule))
            .and_then(Vec::pop)
            .is_none()
        {
            self.edit.missing.push(rule);
        }
    }
}

/// What differed, in words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Drift {
    said: Vec<String>,
    unsaid: usize,
    /// So many of the first are about what all ports share.
    fixed: usize,
}

impl Drift {
    /// Where everything differs, a few examples say enough.
    const MOST: usize = 20;

    fn note(&mut self, what: fmt::Arguments<'_>) {
        match self.said.len() < Self::MOST {
            true => self.said.push(what.to_string()),
            false => self.unsaid += 1,
        }
    }

    fn chain(&mut self, table: Table, chain: &str, found: bool) {
        let how = if found {
            "had other rules"
        } else {
            "was missing"
        };
        self.note(format_args!("{} chain {chain} {how}", table.name()));
    }

    fn shared(&mut self, shared: Shared, edit: &Edit) {
        let chain = format!("{} chain {}", shared.table().name(), shared.name());
        if !edit.missing.is_empty() {
            self.note(format_args!("{chain} lacked {} rules", edit.missing.len()));
        }
        if !edit.surplus.is_empty() {
            self.note(format_args!(
                "{chain} had {} rules too many",
                edit.surplus.len()
            ));
        }
    }

    /// About what all ports share, and how many there are beside that.
    pub(crate) fn parts(mut self) -> (Vec<String>, usize) {
        let others = self.said.len() - self.fixed + self.unsaid;
        self.said.truncate(self.fixed);
        (self.said, others)
    }

    pub(crate) fn words(mut self) -> Vec<String> {
        if self.unsaid > 0 {
            self.said.push(format!("and {} more", self.unsaid));
        }
        self.said
    }
}
