use super::*;
use portico_model::pools::{Announce, LabelSelector};
use portico_model::table::PerFamily;
use proptest::prelude::*;
use serde_json::json;

const VIP: &str = "192.0.2.10";

fn plan() -> Plan {
    let mut plan = Plan::new("a".into());
    for name in ["a", "b", "c"] {
        plan.set_node(name, Some(node(&[("rack", name)])));
    }
    plan.set_pool("pool", Some((1, &pool(json!({})))));
    plan
}

fn node(labels: &[(&str, &str)]) -> NodeFacts {
    let labels = labels
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
        .collect();
    NodeFacts {
        labels,
        addresses: vec!["10.0.0.1".parse().unwrap()],
        leaving: false,
    }
}

fn leaving() -> Option<NodeFacts> {
    Some(NodeFacts {
        leaving: true,
        ..node(&[])
    })
}

fn pool(extra: serde_json::Value) -> AddressPoolSpec {
    let mut spec = json!({"addresses": ["192.0.2.0/24", "2001:db8::/64"]});
    spec.as_object_mut()
        .unwrap()
        .extend(extra.as_object().unwrap().clone());
    serde_json::from_value(spec).unwrap()
}

fn name(name: &str) -> ObjectKey {
    ObjectKey::new("default", name)
}

fn ip(address: &str) -> IpAddr {
    address.parse().unwrap()
}

fn names(nodes: &[&str]) -> Box<[Arc<str>]> {
    nodes.iter().map(|node| Arc::from(*node)).collect()
}

/// Served by all nodes.
fn cluster(address: &str) -> Option<Arc<Announceable>> {
    let served = PerFamily { v4: true, v6: true };
    Some(Arc::new(Announceable {
        addresses: [ip(address)].into(),
        served,
        ..Announceable::default()
    }))
}

/// Served by these.
fn local(address: &str, nodes: &[&str]) -> Option<Arc<Announceable>> {
    let served = PerFamily {
        v4: !nodes.is_empty(),
        v6: !nodes.is_empty(),
    };
    let nodes = PerFamily {
        v4: names(nodes),
        v6: names(nodes),
    };
    Some(Arc::new(Announceable {
        addresses: [ip(address)].into(),
        local: true,
        served,
        nodes,
    }))
}

fn share(nodes: Option<&[&str]>) -> Option<Arc<Share>> {
    let nodes = nodes.map(|nodes| names(nodes).into());
    Some(Arc::new(Share {
        nodes,
        interfaces: Arc::default(),
    }))
}

fn route() -> Option<Arc<PoolBgp>> {
    Some(Arc::new(PoolBgp::default()))
}

fn both(address: &str, share: Option<Arc<Share>>, route: Option<Arc<PoolBgp>>) -> Changes {
    Changes {
        shares: vec![(ip(address), share)],
        routes: vec![(ip(address), route)],
    }
}

#[test]
fn an_address_in_a_pool_is_announced_by_all_and_one_in_none_is_not() {
    let mut plan = plan();
    plan.set_service(name("web"), cluster(VIP));
    plan.set_service(name("six"), cluster("2001:db8::7"));
    plan.set_service(name("other"), cluster("198.51.100.1"));
    let changes = plan.take();
    assert_eq!(
        changes.shares,
        [(ip(VIP), share(None)), (ip("2001:db8::7"), share(None))]
    );
    assert_eq!(
        changes.routes,
        [(ip(VIP), route()), (ip("2001:db8::7"), route())]
    );
    assert_eq!(plan.take(), Changes::default());
    plan.set_service(name("web"), None);
    assert_eq!(plan.take(), both(VIP, None, None));
    assert!(!plan.addresses.contains_key(&ip(VIP)));
}

#[test]
fn an_address_without_endpoints_is_not_announced() {
    let mut plan = plan();
    let unserved = Announceable {
        addresses: [ip(VIP)].into(),
        ..Announceable::default()
    };
    plan.set_service(name("web"), Some(Arc::new(unserved)));
    assert_eq!(plan.take(), Changes::default());
    plan.set_service(name("web"), cluster(VIP));
    assert_eq!(plan.take(), both(VIP, share(None), route()));
    // Each family has its own.
    let only_v6 = PerFamily {
        v4: false,
        v6: true,
    };
    let service = Announceable {
        addresses: [ip(VIP), ip("2001:db8::7")].into(),
        served: only_v6,
        ..Announceable::default()
    };
    plan.set_service(name("web"), Some(Arc::new(service)));
    let changes = plan.take();
    assert_eq!(
        changes.routes,
        [(ip(VIP), None), (ip("2001:db8::7"), route())]
    );
}

#[test]
fn local_is_announced_where_endpoints_are() {
    let mut plan = plan();
    plan.set_service(name("web"), local(VIP, &["b", "c"]));
    assert_eq!(
        plan.take(),
        Changes {
            shares: vec![(ip(VIP), share(Some(&["b", "c"])))],
            routes: vec![]
        }
    );
    plan.set_service(name("web"), local(VIP, &["a"]));
    assert_eq!(plan.take(), both(VIP, share(Some(&["a"])), route()));
    plan.set_service(name("web"), local(VIP, &[]));
    assert_eq!(plan.take(), both(VIP, None, None));
}

#[test]
fn a_pool_chooses_nodes_by_their_labels() {
    let mut plan = plan();
    let of_racks = json!({"nodeSelector": {"matchExpressions": [{"key": "rack", "operator": "In", "values": ["b", "c"]}]}});
    plan.set_pool("pool", Some((1, &pool(of_racks))));
    plan.set_service(name("web"), cluster(VIP));
    plan.set_service(name("near"), local("192.0.2.11", &["a", "c"]));
    let changes = plan.take();
    let expected = [
        (ip(VIP), share(Some(&["b", "c"]))),
        (ip("192.0.2.11"), share(Some(&["c"]))),
    ];
    assert_eq!(
        (changes.shares.as_slice(), changes.routes.as_slice()),
        (&expected[..], &[][..])
    );
    // A label moves this node into the pool, and another one out of it.
    plan.set_node("a", Some(node(&[("rack", "b")])));
    plan.set_node("c", None);
    let changes = plan.take();
    assert_eq!(
        changes.shares,
        [
            (ip(VIP), share(Some(&["a", "b"]))),
            (ip("192.0.2.11"), share(Some(&["a"])))
        ]
    );
    assert_eq!(
        changes.routes,
        [(ip(VIP), route()), (ip("192.0.2.11"), route())]
    );
    // One that no pool asks for is no news.
    plan.set_node("b", Some(node(&[("rack", "b"), ("disk", "ssd")])));
    assert_eq!(plan.take(), Changes::default());
}

#[test]
fn a_node_that_leaves_takes_its_routes_back_and_is_no_peer() {
    let mut plan = plan();
    plan.set_service(name("web"), cluster(VIP));
    plan.take();
    assert!(plan.set_node("b", leaving()), "the peers are others");
    assert_eq!(
        plan.take(),
        Changes::default(),
        "layer 2 knows by its members, routes are everybody's own"
    );
    assert!(plan.set_node("a", leaving()));
    assert_eq!(
        plan.take(),
        Changes {
            shares: vec![],
            routes: vec![(ip(VIP), None)]
        }
    );
    assert_eq!(
        plan.peers().keys().map(|name| &**name).collect::<Vec<_>>(),
        ["c"]
    );
    assert!(plan.set_node("a", Some(node(&[]))));
    assert_eq!(plan.take().routes, [(ip(VIP), route())]);
    assert!(
        plan.set_node("a", Some(node(&[("new", "label")]))),
        "its own labels choose routers"
    );
    assert!(
        !plan.set_node("c", Some(node(&[("new", "label")]))),
        "those of others do not"
    );
}

#[test]
fn a_node_that_nobody_knows_announces_nothing() {
    let mut plan = Plan::new("stranger".into());
    plan.set_pool("pool", Some((1, &pool(json!({})))));
    plan.set_service(name("web"), cluster(VIP));
    assert_eq!(plan.take().routes, []);
}

#[test]
fn a_pool_says_how() {
    let mut plan = plan();
    plan.set_service(name("web"), cluster(VIP));
    plan.take();
    plan.set_pool(
        "pool",
        Some((
            1,
            &pool(json!({"announce": ["Layer2"], "interfaces": ["eth*"]})),
        )),
    );
    let interfaces = vec!["eth*".to_owned()].into();
    assert_eq!(
        plan.take(),
        both(
            VIP,
            Some(Arc::new(Share {
                nodes: None,
                interfaces
            })),
            None
        )
    );
    let policy = PoolBgp {
        communities: vec!["64512:1".into()],
        ..PoolBgp::default()
    };
    plan.set_pool(
        "pool",
        Some((
            1,
            &AddressPoolSpec {
                announce: vec![Announce::Bgp],
                bgp: Some(policy.clone()),
                ..pool(json!({}))
            },
        )),
    );
    assert!(!plan.has_layer2());
    assert_eq!(plan.take(), both(VIP, None, Some(Arc::new(policy))));
    plan.set_pool("pool", None);
    assert_eq!(
        plan.take(),
        Changes {
            shares: vec![],
            routes: vec![(ip(VIP), None)]
        }
    );
}

#[test]
fn where_pools_overlap_the_older_one_decides() {
    let mut plan = plan();
    plan.set_service(name("web"), cluster(VIP));
    plan.take();
    let quiet = pool(json!({"announce": ["BGP"], "bgp": {"localPreference": 7}}));
    plan.set_pool("younger", Some((2, &quiet)));
    assert_eq!(plan.take(), Changes::default());
    plan.set_pool("pool", None);
    let policy = quiet.bgp.clone().map(Arc::new);
    assert_eq!(plan.take(), both(VIP, None, policy));
}

#[test]
fn services_that_share_an_address_share_its_nodes() {
    let mut plan = plan();
    plan.set_service(name("http"), local(VIP, &["a", "b"]));
    plan.set_service(name("https"), local(VIP, &["b", "c"]));
    assert_eq!(plan.take().shares, [(ip(VIP), share(Some(&["b"])))]);
    // Better a node for one of them than none for both; a Service without endpoints does not count.
    plan.set_service(name("https"), local(VIP, &["c"]));
    assert_eq!(
        plan.take().shares,
        [(ip(VIP), share(Some(&["a", "b", "c"])))]
    );
    plan.set_service(name("https"), local(VIP, &[]));
    assert_eq!(plan.take().shares, [(ip(VIP), share(Some(&["a", "b"])))]);
    plan.set_service(name("https"), cluster(VIP));
    assert_eq!(plan.take(), Changes::default());
    plan.set_service(name("http"), None);
    assert_eq!(plan.take().shares, [(ip(VIP), share(None))]);
}

#[derive(Clone, Debug)]
enum Step {
    Service(u8, Option<Arc<Announceable>>),
    Node(u8, Option<NodeFacts>),
    Pool(u8, Option<Box<AddressPoolSpec>>),
    Take,
}

fn any_step() -> impl Strategy<Value = Step> {
    let address = || (0..6u8).prop_map(|last| format!("192.0.2.{last}"));
    let nodes = || proptest::sample::subsequence(vec!["a", "b", "c"], 0..=3);
    let service = prop_oneof![
        1 => Just(None),
        2 => address().prop_map(|address| cluster(&address)),
        3 => (address(), nodes()).prop_map(|(address, nodes)| local(&address, &nodes)),
    ];
    let facts = (0..2u8, any::<bool>()).prop_map(|(rack, leaving)| NodeFacts {
        leaving,
        ..node(&[("rack", &rack.to_string())])
    });
    let range = prop_oneof![
        Just("192.0.2.0/30"),
        Just("192.0.2.2-192.0.2.5"),
        Just("192.0.2.1/32")
    ];
    let announce = proptest::sample::subsequence(vec![Announce::Layer2, Announce::Bgp], 0..=2);
    let selector = proptest::option::of((0..2u8).prop_map(|rack| LabelSelector {
        match_labels: [("rack".to_owned(), rack.to_string())].into(),
        ..LabelSelector::default()
    }));
    let pool =
        (range, announce, selector).prop_map(|(range, announce, node_selector)| AddressPoolSpec {
            addresses: vec![range.to_owned()],
            announce,
            node_selector,
            ..AddressPoolSpec::default()
        });
    prop_oneof![
        4 => (0..4u8, service).prop_map(|(n, service)| Step::Service(n, service)),
        2 => (0..3u8, proptest::option::weighted(0.8, facts)).prop_map(|(n, facts)| Step::Node(n, facts)),
        2 => (0..3u8, proptest::option::weighted(0.8, pool)).prop_map(|(n, pool)| Step::Pool(n, pool.map(Box::new))),
        2 => Just(Step::Take),
    ]
}

fn apply(plan: &mut Plan, step: &Step) {
    match step {
        Step::Service(n, service) => plan.set_service(name(&n.to_string()), service.clone()),
        Step::Node(n, facts) => _ = plan.set_node(["a", "b", "c"][usize::from(*n)], facts.clone()),
        Step::Pool(n, pool) => plan.set_pool(
            &n.to_string(),
            pool.as_ref().map(|pool| (i64::from(3 - n), &**pool)),
        ),
        Step::Take => {}
    }
}

/// The last step for each thing.
fn last_steps(steps: &[Step]) -> Vec<&Step> {
    let mut last = BTreeMap::new();
    for step in steps {
        match step {
            Step::Service(n, _) => last.insert((0, *n), step),
            Step::Node(n, _) => last.insert((1, *n), step),
            Step::Pool(n, _) => last.insert((2, *n), step),
            Step::Take => None,
        };
    }
    last.into_values().collect()
}

fn follow<V: Clone + PartialEq + std::fmt::Debug>(
    known: &mut BTreeMap<IpAddr, V>,
    changes: Vec<(IpAddr, Option<V>)>,
) {
    for (address, now) in changes {
        assert_ne!(known.get(&address), now.as_ref());
        match now {
            Some(now) => known.insert(address, now),
            None => known.remove(&address),
        };
    }
}

proptest! {
    #[test]
    fn any_sequence_of_changes_ends_where_planning_from_scratch_does(steps in proptest::collection::vec(any_step(), 0..40)) {
        let (mut plan, mut shares, mut routes) = (Plan::new("a".into()), BTreeMap::new(), BTreeMap::new());
        for step in steps.iter().chain([&Step::Take]) {
            apply(&mut plan, step);
            if matches!(step, Step::Take) {
                let changes = plan.take();
                follow(&mut shares, changes.shares);
                follow(&mut routes, changes.routes);
            }
        }
        let mut scratch = Plan::new("a".into());
        last_steps(&steps).into_iter().for_each(|step| apply(&mut scratch, step));
        let all = scratch.take();
        prop_assert_eq!(shares.into_iter().map(|(address, share)| (address, Some(share))).collect::<Vec<_>>(), all.shares);
        prop_assert_eq!(routes.into_iter().map(|(address, route)| (address, Some(route))).collect::<Vec<_>>(), all.routes);
        prop_assert_eq!(plan.peers(), scratch.peers());
    }
}
