//! Fair shares of what there is only so much of, decided without a lock or a clock.
//!
//! Identities belong to levels, as in Kubernetes' priority and fairness. Of every pool (requests
//! under way, watches, bytes in memory) a part is kept for each level, and the rest is for all
//! levels. Within a level a user gets no more than [`GREED`] times what would be left: one user
//! alone may have most of the level's part, two share it, and there is always room for the next.

use crate::auth::User;
use crate::auth::bootstrap::{CONTROLLERS, KUBE_PROXY};
use crate::auth::user::{ANONYMOUS, MASTERS};
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// A pool gets smaller when those who were let in waited longer than this for the processor.
const LONG_WAIT: Duration = Duration::from_millis(200);
/// But not smaller than this part of what it was made with.
const LEAST_PART: u64 = 8;
/// How many times of what would be left one user may have.
const GREED: u64 = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Level {
    /// Members of `system:masters`, and this server's own controllers.
    System,
    /// Nodes and the controllers of the cluster.
    Nodes,
    /// All other authenticated users.
    People,
    /// Clients that are not authenticated.
    Strangers,
}

impl Level {
    pub(crate) const ALL: [Self; 4] = [Self::System, Self::Nodes, Self::People, Self::Strangers];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::Nodes => "nodes",
            Self::People => "people",
            Self::Strangers => "strangers",
        }
    }

    /// The percentage of every pool that is kept for this level. What these leave of the whole is
    /// for all of them.
    fn kept(self) -> u64 {
        match self {
            Self::System | Self::Nodes => 25,
            Self::People => 15,
            Self::Strangers => 5,
        }
    }

    /// How much of the processor a level gets beside others.
    pub(crate) fn weight(self) -> f64 {
        match self {
            Self::System | Self::Nodes => 4.0,
            Self::People => 2.0,
            Self::Strangers => 1.0,
        }
    }

    fn of(user: &User) -> Self {
        let controller = user.is_in(CONTROLLERS)
            || user.name == KUBE_PROXY
            || user.name.starts_with("system:kube-")
            || user.is_in("system:serviceaccounts:kube-system");
        match user {
            _ if user.is_in(MASTERS) => Self::System,
            _ if user.node().is_some() || controller => Self::Nodes,
            _ if user.name == ANONYMOUS => Self::Strangers,
            _ => Self::People,
        }
    }
}

/// The owner of a share: a user, or the address of a client that is not authenticated.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Flow {
    pub level: Level,
    pub name: Arc<str>,
}

impl Flow {
    pub(crate) fn of(user: &User, address: IpAddr) -> Self {
        let level = Level::of(user);
        let name = match level {
            Level::Strangers => address.to_canonical().to_string().into(),
            _ => user.name.as_str().into(),
        };
        Self { level, name }
    }

    /// The flow of what the server does by itself.
    pub(crate) fn own() -> Self {
        Self {
            level: Level::System,
            name: "".into(),
        }
    }
}

/// One pool.
#[derive(Debug)]
pub(crate) struct Pool {
    /// What it was made with, and what of that is given out at present.
    most: u64,
    size: u64,
    by_level: [u64; Level::ALL.len()],
    by_flow: HashMap<Flow, u64>,
}

impl Pool {
    pub(crate) fn new(size: u64) -> Self {
        Self {
            most: size,
            size,
            by_level: [0; Level::ALL.len()],
            by_flow: HashMap::new(),
        }
    }

    /// May this flow have so much more?
    pub(crate) fn has_room(&self, flow: &Flow, amount: u64) -> bool {
        let Some(left) = self.free_for(flow.level).checked_sub(amount) else {
            return false;
        };
        self.held(flow) <= GREED.saturating_mul(left)
    }

    /// Take so much if there is room.
    pub(crate) fn take(&mut self, flow: &Flow, amount: u64) -> bool {
        let room = self.has_room(flow, amount);
        if room {
            self.charge(flow, amount);
        }
        room
    }

    /// Take so much without asking: it is spent already.
    pub(crate) fn charge(&mut self, flow: &Flow, amount: u64) {
        self.by_level[flow.level as usize] += amount;
        *self.by_flow.entry(flow.clone()).or_default() += amount;
    }

    /// Give so much back.
    pub(crate) fn give(&mut self, flow: &Flow, amount: u64) {
        let level = &mut self.by_level[flow.level as usize];
        *level = level.saturating_sub(amount);
        if let Some(held) = self.by_flow.get_mut(flow) {
            *held = held.saturating_sub(amount);
            if *held == 0 {
                self.by_flow.remove(flow);
            }
        }
    }

    /// Somebody who was let in waited so long for the processor. Where that is too long, fewer are
    /// let in at a time, and where it is not, one more.
    pub(crate) fn waited(&mut self, time: Duration) {
        self.size = if time > LONG_WAIT {
            (self.size - self.size.div_ceil(10)).max(self.most.div_ceil(LEAST_PART))
        } else {
            (self.size + 1).min(self.most)
        };
    }

    pub(crate) fn used(&self) -> u64 {
        self.by_level.iter().sum()
    }

    pub(crate) fn in_use(&self, level: Level) -> u64 {
        self.by_level[level as usize]
    }

    fn held(&self, flow: &Flow) -> u64 {
        self.by_flow.get(flow).copied().unwrap_or_default()
    }

    /// What is free but for what is kept for other levels.
    fn free_for(&self, level: Level) -> u64 {
        let kept: u64 = Level::ALL
            .into_iter()
            .filter(|other| *other != level)
            .map(|other| {
                let kept = self.size / 100 * other.kept() + self.size % 100 * other.kept() / 100;
                kept.saturating_sub(self.in_use(other))
            })
            .sum();
        self.size.saturating_sub(self.used()).saturating_sub(kept)
    }
}

#[cfg(test)]
mod tests;
