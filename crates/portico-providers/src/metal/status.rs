//! The status of a pool: how much of it is in use, and whether all of it can be.

use serde::{Deserialize, Serialize};

use super::pools::{Pool, Problem};
use crate::Family;

/// The largest number that every reader of JSON gets right.
const MOST: u128 = (1 << 53) - 1;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct PoolStatus {
    pub observed_generation: i64,
    pub assigned: i64,
    pub ipv4: Option<AddressCount>,
    pub ipv6: Option<AddressCount>,
    pub conditions: Vec<Condition>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct AddressCount {
    pub capacity: i64,
    pub assigned: i64,
    pub available: i64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Condition {
    #[serde(rename = "type")]
    pub type_: String,
    pub status: String,
    pub observed_generation: i64,
    pub last_transition_time: String,
    pub reason: String,
    pub message: String,
}

impl PoolStatus {
    /// What the status of a pool should be; `now` is for what changes against `old`.
    pub(super) fn new(pool: &Pool, old: &Self, now: &str) -> Self {
        let (ipv4, ipv6) = (count(pool, Family::V4), count(pool, Family::V6));
        let assigned = [&ipv4, &ipv6]
            .into_iter()
            .flatten()
            .map(|count| count.assigned)
            .sum();
        let mut ready = ready(pool);
        let before = old
            .conditions
            .iter()
            .find(|condition| condition.type_ == ready.type_);
        ready.last_transition_time = match before.filter(|before| before.status == ready.status) {
            Some(before) => before.last_transition_time.clone(),
            None => now.to_owned(),
        };
        Self {
            observed_generation: pool.generation,
            assigned,
            ipv4,
            ipv6,
            conditions: vec![ready],
        }
    }
}

fn count(pool: &Pool, family: Family) -> Option<AddressCount> {
    let count = pool.count(family);
    let shown = |number: u128| i64::try_from(number.min(MOST)).unwrap_or(i64::MAX);
    (count.capacity > 0).then(|| AddressCount {
        capacity: shown(count.capacity),
        assigned: shown(count.assigned),
        available: shown(count.capacity.saturating_sub(count.assigned)),
    })
}

fn ready(pool: &Pool) -> Condition {
    let (reason, message) = match pool.problems.first() {
        None => (
            "Usable",
            "all addresses can be given to Services".to_owned(),
        ),
        Some(Problem::Unreadable(_)) => (
            "UnreadableAddresses",
            format!("cannot be used: {}", problems(pool)),
        ),
        Some(Problem::Overlap(_)) => {
            let message = format!(
                "addresses that an older pool has are given by that pool alone: {}",
                problems(pool)
            );
            ("Overlap", message)
        }
    };
    Condition {
        type_: "Ready".into(),
        status: if pool.problems.is_empty() {
            "True"
        } else {
            "False"
        }
        .into(),
        observed_generation: pool.generation,
        last_transition_time: String::new(),
        reason: reason.into(),
        message,
    }
}

fn problems(pool: &Pool) -> String {
    const SHOWN: usize = 5;
    let texts = pool.problems.iter().map(|problem| match problem {
        Problem::Unreadable(text) | Problem::Overlap(text) => text.as_str(),
    });
    let shown: Vec<&str> = texts.take(SHOWN).collect();
    match pool.problems.len() {
        count if count > SHOWN => format!("{}; and {} more", shown.join("; "), count - SHOWN),
        _ => shown.join("; "),
    }
}
