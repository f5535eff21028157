use super::screen::Order;
use super::*;
use crate::fleet::News;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use portico_view::{Kind, Object};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use serde_json::{Value, json};

fn service(name: &str, kind: &str, conditions: Value) -> Value {
    json!({
        "metadata": {"namespace": "shop", "name": name},
        "spec": {"type": kind, "clusterIPs": ["10.96.0.7"], "ports": [{"port": 80, "protocol": "TCP"}]},
        "status": {"loadBalancer": {"ingress": if kind == "LoadBalancer" { json!([{"ip": "192.0.2.200"}]) } else { json!([]) }}, "conditions": conditions},
    })
}

fn slice(service: &str, endpoints: Value) -> Value {
    json!({
        "metadata": {"namespace": "shop", "name": format!("{service}-1"), "labels": {"kubernetes.io/service-name": service}},
        "ports": [{"port": 8080}],
        "endpoints": endpoints,
    })
}

fn node(name: &str, address: &str) -> Value {
    json!({"metadata": {"name": name}, "status": {"addresses": [{"type": "InternalIP", "address": address}]}})
}

fn condition(type_: &str, status: &str) -> Value {
    json!({"type": type_, "status": status, "reason": "PoolExhausted", "message": "add addresses",
        "lastTransitionTime": "2026-01-01T00:00:00Z"})
}

fn object(kind: Kind, value: Value) -> Object {
    match kind {
        Kind::Service => serde_json::from_value::<Service>(value).unwrap().into(),
        Kind::Slice => serde_json::from_value::<EndpointSlice>(value)
            .unwrap()
            .into(),
        Kind::Node => serde_json::from_value::<Node>(value).unwrap().into(),
        Kind::Lease => serde_json::from_value::<Lease>(value).unwrap().into(),
    }
}

fn sample() -> State {
    let mut state = State::default();
    state.set_clock("2026-01-01T00:00:02Z".parse().unwrap());
    let good = json!([
        condition("Allocated", "True"),
        condition("Programmed", "True")
    ]);
    let bad = json!([condition("Allocated", "False")]);
    let report = json!({
        "metadata": {"namespace": "kube-system", "name": "portico-node-n1",
            "annotations": {"portico.dev/report": r#"{"services": "41", "slices": "42"}"#}},
        "spec": {"leaseDurationSeconds": 30, "renewTime": "2026-01-01T00:00:00.000000Z"},
    });
    let lists = [
        (
            Kind::Service,
            vec![
                service("web", "LoadBalancer", good),
                service("db", "ClusterIP", json!([])),
                service("api", "LoadBalancer", bad),
            ],
        ),
        (
            Kind::Slice,
            vec![
                slice(
                    "web",
                    json!([{"addresses": ["10.244.1.10"], "nodeName": "n1"}, {"addresses": ["10.244.2.10"], "nodeName": "n2", "conditions": {"ready": false, "serving": true, "terminating": true}}]),
                ),
                slice(
                    "db",
                    json!([{"addresses": ["10.244.1.12"], "nodeName": "n1", "conditions": {"ready": false}}]),
                ),
                slice(
                    "api",
                    json!([{"addresses": ["10.244.1.11"], "nodeName": "n1", "conditions": {"ready": true}}]),
                ),
            ],
        ),
        (
            Kind::Node,
            vec![node("n1", "192.0.2.11"), node("n2", "192.0.2.12")],
        ),
        (Kind::Lease, vec![report]),
    ];
    for (kind, objects) in lists {
        state.apply(News::ListBegins(kind));
        for value in objects {
            state.apply(News::Listed(object(kind, value)));
        }
        state.apply(News::ListEnds(kind));
    }
    let text = "portico_service_programming_duration_seconds_bucket{le=\"0.0016\"} 10\n\
                portico_endpoint_connections{endpoint=\"10.244.1.10:8080\",protocol=\"tcp\"} 5\n";
    state.measure("n1", Ok(Measured::parse(text)));
    state.measure("n2", Err("192.0.2.12:10249: refused".to_owned()));
    state
}

fn drawn(state: &State, screen: &Screen) -> String {
    let mut terminal = Terminal::new(TestBackend::new(140, 30)).unwrap();
    terminal
        .draw(|frame| view::draw(frame, state, screen))
        .unwrap();
    terminal.backend().to_string()
}

/// The lines that have this, cut down to words.
fn line(text: &str, word: &str) -> String {
    let found = text
        .lines()
        .find(|line| line.contains(word))
        .unwrap_or_else(|| panic!("no {word} in\n{text}"));
    found
        .replace(['│', '"'], "")
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
}

#[test]
fn the_fleet_is_drawn() {
    let text = drawn(
        &sample(),
        &Screen {
            chosen: 2,
            ..Screen::default()
        },
    );
    assert_eq!(
        line(&text, "portico top"),
        "portico top 3 Services, 2 with a problem 1 of 2 nodes report"
    );
    assert_eq!(
        line(&text, "shop/web "),
        "shop/web LoadBalancer 192.0.2.200 80/tcp 1/2 AP 5"
    );
    assert_eq!(
        line(&text, "shop/db"),
        "shop/db ClusterIP 10.96.0.7 80/tcp 0/1 0 none of 1 endpoints is ready"
    );
    assert!(
        line(&text, "shop/api").contains("1/1 a 0 Allocated is False"),
        "{text}"
    );
    assert!(text.contains("Endpoints of shop/web"), "{text}");
    assert_eq!(
        line(&text, "10.244.2.10:8080"),
        "10.244.2.10:8080 n2 draining 0"
    );
    assert_eq!(
        line(&text, "192.0.2.11"),
        "n1 192.0.2.11 41/42 1.6ms 1.6ms 5"
    );
    assert!(
        line(&text, "192.0.2.12").contains("does not report"),
        "{text}"
    );
    assert!(text.contains("q quit"));
}

#[test]
fn a_tiny_terminal_is_no_trouble() {
    for (width, height) in [(1, 1), (10, 3), (40, 10)] {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal
            .draw(|frame| view::draw(frame, &sample(), &Screen::default()))
            .unwrap();
    }
    drawn(
        &State::default(),
        &Screen {
            chosen: 7,
            ..Screen::default()
        },
    );
}

#[test]
fn keys_choose_seek_and_sort() {
    let (state, mut screen) = (sample(), Screen::default());
    let names = |screen: &Screen| {
        screen
            .services(&state)
            .into_iter()
            .map(|row| row.name)
            .collect::<Vec<_>>()
    };
    assert_eq!(names(&screen), ["shop/api", "shop/db", "shop/web"]);
    for _ in 0..5 {
        screen.key(KeyCode::Down, 3);
    }
    assert_eq!(screen.chosen, 2);
    screen.key(KeyCode::Up, 3);
    assert_eq!(screen.chosen, 1);
    screen.key(KeyCode::Char('/'), 3);
    for letter in "Pool".chars() {
        assert_eq!(screen.key(KeyCode::Char(letter), 3), Action::Stay);
    }
    assert_eq!(names(&screen), ["shop/api"]);
    assert!(drawn(&state, &screen).contains("/Pool▏"));
    screen.key(KeyCode::Esc, 1);
    screen.key(KeyCode::Char('s'), 3);
    assert_eq!(
        (screen.order, names(&screen)[2].as_str()),
        (Order::Health, "shop/web")
    );
    screen.key(KeyCode::Char('s'), 3);
    assert_eq!(names(&screen)[0], "shop/web");
    assert_eq!(screen.key(KeyCode::Char('q'), 3), Action::Leave);
}

#[test]
fn a_list_forgets_what_is_not_in_it() {
    let mut state = sample();
    let new = object(Kind::Service, service("new", "ClusterIP", json!([])));
    assert!(state.is_complete());
    state.apply(News::ListBegins(Kind::Service));
    state.apply(News::Listed(new.clone()));
    assert_eq!(
        state.services().len(),
        3,
        "until the list is complete, what is known stays"
    );
    state.apply(News::Failed("gone away".into()));
    assert!(drawn(&state, &Screen::default()).contains("the API server is away: gone away"));
    state.apply(News::ListEnds(Kind::Service));
    assert_eq!(state.services().len(), 1);
    state.apply(News::Deleted(new));
    assert!(state.services().is_empty() && state.trouble().is_none());
}

#[test]
fn once_is_a_table() {
    let (state, screen) = (sample(), Screen::default());
    let text = Picture {
        services: screen.services(&state),
        nodes: screen.nodes(&state),
    }
    .to_string();
    assert!(text.contains("SERVICE    TYPE           ADDRESS"), "{text}");
    assert!(line(&text, "shop/web").ends_with("1/2 AP 5 -"), "{text}");
}
