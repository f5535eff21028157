//! How people name the two ends of a packet.

use super::*;
use serde_json::json;

fn cluster() -> Cluster {
    let node = |name: &str, address: &str| json!({"metadata": {"name": name}, "status": {"addresses": [{"type": "InternalIP", "address": address}]}});
    let nodes = json!([node("n1", "192.0.2.11"), node("n2", "192.0.2.12")]);
    let pods = json!([
        {"metadata": {"namespace": "shop", "name": "cart"}, "spec": {"nodeName": "n2"}, "status": {"podIPs": [{"ip": "10.0.2.5"}]}},
        {"metadata": {"namespace": "shop", "name": "new"}, "status": {"podIPs": [{"ip": "10.0.2.6"}]}},
    ]);
    let services = json!([{"metadata": {"namespace": "shop", "name": "db"}, "spec": {"clusterIP": "10.96.0.7", "ports": [{"port": 53, "protocol": "UDP"}]}}]);
    Cluster {
        nodes: serde_json::from_value(nodes).unwrap(),
        pods: serde_json::from_value(pods).unwrap(),
        services: serde_json::from_value(services).unwrap(),
        owners: Owners::default(),
    }
}

fn packet(from: &str, to: &str, node: Option<&str>) -> anyhow::Result<(String, Packet)> {
    cluster().packet(&from.parse().unwrap(), &to.parse().unwrap(), node)
}

#[test]
fn ends_are_named_as_people_do() {
    assert_eq!(
        "192.0.2.1".parse(),
        Ok(From::Address("192.0.2.1".parse().unwrap()))
    );
    assert_eq!("node/n1".parse(), Ok(From::Node("n1".to_owned())));
    for wrong in ["", "pod/cart", "service/a/b", "n1"] {
        assert!(wrong.parse::<From>().is_err(), "{wrong}");
    }
    assert_eq!(
        "[fd00::1]:53/udp".parse(),
        Ok(To::Address("[fd00::1]:53".parse().unwrap(), Protocol::Udp))
    );
    for wrong in [
        "",
        "10.0.0.1",
        "10.0.0.1:80/http",
        "service/shop/db",
        "service/db:1",
        "10.0.0.1:99999",
    ] {
        assert!(wrong.parse::<To>().is_err(), "{wrong}");
    }
}

#[test]
fn a_packet_from_outside_reaches_the_node_that_has_the_address() {
    use portico_model::report::{Announcing, Holding};
    let mut cluster = cluster();
    let report = |addresses: &[&str]| {
        let holding = Holding {
            addresses: addresses.iter().map(|one| one.parse().unwrap()).collect(),
            ..Holding::default()
        };
        let announcing = Announcing {
            members: vec!["n1".into(), "n2".into()],
            holds: Some(vec![holding]),
            ..Announcing::default()
        };
        let report = portico_model::report::NodeReport {
            announcing: Some(announcing),
            ..Default::default()
        };
        serde_json::to_string(&report).unwrap()
    };
    let now = jiff::Timestamp::now();
    let lease = |node: &str, addresses: &[&str]| {
        let lease = json!({
            "metadata": {"name": format!("portico-node-{node}"),
                "annotations": {"portico.dev/report": report(addresses)}},
            "spec": {"leaseDurationSeconds": 30,
                "renewTime": now.strftime("%Y-%m-%dT%H:%M:%S.000000Z").to_string()}});
        serde_json::from_value(lease).unwrap()
    };
    let leases = [lease("n1", &[]), lease("n2", &["203.0.113.10"])];
    cluster.owners = Owners::of_leases(&leases, now);
    let node = |to: &str| {
        let packet = cluster.packet(&"198.51.100.1".parse().unwrap(), &to.parse().unwrap(), None);
        packet.unwrap().0
    };
    assert_eq!(node("203.0.113.10:443"), "n2");
    assert_eq!(node("203.0.113.11:443"), "n1", "nobody has it");
}

#[test]
fn a_packet_reaches_the_node_it_comes_from_or_is_for() {
    for (from, to, node, wanted) in [
        ("pod/shop/cart", "203.0.113.10:443", None, "n2"),
        ("10.0.2.5", "203.0.113.10:443", None, "n2"),
        ("node/n2", "203.0.113.10:443", None, "n2"),
        ("198.51.100.1", "192.0.2.12:30080", None, "n2"),
        ("198.51.100.1", "203.0.113.10:443", None, "n1"),
        ("198.51.100.1", "203.0.113.10:443", Some("n2"), "n2"),
    ] {
        assert_eq!(packet(from, to, node).unwrap().0, wanted, "{from} {to}");
    }
}

#[test]
fn what_a_packet_is_follows_from_its_ends() {
    let (_, from_pod) = packet("pod/shop/cart", "service/shop/db:53", None).unwrap();
    assert_eq!(
        (from_pod.source.to_string(), from_pod.protocol),
        ("10.0.2.5".to_owned(), Protocol::Udp)
    );
    assert_eq!(from_pod.origin, Origin::Interface("".into()));
    let (_, from_node) = packet("192.0.2.11", "10.96.0.7:53/udp", None).unwrap();
    assert_eq!(from_node.origin, Origin::Node);
    assert_eq!(
        from_node.local.to_vec(),
        ["192.0.2.11".parse::<IpAddr>().unwrap()]
    );
}

#[test]
fn what_is_not_there_is_named() {
    for (from, to, node, wanted) in [
        (
            "pod/shop/none",
            "10.96.0.7:53",
            None,
            "there is no Pod shop/none",
        ),
        (
            "pod/shop/new",
            "10.96.0.7:53",
            None,
            "Pod shop/new is on no node yet",
        ),
        (
            "10.0.2.5",
            "service/shop/db:54",
            None,
            "shop/db has no port 54",
        ),
        (
            "10.0.2.5",
            "service/shop/web:80",
            None,
            "there is no Service shop/web",
        ),
        (
            "pod/shop/cart",
            "[fd00::1]:80",
            None,
            "Pod shop/cart has no address of the destination's family",
        ),
        (
            "10.0.2.5",
            "10.96.0.7:53",
            Some("n9"),
            "there is no node n9: there are n1, n2",
        ),
    ] {
        assert_eq!(packet(from, to, node).unwrap_err().to_string(), wanted);
    }
}
