use super::*;
use crate::testing::Rig;

fn key(zone: &Zone, text: &str) -> Key {
    zone.origin().key(&[text]).unwrap()
}

fn is(zone: &Zone, text: &str) -> &'static str {
    match zone.find(key(zone, text).borrow()) {
        Found::Missing => "missing",
        Found::Empty => "empty",
        Found::Content(_) => "content",
    }
}

fn addresses() -> Option<Content> {
    Some(Content::Addresses(["192.0.2.1".parse().unwrap()].into()))
}

#[test]
fn names_above_are_there_as_long_as_those_below() {
    let mut zone = Rig::new().zone;
    assert!(zone.apply(Patch::Set(key(&zone, "a.b.c"), addresses())));
    assert!(
        !zone.apply(Patch::Set(key(&zone, "a.b.c"), addresses())),
        "the same again"
    );
    zone.apply(Patch::Set(key(&zone, "x.b.c"), addresses()));
    zone.apply(Patch::Set(key(&zone, "b.c"), addresses()));
    let state = |zone: &Zone| ["a.b.c", "x.b.c", "b.c", "c", "z.c"].map(|name| is(zone, name));
    assert_eq!(
        state(&zone),
        ["content", "content", "content", "empty", "missing"]
    );
    zone.apply(Patch::Set(key(&zone, "b.c"), None));
    assert_eq!(
        state(&zone),
        ["content", "content", "empty", "empty", "missing"]
    );
    zone.apply(Patch::Set(key(&zone, "a.b.c"), None));
    assert_eq!(
        state(&zone),
        ["missing", "content", "empty", "empty", "missing"]
    );
    zone.apply(Patch::Set(key(&zone, "x.b.c"), None));
    assert_eq!(state(&zone), ["missing"; 5]);
    assert!(!zone.apply(Patch::Set(key(&zone, "x.b.c"), None)));
    assert!(
        matches!(zone.find(&[]), Found::Empty),
        "the origin is always there"
    );
    assert_eq!(zone.len(), 1, "the server of the zone");
    assert_eq!(zone.names.len(), 2);
}

#[test]
fn serials_follow_the_clock_and_only_grow() {
    for (last, clock, wanted) in [
        (100, 200, 200),
        (200, 200, 201),
        (300, 200, 301),
        (u32::MAX, 5, 5),
        (u32::MAX, u64::from(u32::MAX), 0),
        (u32::MAX, (1 << 32) + 7, 7),
    ] {
        assert_eq!(next_serial(last, clock), wanted, "{last} {clock}");
    }
}

#[test]
fn a_snapshot_stays_as_it_is() {
    let mut zone = Rig::new().zone;
    zone.apply(Patch::Set(key(&zone, "a"), addresses()));
    let snapshot = zone.snapshot();
    zone.apply(Patch::Set(key(&zone, "a"), None));
    let types: Vec<String> = snapshot
        .records()
        .map(|record| record.record_type().to_string())
        .collect();
    assert_eq!(types, ["SOA", "NS", "NS", "A", "A", "SOA"]);
    assert_eq!(zone.snapshot().records().count(), 5);
}

proptest::proptest! {
    /// Whatever is set and removed in whatever order, what is there is what was set last, and what
    /// is above it.
    #[test]
    fn like_a_plain_list_of_names(steps in proptest::collection::vec((0..4_usize, 0..4_usize, 0..4_usize, proptest::bool::ANY), 1..60)) {
        let mut zone = Rig::new().zone;
        let mut plain = std::collections::BTreeSet::new();
        for (one, two, length, there) in steps {
            let labels = ["a", "b", "c", "d"];
            let all = [labels[one], labels[two], "e"];
            let name = all[length.min(2)..].join(".");
            zone.apply(Patch::Set(key(&zone, &name), addresses().filter(|_| there)));
            if there { plain.insert(name) } else { plain.remove(&name) };
            proptest::prop_assert_eq!(zone.len(), plain.len() + 1);
        }
        for one in ["", "a.", "b.", "c.", "d."] {
            for two in ["", "a.", "b.", "c.", "d."] {
                let name = format!("{one}{two}e");
                let above = plain.iter().any(|other| other.ends_with(&format!(".{name}")));
                let wanted = if plain.contains(&name) { "content" } else if above { "empty" } else { "missing" };
                proptest::prop_assert_eq!(is(&zone, &name), wanted, "{}", name);
            }
        }
    }
}
