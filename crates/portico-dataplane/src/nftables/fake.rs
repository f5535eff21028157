//! A kernel in memory, for tests: refuses what the real one refuses, and fails when it is told to.

use super::element::{At, Bytes, Element, Set};
use super::kernel::{CommitError, Kernel, Sent};
use super::plan::{Plan, Step};
use super::rules::Rule;
use super::snapshot::{FoundBase, FoundChain, FoundSet, FoundTable, Snapshot};
use crate::ApplyError;
use crate::netlink::attributes;
use crate::netlink::uapi::*;
use ipnet::IpNet;
use portico_model::table::{Family, PerFamily};
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Clones are the same kernel.
#[derive(Clone, Default)]
pub(super) struct Fake(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    generation: u32,
    /// As of the last reading or batch.
    known: u32,
    tables: PerFamily<Option<Table>>,
    commits: usize,
    faults: VecDeque<Fault>,
}

/// What goes wrong with one commit.
pub(super) enum Fault {
    /// It fails with this error of the system, and nothing is done.
    Errno(i32),
    /// Another program does this just before it.
    Meanwhile(Step),
}

#[derive(Clone, Default)]
struct Table {
    chains: BTreeMap<Arc<str>, Chain>,
    sets: BTreeMap<Arc<str>, SetInMemory>,
}

#[derive(Clone, Default)]
struct SetInMemory {
    size: u32,
    elements: BTreeMap<Bytes, Element>,
}

#[derive(Clone, Default)]
struct Chain {
    base: Option<FoundBase>,
    rules: Vec<Rule>,
}

impl Fake {
    pub(super) fn new() -> Self {
        Self::default()
    }

    /// The next commits meet these, one each.
    pub(super) fn faults(&self, faults: impl IntoIterator<Item = Fault>) {
        self.lock().faults.extend(faults);
    }

    /// Another program changes something.
    pub(super) fn interfere(&self, step: &Step) {
        self.lock()
            .step(step)
            .expect("the interference is possible");
    }

    /// Another program removes an element.
    pub(super) fn take_element(&self, family: Family, element: &Element) {
        self.lock()
            .element(family, element, false)
            .expect("the element is there");
    }

    /// Batches that were done.
    pub(super) fn commits(&self) -> usize {
        self.lock().commits
    }

    pub(super) fn elements(&self, family: Family) -> Vec<Element> {
        let state = self.lock();
        state
            .tables
            .get(family)
            .iter()
            .flat_map(|t| {
                t.sets
                    .values()
                    .flat_map(|set| set.elements.values().cloned())
            })
            .collect()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kernel for Fake {
    fn read(&mut self) -> Result<Snapshot, ApplyError> {
        let mut state = self.lock();
        state.known = state.generation;
        let mut snapshot = Snapshot {
            generation: state.generation,
            ..Snapshot::default()
        };
        for family in Family::BOTH {
            *snapshot.tables.get_mut(family) = state
                .tables
                .get(family)
                .as_ref()
                .map(|table| table.found(family));
        }
        Ok(snapshot)
    }

    fn tables(&mut self) -> Result<PerFamily<bool>, ApplyError> {
        let state = self.lock();
        Ok(PerFamily {
            v4: state.tables.v4.is_some(),
            v6: state.tables.v6.is_some(),
        })
    }

    fn is_undisturbed(&mut self) -> bool {
        let state = self.lock();
        state.known == state.generation
    }

    fn commit(&mut self, plan: &Plan, generation: Option<u32>) -> Result<Sent, CommitError> {
        let mut state = self.lock();
        match state.faults.pop_front() {
            Some(Fault::Errno(errno)) => {
                let source = io::Error::from_raw_os_error(errno);
                return Err(CommitError::Failed(ApplyError::Kernel {
                    doing: "fault".to_owned(),
                    source,
                }));
            }
            Some(Fault::Meanwhile(step)) => state.step(&step).map_err(refused)?,
            None => {}
        }
        if generation.is_some_and(|generation| generation != state.generation) {
            return Err(CommitError::Changed);
        }
        let before_generation = state.generation;
        let before = state.tables.clone_tables();
        if let Err(problem) = state.run(plan) {
            (state.tables, state.generation) = (before, before_generation);
            return Err(refused(problem));
        }
        // Its steps count as well.
        if state.known == before_generation {
            state.known = state.generation;
        }
        state.commits += 1;
        Ok(Sent::default())
    }
}

trait CloneTables {
    fn clone_tables(&self) -> Self;
}

impl CloneTables for PerFamily<Option<Table>> {
    fn clone_tables(&self) -> Self {
        Self {
            v4: self.v4.clone(),
            v6: self.v6.clone(),
        }
    }
}

fn refused(problem: String) -> CommitError {
    let source = io::Error::new(io::ErrorKind::InvalidInput, problem);
    CommitError::Failed(ApplyError::Kernel {
        doing: "nftables batch".to_owned(),
        source,
    })
}

impl State {
    fn run(&mut self, plan: &Plan) -> Result<(), String> {
        plan.before.iter().try_for_each(|step| self.step(step))?;
        for (elements, add) in [(&plan.removed, false), (&plan.added, true)] {
            for family in Family::BOTH {
                elements
                    .get(family)
                    .iter()
                    .try_for_each(|element| self.element(family, element, add))?;
            }
        }
        plan.after.iter().try_for_each(|step| self.step(step))
    }

    fn table(&mut self, family: Family) -> Result<&mut Table, String> {
        self.tables
            .get_mut(family)
            .as_mut()
            .ok_or_else(|| format!("no table in {family:?}"))
    }

    fn step(&mut self, step: &Step) -> Result<(), String> {
        self.generation += 1;
        match step {
            Step::AddTable(family) => {
                self.tables.get_mut(*family).get_or_insert_default();
                Ok(())
            }
            Step::DeleteTable(family) => self
                .tables
                .get_mut(*family)
                .take()
                .map(drop)
                .ok_or(format!("{step:?}: no table")),
            Step::AddSet(family, set, size) => self.table(*family)?.add_set(set.name(), *size),
            Step::DeleteSet(family, name) => self.table(*family)?.delete_set(name),
            Step::EmptySet(family, set) => self
                .table(*family)?
                .set(set.name())
                .map(|set| set.elements.clear()),
            Step::AddChain(family, name, base) => {
                let base = base.as_ref().map(|base| FoundBase {
                    kind: base.kind.to_owned(),
                    hook: base.hook,
                    priority: base.priority,
                    accepts: true,
                });
                self.table(*family)?.add_chain(name, base)
            }
            Step::DeleteChain(family, name) => self.table(*family)?.delete_chain(name),
            Step::EmptyChain(family, name) => self
                .table(*family)?
                .chain(name)
                .map(|chain| chain.rules.clear()),
            Step::AddRule(family, name, rule) => self.table(*family)?.add_rule(name, rule),
        }
    }

    fn element(&mut self, family: Family, element: &Element, add: bool) -> Result<(), String> {
        self.generation += 1;
        let table = self.table(family)?;
        if let (true, Element::Class { chain, .. }) = (add, element) {
            table.chain(chain)?;
        }
        let set = table.set(element.set().name())?;
        let (key, present) = (element.key(), set.elements.get(&element.key()));
        match (add, present) {
            (true, Some(present)) => {
                return Err(format!("{element:?} is there already: {present:?}"));
            }
            (false, None) => return Err(format!("{element:?} is not there")),
            (false, Some(_)) => drop(set.elements.remove(&key)),
            (true, None) => {
                if set.size > 0 && set.elements.len() >= set.size as usize {
                    return Err(format!("no room for {element:?}"));
                }
                if element.set() == Set::AllowedSources
                    && set
                        .elements
                        .values()
                        .any(|present| overlap(present, element))
                {
                    return Err(format!("{element:?} overlaps"));
                }
                set.elements.insert(key, element.clone());
            }
        }
        Ok(())
    }
}

impl Table {
    fn set(&mut self, name: &str) -> Result<&mut SetInMemory, String> {
        self.sets
            .get_mut(name)
            .ok_or_else(|| format!("no set {name}"))
    }

    fn chain(&mut self, name: &str) -> Result<&mut Chain, String> {
        self.chains
            .get_mut(name)
            .ok_or_else(|| format!("no chain {name}"))
    }

    fn add_set(&mut self, name: &str, size: u32) -> Result<(), String> {
        match self.sets.insert(
            Arc::from(name),
            SetInMemory {
                size,
                elements: BTreeMap::new(),
            },
        ) {
            None => Ok(()),
            Some(_) => Err(format!("set {name} exists")),
        }
    }

    fn delete_set(&mut self, name: &str) -> Result<(), String> {
        if self
            .rules()
            .any(|rule| references(rule).sets.iter().any(|set| set == name))
        {
            return Err(format!("set {name} is in use"));
        }
        self.sets
            .remove(name)
            .map(drop)
            .ok_or_else(|| format!("no set {name}"))
    }

    fn add_chain(&mut self, name: &Arc<str>, base: Option<FoundBase>) -> Result<(), String> {
        match self.chains.insert(
            name.clone(),
            Chain {
                base,
                rules: Vec::new(),
            },
        ) {
            None => Ok(()),
            Some(_) => Err(format!("chain {name} exists")),
        }
    }

    fn delete_chain(&mut self, name: &Arc<str>) -> Result<(), String> {
        let by_rule = self.rules().any(|rule| {
            references(rule)
                .chains
                .iter()
                .any(|chain| **chain == **name)
        });
        let leads_there =
            |element: &Element| matches!(element, Element::Class { chain, .. } if chain == name);
        if by_rule
            || self
                .sets
                .values()
                .flat_map(|set| set.elements.values())
                .any(leads_there)
        {
            return Err(format!("chain {name} is in use"));
        }
        self.chains
            .remove(name)
            .map(drop)
            .ok_or_else(|| format!("no chain {name}"))
    }

    fn add_rule(&mut self, name: &str, rule: &Rule) -> Result<(), String> {
        let needed = references(rule);
        needed
            .chains
            .iter()
            .try_for_each(|chain| self.chain(chain).map(drop))?;
        needed
            .sets
            .iter()
            .try_for_each(|set| self.set(set).map(drop))?;
        self.chain(name)?.rules.push(rule.clone());
        Ok(())
    }

    fn rules(&self) -> impl Iterator<Item = &Rule> {
        self.chains.values().flat_map(|chain| &chain.rules)
    }

    fn found(&self, family: Family) -> FoundTable {
        let chain = |(name, chain): (&Arc<str>, &Chain)| {
            let rules = chain
                .rules
                .iter()
                .map(|rule| Some(rule.fingerprint))
                .collect();
            (
                name.clone(),
                FoundChain {
                    base: chain.base.clone(),
                    rules,
                },
            )
        };
        let set = |(name, set): (&Arc<str>, &SetInMemory)| {
            let definition = Set::by_name(name)?.definition(family);
            let mut elements: Vec<Element> = set.elements.values().cloned().collect();
            elements.sort();
            Some((
                name.clone(),
                FoundSet {
                    definition,
                    size: set.size,
                    elements,
                    unknown: 0,
                },
            ))
        };
        FoundTable {
            flags: 0,
            chains: self.chains.iter().map(chain).collect(),
            sets: self.sets.iter().filter_map(set).collect(),
        }
    }
}

#[derive(Default)]
struct References {
    chains: Vec<String>,
    sets: Vec<String>,
}

/// Where the rule leads to and what it looks into.
fn references(rule: &Rule) -> References {
    let mut references = References::default();
    for expression in attributes(&rule.expressions) {
        let part = |kind| expression.nested().find_kind(kind);
        let (Some(name), Some(data)) = (
            part(NFTA_EXPR_NAME).and_then(|name| name.text()),
            part(NFTA_EXPR_DATA),
        ) else {
            continue;
        };
        let first = data
            .nested()
            .find_kind(NFTA_LOOKUP_SET)
            .and_then(|set| set.text());
        let verdict = || {
            data.nested()
                .find_kind(NFTA_IMMEDIATE_DATA)?
                .nested()
                .find_kind(NFTA_DATA_VERDICT)?
                .nested()
                .find_kind(NFTA_VERDICT_CHAIN)?
                .text()
        };
        match name {
            "lookup" | "dynset" => references.sets.extend(first.map(str::to_owned)),
            "immediate" => references.chains.extend(verdict().map(str::to_owned)),
            _ => {}
        }
    }
    references
}

fn overlap(one: &Element, other: &Element) -> bool {
    fn range(element: &Element) -> Option<(At, IpNet)> {
        match element {
            Element::AllowedSource { at, network } => Some((*at, *network)),
            _ => None,
        }
    }
    match (range(one), range(other)) {
        (Some((at, network)), Some((other_at, other))) => {
            at == other_at && (network.contains(&other) || other.contains(&network))
        }
        _ => false,
    }
}
