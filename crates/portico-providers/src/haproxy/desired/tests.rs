use super::super::testing::{endpoint, port, request, settings};
use super::*;
use crate::Endpoint;

fn addresses(desired: &Desired) -> Vec<String> {
    desired.ports[&80].iter().map(ToString::to_string).collect()
}

fn annotated(name: &str, value: &str) -> Request {
    let annotations = [(name.to_owned(), value.to_owned())].into();
    Request {
        annotations,
        ..request("web")
    }
}

fn reason(result: Result<Desired, ProviderError>) -> &'static str {
    match result {
        Err(ProviderError::Refused { reason, .. }) => reason,
        other => panic!("{other:?}"),
    }
}

#[test]
fn connections_go_to_node_ports_of_the_family() {
    let desired = Desired::new(&request("web"), &settings()).unwrap();
    assert_eq!(addresses(&desired), ["10.0.0.1:30080", "10.0.0.2:30080"]);
    assert_eq!(desired.options.check, Check::Healthz(10256));
    let v6 = Request {
        families: vec![Family::V6, Family::V4],
        ..request("web")
    };
    assert_eq!(
        addresses(&Desired::new(&v6, &settings()).unwrap()),
        ["[fd00::7]:30080"],
        "both have the same address"
    );
}

#[test]
fn under_local_nodes_with_endpoints_get_them_or_health_decides() {
    let mut local = Request {
        local: true,
        endpoints: vec![endpoint("10.1.0.1", "b")],
        ..request("web")
    };
    assert_eq!(
        addresses(&Desired::new(&local, &settings()).unwrap()),
        ["10.0.0.2:30080"]
    );
    local.endpoints.clear();
    assert_eq!(
        addresses(&Desired::new(&local, &settings()).unwrap()).len(),
        2
    );
    local.health_check = None;
    assert_eq!(
        Desired::new(&local, &settings()).unwrap().options.check,
        Check::Connect
    );
}

#[test]
fn or_to_endpoints() {
    let mut request = annotated(ANNOTATION_TARGETS, "endpoints");
    request.endpoints = vec![endpoint("10.1.0.1", "a"), endpoint("fd00:1::1", "b")];
    request.endpoints.push(Endpoint {
        port_name: "other".to_owned(),
        ..endpoint("10.1.0.2", "a")
    });
    request.ports[0].node_port = 0;
    let desired = Desired::new(&request, &settings()).unwrap();
    assert_eq!(addresses(&desired), ["10.1.0.1:8080", "[fd00:1::1]:8080"]);
    assert_eq!(desired.options.check, Check::Connect);
}

#[test]
fn annotations_are_choices() {
    let options = |name, value| {
        Desired::new(&annotated(name, value), &settings())
            .unwrap()
            .options
    };
    assert_eq!(
        options(ANNOTATION_PROXY, "v2").proxy,
        Some(ProxyProtocol::V2)
    );
    assert_eq!(options(ANNOTATION_PROXY, "").proxy, None);
    assert_eq!(
        options(ANNOTATION_IDLE, "90s").idle,
        Duration::from_secs(90)
    );
    assert_eq!(
        options(ANNOTATION_BALANCE, "roundrobin").balance,
        Balance::RoundRobin
    );
}

#[test]
fn nothing_but_choices_gets_through() {
    let evil = "v2\n    server evil 192.0.2.66:1";
    for name in [
        ANNOTATION_PROXY,
        ANNOTATION_IDLE,
        ANNOTATION_BALANCE,
        ANNOTATION_TARGETS,
        ANNOTATION_ADDRESSES,
    ] {
        assert_eq!(
            reason(Desired::new(&annotated(name, evil), &settings())),
            "InvalidAnnotation",
            "{name}"
        );
    }
    for name in [
        "",
        "web\nlisten x",
        "web web",
        "web#",
        "web\"",
        "web/../x",
        "wéb",
    ] {
        let mut request = request("web");
        request.service.name = name.to_owned();
        assert_eq!(
            reason(Desired::new(&request, &settings())),
            "InvalidName",
            "{name:?}"
        );
    }
    let mut strange = request("web");
    strange.requested_ip = Some("192.0.2.10\n".to_owned());
    assert_eq!(
        reason(Desired::new(&strange, &settings())),
        "InvalidAddress"
    );
}

#[test]
fn what_haproxy_cannot_forward_is_refused() {
    let mut udp = request("web");
    udp.ports.push(Port {
        protocol: Protocol::Udp,
        ..port(53, 30053)
    });
    assert_eq!(
        reason(Desired::new(&udp, &settings())),
        "ProtocolNotSupported"
    );
    let none = Request {
        ports: vec![port(80, 0)],
        ..request("web")
    };
    assert_eq!(reason(Desired::new(&none, &settings())), "NodePortNeeded");
}
