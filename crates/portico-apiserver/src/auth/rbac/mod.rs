//! Role-based access control: which rules a user has, and whether one of them allows a request.
//!
//! [`Rbac`] is an index of the four RBAC kinds, kept up to date object by object. Bindings are
//! found by subject, so a decision costs what the user's own bindings cost. Pure: it reads no store
//! and writes nothing.

mod escalation;
mod index;
mod node;
mod request;
mod rule;
mod selector;
mod stored;
#[cfg(test)]
mod tests;

pub(crate) use index::Rbac;
pub(crate) use node::{check_node, forbidden};
pub(crate) use request::{Action, Request};
pub(crate) use rule::{Rule, uncovered};

/// May the user do it, and why (or why it could not be told).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Decision {
    pub allowed: bool,
    pub reason: String,
}

impl Decision {
    pub(super) fn allow(reason: String) -> Self {
        Self {
            allowed: true,
            reason,
        }
    }

    pub(super) fn deny(reason: String) -> Self {
        Self {
            allowed: false,
            reason,
        }
    }
}
