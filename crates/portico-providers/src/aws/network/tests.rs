use std::collections::BTreeMap;

use super::*;
use crate::aws::annotations::Kind;
use crate::aws::groups::{Group, On};
use crate::aws::wanted::Names;
use crate::{Family, HealthCheck, Node, Port, Protocol, Request};

fn names() -> Names {
    Names::of(
        &Request {
            balancer_name: "a1".to_owned(),
            ..Request::default()
        },
        "c1",
    )
}

fn request(ports: &[(Protocol, u16, u16)], instances: &[&str]) -> Request {
    let port = |(protocol, port, node_port): &(Protocol, u16, u16)| Port {
        name: String::new(),
        protocol: *protocol,
        port: *port,
        node_port: *node_port,
        app_protocol: None,
    };
    let node = |id: &&str| Node {
        provider_id: format!("aws:///z/{id}"),
        ..Node::default()
    };
    Request {
        balancer_name: "a1".to_owned(),
        families: vec![Family::V4],
        ports: ports.iter().map(port).collect(),
        health_check: Some(HealthCheck {
            port: 10256,
            path: "/healthz".to_owned(),
        }),
        nodes: instances.iter().map(node).collect(),
        ..Request::default()
    }
}

fn wanted(ports: &[(Protocol, u16, u16)], instances: &[&str]) -> Wanted {
    Wanted::of(&request(ports, instances), Kind::Network, &names()).unwrap()
}

fn web() -> Wanted {
    wanted(&[(Protocol::Tcp, 80, 30080)], &["i-1", "i-2"])
}

/// What there is once everything is as wanted.
fn done(wanted: &Wanted) -> Observed {
    let group = |name: &str, rules: &BTreeSet<_>| Group {
        id: name.to_owned(),
        tags: wanted.tags.clone(),
        rules: rules.clone(),
    };
    Observed {
        groups: Groups {
            own: Some(group("sg-own", &wanted.groups.inbound)),
            nodes: vec![group("sg-nodes", &wanted.groups.on_nodes)],
        },
        balancer: Some(Balancer {
            arn: "arn:lb".to_owned(),
            groups: vec!["sg-own".to_owned()],
            tags: wanted.tags.clone(),
            ..Balancer::default()
        }),
        listeners: wanted.listeners.iter().map(seen_listener).collect(),
        targets: wanted
            .listeners
            .iter()
            .map(|listener| seen_targets(wanted, listener))
            .collect(),
        subnets: Vec::new(),
    }
}

fn seen_listener(it: &Listener) -> SeenListener {
    SeenListener {
        arn: format!("arn:listener:{}", it.port),
        port: it.port,
        protocol: it.protocol.to_owned(),
        target_group: format!("arn:{}", it.target_group),
    }
}

fn seen_targets(wanted: &Wanted, it: &Listener) -> TargetGroup {
    TargetGroup {
        arn: format!("arn:{}", it.target_group),
        name: it.target_group.clone(),
        check: wanted.check.clone(),
        tags: wanted.tags.clone(),
        targets: wanted.instances.clone(),
    }
}

/// The kinds of steps, in order.
fn told(steps: &[Step]) -> Vec<String> {
    let word = |text: String| {
        text.split([' ', '(', '{'])
            .next()
            .unwrap_or_default()
            .to_owned()
    };
    steps
        .iter()
        .map(|step| match step {
            Step::Group(step) => word(format!("{step:?}")),
            step => word(format!("{step:?}")),
        })
        .collect()
}

fn steps(wanted: &Wanted, seen: &Observed) -> Vec<String> {
    told(&plan(wanted, seen).unwrap())
}

#[test]
fn from_nothing() {
    let nodes = Group {
        id: "sg-nodes".to_owned(),
        ..Group::default()
    };
    let groups = Groups {
        own: None,
        nodes: vec![nodes],
    };
    let seen = Observed {
        groups,
        subnets: vec!["s-1".to_owned()],
        ..Observed::default()
    };
    let expected = [
        "Create",
        "Allow",
        "Allow",
        "CreateBalancer",
        "CreateTargets",
        "Register",
        "CreateListener",
    ];
    assert_eq!(steps(&web(), &seen), expected);
}

#[test]
fn what_is_right_is_left_alone() {
    assert_eq!(steps(&web(), &done(&web())), [""; 0]);
}

#[test]
fn wherever_a_pass_stopped_the_next_one_goes_on() {
    let all = web();
    let complete = done(&all);
    let without = |change: fn(&mut Observed)| {
        let mut seen = complete.clone();
        change(&mut seen);
        steps(&all, &seen)
    };
    assert_eq!(without(|seen| seen.listeners.clear()), ["CreateListener"]);
    assert_eq!(
        without(|seen| seen.targets[0].targets.clear()),
        ["Register"]
    );
    assert_eq!(
        without(|seen| seen.groups.nodes[0].rules.clear()),
        ["Allow"]
    );
    assert_eq!(without(|seen| seen.balancer = None), ["CreateBalancer"]);
}

#[test]
fn nodes_that_come_and_go_are_registered_and_nothing_else() {
    let seen = done(&web());
    let plan = plan(
        &wanted(&[(Protocol::Tcp, 80, 30080)], &["i-2", "i-3"]),
        &seen,
    )
    .unwrap();
    let name = web().listeners[0].target_group.clone();
    let expected = [
        Step::Deregister(name.clone(), vec!["i-1".to_owned()]),
        Step::Register(name, vec!["i-3".to_owned()]),
    ];
    assert_eq!(plan, expected);
}

#[test]
fn another_node_port_is_another_group_that_is_ready_before_the_old_one_goes() {
    let other = wanted(&[(Protocol::Tcp, 80, 30081)], &["i-1", "i-2"]);
    let expected = [
        "Allow",
        "CreateTargets",
        "Register",
        "Redirect",
        "DeleteTargets",
        "Revoke",
    ];
    assert_eq!(steps(&other, &done(&web())), expected);
}

#[test]
fn another_protocol_takes_the_place_of_the_listener() {
    let udp = wanted(&[(Protocol::Udp, 80, 30080)], &["i-1"]);
    let found = steps(&udp, &done(&web()));
    let place = |step: &str| found.iter().position(|it| it == step).unwrap();
    assert!(
        place("DeleteListener") < place("CreateListener")
            && place("CreateListener") < place("DeleteTargets")
    );
}

#[test]
fn another_policy_only_changes_the_check() {
    let mut local = request(&[(Protocol::Tcp, 80, 30080)], &["i-1", "i-2"]);
    local.health_check = Some(HealthCheck {
        port: 32000,
        path: "/healthz".to_owned(),
    });
    let local = Wanted::of(&local, Kind::Network, &names()).unwrap();
    assert_eq!(
        steps(&local, &done(&web())),
        ["Allow", "SetCheck", "Revoke"]
    );
}

/// `moto` makes a second listener of a port, and a crash may leave a group that nothing uses.
#[test]
fn what_is_too_much_goes() {
    let (all, mut seen) = (web(), done(&web()));
    seen.listeners.push(SeenListener {
        arn: "arn:twice".to_owned(),
        ..seen.listeners[0].clone()
    });
    let left = TargetGroup {
        arn: "arn:left".to_owned(),
        name: "left".to_owned(),
        ..TargetGroup::default()
    };
    seen.targets.push(left);
    let plan = plan(&all, &seen).unwrap();
    assert_eq!(
        plan,
        [
            Step::DeleteListener("arn:twice".to_owned()),
            Step::DeleteTargets("left".to_owned())
        ]
    );
}

#[test]
fn attributes_are_noted_as_changing_before_they_change() {
    let mut sticky = request(&[(Protocol::Tcp, 80, 30080)], &["i-1", "i-2"]);
    sticky.affinity = Some(60);
    let sticky = Wanted::of(&sticky, Kind::Network, &names()).unwrap();
    let mut seen = done(&web());
    assert_eq!(steps(&sticky, &seen), ["Tag", "SetAttributes", "Tag"]);
    // A pass that died in between leaves the note, whichever way it is wanted now.
    let note =
        |value: &str| BTreeMap::from([("portico.dev/settings".to_owned(), value.to_owned())]);
    seen.targets[0].tags.extend(note("changing"));
    assert_eq!(steps(&sticky, &seen), ["SetAttributes", "Tag"]);
    assert_eq!(steps(&web(), &seen), ["SetAttributes", "Tag"]);
    seen.targets[0]
        .tags
        .extend(note("stickiness.enabled=true stickiness.type=source_ip"));
    assert_eq!(steps(&sticky, &seen), [""; 0]);
    let back = plan(&web(), &seen).unwrap();
    let Step::SetAttributes(_, attributes) = &back[1] else {
        panic!("{back:?}")
    };
    assert_eq!(attributes["stickiness.enabled"], "false");
}

#[test]
fn what_cannot_be_changed_is_refused() {
    let reason = |change: fn(&mut Balancer)| {
        let mut seen = done(&web());
        change(seen.balancer.as_mut().unwrap());
        match plan(&web(), &seen) {
            Err(ProviderError::Refused { reason, .. }) => reason,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(reason(|balancer| balancer.internal = true), "SchemeChanged");
    // The vendor refuses a group for one that was made without.
    assert_eq!(
        reason(|balancer| balancer.groups.clear()),
        "NoSecurityGroup"
    );
}

#[test]
fn each_subnet_has_its_elastic_address() {
    let two = ["a".to_owned(), "b".to_owned()];
    let pairs = with_addresses(&two, &["e1".to_owned(), "e2".to_owned()]).unwrap();
    assert_eq!(pairs[1], ("b".to_owned(), Some("e2".to_owned())));
    assert!(with_addresses(&two, &two[..1]).is_err());
    assert_eq!(
        with_addresses(&two, &[]).unwrap()[0],
        ("a".to_owned(), None)
    );
}

#[test]
fn removal_frees_what_is_used_first() {
    let plan = removal(&done(&web()));
    assert_eq!(
        told(&plan),
        ["DeleteBalancer", "DeleteTargets", "Revoke", "Delete"]
    );
    let Step::Group(GroupStep::Revoke(on, _)) = &plan[2] else {
        panic!("{plan:?}")
    };
    assert_eq!(*on, On::Nodes("sg-nodes".to_owned()));
    assert_eq!(removal(&Observed::default()), []);
}
