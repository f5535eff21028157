use super::*;

const POLICY: Policy = Policy {
    first: Duration::from_millis(100),
    last: Duration::from_millis(500),
    tries: 5,
    within: Duration::from_secs(10),
};
const SOON: Duration = Duration::ZERO;

#[test]
fn what_may_be_repeated() {
    use {Failure::*, Repeat::*};
    let repeats = |repeat, failure| POLICY.wait(repeat, failure, 1, SOON, 0.5).is_some();
    let table = [
        (Always, Refused(None), true),
        (Always, Unknown, true),
        (Always, Final, false),
        (IfRefused, Refused(None), true),
        // It may have been done.
        (IfRefused, Unknown, false),
        (IfRefused, Final, false),
    ];
    for (repeat, failure, expected) in table {
        assert_eq!(repeats(repeat, failure), expected, "{repeat:?} {failure:?}");
    }
}

#[test]
fn waits_double_up_to_the_last_and_end() {
    let wait = |tries| {
        POLICY
            .wait(Repeat::Always, Failure::Unknown, tries, SOON, 1.0)
            .map(|wait| wait.as_millis())
    };
    assert_eq!(
        [1, 2, 3, 4, 5].map(wait),
        [Some(100), Some(200), Some(400), Some(500), None]
    );
}

#[test]
fn jitter_is_from_nothing_to_all_of_it() {
    let wait = |random| {
        POLICY
            .wait(Repeat::Always, Failure::Unknown, 1, SOON, random)
            .unwrap()
            .as_millis()
    };
    assert_eq!([0.0, 0.25, 1.0].map(wait), [0, 25, 100]);
}

#[test]
fn what_the_server_asks_for_comes_before_the_jitter() {
    let refused = Failure::Refused(Some(Duration::from_secs(3)));
    assert_eq!(
        POLICY.wait(Repeat::IfRefused, refused, 1, SOON, 1.0),
        Some(Duration::from_millis(3100))
    );
    // Longer than there is time: the caller is told at once.
    assert_eq!(
        POLICY.wait(
            Repeat::IfRefused,
            Failure::Refused(Some(POLICY.within * 2)),
            1,
            SOON,
            0.0
        ),
        None
    );
    assert_eq!(
        POLICY.wait(Repeat::Always, Failure::Unknown, 1, POLICY.within, 0.5),
        None
    );
}

#[test]
fn an_outage_uses_the_budget_up() {
    let mut budget = Budget::default();
    let taken = (0..1000).filter(|_| budget.take()).count();
    assert_eq!(taken, 50);
    (0..11).for_each(|_| budget.succeeded());
    assert!(budget.take());
    assert!(!budget.take());
}
