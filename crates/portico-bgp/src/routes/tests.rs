use super::*;

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn net(text: &str) -> IpNet {
    text.parse().unwrap()
}

fn policy(
    communities: &[&str],
    local_preference: Option<u32>,
    aggregation_v4: u8,
    peers: &[&str],
) -> Arc<Policy> {
    let communities = Communities::parse(communities.iter().copied()).unwrap();
    let attributes = Arc::new(Attributes {
        communities,
        local_preference,
    });
    let peers = peers.iter().map(|peer| (*peer).to_owned()).collect();
    Arc::new(Policy {
        attributes,
        aggregation_v4,
        aggregation_v6: 64,
        peers,
    })
}

/// What a peer hears, in short.
fn heard(table: &Table, peer: &str) -> Vec<String> {
    let one = |(prefix, route): Change| {
        let route = route.unwrap();
        let communities: Vec<String> = route
            .communities
            .small
            .iter()
            .map(ToString::to_string)
            .collect();
        let preference = route
            .local_preference
            .map(|preference| format!(" at {preference}"))
            .unwrap_or_default();
        format!("{prefix} {}{preference}", communities.join(","))
            .replace("  ", " ")
            .trim_end()
            .to_owned()
    };
    table.routes(peer).into_iter().map(one).collect()
}

#[test]
fn addresses_are_routes_of_their_own_unless_aggregated() {
    let mut table = Table::default();
    table.set(ip("203.0.113.1"), vec![policy(&["1:1"], None, 32, &[])]);
    table.set(ip("2001:db8::1"), vec![policy(&[], Some(5), 32, &[])]);
    assert_eq!(
        heard(&table, "tor"),
        ["203.0.113.1/32 1:1", "2001:db8::/64 at 5"]
    );
}

#[test]
fn an_aggregate_is_there_while_any_address_in_it_is() {
    let (mut table, pool) = (Table::default(), policy(&[], None, 24, &[]));
    assert_eq!(
        table.set(ip("203.0.113.1"), vec![pool.clone()]),
        [net("203.0.113.0/24")]
    );
    table.set(ip("203.0.113.2"), vec![pool.clone()]);
    table.set(ip("203.0.113.1"), vec![]);
    assert_eq!(heard(&table, "tor"), ["203.0.113.0/24"]);
    assert_eq!(
        table.set(ip("203.0.113.2"), vec![]),
        [net("203.0.113.0/24")]
    );
    assert_eq!(heard(&table, "tor"), [""; 0]);
    assert!(table.addresses.is_empty() && table.prefixes.is_empty());
}

#[test]
fn what_does_not_change_touches_nothing() {
    let (mut table, pool) = (Table::default(), policy(&[], None, 24, &[]));
    table.set(ip("203.0.113.1"), vec![pool.clone()]);
    assert_eq!(
        table.set(ip("203.0.113.1"), vec![pool.clone(), pool.clone()]),
        []
    );
    assert_eq!(table.replace([(ip("203.0.113.1"), pool)]), BTreeSet::new());
}

#[test]
fn a_change_of_policy_touches_both_prefixes() {
    let mut table = Table::default();
    table.set(ip("203.0.113.1"), vec![policy(&[], None, 24, &[])]);
    let touched = table.set(ip("203.0.113.1"), vec![policy(&[], None, 32, &[])]);
    assert_eq!(touched, [net("203.0.113.0/24"), net("203.0.113.1/32")]);
    let changes = table.changes("tor", &touched);
    assert_eq!(
        changes,
        [
            (net("203.0.113.0/24"), None),
            (net("203.0.113.1/32"), Some(Arc::default()))
        ]
    );
}

#[test]
fn peers_hear_of_what_is_for_them() {
    let mut table = Table::default();
    table.set(
        ip("203.0.113.1"),
        vec![policy(&["1:1"], None, 32, &["one"])],
    );
    table.set(
        ip("203.0.113.2"),
        vec![policy(&["1:2"], None, 32, &["one", "two"])],
    );
    assert_eq!(
        heard(&table, "one"),
        ["203.0.113.1/32 1:1", "203.0.113.2/32 1:2"]
    );
    assert_eq!(heard(&table, "two"), ["203.0.113.2/32 1:2"]);
    assert_eq!(heard(&table, "three"), [""; 0]);
}

#[test]
fn pools_in_one_aggregate_share_communities() {
    let mut table = Table::default();
    table.set(ip("203.0.113.1"), vec![policy(&["1:1"], Some(7), 24, &[])]);
    table.set(
        ip("203.0.113.2"),
        vec![policy(&["1:2", "1:1"], Some(7), 24, &[])],
    );
    assert_eq!(heard(&table, "tor"), ["203.0.113.0/24 1:1,1:2 at 7"]);
    assert_eq!(table.conflicts().count(), 0);
}

#[test]
fn local_preferences_that_do_not_agree_are_told_and_none_counts() {
    let mut table = Table::default();
    table.set(ip("203.0.113.1"), vec![policy(&[], Some(50), 24, &[])]);
    table.set(ip("203.0.113.2"), vec![policy(&[], Some(200), 24, &[])]);
    assert_eq!(heard(&table, "tor"), ["203.0.113.0/24"]);
    let told: Vec<String> = table.conflicts().map(ToString::to_string).collect();
    assert_eq!(
        told,
        [
            "203.0.113.0/24 has the local preferences 50 and 200 from different pools, and is \
             announced without"
        ]
    );
    table.set(ip("203.0.113.1"), vec![]);
    assert_eq!(table.conflicts().count(), 0);
    assert_eq!(heard(&table, "tor"), ["203.0.113.0/24 at 200"]);
}

#[test]
fn nobody_who_hears_both_means_no_conflict() {
    let mut table = Table::default();
    table.set(ip("203.0.113.1"), vec![policy(&[], Some(50), 24, &["one"])]);
    table.set(
        ip("203.0.113.2"),
        vec![policy(&[], Some(200), 24, &["two"])],
    );
    assert_eq!(table.conflicts().count(), 0);
    assert_eq!(heard(&table, "one"), ["203.0.113.0/24 at 50"]);
    assert_eq!(heard(&table, "two"), ["203.0.113.0/24 at 200"]);
}

#[test]
fn too_many_communities_are_told() {
    let mut table = Table::default();
    let many: Vec<String> = (0..=Communities::MOST).map(|n| format!("1:{n}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    table.set(ip("203.0.113.1"), vec![policy(&many, None, 32, &[])]);
    assert!(matches!(
        table.conflicts().next(),
        Some(Conflict::Communities { .. })
    ));
}

#[test]
fn lengths_that_are_too_long_are_whole_addresses() {
    let mut table = Table::default();
    table.set(ip("203.0.113.1"), vec![policy(&[], None, 200, &[])]);
    assert_eq!(heard(&table, "tor"), ["203.0.113.1/32"]);
}

proptest::proptest! {
    /// Changes one by one, and everything at once, come to the same.
    #[test]
    fn steps_and_leaps_come_to_the_same(steps in proptest::collection::vec((0..30_u8, 0..5_usize), 0..80)) {
        let policies = [
            policy(&[], None, 32, &[]),
            policy(&["1:1"], Some(9), 30, &[]),
            policy(&["1:2"], Some(9), 28, &["one"]),
            policy(&[], Some(3), 28, &["one", "two"]),
        ];
        let (mut stepped, mut known) = (Table::default(), BTreeMap::new());
        let mut peer: BTreeMap<IpNet, Arc<Attributes>> = BTreeMap::new();
        let mut wanted = BTreeMap::new();
        for (last, which) in steps {
            let address = IpAddr::from([203, 0, 113, last]);
            let policy = policies.get(which).cloned();
            let touched = stepped.set(address, policy.clone().into_iter().collect());
            for (prefix, route) in stepped.changes("one", &touched) {
                match route {
                    Some(route) => peer.insert(prefix, route),
                    None => peer.remove(&prefix),
                };
            }
            match policy {
                Some(policy) => wanted.insert(address, policy),
                None => wanted.remove(&address),
            };
            known.insert(address, ());
        }
        let mut leapt = Table::default();
        leapt.replace(wanted);
        let all: BTreeMap<IpNet, Arc<Attributes>> =
            leapt.routes("one").into_iter().map(|(prefix, route)| (prefix, route.unwrap())).collect();
        proptest::prop_assert_eq!(&peer, &all);
        let conflicts = |table: &Table| table.conflicts().cloned().collect::<Vec<_>>();
        proptest::prop_assert_eq!(conflicts(&stepped), conflicts(&leapt));
    }
}
