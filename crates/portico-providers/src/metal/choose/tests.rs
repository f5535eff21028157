use super::super::allocations::Known;
use super::super::testing::{desired, ip, labels, pool, selector, service};
use super::*;
use crate::{Port, Protocol, Request};

fn allocations() -> Allocations {
    let mut allocations = Allocations::default();
    let pools = [
        pool("dual", &["10.0.0.0/30", "fd00::/126"], |_| {}),
        pool("mine", &["10.0.1.0/30"], |spec| {
            spec.namespace_selector = Some(selector(&[("team", "a")]))
        }),
        pool("asked", &["10.0.2.0/30"], |spec| spec.auto_assign = false),
        pool("old", &["10.0.3.0/30"], |spec| {
            spec.avoid_buggy_ips = true;
            spec.priority = -1;
        }),
        pool("bank", &["10.0.4.0/30"], |spec| {
            spec.namespaces = vec!["bank".into()]
        }),
    ];
    pools
        .into_iter()
        .for_each(|pool| allocations.apply_pool(pool));
    allocations.apply_namespace("shop", labels(&[]));
    allocations.apply_namespace("team", labels(&[("team", "a")]));
    allocations
}

fn changed(name: &str, change: impl FnOnce(&mut Desired)) -> Desired {
    let mut desired = desired(name);
    change(&mut desired);
    desired
}

/// The addresses, or the reason.
fn result(outcome: Outcome) -> String {
    match outcome {
        Outcome::Given { addresses, .. } => addresses
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join(","),
        Outcome::Refused(refusal) => refusal.reason.to_owned(),
    }
}

fn explicit(text: &str) -> Result<Vec<IpAddr>, String> {
    Ok(text.split(',').map(ip).collect())
}

#[test]
fn the_order_of_choice() {
    type Case = (&'static str, fn(&mut Desired), &'static str);
    let cases: &[Case] = &[
        ("plain", |_| {}, "10.0.0.0"),
        (
            "pinned by namespace first",
            |desired| desired.service.namespace = "team".into(),
            "10.0.1.0",
        ),
        (
            "the pool asked for",
            |desired| desired.pool = Some("asked".into()),
            "10.0.2.0",
        ),
        (
            "an address asked for",
            |desired| desired.explicit = explicit("10.0.2.3"),
            "10.0.2.3",
        ),
        (
            "the only family",
            |desired| desired.families = vec![Family::V6],
            "fd00::",
        ),
        (
            "both, in order",
            |desired| desired.families = vec![Family::V6, Family::V4],
            "fd00::,10.0.0.0",
        ),
        (
            "one of both asked for",
            |desired| {
                desired.families = vec![Family::V4, Family::V6];
                desired.explicit = explicit("fd00::3");
            },
            "10.0.0.0,fd00::3",
        ),
        (
            "what is taken is skipped",
            |desired| desired.pool = Some("dual".into()),
            "10.0.0.0",
        ),
        (
            "what the status shows",
            |desired| desired.current = [ip("10.0.3.2")].into(),
            "10.0.3.2",
        ),
        (
            "status in a pool that is not given from",
            |desired| desired.current = [ip("10.0.2.2")].into(),
            "10.0.2.2",
        ),
        (
            "status in another's pool",
            |desired| desired.current = [ip("10.0.4.2")].into(),
            "10.0.0.0",
        ),
        (
            "status in no pool",
            |desired| desired.current = [ip("172.16.0.1")].into(),
            "10.0.0.0",
        ),
        (
            "status against the pool asked for",
            |desired| {
                desired.current = [ip("10.0.0.2")].into();
                desired.pool = Some("old".into());
            },
            "10.0.3.1",
        ),
        (
            "status of another family",
            |desired| desired.current = [ip("fd00::1")].into(),
            "10.0.0.0",
        ),
        (
            "nonsense",
            |desired| desired.explicit = Err("no".into()),
            "InvalidAddressRequest",
        ),
        (
            "in no pool",
            |desired| desired.explicit = explicit("172.16.0.1"),
            "AddressNotInPool",
        ),
        (
            "in another's pool",
            |desired| desired.explicit = explicit("10.0.4.1"),
            "AddressNotPermitted",
        ),
        (
            "one to avoid",
            |desired| desired.explicit = explicit("10.0.3.0"),
            "AddressNotPermitted",
        ),
        (
            "address and pool disagree",
            |desired| {
                desired.explicit = explicit("10.0.0.1");
                desired.pool = Some("asked".into());
            },
            "InvalidAddressRequest",
        ),
        (
            "no such pool",
            |desired| desired.pool = Some("none".into()),
            "UnknownPool",
        ),
        (
            "another's pool",
            |desired| desired.pool = Some("bank".into()),
            "PoolNotPermitted",
        ),
        (
            "family missing in the pool",
            |desired| {
                desired.pool = Some("asked".into());
                desired.families = vec![Family::V6];
            },
            "FamilyMissing",
        ),
        (
            "both required, one there",
            |desired| {
                desired.pool = Some("asked".into());
                desired.families = vec![Family::V4, Family::V6];
                desired.require_all = true;
            },
            "FamilyMissing",
        ),
        (
            "both preferred, one there",
            |desired| {
                desired.pool = Some("asked".into());
                desired.families = vec![Family::V4, Family::V6];
            },
            "10.0.2.0",
        ),
    ];
    for (what, change, wanted) in cases {
        let mut allocations = allocations();
        let desired = changed("web", change);
        assert_eq!(result(allocations.ensure(&desired)), *wanted, "{what}");
        let again = Desired {
            current: allocations.held("uid-web"),
            ..desired
        };
        assert_eq!(
            result(allocations.ensure(&again)),
            *wanted,
            "{what}: once more"
        );
    }
}

#[test]
fn without_pools_and_without_permitted_ones() {
    let mut allocations = Allocations::default();
    assert_eq!(result(allocations.ensure(&desired("a"))), "NoAddressPool");
    allocations.apply_pool(pool("bank", &["10.0.4.0/30"], |spec| {
        spec.namespaces = vec!["bank".into()]
    }));
    allocations.apply_pool(pool("asked", &["10.0.2.0/30"], |spec| {
        spec.auto_assign = false
    }));
    let Outcome::Refused(refusal) = allocations.ensure(&desired("a")) else {
        panic!("not refused")
    };
    assert_eq!(refusal.reason, "NoPermittedPool");
    assert!(
        refusal.message.contains("asked only on request")
            && refusal.message.contains("bank only to other")
    );
}

#[test]
fn a_full_pool_says_so_and_a_freed_address_is_news() {
    let mut allocations = Allocations::default();
    allocations.apply_pool(pool("a", &["10.0.0.1-10.0.0.2"], |_| {}));
    assert_eq!(result(allocations.ensure(&desired("a"))), "10.0.0.1");
    assert_eq!(result(allocations.ensure(&desired("b"))), "10.0.0.2");
    let Outcome::Refused(refusal) = allocations.ensure(&desired("c")) else {
        panic!("not refused")
    };
    let wanted = "all 2 IPv4 addresses that the Service may have are in use (pool a): add addresses, \
                  or delete a Service that has one";
    assert_eq!(
        (refusal.reason, refusal.message.as_str()),
        ("PoolExhausted", wanted)
    );
    allocations.take_news();
    allocations.delete("uid-a", &BTreeSet::new());
    assert_eq!(allocations.take_news(), (true, false));
    assert_eq!(result(allocations.ensure(&desired("c"))), "10.0.0.1");
}

#[test]
fn sharing() {
    let shared = |name: &str, key: &str, port: &str, endpoints: &str| {
        changed(name, |desired| {
            (desired.key, desired.ports, desired.endpoints) =
                (key.into(), vec![port.into()], endpoints.into());
        })
    };
    let asks = |desired: Desired| Desired {
        explicit: explicit("10.0.0.0"),
        ..desired
    };
    let mut allocations = allocations();
    assert_eq!(
        result(allocations.ensure(&shared("a", "k", "TCP/80", ""))),
        "10.0.0.0"
    );
    let cases = [
        (shared("b", "k", "TCP/81", ""), "10.0.0.0"),
        (shared("c", "k", "UDP/80", ""), "10.0.0.0"),
        (shared("d", "k", "TCP/81", ""), "10.0.0.1"),
        (shared("e", "other", "TCP/82", ""), "10.0.0.2"),
        (shared("f", "", "TCP/83", ""), "10.0.0.3"),
        (asks(shared("g", "k", "TCP/80", "")), "AddressInUse"),
        (
            asks(shared("h", "k", "TCP/84", "local:app=x")),
            "AddressInUse",
        ),
        (asks(shared("i", "", "TCP/84", "")), "AddressInUse"),
        (asks(shared("j", "k", "TCP/84", "")), "10.0.0.0"),
    ];
    for (desired, wanted) in cases {
        assert_eq!(
            result(allocations.ensure(&desired)),
            wanted,
            "{}",
            desired.service.name
        );
    }
    // Ports that come to clash, and a key that is given up, mean another address; a Service without
    // a neighbour on its address may do as it likes.
    let clash = Desired {
        current: [ip("10.0.0.0")].into(),
        ..shared("b", "k", "TCP/84", "")
    };
    assert_eq!(
        result(allocations.ensure(&clash)),
        "10.0.0.1",
        "where d, with another port, has the key too"
    );
    let alone = Desired {
        current: [ip("10.0.0.2")].into(),
        ..shared("e", "new", "TCP/82", "")
    };
    assert_eq!(result(allocations.ensure(&alone)), "10.0.0.2");
    assert_eq!(allocations.claim(ip("10.0.0.2")).unwrap().key, "new");
}

#[test]
fn local_services_share_when_they_are_for_the_same() {
    let local = |name: &str, port: &str| {
        changed(name, |desired| {
            (desired.key, desired.ports, desired.endpoints) =
                ("k".into(), vec![port.into()], "local:app=x".into());
        })
    };
    let mut allocations = allocations();
    assert_eq!(
        result(allocations.ensure(&local("a", "TCP/80"))),
        "10.0.0.0"
    );
    assert_eq!(
        result(allocations.ensure(&local("b", "TCP/81"))),
        "10.0.0.0"
    );
}

#[test]
fn a_pool_change_moves_whom_it_must_and_says_why() {
    let mut allocations = allocations();
    assert_eq!(result(allocations.ensure(&desired("a"))), "10.0.0.0");
    assert_eq!(result(allocations.ensure(&desired("b"))), "10.0.0.1");
    allocations.take_news();
    allocations.apply_pool(pool("dual", &["10.0.0.1/32"], |_| {}));
    assert_eq!(allocations.take_news(), (false, true));
    let of =
        |name: &str, address: &str| changed(name, |desired| desired.current = [ip(address)].into());
    assert_eq!(
        result(allocations.ensure(&of("b", "10.0.0.1"))),
        "10.0.0.1",
        "still legal"
    );
    let Outcome::Given {
        addresses,
        given_up,
    } = allocations.ensure(&of("a", "10.0.0.0"))
    else {
        panic!("refused")
    };
    assert_eq!(addresses, [ip("10.0.3.1")]);
    assert_eq!(
        given_up,
        [(
            ip("10.0.0.0"),
            "it is in no AddressPool any more".to_owned()
        )]
    );
    assert_eq!(
        allocations.held("uid-a").len(),
        2,
        "until the status has the new one"
    );
    assert_eq!(allocations.staying("uid-a"), [ip("10.0.3.1")].into());
    let truth = Known {
        service: service("a"),
        balanced: true,
        addresses: [ip("10.0.3.1")].into(),
    };
    allocations.service_seen(truth.clone());
    assert_eq!(allocations.take_suspects(), [service("a")]);
    allocations.settle("uid-a", Some(truth));
    assert_eq!(allocations.held("uid-a"), [ip("10.0.3.1")].into());
}

#[test]
fn who_is_refused_keeps_what_the_status_shows() {
    let mut allocations = allocations();
    assert_eq!(result(allocations.ensure(&desired("a"))), "10.0.0.0");
    let more = changed("a", |desired| {
        desired.current = [ip("10.0.0.0")].into();
        desired.explicit = explicit("172.16.0.1");
    });
    assert_eq!(result(allocations.ensure(&more)), "AddressNotInPool");
    assert_eq!(allocations.held("uid-a"), [ip("10.0.0.0")].into());
    assert_eq!(
        result(allocations.ensure(&Desired {
            current: BTreeSet::new(),
            ..more
        })),
        "AddressNotInPool"
    );
    assert!(
        allocations.held("uid-a").is_empty(),
        "nobody was told of it"
    );
}

#[test]
fn addresses_in_a_status_are_nobody_elses() {
    let mut allocations = allocations();
    let shown = Known {
        service: service("old"),
        balanced: true,
        addresses: [ip("10.0.0.0")].into(),
    };
    allocations.service_seen(shown.clone());
    assert_eq!(result(allocations.ensure(&desired("new"))), "10.0.0.1");
    let asked = changed("other", |desired| desired.explicit = explicit("10.0.0.0"));
    let Outcome::Refused(refusal) = allocations.ensure(&asked) else {
        panic!("not refused")
    };
    assert_eq!(
        refusal.message,
        "10.0.0.0 is asked for, but Service shop/old has it in its status"
    );
    let adopts = changed("old", |desired| desired.current = shown.addresses.clone());
    assert_eq!(result(allocations.ensure(&adopts)), "10.0.0.0");
    allocations.service_gone("uid-old");
    assert_eq!(result(allocations.ensure(&asked)), "10.0.0.0");
}

#[test]
fn the_second_family_comes_from_the_pool_of_the_first() {
    let mut allocations = allocations();
    allocations.apply_pool(pool("first", &["fd01::/126"], |spec| spec.priority = 9));
    assert_eq!(result(allocations.ensure(&desired("a"))), "10.0.0.0");
    let dual = |name: &str| {
        changed(name, |desired| {
            desired.families = vec![Family::V4, Family::V6]
        })
    };
    let later = Desired {
        current: [ip("10.0.0.0")].into(),
        ..dual("a")
    };
    assert_eq!(result(allocations.ensure(&later)), "10.0.0.0,fd00::");
    assert_eq!(
        result(allocations.ensure(&dual("b"))),
        "10.0.0.1,fd00::1",
        "one pool has both"
    );
    allocations.remove_pool("dual");
    assert_eq!(
        result(allocations.ensure(&dual("c"))),
        "10.0.3.1,fd01::",
        "no pool has both"
    );
}

#[test]
fn a_missing_preferred_family_is_news_when_something_is_freed() {
    let mut allocations = Allocations::default();
    allocations.apply_pool(pool("a", &["10.0.0.0/30", "fd00::1/128"], |_| {}));
    let dual = |name: &str| {
        changed(name, |desired| {
            desired.families = vec![Family::V4, Family::V6]
        })
    };
    assert_eq!(result(allocations.ensure(&dual("a"))), "10.0.0.0,fd00::1");
    assert_eq!(result(allocations.ensure(&dual("b"))), "10.0.0.1");
    allocations.take_news();
    allocations.delete("uid-a", &BTreeSet::new());
    assert_eq!(allocations.take_news(), (true, true));
}

#[test]
fn the_words_of_others_are_understood() {
    let request = |annotations: &[(&str, &str)], field: Option<&str>| Request {
        service: service("web"),
        annotations: labels(annotations),
        requested_ip: field.map(str::to_owned),
        families: vec![Family::V4, Family::V6],
        ports: vec![Port {
            name: String::new(),
            protocol: Protocol::Tcp,
            port: 80,
            node_port: 0,
            app_protocol: None,
        }],
        ..Request::default()
    };
    let of = |annotations: &[(&str, &str)], field| Desired::new(&request(annotations, field));
    for name in [
        "portico.dev/addresses",
        "metallb.io/loadBalancerIPs",
        "metallb.universe.tf/loadBalancerIPs",
        "kube-vip.io/loadbalancerIPs",
    ] {
        assert_eq!(
            of(&[(name, "10.0.0.1, fd00::1")], None).explicit,
            explicit("10.0.0.1,fd00::1"),
            "{name}"
        );
    }
    for name in [
        "portico.dev/address-pool",
        "metallb.io/address-pool",
        "metallb.universe.tf/address-pool",
    ] {
        assert_eq!(
            of(&[(name, "a")], None).pool.as_deref(),
            Some("a"),
            "{name}"
        );
    }
    for name in [
        "portico.dev/allow-shared-ip",
        "metallb.io/allow-shared-ip",
        "metallb.universe.tf/allow-shared-ip",
    ] {
        assert_eq!(of(&[(name, "k")], None).key, "k", "{name}");
    }
    let ours = "portico.dev/addresses";
    assert_eq!(of(&[], Some("10.0.0.1")).explicit, explicit("10.0.0.1"));
    assert_eq!(
        of(&[(ours, "10.0.0.1")], Some("10.0.0.1")).explicit,
        explicit("10.0.0.1")
    );
    for (annotation, field) in [
        ("10.0.0.1", Some("10.0.0.2")),
        ("10.0.0.1,10.0.0.2", None),
        ("web", None),
        ("0.0.0.0", None),
    ] {
        assert!(
            of(&[(ours, annotation)], field).explicit.is_err(),
            "{annotation} {field:?}"
        );
    }
    let single = Desired::new(&Request {
        families: vec![Family::V4],
        ..request(&[(ours, "fd00::1")], None)
    });
    assert!(single.explicit.unwrap_err().contains("IPv4 only"));
    let local = Request {
        local: true,
        selector: labels(&[("app", "x")]),
        ..request(&[], None)
    };
    assert_eq!(
        (
            Desired::new(&local).endpoints.as_str(),
            &Desired::new(&local).ports[0][..]
        ),
        ("local:app=x", "TCP/80")
    );
}
