use super::*;
use k8s_openapi::api::core::v1::Node;
use portico_model::checks::Range;
use serde_json::{Value, json};

/// May ask all of 10.0.0.0/8.
fn monitor() -> Monitor {
    monitor_with(10)
}

fn monitor_with(most: usize) -> Monitor {
    let range: Range = "10.0.0.0/8".parse().unwrap();
    Monitor::new(most, vec![Range::Cluster, range].into())
}

const START: Duration = Duration::ZERO;

/// Endpoints as address and readiness.
fn slice(name: &str, check: &str, endpoints: &[(&str, Value)]) -> EndpointSlice {
    let endpoints: Vec<Value> = endpoints
        .iter()
        .map(|(address, ready)| json!({"addresses": [address], "conditions": {"ready": ready}}))
        .collect();
    let metadata = json!({"name": name, "namespace": "default", "annotations": {CHECK: check}});
    serde_json::from_value(
        json!({"metadata": metadata, "addressType": "IPv4", "ports": [{"port": 80}], "endpoints": endpoints}),
    )
    .unwrap()
}

fn key(name: &str) -> ObjectKey {
    ObjectKey::new("default", name)
}

/// Answers every probe that is due: those of the addresses in `bad` badly. How many there were.
fn round(monitor: &mut Monitor, now: Duration, bad: &[&str]) -> usize {
    let probes: Vec<Probe<Target>> = std::iter::from_fn(|| monitor.start(now)).collect();
    for probe in &probes {
        let address = probe.target.0.ip().to_string();
        let answer = if bad.contains(&address.as_str()) {
            Err("refused".to_owned())
        } else {
            Ok(())
        };
        monitor.finish(probe.clone(), answer, now, 0.5);
    }
    probes.len()
}

fn readiness(slice: &EndpointSlice) -> Vec<Option<bool>> {
    slice.endpoints.iter().flatten().map(ready).collect()
}

#[test]
fn the_first_answer_decides_of_those_that_are_new() {
    let mut monitor = monitor();
    monitor
        .apply(
            slice(
                "web",
                "tcp",
                &[("10.0.0.1", json!(false)), ("10.0.0.2", json!(null))],
            ),
            START,
        )
        .unwrap();
    monitor.take_touched();
    assert_eq!(monitor.wanted(&key("web")), None, "nobody has been asked");
    assert_eq!(round(&mut monitor, START, &["10.0.0.2"]), 2);
    assert_eq!(monitor.take_touched(), BTreeSet::from([key("web")]));
    let wanted = monitor.wanted(&key("web")).unwrap();
    assert_eq!(readiness(&wanted), [Some(true), Some(false)]);
    assert_eq!(
        wanted.metadata.annotations.as_ref().unwrap()[FAILING],
        "10.0.0.2: refused"
    );
    assert_eq!(
        wanted.endpoints.as_ref().unwrap()[0]
            .conditions
            .as_ref()
            .unwrap()
            .serving,
        Some(true)
    );
    monitor.apply(wanted, START).unwrap();
    assert_eq!(monitor.wanted(&key("web")), None, "it was written");
}

#[test]
fn an_endpoint_falls_and_rises_after_so_many_answers() {
    let mut monitor = monitor();
    let before = slice(
        "web",
        "http:/ rise=2 fall=3",
        &[("10.0.0.1", json!(true)), ("10.0.0.2", json!(true))],
    );
    monitor.apply(before, START).unwrap();
    let mut told = Vec::new();
    for (at, bad) in [
        (0, true),
        (10, true),
        (20, true),
        (30, true),
        (40, false),
        (50, false),
    ] {
        let now = Duration::from_secs(at);
        assert_eq!(
            round(&mut monitor, now, if bad { &["10.0.0.1"] } else { &[] }),
            2
        );
        let written = monitor.wanted(&key("web"));
        told.push(written.as_ref().map(|slice| readiness(slice)[0].unwrap()));
        if let Some(slice) = written {
            assert_eq!(
                slice
                    .metadata
                    .annotations
                    .as_ref()
                    .unwrap()
                    .contains_key(FAILING),
                bad
            );
            monitor.apply(slice, now).unwrap();
        }
    }
    assert_eq!(told, [None, None, Some(false), None, None, Some(true)]);
}

#[test]
fn an_address_in_two_slices_is_asked_once() {
    let mut monitor = monitor();
    for name in ["a", "b"] {
        monitor
            .apply(slice(name, "tcp", &[("10.0.0.1", json!(false))]), START)
            .unwrap();
    }
    monitor.take_touched();
    assert_eq!(round(&mut monitor, START, &[]), 1);
    assert_eq!(monitor.take_touched().len(), 2);
    assert!(monitor.wanted(&key("a")).is_some() && monitor.wanted(&key("b")).is_some());
    monitor.delete(&key("a"));
    assert!(monitor.next_deadline().is_some());
    monitor.delete(&key("b"));
    assert_eq!((monitor.next_deadline(), monitor.keys().count()), (None, 0));
}

#[test]
fn another_way_to_check_starts_anew_and_forgets_nothing() {
    let mut monitor = monitor();
    monitor
        .apply(slice("web", "tcp", &[("10.0.0.1", json!(true))]), START)
        .unwrap();
    round(&mut monitor, START, &[]);
    monitor
        .apply(slice("web", "http:/a", &[("10.0.0.1", json!(true))]), START)
        .unwrap();
    assert_eq!(monitor.users.len(), 1);
    assert_eq!(round(&mut monitor, START, &["10.0.0.1"]), 1);
    assert_eq!(
        monitor.wanted(&key("web")),
        None,
        "one bad answer takes nothing from an endpoint that is ready"
    );
}

#[test]
fn what_cannot_be_asked_stays_as_it_is() {
    let mut monitor = monitor();
    let problem = monitor
        .apply(
            slice("web", "gopher:/", &[("10.0.0.1", json!(true))]),
            START,
        )
        .unwrap_err();
    assert!(problem.to_string().contains("gopher"), "{problem}");
    let mut without_port = slice(
        "other",
        "tcp",
        &[("10.0.0.1", json!(true)), ("no address", json!(true))],
    );
    without_port.ports = None;
    monitor.apply(without_port, START).unwrap();
    monitor
        .apply(slice("names", "tcp", &[("no address", json!(true))]), START)
        .unwrap();
    assert_eq!(round(&mut monitor, START, &[]), 0);
    assert!(
        ["web", "other", "names"]
            .iter()
            .all(|name| monitor.wanted(&key(name)).is_none())
    );
}

#[test]
fn an_endpoint_that_never_was_ready_is_told_once() {
    let mut monitor = monitor();
    monitor
        .apply(slice("web", "tcp", &[("10.0.0.1", json!(false))]), START)
        .unwrap();
    round(&mut monitor, START, &["10.0.0.1"]);
    let wanted = monitor.wanted(&key("web")).unwrap();
    assert_eq!(readiness(&wanted), [Some(false)]);
    assert_eq!(
        wanted.metadata.annotations.as_ref().unwrap()[FAILING],
        "10.0.0.1: refused"
    );
    monitor.apply(wanted, START).unwrap();
    round(&mut monitor, Duration::from_secs(60), &["10.0.0.1"]);
    assert_eq!(monitor.wanted(&key("web")), None);
}

fn failing(slice: &EndpointSlice) -> Option<&str> {
    let annotations = slice.metadata.annotations.as_ref()?;
    annotations.get(FAILING).map(String::as_str)
}

/// The attack: the writer of a slice has the controller send requests wherever they like.
#[test]
fn addresses_outside_of_the_ranges_are_never_asked_and_the_slice_says_so() {
    let mut monitor = monitor();
    let strangers = [
        "169.254.169.254",
        "127.0.0.1",
        "192.0.2.1",
        "100.100.100.200",
    ];
    let endpoints = strangers.map(|address| (address, json!(true)));
    let endpoints = [&endpoints[..], &[("10.0.0.1", json!(true))]].concat();
    monitor
        .apply(slice("web", "http:/latest/meta-data", &endpoints), START)
        .unwrap();
    let (address, why) = monitor.take_refused()[&key("web")];
    assert!(strangers.contains(&address.to_string().as_str()));
    assert!(why.to_string().contains("--health-check-ranges"));
    assert_eq!(round(&mut monitor, START, &[]), 1, "only 10.0.0.1 is asked");
    let wanted = monitor.wanted(&key("web")).unwrap();
    assert_eq!(
        failing(&wanted).unwrap(),
        "169.254.169.254: not asked: a link-local address must be in --health-check-ranges by \
         itself\n127.0.0.1: not asked: a loopback address must be in --health-check-ranges by \
         itself\n192.0.2.1: not asked: add it to --health-check-ranges if it should \
         be\n100.100.100.200: not asked: an address of a cloud's metadata service must be in \
         --health-check-ranges by itself"
    );
    assert_eq!(readiness(&wanted), [Some(true); 5], "left as they are");
    monitor.apply(wanted, START).unwrap();
    assert_eq!(monitor.wanted(&key("web")), None, "it was told");
    assert!(monitor.take_refused().is_empty(), "and logged once");
}

#[test]
fn nodes_and_their_pods_are_asked_from_when_they_are_known() {
    let mut monitor = monitor();
    let endpoints = [("192.0.2.7", json!(false)), ("172.20.1.9", json!(false))];
    monitor
        .apply(slice("web", "tcp", &endpoints), START)
        .unwrap();
    let told = monitor.wanted(&key("web")).unwrap();
    monitor.apply(told, START).unwrap();
    assert_eq!(round(&mut monitor, START, &[]), 0);
    let node: Node = serde_json::from_value(json!({
        "metadata": {"name": "n1"}, "spec": {"podCIDR": "172.20.1.0/24"},
        "status": {"addresses": [{"type": "InternalIP", "address": "192.0.2.7"}]}
    }))
    .unwrap();
    monitor.set_networks(Networks::of([&node]), START);
    assert_eq!(round(&mut monitor, START, &[]), 2);
    let wanted = monitor.wanted(&key("web")).unwrap();
    assert_eq!(readiness(&wanted), [Some(true), Some(true)]);
    assert_eq!(failing(&wanted), None);
    monitor.apply(wanted, START).unwrap();
    // The node goes, and its addresses are not probed any more.
    monitor.set_networks(Networks::default(), START);
    assert_eq!(round(&mut monitor, Duration::from_secs(60), &[]), 0);
}
