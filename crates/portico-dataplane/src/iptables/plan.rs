//! Installed and wanted → the text that `iptables-restore --noflush` is given.
//!
//! A plan is a few [`Run`]s, nearly always one. The nft variant of `iptables-restore` takes time in the square of the number of
//! chains that its input names (it keeps their names in a sorted list), so its input is split where it gets long: chains
//! that nothing leads to yet, then the shared chains in one piece, then what nothing leads to any more.

use super::fixed::{Features, fixed_chains, hooks, martian_hooks, tail};
use super::names::{MARTIANS, Shared, Table};
use super::read::{Installed, fingerprint, meaning};
use super::rules::{Chain, PortRules, port_rules, shared_rules};
use portico_model::table::{Change, Family, NodeRules, PortKey, ServicePort};
use std::collections::{BTreeMap, HashMap};
use std::fmt::{self, Write};
use std::sync::Arc;

/// Input for one `iptables-restore`. Its `Display` is that input.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Run {
    filter: Part,
    nat: Part,
}

/// One table's part of a run, as text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Part {
    /// Chains that are made, or emptied.
    declared: String,
    rules: String,
    /// Chains that go, once nothing leads to them.
    removed: String,
    lines: usize,
}

impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for table in Table::BOTH {
            let part = self.part(table);
            if part.lines > 0 {
                write!(f, "*{}\n{}{}{}COMMIT\n", table.name(), part.declared, part.rules, part.removed)?;
            }
        }
        Ok(())
    }
}

impl Run {
    pub fn lines(&self) -> usize {
        self.filter.lines + self.nat.lines
    }

    fn part(&self, table: Table) -> &Part {
        match table {
            Table::Filter => &self.filter,
            Table::Nat => &self.nat,
        }
    }

    fn part_mut(&mut self, table: Table) -> &mut Part {
        match table {
            Table::Filter => &mut self.filter,
            Table::Nat => &mut self.nat,
        }
    }

    /// Make the chain, or empty it.
    pub fn declare(&mut self, table: Table, chain: &str) {
        let part = self.part_mut(table);
        // Writing to a string cannot fail.
        _ = writeln!(part.declared, ":{chain} - [0:0]");
        part.lines += 1;
    }

    fn rule(&mut self, table: Table, command: &str, chain: &str, rule: &str) {
        let part = self.part_mut(table);
        _ = writeln!(part.rules, "{command} {chain} {rule}");
        part.lines += 1;
    }

    pub fn append(&mut self, table: Table, chain: &str, rule: &str) {
        self.rule(table, "-A", chain, rule);
    }

    /// At the beginning of the chain.
    pub fn insert(&mut self, table: Table, chain: &str, rule: &str) {
        self.rule(table, "-I", chain, rule);
    }

    pub fn delete(&mut self, table: Table, chain: &str, rule: &str) {
        self.rule(table, "-D", chain, rule);
    }

    pub fn write(&mut self, chain: &Chain) {
        self.declare(chain.table, &chain.name);
        for rule in &chain.rules {
            self.append(chain.table, &chain.name, rule);
        }
    }

    pub fn remove(&mut self, table: Table, chain: &str) {
        self.declare(table, chain);
        let part = self.part_mut(table);
        _ = writeln!(part.removed, "-X {chain}");
        part.lines += 1;
    }
}

/// Takes runs as they are ready.
pub struct Sink<'a, E> {
    run: Run,
    /// More lines than this are split, where they may be.
    limit: usize,
    send: &'a mut dyn FnMut(&Run) -> Result<(), E>,
}

impl<'a, E> Sink<'a, E> {
    pub fn new(limit: usize, send: &'a mut dyn FnMut(&Run) -> Result<(), E>) -> Sink<'a, E> {
        Sink { run: Run::default(), limit, send }
    }

    /// What is written so far may be installed before the rest.
    pub fn may_split(&mut self) -> Result<(), E> {
        if self.run.lines() > self.limit { self.finish() } else { Ok(()) }
    }

    pub fn finish(&mut self) -> Result<(), E> {
        match self.run.lines() {
            0 => Ok(()),
            _ => (self.send)(&std::mem::take(&mut self.run)),
        }
    }

    pub fn run(&mut self) -> &mut Run {
        &mut self.run
    }
}

/// Deleting a rule makes the nft variant look at the whole chain, which takes as long as writing a hundredth of it; the legacy
/// variant does not care. So a chain that loses more rules than this is written anew.
const MOST_DELETIONS: usize = 100;

/// What is the same for everything that is planned for a family.
#[derive(Clone, Copy)]
pub struct Planner<'a> {
    pub rules: &'a NodeRules,
    pub family: Family,
    pub features: Features,
}

pub type Ports = BTreeMap<PortKey, Arc<ServicePort>>;

impl Planner<'_> {
    /// Changes of single ports. `ports` is what is wanted in the end.
    pub fn change<E>(&self, changes: &[Change], ports: &Ports, sink: &mut Sink<'_, E>) -> Result<(), E> {
        let mut edits = Edits::default();
        let mut gone: Vec<(Table, String)> = Vec::new();
        for change in changes.iter().filter(|change| change.key.family == self.family) {
            let of = |port: &Option<Arc<ServicePort>>| match port {
                Some(port) => port_rules(&change.key, port, self.rules),
                None => PortRules::default(),
            };
            let (before, after) = (of(&change.before), of(&change.after));
            let mut old: HashMap<(Table, &str), &Chain> =
                before.chains.iter().map(|chain| (chain.id(), chain)).collect();
            for chain in &after.chains {
                if old.remove(&chain.id()) != Some(chain) {
                    sink.run().write(chain);
                }
            }
            gone.extend(old.into_keys().map(|(table, name)| (table, name.to_owned())));
            edits.missing(after.shared.iter().filter(|rule| !before.shared.contains(rule)).cloned());
            edits.surplus(before.shared.into_iter().filter(|rule| !after.shared.contains(rule)));
            sink.may_split()?;
        }
        for (shared, edit) in edits.0 {
            let tail = tail(shared, self.rules, self.family);
            if edit.surplus.len() > MOST_DELETIONS {
                self.rewrite(shared, ports, &tail, sink.run());
            } else {
                edit.write(shared, sink.run());
            }
        }
        self.remove_all(gone, sink)?;
        sink.finish()
    }

    /// Whatever is installed → the whole table. Says in words what differed.
    pub fn repair<E>(&self, installed: &mut Installed, ports: &Ports, sink: &mut Sink<'_, E>) -> Result<Drift, E> {
        let mut drift = Drift::default();
        self.repair_fixed(installed, sink.run(), &mut drift);
        let mut shared: BTreeMap<Shared, SharedRepair> = Shared::ALL
            .into_iter()
            .map(|shared| (shared, self.begin_shared(shared, installed, sink.run(), &mut drift)))
            .collect();
        for (key, port) in ports.iter().filter(|(key, _)| key.family == self.family) {
            let wanted = port_rules(key, port, self.rules);
            for chain in &wanted.chains {
                let found = installed.table_mut(chain.table).ports.remove(chain.name.as_str());
                if found != Some(fingerprint(&chain.rules)) {
                    sink.run().write(chain);
                    let how = if found.is_some() { "had other rules" } else { "was missing" };
                    drift.note(format_args!("{} chain {} of {key} {how}", chain.table.name(), chain.name));
                }
            }
            for (chain, rule) in wanted.shared {
                if let Some(repair) = shared.get_mut(&chain) {
                    repair.want(rule);
                }
            }
            sink.may_split()?;
        }
        for (chain, repair) in shared {
            self.repair_shared(chain, repair, ports, sink.run(), &mut drift);
        }
        self.repair_hooks(installed, sink.run(), &mut drift);
        let gone = self.surplus_chains(installed);
        for (table, name) in &gone {
            drift.note(format_args!("{} chain {name} belonged to nothing", table.name()));
        }
        self.remove_all(gone, sink)?;
        sink.finish()?;
        Ok(drift)
    }

    fn repair_fixed(&self, installed: &mut Installed, run: &mut Run, drift: &mut Drift) {
        for chain in fixed_chains(self.rules, self.family, self.features) {
            let found = installed.table_mut(chain.table).others.remove(&chain.name);
            let meanings = |rules: &[String]| rules.iter().map(|rule| meaning(rule)).collect::<Vec<_>>();
            match found {
                Some(found) if meanings(&found) == meanings(&chain.rules) => continue,
                // It may be kubelet's: only what is missing is added.
                Some(found) if chain.name == MARTIANS => {
                    let found = meanings(&found);
                    for rule in chain.rules.iter().filter(|rule| !found.contains(&meaning(rule))) {
                        run.append(chain.table, &chain.name, rule);
                        drift.note(format_args!("{} chain {} lacked a rule", chain.table.name(), chain.name));
                    }
                    continue;
                }
                Some(_) => drift.note(format_args!("{} chain {} had other rules", chain.table.name(), chain.name)),
                None => drift.note(format_args!("{} chain {} was missing", chain.table.name(), chain.name)),
            }
            run.write(&chain);
        }
    }

    fn begin_shared(
        &self,
        shared: Shared,
        installed: &mut Installed,
        run: &mut Run,
        drift: &mut Drift,
    ) -> SharedRepair {
        let tail = tail(shared, self.rules, self.family);
        let Some(mut found) = installed.table_mut(shared.table()).others.remove(shared.name()) else {
            drift.note(format_args!("{} chain {} was missing", shared.table().name(), shared.name()));
            run.write(&Chain { table: shared.table(), name: shared.name().to_owned(), rules: tail.clone() });
            return SharedRepair { tail, tail_stays: true, found: HashMap::new(), edit: Edit::default() };
        };
        let ends_well = found
            .iter()
            .rev()
            .map(|rule| meaning(rule))
            .take(tail.len())
            .eq(tail.iter().rev().map(|rule| meaning(rule)));
        if ends_well {
            found.truncate(found.len() - tail.len());
        }
        let mut by_meaning: HashMap<u64, Vec<String>> = HashMap::new();
        for rule in found {
            by_meaning.entry(meaning(&rule)).or_default().push(rule);
        }
        SharedRepair { tail, tail_stays: ends_well, found: by_meaning, edit: Edit::default() }
    }

    fn repair_shared(&self, shared: Shared, mut repair: SharedRepair, ports: &Ports, run: &mut Run, drift: &mut Drift) {
        let chain = format!("{} chain {}", shared.table().name(), shared.name());
        repair.edit.surplus.extend(repair.found.into_values().flatten());
        let edit = repair.edit;
        if !edit.missing.is_empty() {
            drift.note(format_args!("{chain} lacked {} rules", edit.missing.len()));
        }
        if !edit.surplus.is_empty() {
            drift.note(format_args!("{chain} had {} rules too many", edit.surplus.len()));
        }
        if !repair.tail_stays {
            drift.note(format_args!("{chain} did not end as it should"));
        }
        if edit.surplus.len() > MOST_DELETIONS {
            return self.rewrite(shared, ports, &repair.tail, run);
        }
        edit.write(shared, run);
        if !repair.tail_stays {
            for rule in &repair.tail {
                run.append(shared.table(), shared.name(), rule);
            }
        }
    }

    /// The whole shared chain.
    fn rewrite(&self, shared: Shared, ports: &Ports, tail: &[String], run: &mut Run) {
        run.declare(shared.table(), shared.name());
        for (key, port) in ports.iter().filter(|(key, _)| key.family == self.family) {
            for (_, rule) in shared_rules(key, port, self.rules).iter().filter(|(chain, _)| *chain == shared) {
                run.append(shared.table(), shared.name(), rule);
            }
        }
        for rule in tail {
            run.append(shared.table(), shared.name(), rule);
        }
    }

    fn repair_hooks(&self, installed: &Installed, run: &mut Run, drift: &mut Drift) {
        for hook in hooks() {
            let found = installed.table(hook.table).hooks.get(hook.chain).map(Vec::as_slice).unwrap_or_default();
            let found: Vec<&String> = found.iter().filter(|rule| super::read::target(rule) != Some(MARTIANS)).collect();
            if found.iter().map(|rule| meaning(rule)).eq(hook.rules.iter().map(|rule| meaning(rule))) {
                continue;
            }
            drift.note(format_args!("{} chain {} did not lead to ours as it should", hook.table.name(), hook.chain));
            for rule in found {
                run.delete(hook.table, hook.chain, rule);
            }
            for rule in hook.rules.iter().rev() {
                run.insert(hook.table, hook.chain, rule);
            }
        }
        for (chain, rule) in martian_hooks(self.rules, self.family) {
            let found = installed.filter.hooks.get(chain).map(Vec::as_slice).unwrap_or_default();
            if !found.iter().any(|found| meaning(found) == meaning(&rule)) {
                drift.note(format_args!("filter chain {chain} did not lead to {MARTIANS}"));
                run.insert(Table::Filter, chain, &rule);
            }
        }
    }

    /// Chains of ports that are not wanted, and other chains of ours that are not needed.
    fn surplus_chains(&self, installed: &Installed) -> Vec<(Table, String)> {
        let mut gone = Vec::new();
        for table in Table::BOTH {
            let found = installed.table(table);
            let others = found.others.keys().filter(|name| ![MARTIANS, super::names::CANARY].contains(&name.as_str()));
            let names = found.ports.keys().map(|name| name.to_string()).chain(others.cloned());
            gone.extend(names.filter(|name| !found.used_by_others.contains(name)).map(|name| (table, name)));
        }
        gone.sort_unstable();
        gone
    }

    fn remove_all<E>(&self, mut gone: Vec<(Table, String)>, sink: &mut Sink<'_, E>) -> Result<(), E> {
        gone.sort_by_cached_key(|(_, name)| (super::names::depth(name), name.clone()));
        for (table, name) in gone {
            sink.run().remove(table, &name);
            sink.may_split()?;
        }
        Ok(())
    }
}

/// What differed, in words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Drift {
    said: Vec<String>,
    unsaid: usize,
}

impl Drift {
    /// Where everything differs, a few examples say enough.
    const MOST: usize = 20;

    fn note(&mut self, what: fmt::Arguments<'_>) {
        match self.said.len() < Drift::MOST {
            true => self.said.push(what.to_string()),
            false => self.unsaid += 1,
        }
    }

    pub fn words(mut self) -> Vec<String> {
        if self.unsaid > 0 {
            self.said.push(format!("and {} more", self.unsaid));
        }
        self.said
    }
}

/// Rules to be added to a shared chain, and rules to be deleted.
#[derive(Debug, Default)]
struct Edit {
    missing: Vec<String>,
    surplus: Vec<String>,
}

impl Edit {
    fn write(&self, shared: Shared, run: &mut Run) {
        for rule in &self.surplus {
            run.delete(shared.table(), shared.name(), rule);
        }
        for rule in self.missing.iter().rev() {
            run.insert(shared.table(), shared.name(), rule);
        }
    }
}

#[derive(Default)]
struct Edits(BTreeMap<Shared, Edit>);

impl Edits {
    fn missing(&mut self, rules: impl Iterator<Item = (Shared, String)>) {
        for (shared, rule) in rules {
            self.0.entry(shared).or_default().missing.push(rule);
        }
    }

    fn surplus(&mut self, rules: impl Iterator<Item = (Shared, String)>) {
        for (shared, rule) in rules {
            self.0.entry(shared).or_default().surplus.push(rule);
        }
    }
}

/// A shared chain while it is compared.
struct SharedRepair {
    tail: Vec<String>,
    /// The tail is where it should be.
    tail_stays: bool,
    /// Rules before the tail that were not asked for yet, by what they mean.
    found: HashMap<u64, Vec<String>>,
    edit: Edit,
}

impl SharedRepair {
    fn want(&mut self, rule: String) {
        if self.found.get_mut(&meaning(&rule)).and_then(Vec::pop).is_none() {
            self.edit.missing.push(rule);
        }
    }
}

#[cfg(test)]
mod tests;
