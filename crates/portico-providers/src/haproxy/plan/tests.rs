use super::super::render::render;
use super::super::table::Table;
use super::super::testing::{endpoint, request, settings, table};
use super::*;
use crate::Request;
use proptest::collection::btree_set;
use proptest::prelude::*;

/// What runs right after this table was loaded.
fn loaded(table: &Table) -> Running {
    let generation = Some(render(table, &settings()).generation);
    let server = |address: &SocketAddr| {
        (
            server_name(address),
            Server {
                address: *address,
                enabled: true,
                up: true,
            },
        )
    };
    let sections = table.sites.values().flat_map(|site| {
        site.ports
            .iter()
            .map(|(port, servers)| (site.section(*port), servers.iter().map(server).collect()))
    });
    Running {
        worker: 1,
        generation,
        sections: sections.collect(),
    }
}

fn plan_for(table: &Table, running: &Running) -> Plan {
    plan(
        table.sites.values(),
        render(table, &settings()).generation,
        &settings(),
        running,
    )
}

fn commands(table: &Table, running: &Running) -> Vec<String> {
    match plan_for(table, running) {
        Plan::Commands(commands) => commands.iter().map(ToString::to_string).collect(),
        Plan::Reload => panic!("a reload"),
    }
}

/// On the first so many nodes.
fn on_nodes(count: usize) -> Table {
    let request = request("web");
    table(&[Request {
        nodes: request.nodes[..count].to_vec(),
        ..request
    }])
}

const NAME: &str = "portico_shop_web_80_b019ce16";

#[test]
fn nothing_to_do_is_nothing() {
    assert_eq!(commands(&on_nodes(2), &loaded(&on_nodes(2))), [""; 0]);
}

#[test]
fn other_sections_need_a_reload() {
    let running = loaded(&on_nodes(2));
    assert_eq!(
        plan_for(&table(&[request("web"), request_443()]), &running),
        Plan::Reload
    );
    let mut lost = running.clone();
    lost.sections.clear();
    assert_eq!(
        plan_for(&on_nodes(2), &lost),
        Plan::Reload,
        "somebody took a section away"
    );
    assert_eq!(plan_for(&on_nodes(2), &Running::default()), Plan::Reload);
}

fn request_443() -> Request {
    Request {
        ports: vec![super::super::testing::port(443, 30443)],
        ..request("other")
    }
}

#[test]
fn a_node_that_comes_is_asked_for_its_health_first() {
    let expected = [
        format!(
            "add server {NAME}/10.0.0.2_30080 10.0.0.2:30080 check port 10256 inter 2000ms \
             fastinter 500ms rise 2 fall 3"
        ),
        format!("enable health {NAME}/10.0.0.2_30080"),
        format!("set server {NAME}/10.0.0.2_30080 state ready"),
        format!("set server {NAME}/10.0.0.2_30080 health down"),
    ];
    assert_eq!(commands(&on_nodes(2), &loaded(&on_nodes(1))), expected);
    let first = commands(&on_nodes(1), &loaded(&on_nodes(0)));
    assert_eq!(first.len(), 3, "nobody else is there: {first:?}");
}

#[test]
fn one_that_goes_keeps_its_connections_and_is_deleted_without_any() {
    let mut running = loaded(&on_nodes(2));
    let expected = [
        format!("set server {NAME}/10.0.0.2_30080 state maint"),
        format!("del server {NAME}/10.0.0.2_30080"),
    ];
    assert_eq!(commands(&on_nodes(1), &running), expected);
    let Plan::Commands(commands_) = plan_for(&on_nodes(1), &running) else {
        panic!("a reload")
    };
    commands_[0].apply(&mut running);
    assert_eq!(
        commands(&on_nodes(1), &running),
        expected[1..],
        "connections were left"
    );
    assert!(
        !commands_[1].is_done("Server still has connections attached to it, cannot remove it.")
            && commands_[1].may_wait()
    );
    let back = commands(&on_nodes(2), &running);
    assert_eq!(
        back[0],
        format!("set server {NAME}/10.0.0.2_30080 state ready"),
        "it comes back meanwhile"
    );
}

#[test]
fn what_others_changed_is_put_right() {
    let mut running = loaded(&on_nodes(2));
    let servers = running.sections.get_mut(NAME).unwrap();
    servers.get_mut("10.0.0.1_30080").unwrap().address = "192.0.2.66:1".parse().unwrap();
    servers.get_mut("10.0.0.2_30080").unwrap().enabled = false;
    servers.insert(
        "evil".to_owned(),
        Server {
            address: "192.0.2.66:1".parse().unwrap(),
            enabled: true,
            up: true,
        },
    );
    let expected = [
        format!("set server {NAME}/10.0.0.1_30080 addr 10.0.0.1 port 30080"),
        format!("set server {NAME}/10.0.0.2_30080 state ready"),
        format!("set server {NAME}/evil state maint"),
        format!("del server {NAME}/evil"),
    ];
    assert_eq!(commands(&on_nodes(2), &running), expected);
}

fn on_endpoints(numbers: &std::collections::BTreeSet<u8>) -> Table {
    let endpoints = numbers
        .iter()
        .map(|number| endpoint(&format!("10.1.0.{number}"), "a"))
        .collect();
    let annotations = [("portico.dev/targets".to_owned(), "endpoints".to_owned())].into();
    table(&[Request {
        endpoints,
        annotations,
        ..request("web")
    }])
}

proptest! {
    /// Whatever there was, with whatever connections, after the plan exactly the wanted ones get
    /// new connections, at least one does at all times, and a second plan has only those left that
    /// wait for connections to end.
    #[test]
    fn a_plan_leads_to_what_is_wanted(
        steps in proptest::collection::vec((btree_set(0..20u8, 1..10), btree_set(0..20u8, 0..10)), 1..8),
    ) {
        let mut running = loaded(&on_endpoints(&steps[0].0));
        for (wanted, connected) in &steps {
            let table = on_endpoints(wanted);
            let Plan::Commands(commands) = plan_for(&table, &running) else { panic!("a reload") };
            for command in commands {
                let busy = connected.iter().any(|number| command.server == format!("10.1.0.{number}_8080"));
                if !(busy && command.may_wait()) {
                    command.apply(&mut running);
                }
                let section = &running.sections[&command.section];
                prop_assert!(section.values().any(|server| server.enabled), "nobody is there");
            }
            let enabled: Vec<SocketAddr> =
                running.sections.values().flatten().filter(|(_, server)| server.enabled).map(|(_, server)| server.address).collect();
            let expected: std::collections::BTreeSet<SocketAddr> = table.sites["uid-web"].ports[&80].clone();
            prop_assert_eq!(enabled.into_iter().collect::<std::collections::BTreeSet<_>>(), expected);
            let Plan::Commands(left) = plan_for(&table, &running) else { panic!("a reload") };
            prop_assert!(left.iter().all(|command| command.what == What::Delete), "{:?}", left);
        }
    }
}
