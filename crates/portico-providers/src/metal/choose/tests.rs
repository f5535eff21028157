use super::super::ledger::Known;
use super::super::testing::{ip, labels, pool, selector, service, wish};
use super::*;
use crate::{Port, Protocol, Request};

fn ledger() -> Ledger {
    let mut ledger = Ledger::default();
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
    pools.into_iter().for_each(|pool| ledger.apply_pool(pool));
    ledger.apply_namespace("shop", labels(&[]));
    ledger.apply_namespace("team", labels(&[("team", "a")]));
    ledger
}

fn changed(name: &str, change: impl FnOnce(&mut Wish)) -> Wish {
    let mut wish = wish(name);
    change(&mut wish);
    wish
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
    type Case = (&'static str, fn(&mut Wish), &'static str);
    let cases: &[Case] = &[
        ("plain", |_| {}, "10.0.0.0"),
        (
            "pinned by namespace first",
            |wish| wish.service.namespace = "team".into(),
            "10.0.1.0",
        ),
        (
            "the pool asked for",
            |wish| wish.pool = Some("asked".into()),
            "10.0.2.0",
        ),
        (
            "an address asked for",
            |wish| wish.explicit = explicit("10.0.2.3"),
            "10.0.2.3",
        ),
        (
            "the only family",
            |wish| wish.families = vec![Family::V6],
            "fd00::",
        ),
        (
            "both, in order",
            |wish| wish.families = vec![Family::V6, Family::V4],
            "fd00::,10.0.0.0",
        ),
        (
            "one of both asked for",
            |wish| {
                wish.families = vec![Family::V4, Family::V6];
                wish.explicit = explicit("fd00::3");
            },
            "10.0.0.0,fd00::3",
        ),
        (
            "what is taken is skipped",
            |wish| wish.pool = Some("dual".into()),
            "10.0.0.0",
        ),
        (
            "what the status shows",
            |wish| wish.current = [ip("10.0.3.2")].into(),
            "10.0.3.2",
        ),
        (
            "status in a pool that is not given from",
            |wish| wish.current = [ip("10.0.2.2")].into(),
            "10.0.2.2",
        ),
        (
            "status in another's pool",
            |wish| wish.current = [ip("10.0.4.2")].into(),
            "10.0.0.0",
        ),
        (
            "status in no pool",
            |wish| wish.current = [ip("172.16.0.1")].into(),
            "10.0.0.0",
        ),
        (
            "status against the pool asked for",
            |wish| {
                wish.current = [ip("10.0.0.2")].into();
                wish.pool = Some("old".into());
            },
            "10.0.3.1",
        ),
        (
            "status of another family",
            |wish| wish.current = [ip("fd00::1")].into(),
            "10.0.0.0",
        ),
        (
            "nonsense",
            |wish| wish.explicit = Err("no".into()),
            "InvalidAddressRequest",
        ),
        (
            "in no pool",
            |wish| wish.explicit = explicit("172.16.0.1"),
            "AddressNotInPool",
        ),
        (
            "in another's pool",
            |wish| wish.explicit = explicit("10.0.4.1"),
            "AddressNotPermitted",
        ),
        (
            "one to avoid",
            |wish| wish.explicit = explicit("10.0.3.0"),
            "AddressNotPermitted",
        ),
        (
            "address and pool disagree",
            |wish| {
                wish.explicit = explicit("10.0.0.1");
                wish.pool = Some("asked".into());
            },
            "InvalidAddressRequest",
        ),
        (
            "no such pool",
            |wish| wish.pool = Some("none".into()),
            "UnknownPool",
        ),
        (
            "another's pool",
            |wish| wish.pool = Some("bank".into()),
            "PoolNotPermitted",
        ),
        (
            "family missing in the pool",
            |wish| {
                wish.pool = Some("asked".into());
                wish.families = vec![Family::V6];
            },
            "FamilyMissing",
        ),
        (
            "both required, one there",
            |wish| {
                wish.pool = Some("asked".into());
                wish.families = vec![Family::V4, Family::V6];
                wish.require_all = true;
            },
            "FamilyMissing",
        ),
        (
            "both preferred, one there",
            |wish| {
                wish.pool = Some("asked".into());
                wish.families = vec![Family::V4, Family::V6];
            },
            "10.0.2.0",
        ),
    ];
    for (what, change, wanted) in cases {
        let mut ledger = ledger();
        let wish = changed("web", change);
        assert_eq!(result(ledger.ensure(&wish)), *wanted, "{what}");
        let again = Wish {
            current: ledger.held("uid-web"),
            ..wish
        };
        assert_eq!(result(ledger.ensure(&again)), *wanted, "{what}: once more");
    }
}

#[test]
fn without_pools_and_without_permitted_ones() {
    let mut ledger = Ledger::default();
    assert_eq!(result(ledger.ensure(&wish("a"))), "NoAddressPool");
    ledger.apply_pool(pool("bank", &["10.0.4.0/30"], |spec| {
        spec.namespaces = vec!["bank".into()]
    }));
    ledger.apply_pool(pool("asked", &["10.0.2.0/30"], |spec| {
        spec.auto_assign = false
    }));
    let Outcome::Refused(refusal) = ledger.ensure(&wish("a")) else {
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
    let mut ledger = Ledger::default();
    ledger.apply_pool(pool("a", &["10.0.0.1-10.0.0.2"], |_| {}));
    assert_eq!(result(ledger.ensure(&wish("a"))), "10.0.0.1");
    assert_eq!(result(ledger.ensure(&wish("b"))), "10.0.0.2");
    let Outcome::Refused(refusal) = ledger.ensure(&wish("c")) else {
        panic!("not refused")
    };
    let wanted = "all 2 IPv4 addresses that the Service may have are in use (pool a): add addresses, \
                  or delete a Service that has one";
    assert_eq!(
        (refusal.reason, refusal.message.as_str()),
        ("PoolExhausted", wanted)
    );
    ledger.take_news();
    ledger.delete("uid-a", &BTreeSet::new());
    assert_eq!(ledger.take_news(), (true, false));
    assert_eq!(result(ledger.ensure(&wish("c"))), "10.0.0.1");
}

#[test]
fn sharing() {
    let shared = |name: &str, key: &str, port: &str, endpoints: &str| {
        changed(name, |wish| {
            (wish.key, wish.ports, wish.endpoints) =
                (key.into(), vec![port.into()], endpoints.into());
        })
    };
    let asks = |wish: Wish| Wish {
        explicit: explicit("10.0.0.0"),
        ..wish
    };
    let mut ledger = ledger();
    assert_eq!(
        result(ledger.ensure(&shared("a", "k", "TCP/80", ""))),
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
    for (wish, wanted) in cases {
        assert_eq!(
            result(ledger.ensure(&wish)),
            wanted,
            "{}",
            wish.service.name
        );
    }
    // Ports that come to clash, and a key that is given up, mean another address; who is alone may
    // do as it likes.
    let clash = Wish {
        current: [ip("10.0.0.0")].into(),
        ..shared("b", "k", "TCP/84", "")
    };
    assert_eq!(
        result(ledger.ensure(&clash)),
        "10.0.0.1",
        "where d, with another port, has the key too"
    );
    let alone = Wish {
        current: [ip("10.0.0.2")].into(),
        ..shared("e", "new", "TCP/82", "")
    };
    assert_eq!(result(ledger.ensure(&alone)), "10.0.0.2");
    assert_eq!(ledger.claim(ip("10.0.0.2")).unwrap().key, "new");
}

#[test]
fn local_services_share_when_they_are_for_the_same() {
    let local = |name: &str, port: &str| {
        changed(name, |wish| {
            (wish.key, wish.ports, wish.endpoints) =
                ("k".into(), vec![port.into()], "local:app=x".into());
        })
    };
    let mut ledger = ledger();
    assert_eq!(result(ledger.ensure(&local("a", "TCP/80"))), "10.0.0.0");
    assert_eq!(result(ledger.ensure(&local("b", "TCP/81"))), "10.0.0.0");
}

#[test]
fn a_pool_change_moves_whom_it_must_and_says_why() {
    let mut ledger = ledger();
    assert_eq!(result(ledger.ensure(&wish("a"))), "10.0.0.0");
    assert_eq!(result(ledger.ensure(&wish("b"))), "10.0.0.1");
    ledger.take_news();
    ledger.apply_pool(pool("dual", &["10.0.0.1/32"], |_| {}));
    assert_eq!(ledger.take_news(), (false, true));
    let of = |name: &str, address: &str| changed(name, |wish| wish.current = [ip(address)].into());
    assert_eq!(
        result(ledger.ensure(&of("b", "10.0.0.1"))),
        "10.0.0.1",
        "still legal"
    );
    let Outcome::Given {
        addresses,
        given_up,
    } = ledger.ensure(&of("a", "10.0.0.0"))
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
        ledger.held("uid-a").len(),
        2,
        "until the status has the new one"
    );
    assert_eq!(ledger.staying("uid-a"), [ip("10.0.3.1")].into());
    let truth = Known {
        service: service("a"),
        balanced: true,
        addresses: [ip("10.0.3.1")].into(),
    };
    ledger.service_seen(truth.clone());
    assert_eq!(ledger.take_suspects(), [service("a")]);
    ledger.settle("uid-a", Some(truth));
    assert_eq!(ledger.held("uid-a"), [ip("10.0.3.1")].into());
}

#[test]
fn who_is_refused_keeps_what_the_status_shows() {
    let mut ledger = ledger();
    assert_eq!(result(ledger.ensure(&wish("a"))), "10.0.0.0");
    let more = changed("a", |wish| {
        wish.current = [ip("10.0.0.0")].into();
        wish.explicit = explicit("172.16.0.1");
    });
    assert_eq!(result(ledger.ensure(&more)), "AddressNotInPool");
    assert_eq!(ledger.held("uid-a"), [ip("10.0.0.0")].into());
    assert_eq!(
        result(ledger.ensure(&Wish {
            current: BTreeSet::new(),
            ..more
        })),
        "AddressNotInPool"
    );
    assert!(ledger.held("uid-a").is_empty(), "nobody was told of it");
}

#[test]
fn addresses_in_a_status_are_nobody_elses() {
    let mut ledger = ledger();
    let shown = Known {
        service: service("old"),
        balanced: true,
        addresses: [ip("10.0.0.0")].into(),
    };
    ledger.service_seen(shown.clone());
    assert_eq!(result(ledger.ensure(&wish("new"))), "10.0.0.1");
    let asked = changed("other", |wish| wish.explicit = explicit("10.0.0.0"));
    let Outcome::Refused(refusal) = ledger.ensure(&asked) else {
        panic!("not refused")
    };
    assert_eq!(
        refusal.message,
        "10.0.0.0 is asked for, but Service shop/old has it in its status"
    );
    let adopts = changed("old", |wish| wish.current = shown.addresses.clone());
    assert_eq!(result(ledger.ensure(&adopts)), "10.0.0.0");
    ledger.service_gone("uid-old");
    assert_eq!(result(ledger.ensure(&asked)), "10.0.0.0");
}

#[test]
fn the_second_family_comes_from_the_pool_of_the_first() {
    let mut ledger = ledger();
    ledger.apply_pool(pool("first", &["fd01::/126"], |spec| spec.priority = 9));
    assert_eq!(result(ledger.ensure(&wish("a"))), "10.0.0.0");
    let dual = |name: &str| changed(name, |wish| wish.families = vec![Family::V4, Family::V6]);
    let later = Wish {
        current: [ip("10.0.0.0")].into(),
        ..dual("a")
    };
    assert_eq!(result(ledger.ensure(&later)), "10.0.0.0,fd00::");
    assert_eq!(
        result(ledger.ensure(&dual("b"))),
        "10.0.0.1,fd00::1",
        "one pool has both"
    );
    ledger.remove_pool("dual");
    assert_eq!(
        result(ledger.ensure(&dual("c"))),
        "10.0.3.1,fd01::",
        "no pool has both"
    );
}

#[test]
fn a_missing_preferred_family_is_news_when_something_is_freed() {
    let mut ledger = Ledger::default();
    ledger.apply_pool(pool("a", &["10.0.0.0/30", "fd00::1/128"], |_| {}));
    let dual = |name: &str| changed(name, |wish| wish.families = vec![Family::V4, Family::V6]);
    assert_eq!(result(ledger.ensure(&dual("a"))), "10.0.0.0,fd00::1");
    assert_eq!(result(ledger.ensure(&dual("b"))), "10.0.0.1");
    ledger.take_news();
    ledger.delete("uid-a", &BTreeSet::new());
    assert_eq!(ledger.take_news(), (true, true));
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
    let of = |annotations: &[(&str, &str)], field| Wish::new(&request(annotations, field));
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
    let single = Wish::new(&Request {
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
            Wish::new(&local).endpoints.as_str(),
            &Wish::new(&local).ports[0][..]
        ),
        ("local:app=x", "TCP/80")
    );
}
