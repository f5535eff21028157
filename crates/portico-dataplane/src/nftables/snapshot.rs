//! What the kernel has in our tables, as data.

use super::element::Element;
use super::sets::Definition;
use portico_model::table::PerFamily;
use std::collections::BTreeMap;
use std::sync::Arc;

#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// The number of the rule set that was read; it changes with every transaction of anybody.
    pub generation: u32,
    pub tables: PerFamily<Option<FoundTable>>,
}

#[derive(Clone, Debug, Default)]
pub struct FoundTable {
    pub flags: u32,
    pub chains: BTreeMap<Arc<str>, FoundChain>,
    pub sets: BTreeMap<Arc<str>, FoundSet>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FoundChain {
    pub base: Option<FoundBase>,
    /// Fingerprints in order; rules that are not ours have none.
    pub rules: Vec<Option<u64>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundBase {
    pub kind: String,
    pub hook: u32,
    pub priority: i32,
    /// The policy is to accept.
    pub accepts: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundSet {
    pub definition: Definition,
    /// Elements that it can have; zero if it grows by itself.
    pub size: u32,
    /// Sorted.
    pub elements: Vec<Element>,
    /// Elements that cannot be ours.
    pub unknown: usize,
}
