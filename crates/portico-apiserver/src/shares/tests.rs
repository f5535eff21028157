use super::*;

fn flow(level: Level, name: &str) -> Flow {
    Flow {
        level,
        name: name.into(),
    }
}

/// How much each of these flows gets if they take one at a time in turn until none gets any more.
fn taken(pool: &mut Pool, flows: &[Flow]) -> Vec<u64> {
    let mut counts = vec![0; flows.len()];
    loop {
        let mut some = false;
        for (flow, count) in flows.iter().zip(&mut counts) {
            if pool.take(flow, 1) {
                (*count, some) = (*count + 1, true);
            }
        }
        if !some {
            return counts;
        }
    }
}

#[test]
fn levels_of_users() {
    let table = [
        (User::new("admin", &[MASTERS]), Level::System),
        (User::new("system:node:a", &["system:nodes"]), Level::Nodes),
        (User::new("system:node:a", &[]), Level::People),
        (User::new("c", &[CONTROLLERS]), Level::Nodes),
        (
            User::service_account("kube-system", "balancer"),
            Level::Nodes,
        ),
        (User::service_account("default", "web"), Level::People),
        (User::new("ann", &["viewers"]), Level::People),
        (User::anonymous(), Level::Strangers),
    ];
    for (user, level) in table {
        assert_eq!(Level::of(&user), level, "{}", user.name);
    }
    let from = |address: [u8; 4]| Flow::of(&User::anonymous(), address.into());
    assert_ne!(from([10, 0, 0, 1]), from([10, 0, 0, 2]));
}

#[test]
fn who_is_alone_gets_most_and_who_is_not_shares() {
    let people = |count: usize| -> Vec<Flow> {
        (0..count)
            .map(|n| flow(Level::People, &n.to_string()))
            .collect()
    };
    // Of 200, 90 may go to people: 30 that are kept for them, and 60 that are kept for no level.
    for (count, each) in [(1, 72), (2, 40), (9, 10)] {
        let mut pool = Pool::new(200);
        let counts = taken(&mut pool, &people(count));
        let (least, most) = (counts.iter().min(), counts.iter().max());
        assert_eq!(most, Some(&each), "{count}: {counts:?}");
        assert!(least >= Some(&(each - 1)), "{count}: {counts:?}");
    }
}

#[test]
fn a_greedy_user_leaves_room_for_the_next() {
    let mut pool = Pool::new(200);
    let (greedy, other) = (flow(Level::People, "greedy"), flow(Level::People, "other"));
    assert_eq!(taken(&mut pool, std::slice::from_ref(&greedy)), [72]);
    assert_eq!(taken(&mut pool, &[other]), [14]);
}

#[test]
fn what_is_kept_for_a_level_is_there_when_it_comes() {
    let mut pool = Pool::new(200);
    let many: Vec<Flow> = (0..50)
        .map(|n| flow(Level::Strangers, &n.to_string()))
        .collect();
    assert!(taken(&mut pool, &many).iter().sum::<u64>() <= 70);
    for (level, kept) in [(Level::System, 50), (Level::Nodes, 50), (Level::People, 30)] {
        let flows: Vec<Flow> = (0..kept).map(|n| flow(level, &n.to_string())).collect();
        let counts = taken(&mut pool, &flows);
        assert!(counts.iter().sum::<u64>() >= kept, "{level:?} {counts:?}");
    }
}

#[test]
fn small_pools() {
    for level in Level::ALL {
        let mut one = Pool::new(1);
        assert!(one.take(&flow(level, "a"), 1), "{level:?}");
        assert!(!one.take(&flow(level, "b"), 1), "{level:?}");
        one.give(&flow(level, "a"), 1);
        assert!(one.take(&flow(level, "b"), 1), "{level:?}");
        assert!(!Pool::new(0).take(&flow(level, "a"), 1), "{level:?}");
    }
}

#[test]
fn what_is_given_back_is_free_and_forgotten() {
    let mut pool = Pool::new(1_000);
    let (ann, bob) = (flow(Level::People, "ann"), flow(Level::People, "bob"));
    assert!(pool.take(&ann, 400), "one large answer may take most");
    assert!(!pool.take(&ann, 40));
    pool.charge(&ann, 500);
    assert!(!pool.take(&bob, 1), "what was spent without asking counts");
    pool.give(&ann, 900);
    assert!(pool.take(&bob, 400));
    pool.give(&bob, 400);
    assert_eq!((pool.in_use(Level::People), pool.by_flow.len()), (0, 0));
}

#[test]
fn a_pool_follows_how_long_those_in_it_wait_for_the_processor() {
    let (ann, long) = (flow(Level::People, "ann"), LONG_WAIT + LONG_WAIT);
    let mut pool = Pool::new(200);
    let whole = taken(&mut pool, std::slice::from_ref(&ann))[0];
    pool.give(&ann, whole);
    for _ in 0..50 {
        pool.waited(long);
    }
    let least = taken(&mut pool, std::slice::from_ref(&ann))[0];
    assert!(0 < least && least <= whole / 7, "{least} {whole}");
    pool.give(&ann, least);
    for _ in 0..200 {
        pool.waited(LONG_WAIT);
    }
    assert_eq!(taken(&mut pool, &[ann]), [whole]);
    for size in [0, 1, 2] {
        let mut small = Pool::new(size);
        small.waited(long);
        small.waited(LONG_WAIT);
        assert_eq!(small.size, size);
    }
}
