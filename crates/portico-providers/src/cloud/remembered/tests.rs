use std::time::Duration;

use futures_util::FutureExt;

use super::*;

/// What the calls for one Service went out from, and how each of them ends.
struct Calls {
    memory: Remembered<u32>,
    bases: Mutex<Vec<Basis<u32>>>,
}

impl Calls {
    fn new() -> Self {
        Self {
            memory: Remembered::default(),
            bases: Mutex::default(),
        }
    }

    fn note(&self, basis: Basis<u32>) -> bool {
        let looks = basis == Basis::Look;
        self.bases.lock().unwrap().push(basis);
        looks
    }

    /// Leaves `now`; fails with `error` unless it may look.
    fn make(&self, now: u32, error: Option<ProviderError>) -> Result<&'static str, ProviderError> {
        let work = |basis| {
            let looks = self.note(basis);
            let error = error.clone();
            async move { error.filter(|_| !looks).map_or(Ok((now, "made")), Err) }
        };
        self.memory.make("a", work).now_or_never().unwrap()
    }

    fn fail(&self, error: &ProviderError) -> ProviderError {
        let work = |basis| {
            self.note(basis);
            async { Err::<(u32, ()), _>(error.clone()) }
        };
        self.memory
            .make("a", work)
            .now_or_never()
            .unwrap()
            .unwrap_err()
    }

    fn bases(&self) -> Vec<Basis<u32>> {
        std::mem::take(&mut self.bases.lock().unwrap())
    }
}

fn failed() -> ProviderError {
    ProviderError::Failed("no".to_owned())
}

#[test]
fn each_call_goes_out_from_what_the_last_one_left() {
    let calls = Calls::new();
    assert_eq!(calls.make(1, None), Ok("made"));
    assert_eq!(calls.make(2, None), Ok("made"));
    assert_eq!(calls.make(3, None), Ok("made"));
    assert_eq!(calls.bases(), [Basis::New, Basis::Last(1), Basis::Last(2)]);
}

#[test]
fn what_fails_from_memory_is_done_again_from_a_look_in_the_same_call() {
    let refused = ProviderError::Refused {
        reason: "Taken",
        message: "by another".to_owned(),
    };
    for error in [failed(), refused] {
        let calls = Calls::new();
        assert_eq!(calls.make(1, Some(error.clone())), Ok("made"));
        assert_eq!(calls.make(2, Some(error)), Ok("made"));
        assert_eq!(
            calls.bases(),
            [Basis::New, Basis::Look, Basis::Last(1), Basis::Look]
        );
        calls.make(3, None).unwrap();
        assert_eq!(calls.bases(), [Basis::Last(2)]);
    }
}

#[test]
fn a_failure_is_told_after_one_look_and_leaves_nothing() {
    let calls = Calls::new();
    calls.make(1, None).unwrap();
    assert_eq!(calls.fail(&failed()), failed());
    assert_eq!(calls.fail(&failed()), failed());
    calls.make(2, None).unwrap();
    calls.make(3, None).unwrap();
    assert_eq!(
        calls.bases(),
        [
            Basis::New,
            Basis::Last(1),
            Basis::Look,
            Basis::Look,
            Basis::Look,
            Basis::Last(2)
        ]
    );
}

#[test]
fn a_cloud_that_wants_time_is_not_asked_again_at_once() {
    let calls = Calls::new();
    calls.make(1, None).unwrap();
    let wait = ProviderError::RetryAfter {
        after: Duration::from_secs(9),
        reason: "busy".to_owned(),
    };
    assert_eq!(calls.fail(&wait), wait);
    calls.make(2, None).unwrap();
    assert_eq!(calls.bases(), [Basis::New, Basis::Last(1), Basis::Look]);
}

#[test]
fn a_call_that_is_dropped_leaves_nothing() {
    let calls = Calls::new();
    calls.make(1, None).unwrap();
    let stuck = calls
        .memory
        .make("a", |_| std::future::pending::<Result<(u32, ()), _>>())
        .now_or_never();
    assert!(stuck.is_none());
    calls.make(2, None).unwrap();
    assert_eq!(calls.bases(), [Basis::New, Basis::Look]);
}

#[test]
fn what_is_forgotten_is_looked_at() {
    let calls = Calls::new();
    calls.memory.forget("a");
    calls.make(1, None).unwrap();
    calls.memory.forget("a");
    calls.make(2, None).unwrap();
    assert_eq!(calls.bases(), [Basis::New, Basis::Look]);
}

#[test]
fn nothing_is_kept_of_services_that_are_gone() {
    let calls = Calls::new();
    calls.make(1, None).unwrap();
    assert_eq!(calls.memory.len(), 1);
    let delete = |end: Result<(), ProviderError>| {
        let work = |basis| {
            calls.note(basis);
            std::future::ready(end.clone())
        };
        calls.memory.delete("a", work).now_or_never().unwrap()
    };
    assert_eq!(delete(Err(failed())), Err(failed()));
    assert_eq!(delete(Ok(())), Ok(()));
    assert!(calls.memory.is_empty());
    assert_eq!(
        calls.bases(),
        [Basis::New, Basis::Last(1), Basis::Look, Basis::Look]
    );
}
