//! Objects that the API server has told of since the start. What the journal has of them is out of
//! date, and may be read later all the same: reading takes a while, in which a server that was slow
//! to answer may have answered.

use crate::objects::{Kind, Name, Object};
use std::collections::HashSet;

/// Kept until a first table is installed: after that the journal is not read any more.
#[derive(Default)]
pub(super) struct RecentObjects {
    /// The names of objects that exist, and of those that were deleted.
    names: HashSet<Name>,
    /// Kinds that were listed.
    kinds: HashSet<Kind>,
}

impl RecentObjects {
    pub(super) fn add(&mut self, name: Name) {
        self.names.insert(name);
    }

    pub(super) fn add_all_of(&mut self, kind: Kind) {
        self.kinds.insert(kind);
    }

    /// Whether nothing newer is known of an object of the journal.
    pub(super) fn lacks(&self, remembered: &Object) -> bool {
        !self.kinds.contains(&remembered.kind()) && !self.names.contains(&remembered.name())
    }
}
