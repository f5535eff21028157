use super::super::testing::{ip, labels, pool, selector};
use super::*;

fn pools(objects: &[PoolObject]) -> Pools {
    let objects = objects
        .iter()
        .map(|object| (object.name.clone(), object.clone()))
        .collect();
    Pools::new(&objects, std::iter::empty())
}

fn capacity(pools: &Pools, name: &str, family: Family) -> u128 {
    pools.get(name).unwrap().count(family).capacity
}

#[test]
fn the_older_pool_has_what_two_name() {
    let old = PoolObject {
        created: 5,
        ..pool("z", &["10.0.0.10-10.0.0.19"], |_| {})
    };
    let young = PoolObject {
        created: 6,
        ..pool("a", &["10.0.0.0/27", "10.0.0.40/32"], |_| {})
    };
    let pools = pools(&[old, young]);
    assert_eq!(
        (
            capacity(&pools, "z", Family::V4),
            capacity(&pools, "a", Family::V4)
        ),
        (10, 23)
    );
    assert!(pools.get("z").unwrap().problems.is_empty());
    let overlap = "10.0.0.0-10.0.0.31 overlaps 10.0.0.10-10.0.0.19 of z";
    assert_eq!(
        pools.get("a").unwrap().problems,
        [Problem::Overlap(overlap.into())]
    );
    for (address, owner) in [
        ("10.0.0.9", Some("a")),
        ("10.0.0.10", Some("z")),
        ("10.0.0.19", Some("z")),
        ("10.0.0.20", Some("a")),
        ("10.0.0.40", Some("a")),
        ("10.0.0.41", None),
        ("fd00::1", None),
    ] {
        assert_eq!(
            pools.of(ip(address)).map(|pool| pool.name.as_str()),
            owner,
            "{address}"
        );
    }
}

#[test]
fn what_cannot_be_read_is_told_and_left_out() {
    let pools = pools(&[pool(
        "a",
        &["x", "10.0.0.0/30", "10.0.0.2-10.0.0.5"],
        |_| {},
    )]);
    assert_eq!(capacity(&pools, "a", Family::V4), 6);
    let problems = &pools.get("a").unwrap().problems;
    assert!(
        matches!(problems[..], [Problem::Unreadable(_), Problem::Overlap(_)]),
        "{problems:?}"
    );
}

#[test]
fn addresses_that_old_equipment_drops() {
    let avoid = |spec: &mut AddressPoolSpec| spec.avoid_buggy_ips = true;
    let mut pools = pools(&[pool("a", &["10.0.0.254-10.0.1.2", "fd00::/120"], avoid)]);
    assert_eq!(
        (
            capacity(&pools, "a", Family::V4),
            capacity(&pools, "a", Family::V6)
        ),
        (3, 256)
    );
    for wanted in ["10.0.0.254", "10.0.1.1", "10.0.1.2"] {
        assert_eq!(pools.get("a").unwrap().free(Family::V4), Some(ip(wanted)));
        pools.take(ip(wanted));
    }
    assert_eq!(pools.get("a").unwrap().free(Family::V4), None);
    assert_eq!(pools.get("a").unwrap().free(Family::V6), Some(ip("fd00::")));
}

#[test]
fn how_many_addresses_a_range_loses() {
    for (first, last, buggy) in [
        (0, 255, 2),
        (1, 254, 0),
        (0, 0, 1),
        (255, 256, 2),
        (10, 1000, 6),
        (255, 255, 1),
    ] {
        let found = (first..=last).filter(|number| is_buggy(*number)).count() as u128;
        assert_eq!(
            (buggy_between(first, last), found),
            (buggy, buggy),
            "{first}-{last}"
        );
    }
}

#[test]
fn kept_for_some_then_by_priority_then_by_name() {
    let pools = pools(&[
        pool("b", &["10.0.0.0/30"], |_| {}),
        pool("a", &["10.0.1.0/30"], |_| {}),
        pool("high", &["10.0.2.0/30"], |spec| spec.priority = 5),
        pool("mine", &["10.0.3.0/30"], |spec| {
            spec.namespaces = vec!["shop".into()]
        }),
    ]);
    let names: Vec<&str> = pools.iter().map(|pool| pool.name.as_str()).collect();
    assert_eq!(names, ["mine", "high", "a", "b"]);
}

#[test]
fn who_may_have_addresses() {
    type Change = fn(&mut AddressPoolSpec);
    let cases: &[(Change, bool, bool)] = &[
        (|_| {}, true, true),
        (|spec| spec.namespaces = vec!["shop".into()], true, false),
        (
            |spec| spec.namespace_selector = Some(selector(&[("team", "a")])),
            true,
            false,
        ),
        (
            |spec| spec.namespace_selector = Some(selector(&[])),
            true,
            true,
        ),
        (
            |spec| spec.service_selector = Some(selector(&[("app", "web")])),
            true,
            true,
        ),
        (
            |spec| spec.service_selector = Some(selector(&[("app", "db")])),
            false,
            false,
        ),
        (
            |spec| {
                spec.namespaces = vec!["bank".into()];
                spec.namespace_selector = Some(selector(&[("team", "a")]));
                spec.service_selector = Some(selector(&[("app", "web")]));
            },
            true,
            true,
        ),
    ];
    let web = labels(&[("app", "web")]);
    for (index, (change, shop, bank)) in cases.iter().enumerate() {
        let pools = pools(&[pool("a", &["10.0.0.0/30"], change)]);
        let pool = pools.get("a").unwrap();
        assert_eq!(
            pool.permits("shop", Some(&labels(&[("team", "a")])), &web),
            *shop,
            "case {index}"
        );
        assert_eq!(
            pool.permits("bank", Some(&labels(&[("team", "b")])), &web),
            *bank,
            "case {index}"
        );
    }
}

#[test]
fn a_huge_range_costs_nothing() {
    let mut pools = pools(&[pool("a", &["2001:db8::/64", "10.0.0.0/8"], |_| {})]);
    assert_eq!(capacity(&pools, "a", Family::V6), 1 << 64);
    for index in 0..2000_u32 {
        let found = pools.get("a").unwrap().free(Family::V4).unwrap();
        assert_eq!(number(found), u128::from(0x0a00_0000 + index));
        pools.take(found);
    }
    pools.give_back(ip("10.0.3.7"));
    assert_eq!(
        pools.get("a").unwrap().free(Family::V4),
        Some(ip("10.0.3.7"))
    );
}
