use super::*;

fn conditions(endpoint: &Endpoint) -> [bool; 3] {
    let conditions = endpoint.conditions.as_ref().unwrap();
    [conditions.ready, conditions.serving, conditions.terminating].map(Option::unwrap)
}

#[test]
fn a_new_slice_carries_everything() {
    let mut world =
        World::with(json!({"metadata": {"labels": {"team": "x", LABEL_SERVICE_NAME: "forged"}}}));
    let plan = world.pod("p1", "10.1.0.1", json!({})).plan();
    let slice = serde_json::to_value(&plan.create[0]).unwrap();
    assert_eq!(
        slice,
        json!({
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {
                "generateName": "web-",
                "namespace": "shop",
                "labels": {
                    "team": "x",
                    "kubernetes.io/service-name": "web",
                    "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io",
                },
                "ownerReferences": [{
                    "apiVersion": "v1", "kind": "Service", "name": "web", "uid": "service-1",
                    "controller": true, "blockOwnerDeletion": true,
                }],
            },
            "addressType": "IPv4",
            "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
            "endpoints": [{
                "addresses": ["10.1.0.1"],
                "conditions": {"ready": true, "serving": true, "terminating": false},
                "nodeName": "n1",
                "zone": "east",
                "targetRef": {"kind": "Pod", "namespace": "shop", "name": "p1", "uid": "uid-p1"},
            }],
        })
    );
    assert_eq!(
        (plan.create.len(), plan.update.len(), plan.delete.len()),
        (1, 0, 0)
    );
}

#[test]
fn conditions_follow_readiness_termination_and_publish_not_ready() {
    let ready_and_terminating = terminating();
    let mut dying = terminating();
    merge(&mut dying, not_ready());
    for (name, publish, patch, expected) in [
        ("ready", false, json!({}), [true, true, false]),
        ("not ready", false, not_ready(), [false, false, false]),
        (
            "terminating, still serving",
            false,
            ready_and_terminating.clone(),
            [false, true, true],
        ),
        (
            "terminating, not serving",
            false,
            dying.clone(),
            [false, false, true],
        ),
        (
            "no condition",
            false,
            json!({"status": {"conditions": []}}),
            [false, false, false],
        ),
        (
            "published though not ready",
            true,
            not_ready(),
            [true, false, false],
        ),
        (
            "published though terminating",
            true,
            ready_and_terminating,
            [true, true, true],
        ),
        ("published though dying", true, dying, [true, false, true]),
    ] {
        let mut world = World::with(json!({"spec": {"publishNotReadyAddresses": publish}}));
        world.pod("p1", "10.1.0.1", patch).sync();
        assert_eq!(conditions(world.only_endpoint()), expected, "{name}");
    }
}

#[test]
fn pods_that_cannot_serve_have_no_endpoint() {
    for (name, patch) in [
        ("no address", json!({"status": {"podIPs": []}})),
        (
            "garbage for an address",
            json!({"status": {"podIPs": [{"ip": "nonsense"}]}}),
        ),
        ("succeeded", json!({"status": {"phase": "Succeeded"}})),
        ("failed", json!({"status": {"phase": "Failed"}})),
        (
            "other labels",
            json!({"metadata": {"labels": {"app": "b"}}}),
        ),
        (
            "other namespace",
            json!({"metadata": {"namespace": "other"}}),
        ),
        ("not scheduled", json!({"spec": {"nodeName": null}})),
        ("node does not exist", json!({"spec": {"nodeName": "gone"}})),
        (
            "other family",
            json!({"status": {"podIPs": [{"ip": "fd00::1"}]}}),
        ),
    ] {
        let mut world = World::new();
        world.pod("p1", "10.1.0.1", patch).sync();
        assert!(world.sizes().is_empty(), "{name}");
    }
}

#[test]
fn a_pod_on_a_missing_node_is_published_where_the_service_asks_for_all() {
    let mut world = World::with(json!({"spec": {"publishNotReadyAddresses": true}}));
    world
        .pod("p1", "10.1.0.1", json!({"spec": {"nodeName": "gone"}}))
        .sync();
    assert_eq!(world.only_endpoint().node_name.as_deref(), Some("gone"));
    assert_eq!(world.only_endpoint().zone, None);
}

#[test]
fn addresses_are_written_in_canonical_form() {
    for (given, family, expected) in [
        ("010.001.000.001", "IPv4", "10.1.0.1"),
        ("::ffff:10.1.0.1", "IPv4", "10.1.0.1"),
        ("FD00:0:0::0001", "IPv6", "fd00::1"),
    ] {
        let mut world = World::with(json!({"spec": {"ipFamilies": [family]}}));
        world.pod("p1", given, json!({})).sync();
        assert_eq!(world.only_endpoint().addresses, [expected], "{given}");
    }
}

#[test]
fn the_single_address_field_counts_where_the_list_is_empty() {
    let mut world = World::new();
    world
        .pod(
            "p1",
            "",
            json!({"status": {"podIPs": null, "podIP": "10.1.0.7"}}),
        )
        .sync();
    assert_eq!(world.only_endpoint().addresses, ["10.1.0.7"]);
}

#[test]
fn families_of_a_service() {
    let both = json!([{"ip": "10.1.0.1"}, {"ip": "fd00::1"}]);
    for (name, patch, expected) in [
        ("IPv4", json!({"ipFamilies": ["IPv4"]}), vec!["IPv4"]),
        ("IPv6", json!({"ipFamilies": ["IPv6"]}), vec!["IPv6"]),
        (
            "dual",
            json!({"ipFamilies": ["IPv6", "IPv4"]}),
            vec!["IPv4", "IPv6"],
        ),
        (
            "not listed, IPv4 address",
            json!({"ipFamilies": null}),
            vec!["IPv4"],
        ),
        (
            "not listed, IPv6 address",
            json!({"ipFamilies": null, "clusterIP": "fd00:1::1"}),
            vec!["IPv6"],
        ),
        (
            "not listed, headless",
            json!({"ipFamilies": null, "clusterIP": "None"}),
            vec!["IPv4", "IPv6"],
        ),
    ] {
        let mut world = World::with(json!({"spec": patch}));
        world
            .pod("p1", "", json!({"status": {"podIPs": both}}))
            .sync();
        let mut types: Vec<_> = world
            .slices
            .values()
            .map(|slice| slice.address_type.as_str())
            .collect();
        types.sort_unstable();
        assert_eq!(types, expected, "{name}");
        assert!(
            world
                .slices
                .values()
                .all(|slice| slice.endpoints.as_ref().unwrap().len() == 1),
            "{name}"
        );
        assert!(world.plan().is_empty(), "{name}");
    }
}

#[test]
fn a_dual_stack_service_has_no_slice_of_the_family_its_pods_lack() {
    let mut world = World::with(json!({"spec": {"ipFamilies": ["IPv4", "IPv6"]}}));
    world.pod("p1", "10.1.0.1", json!({})).sync();
    assert_eq!(world.sizes(), [1]);
    assert!(world.plan().is_empty());
}

#[test]
fn slices_of_a_family_the_service_lost_are_deleted() {
    let mut world = World::with(json!({"spec": {"ipFamilies": ["IPv4", "IPv6"]}}));
    world
        .pod(
            "p1",
            "",
            json!({"status": {"podIPs": [{"ip": "10.1.0.1"}, {"ip": "fd00::1"}]}}),
        )
        .sync();
    world.service = Some(service(json!({})));
    let plan = world.sync();
    assert_eq!(
        (plan.create.len(), plan.update.len(), plan.delete.len()),
        (0, 0, 1)
    );
    assert_eq!(world.only_slice().address_type, "IPv4");
}

#[test]
fn named_target_ports_are_resolved_per_pod() {
    let mut world = World::with(json!({"spec": {"ports": [
        {"name": "http", "port": 80, "targetPort": "web", "protocol": "TCP"},
        {"name": "dns", "port": 53, "targetPort": "dns", "protocol": "UDP"},
    ]}}));
    let ports = |ports: Value| json!({"spec": {"containers": [{"name": "c", "ports": ports}]}});
    world.pod(
        "p1",
        "10.1.0.1",
        ports(json!([{"name": "web", "containerPort": 8080}])),
    );
    world.pod(
        "p2",
        "10.1.0.2",
        ports(json!([{"name": "web", "containerPort": 9090}])),
    );
    world.pod(
        "p3",
        "10.1.0.3",
        ports(json!([{"name": "web", "containerPort": 8080, "protocol": "TCP"}])),
    );
    world.pod(
        "p4",
        "10.1.0.4",
        ports(json!([{"name": "dns", "containerPort": 5353, "protocol": "TCP"}])),
    );
    world.pod(
        "p5",
        "10.1.0.5",
        json!({"spec": {"initContainers": [
            {"name": "once", "ports": [{"name": "web", "containerPort": 1}]},
            {"name": "sidecar", "restartPolicy": "Always", "ports": [{"name": "web", "containerPort": 7070}]},
        ]}}),
    );
    world.sync();
    let mut found: Vec<(Vec<i32>, usize)> = world
        .slices
        .values()
        .map(|slice| {
            let ports = slice
                .ports
                .iter()
                .flatten()
                .filter_map(|port| port.port)
                .collect();
            (ports, slice.endpoints.as_ref().unwrap().len())
        })
        .collect();
    found.sort_unstable();
    // p4 has a port of that name with another protocol: it is listed without ports.
    assert_eq!(
        found,
        [
            (vec![], 1),
            (vec![7070], 1),
            (vec![8080], 2),
            (vec![9090], 1)
        ]
    );
    assert!(world.plan().is_empty());
}

#[test]
fn a_headless_service_may_have_no_ports() {
    let mut world = World::with(json!({"spec": {"clusterIP": "None", "ports": []}}));
    world.pod("p1", "10.1.0.1", json!({})).sync();
    let slice = world.only_slice();
    assert_eq!(slice.ports.as_deref(), Some([].as_slice()));
    assert_eq!(
        slice
            .metadata
            .labels
            .as_ref()
            .unwrap()
            .get(LABEL_HEADLESS)
            .map(String::as_str),
        Some("")
    );
    assert_eq!(world.only_endpoint().addresses, ["10.1.0.1"]);
    assert!(world.plan().is_empty());
}

#[test]
fn a_hostname_is_published_in_its_subdomain_only() {
    for (name, spec, expected) in [
        (
            "subdomain is the service",
            json!({"hostname": "h", "subdomain": "web"}),
            Some("h"),
        ),
        (
            "another subdomain",
            json!({"hostname": "h", "subdomain": "db"}),
            None,
        ),
        ("no subdomain", json!({"hostname": "h"}), None),
        ("no hostname", json!({"subdomain": "web"}), None),
    ] {
        let mut world = World::new();
        world.pod("p1", "10.1.0.1", json!({"spec": spec})).sync();
        assert_eq!(
            world.only_endpoint().hostname.as_deref(),
            expected,
            "{name}"
        );
    }
}

#[test]
fn host_network_pods_share_an_address() {
    let mut world = World::new();
    let host = json!({"spec": {"hostNetwork": true}});
    world
        .pod("p1", "192.0.2.1", host.clone())
        .pod("p2", "192.0.2.1", host)
        .sync();
    assert_eq!(world.sizes(), [2]);
    assert!(world.plan().is_empty());
}

#[test]
fn hints_follow_the_traffic_distribution() {
    let zone = json!({"forZones": [{"name": "east"}]});
    let both = json!({"forZones": [{"name": "east"}], "forNodes": [{"name": "n1"}]});
    let auto = json!({"service.kubernetes.io/topology-mode": "Auto"});
    for (name, distribution, annotations, patch, expected) in [
        ("none", json!(null), json!({}), json!({}), json!(null)),
        (
            "PreferClose",
            json!("PreferClose"),
            json!({}),
            json!({}),
            zone.clone(),
        ),
        (
            "PreferSameZone",
            json!("PreferSameZone"),
            json!({}),
            json!({}),
            zone,
        ),
        (
            "PreferSameNode",
            json!("PreferSameNode"),
            json!({}),
            json!({}),
            both,
        ),
        (
            "unknown",
            json!("PreferFar"),
            json!({}),
            json!({}),
            json!(null),
        ),
        (
            "not ready",
            json!("PreferClose"),
            json!({}),
            not_ready(),
            json!(null),
        ),
        (
            "annotation wins",
            json!("PreferClose"),
            auto,
            json!({}),
            json!(null),
        ),
    ] {
        let mut world = World::with(
            json!({"metadata": {"annotations": annotations}, "spec": {"trafficDistribution": distribution}}),
        );
        world.pod("p1", "10.1.0.1", patch).sync();
        assert_eq!(
            serde_json::to_value(&world.only_endpoint().hints).unwrap(),
            expected,
            "{name}"
        );
        assert!(world.plan().is_empty(), "{name}");
    }
}

#[test]
fn without_a_zone_there_is_no_zone_hint() {
    let mut world = World::with(json!({"spec": {"trafficDistribution": "PreferClose"}}));
    world.nodes.insert("n1".into(), node("n1", None));
    world.pod("p1", "10.1.0.1", json!({})).sync();
    assert_eq!(world.only_endpoint().hints, None);
}

#[test]
fn hints_come_and_go_in_one_update() {
    let mut world = World::new();
    world.pod("p1", "10.1.0.1", json!({})).sync();
    world.service = Some(service(
        json!({"spec": {"trafficDistribution": "PreferClose"}}),
    ));
    assert_eq!(world.sync().update.len(), 1);
    assert!(world.only_endpoint().hints.is_some());
    world.service = Some(service(json!({})));
    assert_eq!(world.sync().update.len(), 1);
    assert_eq!(world.only_endpoint().hints, None);
}

#[test]
fn services_that_are_left_alone() {
    for (name, patch) in [
        ("no selector", json!({"spec": {"selector": null}})),
        (
            "empty selector",
            json!({"spec": {"selector": {"app": null}}}),
        ),
        ("ExternalName", json!({"spec": {"type": "ExternalName"}})),
    ] {
        let mut world = World::new();
        world.pod("p1", "10.1.0.1", json!({})).sync();
        world.service = Some(service(patch));
        world.pods.clear();
        assert!(world.plan().is_empty(), "{name}");
    }
}

#[test]
fn slices_of_other_managers_are_not_touched() {
    let mut world = World::new();
    world.pod("p1", "10.1.0.1", json!({})).sync();
    let mut foreign = world.only_slice().clone();
    foreign.metadata.uid = None;
    foreign
        .metadata
        .labels
        .as_mut()
        .unwrap()
        .insert(LABEL_SLICE_MANAGED_BY.into(), "me".into());
    world.store("foreign", foreign);
    assert!(world.plan().is_empty());
    world.service = None;
    world.sync();
    assert_eq!(world.slices.keys().collect::<Vec<_>>(), ["foreign"]);
}

#[test]
fn a_deleted_service_takes_its_slices_along() {
    let mut world = World::with(json!({"spec": {"ipFamilies": ["IPv4", "IPv6"]}}));
    world
        .pod(
            "p1",
            "",
            json!({"status": {"podIPs": [{"ip": "10.1.0.1"}, {"ip": "fd00::1"}]}}),
        )
        .sync();
    world.service = None;
    assert_eq!(world.sync().delete.len(), 2);
    assert!(world.slices.is_empty() && world.plan().is_empty());
}

#[test]
fn slices_of_an_earlier_service_of_the_same_name_are_replaced_not_reused() {
    let mut world = World::new();
    world.pod("p1", "10.1.0.1", json!({})).sync();
    world.service = Some(service(json!({"metadata": {"uid": "service-2"}})));
    let plan = world.sync();
    assert_eq!(
        (plan.create.len(), plan.update.len(), plan.delete.len()),
        (1, 0, 1)
    );
    assert!(world.plan().is_empty());
}

#[test]
fn a_service_on_its_way_out_gets_no_new_slices() {
    let mut world = World::with(terminating());
    assert!(world.pod("p1", "10.1.0.1", json!({})).plan().is_empty());
}

#[test]
fn slices_on_their_way_out_hold_nothing() {
    let mut world = World::new();
    world.pod("p1", "10.1.0.1", json!({})).sync();
    let slice = world.slices.values_mut().next().unwrap();
    slice.metadata.deletion_timestamp =
        serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
    assert_eq!(world.plan().create.len(), 1);
    assert!(world.plan().delete.is_empty());
}

#[test]
fn labels_of_the_service_are_kept_in_step() {
    for pods in [0, 1] {
        let mut world = World::with(json!({"metadata": {"labels": {"team": "x"}}}));
        world.pods(1, 1);
        world.sync();
        if pods == 0 {
            world.pods.clear();
            world.sync();
        }
        world.service = Some(service(json!({"metadata": {"labels": {"team": "y"}}})));
        let plan = world.sync();
        assert_eq!(
            (plan.create.len(), plan.update.len(), plan.delete.len()),
            (0, 1, 0),
            "{pods} pods"
        );
        assert_eq!(
            world.only_slice().metadata.labels.as_ref().unwrap()["team"],
            "y"
        );
        assert!(world.plan().is_empty());
    }
}

#[test]
fn a_slice_that_empties_stays_and_is_used_again() {
    let mut world = World::new();
    world.pods(1, 1);
    world.sync();
    for change in [false, true, false] {
        match change {
            true => world.pods(1, 1),
            false => world.pods.clear(),
        }
        let plan = world.sync();
        assert_eq!(
            (plan.create.len(), plan.update.len(), plan.delete.len()),
            (0, 1, 0)
        );
    }
    assert_eq!(world.sizes(), [0]);
    assert_eq!(
        world.only_slice().ports.as_deref(),
        Some([].as_slice()),
        "a placeholder has no ports"
    );
    assert!(world.plan().is_empty());
}

#[test]
fn a_change_of_ports_updates_slices_in_place() {
    let mut world = World::new();
    world.max_per_slice = 2;
    world.pods(1, 4);
    world.sync();
    world.service = Some(service(
        json!({"spec": {"ports": [{"name": "http", "port": 81, "targetPort": 81}]}}),
    ));
    let plan = world.sync();
    assert_eq!(
        (plan.create.len(), plan.update.len(), plan.delete.len()),
        (0, 2, 0)
    );
    assert_eq!(world.sizes(), [2, 2]);
}

#[test]
fn versions_of_pods_in_references_are_no_change() {
    let mut world = World::new();
    world.pod("p1", "10.1.0.1", json!({})).sync();
    let endpoint = &mut world
        .slices
        .values_mut()
        .next()
        .unwrap()
        .endpoints
        .as_mut()
        .unwrap()[0];
    endpoint.target_ref.as_mut().unwrap().resource_version = Some("17".into());
    assert!(world.plan().is_empty());
}

#[test]
fn defaults_left_out_by_another_writer_are_no_change() {
    let mut world = World::with(json!({"spec": {"ports": [{"port": 80, "targetPort": 8080}]}}));
    world.pod("p1", "10.1.0.1", json!({})).sync();
    let slice = world.slices.values_mut().next().unwrap();
    slice.ports = serde_json::from_value(json!([{"port": 8080}])).unwrap();
    assert!(world.plan().is_empty());
}

#[test]
fn somebody_elses_edit_is_undone() {
    let mut world = World::new();
    world.pod("p1", "10.1.0.1", json!({})).sync();
    let slice = world.slices.values_mut().next().unwrap();
    let mut extra = slice.endpoints.as_ref().unwrap()[0].clone();
    extra.addresses = vec!["203.0.113.9".into()];
    slice.endpoints.as_mut().unwrap().push(extra);
    assert_eq!(world.sync().update.len(), 1);
    assert_eq!(world.only_endpoint().addresses, ["10.1.0.1"]);
}

#[test]
fn one_endpoint_in_two_slices_is_removed_from_one() {
    let mut world = World::new();
    world.pod("p1", "10.1.0.1", json!({})).sync();
    let mut copy = world.only_slice().clone();
    copy.metadata.uid = None;
    world.store("web-copy", copy);
    assert_eq!(world.sync().delete.len(), 1);
    assert_eq!(world.sizes(), [1]);
}

/// Sizes of the existing slices, Pods removed from and added to them, writes, sizes after.
#[test]
fn placement_makes_the_fewest_writes() {
    for (name, sizes, removed, added, writes, after) in [
        ("new", vec![], 0, 25, (3, 0, 0), vec![5, 10, 10]),
        (
            "fits into one that is not full",
            vec![7, 9],
            0,
            1,
            (0, 1, 0),
            vec![7, 10],
        ),
        (
            "fits into the fuller one only",
            vec![3, 7],
            0,
            3,
            (0, 1, 0),
            vec![3, 10],
        ),
        (
            "fits into none alone: a new one",
            vec![8, 8],
            0,
            3,
            (1, 0, 0),
            vec![3, 8, 8],
        ),
        (
            "more than a slice: full new ones first",
            vec![8],
            0,
            12,
            (1, 1, 0),
            vec![10, 10],
        ),
        (
            "a removed one leaves a hole",
            vec![10, 10],
            1,
            0,
            (0, 1, 0),
            vec![9, 10],
        ),
        (
            "what changes is filled first",
            vec![10, 9],
            1,
            1,
            (0, 1, 0),
            vec![9, 10],
        ),
        (
            "what changes is filled, the rest is new",
            vec![10, 10],
            1,
            4,
            (1, 1, 0),
            vec![3, 10, 10],
        ),
        (
            "an emptied slice goes",
            vec![1, 10],
            1,
            0,
            (0, 0, 1),
            vec![10],
        ),
        (
            "an emptied slice is reused",
            vec![10, 10],
            10,
            3,
            (0, 1, 0),
            vec![3, 10],
        ),
        (
            "slices are not merged",
            vec![2, 2, 2],
            0,
            0,
            (0, 0, 0),
            vec![2, 2, 2],
        ),
    ] {
        let mut world = World::new();
        world.max_per_slice = 10;
        build_slices(&mut world, &sizes);
        (0..removed).for_each(|i| drop(world.pods.remove(&format!("s0-{i}"))));
        world.pods(9, added);
        let plan = world.sync();
        assert_eq!(
            (plan.create.len(), plan.update.len(), plan.delete.len()),
            writes,
            "{name}"
        );
        assert_eq!(world.sizes(), after, "{name}");
        assert!(world.plan().is_empty(), "{name}");
    }
}

fn build_slices(world: &mut World, sizes: &[usize]) {
    for (s, size) in sizes.iter().enumerate() {
        let mut alone = World {
            max_per_slice: 10,
            ..World::new()
        };
        for i in 0..*size {
            let name = format!("s{s}-{i}");
            alone.pod(&name, &format!("10.{s}.1.{i}"), json!({}));
            world.pods.insert(name.clone(), alone.pods[&name].clone());
        }
        alone.sync();
        let slice = EndpointSlice {
            metadata: ObjectMeta {
                uid: None,
                ..alone.only_slice().metadata.clone()
            },
            ..alone.only_slice().clone()
        };
        world.store(&format!("web-s{s}"), slice);
    }
}

#[test]
fn a_slice_over_the_limit_is_split() {
    let mut world = World::new();
    world.pods(1, 30);
    world.sync();
    world.max_per_slice = 10;
    world.sync();
    assert_eq!(world.sizes(), [10, 10, 10]);
}

#[test]
fn the_trigger_time_is_set_on_writes_and_cleared_when_unknown() {
    let mut world = World::new();
    world.pod("p1", "10.1.0.1", json!({}));
    let time = "2026-01-01T00:00:01.5Z".parse().unwrap();
    let index = world.index();
    let created = plan(&index.snapshot(&web()), 100, Some(time))
        .create
        .remove(0);
    assert_eq!(
        created.metadata.annotations.as_ref().unwrap()[ANNOTATION_TRIGGER_TIME],
        "2026-01-01T00:00:01.5Z"
    );
    world.store("web-1", created);
    assert!(
        world.plan().is_empty(),
        "a time alone is no reason to write"
    );
    world.pod("p1", "10.1.0.1", not_ready()).sync();
    assert_eq!(world.only_slice().metadata.annotations, None);
}
