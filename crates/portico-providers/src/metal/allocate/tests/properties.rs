//! Two controllers that both believe to lead, each with an old view of the world, and an API server
//! that fails.

use super::super::super::testing::World;
use super::*;
use proptest::prelude::*;

const SERVICES: usize = 8;

#[derive(Clone, Debug)]
enum Step {
    Ensure {
        by: usize,
        service: usize,
        desired: usize,
    },
    Delete {
        by: usize,
        service: usize,
    },
    Deliver {
        by: usize,
    },
    Restart {
        by: usize,
    },
    Fault(Fault),
    Pools(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let by = 0..2_usize;
    let service = 0..SERVICES;
    prop_oneof![
        8 => (by.clone(), service.clone(), 0..10_usize).prop_map(|(by, service, desired)| Step::Ensure { by, service, desired }),
        3 => (by.clone(), service).prop_map(|(by, service)| Step::Delete { by, service }),
        2 => by.clone().prop_map(|by| Step::Deliver { by }),
        1 => by.prop_map(|by| Step::Restart { by }),
        2 => prop_oneof![Just(Fault::Conflict), Just(Fault::Before), Just(Fault::After)].prop_map(Step::Fault),
        1 => (0..3_usize).prop_map(Step::Pools),
    ]
}

fn pools(variant: usize) -> Vec<PoolObject> {
    let small = pool(
        "small",
        &["10.0.0.254-10.0.1.2", "fd00::fe-fd00::101"],
        |_| {},
    );
    let asked = pool("asked", &["10.9.0.0/30"], |spec| spec.auto_assign = false);
    let moved = pool(
        "small",
        &["10.0.1.1-10.0.1.6", "fd00::100-fd00::105"],
        |spec| spec.avoid_buggy_ips = true,
    );
    match variant {
        0 => vec![small, asked],
        1 => vec![moved, asked],
        _ => vec![
            small,
            pool("more", &["10.0.1.0/29"], |spec| spec.priority = 3),
        ],
    }
}

fn wished(service: ServiceRef, variant: usize) -> Desired {
    let base = Desired {
        service,
        ..desired("x")
    };
    let shared = |port: &str| Desired {
        key: "k".into(),
        ports: vec![port.into()],
        ..base.clone()
    };
    match variant {
        0 | 1 => base,
        2 => Desired {
            families: vec![Family::V4, Family::V6],
            require_all: true,
            ..base
        },
        3 => Desired {
            families: vec![Family::V6, Family::V4],
            ..base
        },
        4 => shared("TCP/1"),
        5 => shared("TCP/2"),
        6 => Desired {
            endpoints: "local:a=b".into(),
            ..shared("TCP/3")
        },
        7 => Desired {
            pool: Some("asked".into()),
            ..base
        },
        8 => Desired {
            explicit: Ok(vec![ip("10.0.1.1")]),
            ..base
        },
        _ => Desired {
            explicit: Ok(vec![ip("10.0.1.1")]),
            ..shared("TCP/4")
        },
    }
}

struct Rig {
    store: FakeStore,
    pools: Vec<PoolObject>,
    controllers: Vec<Allocator<FakeStore>>,
    /// What each Service that there is asked for last.
    desires: Vec<Option<Desired>>,
    made: usize,
}

impl Rig {
    fn new() -> Self {
        let (store, pools) = (FakeStore::default(), pools(0));
        let controllers = (0..2).map(|_| allocator(&store, &pools)).collect();
        Self {
            store,
            pools,
            controllers,
            desires: vec![None; SERVICES],
            made: 0,
        }
    }

    fn run(&mut self, step: &Step) {
        match step {
            Step::Ensure {
                by,
                service,
                desired,
            } => {
                self.made += 1;
                let new = ServiceRef {
                    uid: format!("uid-{}", self.made),
                    ..super::service(&format!("s{service}"))
                };
                let service_ref = self.desires[*service]
                    .as_ref()
                    .map_or(new, |desired| desired.service.clone());
                let desired = wished(service_ref, *desired);
                self.desires[*service] = Some(desired.clone());
                let _ = ensure(&mut self.controllers[*by], desired);
            }
            Step::Delete { by, service } => {
                let Some(desired) = self.desires[*service].clone() else {
                    return;
                };
                if delete(&mut self.controllers[*by], &desired.service).is_ok() {
                    self.desires[*service] = None;
                }
            }
            Step::Deliver { by } => deliver(&mut self.controllers[*by]),
            Step::Restart { by } => self.controllers[*by] = allocator(&self.store, &self.pools),
            Step::Fault(fault) => self.store.0.lock().unwrap().faults.push(*fault),
            Step::Pools(variant) => {
                self.pools = pools(*variant);
                for controller in &mut self.controllers {
                    let names = controller.allocations.pool_names();
                    names
                        .iter()
                        .for_each(|name| controller.allocations.remove_pool(name));
                    self.pools
                        .iter()
                        .for_each(|pool| controller.allocations.apply_pool(pool.clone()));
                }
            }
        }
    }

    /// By a controller that starts.
    fn ensure_all(&mut self) -> Allocator<FakeStore> {
        let mut fresh = allocator(&self.store, &self.pools);
        for desired in self.desires.iter().flatten() {
            let _ = ensure(&mut fresh, desired.clone());
        }
        fresh
    }

    /// What a status shows is claimed for that Service, and two Services show one address only
    /// where they may.
    fn check(&self) -> Result<(), TestCaseError> {
        let world = self.store.0.lock().unwrap();
        for known in world.services.values() {
            for address in &known.addresses {
                let claim = claim(&world, *address);
                prop_assert!(
                    claim.is_some_and(|claim| claim.services.contains_key(&known.service.uid)),
                    "{address} of {} is not claimed: {claim:?}",
                    known.service
                );
            }
        }
        for (address, claim) in world.blocks.values().flat_map(|block| &block.claims) {
            let users: Vec<_> = claim.services.values().collect();
            for (index, one) in users.iter().enumerate() {
                for other in &users[index + 1..] {
                    prop_assert!(!claim.key.is_empty(), "{address}: {claim:?}");
                    prop_assert_eq!(&one.endpoints, &other.endpoints);
                    prop_assert!(
                        one.ports.iter().all(|port| !other.ports.contains(port)),
                        "{address}: {claim:?}"
                    );
                }
            }
        }
        Ok(())
    }
}

fn claim(world: &World, address: IpAddr) -> Option<&super::super::super::blocks::Claim> {
    world
        .blocks
        .get(&portico_model::pools::block_of(address))?
        .claims
        .get(&address)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn never_twice_nothing_lost_nothing_leaked(steps in prop::collection::vec(step(), 1..80)) {
        let mut rig = Rig::new();
        for step in &steps {
            rig.run(step);
            rig.check()?;
        }
        rig.store.0.lock().unwrap().faults.clear();
        (0..2).for_each(|_| rig.controllers.iter_mut().for_each(deliver));
        rig.check()?;

        // Once every Service was tried again, a restart gives each what it has.
        for _ in 0..SERVICES {
            rig.ensure_all();
        }
        let statuses = |rig: &Rig| rig.store.0.lock().unwrap().services.clone();
        let before = statuses(&rig);
        let mut again = rig.ensure_all();
        prop_assert_eq!(before, statuses(&rig));
        rig.check()?;

        for desired in rig.desires.clone().into_iter().flatten() {
            delete(&mut again, &desired.service).unwrap();
        }
        (0..2).for_each(|_| rig.controllers.iter_mut().for_each(deliver));
        deliver(&mut again);
        let left = rig.store.0.lock().unwrap().blocks.clone();
        prop_assert!(left.is_empty(), "{left:?}");
    }
}
