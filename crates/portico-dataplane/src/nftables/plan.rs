//! The difference between what is installed and what is wanted, as what is to be sent.

use super::delta::{Delta, differences};
use super::element::{Bytes, Element, Set};
use super::installed::Installed;
use super::rules::{Base, Chain, Rule, fixed_chains};
use super::sets::Table;
use super::snapshot::{FoundBase, FoundChain, FoundTable};
use portico_model::table::{Family, NodeRules, PerFamily};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// One atomic batch: the steps before, elements that go, elements that come, the steps after.
#[derive(Debug, Default)]
pub struct Plan {
    /// What has to be there before elements are added.
    pub before: Vec<Step>,
    /// Elements to delete.
    pub removed: PerFamily<Vec<Element>>,
    /// Elements to add.
    pub added: PerFamily<Vec<Element>>,
    /// What is no longer needed once elements are gone.
    pub after: Vec<Step>,
}

/// A change to tables, chains, rules or sets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Make the table of this family.
    AddTable(Family),
    /// Delete the table of this family with all that is in it.
    DeleteTable(Family),
    /// With room for so many elements; zero for one that grows by itself.
    AddSet(Family, Set, u32),
    /// Delete a set or map.
    DeleteSet(Family, Arc<str>),
    /// Remove all its elements.
    EmptySet(Family, Set),
    /// Make a chain, with its hook if it is a base chain.
    AddChain(Family, Arc<str>, Option<Base>),
    /// Delete a chain.
    DeleteChain(Family, Arc<str>),
    /// Remove all its rules.
    EmptyChain(Family, Arc<str>),
    /// Add a rule at the end of a chain.
    AddRule(Family, Arc<str>, Rule),
}

impl Plan {
    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.operations() == 0
    }

    /// How many operations it has.
    pub fn operations(&self) -> usize {
        let elements = [&self.removed, &self.added].map(|both| both.v4.len() + both.v6.len());
        self.before.len() + self.after.len() + elements.iter().sum::<usize>()
    }

    /// A change of elements, with the chains that they need.
    pub fn change(&mut self, family: Family, mut delta: Delta) {
        delta.settle();
        for class in &delta.classes {
            self.add_chain(family, &class.chain(family));
        }
        for class in &delta.dropped {
            let name = Arc::from(class.chain_name());
            self.after.extend([
                Step::EmptyChain(family, Arc::clone(&name)),
                Step::DeleteChain(family, name),
            ]);
        }
        self.removed.get_mut(family).append(&mut delta.removed);
        self.added.get_mut(family).append(&mut delta.added);
    }

    /// The fixed chains of other rules.
    pub fn change_rules(
        &mut self,
        table: Table,
        family: Family,
        before: &NodeRules,
        after: &NodeRules,
    ) {
        let (old, new) = (
            fixed_chains(family, before, table),
            fixed_chains(family, after, table),
        );
        let by_name = |chains: &[Chain], name: &str| -> Option<Chain> {
            chains.iter().find(|chain| *chain.name == *name).cloned()
        };
        // All chains are there before the first rule, which may lead to any of them.
        for chain in new.iter().filter(|new| by_name(&old, &new.name).is_none()) {
            let (name, base) = (chain.name.clone(), chain.base.clone());
            self.before.push(Step::AddChain(family, name, base));
        }
        for chain in &new {
            match by_name(&old, &chain.name) {
                Some(known) if known == *chain => continue,
                Some(_) => self
                    .before
                    .push(Step::EmptyChain(family, chain.name.clone())),
                None => {}
            }
            self.add_rules(family, chain);
        }
        for chain in old.iter().filter(|old| by_name(&new, &old.name).is_none()) {
            self.before
                .push(Step::EmptyChain(family, chain.name.clone()));
            self.after
                .push(Step::DeleteChain(family, chain.name.clone()));
        }
    }

    /// Make the kernel's table what it is to be, and say in words what it was not.
    pub fn repair(&mut self, wanted: Wanted, found: Option<&FoundTable>) -> Vec<String> {
        let (mut fixed, mut elements) = self.repair_parts(wanted, found);
        fixed.append(&mut elements);
        fixed
    }

    /// The same, with the words about tables, chains and sets apart from those about their
    /// elements.
    pub fn repair_parts(
        &mut self,
        wanted: Wanted,
        found: Option<&FoundTable>,
    ) -> (Vec<String>, Vec<String>) {
        let (table, family) = (wanted.table, wanted.family);
        let mut repair = Repair {
            table,
            family,
            plan: self,
            words: Vec::new(),
            of_elements: Vec::new(),
        };
        repair.table(wanted, found);
        (repair.words, repair.of_elements)
    }

    /// Sets of a given size after this plan, and how much fits into each.
    pub fn sizes(&self, family: Family, found: Option<&FoundTable>) -> Vec<(Set, usize)> {
        let size = |set: Set| {
            let made = self.before.iter().rev().find_map(|step| match step {
                Step::AddSet(of, made, size) if (*of, *made) == (family, set) => Some(*size),
                _ => None,
            });
            made.or_else(|| Some(found?.sets.get(set.name())?.size))
        };
        Set::SIZED
            .into_iter()
            .filter_map(|set| Some((set, size(set)? as usize)))
            .collect()
    }

    fn add_chain(&mut self, family: Family, chain: &Chain) {
        self.before.push(Step::AddChain(
            family,
            chain.name.clone(),
            chain.base.clone(),
        ));
        self.add_rules(family, chain);
    }

    fn add_rules(&mut self, family: Family, chain: &Chain) {
        let add = |rule: &Rule| Step::AddRule(family, chain.name.clone(), rule.clone());
        self.before.extend(chain.rules.iter().map(add));
    }
}

/// All that one family's table is to be.
pub struct Wanted {
    table: Table,
    /// The family of the table.
    pub family: Family,
    /// Its chains, with their rules.
    pub chains: Vec<Chain>,
    elements: Vec<Element>,
    counts: BTreeMap<Set, usize>,
}

impl Wanted {
    /// The wanted table with all elements of what is installed.
    pub fn new(
        table: Table,
        family: Family,
        rules: &NodeRules,
        installed: &Installed,
        elements: Vec<Element>,
    ) -> Self {
        let mut chains = fixed_chains(family, rules, table);
        chains.extend(installed.classes().map(|class| class.chain(family)));
        let mut counts = BTreeMap::new();
        elements
            .iter()
            .for_each(|element| *counts.entry(element.set()).or_default() += 1);
        Self {
            table,
            family,
            chains,
            elements,
            counts,
        }
    }

    fn count(&self, set: Set) -> usize {
        self.counts.get(&set).copied().unwrap_or_default()
    }
}

struct Repair<'a> {
    table: Table,
    family: Family,
    plan: &'a mut Plan,
    words: Vec<String>,
    of_elements: Vec<String>,
}

impl Repair<'_> {
    fn table(&mut self, wanted: Wanted, found: Option<&FoundTable>) {
        match found {
            Some(found) => {
                if found.flags != 0 {
                    self.fix("is not active", Step::AddTable(self.family));
                }
                self.contents(wanted, found);
            }
            None => {
                self.contents_of_new(wanted);
                self.words = vec![format!(
                    "table {} {} is missing",
                    self.label(),
                    self.table.name
                )];
            }
        }
    }

    fn contents_of_new(&mut self, wanted: Wanted) {
        self.plan.before.push(Step::AddTable(self.family));
        self.contents(wanted, &FoundTable::default());
    }

    fn contents(&mut self, wanted: Wanted, found: &FoundTable) {
        let wrong_sets = self.wrong_sets(&wanted, found);
        let chains = self.empty_chains(&wanted, found, !wrong_sets.is_empty());
        let emptied = self.sets(&wanted, found, &wrong_sets);
        self.chains(&wanted, &chains);
        self.leftovers(&wanted, found, &chains);
        self.elements(wanted, found, &emptied);
    }

    fn fix(&mut self, what: &str, step: Step) {
        self.words
            .push(format!("table {} {} {what}", self.label(), self.table.name));
        self.plan.before.push(step);
    }

    fn label(&self) -> &'static str {
        match self.family {
            Family::V4 => "ip",
            Family::V6 => "ip6",
        }
    }

    fn say(&mut self, text: String) {
        self.words.push(format!("{}: {text}", self.label()));
    }

    /// Sets that are declared otherwise, or too small.
    fn wrong_sets(&mut self, wanted: &Wanted, found: &FoundTable) -> Vec<Set> {
        let mut wrong = Vec::new();
        for set in Set::ALL {
            let Some(found) = found.sets.get(set.name()) else {
                continue;
            };
            let problem = match found.definition == set.definition(self.family) {
                false => "is another",
                true if !set.fits(wanted.count(set), found.size, self.table) => "is too small",
                true => continue,
            };
            self.say(format!("set {} {problem}", set.name()));
            wrong.push(set);
        }
        wrong
    }

    /// Chains that differ are emptied first, so that nothing refers to what goes: a set can go only
    /// if no rule looks into it. Returns the chains that are left.
    fn empty_chains(
        &mut self,
        wanted: &Wanted,
        found: &FoundTable,
        all: bool,
    ) -> BTreeMap<Arc<str>, FoundChain> {
        let by_name: BTreeMap<&str, &Chain> = wanted
            .chains
            .iter()
            .map(|chain| (&*chain.name, chain))
            .collect();
        let mut left = found.chains.clone();
        for (name, chain) in &found.chains {
            let wanted = by_name.get(&**name);
            let has_rules = wanted.is_some_and(|wanted| chain.rules == fingerprints(wanted));
            let has_base = wanted.is_some_and(|wanted| same_base(&wanted.base, &chain.base));
            match wanted {
                None => self.say(format!("chain {name} is not ours")),
                Some(_) if !has_base => self.say(format!("chain {name} hooks elsewhere")),
                Some(_) if !has_rules => self.say(format!("rules of chain {name} differ")),
                Some(_) => {}
            }
            if !has_rules || !has_base || all {
                self.plan
                    .before
                    .push(Step::EmptyChain(self.family, name.clone()));
                left.entry(name.clone())
                    .and_modify(|chain| chain.rules.clear());
            }
            if wanted.is_some() && !has_base {
                self.plan
                    .before
                    .push(Step::DeleteChain(self.family, name.clone()));
                left.remove(name);
            }
        }
        left
    }

    /// Returns the sets that have lost what was found in them.
    fn sets(&mut self, wanted: &Wanted, found: &FoundTable, wrong: &[Set]) -> Vec<Set> {
        let add = |set: Set| {
            Step::AddSet(
                wanted.family,
                set,
                set.size_for(wanted.count(set), wanted.table),
            )
        };
        let mut emptied = wrong.to_vec();
        for set in wrong {
            self.plan
                .before
                .push(Step::DeleteSet(self.family, Arc::from(set.name())));
            self.plan.before.push(add(*set));
        }
        for set in Set::ALL {
            match found.sets.get(set.name()) {
                None => {
                    self.say(format!("set {} is missing", set.name()));
                    self.plan.before.push(add(set));
                }
                Some(found) if found.unknown > 0 => {
                    self.say(format!(
                        "{} elements of {} are not ours",
                        found.unknown,
                        set.name()
                    ));
                    self.plan.before.push(Step::EmptySet(self.family, set));
                    emptied.push(set);
                }
                Some(_) => {}
            }
        }
        emptied
    }

    /// All chains are there before the first rule, which may lead to any of them.
    fn chains(&mut self, wanted: &Wanted, left: &BTreeMap<Arc<str>, FoundChain>) {
        for chain in wanted
            .chains
            .iter()
            .filter(|chain| !left.contains_key(&chain.name))
        {
            self.say(format!("chain {} is missing", chain.name));
            self.plan.before.push(Step::AddChain(
                self.family,
                chain.name.clone(),
                chain.base.clone(),
            ));
        }
        for chain in &wanted.chains {
            if left
                .get(&chain.name)
                .is_none_or(|left| left.rules.is_empty())
            {
                self.plan.add_rules(self.family, chain);
            }
        }
    }

    fn elements(&mut self, wanted: Wanted, found: &FoundTable, emptied: &[Set]) {
        let mut wants = wanted.elements;
        if found.sets.is_empty() {
            wants.sort_unstable_by_key(Element::set);
            self.plan.added.get_mut(self.family).append(&mut wants);
            return;
        }
        wants.sort_unstable();
        let by_set: BTreeMap<Set, &[Element]> = wants
            .chunk_by(|a, b| a.set() == b.set())
            .filter_map(|chunk| Some((chunk.first()?.set(), chunk)))
            .collect();
        for set in Set::ALL.into_iter().filter(|set| *set != Set::Affinity) {
            let wants = by_set.get(&set).copied().unwrap_or_default();
            let has = found
                .sets
                .get(set.name())
                .map(|found| found.elements.as_slice())
                .unwrap_or_default();
            let has = if emptied.contains(&set) { &[] } else { has };
            self.elements_of(set, has, wants);
        }
    }

    fn elements_of(&mut self, set: Set, has: &[Element], wants: &[Element]) {
        let (mut removed, mut added) = differences(has, wants);
        if removed.is_empty() && added.is_empty() {
            return;
        }
        // One that is replaced counts once.
        let gone: BTreeSet<Bytes> = removed.iter().map(Element::key).collect();
        let new = added
            .iter()
            .filter(|element| !gone.contains(&element.key()))
            .count();
        self.of_elements.push(format!(
            "{}: {} elements of {} differ",
            self.label(),
            removed.len() + new,
            set.name()
        ));
        self.plan.removed.get_mut(self.family).append(&mut removed);
        self.plan.added.get_mut(self.family).append(&mut added);
    }

    /// Removes what is in the table and not ours. It goes last, when nothing refers to it any more.
    fn leftovers(
        &mut self,
        wanted: &Wanted,
        found: &FoundTable,
        chains: &BTreeMap<Arc<str>, FoundChain>,
    ) {
        for name in found
            .sets
            .keys()
            .filter(|name| Set::by_name(name).is_none())
        {
            self.say(format!("set {name} is not ours"));
            self.plan
                .after
                .push(Step::DeleteSet(self.family, name.clone()));
        }
        for name in chains
            .keys()
            .filter(|name| wanted.chains.iter().all(|chain| chain.name != **name))
        {
            self.plan
                .after
                .push(Step::DeleteChain(self.family, name.clone()));
        }
    }
}

fn fingerprints(chain: &Chain) -> Vec<Option<u64>> {
    chain
        .rules
        .iter()
        .map(|rule| Some(rule.fingerprint))
        .collect()
}

fn same_base(wanted: &Option<Base>, found: &Option<FoundBase>) -> bool {
    match (wanted, found) {
        (None, None) => true,
        (Some(wanted), Some(found)) => {
            (wanted.kind, wanted.hook, wanted.priority)
                == (&*found.kind, found.hook, found.priority)
                && found.accepts
        }
        _ => false,
    }
}
