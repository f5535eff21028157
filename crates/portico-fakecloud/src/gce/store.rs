//! What exists, by kind, zone and name; operations that are under way; numbers that are free.

use std::collections::BTreeMap;

use serde_json::Value;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Address,
    Firewall,
    ForwardingRule,
    HttpHealthCheck,
    Instance,
    TargetPool,
}

impl Kind {
    pub fn of_collection(collection: &str) -> Option<Self> {
        Some(match collection {
            "addresses" => Self::Address,
            "firewalls" => Self::Firewall,
            "forwardingRules" => Self::ForwardingRule,
            "httpHealthChecks" => Self::HttpHealthCheck,
            "instances" => Self::Instance,
            "targetPools" => Self::TargetPool,
            _ => return None,
        })
    }

    pub fn collection(self) -> &'static str {
        match self {
            Self::Address => "addresses",
            Self::Firewall => "firewalls",
            Self::ForwardingRule => "forwardingRules",
            Self::HttpHealthCheck => "httpHealthChecks",
            Self::Instance => "instances",
            Self::TargetPool => "targetPools",
        }
    }

    pub fn is_regional(self) -> bool {
        matches!(
            self,
            Self::Address | Self::ForwardingRule | Self::TargetPool
        )
    }
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    pub kind: Kind,
    /// The zone of an instance; empty for other kinds.
    pub zone: String,
    pub name: String,
}

impl Key {
    pub(super) fn new(kind: Kind, zone: &str, name: &str) -> Self {
        Self {
            kind,
            zone: zone.to_owned(),
            name: name.to_owned(),
        }
    }
}

/// What happens when an operation is over.
#[derive(Clone, Debug)]
pub(super) enum Effect {
    Put(Key, Value),
    Remove(Key),
}

const MOST_OPERATIONS: usize = 1000;

#[derive(Clone, Debug)]
pub(super) struct Pending {
    pub operation: Value,
    pub effects: Vec<Effect>,
    pub looks: u32,
}

#[derive(Debug)]
pub(super) struct Store {
    resources: BTreeMap<Key, Value>,
    pub operations: BTreeMap<u64, Pending>,
    pub problems: Vec<String>,
    /// How many requests come before an operation is over.
    pub looks: u32,
    numbers: u64,
}

impl Default for Store {
    fn default() -> Self {
        Self {
            resources: BTreeMap::new(),
            operations: BTreeMap::new(),
            problems: Vec::new(),
            looks: 2,
            numbers: 0,
        }
    }
}

impl Store {
    pub(super) fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    pub(super) fn put(&mut self, key: Key, value: Value) {
        self.resources.insert(key, value);
    }

    pub(super) fn remove(&mut self, key: &Key) {
        self.resources.remove(key);
    }

    pub(super) fn get(&self, key: &Key) -> Option<&Value> {
        self.resources.get(key)
    }

    pub(super) fn all(&self, kind: Kind, zone: &str) -> impl Iterator<Item = (&str, &Value)> {
        let fits = move |key: &Key| key.kind == kind && key.zone == zone;
        self.resources
            .iter()
            .filter(move |(key, _)| fits(key))
            .map(|(key, value)| (key.name.as_str(), value))
    }

    /// Time passes with each request, and operations with it.
    pub(super) fn tick(&mut self) {
        let mut effects = Vec::new();
        for pending in self
            .operations
            .values_mut()
            .filter(|pending| pending.operation["status"] != "DONE")
        {
            pending.looks = pending.looks.saturating_sub(1);
            let (status, progress) = if pending.looks == 0 {
                ("DONE", 100)
            } else {
                ("RUNNING", 50)
            };
            (pending.operation["status"], pending.operation["progress"]) =
                (status.into(), progress.into());
            if pending.looks == 0 {
                effects.append(&mut pending.effects);
            }
        }
        self.apply(effects);
        // Those that are over are forgotten after a while.
        while self.operations.len() > MOST_OPERATIONS {
            self.operations.pop_first();
        }
    }

    /// Whether something is being done to it.
    pub(super) fn is_pending(&self, key: &Key) -> bool {
        let about = |effect: &Effect| matches!(effect, Effect::Put(it, _) | Effect::Remove(it) if it == key);
        self.operations
            .values()
            .any(|pending| pending.effects.iter().any(about))
    }

    /// All that is under way is over.
    pub(super) fn settle(&mut self) {
        self.operations
            .values_mut()
            .for_each(|pending| pending.looks = pending.looks.min(1));
        self.tick();
    }

    fn apply(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Put(key, value) => self.put(key, value),
                Effect::Remove(key) => self.remove(&key),
            }
        }
    }
}
