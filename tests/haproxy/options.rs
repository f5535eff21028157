//! What Services can ask for, as clients and endpoints see it.

use crate::common::eventually;
use crate::endpoint::{Endpoint, listen_raw};
use crate::rig::{PORT, Rig, get, request};
use portico_providers::{HealthCheck, Host, Ingress, IpMode, Node, Provider, Request};
use std::collections::BTreeSet;
use std::net::SocketAddr;

fn with(request: Request, name: &str, value: &str) -> Request {
    let mut annotations = request.annotations.clone();
    annotations.insert(name.to_owned(), value.to_owned());
    Request {
        annotations,
        ..request
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn endpoints_are_told_who_the_client_is() {
    let rig = Rig::new("ipMode: VIP");
    let running = rig.start().await;
    for (version, port) in [("v1", 81), ("v2", 82)] {
        let address = SocketAddr::new(rig.address(20), port);
        let mut seen = listen_raw(address).await;
        let proxied = with(
            request(version, port, [address]),
            "portico.dev/proxy-protocol",
            version,
        );
        let balancer = running.haproxy.ensure(&proxied).await.unwrap();
        assert_eq!(
            balancer.ingress,
            [Ingress {
                host: Host::Ip(rig.address(1)),
                mode: IpMode::Proxy
            }]
        );
        let (client, frontend) = (rig.address(77), rig.frontend(port));
        tokio::spawn(async move { get(client, frontend).await });
        let expected = |first: &[u8]| match version {
            "v1" => String::from_utf8_lossy(first)
                .starts_with(&format!("PROXY TCP4 {client} {} ", frontend.ip())),
            _ => {
                let octets = |address| match address {
                    std::net::IpAddr::V4(address) => address.octets(),
                    std::net::IpAddr::V6(_) => unreachable!(),
                };
                let (source, destination) = (octets(client), octets(frontend.ip()));
                first.starts_with(b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c")
                    && first[16..20] == source
                    && first[20..24] == destination
            }
        };
        // Checks of its health come with a header too, which is HAProxy's own.
        loop {
            let first = seen.recv().await.unwrap();
            if expected(&first) {
                println!("{version}: {:?}", String::from_utf8_lossy(&first));
                break;
            }
        }
    }
    let plain = running
        .haproxy
        .ensure(&request("plain", 80, []))
        .await
        .unwrap();
    assert_eq!(
        plain.ingress[0].mode,
        IpMode::Vip,
        "as the configuration says"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_not_well_gets_nothing() {
    let rig = Rig::new("");
    let running = rig.start().await;
    let (endpoints, mut health) = (rig.endpoints(3).await, Vec::new());
    for number in 0..3 {
        health
            .push(Endpoint::start(SocketAddr::new(rig.endpoint_address(number).ip(), 10256)).await);
    }
    let node = |number: u8| Node {
        name: format!("n{number}"),
        addresses: vec![rig.endpoint_address(number).ip()],
        ..Node::default()
    };
    let mut nodes = request("web", 80, []);
    nodes.annotations.clear();
    nodes.ports[0].node_port = PORT;
    nodes.health_check = Some(HealthCheck {
        port: 10256,
        path: "/healthz".to_owned(),
    });
    nodes.nodes = (0..2).map(node).collect();
    running.ensure(&nodes).await;
    let answers = async || {
        let mut answers = BTreeSet::new();
        for _ in 0..12 {
            answers.insert(get(rig.address(2), rig.frontend(80)).await);
        }
        answers
    };
    let of = |numbers: &[usize]| {
        numbers
            .iter()
            .map(|number| Some(endpoints[*number].address.to_string()))
            .collect::<BTreeSet<_>>()
    };
    eventually("both answer", || async {
        (answers().await == of(&[0, 1])).then_some(())
    })
    .await;
    health[0].fall_sick(true);
    eventually("one is out", || async {
        (answers().await == of(&[1])).then_some(())
    })
    .await;
    // A node that is not well gets nothing from the first moment.
    health[2].fall_sick(true);
    nodes.nodes.push(node(2));
    endpoints[2].retire(true).await;
    running.haproxy.update_nodes(&nodes).await.unwrap();
    // What was found out is not forgotten by a reload.
    endpoints[0].retire(true).await;
    running
        .ensure(&request("other", 81, [endpoints[1].address]))
        .await;
    for _ in 0..5 {
        assert_eq!(answers().await, of(&[1]));
    }
    assert_eq!((endpoints[0].strays(), endpoints[2].strays()), (0, 0));
    health[2].fall_sick(false);
    eventually("a new one is in", || async {
        (answers().await == of(&[1, 2])).then_some(())
    })
    .await;
    // A dead one, where nobody asks for health but by connecting.
    let mut pods = rig.endpoints_at(&[30, 31]).await;
    running
        .ensure(&request("pods", 82, pods.iter().map(|pod| pod.address)))
        .await;
    pods.pop();
    eventually("the dead one is out", || async {
        rig.servers()
            .await
            .iter()
            .all(|server| !server.contains(&rig.address(31).to_string()))
            .then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn only_from_some_places_and_to_one_server() {
    let rig = Rig::new("");
    let running = rig.start().await;
    let endpoints = rig.endpoints(4).await;
    let addresses = || endpoints.iter().map(|endpoint| endpoint.address);
    let allowed = format!("{}/32", rig.address(5)).parse().unwrap();
    running
        .ensure(&Request {
            source_ranges: vec![allowed],
            ..request("narrow", 80, addresses())
        })
        .await;
    assert!(get(rig.address(5), rig.frontend(80)).await.is_some());
    assert_eq!(get(rig.address(6), rig.frontend(80)).await, None);
    let sticky = Request {
        affinity: Some(600),
        ..request("sticky", 81, addresses())
    };
    running.ensure(&sticky).await;
    let mut homes = Vec::new();
    for client in 100..120 {
        homes.push(get(rig.address(client), rig.frontend(81)).await.unwrap());
    }
    assert!(homes.iter().collect::<BTreeSet<_>>().len() > 1, "{homes:?}");
    // The next worker learns it from this one, which has to have given up learning from another
    // before.
    eventually("HAProxy is not quite new", || async {
        rig.ask("show peers")
            .await
            .contains("resync_timeout=<PAST>")
            .then_some(())
    })
    .await;
    running.ensure(&request("other", 82, addresses())).await;
    eventually("the table is handed on", || async {
        rig.ask("show table")
            .await
            .lines()
            .any(|line| line.contains("used:20"))
            .then_some(())
    })
    .await;
    for (client, home) in (100..120).zip(&homes) {
        for _ in 0..3 {
            assert_eq!(
                get(rig.address(client), rig.frontend(81)).await.as_ref(),
                Some(home)
            );
        }
    }
    // One that is gone is given up.
    let rest: Vec<SocketAddr> = addresses()
        .filter(|address| address.to_string() != homes[0])
        .collect();
    running
        .haproxy
        .update_nodes(&Request {
            endpoints: request("", 81, rest).endpoints,
            ..sticky
        })
        .await
        .unwrap();
    assert_ne!(
        get(rig.address(100), rig.frontend(81)).await.as_ref(),
        Some(&homes[0])
    );
}
