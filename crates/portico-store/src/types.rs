//! The words of the store: entries, events, transactions and ranges. No behaviour beyond small
//! constructors.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;

/// The store's logical clock: every transaction gets one, each greater than the last.
pub type Revision = u64;

/// One key's value at one revision.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// The key.
    pub key: Arc<str>,
    /// The value.
    pub value: Bytes,
    /// The revision that created the key.
    pub created: Revision,
    /// The revision that last wrote the key.
    pub modified: Revision,
}

/// A change of one key.
#[derive(Debug)]
pub struct Event {
    /// The revision of the transaction.
    pub revision: Revision,
    /// The key that changed.
    pub key: Arc<str>,
    /// `None` when the key was deleted.
    pub now: Option<Entry>,
    /// `None` when the key was created.
    pub before: Option<Entry>,
    /// A place for one reader to keep its encoded form, so that a change that goes to a thousand
    /// watchers is encoded once.
    pub cache: OnceLock<Bytes>,
}

/// A condition of a transaction: the key was last modified at this revision. 0 means that it must
/// not exist.
#[derive(Clone, Debug, PartialEq)]
pub struct Check {
    /// The key to check.
    pub key: String,
    /// The revision that last wrote it; 0 if it must not exist.
    pub modified: Revision,
}

impl Check {
    /// The key must have been last written at this revision.
    pub fn modified(key: impl Into<String>, modified: Revision) -> Self {
        Self {
            key: key.into(),
            modified,
        }
    }

    /// The key must not exist.
    pub fn absent(key: impl Into<String>) -> Self {
        Self::modified(key, 0)
    }
}

/// One write of a transaction. Deleting a key that does not exist is allowed and makes no event.
#[derive(Clone, Debug, PartialEq)]
pub enum Op {
    /// Write a value.
    Put {
        /// The key to write.
        key: String,
        /// Its new value.
        value: Bytes,
    },
    /// Remove a key.
    Delete {
        /// The key to remove.
        key: String,
    },
}

impl Op {
    /// Writes a value.
    pub fn put(key: impl Into<String>, value: impl Into<Bytes>) -> Self {
        Self::Put {
            key: key.into(),
            value: value.into(),
        }
    }

    /// Deletes a key.
    pub fn delete(key: impl Into<String>) -> Self {
        Self::Delete { key: key.into() }
    }

    /// The key that is written.
    pub fn key(&self) -> &str {
        match self {
            Self::Put { key, .. } | Self::Delete { key } => key,
        }
    }

    pub(crate) fn size(&self) -> usize {
        match self {
            Self::Put { key, value } => key.len() + value.len(),
            Self::Delete { key } => key.len(),
        }
    }
}

/// If every check holds, all operations happen, at one revision; otherwise none. A key may be
/// written once.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Txn {
    /// The conditions.
    pub checks: Vec<Check>,
    /// The writes.
    pub ops: Vec<Op>,
}

/// A stored object that is not what was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damaged {
    /// As far as it can be read.
    pub key: String,
    /// What is wrong with it.
    pub what: String,
}

/// Which entries to read, in key order.
#[derive(Clone, Copy, Debug, Default)]
pub struct Range<'a> {
    /// Only keys that begin so; empty for all.
    pub prefix: &'a str,
    /// Start behind this key.
    pub after: Option<&'a str>,
    /// At most so many entries; 0 means all.
    pub limit: usize,
    /// Read the past; `None` means now.
    pub at: Option<Revision>,
}

/// Entries of a range, and whether there are more.
#[derive(Clone, Debug, PartialEq)]
pub struct RangeResult {
    /// The entries, in the order of keys.
    pub entries: Vec<Entry>,
    /// The revision that was read: pass it as `at` to read the next page of the same state.
    pub revision: Revision,
    /// Whether there are more entries than were returned.
    pub more: bool,
    /// How many entries of the range come after the last one returned.
    pub remaining: usize,
}

/// The part of a key before the first `/`.
pub(crate) fn topic_of(key: &str) -> Option<&str> {
    key.split_once('/').map(|(topic, _)| topic)
}
