//! The versions of one key, oldest first. Most keys have one version and then cost no allocation
//! beyond it.

use std::collections::VecDeque;

use bytes::Bytes;

use crate::Revision;

/// A value, or a grave (`value` is `None`) that stays until readers of the past can no longer ask.
#[derive(Clone, Debug)]
pub(super) struct Version {
    pub created: Revision,
    pub modified: Revision,
    pub value: Option<Bytes>,
}

#[derive(Debug)]
pub(super) struct Chain {
    newest: Version,
    older: VecDeque<Version>,
}

impl Chain {
    pub(super) fn new(version: Version) -> Self {
        Self {
            newest: version,
            older: VecDeque::new(),
        }
    }

    pub(super) fn newest(&self) -> &Version {
        &self.newest
    }

    pub(super) fn push(&mut self, version: Version) {
        self.older
            .push_back(std::mem::replace(&mut self.newest, version));
    }

    /// The version that was current at `revision`.
    pub(super) fn at(&self, revision: Revision) -> Option<&Version> {
        if self.newest.modified <= revision {
            return Some(&self.newest);
        }
        let behind = self
            .older
            .partition_point(|version| version.modified <= revision);
        behind
            .checked_sub(1)
            .and_then(|index| self.older.get(index))
    }

    /// Drops what was superseded at or before `revision`. True if nothing is left to remember of
    /// this key.
    pub(super) fn forget_before(&mut self, revision: Revision) -> bool {
        while self
            .older
            .front()
            .is_some_and(|version| version.modified < revision)
        {
            self.older.pop_front();
        }
        if self.older.is_empty() {
            self.older = VecDeque::new();
        }
        self.older.is_empty() && self.newest.value.is_none() && self.newest.modified <= revision
    }
}
