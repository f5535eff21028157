use super::*;

const LIMIT: Duration = Duration::from_secs(60);

fn start() -> Moment {
    Moment {
        steady: Instant::now(),
        wall: "2026-01-02T03:04:05Z".parse().unwrap(),
    }
}

fn after(start: Moment, seconds: u64) -> Moment {
    let passed = Duration::from_secs(seconds);
    Moment {
        steady: start.steady + passed,
        wall: start.wall + passed,
    }
}

enum Step {
    Queued(Family),
    Updated(Family),
}
use Family::{V4, V6};
use Step::{Queued, Updated};

#[test]
fn healthy_while_no_change_waits_too_long() {
    // What happened at which second; asked at which second; healthy, and each family.
    type Case<'a> = (&'a [(u64, Step)], u64, bool, (bool, bool));
    let cases: &[Case] = &[
        (&[], 0, true, (true, true)),
        // Nothing to do is not a reason to be unhealthy, however long it lasts.
        (&[], 100_000, true, (true, true)),
        (&[(10, Queued(V4))], 69, true, (true, true)),
        (&[(10, Queued(V4))], 70, false, (false, true)),
        (&[(10, Queued(V6))], 70, false, (true, false)),
        (
            &[(10, Queued(V4)), (10, Queued(V6))],
            71,
            false,
            (false, false),
        ),
        // The oldest change counts, not the newest.
        (
            &[(10, Queued(V4)), (65, Queued(V4))],
            70,
            false,
            (false, true),
        ),
        (
            &[(10, Queued(V4)), (65, Updated(V4))],
            200,
            true,
            (true, true),
        ),
        (
            &[(10, Queued(V4)), (65, Updated(V4)), (66, Queued(V4))],
            125,
            true,
            (true, true),
        ),
        (
            &[(10, Queued(V4)), (65, Updated(V4)), (66, Queued(V4))],
            126,
            false,
            (false, true),
        ),
        // The other family's success does not help.
        (
            &[(10, Queued(V4)), (65, Updated(V6))],
            70,
            false,
            (false, true),
        ),
        // It heals.
        (
            &[(10, Queued(V4)), (500, Updated(V4))],
            501,
            true,
            (true, true),
        ),
    ];
    for (number, (steps, asked, healthy, (v4, v6))) in cases.iter().enumerate() {
        let start = start();
        let mut health = Health::new(LIMIT, &Family::BOTH, start);
        for (at, step) in *steps {
            match step {
                Queued(family) => health.queued(*family, after(start, *at).steady),
                Updated(family) => health.updated(*family, after(start, *at)),
            }
        }
        let now = after(start, *asked);
        assert_eq!(health.healthy(now), *healthy, "case {number}");
        for verdict in [health.healthz(now), health.livez(now)] {
            let body: Value = serde_json::from_str(&verdict.body).unwrap();
            assert_eq!(verdict.good, *healthy, "case {number}");
            assert_eq!(body["healthy"], *healthy, "case {number}");
            assert_eq!(body["status"]["IPv4"]["healthy"], *v4, "case {number}");
            assert_eq!(body["status"]["IPv6"]["healthy"], *v6, "case {number}");
        }
    }
}

#[test]
fn a_node_on_its_way_out_is_alive_but_gets_nothing_new() {
    let start = start();
    let mut health = Health::new(LIMIT, &Family::BOTH, start);
    health.updated(V4, after(start, 7));
    health.set_eligible(false);
    let now = after(start, 20);
    let status = json!({
        "IPv4": { "lastUpdated": "2026-01-02T03:04:12Z", "healthy": true },
        "IPv6": { "lastUpdated": "2026-01-02T03:04:05Z", "healthy": true },
    });

    let healthz = health.healthz(now);
    assert!(!healthz.good);
    let expected = json!({
        "lastUpdated": "2026-01-02T03:04:12Z",
        "currentTime": "2026-01-02T03:04:25Z",
        "nodeEligible": false,
        "healthy": true,
        "status": status,
    });
    assert_eq!(
        serde_json::from_str::<Value>(&healthz.body).unwrap(),
        expected
    );

    let livez = health.livez(now);
    assert!(livez.good);
    let expected = json!({
        "lastUpdated": "2026-01-02T03:04:25Z",
        "currentTime": "2026-01-02T03:04:25Z",
        "healthy": true,
        "status": status,
    });
    assert_eq!(
        serde_json::from_str::<Value>(&livez.body).unwrap(),
        expected
    );

    health.set_eligible(true);
    assert!(health.healthz(now).good);
}

#[test]
fn a_family_that_is_not_served_is_not_shown_and_not_waited_for() {
    let start = start();
    let mut health = Health::new(LIMIT, &[V4], start);
    health.queued(V6, start.steady);
    health.updated(V6, start);
    let verdict = health.healthz(after(start, 1_000));
    let body: Value = serde_json::from_str(&verdict.body).unwrap();
    assert!(verdict.good);
    assert!(body["status"].get("IPv6").is_none(), "{body}");
}

#[test]
fn a_clock_that_goes_backwards_changes_nothing() {
    let start = start();
    let mut health = Health::new(LIMIT, &[V4], start);
    health.queued(V4, after(start, 100).steady);
    assert!(health.healthy(start));
    let wall_jumped = Moment {
        wall: after(start, 100_000).wall,
        ..after(start, 101)
    };
    assert!(health.healthy(wall_jumped));
}
