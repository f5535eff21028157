use super::*;

const DURATION: Duration = Duration::from_secs(15);

fn clock(second: i64) -> Timestamp {
    Timestamp::from_second(1_700_000_000 + second).unwrap()
}

fn held_by(identity: &str, renewed: i64) -> Lease {
    Lease {
        spec: Some(LeaseSpec {
            holder_identity: Some(identity.into()),
            lease_duration_seconds: Some(15),
            acquire_time: Some(MicroTime(clock(0))),
            renew_time: Some(MicroTime(clock(renewed))),
            lease_transitions: Some(3),
            ..LeaseSpec::default()
        }),
        ..Lease::default()
    }
}

fn written(step: Step) -> LeaseSpec {
    match step {
        Step::Create(lease) | Step::Replace(lease) => lease.spec.unwrap(),
        Step::Wait => panic!("nothing to write"),
    }
}

#[test]
fn a_missing_lease_is_created() {
    let mut election = Election::new("me", DURATION);
    let step = election.step(None, Instant::now(), clock(5));
    assert!(matches!(step, Step::Create(_)));
    let spec = written(step);
    assert_eq!(spec.holder_identity.as_deref(), Some("me"));
    assert_eq!(spec.acquire_time, Some(MicroTime(clock(5))));
    assert_eq!(spec.lease_transitions, Some(0));
}

#[test]
fn the_holder_renews_and_keeps_the_time_it_was_elected() {
    let mut election = Election::new("me", DURATION);
    let spec = written(election.step(Some(&held_by("me", 1)), Instant::now(), clock(5)));
    assert_eq!(spec.acquire_time, Some(MicroTime(clock(0))));
    assert_eq!(spec.renew_time, Some(MicroTime(clock(5))));
    assert_eq!(spec.lease_transitions, Some(3));
}

#[test]
fn a_lease_of_another_is_taken_only_after_it_stood_still_for_its_duration() {
    let mut election = Election::new("me", DURATION);
    let start = Instant::now();
    // Its times are long past by this clock; only what is seen to change counts.
    assert_eq!(
        election.step(Some(&held_by("other", -9999)), start, clock(0)),
        Step::Wait
    );
    assert_eq!(
        election.step(
            Some(&held_by("other", -9999)),
            start + DURATION / 2,
            clock(0)
        ),
        Step::Wait
    );
    let spec = written(election.step(Some(&held_by("other", -9999)), start + DURATION, clock(20)));
    assert_eq!(spec.holder_identity.as_deref(), Some("me"));
    assert_eq!(spec.acquire_time, Some(MicroTime(clock(20))));
    assert_eq!(spec.lease_transitions, Some(4));
}

#[test]
fn a_renewal_by_the_holder_starts_the_wait_again() {
    let mut election = Election::new("me", DURATION);
    let start = Instant::now();
    election.step(Some(&held_by("other", 0)), start, clock(0));
    assert_eq!(
        election.step(
            Some(&held_by("other", 14)),
            start + DURATION - Duration::from_secs(1),
            clock(0)
        ),
        Step::Wait
    );
    assert_eq!(
        election.step(Some(&held_by("other", 14)), start + DURATION, clock(0)),
        Step::Wait
    );
}

#[test]
fn the_duration_promised_by_the_holder_counts() {
    let mut election = Election::new("me", Duration::from_secs(1));
    let start = Instant::now();
    election.step(Some(&held_by("other", 0)), start, clock(0));
    assert_eq!(
        election.step(
            Some(&held_by("other", 0)),
            start + Duration::from_secs(14),
            clock(0)
        ),
        Step::Wait
    );
}

#[test]
fn a_released_lease_is_taken_at_once() {
    let holder = Election::new("other", DURATION);
    let released = holder.released(&held_by("other", 0), clock(1)).unwrap();
    let step = Election::new("me", DURATION).step(Some(&released), Instant::now(), clock(2));
    assert_eq!(written(step).holder_identity.as_deref(), Some("me"));
}

#[test]
fn nobody_releases_the_lease_of_another() {
    assert_eq!(
        Election::new("me", DURATION).released(&held_by("other", 0), clock(1)),
        None
    );
}
