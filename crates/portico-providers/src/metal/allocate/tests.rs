mod properties;

use super::super::allocations::Known;
use super::super::pools::PoolObject;
use super::super::testing::{FakeStore, Fault, desired, ip, pool, service};
use super::*;
use futures_util::FutureExt;

fn allocator(store: &FakeStore, pools: &[PoolObject]) -> Allocator<FakeStore> {
    let mut allocator = Allocator::new(store.clone());
    pools
        .iter()
        .for_each(|pool| allocator.allocations.apply_pool(pool.clone()));
    deliver(&mut allocator);
    allocator
}

/// What the watches bring sooner or later, and what is done about it.
fn deliver(allocator: &mut Allocator<FakeStore>) {
    let store = allocator.store.clone();
    {
        let world = store.0.lock().unwrap();
        let allocations = &mut allocator.allocations;
        for network in allocations.networks() {
            if !world.blocks.contains_key(&network) {
                allocations.replace_block(network, Block::default());
            }
        }
        for (network, block) in &world.blocks {
            let version = block.version.as_deref().unwrap();
            if allocations
                .block(*network)
                .is_none_or(|own| own.is_older_than(version))
            {
                allocations.replace_block(*network, block.clone());
            }
        }
        let there: Vec<&Known> = world.services.values().collect();
        for uid in allocations.known_services() {
            if !there.iter().any(|known| known.service.uid == uid) {
                allocations.service_gone(&uid);
            }
        }
        there
            .into_iter()
            .for_each(|known| allocations.service_seen(known.clone()));
    }
    work(allocator, &[]);
}

fn work(
    allocator: &mut Allocator<FakeStore>,
    asks: &[Ask],
) -> Vec<Result<Addresses, ProviderError>> {
    allocator
        .work(asks)
        .now_or_never()
        .expect("the store answers at once")
}

/// Ensure, and write the status, as the controller does.
fn ensure(
    allocator: &mut Allocator<FakeStore>,
    mut desired: Desired,
) -> Result<Vec<IpAddr>, ProviderError> {
    let store = allocator.store.clone();
    let key = (
        desired.service.namespace.clone(),
        desired.service.name.clone(),
    );
    let known = store.0.lock().unwrap().services.get(&key).cloned();
    let mut known = known.unwrap_or(Known {
        service: desired.service.clone(),
        balanced: true,
        addresses: [].into(),
    });
    desired.current = known.addresses.clone();
    let answer = work(allocator, &[Ask::Ensure(Box::new(desired))])
        .pop()
        .unwrap();
    if let Ok(given) = &answer {
        known.addresses = given.addresses.iter().copied().collect();
    }
    store.0.lock().unwrap().set_service(&known);
    answer.map(|given| given.addresses)
}

/// Delete, and let the Service go, as the controller does.
fn delete(allocator: &mut Allocator<FakeStore>, service: &ServiceRef) -> Result<(), ProviderError> {
    let store = allocator.store.clone();
    let key = (service.namespace.clone(), service.name.clone());
    let current = store
        .0
        .lock()
        .unwrap()
        .services
        .get(&key)
        .map(|known| known.addresses.clone())
        .unwrap_or_default();
    work(
        allocator,
        &[Ask::Delete {
            uid: service.uid.clone(),
            current,
        }],
    )
    .pop()
    .unwrap()?;
    store.0.lock().unwrap().services.remove(&key);
    Ok(())
}

fn dual(name: &str) -> Desired {
    Desired {
        families: vec![Family::V4, Family::V6],
        require_all: true,
        ..desired(name)
    }
}

#[test]
fn all_that_wait_are_written_together() {
    let store = FakeStore::default();
    let mut allocator = allocator(&store, &[pool("a", &["10.0.0.0/16"], |_| {})]);
    let asks: Vec<Ask> = (0..1000)
        .map(|index| Ask::Ensure(Box::new(desired(&format!("s{index}")))))
        .collect();
    let answers = work(&mut allocator, &asks);
    let given: BTreeSet<IpAddr> = answers
        .into_iter()
        .flat_map(|answer| answer.unwrap().addresses)
        .collect();
    assert_eq!(given.len(), 1000);
    assert_eq!(
        store.0.lock().unwrap().writes,
        4,
        "one write for each block of 256"
    );
}

#[test]
fn a_claim_outlives_the_status_it_is_in() {
    let store = FakeStore::default();
    let mut allocator = allocator(&store, &[pool("a", &["10.0.0.1/32"], |_| {})]);
    assert_eq!(
        ensure(&mut allocator, desired("a")).unwrap(),
        [ip("10.0.0.1")]
    );
    deliver(&mut allocator);
    let current = BTreeSet::from([ip("10.0.0.1")]);
    work(
        &mut allocator,
        &[Ask::Delete {
            uid: "uid-a".into(),
            current,
        }],
    );
    let described = work(
        &mut allocator,
        &[Ask::Describe {
            uid: "uid-a".into(),
            families: vec![Family::V4],
        }],
    );
    assert!(
        described[0].as_ref().unwrap().addresses.is_empty(),
        "there is no load balancer any more"
    );
    assert!(
        ensure(&mut allocator, desired("b")).is_err(),
        "but its address is still to be seen"
    );
    let mut shown = Known {
        service: service("a"),
        balanced: false,
        addresses: [].into(),
    };
    store.0.lock().unwrap().set_service(&shown);
    deliver(&mut allocator);
    assert_eq!(
        ensure(&mut allocator, desired("b")).unwrap(),
        [ip("10.0.0.1")]
    );
    shown.balanced = true;
    store.0.lock().unwrap().set_service(&shown);
    deliver(&mut allocator);
    assert!(ensure(&mut allocator, desired("a")).is_err());
}

#[test]
fn claims_of_services_that_are_gone_end_at_start() {
    let store = FakeStore::default();
    let pools = [pool("a", &["10.0.0.0/30"], |_| {})];
    let mut first = allocator(&store, &pools);
    for name in ["gone", "remade", "other", "stays"] {
        ensure(&mut first, desired(name)).unwrap();
    }
    {
        let mut world = store.0.lock().unwrap();
        world.services.remove(&("shop".into(), "gone".into()));
        let uid = ServiceRef {
            uid: "another".into(),
            ..service("remade")
        };
        world.set_service(&Known {
            service: uid,
            balanced: true,
            addresses: [].into(),
        });
        world.set_service(&Known {
            service: service("other"),
            balanced: false,
            addresses: [].into(),
        });
    }
    let second = allocator(&store, &pools);
    assert_eq!(
        second.allocations.held("uid-stays"),
        [ip("10.0.0.3")].into()
    );
    assert_eq!(
        store
            .0
            .lock()
            .unwrap()
            .blocks
            .values()
            .map(|block| block.claims.len())
            .sum::<usize>(),
        1
    );
}

/// Its last claim was removed by a process that ended before it deleted the block.
#[test]
fn an_empty_block_goes_at_start() {
    let store = FakeStore::default();
    let empty = Block {
        version: Some("7".into()),
        claims: BTreeMap::new(),
    };
    store
        .0
        .lock()
        .unwrap()
        .blocks
        .insert(block_of(ip("10.0.0.0")), empty);
    let mut allocator = allocator(&store, &[]);
    assert!(store.0.lock().unwrap().blocks.is_empty());
    assert!(allocator.is_idle());
}

#[test]
fn a_lost_block_is_written_again() {
    let store = FakeStore::default();
    let mut allocator = allocator(&store, &[pool("a", &["10.0.0.0/30"], |_| {})]);
    ensure(&mut allocator, desired("a")).unwrap();
    deliver(&mut allocator);
    let (network, block) = store.0.lock().unwrap().blocks.pop_first().unwrap();
    assert_eq!(
        ensure(&mut allocator, desired("b")).unwrap(),
        [ip("10.0.0.1")]
    );
    let claims = store.0.lock().unwrap().blocks[&network].claims.clone();
    assert_eq!(claims.len(), 2);
    assert!(
        block
            .claims
            .iter()
            .all(|(address, claim)| claims.get(address) == Some(claim))
    );
    store.0.lock().unwrap().blocks.clear();
    allocator.allocations.lose_block(network);
    work(&mut allocator, &[]);
    assert_eq!(store.0.lock().unwrap().blocks[&network].claims, claims);
}

/// Every write of a small history fails in every way; the callers try again, now and then after a
/// restart.
#[test]
fn every_write_may_fail_before_and_after_it_is_done() {
    let pools = [pool("a", &["10.0.0.254-10.0.1.1", "fd00::/126"], |_| {})];
    for fault in [Fault::Conflict, Fault::Before, Fault::After] {
        for index in 0..12 {
            for restart in [false, true] {
                let store = FakeStore::default();
                let mut faults = vec![Fault::None; index];
                faults.push(fault);
                faults.reverse();
                store.0.lock().unwrap().faults = faults;
                let mut allocator = allocator(&store, &pools);
                let persist =
                    |allocator: &mut Allocator<FakeStore>,
                     step: &dyn Fn(&mut Allocator<FakeStore>) -> bool| {
                        for _ in 0..3 {
                            if step(allocator) {
                                return;
                            }
                            if restart {
                                *allocator = self::allocator(&store, &pools);
                            }
                        }
                        panic!("not done in three tries: {fault:?} of write {index}");
                    };
                for name in ["a", "b", "c"] {
                    persist(&mut allocator, &|allocator| {
                        ensure(allocator, dual(name)).is_ok()
                    });
                }
                let moved = Desired {
                    explicit: Ok(vec![ip("10.0.1.1")]),
                    ..dual("a")
                };
                persist(&mut allocator, &|allocator| {
                    ensure(allocator, moved.clone()).is_ok()
                });
                let count = store
                    .0
                    .lock()
                    .unwrap()
                    .services
                    .values()
                    .flat_map(|known| known.addresses.clone())
                    .collect::<BTreeSet<_>>();
                assert_eq!(
                    count.len(),
                    6,
                    "{fault:?} of write {index}: three Services with two addresses each"
                );
                for name in ["a", "b", "c"] {
                    persist(&mut allocator, &|allocator| {
                        delete(allocator, &service(name)).is_ok()
                    });
                }
                store.0.lock().unwrap().faults.clear();
                deliver(&mut allocator);
                deliver(&mut allocator);
                let left = store.0.lock().unwrap().blocks.clone();
                assert!(
                    left.is_empty(),
                    "{fault:?} of write {index}, restart {restart}: {left:?}"
                );
            }
        }
    }
}
