//! The dataplane on a kernel in memory: any sequence of changes, and faults.

use super::classes::STICKY;
use super::element::{At, Element, Target};
use super::fake::{Fake, Fault};
use super::number::{Number, Treatment};
use super::plan::Step;
use super::rules::Class;
use super::*;
use portico_model::key::ObjectKey;
use portico_model::table::*;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

/// What packets meet, without the numbers that it is written in.
#[derive(Debug, Default, PartialEq, Eq)]
struct Meaning {
    frontends: BTreeMap<At, (Treatment, Arc<str>, Pool, Option<Pool>)>,
    others: BTreeSet<Element>,
}

#[derive(Debug, PartialEq, Eq)]
struct Pool {
    class: Class,
    endpoints: BTreeSet<Target>,
}

fn meaning(elements: &[Element]) -> Meaning {
    let mut meaning = Meaning::default();
    let reader = Reader::new(elements);
    for element in elements {
        match element {
            Element::Frontend { at, number, name } => {
                let local = (number.treatment() == Treatment::ExternalLocal)
                    .then(|| {
                        reader
                            .local_pools
                            .get(&number.pool())
                            .map(|local| reader.pool(*local))
                    })
                    .flatten();
                let known = (
                    number.treatment(),
                    name.clone(),
                    reader.pool(*number),
                    local,
                );
                assert!(meaning.frontends.insert(*at, known).is_none());
            }
            Element::LocalPool { .. } | Element::Endpoint { .. } | Element::Class { .. } => {}
            Element::Slot { .. } | Element::Sticky { .. } => {}
            other => assert!(meaning.others.insert(other.clone())),
        }
    }
    reader.assert_nothing_is_left_over();
    meaning
}

#[derive(Default)]
struct Reader {
    classes: BTreeMap<u32, Class>,
    local_pools: BTreeMap<u32, Number>,
    endpoints: BTreeMap<(u32, u32), Target>,
    slots: BTreeMap<(u32, u32), Number>,
    sticky: BTreeMap<Number, Target>,
    /// Pools that are chosen from, and how many slots they have.
    used: std::cell::RefCell<BTreeMap<u32, u32>>,
}

impl Reader {
    fn new(elements: &[Element]) -> Self {
        let mut reader = Self::default();
        for element in elements.iter().cloned() {
            match element {
                Element::Class { class, chain } => {
                    reader
                        .classes
                        .insert(class.index(), Class::from_chain_name(&chain).unwrap());
                }
                Element::LocalPool { pool, number } => {
                    reader.local_pools.insert(pool, number);
                }
                Element::Endpoint { pool, slot, target } => {
                    reader.endpoints.insert((pool, slot), target);
                }
                Element::Slot { pool, slot, member } => {
                    reader.slots.insert((pool, slot), member);
                }
                Element::Sticky { member, target } => drop(reader.sticky.insert(member, target)),
                _ => {}
            }
        }
        reader
    }

    /// Every slot that the chain of the class may ask for is there.
    fn pool(&self, number: Number) -> Pool {
        let class = self.classes[&number.index()];
        self.used
            .borrow_mut()
            .insert(number.pool(), class.endpoints);
        let endpoint = |slot| match class.affinity {
            None => self.endpoints[&(number.pool(), slot)],
            Some(affinity) => {
                let member = self.slots[&(number.pool(), slot)];
                assert_eq!(
                    (member.pool(), member.treatment()),
                    (number.pool(), Treatment::Plain)
                );
                assert_eq!(affinity.local, number.pool() % 2 == 1);
                self.sticky[&member]
            }
        };
        let endpoints: BTreeSet<Target> = (0..class.endpoints).map(endpoint).collect();
        assert_eq!(
            endpoints.len(),
            class.endpoints as usize,
            "each has one slot"
        );
        Pool { class, endpoints }
    }

    /// Every slot is one that some chain asks for.
    fn assert_nothing_is_left_over(&self) {
        let used = self.used.borrow();
        for (pool, slot) in self.endpoints.keys().chain(self.slots.keys()) {
            assert!(
                used.get(pool).is_none_or(|endpoints| slot < endpoints),
                "slot {slot} of {pool} is one too many"
            );
        }
        // By one pool of a pair it is known whose both are.
        let mut pools = self
            .endpoints
            .keys()
            .chain(self.slots.keys())
            .map(|(pool, _)| pool)
            .chain(self.local_pools.keys());
        assert!(
            pools.all(|pool| used.contains_key(pool) || used.contains_key(&(pool ^ 1))),
            "a pool belongs to nobody"
        );
        assert_eq!(self.sticky.len(), self.slots.len());
    }
}

const FAMILY: Family = Family::V4;

fn key(number: u8) -> PortKey {
    let service = ObjectKey::new("default", &format!("service-{number}"));
    PortKey {
        service,
        port: Arc::from("http"),
        protocol: Protocol::Tcp,
        family: FAMILY,
    }
}

fn endpoint(number: u8) -> Endpoint {
    Endpoint {
        address: IpAddr::from([10, 244, 0, number]),
        port: 8080 + u16::from(number % 2),
        local: number.is_multiple_of(3),
    }
}

/// A port that the model could make. Ports have the same few addresses, so that they take them over
/// from one another.
fn port() -> impl Strategy<Value = ServicePort> {
    let endpoints = proptest::collection::btree_set(0u8..12, 0..8);
    let frontends = proptest::collection::btree_set((0u8..4, 0u8..3), 0..4);
    let affinity = prop_oneof![3 => Just(None), 1 => Just(Some(60)), 1 => Just(Some(10_800))];
    (endpoints, frontends, affinity, any::<bool>()).prop_map(
        |(endpoints, frontends, affinity, policy_local)| {
            let cluster: Vec<Endpoint> = endpoints.into_iter().map(endpoint).collect();
            let local: Vec<Endpoint> = cluster
                .iter()
                .filter(|endpoint| endpoint.local)
                .copied()
                .collect();
            let outcome = |is_local: bool| match (is_local, cluster.is_empty(), local.is_empty()) {
                (_, true, _) => Outcome::Reject,
                (true, false, true) => Outcome::Drop,
                (true, false, false) => Outcome::Local,
                (false, false, _) => Outcome::Cluster,
            };
            let frontend = |(kind, number): (u8, u8)| {
                let at = |base: u8| Some(IpAddr::from([10, base, 0, number]));
                let of = |kind, address, inside, outside, masquerade, sources: Option<&[&str]>| {
                    Frontend {
                        kind,
                        address,
                        port: if address.is_some() {
                            80
                        } else {
                            30_000 + u16::from(number)
                        },
                        inside,
                        outside,
                        masquerade,
                        sources: sources
                            .map(|all| all.iter().map(|one| one.parse().unwrap()).collect()),
                    }
                };
                let masquerade = if policy_local {
                    Masquerade::OnlyNode
                } else {
                    Masquerade::Always
                };
                let (inside, outside) = (outcome(false), outcome(policy_local));
                match kind {
                    0 => {
                        let outcome = outcome(policy_local && number == 2);
                        of(
                            FrontendKind::ClusterIp,
                            at(96),
                            outcome,
                            outcome,
                            Masquerade::UnlessPod,
                            None,
                        )
                    }
                    1 => of(
                        FrontendKind::NodePort,
                        None,
                        inside,
                        outside,
                        masquerade,
                        None,
                    ),
                    2 => of(
                        FrontendKind::ExternalIp,
                        at(97),
                        inside,
                        outside,
                        masquerade,
                        None,
                    ),
                    _ => {
                        let sources = [
                            "10.0.0.0/8",
                            "10.1.0.0/16",
                            "192.168.0.0/24",
                            "192.168.1.0/24",
                        ];
                        let sources = &sources[..usize::from(number) + 1];
                        of(
                            FrontendKind::LoadBalancerIp,
                            at(98),
                            inside,
                            outside,
                            masquerade,
                            Some(sources),
                        )
                    }
                }
            };
            ServicePort {
                frontends: frontends.into_iter().map(frontend).collect(),
                local: if policy_local {
                    local.clone().into()
                } else {
                    Arc::from([])
                },
                cluster: cluster.clone().into(),
                affinity,
                ..ServicePort::default()
            }
        },
    )
}

fn step() -> impl Strategy<Value = Vec<(u8, Option<ServicePort>)>> {
    proptest::collection::vec((0u8..6, proptest::option::weighted(0.8, port())), 1..4)
}

fn table() -> ForwardingTable {
    let rules = NodeRules {
        masquerade_mark: 0x4000,
        ..NodeRules::default()
    };
    ForwardingTable {
        rules,
        ..ForwardingTable::default()
    }
}

/// As the model does: a frontend has one owner, a port without any is left out, a pool that no
/// source is given is empty.
fn owned(table: &ForwardingTable, key: &PortKey, mut port: ServicePort) -> Option<ServicePort> {
    let others = || {
        table
            .ports
            .iter()
            .filter(|(other, _)| *other != key)
            .flat_map(|(_, port)| &port.frontends)
    };
    let place = |frontend: &Frontend| (frontend.address, frontend.port);
    port.frontends
        .retain(|frontend| others().all(|other| place(other) != place(frontend)));
    let used = |outcome| {
        port.frontends
            .iter()
            .any(|f| f.inside == outcome || f.outside == outcome)
    };
    let (cluster, local) = (used(Outcome::Cluster), used(Outcome::Local));
    port.cluster = Some(port.cluster).filter(|_| cluster).unwrap_or_default();
    port.local = Some(port.local).filter(|_| local).unwrap_or_default();
    (!port.frontends.is_empty()).then_some(port)
}

fn set(table: &mut ForwardingTable, number: u8, port: Option<ServicePort>) -> Change {
    let key = key(number);
    let after = port.and_then(|port| owned(table, &key, port)).map(Arc::new);
    let before = match &after {
        Some(port) => table.ports.insert(key.clone(), port.clone()),
        None => table.ports.remove(&key),
    };
    Change { key, before, after }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_changes_lead_to_what_a_fresh_start_installs(steps in proptest::collection::vec(step(), 1..8)) {
        let kernel = Fake::new();
        let mut nft = Nftables::new(kernel.clone());
        let mut table = table();
        nft.replace(&table).unwrap();
        for step in steps {
            let changes: Vec<Change> = step.into_iter().map(|(number, port)| set(&mut table, number, port)).collect();
            nft.apply(&table.rules, &changes).unwrap();
            let fresh = Fake::new();
            Nftables::new(fresh.clone()).replace(&table).unwrap();
            prop_assert_eq!(meaning(&kernel.elements(FAMILY)), meaning(&fresh.elements(FAMILY)));
        }
        prop_assert_eq!(nft.replace(&table).unwrap(), Report::default());
        prop_assert_eq!(Nftables::new(kernel.clone()).replace(&table).unwrap(), Report::default());
    }

    #[test]
    fn a_restart_with_another_table_repairs_what_differs(one in step(), other in step(), taken in any::<prop::sample::Index>()) {
        let kernel = Fake::new();
        let mut before = table();
        one.into_iter().for_each(|(number, port)| drop(set(&mut before, number, port)));
        Nftables::new(kernel.clone()).replace(&before).unwrap();
        let elements = kernel.elements(FAMILY);
        if !elements.is_empty() {
            kernel.take_element(FAMILY, taken.get(&elements));
        }
        let mut after = before.clone();
        other.into_iter().for_each(|(number, port)| drop(set(&mut after, number, port)));
        let mut nft = Nftables::new(kernel.clone());
        nft.replace(&after).unwrap();
        let fresh = Fake::new();
        Nftables::new(fresh.clone()).replace(&after).unwrap();
        prop_assert_eq!(meaning(&kernel.elements(FAMILY)), meaning(&fresh.elements(FAMILY)));
        prop_assert_eq!(nft.replace(&after).unwrap(), Report::default());
    }
}

/// More endpoints than clients can be kept apart by: those of this node are among those that are
/// used.
#[test]
fn a_local_policy_keeps_its_endpoints_however_many_others_there_are() {
    let endpoint = |number: u16| {
        let [high, low] = number.to_be_bytes();
        Endpoint {
            address: IpAddr::from([10, 244, high, low]),
            port: 80,
            local: number == 3000,
        }
    };
    let frontend = Frontend {
        inside: Outcome::Local,
        outside: Outcome::Local,
        ..simple_port(1).frontends[0].clone()
    };
    let port = ServicePort {
        frontends: vec![frontend],
        local: Arc::from([endpoint(3000)]),
        cluster: (0..=3000).map(endpoint).collect(),
        affinity: Some(60),
        ..ServicePort::default()
    };
    let (kernel, mut table) = (Fake::new(), table());
    table.ports.insert(key(1), Arc::new(port));
    Nftables::new(kernel.clone()).replace(&table).unwrap();
    let found = meaning(&kernel.elements(FAMILY));
    let (_, _, pool, _) = found.frontends.values().next().unwrap();
    assert_eq!(
        pool.endpoints,
        BTreeSet::from([Target::from(&endpoint(3000))])
    );
}

#[test]
fn nobody_stands_still_because_somebody_has_too_many_timeouts() {
    let (kernel, mut wanted) = (Fake::new(), table());
    for number in 0..2500u16 {
        let [high, low] = number.to_be_bytes();
        let mut port = ServicePort {
            affinity: Some(1 + u32::from(number)),
            ..simple_port(1)
        };
        port.frontends[0].address = Some(IpAddr::from([10, 96, high, low]));
        let service = ObjectKey::new("default", &format!("s{number}"));
        wanted
            .ports
            .insert(PortKey { service, ..key(1) }, Arc::new(port));
    }
    let mut nft = Nftables::new(kernel.clone());
    nft.replace(&wanted).unwrap();
    let served = |kernel: &Fake| {
        meaning(&kernel.elements(FAMILY))
            .frontends
            .values()
            .filter(|f| !f.2.endpoints.is_empty())
            .count()
    };
    assert_eq!(served(&kernel), 2500);
    let mut other = simple_port(9);
    other.frontends[0].address = Some(IpAddr::from([10, 97, 0, 1]));
    let change = set(&mut wanted, 9, Some(other));
    nft.apply(&wanted.rules, &[change]).unwrap();
    assert_eq!(served(&kernel), 2501);
    assert_eq!(nft.replace(&wanted).unwrap(), Report::default());
    assert_eq!(
        Nftables::new(kernel.clone()).replace(&wanted).unwrap(),
        Report::default(),
        "nor after a restart"
    );
    // Affinity is kept: the next class takes the place of the one before.
    let (at, _) = meaning(&kernel.elements(FAMILY))
        .frontends
        .into_iter()
        .find(|(_, (_, _, pool, _))| pool.class.affinity.is_some())
        .unwrap();
    let is_it = |port: &ServicePort| port.frontends[0].address == at.address;
    let (key, old) = wanted
        .ports
        .iter()
        .find(|(_, port)| is_it(port))
        .map(|(k, p)| (k.clone(), p.clone()))
        .unwrap();
    let more = Arc::new(ServicePort {
        cluster: simple_port(2).cluster,
        ..ServicePort::clone(&old)
    });
    wanted.ports.insert(key.clone(), more.clone());
    nft.apply(
        &wanted.rules,
        &[Change {
            key,
            before: Some(old),
            after: Some(more),
        }],
    )
    .unwrap();
    let class = meaning(&kernel.elements(FAMILY)).frontends[&at].2.class;
    assert!(
        class.endpoints == 2 && class.affinity.is_some(),
        "{class:?}"
    );
}

/// The class of a timeout is given up for that of another when there are too many, and wanted
/// again.
#[test]
fn a_timeout_that_comes_back_is_like_a_new_one() {
    let (kernel, mut wanted) = (Fake::new(), table());
    let mut nft = Nftables::new(kernel.clone());
    nft.replace(&wanted).unwrap();
    let many = STICKY as u32;
    for seconds in (1..=many + 2).chain([1, 2, 1, many + 2, 3]) {
        let port = ServicePort {
            affinity: Some(seconds),
            ..simple_port(1)
        };
        let change = set(&mut wanted, 1, Some(port));
        nft.apply(&wanted.rules, &[change]).unwrap();
        let found = meaning(&kernel.elements(FAMILY));
        let class = found.frontends.values().next().unwrap().2.class;
        assert_eq!(
            class.affinity.map(|affinity| affinity.seconds),
            Some(seconds)
        );
    }
    assert_eq!(nft.replace(&wanted).unwrap(), Report::default());
    assert_eq!(
        Nftables::new(kernel.clone()).replace(&wanted).unwrap(),
        Report::default(),
        "nor after a restart"
    );
}

/// One Service with two endpoints.
fn simple() -> ForwardingTable {
    let mut table = table();
    set(&mut table, 1, Some(simple_port(2)));
    table
}

fn simple_port(endpoints: u8) -> ServicePort {
    let frontend = Frontend {
        kind: FrontendKind::ClusterIp,
        address: Some(IpAddr::from([10, 96, 0, 1])),
        port: 80,
        inside: Outcome::Cluster,
        outside: Outcome::Cluster,
        masquerade: Masquerade::UnlessPod,
        sources: None,
    };
    let cluster = (1..=endpoints).map(endpoint).collect();
    ServicePort {
        frontends: vec![frontend],
        cluster,
        ..ServicePort::default()
    }
}

#[test]
fn a_failed_batch_changes_nothing_and_the_next_replace_installs_it() {
    for errno in [libc::ENOBUFS, libc::EBUSY, libc::ENOMEM] {
        let kernel = Fake::new();
        let mut nft = Nftables::new(kernel.clone());
        let mut table = simple();
        nft.replace(&table).unwrap();
        let before = kernel.elements(FAMILY);
        kernel.faults([Fault::Errno(errno)]);
        let change = set(&mut table, 1, Some(simple_port(3)));
        assert!(matches!(
            nft.apply(&table.rules, &[change]),
            Err(ApplyError::Kernel { .. })
        ));
        assert_eq!(kernel.elements(FAMILY), before);
        kernel.faults([Fault::Errno(errno)]);
        assert!(nft.replace(&table).is_err());
        let report = nft.replace(&table).unwrap();
        assert!(
            report
                .drift
                .contains(&"ip: 1 elements of frontends differ".to_owned()),
            "{report:?}"
        );
        assert_eq!(nft.replace(&table).unwrap(), Report::default());
    }
}

#[test]
fn what_somebody_took_is_noticed_by_the_change_that_needs_it() {
    let kernel = Fake::new();
    let mut nft = Nftables::new(kernel.clone());
    let mut table = simple();
    nft.replace(&table).unwrap();
    kernel.interfere(&Step::EmptySet(FAMILY, element::Set::Frontends));
    let change = set(&mut table, 1, Some(simple_port(3)));
    assert!(nft.apply(&table.rules, &[change]).is_err());
    nft.replace(&table).unwrap();
    assert_eq!(meaning(&kernel.elements(FAMILY)).frontends.len(), 1);
}

#[test]
fn a_change_by_others_between_reading_and_repairing_is_seen() {
    let kernel = Fake::new();
    let mut nft = Nftables::new(kernel.clone());
    let table = simple();
    nft.replace(&table).unwrap();
    kernel.interfere(&Step::EmptyChain(FAMILY, Arc::from("services")));
    kernel.faults([
        Fault::Meanwhile(Step::DeleteTable(FAMILY)),
        Fault::Meanwhile(Step::AddTable(FAMILY)),
    ]);
    let report = nft.replace(&table).unwrap();
    assert!(report.operations > 50, "{report:?}");
    assert_eq!(nft.replace(&table).unwrap(), Report::default());
    assert_eq!(kernel.commits(), 2);
}

/// A node begins with a few Services, and the others do not fit into the sets that were made for
/// them.
#[test]
fn what_does_not_fit_is_not_tried() {
    let kernel = Fake::new();
    let mut nft = Nftables::new(kernel.clone());
    let mut table = simple();
    nft.replace(&table).unwrap();
    for number in 2..20u8 {
        let mut port = simple_port(0);
        port.frontends[0].address = Some(IpAddr::from([10, 96, 0, number]));
        let address = |n: u16| IpAddr::from([10, number, n.to_be_bytes()[0], n.to_be_bytes()[1]]);
        port.cluster = (0..1000)
            .map(|n| Endpoint {
                address: address(n),
                port: 80,
                local: false,
            })
            .collect();
        set(&mut table, number, Some(port));
    }
    // Meets the first batch that is tried. Had one of changes been tried before, it would have been
    // that one.
    kernel.faults([Fault::Errno(libc::EIO)]);
    assert!(nft.replace(&table).is_err());
    nft.replace(&table).unwrap();
    let fresh = Fake::new();
    Nftables::new(fresh.clone()).replace(&table).unwrap();
    assert_eq!(
        meaning(&kernel.elements(FAMILY)),
        meaning(&fresh.elements(FAMILY))
    );
    assert_eq!(nft.replace(&table).unwrap(), Report::default());
    // Now there is room, and what came is a change.
    set(&mut table, 20, Some(simple_port(0)));
    let mut port = simple_port(3);
    port.frontends[0].port = 81;
    set(&mut table, 21, Some(port));
    assert!(nft.replace(&table).unwrap().operations < 20);
}

#[test]
fn a_change_before_anything_is_installed_is_an_error() {
    let mut nft = Nftables::new(Fake::new());
    assert!(nft.apply(&NodeRules::default(), &[]).is_err());
}

#[test]
fn numbers_of_what_went_are_used_again_only_in_later_batches() {
    let kernel = Fake::new();
    let mut nft = Nftables::new(kernel.clone());
    let mut table = simple();
    nft.replace(&table).unwrap();
    let pools = || -> BTreeSet<u32> {
        let pool = |element: Element| match element {
            Element::Endpoint { pool, .. } => Some(pool),
            _ => None,
        };
        kernel
            .elements(FAMILY)
            .into_iter()
            .filter_map(pool)
            .collect()
    };
    let first = pools();
    let changes = [
        set(&mut table, 1, None),
        set(&mut table, 2, Some(simple_port(2))),
    ];
    nft.apply(&table.rules, &changes).unwrap();
    let second = pools();
    assert!(first.is_disjoint(&second));
    let mut third = simple_port(2);
    third.frontends[0].port = 81;
    let changes = [set(&mut table, 3, Some(third))];
    nft.apply(&table.rules, &changes).unwrap();
    assert_eq!(pools(), &first | &second);
}

#[test]
fn a_moved_endpoint_costs_four_operations() {
    let mut nft = Nftables::new(Fake::new());
    let mut table = simple();
    nft.replace(&table).unwrap();
    let mut port = simple_port(2);
    port.cluster = [1, 5].map(endpoint).into();
    let change = set(&mut table, 1, Some(port));
    // Its slot, and that it may reach itself: each taken from the one and given to the other.
    assert_eq!(nft.apply(&table.rules, &[change]).unwrap().operations, 4);
}

/// What of a name becomes the comment of an element is one printable word, and what was installed
/// is recognized by it.
#[test]
fn hostile_names_become_comments_that_nft_can_print() {
    for name in crate::testing::hostile_names() {
        let (key, port) = crate::testing::hostile(&name, 1);
        let table = crate::testing::table(vec![(key, port)]);
        let kernel = Fake::new();
        let mut nft = Nftables::new(kernel.clone());
        nft.replace(&table).unwrap();
        let elements = kernel.elements(Family::V4);
        let comments: Vec<&str> = elements.iter().filter_map(Element::comment).collect();
        assert!(comments.len() >= 4, "{name:?}: {elements:?}");
        for comment in comments {
            let is_plain = |c: char| c.is_ascii_graphic() && c != '"' && c != '\\';
            assert!(comment.chars().all(is_plain), "{comment:?}");
            assert!(comment.len() <= 127, "{comment:?}");
        }
        assert_eq!(nft.replace(&table).unwrap(), Report::default(), "{name:?}");
    }
}
