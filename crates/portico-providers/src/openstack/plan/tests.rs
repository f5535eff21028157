use super::*;
use crate::openstack::octavia::Persistence;

fn member(number: u8) -> Member {
    Member {
        address: [10, 0, 0, number].into(),
        protocol_port: 30080,
        name: format!("node-{number}"),
        monitor_port: Some(10256),
        subnet_id: None,
    }
}

fn monitor(kind: &str) -> Monitor {
    Monitor {
        name: "monitor".to_owned(),
        kind: kind.to_owned(),
        delay: 5,
        timeout: 3,
        max_retries: 1,
        max_retries_down: 3,
        http_method: None,
        url_path: None,
        expected_codes: None,
        tags: vec!["au".to_owned()],
    }
}

fn listener(port: u16, pool: &str) -> NewListener {
    let tags = vec!["au".to_owned()];
    NewListener {
        spec: Listener {
            name: format!("listener_{port}"),
            protocol: "TCP".to_owned(),
            protocol_port: port,
            connection_limit: -1,
            timeout_client_data: None,
            timeout_member_connect: None,
            timeout_member_data: None,
            timeout_tcp_inspect: None,
            allowed_cidrs: Some(vec!["192.0.2.0/24".to_owned(), "0.0.0.0/0".to_owned()]),
            insert_headers: None,
            default_tls_container_ref: None,
            default_pool_id: None,
            tags: tags.clone(),
        },
        default_pool: NewPool {
            spec: Pool {
                name: format!("pool_{port}_{pool}"),
                protocol: pool.to_owned(),
                lb_algorithm: "ROUND_ROBIN".to_owned(),
                session_persistence: None,
                tags,
            },
            members: vec![member(1), member(2)],
            healthmonitor: Some(monitor("HTTP")),
        },
    }
}

/// What there is after it was made. Ids are names.
fn made(wanted: &[NewListener]) -> Observed {
    let listener = |wanted: &NewListener| {
        let default_pool_id = Some(wanted.default_pool.spec.name.clone());
        Made {
            id: wanted.spec.name.clone(),
            spec: Listener {
                default_pool_id,
                ..wanted.spec.clone()
            },
        }
    };
    let pool = |wanted: &NewListener| {
        let pool = &wanted.default_pool;
        let spec = pool.healthmonitor.clone();
        ObservedPool {
            pool: Made {
                id: pool.spec.name.clone(),
                spec: pool.spec.clone(),
            },
            members: pool.members.clone(),
            monitor: spec.map(|spec| Made {
                id: format!("monitor of {}", pool.spec.name),
                spec,
            }),
        }
    };
    Observed {
        listeners: wanted.iter().map(listener).collect(),
        pools: wanted.iter().map(pool).collect(),
    }
}

fn id(text: &str) -> Target {
    Target::Id(text.to_owned())
}

#[test]
fn what_is_there_needs_nothing() {
    let wanted = [listener(80, "TCP"), listener(443, "TCP")];
    let mut observed = made(&wanted);
    assert_eq!(plan(&wanted, &observed), []);
    // What the server adds, and in which order it tells, makes no difference.
    observed.listeners[0].spec.timeout_client_data = Some(50_000);
    observed.listeners[0]
        .spec
        .allowed_cidrs
        .as_mut()
        .unwrap()
        .reverse();
    observed.pools[0].members.reverse();
    observed.pools[0].members[0].subnet_id = Some("s".to_owned());
    assert_eq!(plan(&wanted, &observed), []);
}

#[test]
fn a_listener_comes_when_its_pool_is_complete() {
    let wanted = [listener(80, "TCP")];
    let NewListener { spec, default_pool } = wanted[0].clone();
    let pool = Target::Created(default_pool.spec.name.clone());
    let expected = [
        Step::CreatePool(default_pool.spec.clone()),
        Step::SetMembers(pool.clone(), default_pool.members),
        Step::CreateMonitor(pool.clone(), monitor("HTTP")),
        Step::CreateListener(spec, pool),
    ];
    assert_eq!(plan(&wanted, &Observed::default()), expected);
}

/// Wherever a plan was left, the next one goes on from there, and makes nothing twice.
#[test]
fn what_was_begun_is_gone_on_with() {
    let wanted = [listener(80, "TCP")];
    let complete = made(&wanted);
    let bare = ObservedPool {
        members: Vec::new(),
        monitor: None,
        ..complete.pools[0].clone()
    };
    let mut observed = Observed {
        listeners: Vec::new(),
        pools: vec![bare],
    };
    assert_eq!(plan(&wanted, &observed).len(), 3);
    observed.pools[0].members = complete.pools[0].members.clone();
    assert_eq!(plan(&wanted, &observed).len(), 2);
    observed.pools[0].monitor = complete.pools[0].monitor.clone();
    assert_eq!(
        plan(&wanted, &observed),
        [Step::CreateListener(
            wanted[0].spec.clone(),
            id("pool_80_TCP")
        )]
    );
}

#[test]
fn ports_go_before_others_come() {
    let (old, new) = ([listener(80, "TCP")], [listener(81, "TCP")]);
    let steps = plan(&new, &made(&old));
    assert_eq!(steps[0], Step::DeleteListener("listener_80".to_owned()));
    assert_eq!(
        steps.last(),
        Some(&Step::DeletePool("pool_80_TCP".to_owned()))
    );
    assert_eq!(steps.len(), 6);
}

#[test]
fn another_protocol_is_another_pool_that_the_listener_moves_to() {
    let (old, new) = ([listener(80, "TCP")], [listener(80, "PROXY")]);
    let steps = plan(&new, &made(&old));
    let pool = Target::Created("pool_80_PROXY".to_owned());
    let end = [
        Step::UpdateListener("listener_80".to_owned(), new[0].spec.clone(), pool),
        Step::DeletePool("pool_80_TCP".to_owned()),
    ];
    assert_eq!(steps[steps.len() - 2..], end);
}

#[test]
fn a_listener_of_another_protocol_is_made_anew() {
    let old = [listener(80, "TCP")];
    let mut new = old.clone();
    new[0].spec.protocol = "HTTP".to_owned();
    let steps = plan(&new, &made(&old));
    let expected = [
        Step::DeleteListener("listener_80".to_owned()),
        Step::CreateListener(new[0].spec.clone(), id("pool_80_TCP")),
    ];
    assert_eq!(steps, expected);
}

#[test]
fn one_change_is_one_write() {
    let wanted = [listener(80, "TCP")];
    let one = |change: fn(&mut NewListener)| {
        let mut new = wanted.clone();
        change(&mut new[0]);
        let steps = plan(&new, &made(&wanted));
        assert_eq!(steps.len(), 1, "{steps:?}");
        steps.into_iter().next().unwrap()
    };
    assert!(matches!(
        one(|new| new.spec.connection_limit = 7),
        Step::UpdateListener(..)
    ));
    assert!(matches!(
        one(|new| new.spec.allowed_cidrs = Some(Vec::new())),
        Step::UpdateListener(..)
    ));
    assert!(matches!(
        one(|new| new.default_pool.spec.lb_algorithm.push('x')),
        Step::UpdatePool(..)
    ));
    assert!(matches!(
        one(|new| _ = new.default_pool.members.pop()),
        Step::SetMembers(..)
    ));
    assert!(matches!(
        one(|new| new.default_pool.healthmonitor = None),
        Step::DeleteMonitor(_)
    ));
    let sticky = |new: &mut NewListener| {
        let kind = "SOURCE_IP".to_owned();
        new.default_pool.spec.session_persistence = Some(Persistence {
            kind,
            persistence_timeout: None,
        });
    };
    assert!(matches!(one(sticky), Step::UpdatePool(..)));
}

#[test]
fn another_kind_of_monitor_is_another_monitor() {
    let old = [listener(80, "TCP")];
    let mut new = old.clone();
    new[0].default_pool.healthmonitor = Some(monitor("TCP"));
    let gone = Step::DeleteMonitor("monitor of pool_80_TCP".to_owned());
    assert_eq!(
        plan(&new, &made(&old)),
        [gone, Step::CreateMonitor(id("pool_80_TCP"), monitor("TCP"))]
    );
}

#[test]
fn of_two_pools_with_a_name_the_one_in_use_stays() {
    let wanted = [listener(80, "TCP")];
    let mut observed = made(&wanted);
    let mut twin = observed.pools[0].clone();
    twin.pool.id = "a twin".to_owned();
    observed.pools.insert(0, twin);
    assert_eq!(
        plan(&wanted, &observed),
        [Step::DeletePool("a twin".to_owned())]
    );
}

#[test]
fn nodes_change_members_alone() {
    let old = [listener(80, "TCP"), listener(443, "TCP")];
    let mut new = old.clone();
    new[0].default_pool.members.push(member(3));
    let expected = [Step::SetMembers(
        id("pool_80_TCP"),
        new[0].default_pool.members.clone(),
    )];
    assert_eq!(plan(&new, &made(&old)), expected);
}

/// What is noted after each step is what a look would find.
#[test]
fn after_all_steps_nothing_is_left_to_do() {
    let one = [listener(80, "TCP")];
    let mut changed = one.clone();
    changed[0].spec.connection_limit = 9;
    changed[0].default_pool.members.pop();
    changed[0].default_pool.spec.lb_algorithm = "SOURCE_IP".to_owned();
    let other_monitor = |kind: Option<&str>| {
        let mut it = one.clone();
        it[0].default_pool.healthmonitor = kind.map(monitor);
        it
    };
    let mut slower = one.clone();
    slower[0].default_pool.healthmonitor.as_mut().unwrap().delay = 60;
    let states: [&[NewListener]; 8] = [
        &[],
        &one,
        &[listener(80, "TCP"), listener(443, "TCP")],
        &[listener(80, "PROXYV2")],
        &changed,
        &other_monitor(None),
        &other_monitor(Some("TCP")),
        &slower,
    ];
    for old in states {
        for new in states {
            let mut seen = made(old);
            for (number, step) in plan(new, &seen).iter().enumerate() {
                seen.done(step, format!("made-{number}"));
            }
            assert_eq!(plan(new, &seen), [], "{old:?} to {new:?}");
            assert_eq!(
                (seen.listeners.len(), seen.pools.len()),
                (new.len(), new.len())
            );
        }
    }
}

#[test]
fn what_was_created_in_one_call_is_known_by_the_answer() {
    let wanted = [listener(80, "TCP"), listener(443, "TCP")];
    let answer = serde_json::json!({
        "listeners": [
            {"id": "l2", "protocol": "TCP", "protocol_port": 443, "default_pool_id": "p2"},
            {"id": "l1", "protocol": "TCP", "protocol_port": 80, "default_pool_id": "p1"},
        ],
        "pools": [{"id": "p1", "healthmonitor": {"id": "m1"}}, {"id": "p2", "healthmonitor": {"id": "m2"}}],
    });
    let mut tree: Tree = serde_json::from_value(answer).unwrap();
    let seen = Observed::created(&wanted, &tree).unwrap();
    assert_eq!(plan(&wanted, &seen), []);
    assert_eq!(seen.listeners[0].id, "l1");
    assert_eq!(seen.pools[1].monitor.as_ref().unwrap().id, "m2");
    tree.pools[0].healthmonitor = None;
    assert_eq!(Observed::created(&wanted, &tree), None);
    assert_eq!(Observed::created(&wanted, &Tree::default()), None);
}
