mod refused;

use super::*;
use crate::packet::{Malformed, Version};

const MS: Duration = Duration::from_millis(1);
/// When every test begins.
const NOON: Time = Duration::from_secs(43200);

fn ip(last: u8) -> IpAddr {
    IpAddr::from([172, 16, 64, last])
}

/// Node 5 with priority 100 and adverts every 256 ms, so that its skew is 156 ms.
fn config() -> Config {
    Config {
        version: Version::V3,
        vrid: 59,
        addresses: vec![ip(58)],
        own: ip(5),
        priority: 100,
        interval: 250 * MS,
        preempt: true,
        least_hops: 255,
        preempt_delay: Duration::ZERO,
        password: None,
        peers: vec![],
    }
}

fn advert(priority: u8) -> Advert {
    let Config {
        version,
        vrid,
        addresses,
        interval,
        password,
        ..
    } = config();
    Advert {
        version,
        vrid,
        priority,
        interval,
        addresses,
        password,
    }
}

/// What a node says, as an input.
fn hear(router: &mut Router, now: Time, from: u8, advert: &Advert) -> Vec<Output> {
    let to = router
        .config()
        .peers
        .first()
        .map_or(packet::GROUP_V4.into(), |_| router.config().own);
    let payload = advert.encode(ip(from), to);
    router.handle(
        now,
        Input::Packet {
            from: ip(from),
            to,
            hops: 255,
            payload: &payload,
        },
    )
}

/// Outputs in short, without what was heard.
fn short(outputs: &[Output]) -> String {
    let one = |output: &Output| match output {
        Output::Send(payload) => Some(format!("send {}", payload[2])),
        Output::SendTo(peer, payload) => Some(format!("send {} to {peer}", payload[2])),
        Output::Take { lifetime } => Some(format!("take {lifetime:?}")),
        Output::Became(role, reason) => Some(format!("{role:?}: {reason}")),
        Output::Conflict(_) => Some("conflict".into()),
        Output::Ignored { why, .. } => Some(format!("ignored {}", why.name())),
        Output::Heard { .. } => None,
        other => Some(format!("{other:?}").to_lowercase()),
    };
    outputs
        .iter()
        .filter_map(one)
        .collect::<Vec<_>>()
        .join(", ")
}

/// Runs until `end`, never late, and tells what came of it: milliseconds since noon and outputs.
fn run(router: &mut Router, end: Time) -> Vec<(u128, String)> {
    let mut all = vec![];
    while let Some(deadline) = router.deadline().filter(|deadline| *deadline <= end) {
        let outputs = router.handle(deadline, Input::Tick);
        if !outputs.is_empty() {
            all.push(((deadline - NOON).as_millis(), short(&outputs)));
        }
    }
    all
}

fn stopped() -> Router {
    Router::new(config())
}

fn without_link() -> Router {
    let mut router = stopped();
    router.handle(NOON, Input::Start);
    router.handle(NOON, Input::LinkDown);
    router
}

fn standby() -> Router {
    let mut router = stopped();
    router.handle(NOON, Input::Start);
    router
}

/// Node 9 owns the address with priority 100 as well.
fn following() -> Router {
    let mut router = standby();
    hear(&mut router, NOON, 9, &advert(100));
    router
}

/// It did not hear node 9 for more than two intervals, and has asked who has the address.
fn probed() -> Router {
    let mut router = following();
    while short(&router.handle(router.deadline().unwrap(), Input::Tick)) != "probe" {}
    router
}

fn owner() -> Router {
    let mut router = standby();
    while router.role() != Role::Owner {
        router.handle(router.deadline().unwrap(), Input::Tick);
    }
    router
}

fn leaving() -> Router {
    let mut router = owner();
    let now = last_advert(&router);
    router.handle(now, Input::Release);
    router
}

fn last_advert(router: &Router) -> Time {
    router.deadline().unwrap() - router.config().interval
}

#[derive(Clone, Copy, Debug)]
enum Does {
    Start,
    TickEarly,
    LinkDown,
    LinkUp,
    Lower(u8),
    Claimed,
    Release,
    /// An advert of a node with a priority.
    Hear(u8, u8),
    /// A tick so much later that the others did not wait for it.
    Pause,
}

/// Every state with every input.
#[test]
fn every_transition() {
    use Does::*;
    type Row<'a> = (&'a str, fn() -> Router, &'a [(Does, &'a str)]);
    let outranked_by_6 = "drop, Standby: 172.16.64.6 has it with priority 100";
    let table: [Row<'_>; 7] = [
        (
            "stopped",
            stopped,
            &[
                (Start, "drop, Standby: started"),
                (TickEarly, ""),
                (LinkDown, ""),
                (LinkUp, ""),
                (Lower(50), ""),
                (Claimed, ""),
                (Release, "released"),
                (Hear(6, 200), ""),
                (Hear(6, 0), ""),
                (Pause, ""),
            ],
        ),
        (
            "without link",
            without_link,
            &[
                (Start, ""),
                (TickEarly, ""),
                (LinkDown, ""),
                (LinkUp, "Standby: the link is up"),
                (Lower(50), ""),
                (Claimed, ""),
                (Release, "released"),
                (Hear(6, 200), ""),
                (Hear(6, 0), ""),
                (Pause, ""),
            ],
        ),
        (
            "standby",
            standby,
            &[
                (Start, ""),
                (TickEarly, ""),
                (LinkDown, "Stopped: the link is down"),
                (LinkUp, ""),
                (Lower(50), ""),
                (Claimed, ""),
                (Release, "Stopped: asked to stop, released"),
                (Hear(6, 200), ""),
                (Hear(6, 50), ""),
                (Hear(6, 0), ""),
                (Pause, ""),
            ],
        ),
        (
            "following",
            following,
            &[
                (Start, ""),
                (TickEarly, ""),
                (LinkDown, "Stopped: the link is down"),
                (LinkUp, ""),
                (Lower(50), ""),
                (Claimed, ""),
                (Release, "Stopped: asked to stop, released"),
                (Hear(6, 200), ""),
                (Hear(9, 50), ""),
                (Hear(9, 0), ""),
                (Pause, ""),
            ],
        ),
        (
            "probed",
            probed,
            &[
                (Start, ""),
                (TickEarly, ""),
                (LinkDown, "Stopped: the link is down"),
                (LinkUp, ""),
                (Lower(50), ""),
                (Claimed, "conflict"),
                (Release, "Stopped: asked to stop, released"),
                (Hear(9, 100), ""),
                (Hear(9, 0), ""),
                (Pause, ""),
            ],
        ),
        (
            "owner",
            owner,
            &[
                (Start, ""),
                (TickEarly, ""),
                (LinkDown, "drop, Stopped: the link is down"),
                (LinkUp, ""),
                (Lower(50), "send 50"),
                (Claimed, "conflict, announce"),
                (Release, "send 0"),
                (
                    Hear(6, 200),
                    "drop, Standby: 172.16.64.6 has it with priority 200",
                ),
                (Hear(6, 100), outranked_by_6),
                (Hear(4, 100), "send 100, announce"),
                (Hear(6, 50), "send 100, announce"),
                (Hear(6, 0), "send 100"),
                (Pause, "drop, Standby: did not run for 1.0s"),
            ],
        ),
        (
            "leaving",
            leaving,
            &[
                (Start, ""),
                (TickEarly, ""),
                (LinkDown, "drop, Stopped: asked to stop, released"),
                (LinkUp, ""),
                (Lower(50), ""),
                (Claimed, ""),
                (Release, ""),
                (Hear(6, 200), "drop, Stopped: asked to stop, released"),
                (Hear(4, 1), "drop, Stopped: asked to stop, released"),
                (Hear(6, 0), "drop, Stopped: asked to stop, released"),
                (Hear(4, 0), ""),
                (Pause, "drop, Stopped: asked to stop, released"),
            ],
        ),
    ];
    for (name, state, cases) in table {
        for (does, expected) in cases {
            let mut router = state();
            let now = router.deadline().map_or(NOON, |deadline| deadline - MS);
            let outputs = match *does {
                Start => router.handle(now, Input::Start),
                TickEarly => router.handle(now, Input::Tick),
                LinkDown => router.handle(now, Input::LinkDown),
                LinkUp => router.handle(now, Input::LinkUp),
                Lower(priority) => router.handle(now, Input::Priority(priority)),
                Claimed => router.handle(
                    now,
                    Input::Claimed {
                        address: ip(58),
                        by: [2; 6],
                    },
                ),
                Release => router.handle(now, Input::Release),
                Hear(from, priority) => hear(&mut router, now, from, &advert(priority)),
                Pause => router.handle(now + 751 * MS, Input::Tick),
            };
            let got = short(&outputs)
                .replace("take 1s, ", "")
                .replace("take 2s, ", "");
            assert_eq!(got, *expected, "{name} {does:?}");
            let told = outputs.iter().rev().find_map(|output| match output {
                Output::Became(role, _) => Some(*role),
                _ => None,
            });
            assert_eq!(
                told.unwrap_or(state().role()),
                router.role(),
                "{name} {does:?}: the role that was told"
            );
        }
    }
}

#[test]
fn the_first_owner_probes_then_takes_then_says_so() {
    let mut router = standby();
    let silence = 3 * 250 + 152;
    let timeline = run(&mut router, NOON + 1500 * MS);
    let take = "take 2s, announce, send 100, Owner: no advert from anybody";
    let expected = [
        (silence - 250, "probe"),
        (silence, take),
        (silence + 250, "send 100"),
        (silence + 500, "take 2s, send 100"),
    ];
    assert_eq!(
        timeline,
        expected.map(|(time, text)| (time, text.to_owned()))
    );
}

#[test]
fn skew_and_silence_by_version() {
    use Version::{V2, V3};
    for (version, interval, priority, skew, silence) in [
        (V2, 1000, 254, 7, 3007),
        (V2, 1000, 1, 996, 3996),
        (V2, 10_000, 128, 500, 30_500),
        (V3, 1000, 100, 609, 3609),
        (V3, 100, 128, 50, 350),
        (V3, 100, 254, 0, 300),
        (V3, 10_000, 1, 9960, 39_960),
    ] {
        let interval = interval * MS;
        assert_eq!(
            timing::skew(version, interval, priority).as_millis(),
            skew,
            "{version:?} {interval:?} {priority}"
        );
        assert_eq!(
            timing::silence(version, interval, priority).as_millis(),
            silence,
            "{version:?} {interval:?} {priority}"
        );
    }
}

/// The kernel counts in seconds, may be a quarter of one early, and must not be too early for an
/// owner that is late.
#[test]
fn lifetimes_outlast_the_slowest_and_the_latest() {
    for (millis, seconds) in [
        (10, 1),
        (100, 1),
        (200, 1),
        (250, 2),
        (500, 2),
        (1000, 4),
        (2000, 8),
        (10_000, 40),
    ] {
        assert_eq!(
            timing::lifetime(Version::V3, millis * MS).as_secs(),
            seconds,
            "{millis}"
        );
    }
    for (interval, seconds) in [(1, 4), (2, 7), (10, 31), (255, 766)] {
        assert_eq!(
            timing::lifetime(Version::V2, Duration::from_secs(interval)).as_secs(),
            seconds,
            "{interval}"
        );
    }
    for version in [Version::V2, Version::V3] {
        for millis in 1..5000 {
            let interval = version.interval(millis * 10 * MS);
            let lifetime = timing::lifetime(version, interval);
            assert!(
                lifetime >= timing::silence(version, interval, 1),
                "{interval:?}"
            );
            let refreshed_before = (lifetime / 4).max(interval) - interval;
            assert!(
                lifetime - 250 * MS > refreshed_before + timing::patience(interval),
                "{interval:?}"
            );
        }
    }
}

#[test]
fn an_owner_with_a_longer_interval_is_waited_for() {
    let mut router = standby();
    hear(
        &mut router,
        NOON,
        9,
        &Advert {
            interval: 1000 * MS,
            ..advert(100)
        },
    );
    let timeline = run(&mut router, NOON + 3700 * MS);
    let text = "take 2s, announce, send 100, Owner: no advert from 172.16.64.9 any more";
    assert_eq!(
        timeline,
        [(2609, "probe".to_owned()), (3609, text.to_owned())]
    );
}

#[test]
fn who_leaves_is_followed_after_the_skew() {
    let mut router = following();
    hear(&mut router, NOON + 250 * MS, 9, &advert(0));
    hear(&mut router, NOON + 251 * MS, 9, &advert(100)); // was overtaken
    hear(&mut router, NOON + 300 * MS, 9, &advert(0)); // said again: nothing is put off
    let timeline = run(&mut router, NOON + 500 * MS);
    assert_eq!(
        timeline,
        [(
            402,
            "take 2s, announce, send 100, Owner: 172.16.64.9 gave it up".to_owned()
        )]
    );
    let mut router = following();
    hear(&mut router, NOON + 250 * MS, 6, &advert(0));
    assert_eq!(run(&mut router, NOON + 500 * MS), [], "6 is not the owner");
}

#[test]
fn an_advert_that_was_overtaken_by_the_leave_changes_nothing() {
    let mut router = following();
    hear(&mut router, NOON + 250 * MS, 9, &advert(0));
    run(&mut router, NOON + 403 * MS);
    assert_eq!(
        short(&hear(&mut router, NOON + 410 * MS, 9, &advert(200))),
        ""
    );
    assert_eq!(
        short(&hear(&mut router, NOON + 420 * MS, 9, &advert(0))),
        "send 100",
        "it has not heard of us"
    );
    let outputs = hear(&mut router, NOON + 653 * MS, 9, &advert(200));
    assert_eq!(
        short(&outputs),
        "drop, Standby: 172.16.64.9 has it with priority 200",
        "it has come back"
    );
}

#[test]
fn of_two_owners_the_lesser_one_does_not_shorten_the_wait() {
    let mut router = standby();
    hear(
        &mut router,
        NOON,
        9,
        &Advert {
            interval: 1000 * MS,
            ..advert(200)
        },
    );
    hear(&mut router, NOON + 100 * MS, 4, &advert(150));
    assert_eq!(
        run(&mut router, NOON + 3600 * MS).last(),
        Some(&(3359, "probe".to_owned()))
    );
    assert_eq!(run(&mut router, NOON + 3610 * MS).len(), 1);
    assert_eq!(router.role(), Role::Owner);
}

#[test]
fn who_is_worse_is_preempted_when_it_may_be() {
    let preempted = |millis| {
        vec![(
            millis,
            "take 2s, announce, send 100, Owner: 172.16.64.9 has a lower priority".to_owned(),
        )]
    };
    for (preempt, delay, expected) in [
        (true, 0, preempted(902)),
        (true, 2000, preempted(2252)),
        (false, 0, vec![]),
    ] {
        let mut router = Router::new(Config {
            preempt,
            preempt_delay: delay * MS,
            ..config()
        });
        router.handle(NOON, Input::Start);
        let mut timeline = vec![];
        for millis in (100..2600).step_by(250) {
            timeline.extend(run(&mut router, NOON + millis * MS));
            if router.role() == Role::Standby {
                hear(&mut router, NOON + millis * MS, 9, &advert(50));
            }
        }
        timeline.truncate(1);
        assert_eq!(timeline, expected, "preempt {preempt} after {delay}");
    }
}

#[test]
fn priority_changes_while_it_waits() {
    let mut router = standby();
    hear(&mut router, NOON, 9, &advert(50));
    router.handle(NOON, Input::Priority(50));
    let silent = "take 2s, announce, send 50, Owner: no advert from 172.16.64.9 any more";
    assert_eq!(
        run(&mut router, NOON + 2000 * MS).get(1),
        Some(&(951, silent.to_owned())),
        "not better any more"
    );
    let mut router = following();
    router.handle(NOON, Input::Priority(0));
    assert_eq!(router.config().priority, 1);
    router.handle(NOON, Input::Priority(255));
    assert_eq!(router.config().priority, 254);
    assert_eq!(
        run(&mut router, NOON + 760 * MS)
            .last()
            .map(|(millis, _)| *millis),
        Some(751)
    );
}

#[test]
fn nobody_comes_when_it_leaves() {
    let mut router = leaving();
    let start = router.deadline().unwrap() - 250 * MS;
    let timeline = run(&mut router, start + 5000 * MS);
    let since = |millis| (start - NOON).as_millis() + millis;
    let expected = [
        (since(250), "send 0"),
        (since(500), "take 2s, send 0"),
        (since(750), "send 0"),
        (since(1000), "drop, Stopped: asked to stop, released"),
    ];
    assert_eq!(
        timeline,
        expected.map(|(time, text)| (time, text.to_owned()))
    );
    router.handle(start + 6000 * MS, Input::LinkUp);
    assert_eq!(router.role(), Role::Stopped, "it takes no more part");
    router.handle(start + 6000 * MS, Input::Start);
    assert_eq!(router.role(), Role::Standby);
}

#[test]
fn a_standby_that_did_not_run_gives_the_owner_its_time() {
    let mut router = following();
    let awake = NOON + Duration::from_secs(60);
    assert_eq!(router.handle(awake, Input::Tick), []);
    let timeline = run(&mut router, awake + 2000 * MS);
    assert_eq!(timeline[0], (60_652, "probe".to_owned()));
    assert_eq!(timeline[1].0, 60_902);
}

#[test]
fn an_owner_that_did_not_run_says_nothing_and_waits() {
    let mut router = owner();
    let awake = last_advert(&router) + 751 * MS;
    let outputs = hear(&mut router, awake, 9, &advert(50));
    assert_eq!(short(&outputs), "drop, Standby: did not run for 751.0ms");
    let mut router = owner();
    let outputs = router.handle(awake - MS, Input::Tick);
    assert_eq!(
        short(&outputs),
        "take 2s, send 100",
        "late, but nobody has taken over yet"
    );
}

#[test]
fn nobody_makes_us_flood_the_link() {
    let mut router = owner();
    let now = last_advert(&router);
    let (mut sent, mut announced, mut conflicts) = (0, 0, 0);
    for millis in 0..2000 {
        let mut outputs = hear(&mut router, now + millis * MS, 4, &advert(50));
        outputs.extend(router.handle(
            now + millis * MS,
            Input::Claimed {
                address: ip(58),
                by: [2; 6],
            },
        ));
        outputs.extend(router.handle(now + millis * MS, Input::Tick));
        sent += outputs
            .iter()
            .filter(|output| matches!(output, Output::Send(_)))
            .count();
        announced += outputs
            .iter()
            .filter(|output| matches!(output, Output::Announce))
            .count();
        conflicts += outputs
            .iter()
            .filter(|output| matches!(output, Output::Conflict(_)))
            .count();
    }
    assert!((8..=32).contains(&sent), "{sent} adverts in 8 intervals");
    assert!(
        (2..=3).contains(&announced) && conflicts <= announced,
        "{announced} announcements in two seconds"
    );
    assert_eq!(
        router.handle(
            now,
            Input::Claimed {
                address: ip(77),
                by: [2; 6]
            }
        ),
        [],
        "not ours"
    );
}

#[test]
fn peers_get_an_advert_each() {
    let mut router = Router::new(Config {
        peers: vec![ip(6), ip(9)],
        ..config()
    });
    router.handle(NOON, Input::Start);
    let timeline = run(&mut router, NOON + 903 * MS);
    let sent = "take 2s, announce, send 100 to 172.16.64.6, send 100 to 172.16.64.9, Owner: no \
                advert from anybody";
    assert_eq!(timeline.last(), Some(&(902, sent.to_owned())));
    let outputs = router.handle(NOON + 1153 * MS, Input::Tick);
    let payloads: Vec<_> = outputs
        .iter()
        .filter_map(|output| match output {
            Output::SendTo(peer, payload) => Some(Advert::decode(payload, ip(5), *peer)),
            _ => None,
        })
        .collect();
    assert_eq!(payloads, [Ok(advert(100)), Ok(advert(100))]);
}
