use super::*;
use crate::aws::annotations::Kind;
use crate::aws::wanted::Names;
use crate::{Family, HealthCheck, Port, Protocol, Request};

fn wanted(ports: &[(u16, u16)], proxy: bool) -> Wanted {
    let port = |(port, node_port): &(u16, u16)| Port {
        name: String::new(),
        protocol: Protocol::Tcp,
        port: *port,
        node_port: *node_port,
        app_protocol: None,
    };
    let mut request = Request {
        balancer_name: "a1".to_owned(),
        families: vec![Family::V4],
        ports: ports.iter().map(port).collect(),
        health_check: Some(HealthCheck {
            port: 10256,
            path: "/healthz".to_owned(),
        }),
        ..Request::default()
    };
    if proxy {
        let name = "service.beta.kubernetes.io/aws-load-balancer-proxy-protocol".to_owned();
        request.annotations.insert(name, "*".to_owned());
    }
    Wanted::of(&request, Kind::Classic, &Names::of(&request, "c1")).unwrap()
}

/// As after a plan was carried out, without groups.
fn done(wanted: &Wanted) -> Balancer {
    let pairs = wanted.listeners.iter().map(|it| PortPair {
        port: it.port,
        node_port: it.node_port,
    });
    Balancer {
        listeners: pairs.collect(),
        check: Some(wanted.check.clone()),
        policies: wanted
            .proxy_protocol
            .then(|| PROXY_POLICY.to_owned())
            .into_iter()
            .collect(),
        proxied: wanted
            .listeners
            .iter()
            .filter(|_| wanted.proxy_protocol)
            .map(|it| it.node_port)
            .collect(),
        tags: wanted.tags.clone(),
        ..Balancer::default()
    }
}

fn steps(wanted: &Wanted, balancer: Option<Balancer>) -> Vec<Step> {
    let seen = Observed {
        balancer,
        ..Observed::default()
    };
    let plan = plan(wanted, &seen).unwrap();
    plan.into_iter()
        .filter(|step| !matches!(step, Step::Group(_)))
        .collect()
}

fn pair(port: u16, node_port: u16) -> PortPair {
    PortPair { port, node_port }
}

#[test]
fn a_new_one_has_its_listeners_from_the_start() {
    let wanted = wanted(&[(80, 30080)], false);
    let steps = steps(&wanted, None);
    let Step::Create { listeners, .. } = &steps[0] else {
        panic!("{steps:?}")
    };
    assert_eq!(listeners, &[pair(80, 30080)]);
    assert_eq!(steps[1..], [Step::SetCheck(wanted.check)]);
}

#[test]
fn what_is_right_is_left_alone() {
    for proxy in [false, true] {
        let wanted = wanted(&[(80, 30080), (443, 30443)], proxy);
        assert_eq!(steps(&wanted, Some(done(&wanted))), []);
    }
}

#[test]
fn a_port_leads_elsewhere_after_its_listener_is_gone() {
    let found = steps(
        &wanted(&[(80, 30081), (443, 30443)], false),
        Some(done(&wanted(&[(80, 30080), (81, 30090)], false))),
    );
    let expected = [
        Step::DeleteListeners(vec![80, 81]),
        Step::CreateListeners(vec![pair(80, 30081), pair(443, 30443)]),
    ];
    assert_eq!(found, expected);
}

#[test]
fn the_proxy_protocol_is_of_node_ports_and_outlives_listeners() {
    let (old, new) = (wanted(&[(80, 30080)], true), wanted(&[(80, 30081)], true));
    let expected = [
        Step::Proxy(30080, false),
        Step::DeleteListeners(vec![80]),
        Step::CreateListeners(vec![pair(80, 30081)]),
        Step::Proxy(30081, true),
    ];
    assert_eq!(steps(&new, Some(done(&old))), expected);
    assert_eq!(
        steps(&wanted(&[(80, 30080)], false), Some(done(&old))),
        [Step::Proxy(30080, false)]
    );
    let plain = done(&wanted(&[(80, 30080)], false));
    assert_eq!(
        steps(&old, Some(plain)),
        [Step::CreateProxyPolicy, Step::Proxy(30080, true)]
    );
}

#[test]
fn one_without_ports_cannot_be() {
    let result = plan(&wanted(&[(80, 0)], false), &Observed::default());
    assert!(
        matches!(
            result,
            Err(ProviderError::Refused {
                reason: "NoPorts",
                ..
            })
        ),
        "{result:?}"
    );
}
