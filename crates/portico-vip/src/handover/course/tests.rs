use super::*;
use crate::election::Transition;
use std::time::SystemTime;

const FIVE_MINUTES: Duration = Duration::from_secs(300);

fn host(number: u8) -> IpAddr {
    [10, 0, 0, number].into()
}

fn state(role: Role, reason: Reason, owner: Option<IpAddr>) -> State {
    let mut state = State::new(100);
    (state.role, state.owner) = (role, owner);
    state.transitions.push(Transition {
        at: SystemTime::UNIX_EPOCH,
        role,
        reason,
    });
    state.counters.transitions = 1;
    state
}

fn owner(reason: Reason) -> State {
    state(Role::Owner, reason, Some(host(9)))
}

#[test]
fn a_standby_is_ready_and_an_owner_knows_who_was_before() {
    let silent = |last| owner(Reason::OwnerSilent { last });
    let table = [
        (
            state(Role::Stopped, Reason::LinkDown, Some(host(1))),
            None,
            false,
        ),
        (state(Role::Standby, Reason::Started, None), None, false),
        (
            state(Role::Standby, Reason::Started, Some(host(1))),
            Some(host(1)),
            false,
        ),
        (owner(Reason::OwnerLeft(host(2))), Some(host(2)), true),
        (owner(Reason::Preempted(host(3))), Some(host(3)), true),
        (silent(Some(host(4))), Some(host(4)), true),
        (silent(None), None, false),
    ];
    for (state, to, is_owner) in table {
        let (now, mut course) = (Instant::now(), Course::new(FIVE_MINUTES));
        assert_eq!(
            (course.follow(now, &state), course.is_owner()),
            (to, is_owner),
            "{state:?}"
        );
        assert_eq!(course.is_to_look(now), is_owner, "{state:?}");
        assert_eq!(Course::new(Duration::ZERO).follow(now, &state), None);
    }
}

#[test]
fn it_ends_after_its_time_and_begins_anew_with_the_next_change() {
    let (now, mut course) = (Instant::now(), Course::new(FIVE_MINUTES));
    let mut state = owner(Reason::OwnerLeft(host(1)));
    assert_eq!(course.follow(now, &state), Some(host(1)));
    assert_eq!(
        course.follow(now + FIVE_MINUTES - LOOK, &state),
        Some(host(1))
    );
    assert_eq!(course.follow(now + FIVE_MINUTES, &state), None);
    assert_eq!(course.wait(now + FIVE_MINUTES), CHECK);
    state.counters.transitions += 2;
    assert_eq!(course.follow(now + FIVE_MINUTES, &state), Some(host(1)));
}

/// One look after the other, with what was answered before each; for how long it went on.
fn go(reason: Reason, answers: &[bool]) -> Option<Duration> {
    let begin = Instant::now();
    let (mut now, mut course, state) = (begin, Course::new(FIVE_MINUTES), owner(reason));
    for answered in answers {
        course.follow(now, &state)?;
        assert!(course.is_to_look(now));
        course.saw(now, *answered);
        assert!(
            !course.is_to_look(now),
            "at once is too early for an answer"
        );
        if course.follow(now, &state).is_none() {
            return Some(now - begin);
        }
        now += course.wait(now);
    }
    None
}

#[test]
fn who_does_not_answer_any_more_gets_nothing() {
    let left = || Reason::OwnerLeft(host(1));
    let silent = || Reason::OwnerSilent {
        last: Some(host(1)),
    };
    let table = [
        (left(), vec![false, true, true, true], None),
        (left(), vec![false, false, true, false, true], None),
        (left(), vec![true, false, false], Some(2 * LOOK)),
        (
            left(),
            vec![true, true, false, true, false, false],
            Some(5 * LOOK),
        ),
        (silent(), vec![true, false], Some(PROOF)),
        (silent(), vec![false, true, false, true], None),
        (
            silent(),
            vec![false, true, false, false],
            Some(PROOF + 2 * LOOK),
        ),
    ];
    for (reason, answers, ended) in table {
        assert_eq!(
            go(reason.clone(), &answers),
            ended,
            "{reason:?} {answers:?}"
        );
    }
}
