//! Which endpoint has which slot: those that stay keep theirs.

use super::element::Target;
use portico_model::table::{Endpoint, Family};

impl From<&Endpoint> for Target {
    fn from(endpoint: &Endpoint) -> Self {
        Self {
            address: endpoint.address,
            port: endpoint.port,
        }
    }
}

/// The endpoints of a family as targets, sorted, each once.
pub(super) fn targets<'a>(
    family: Family,
    endpoints: impl IntoIterator<Item = &'a Endpoint>,
) -> Vec<Target> {
    let mut targets: Vec<Target> = endpoints
        .into_iter()
        .filter(|e| Family::of(e.address) == family)
        .map(Target::from)
        .collect();
    if !targets.is_sorted_by(|a, b| a < b) {
        targets.sort_unstable();
        targets.dedup();
    }
    targets
}

/// Slots without gaps: those of `old` that are still wanted stay where they are, the last ones move
/// into gaps.
pub(super) fn assign(old: &[Option<Target>], wanted: &[Target]) -> Vec<Target> {
    if old.is_empty() {
        return wanted.to_vec();
    }
    let (mut slots, mut waiting) = place(old, wanted);
    while slots.len() > wanted.len() {
        waiting.extend(slots.pop().flatten());
    }
    fill(slots, waiting).into_iter().flatten().collect()
}

/// Slots with gaps: nothing ever moves, and new ones take the first gap.
pub(super) fn assign_fixed(old: &[Option<Target>], wanted: &[Target]) -> Vec<Option<Target>> {
    let (mut slots, waiting) = place(old, wanted);
    while slots.last().is_some_and(Option::is_none) {
        slots.pop();
    }
    fill(slots, waiting)
}

/// What stays, where it is, and what is new.
fn place(old: &[Option<Target>], wanted: &[Target]) -> (Vec<Option<Target>>, Vec<Target>) {
    let mut placed = vec![false; wanted.len()];
    let mut keep = |target: &Target| {
        let index = wanted.binary_search(target).ok()?;
        let taken = std::mem::replace(placed.get_mut(index)?, true);
        (!taken).then_some(*target)
    };
    let slots = old
        .iter()
        .map(|target| target.as_ref().and_then(&mut keep))
        .collect();
    let new = wanted
        .iter()
        .zip(placed)
        .filter(|(_, placed)| !placed)
        .map(|(target, _)| *target)
        .collect();
    (slots, new)
}

fn fill(mut slots: Vec<Option<Target>>, waiting: Vec<Target>) -> Vec<Option<Target>> {
    let mut waiting = waiting.into_iter();
    for gap in slots.iter_mut().filter(|slot| slot.is_none()) {
        *gap = waiting.next();
    }
    slots.extend(waiting.map(Some));
    slots
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(number: u8) -> Target {
        Target {
            address: [10, 0, 0, number].into(),
            port: 80,
        }
    }

    fn some(numbers: &[u8]) -> Vec<Option<Target>> {
        numbers
            .iter()
            .map(|n| (*n > 0).then(|| target(*n)))
            .collect()
    }

    #[test]
    fn endpoints_that_stay_keep_their_slot_and_gaps_are_closed() {
        let cases: [(&[u8], &[u8], &[u8]); 8] = [
            (&[], &[1, 2, 3], &[1, 2, 3]),
            (&[3, 1, 2], &[1, 2, 3], &[3, 1, 2]),
            (&[3, 1, 2], &[1, 3], &[3, 1]),
            (&[3, 1, 2], &[1, 2], &[2, 1]),
            (&[3, 1, 2], &[1, 2, 4], &[4, 1, 2]),
            (&[3, 1, 2], &[4], &[4]),
            (&[3, 0, 2, 2], &[2, 3, 5, 6], &[3, 5, 2, 6]),
            (&[1, 2], &[], &[]),
        ];
        for (old, wanted, expected) in cases {
            let wanted: Vec<Target> = wanted.iter().map(|n| target(*n)).collect();
            let expected: Vec<Target> = expected.iter().map(|n| target(*n)).collect();
            assert_eq!(assign(&some(old), &wanted), expected, "{old:?}");
        }
    }

    #[test]
    fn members_never_move() {
        let wanted: Vec<Target> = [2, 3, 4].map(target).to_vec();
        assert_eq!(assign_fixed(&some(&[1, 2, 3]), &wanted), some(&[4, 2, 3]));
        assert_eq!(
            assign_fixed(&some(&[5, 1, 3]), &wanted[..2]),
            some(&[2, 0, 3])
        );
        assert_eq!(assign_fixed(&some(&[3, 1]), &wanted[1..2]), some(&[3]));
    }
}
