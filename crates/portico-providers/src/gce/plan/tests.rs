use super::*;
use crate::gce::config::{Config, Place};
use crate::{HealthCheck, Node, Port, Protocol, Request};

struct Plain;

impl Links for Plain {
    fn pool(&self, name: &str) -> String {
        format!("x/targetPools/{name}")
    }

    fn check(&self, name: &str) -> String {
        format!("x/httpHealthChecks/{name}")
    }

    fn instance(&self, instance: &InstanceRef) -> String {
        format!("x/zones/{}/instances/{}", instance.zone, instance.name)
    }
}

fn request() -> Request {
    let node = |number: u32| Node {
        name: format!("n{number}"),
        zone: "z".into(),
        version: "v1.36.0".into(),
        ..Node::default()
    };
    Request {
        balancer_name: "lb".into(),
        ports: vec![Port {
            name: String::new(),
            protocol: Protocol::Tcp,
            port: 80,
            node_port: 0,
            app_protocol: None,
        }],
        health_check: Some(HealthCheck {
            port: 10256,
            path: "/healthz".into(),
        }),
        nodes: vec![node(1), node(2)],
        ..Request::default()
    }
}

fn wanted(request: &Request) -> Wanted {
    let place = Place::new(
        &Config::parse("").unwrap(),
        "p".into(),
        "r-z",
        "default",
        "id".into(),
    );
    Wanted::new(request, &place, vec!["tag".into()]).unwrap()
}

/// As the cloud does with a new rule.
fn give_address(step: &mut Step) {
    if let Step::InsertRule(rule) = step
        && rule.address.is_empty()
    {
        rule.address = "203.0.113.1".into();
    }
}

/// Steps until there are none; those taken.
fn run(wanted: &Wanted, observed: &mut Observed) -> Vec<Step> {
    let mut taken = Vec::new();
    for _ in 0..50 {
        let mut steps = next(wanted, observed, &Plain).unwrap();
        if steps.is_empty() {
            return taken;
        }
        for step in &mut steps {
            give_address(step);
            observed.apply(step, &wanted.names);
        }
        taken.append(&mut steps);
    }
    panic!("no end: {taken:?}");
}

/// Of every kind of change, and in every order of two.
fn variants() -> Vec<Request> {
    let base = request();
    let mut more_ports = base.clone();
    more_ports.ports.push(Port {
        port: 443,
        ..base.ports[0].clone()
    });
    let mut udp = base.clone();
    udp.ports[0].protocol = Protocol::Udp;
    let local = Request {
        local: true,
        health_check: Some(HealthCheck {
            port: 32100,
            path: "/healthz".into(),
        }),
        ..base.clone()
    };
    vec![
        more_ports,
        udp,
        Request {
            affinity: Some(10_800),
            ..base.clone()
        },
        Request {
            affinity: Some(10_800),
            ..local.clone()
        },
        local,
        Request {
            source_ranges: vec!["192.0.2.0/24".parse().unwrap()],
            ..base.clone()
        },
        Request {
            nodes: Vec::new(),
            ..base.clone()
        },
        base,
    ]
}

#[test]
fn from_every_state_to_every_wish_and_then_rest() {
    for first in variants() {
        for second in variants() {
            let mut observed = Observed::default();
            run(&wanted(&first), &mut observed);
            let address = observed.rule.as_ref().unwrap().address.clone();
            run(&wanted(&second), &mut observed);
            let rule = observed.rule.clone().unwrap();
            assert_eq!(rule.address, address, "the address stays");
            assert_eq!(observed.address, None, "and is held no longer than needed");
            assert_eq!(
                next(&wanted(&second), &observed, &Plain).unwrap(),
                [],
                "nothing is left to do"
            );
            assert_eq!(
                observed.own_check.is_some(),
                second.local,
                "nobody's check is gone"
            );
        }
    }
}

/// Each state between two steps is one that a pass may begin with.
#[test]
fn a_pass_that_died_is_completed_by_one_that_wants_something_else() {
    for first in variants() {
        for second in variants() {
            let (first, second) = (wanted(&first), wanted(&second));
            let steps = run(&first, &mut Observed::default()).len();
            for died in 0..steps {
                let (mut observed, mut done) = (Observed::default(), 0);
                'pass: loop {
                    for mut step in next(&first, &observed, &Plain).unwrap() {
                        if done == died {
                            break 'pass;
                        }
                        give_address(&mut step);
                        observed.apply(&step, &first.names);
                        done += 1;
                    }
                }
                run(&second, &mut observed);
                assert!(observed.rule.is_some() && observed.address.is_none());
            }
        }
    }
}

#[test]
fn traffic_is_not_interrupted_but_for_ports_and_affinity() {
    let base = request();
    let interrupts = |change: &Request| {
        let mut observed = Observed::default();
        run(&wanted(&base), &mut observed);
        let steps = run(&wanted(change), &mut observed);
        steps
            .iter()
            .any(|step| matches!(step, Step::DeleteRule | Step::DeletePool))
    };
    let found: Vec<bool> = variants().iter().map(interrupts).collect();
    assert_eq!(found, [true, true, true, true, false, false, false, false]);
}

/// Nothing of the Service's own is there without its pool: neither while it is made nor while it is
/// removed.
#[test]
fn the_pool_comes_first_and_goes_last() {
    let lonely = |observed: &Observed| {
        let own = observed.own_check.is_some()
            || observed.own_firewall.is_some()
            || observed.firewall.is_some();
        observed.pool.is_none() && (own || observed.rule.is_some() || observed.address.is_some())
    };
    for request in variants() {
        let (wanted, mut observed) = (wanted(&request), Observed::default());
        let steps = run(&wanted, &mut Observed::default());
        for mut step in steps {
            give_address(&mut step);
            observed.apply(&step, &wanted.names);
            assert!(!lonely(&observed), "{step:?}");
            remove(&wanted, observed.clone(), lonely);
        }
    }
}

fn remove(wanted: &Wanted, mut observed: Observed, lonely: impl Fn(&Observed) -> bool) {
    for _ in 0..10 {
        let steps = next_removal(&wanted.names, &observed);
        if steps.is_empty() {
            let shared = (
                observed.shared_check.take(),
                observed.shared_firewall.take(),
            );
            assert_eq!(observed, Observed::default(), "all is gone but {shared:?}");
            return;
        }
        steps
            .iter()
            .for_each(|step| observed.apply(step, &wanted.names));
        assert!(!lonely(&observed), "{steps:?}");
    }
    panic!("no end: {observed:?}");
}
