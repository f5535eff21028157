//! Services that not everything in the cluster may use, and the pods that may.

use super::harness::*;
use crate::explain::{Origin, Packet, Verdict, explain};
use crate::index::{Index, Update};
use crate::objects::{DMZ, VISIBILITY};
use crate::table::{DmzPods, FrontendKind, Protocol};
use serde_json::{Value, json};
use std::net::IpAddr;

/// A pod of this node that runs, with `status` merged into its status. `NAMESPACE/NAME`.
fn pod(name: &str, address: &str) -> Value {
    let (namespace, name) = name.split_once('/').unwrap();
    let ips = match address {
        "" => json!([]),
        address => json!([{"ip": address}]),
    };
    json!({"metadata": {"namespace": namespace, "name": name, "labels": {}},
           "spec": {"nodeName": "here"}, "status": {"phase": "Running", "podIPs": ips}})
}

fn in_dmz(mut pod: Value) -> Value {
    pod["metadata"]["labels"][DMZ] = json!("");
    pod
}

fn leaving(mut pod: Value) -> Value {
    pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    pod
}

fn with(mut pod: Value, part: &str, more: Value) -> Value {
    pod[part] = merged(pod[part].clone(), more);
    pod
}

fn narrow(word: &str, spec: Value) -> Value {
    let mut object = service(spec);
    object["metadata"]["annotations"] = json!({VISIBILITY: word});
    object
}

/// `default/web` of a visibility, with an endpoint elsewhere, on a node that has these pods.
fn world(word: &str, pods: &[Value]) -> Index {
    let mut index = index(&[
        narrow(word, json!({})),
        slice("a", json!([there("10.244.1.1")])),
    ]);
    pods.iter().for_each(|pod| apply(&mut index, pod));
    let update = index.take();
    assert_eq!(update.problems, []);
    index
}

/// The addresses that may use the cluster IP of `default/web`, if it is not everybody.
fn sources(index: &Index) -> Option<Vec<String>> {
    let sources = frontend(&web(index), FrontendKind::ClusterIp).sources?;
    Some(sources.iter().map(|own| own.addr().to_string()).collect())
}

fn listed(index: &Index) -> DmzPods {
    index.table().rules.dmz.v4.clone()
}

fn addresses(all: &[&str]) -> Vec<IpAddr> {
    all.iter().map(|own| own.parse().unwrap()).collect()
}

const A: &str = "10.244.0.1";
const B: &str = "10.244.0.2";

#[test]
fn pods_of_the_namespace_on_this_node_may_use_it() {
    let own = pod("default/a", A);
    for (about, pods, wanted) in [
        ("no pod", vec![], vec![]),
        ("one of the namespace", vec![own.clone()], vec![A]),
        (
            "one of another",
            vec![own.clone(), pod("other/b", B)],
            vec![A],
        ),
        ("two", vec![own.clone(), pod("default/b", B)], vec![A, B]),
        (
            "one in the DMZ",
            vec![own.clone(), in_dmz(pod("default/b", B))],
            vec![A],
        ),
        ("one without an address", vec![pod("default/a", "")], vec![]),
        (
            "one that is on another node",
            vec![with(own.clone(), "spec", json!({"nodeName": "there"}))],
            vec![],
        ),
        (
            "one on the network of the node",
            vec![with(own.clone(), "spec", json!({"hostNetwork": true}))],
            vec![],
        ),
        (
            "one that has ended",
            vec![with(own.clone(), "status", json!({"phase": "Succeeded"}))],
            vec![],
        ),
        (
            "one that failed",
            vec![with(own.clone(), "status", json!({"phase": "Failed"}))],
            vec![],
        ),
        (
            "one whose network is gone",
            vec![with(
                own.clone(),
                "status",
                json!({"conditions": [{"type": "PodReadyToStartContainers", "status": "False"}]}),
            )],
            vec![],
        ),
        (
            "one that is being deleted",
            vec![leaving(own.clone())],
            vec![A],
        ),
        (
            "one that says its address the old way",
            vec![with(
                own.clone(),
                "status",
                json!({"podIPs": [], "podIP": A}),
            )],
            vec![A],
        ),
    ] {
        let wanted: Vec<String> = wanted.into_iter().map(str::to_owned).collect();
        assert_eq!(sources(&world("namespace", &pods)), Some(wanted), "{about}");
        assert_eq!(sources(&world("dmz", &pods)), None, "{about}");
    }
}

#[test]
fn an_address_that_is_used_again_opens_nothing() {
    let old = pod("default/a", A);
    for (about, pods, wanted) in [
        (
            "the next pod waits for its address, which may be this one",
            vec![leaving(old.clone()), pod("other/b", "")],
            &[][..],
        ),
        (
            "the next one is of the same namespace",
            vec![leaving(old.clone()), pod("default/b", "")],
            &[A],
        ),
        (
            "the next one is in the DMZ",
            vec![leaving(old.clone()), in_dmz(pod("default/b", ""))],
            &[],
        ),
        (
            "the next one has another address",
            vec![leaving(old.clone()), pod("other/b", B)],
            &[A],
        ),
        (
            "the next one has it",
            vec![leaving(old.clone()), pod("other/b", A)],
            &[],
        ),
        (
            "the next one has it, and the old one is not known to go",
            vec![old.clone(), pod("other/b", A)],
            &[],
        ),
        (
            "it came from another namespace to this one",
            vec![leaving(pod("other/b", A)), old.clone()],
            &[A],
        ),
        (
            "it came from the DMZ",
            vec![leaving(in_dmz(pod("other/b", A))), old.clone()],
            &[],
        ),
        (
            "somebody starts while nobody goes",
            vec![old.clone(), pod("other/b", "")],
            &[A],
        ),
    ] {
        let found = sources(&world("namespace", &pods)).unwrap();
        assert_eq!(found, wanted, "{about}");
    }
}

#[test]
fn only_services_whose_pods_changed_are_rebuilt() {
    let mut index = world("namespace", &[pod("default/a", A)]);
    let changed = |update: &Update| update.changes.len();
    apply(&mut index, &pod("other/b", B));
    let update = index.take();
    assert_eq!((changed(&update), update.rules), (0, false));
    apply(&mut index, &pod("default/c", "10.244.0.3"));
    assert_eq!(changed(&index.take()), 1);
    index.delete_pod("default", "a");
    assert_eq!(changed(&index.take()), 1);
    assert_eq!(sources(&index).unwrap(), ["10.244.0.3"]);
    // Made wide again, it no longer depends on pods.
    apply(&mut index, &service(json!({})));
    index.take();
    assert_eq!(sources(&index), None);
    index.delete_pod("default", "c");
    assert_eq!(changed(&index.take()), 0);
}

#[test]
fn who_is_in_the_dmz() {
    let (a, b) = (pod("default/a", A), in_dmz(pod("other/b", B)));
    for (about, pods, wanted) in [
        ("nobody", vec![a.clone()], DmzPods::default()),
        (
            "one",
            vec![a.clone(), b.clone()],
            DmzPods::Listed(addresses(&[B])),
        ),
        (
            "one starts: whoever is not known to be outside is taken for it",
            vec![a.clone(), b.clone(), in_dmz(pod("other/c", ""))],
            DmzPods::AllBut(addresses(&[A])),
        ),
        (
            "one starts, and may get the address of one that goes",
            vec![leaving(a.clone()), in_dmz(pod("other/c", ""))],
            DmzPods::AllBut(addresses(&[])),
        ),
        (
            "its address is claimed by another pod",
            vec![b.clone(), pod("default/c", B)],
            DmzPods::Listed(addresses(&[B])),
        ),
        (
            "one that has ended",
            vec![with(b.clone(), "status", json!({"phase": "Failed"}))],
            DmzPods::default(),
        ),
    ] {
        assert_eq!(listed(&world("dmz", &pods)), wanted, "{about}");
    }
}

#[test]
fn a_service_lets_the_dmz_of_its_namespace_in() {
    let pods = [
        in_dmz(pod("default/a", A)),
        in_dmz(pod("other/b", B)),
        pod("default/c", "10.244.0.3"),
    ];
    for (word, wanted) in [("dmz", &[A][..]), ("namespace", &[])] {
        let index = world(word, &pods);
        assert_eq!(*web(&index).dmz, *addresses(wanted), "{word}");
    }
}

#[test]
fn what_else_a_narrow_service_asks_for_is_not_served() {
    let mut object = load_balancer(
        json!({"externalIPs": ["192.0.2.1"], "externalTrafficPolicy": "Local", "healthCheckNodePort": 32000,
               "ports": [{"port": 80, "nodePort": 30000}]}),
        json!([{"ip": "203.0.113.1"}]),
    );
    object["metadata"]["annotations"] = json!({VISIBILITY: "namespace"});
    let (index, update) = index_with(settings(), &[object]);
    assert_eq!(kinds(&web(&index)), [FrontendKind::ClusterIp]);
    assert_eq!(index.health_checks().len(), 0);
    assert_eq!(update.problems.len(), 1, "{:?}", update.problems);
    assert!(update.problems[0].sentence.contains(VISIBILITY));
}

#[test]
fn an_annotation_that_cannot_be_read_lets_in_the_fewest() {
    let (index, update) = index_with(settings(), &[narrow("Dmz", json!({}))]);
    assert_eq!(sources(&index), Some(vec![]));
    let sentence = &update.problems[0].sentence;
    assert!(
        sentence.contains("\"Dmz\"") && sentence.contains("namespace nor dmz"),
        "{sentence}"
    );
}

#[test]
fn a_pod_on_the_nodes_network_is_not_in_the_dmz_and_says_so() {
    let mut index = index(&[]);
    apply(
        &mut index,
        &with(
            in_dmz(pod("default/a", A)),
            "spec",
            json!({"hostNetwork": true}),
        ),
    );
    let update = index.take();
    assert_eq!(listed(&index), DmzPods::default());
    assert!(
        update.problems[0].sentence.contains(DMZ),
        "{:?}",
        update.problems
    );
}

/// What becomes of a packet to `default/web`, and the reasons.
fn ask(index: &Index, from: &str, to: &str, port: u16) -> (Verdict, String) {
    let origin = match from {
        "192.0.2.200" => Origin::Node,
        _ => Origin::Interface("cni0".into()),
    };
    let packet = Packet {
        origin,
        source: from.parse().unwrap(),
        destination: to.parse().unwrap(),
        port,
        protocol: Protocol::Tcp,
        local: ["192.0.2.200".parse().unwrap()].into(),
    };
    let explanation = explain(index.table(), &packet);
    (explanation.verdict.clone(), explanation.to_string())
}

#[test]
fn explain_names_the_rule() {
    let pods = [
        pod("default/a", A),
        in_dmz(pod("default/b", B)),
        pod("other/c", "10.244.0.3"),
        in_dmz(pod("other/d", "10.244.0.4")),
    ];
    let drops = |word, from, to, port, why: &str| {
        let (verdict, text) = ask(&world(word, &pods), from, to, port);
        assert_eq!(verdict, Verdict::Drop, "{text}");
        assert!(text.contains(why), "{text}");
    };
    let forwards = |word, from, why: &str| {
        let (verdict, text) = ask(&world(word, &pods), from, "10.96.0.1", 80);
        assert!(matches!(verdict, Verdict::Forward { .. }), "{text}");
        assert!(text.contains(why), "{text}");
    };
    let web = "10.96.0.1";
    forwards(
        "namespace",
        A,
        "a pod of the Service's namespace on this node",
    );
    drops(
        "namespace",
        "10.244.0.3",
        web,
        80,
        "the visibility of the Service is namespace",
    );
    drops(
        "namespace",
        "10.244.1.9",
        web,
        80,
        "the visibility of the Service is namespace",
    );
    drops(
        "namespace",
        "192.0.2.200",
        web,
        80,
        "the visibility of the Service is namespace",
    );
    drops("namespace", B, web, 80, "is a pod in the DMZ");
    forwards("dmz", A, "");
    forwards("dmz", "10.244.0.3", "");
    forwards("dmz", "192.0.2.200", "");
    forwards("dmz", B, "a Service of visibility dmz in its namespace");
    drops(
        "dmz",
        "10.244.0.4",
        web,
        80,
        "only Services of visibility dmz in its own namespace",
    );
    // Neither do they learn which ports there are.
    drops("dmz", B, web, 81, "is a pod in the DMZ");
}

#[test]
fn a_node_that_may_not_see_its_pods_says_which_services_suffer() {
    let mut index = world("namespace", &[]);
    index.set_pods_denied(true);
    let update = index.take();
    assert_eq!(update.problems.len(), 1, "{:?}", update.problems);
    assert!(
        update.problems[0]
            .sentence
            .contains("may not list its pods")
    );
    assert_eq!(index.without_pods().count(), 1);
    apply(&mut index, &renamed(narrow("dmz", json!({})), "other"));
    assert_eq!(index.take().problems[0].name, "other");
    assert_eq!(index.without_pods().count(), 2);
    index.set_pods_denied(false);
    assert_eq!(
        (index.take().problems, index.without_pods().count()),
        (vec![], 0)
    );
}
