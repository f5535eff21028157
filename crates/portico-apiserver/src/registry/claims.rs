//! Claims on what there is only one of, as keys in the store: the object in the key owns the
//! address or port.

use portico_api::kinds::{Claim, Claims, Kind, Pool};
use portico_store::{Check, Op, Range, Store};
use std::collections::BTreeMap;
use std::sync::Arc;

const TOPIC: &str = "claims";

pub(super) fn key(claim: &Claim) -> String {
    match claim {
        Claim::Address(address) => format!("{TOPIC}/address/{address}"),
        Claim::NodePort(port) => format!("{TOPIC}/port/{port}"),
        Claim::PartitionPort(partition, port) => {
            format!("{TOPIC}/partition/{partition}/{port}")
        }
    }
}

/// What allocation sees of the store.
pub(super) struct StorePool<'a>(pub &'a Store);

impl Pool for StorePool<'_> {
    fn is_taken(&self, claim: &Claim) -> bool {
        self.0.get(&key(claim)).is_some()
    }

    fn random(&mut self) -> u64 {
        crate::random::number()
    }
}

/// Put the claims of the object at `owner` into its transaction.
pub(super) fn add(claims: &Claims, owner: &str, checks: &mut Vec<Check>, ops: &mut Vec<Op>) {
    for claim in &claims.take {
        checks.push(Check {
            key: key(claim),
            modified: 0,
        });
        ops.push(Op::Put {
            key: key(claim),
            value: owner.to_owned().into(),
        });
    }
    for claim in &claims.free {
        ops.push(Op::Delete { key: key(claim) });
    }
}

/// Compare the claims with the objects that should own them, at one revision. Returns what is
/// wrong: nothing, always, since both are written together; tests and `/debug/claims` ask to prove
/// it.
pub(crate) fn check(store: &Store, kinds: &[Arc<dyn Kind>]) -> Vec<String> {
    let mut problems = Vec::new();
    let mut owners: BTreeMap<String, String> = BTreeMap::new();
    let at = Some(store.revision());
    let all = |prefix: &str| {
        store
            .range(Range {
                prefix,
                after: None,
                limit: 0,
                at,
            })
            .map(|found| found.entries)
            .unwrap_or_default()
    };
    let mut seen: Vec<&str> = Vec::new();
    for kind in kinds {
        if seen.contains(&kind.info().storage) {
            continue;
        }
        seen.push(kind.info().storage);
        for entry in all(&format!("{}/", kind.info().storage)) {
            let Ok(object) = super::load(&entry) else {
                problems.push(format!("{} does not decode", entry.key));
                continue;
            };
            for claim in kind.owned(&object) {
                if let Some(other) = owners.insert(key(&claim), entry.key.to_string()) {
                    problems.push(format!(
                        "{} is owned by {other} and by {}",
                        key(&claim),
                        entry.key
                    ));
                }
            }
        }
    }
    let claims: BTreeMap<String, String> = all(&format!("{TOPIC}/"))
        .into_iter()
        .map(|entry| {
            (
                entry.key.to_string(),
                String::from_utf8_lossy(&entry.value).into_owned(),
            )
        })
        .collect();
    for (claim, owner) in &owners {
        if claims.get(claim) != Some(owner) {
            problems.push(format!(
                "{owner} uses {claim}, which is claimed by {:?}",
                claims.get(claim)
            ));
        }
    }
    for (claim, owner) in &claims {
        if !owners.contains_key(claim) {
            problems.push(format!(
                "{claim} is claimed by {owner}, which does not use it"
            ));
        }
    }
    problems
}
