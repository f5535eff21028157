use super::*;

fn subsets(world: &mut World) -> Value {
    world.sync_endpoints();
    assert_eq!(world.plan_endpoints(), EndpointsPlan::Keep);
    let subsets =
        serde_json::to_value(world.endpoints.as_ref().map(|endpoints| &endpoints.subsets)).unwrap();
    strip(subsets)
}

/// Leaves addresses as plain text.
fn strip(mut subsets: Value) -> Value {
    for subset in subsets.as_array_mut().into_iter().flatten() {
        for list in ["addresses", "notReadyAddresses"] {
            for address in subset
                .get_mut(list)
                .and_then(Value::as_array_mut)
                .into_iter()
                .flatten()
            {
                *address = address["ip"].take();
            }
        }
    }
    subsets
}

#[test]
fn the_whole_object() {
    let mut world = World::with(json!({"metadata": {"labels": {"team": "x"}}}));
    world.pod(
        "p1",
        "10.1.0.1",
        json!({"spec": {"hostname": "h", "subdomain": "web"}}),
    );
    let EndpointsPlan::Create(endpoints) = world.plan_endpoints() else {
        panic!("nothing created")
    };
    assert_eq!(
        serde_json::to_value(endpoints).unwrap(),
        json!({
            "apiVersion": "v1",
            "kind": "Endpoints",
            "metadata": {
                "name": "web",
                "namespace": "shop",
                "labels": {"team": "x", "endpoints.kubernetes.io/managed-by": "endpoint-controller"},
            },
            "subsets": [{
                "addresses": [{
                    "ip": "10.1.0.1",
                    "hostname": "h",
                    "nodeName": "n1",
                    "targetRef": {"kind": "Pod", "namespace": "shop", "name": "p1", "uid": "uid-p1"},
                }],
                "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
            }],
        })
    );
}

#[test]
fn addresses_with_the_same_ports_share_a_subset() {
    let mut world = World::with(json!({"spec": {"ports": [
        {"name": "a", "port": 1, "targetPort": "a"},
        {"name": "b", "port": 2, "targetPort": 22},
    ]}}));
    let port = |number: u16| json!({"spec": {"containers": [{"name": "c", "ports": [{"name": "a", "containerPort": number}]}]}});
    let mut third = port(12);
    merge(&mut third, not_ready());
    world
        .pod("p1", "10.1.0.1", port(11))
        .pod("p2", "10.1.0.2", port(11))
        .pod("p3", "10.1.0.3", third);
    assert_eq!(
        subsets(&mut world),
        json!([
            {"addresses": ["10.1.0.1", "10.1.0.2"], "ports": [{"name": "a", "port": 11, "protocol": "TCP"}]},
            {
                "addresses": ["10.1.0.1", "10.1.0.2"],
                "notReadyAddresses": ["10.1.0.3"],
                "ports": [{"name": "b", "port": 22, "protocol": "TCP"}],
            },
            {"notReadyAddresses": ["10.1.0.3"], "ports": [{"name": "a", "port": 12, "protocol": "TCP"}]},
        ])
    );
}

#[test]
fn which_pods_are_listed() {
    let mut dying = terminating();
    merge(&mut dying, not_ready());
    for (name, publish, patch, expected) in [
        ("ready", false, json!({}), "addresses"),
        ("not ready", false, not_ready(), "notReadyAddresses"),
        ("terminating", false, terminating(), ""),
        ("published: not ready", true, not_ready(), "addresses"),
        ("published: terminating", true, dying, "addresses"),
        ("finished", true, json!({"status": {"phase": "Failed"}}), ""),
        ("no address", true, json!({"status": {"podIPs": []}}), ""),
        (
            "node unknown",
            false,
            json!({"spec": {"nodeName": "gone"}}),
            "addresses",
        ),
    ] {
        let mut world = World::with(json!({"spec": {"publishNotReadyAddresses": publish}}));
        world.pod("p1", "10.1.0.1", patch);
        let subsets = subsets(&mut world);
        let lists: Vec<_> = subsets[0]
            .as_object()
            .into_iter()
            .flatten()
            .map(|(list, _)| list.as_str())
            .collect();
        assert_eq!(lists.first().copied().unwrap_or(""), expected, "{name}");
    }
}

#[test]
fn the_first_family_is_listed() {
    for (families, expected) in [
        (json!(["IPv4", "IPv6"]), "10.1.0.1"),
        (json!(["IPv6", "IPv4"]), "fd00::1"),
    ] {
        let mut world = World::with(json!({"spec": {"ipFamilies": families}}));
        world.pod(
            "p1",
            "",
            json!({"status": {"podIPs": [{"ip": "10.1.0.1"}, {"ip": "fd00::1"}]}}),
        );
        assert_eq!(subsets(&mut world)[0]["addresses"], json!([expected]));
    }
}

#[test]
fn without_ports_only_a_headless_service_lists_addresses() {
    for (cluster_ip, expected) in [
        ("None", json!([{"addresses": ["10.1.0.1"]}])),
        ("10.0.0.10", json!(null)),
    ] {
        let mut world = World::with(json!({"spec": {"clusterIP": cluster_ip, "ports": []}}));
        world.pod("p1", "10.1.0.1", json!({}));
        assert_eq!(subsets(&mut world), expected);
        let labels = world
            .endpoints
            .as_ref()
            .and_then(|endpoints| endpoints.metadata.labels.as_ref());
        assert_eq!(
            labels.is_some_and(|labels| labels.contains_key(LABEL_HEADLESS)),
            cluster_ip == "None"
        );
    }
}

#[test]
fn another_order_is_no_change() {
    let mut world = World::with(json!({"spec": {"ports": [
        {"name": "a", "port": 1, "targetPort": 11},
        {"name": "b", "port": 2, "targetPort": 22},
    ]}}));
    world
        .pod("p1", "10.1.0.1", json!({}))
        .pod("p2", "10.1.0.2", json!({}))
        .sync_endpoints();
    let subset = &mut world.endpoints.as_mut().unwrap().subsets.as_mut().unwrap()[0];
    subset.ports.as_mut().unwrap().reverse();
    subset.addresses.as_mut().unwrap().reverse();
    subset.addresses.as_mut().unwrap()[0]
        .target_ref
        .as_mut()
        .unwrap()
        .resource_version = Some("9".into());
    assert_eq!(world.plan_endpoints(), EndpointsPlan::Keep);
}

#[test]
fn foreign_labels_and_marks_are_corrected() {
    let mut world = World::new();
    world.pods(1, 1);
    world.sync_endpoints();
    world.endpoints.as_mut().unwrap().metadata.labels = None;
    assert!(matches!(world.plan_endpoints(), EndpointsPlan::Update(_)));
    world.sync_endpoints();
    let meta = &mut world.endpoints.as_mut().unwrap().metadata;
    meta.annotations = Some(
        [(
            ANNOTATION_OVER_CAPACITY.to_string(),
            "truncated".to_string(),
        )]
        .into(),
    );
    world.sync_endpoints();
    assert_eq!(world.endpoints.as_ref().unwrap().metadata.annotations, None);
}

#[test]
fn a_service_that_is_gone_takes_only_this_controllers_object_along() {
    let mut world = World::new();
    world.pods(1, 1);
    world.sync_endpoints();
    world.service = None;
    assert!(matches!(world.plan_endpoints(), EndpointsPlan::Delete(_)));
    world.endpoints.as_mut().unwrap().metadata.labels = None;
    assert_eq!(world.plan_endpoints(), EndpointsPlan::Keep);
}

#[test]
fn without_pods_what_somebody_else_wrote_stands() {
    let mut world = World::new();
    assert_eq!(world.plan_endpoints(), EndpointsPlan::Keep);
    world.pods(1, 1);
    world.sync_endpoints();
    world.endpoints.as_mut().unwrap().metadata.labels = None;
    world.pods.clear();
    assert_eq!(world.plan_endpoints(), EndpointsPlan::Keep);
}

#[test]
fn a_service_without_selector_keeps_its_own_object() {
    let mut world = World::new();
    world.sync_endpoints();
    world.service = Some(service(json!({"spec": {"selector": null}})));
    assert_eq!(world.plan_endpoints(), EndpointsPlan::Keep);
}

/// Ready and not ready Pods, and how many of each are listed.
#[test]
fn no_more_than_a_thousand_addresses() {
    for (ready, not_ready_count, expected) in [
        (1000, 0, (1000, 0, false)),
        (1001, 0, (1000, 0, true)),
        (900, 300, (900, 100, true)),
        (1000, 1, (1000, 0, true)),
        (1200, 300, (1000, 0, true)),
        (0, 1500, (0, 1000, true)),
    ] {
        let mut world = World::new();
        for i in 0..ready + not_ready_count {
            let patch = if i < ready { json!({}) } else { not_ready() };
            world.pod(
                &format!("p{i:04}"),
                &format!("10.1.{}.{}", i / 250, i % 250),
                patch,
            );
        }
        let subsets = subsets(&mut world);
        let count = |list: &str| {
            let lists = subsets
                .as_array()
                .unwrap()
                .iter()
                .filter_map(|subset| subset[list].as_array());
            lists.map(Vec::len).sum::<usize>()
        };
        let annotations = world
            .endpoints
            .as_ref()
            .unwrap()
            .metadata
            .annotations
            .clone()
            .unwrap_or_default();
        let marked = annotations
            .get(ANNOTATION_OVER_CAPACITY)
            .is_some_and(|value| value == "truncated");
        assert_eq!(
            (count("addresses"), count("notReadyAddresses"), marked),
            expected,
            "{ready} and {not_ready_count}"
        );
    }
}

#[test]
fn each_subset_gives_its_share() {
    let mut world =
        World::with(json!({"spec": {"ports": [{"name": "a", "port": 1, "targetPort": "a"}]}}));
    for i in 0..1500 {
        let port = if i < 1000 { 11 } else { 12 };
        let patch = json!({"spec": {"containers": [{"name": "c", "ports": [{"name": "a", "containerPort": port}]}]}});
        world.pod(
            &format!("p{i:04}"),
            &format!("10.1.{}.{}", i / 250, i % 250),
            patch,
        );
    }
    let subsets = subsets(&mut world);
    let sizes: Vec<_> = subsets
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it["addresses"].as_array().unwrap().len())
        .collect();
    assert_eq!(sizes, [667, 333]);
}
