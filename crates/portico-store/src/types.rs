//! The words of the store: entries, events, transactions and ranges. No behaviour beyond small
//! constructors.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;

/// The store's logical clock: every transaction gets one, each greater than the last.
pub type Revision = u64;

/// One key's value at one revision.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    pub key: Arc<str>,
    pub value: Bytes,
    pub created: Revision,
    pub modified: Revision,
}

/// A change of one key.
#[derive(Debug)]
pub struct Event {
    pub revision: Revision,
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
    pub key: String,
    pub modified: Revision,
}

impl Check {
    pub fn modified(key: impl Into<String>, modified: Revision) -> Check {
        Check {
            key: key.into(),
            modified,
        }
    }

    pub fn absent(key: impl Into<String>) -> Check {
        Check::modified(key, 0)
    }
}

/// One write of a transaction. Deleting a key that does not exist is allowed and makes no event.
#[derive(Clone, Debug, PartialEq)]
pub enum Op {
    Put { key: String, value: Bytes },
    Delete { key: String },
}

impl Op {
    pub fn put(key: impl Into<String>, value: impl Into<Bytes>) -> Op {
        Op::Put {
            key: key.into(),
            value: value.into(),
        }
    }

    pub fn delete(key: impl Into<String>) -> Op {
        Op::Delete { key: key.into() }
    }

    pub fn key(&self) -> &str {
        match self {
            Op::Put { key, .. } | Op::Delete { key } => key,
        }
    }

    pub(crate) fn size(&self) -> usize {
        match self {
            Op::Put { key, value } => key.len() + value.len(),
            Op::Delete { key } => key.len(),
        }
    }
}

/// If every check holds, all operations happen, at one revision; otherwise none. A key may be
/// written once.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Txn {
    pub checks: Vec<Check>,
    pub ops: Vec<Op>,
}

/// A stored object that is not what was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damaged {
    /// As far as it can be read.
    pub key: String,
    pub what: String,
}

/// Which entries to read, in key order.
#[derive(Clone, Copy, Debug, Default)]
pub struct Range<'a> {
    pub prefix: &'a str,
    /// Start behind this key.
    pub after: Option<&'a str>,
    /// At most so many entries; 0 means all.
    pub limit: usize,
    /// Read the past; `None` means now.
    pub at: Option<Revision>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct RangeResult {
    pub entries: Vec<Entry>,
    /// The revision that was read: pass it as `at` to read the next page of the same state.
    pub revision: Revision,
    pub more: bool,
    /// How many entries of the range come after the last one returned.
    pub remaining: usize,
}

/// The part of a key before the first `/`.
pub(crate) fn topic_of(key: &str) -> Option<&str> {
    key.split_once('/').map(|(topic, _)| topic)
}
