//! What the kernel has in our tables, as data.

use super::element::Element;
use super::sets::Definition;
use portico_model::table::PerFamily;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Our tables as the kernel has them.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// The number of the rule set that was read; it changes with every transaction of any program.
    pub generation: u32,
    /// The table of each family, if it is there.
    pub tables: PerFamily<Option<FoundTable>>,
}

/// A table as the kernel has it.
#[derive(Clone, Debug, Default)]
pub struct FoundTable {
    /// The flags of the table.
    pub flags: u32,
    /// Its chains, by name.
    pub chains: BTreeMap<Arc<str>, FoundChain>,
    /// Its sets and maps, by name.
    pub sets: BTreeMap<Arc<str>, FoundSet>,
}

/// A chain as the kernel has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FoundChain {
    /// Where it is hooked in, if it is a base chain.
    pub base: Option<FoundBase>,
    /// Fingerprints in order; rules that are not ours have none.
    pub rules: Vec<Option<u64>>,
}

/// Where a base chain is hooked in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundBase {
    /// The type of the chain: `filter`, `nat`, `route`.
    pub kind: String,
    /// The number of the hook.
    pub hook: u32,
    /// Its place among the chains of the hook.
    pub priority: i32,
    /// The policy is to accept.
    pub accepts: bool,
}

/// A set or map as the kernel has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundSet {
    /// How it was made.
    pub definition: Definition,
    /// Elements that it can have; zero if it grows by itself.
    pub size: u32,
    /// Sorted.
    pub elements: Vec<Element>,
    /// Elements that cannot be ours.
    pub unknown: usize,
}
