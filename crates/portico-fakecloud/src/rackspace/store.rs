//! What there is, and what it is about to become.

use std::collections::BTreeMap;

use serde_json::{Value, json};

/// Load balancers of an account, before the vendor raised it.
const QUOTA: usize = 25;

/// A load balancer, as it is shown.
pub(super) struct Stored {
    pub value: Value,
    /// How many requests it takes to get there, and where.
    pending: Option<(u32, &'static str)>,
}

pub(super) struct Store {
    pub balancers: BTreeMap<u64, Stored>,
    pub problems: Vec<String>,
    pub looks: u32,
    /// The one that is good.
    pub token: u64,
    pub broken: bool,
    pub quota: usize,
    last: u64,
}

impl Default for Store {
    fn default() -> Self {
        Self {
            balancers: BTreeMap::new(),
            problems: Vec::new(),
            looks: 2,
            token: 1,
            broken: false,
            quota: QUOTA,
            last: 100,
        }
    }
}

impl Store {
    pub(super) fn number(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// Puts one there, or starts a change: it is `now` for a while, and `then` afterwards.
    pub(super) fn start(&mut self, id: u64, mut value: Value, now: &str, then: &'static str) {
        value["status"] = now.into();
        value["updated"] = json!({"time": "2026-11-30T03:23:44Z"});
        self.balancers.insert(
            id,
            Stored {
                value,
                pending: Some((self.looks, then)),
            },
        );
    }

    /// A request came.
    pub(super) fn tick(&mut self) {
        for stored in self.balancers.values_mut() {
            if let Some((looks, _)) = &mut stored.pending {
                *looks = looks.saturating_sub(1);
            }
        }
        self.finish(|looks| looks == 0);
    }

    pub(super) fn settle(&mut self) {
        self.finish(|_| true);
    }

    fn finish(&mut self, is_over: impl Fn(u32) -> bool) {
        for stored in self.balancers.values_mut() {
            if let Some((_, then)) = stored.pending.take_if(|(looks, _)| is_over(*looks)) {
                stored.value["status"] = then.into();
            }
        }
        self.balancers
            .retain(|_, stored| stored.value["status"] != "DELETED");
    }
}
