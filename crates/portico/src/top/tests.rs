use super::fleet::{Kind, News};
use super::screen::Order;
use super::*;
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

fn fleet() -> Fleet {
    let mut fleet = Fleet::default();
    let good =
        json!([{"type": "Allocated", "status": "True"}, {"type": "Programmed", "status": "True"}]);
    let bad = json!([{"type": "Allocated", "status": "False", "reason": "PoolExhausted", "message": "add addresses"}]);
    let report = json!({
        "metadata": {"namespace": "kube-system", "name": "portico-node-n1", "annotations": {"portico.dev/report": r#"{"services": "41", "slices": "42"}"#}},
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
                    "api",
                    json!([{"addresses": ["10.244.1.11"], "nodeName": "n1", "conditions": {"ready": true}}]),
                ),
            ],
        ),
        (
            Kind::Node,
            vec![node("n1", "192.0.2.11"), node("n2", "192.0.2.12")],
        ),
        (Kind::Report, vec![report]),
    ];
    for (kind, objects) in lists {
        fleet.hear(News::Begin(kind));
        objects
            .into_iter()
            .for_each(|object| fleet.hear(News::There(kind, object)));
        fleet.hear(News::End(kind));
    }
    let text = "portico_service_programming_duration_seconds_bucket{le=\"0.0016\"} 10\n\
                portico_endpoint_connections{endpoint=\"10.244.1.10:8080\",protocol=\"tcp\"} 5\n";
    fleet.measure("n1", Ok(Measured::parse(text)));
    fleet.measure("n2", Err("192.0.2.12:10249: refused".to_owned()));
    fleet
}

fn drawn(fleet: &Fleet, screen: &Screen) -> String {
    let mut terminal = Terminal::new(TestBackend::new(140, 30)).unwrap();
    terminal
        .draw(|frame| view::draw(frame, fleet, screen))
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
        &fleet(),
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
        "shop/db ClusterIP 10.96.0.7 80/tcp 0/0 0 no endpoints"
    );
    assert!(
        line(&text, "shop/api").contains("1/1 a 0 PoolExhausted: add"),
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
            .draw(|frame| view::draw(frame, &fleet(), &Screen::default()))
            .unwrap();
    }
    drawn(
        &Fleet::default(),
        &Screen {
            chosen: 7,
            ..Screen::default()
        },
    );
}

#[test]
fn keys_choose_seek_and_sort() {
    let (fleet, mut screen) = (fleet(), Screen::default());
    let names = |screen: &Screen| {
        screen
            .services(&fleet)
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
    assert!(drawn(&fleet, &screen).contains("/Pool▏"));
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
    let mut fleet = fleet();
    assert!(fleet.is_complete());
    fleet.hear(News::Begin(Kind::Service));
    fleet.hear(News::There(
        Kind::Service,
        service("new", "ClusterIP", json!([])),
    ));
    assert_eq!(
        fleet.services().len(),
        4,
        "until the list is complete what is known stays"
    );
    fleet.hear(News::Failed("gone away".into()));
    assert!(drawn(&fleet, &Screen::default()).contains("the API server is away: gone away"));
    fleet.hear(News::End(Kind::Service));
    assert_eq!(fleet.services().len(), 1);
    fleet.hear(News::Gone(
        Kind::Service,
        service("new", "ClusterIP", json!([])),
    ));
    assert!(fleet.services().is_empty() && fleet.trouble.is_none());
}

#[test]
fn once_is_a_table() {
    let (fleet, screen) = (fleet(), Screen::default());
    let text = Picture {
        services: screen.services(&fleet),
        nodes: screen.nodes(&fleet),
    }
    .to_string();
    assert!(text.contains("SERVICE    TYPE           ADDRESS"), "{text}");
    assert!(line(&text, "shop/web").ends_with("1/2 AP 5 -"), "{text}");
}
