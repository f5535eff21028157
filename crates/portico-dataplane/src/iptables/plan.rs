//! Installed and wanted → the text that `iptables-restore --noflush` is given. Here, where what is
//! installed is known; [`super::repair`] is for where it was read.
//!
//! A plan is a few [`Run`]s, nearly always one. The nft variant of `iptables-restore` takes time in
//! the square of the number of chains that its input names (it keeps their names in a sorted list),
//! so its input is split where it gets long: chains that nothing leads to yet, then the shared
//! chains in one piece, then what nothing leads to any more.

use super::fixed::{Features, tail};
use super::names::{Shared, Table, depth};
use super::rules::{Chain, PortRules, port_rules, shared_rules};
use portico_model::table::{Change, Family, NodeRules, PortKey, ServicePort};
use std::collections::{BTreeMap, HashMap};
use std::fmt::{self, Write};
use std::sync::Arc;

/// Input for one `iptables-restore`. Its `Display` is that input.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Run {
    filter: Part,
    nat: Part,
    mangle: Part,
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
        for table in Table::ALL {
            let part = self.part(table);
            if part.lines > 0 {
                write!(
                    f,
                    "*{}\n{}{}{}COMMIT\n",
                    table.name(),
                    part.declared,
                    part.rules,
                    part.removed
                )?;
            }
        }
        Ok(())
    }
}

impl Run {
    pub(crate) fn lines(&self) -> usize {
        self.filter.lines + self.nat.lines + self.mangle.lines
    }

    fn part(&self, table: Table) -> &Part {
        match table {
            Table::Filter => &self.filter,
            Table::Nat => &self.nat,
            Table::Mangle => &self.mangle,
        }
    }

    fn part_mut(&mut self, table: Table) -> &mut Part {
        match table {
            Table::Filter => &mut self.filter,
            Table::Nat => &mut self.nat,
            Table::Mangle => &mut self.mangle,
        }
    }

    /// Make the chain, or empty it.
    pub(crate) fn declare(&mut self, table: Table, chain: &str) {
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

    pub(crate) fn append(&mut self, table: Table, chain: &str, rule: &str) {
        self.rule(table, "-A", chain, rule);
    }

    /// Inserts a rule at the beginning of the chain.
    pub(crate) fn insert(&mut self, table: Table, chain: &str, rule: &str) {
        self.rule(table, "-I", chain, rule);
    }

    pub(crate) fn delete(&mut self, table: Table, chain: &str, rule: &str) {
        self.rule(table, "-D", chain, rule);
    }

    pub(crate) fn write(&mut self, chain: &Chain) {
        self.declare(chain.table, &chain.name);
        for rule in &chain.rules {
            self.append(chain.table, &chain.name, rule);
        }
    }

    pub(crate) fn remove(&mut self, table: Table, chain: &str) {
        self.declare(table, chain);
        let part = self.part_mut(table);
        _ = writeln!(part.removed, "-X {chain}");
        part.lines += 1;
    }
}

/// Takes runs as they are ready.
pub(crate) struct Sink<'a, E> {
    run: Run,
    /// More lines than this are split, where they may be.
    limit: usize,
    send: &'a mut dyn FnMut(&Run) -> Result<(), E>,
}

impl<'a, E> Sink<'a, E> {
    pub(crate) fn new(limit: usize, send: &'a mut dyn FnMut(&Run) -> Result<(), E>) -> Self {
        Sink {
            run: Run::default(),
            limit,
            send,
        }
    }

    /// Allows what is written so far to be installed before the rest.
    pub(crate) fn may_split(&mut self) -> Result<(), E> {
        if self.run.lines() > self.limit {
            self.finish()
        } else {
            Ok(())
        }
    }

    pub(crate) fn finish(&mut self) -> Result<(), E> {
        match self.run.lines() {
            0 => Ok(()),
            _ => (self.send)(&std::mem::take(&mut self.run)),
        }
    }

    pub(crate) fn run(&mut self) -> &mut Run {
        &mut self.run
    }
}

/// Deleting a rule makes the nft variant look at the whole chain, which takes as long as writing a
/// hundredth of it; the legacy variant does not care. So a chain that loses more rules than this is
/// written anew.
const MOST_DELETIONS: usize = 100;

/// What is the same for everything that is planned for a family.
#[derive(Clone, Copy)]
pub(crate) struct Planner<'a> {
    pub rules: &'a NodeRules,
    pub family: Family,
    pub features: Features,
}

pub(crate) type Ports = BTreeMap<PortKey, Arc<ServicePort>>;

impl Planner<'_> {
    /// Changes of single ports. `ports` is what is wanted in the end.
    pub(crate) fn change<E>(
        &self,
        changes: &[Change],
        ports: &Ports,
        sink: &mut Sink<'_, E>,
    ) -> Result<(), E> {
        let mut edits = Edits::default();
        let mut gone: Vec<(Table, String)> = Vec::new();
        for change in changes
            .iter()
            .filter(|change| change.key.family == self.family)
        {
            let of = |port: &Option<Arc<ServicePort>>| match port {
                Some(port) => port_rules(&change.key, port, self.rules),
                None => PortRules::default(),
            };
            let (before, after) = (of(&change.before), of(&change.after));
            let mut old: HashMap<(Table, &str), &Chain> = before
                .chains
                .iter()
                .map(|chain| (chain.id(), chain))
                .collect();
            for chain in &after.chains {
                if old.remove(&chain.id()) != Some(chain) {
                    sink.run().write(chain);
                }
            }
            gone.extend(
                old.into_keys()
                    .map(|(table, name)| (table, name.to_owned())),
            );
            edits.missing(
                after
                    .shared
                    .iter()
                    .filter(|rule| !before.shared.contains(rule))
                    .cloned(),
            );
            edits.surplus(
                before
                    .shared
                    .into_iter()
                    .filter(|rule| !after.shared.contains(rule)),
            );
            sink.may_split()?;
        }
        for (shared, edit) in edits.0 {
            match edit.is_large() {
                true => self.rewrite(shared, ports, sink.run()),
                false => edit.write(shared, sink.run()),
            }
        }
        remove_all(gone, sink)?;
        sink.finish()
    }

    /// The whole shared chain.
    pub(crate) fn rewrite(&self, shared: Shared, ports: &Ports, run: &mut Run) {
        run.declare(shared.table(), shared.name());
        for (key, port) in ports.iter().filter(|(key, _)| key.family == self.family) {
            for (_, rule) in shared_rules(key, port, self.rules)
                .iter()
                .filter(|(chain, _)| *chain == shared)
            {
                run.append(shared.table(), shared.name(), rule);
            }
        }
        for rule in tail(shared, self.rules, self.family) {
            run.append(shared.table(), shared.name(), &rule);
        }
    }
}

/// Chains that nothing leads to any more.
pub(crate) fn remove_all<E>(
    mut gone: Vec<(Table, String)>,
    sink: &mut Sink<'_, E>,
) -> Result<(), E> {
    gone.sort_by_cached_key(|(_, name)| (depth(name), name.clone()));
    for (table, name) in gone {
        sink.run().remove(table, &name);
        sink.may_split()?;
    }
    Ok(())
}

/// Rules to be added to a shared chain, and rules to be deleted.
#[derive(Debug, Default)]
pub(crate) struct Edit {
    pub missing: Vec<String>,
    pub surplus: Vec<String>,
}

impl Edit {
    /// It is cheaper to write the whole chain.
    pub(crate) fn is_large(&self) -> bool {
        self.surplus.len() > MOST_DELETIONS
    }

    pub(crate) fn write(&self, shared: Shared, run: &mut Run) {
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

#[cfg(test)]
mod tests;
