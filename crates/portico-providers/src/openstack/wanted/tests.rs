use super::*;
use crate::openstack::config::Config;
use crate::{HealthCheck, ServiceRef};

fn port(protocol: Protocol, node_port: u16) -> Port {
    Port {
        name: "p".to_owned(),
        protocol,
        port: 80,
        node_port,
        app_protocol: None,
    }
}

fn request() -> Request {
    let node = Node {
        name: "node-1".to_owned(),
        addresses: vec!["fd00::1".parse().unwrap(), "10.0.0.1".parse().unwrap()],
        ..Node::default()
    };
    Request {
        cluster: "c".to_owned(),
        service: ServiceRef {
            namespace: "n".to_owned(),
            name: "s".to_owned(),
            uid: "u".to_owned(),
        },
        balancer_name: "au".to_owned(),
        families: vec![Family::V4],
        ports: vec![port(Protocol::Tcp, 30080)],
        health_check: Some(HealthCheck {
            port: 10256,
            path: "/healthz".to_owned(),
        }),
        nodes: vec![
            node,
            Node {
                name: "no-address".to_owned(),
                ..Node::default()
            },
        ],
        ..Request::default()
    }
}

fn wanted(request: &Request, annotations: &[(&str, &str)], config: &str) -> NewListener {
    let text =
        format!("[Global]\nauth-url=http://k\nusername=u\npassword=p\n[LoadBalancer]\n{config}");
    let annotations = annotations.iter();
    let annotations = annotations.map(|(name, value)| {
        (
            format!("loadbalancer.openstack.org/{name}"),
            (*value).to_owned(),
        )
    });
    let request = Request {
        annotations: annotations.collect(),
        ..request.clone()
    };
    let options = Options::of(&request, &Config::parse(&text).unwrap()).unwrap();
    listeners(&request, &options, None).unwrap().remove(0)
}

#[test]
fn nodes_are_asked_for_their_health_where_they_answer() {
    let pool = wanted(&request(), &[], "").default_pool;
    let monitor = pool.healthmonitor.unwrap();
    assert_eq!(
        (monitor.kind.as_str(), monitor.url_path.as_deref()),
        ("HTTP", Some("/healthz"))
    );
    let member = &pool.members[0];
    assert_eq!(
        (member.address.to_string().as_str(), member.protocol_port),
        ("10.0.0.1", 30080)
    );
    assert_eq!((member.monitor_port, pool.members.len()), (Some(10256), 1));
}

#[test]
fn without_http_the_port_itself_is_asked() {
    for (protocol, kind) in [
        (Protocol::Tcp, "TCP"),
        (Protocol::Udp, "UDP-CONNECT"),
        (Protocol::Sctp, "SCTP"),
    ] {
        let request = Request {
            ports: vec![port(protocol, 30080)],
            ..request()
        };
        let pool = wanted(&request, &[], "lb-provider=ovn").default_pool;
        let monitor = pool.healthmonitor.unwrap();
        assert_eq!(
            (
                monitor.kind.as_str(),
                monitor.url_path,
                pool.members[0].monitor_port
            ),
            (kind, None, None)
        );
    }
}

#[test]
fn no_monitor_asks_nobody() {
    let pool = wanted(&request(), &[("enable-health-monitor", "false")], "").default_pool;
    assert_eq!(
        (pool.healthmonitor, pool.members[0].monitor_port),
        (None, None)
    );
}

#[test]
fn protocols_of_listener_and_pool() {
    let of = |protocol, annotations: &[(&str, &str)]| {
        let wanted = wanted(
            &Request {
                ports: vec![port(protocol, 1)],
                ..request()
            },
            annotations,
            "",
        );
        format!(
            "{} {}",
            wanted.spec.protocol, wanted.default_pool.spec.protocol
        )
    };
    let (proxy, tls) = (("proxy-protocol", "v2"), ("default-tls-container-ref", "x"));
    assert_eq!(of(Protocol::Tcp, &[]), "TCP TCP");
    assert_eq!(of(Protocol::Tcp, &[proxy]), "TCP PROXYV2");
    assert_eq!(
        of(Protocol::Tcp, &[("x-forwarded-for", "true")]),
        "HTTP HTTP"
    );
    assert_eq!(of(Protocol::Tcp, &[tls]), "TERMINATED_HTTPS HTTP");
    assert_eq!(of(Protocol::Tcp, &[tls, proxy]), "TERMINATED_HTTPS PROXYV2");
    assert_eq!(of(Protocol::Udp, &[proxy, tls]), "UDP UDP");
    assert_eq!(of(Protocol::Sctp, &[]), "SCTP SCTP");
}

#[test]
fn only_ranges_of_its_families_are_allowed() {
    let ranges = |families: &[Family], ranges: &[&str]| {
        let source_ranges = ranges.iter().map(|range| range.parse().unwrap()).collect();
        allowed(&Request {
            families: families.to_vec(),
            source_ranges,
            ..Request::default()
        })
    };
    let both = [Family::V4, Family::V6];
    assert_eq!(ranges(&both[..1], &[]), ["0.0.0.0/0"]);
    assert_eq!(ranges(&both, &[]), ["0.0.0.0/0", "::/0"]);
    assert_eq!(
        ranges(&both[..1], &["192.0.2.7/24", "fd00::/8"]),
        ["192.0.2.0/24"]
    );
    assert_eq!(
        ranges(&both, &["fd00::/8", "192.0.2.0/24"]),
        ["192.0.2.0/24", "fd00::/8"]
    );
}

#[test]
fn a_port_without_a_node_port_cannot_be_served() {
    let request = Request {
        ports: vec![port(Protocol::Tcp, 0)],
        ..request()
    };
    let text = "[Global]\nauth-url=http://k\nusername=u\npassword=p";
    let options = Options::of(&request, &Config::parse(text).unwrap()).unwrap();
    let error = listeners(&request, &options, None).unwrap_err();
    assert!(
        matches!(
            error,
            ProviderError::Refused {
                reason: "NoNodePort",
                ..
            }
        ),
        "{error:?}"
    );
}

#[test]
fn names_fit() {
    let mut long = request();
    long.service.name = "x".repeat(300);
    assert_eq!(name(&long).len(), 255);
    assert_eq!(name(&request()), "kube_service_c_n_s");
}
