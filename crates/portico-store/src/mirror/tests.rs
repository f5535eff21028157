//! The mirror against a naive model that keeps every state and every event for ever.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Instant;

use bytes::Bytes;
use proptest::prelude::*;

use super::state::State;
use super::topics::Woken;
use super::{Change, Commit, HistoryLimits, Listener, Mirror};
use crate::{Entry, Range, ReadError, Revision, Watch, WatchError};

const KEYS: [&str; 7] = ["a/1", "a/2", "a/ns/1", "a/ns/2", "ab/1", "b/1", "b/2"];
const PREFIXES: [&str; 4] = ["a/", "a/ns/", "ab/", "b/"];
const START: Revision = 5;

#[derive(Clone, Debug)]
enum Step {
    /// Keys by index; `true` puts, `false` deletes.
    Commit {
        writes: BTreeMap<usize, bool>,
        skip: u64,
    },
    Compact {
        at: f64,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let writes = prop::collection::btree_map(0..KEYS.len(), any::<bool>(), 0..4);
    prop_oneof![
        8 => (writes, 1..3u64).prop_map(|(writes, skip)| Step::Commit { writes, skip }),
        1 => (0.0..=1.0).prop_map(|at| Step::Compact { at }),
    ]
}

/// Every state by revision, and every event.
#[derive(Default)]
struct Model {
    states: BTreeMap<Revision, BTreeMap<&'static str, Entry>>,
    events: Vec<(Revision, &'static str, Option<Entry>, Option<Entry>)>,
    compacted: Revision,
}

impl Model {
    fn new() -> Self {
        Self {
            states: BTreeMap::from([(START, BTreeMap::new())]),
            compacted: START,
            ..Self::default()
        }
    }

    fn revision(&self) -> Revision {
        *self.states.last_key_value().unwrap().0
    }

    fn at(&self, revision: Revision) -> &BTreeMap<&'static str, Entry> {
        self.states.range(..=revision).next_back().unwrap().1
    }

    fn commit(&mut self, writes: &BTreeMap<usize, bool>, skip: u64) -> Commit {
        let revision = self.revision() + skip;
        let mut state = self.at(revision).clone();
        let mut changes = Vec::new();
        for (&index, &put) in writes {
            let key = KEYS[index];
            let before = state.remove(key);
            let created = before.as_ref().map_or(revision, |entry| entry.created);
            let value = Bytes::from(revision.to_string());
            let now = put.then(|| Entry {
                key: key.into(),
                value,
                created,
                modified: revision,
            });
            state.extend(now.clone().map(|entry| (key, entry)));
            changes.push(Change {
                key: key.into(),
                now: now.clone(),
            });
            if before.is_some() || now.is_some() {
                self.events.push((revision, key, now, before));
            }
        }
        self.states.insert(revision, state);
        Commit { revision, changes }
    }

    fn compact(&mut self, at: f64) -> Revision {
        let revision = START + ((self.revision() - START) as f64 * at) as u64;
        self.compacted = self.compacted.max(revision);
        revision
    }
}

fn check_reads(state: &State, model: &Model, revision: Revision, prefix: &str, limit: usize) {
    let range = Range {
        prefix,
        limit,
        at: Some(revision),
        after: None,
    };
    if revision < model.compacted {
        assert!(matches!(
            state.range(range),
            Err(ReadError::Compacted { .. })
        ));
        return;
    }
    if revision > model.revision() {
        assert!(matches!(state.range(range), Err(ReadError::Future { .. })));
        return;
    }
    let expected: Vec<Entry> = model
        .at(revision)
        .iter()
        .filter(|(key, _)| key.starts_with(prefix))
        .map(|(_, entry)| entry.clone())
        .collect();
    let mut found = Vec::new();
    loop {
        let after = found.last().map(|entry: &Entry| entry.key.clone());
        let page = state
            .range(Range {
                after: after.as_deref(),
                ..range
            })
            .unwrap();
        assert!(limit == 0 || page.entries.len() <= limit);
        found.extend(page.entries);
        assert_eq!(page.remaining, expected.len() - found.len());
        assert_eq!(page.more, page.remaining > 0);
        if !page.more {
            break;
        }
    }
    assert_eq!(found, expected);
    for key in KEYS {
        assert_eq!(
            state.get_at(key, revision).unwrap().as_ref(),
            model.at(revision).get(key)
        );
    }
}

fn check_watch(state: &State, model: &Model, from: Revision, prefix: &str) {
    let expected: Vec<_> = model
        .events
        .iter()
        .filter(|event| event.0 > from && event.1.starts_with(prefix))
        .collect();
    match state.events(prefix, from, 0) {
        Err(WatchError::Compacted { compacted }) => {
            assert_eq!(compacted, model.compacted);
            assert!(
                from < model.compacted,
                "only a watcher behind the compaction is told so"
            );
        }
        Err(other) => panic!("{other}"),
        Ok(batch) => {
            let found: Vec<_> = batch
                .events
                .iter()
                .map(|event| {
                    (
                        event.revision,
                        &*event.key,
                        event.now.clone(),
                        event.before.clone(),
                    )
                })
                .collect();
            assert!(found.iter().eq(expected.into_iter()), "from {from}");
            assert!(batch.events.is_empty() || batch.position == model.revision());
        }
    }
    if state.seen(prefix, from, 0) > from {
        assert!(
            model
                .events
                .iter()
                .all(|event| event.0 <= from || !event.1.starts_with(prefix)),
            "nothing was left out"
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn behaves_like_the_model(steps in prop::collection::vec(step(), 1..40), limit in 0..4usize) {
        let mut model = Model::new();
        let mut state = State::new(START, [], HistoryLimits::default());
        for step in &steps {
            match step {
                Step::Commit { writes, skip } => state.apply(model.commit(writes, *skip), Instant::now(), &mut Woken::default()),
                Step::Compact { at } => state.compact(model.compact(*at)),
            }
            prop_assert_eq!((state.revision(), state.compacted()), (model.revision(), model.compacted));
        }
        for revision in START - 1..=model.revision() + 1 {
            for prefix in PREFIXES {
                check_reads(&state, &model, revision, prefix, limit);
                check_watch(&state, &model, revision, prefix);
            }
        }
        state.compact(model.revision());
        let live = model.at(model.revision()).len();
        prop_assert_eq!(state.footprint(), (live, 0, 0), "after compaction only what is live is held");
    }
}

fn entry(key: &str, modified: Revision) -> Entry {
    Entry {
        key: key.into(),
        value: Bytes::new(),
        created: modified,
        modified,
    }
}

#[test]
fn replacing_with_the_same_contents_ends_no_watch() {
    let mirror = Mirror::new(5, [entry("a/1", 3)], HistoryLimits::default());
    let generation = mirror.subscribe("a/", 5).unwrap().generation;
    mirror.replace(9, vec![entry("a/1", 3)]);
    assert!(
        mirror
            .events("a/", 5, generation)
            .unwrap()
            .events
            .is_empty()
    );
    assert_eq!(
        (mirror.revision(), mirror.seen("a/", 5, generation)),
        (9, 9)
    );
}

#[test]
fn replacing_with_other_contents_ends_watches() {
    let mirror = Mirror::new(5, [entry("a/1", 3)], HistoryLimits::default());
    let generation = mirror.subscribe("a/", 5).unwrap().generation;
    // Even back in time, as after a restored backup.
    for (revision, entries) in [(9, vec![entry("a/1", 8)]), (4, vec![entry("a/1", 8)])] {
        mirror.replace(revision, entries);
        assert_eq!(
            mirror.events("a/", 9, generation).err(),
            Some(WatchError::Compacted {
                compacted: revision
            })
        );
        assert_eq!(
            (mirror.revision(), mirror.compacted()),
            (revision, revision)
        );
    }
}

fn put(mirror: &Mirror, revision: Revision, key: &str) {
    let now = Some(entry(key, revision));
    mirror.publish(vec![Commit {
        revision,
        changes: vec![Change {
            key: key.into(),
            now,
        }],
    }]);
}

/// Polls it once more, and tells whether it has ended.
fn polled(future: impl Future) -> impl FnMut() -> bool {
    let mut future = Box::pin(future);
    move || {
        future
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()))
            .is_ready()
    }
}

#[test]
fn a_watcher_sleeps_through_other_topics() {
    let mirror = Mirror::new(5, [], HistoryLimits::default());
    let mut listener = Listener::of(mirror.subscribe("a/", 5).unwrap().watchers);
    let mut listening = polled(listener.listen());
    put(&mirror, 6, "ab/1");
    assert!(!listening());
    put(&mirror, 7, "a/1");
    assert!(listening());
}

fn watched() -> (Arc<Mirror>, impl Fn(&str) -> Watch) {
    let mirror = Arc::new(Mirror::new(5, [], HistoryLimits::default()));
    let of = Arc::clone(&mirror);
    (mirror, move |prefix| {
        Watch::open(Arc::clone(&of), prefix, 5).unwrap()
    })
}

/// Goes on until there is no more.
async fn follow(mut watch: Watch) {
    while watch.next().await.is_ok() {}
}

#[tokio::test]
async fn who_writes_waits_for_those_who_confirm() {
    let (mirror, watch) = watched();
    let (mut first, mut second) = (
        polled(follow(watch("a/").before_answers())),
        polled(follow(watch("a/").before_answers())),
    );
    let (mut other, mut silent) = (
        polled(follow(watch("b/").before_answers())),
        polled(follow(watch("a/"))),
    );
    assert!(![first(), second(), other(), silent()].contains(&true));
    put(&mirror, 6, "a/1");
    let mut heard = polled(mirror.heard(6));
    first();
    assert!(!heard(), "the second has not taken it");
    second();
    assert!(heard());
}

#[tokio::test]
async fn nobody_waits_long_or_for_nobody() {
    let (mirror, watch) = watched();
    put(&mirror, 6, "a/1");
    assert!(polled(mirror.heard(6))(), "nobody watches");
    let mut reader = watch("a/").before_answers();
    assert_eq!(reader.next().await.unwrap().len(), 1);
    put(&mirror, 7, "a/1");
    assert!(polled(mirror.heard(7))(), "nobody reads");
    let mut stuck = polled(follow(reader));
    stuck();
    put(&mirror, 8, "a/1");
    assert!(polled(mirror.heard(7))(), "there is something newer");
    mirror.heard(8).await;
    put(&mirror, 9, "a/1");
    let mut gone = polled(follow(watch("a/").before_answers()));
    gone();
    drop((gone, stuck));
    put(&mirror, 10, "a/1");
    assert!(polled(mirror.heard(10))(), "they are gone");
}

#[tokio::test]
async fn who_writes_at_the_same_time_does_not_wait() {
    let (mirror, watch) = watched();
    let mut reader = polled(follow(watch("a/").before_answers()));
    reader();
    put(&mirror, 6, "a/1");
    let mut first = polled(mirror.heard(6));
    assert!(!first());
    put(&mirror, 7, "a/2");
    assert!(first());
    let mut second = polled(mirror.heard(7));
    reader();
    assert!(second());
}
