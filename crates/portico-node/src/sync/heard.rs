//! What the API server has told since the start. What was remembered of it is out of date, and may
//! come in later all the same: to read it takes a while, in which a server that was slow to answer
//! may have answered.

use crate::objects::{Kind, Name, Object};
use std::collections::HashSet;

/// Of interest until a first table is installed, when it is too late to remember.
#[derive(Default)]
pub struct Heard {
    /// Of those that are there, and of those that are gone.
    names: HashSet<Name>,
    /// Of these it told all that there are.
    kinds: HashSet<Kind>,
}

impl Heard {
    pub fn one(&mut self, name: Name) {
        self.names.insert(name);
    }

    pub fn all(&mut self, kind: Kind) {
        self.kinds.insert(kind);
    }

    /// Whether nothing newer is known of it.
    pub fn is_news(&self, remembered: &Object) -> bool {
        !self.kinds.contains(&remembered.kind()) && !self.names.contains(&remembered.name())
    }
}
