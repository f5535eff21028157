//! Two Services that want the same address and port.

use super::harness::*;
use crate::index::Index;
use crate::key::ObjectKey;
use crate::table::FrontendKind;
use serde_json::{Value, json};

/// A Service with a cluster IP of its own and the external IP that all of them want.
fn claimant(name: &str, cluster_ip: &str, created: &str) -> Value {
    let spec =
        json!({"clusterIP": cluster_ip, "clusterIPs": [cluster_ip], "externalIPs": ["192.0.2.1"]});
    let mut object = renamed(service(spec), name);
    object["metadata"]["creationTimestamp"] = json!(created);
    object
}

fn old() -> Value {
    claimant("old", "10.96.0.2", "2024-01-01T00:00:00Z")
}

fn new() -> Value {
    claimant("new", "10.96.0.3", "2025-01-01T00:00:00Z")
}

/// Services that serve the external IP.
fn servers(index: &Index) -> Vec<ObjectKey> {
    let ports = index.table().ports.iter();
    let serve = ports.filter(|(_, port)| {
        port.frontends
            .iter()
            .any(|f| f.kind == FrontendKind::ExternalIp)
    });
    serve.map(|(key, _)| key.service.clone()).collect()
}

#[test]
fn the_older_service_keeps_the_address_whichever_comes_first() {
    for objects in [[old(), new()], [new(), old()]] {
        let (index, update) = index_with(settings(), &objects);
        assert_eq!(servers(&index), [name("old")]);
        let conflicts = index.conflicts();
        assert_eq!(conflicts.len(), 1);
        assert_eq!(
            (&conflicts[0].owner.service, &conflicts[0].loser.service),
            (&name("old"), &name("new"))
        );
        assert_eq!(update.problems.len(), 1);
        assert_eq!(
            update.problems[0].to_string(),
            "Service default/new: 192.0.2.1:80/tcp belongs to default/old, so default/new is not \
             served there"
        );
    }
}

#[test]
fn an_older_service_that_comes_later_takes_the_address_over() {
    let mut index = index(&[new()]);
    apply(&mut index, &old());
    let update = index.take();
    assert_eq!(servers(&index), [name("old")]);
    assert_eq!(
        update
            .changes
            .iter()
            .map(|c| &*c.key.service.name)
            .collect::<Vec<_>>(),
        ["new", "old"]
    );
}

#[test]
fn the_next_one_gets_the_address_when_the_first_goes() {
    let mut index = index(&[old(), new()]);
    index.delete_service("default", "old");
    index.take();
    assert_eq!(servers(&index), [name("new")]);
    assert!(index.conflicts().is_empty());
}

#[test]
fn of_the_same_age_the_lesser_name_wins() {
    let same = |name, ip| claimant(name, ip, "2024-01-01T00:00:00Z");
    assert_eq!(
        servers(&index(&[same("b", "10.96.0.5"), same("a", "10.96.0.6")])),
        [name("a")]
    );
}

#[test]
fn nobody_takes_a_cluster_ip_by_an_external_ip_not_even_an_older_service() {
    let mut thief = claimant("thief", "10.96.0.9", "2020-01-01T00:00:00Z");
    thief["spec"]["externalIPs"] = json!(["10.96.0.2"]);
    let index = index(&[thief, old()]);
    assert_eq!(index.conflicts()[0].loser.service, name("thief"));
    assert_eq!(servers(&index), [name("old")]);
}
