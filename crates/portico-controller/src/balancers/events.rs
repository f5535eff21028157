//! Events for people who look at a Service: a repeated Event is counted, and their rate is limited.
//!
//! [`SaidEvents`] decides and touches nothing; [`send`] writes. Nothing waits for it: what is too much
//! is dropped, and is in the log.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Event;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tracing::debug;

use super::metrics::Metrics;
use super::state::Note;
use portico_model::key::ObjectKey;

/// What kube's own controller calls itself in Events.
const SOURCE: &str = "service-controller";
/// The Events of one Service: the most at once, and how long until there is room for one more.
const OF_ONE: (f64, Duration) = (25.0, Duration::from_secs(300));
/// The same for all Services, warnings and others apart.
const OF_ALL: (f64, Duration) = (100.0, Duration::from_millis(100));
/// What was said longer ago is said anew.
const FORGET: Duration = Duration::from_secs(600);
/// Remembered sayings; when there are more, all are forgotten.
const MOST: usize = 4096;

/// Writes Events until the last sender of notes is dropped.
pub(super) async fn send(client: Client, mut notes: mpsc::Receiver<Note>, metrics: Arc<Metrics>) {
    let mut said_events = SaidEvents::new(Instant::now());
    while let Some(note) = notes.recv().await {
        let clock = Timestamp::now();
        let Some(entry) = said_events.enter(&note, Instant::now(), clock) else {
            metrics.dropped_events.inc();
            continue;
        };
        metrics.events.inc();
        if let Err(error) = write(&client, &note, &entry, clock).await {
            debug!(service = %note.key, reason = note.reason, %error, "cannot write an Event");
        }
    }
}

async fn write(client: &Client, note: &Note, entry: &Entry, clock: Timestamp) -> kube::Result<()> {
    let api: Api<Event> = Api::namespaced(client.clone(), &note.key.namespace);
    if entry.count > 1 {
        let patch = json!({"count": entry.count, "lastTimestamp": time(clock)});
        match api
            .patch(&entry.name, &PatchParams::default(), &Patch::Merge(patch))
            .await
        {
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            answer => return answer.map(|_| ()),
        }
    }
    let event =
        serde_json::from_value(event(note, entry, clock)).map_err(kube::Error::SerdeError)?;
    api.create(&PostParams::default(), &event).await.map(|_| ())
}

fn event(note: &Note, entry: &Entry, clock: Timestamp) -> Value {
    let ObjectKey { namespace, name } = &note.key;
    json!({
        "metadata": {"name": entry.name, "namespace": &**namespace},
        "involvedObject": {"apiVersion": "v1", "kind": "Service", "namespace": &**namespace, "name": &**name, "uid": note.uid},
        "type": if note.warning { "Warning" } else { "Normal" },
        "reason": note.reason,
        "message": note.message,
        "source": {"component": SOURCE},
        "reportingComponent": SOURCE,
        "firstTimestamp": time(entry.first),
        "lastTimestamp": time(clock),
        "count": entry.count,
    })
}

fn time(clock: Timestamp) -> String {
    clock.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// What has been said.
struct SaidEvents {
    said: HashMap<(String, &'static str, String), Entry>,
    room_of: HashMap<String, Room>,
    normal: Room,
    warnings: Room,
}

#[derive(Clone, Debug, PartialEq)]
struct Entry {
    name: String,
    count: u32,
    first: Timestamp,
    last: Instant,
}

impl SaidEvents {
    fn new(now: Instant) -> Self {
        let room = Room::new(OF_ALL.0, now);
        Self {
            said: HashMap::new(),
            room_of: HashMap::new(),
            normal: room.clone(),
            warnings: room,
        }
    }

    /// How to write it down; `None` if there have been too many.
    fn enter(&mut self, note: &Note, now: Instant, clock: Timestamp) -> Option<Entry> {
        if self.said.len() >= MOST || self.room_of.len() >= MOST {
            self.said.clear();
            self.room_of.clear();
        }
        let all = if note.warning {
            &mut self.warnings
        } else {
            &mut self.normal
        };
        let own = self
            .room_of
            .entry(note.uid.clone())
            .or_insert_with(|| Room::new(OF_ONE.0, now));
        if !all.take(OF_ALL, now) || !own.take(OF_ONE, now) {
            return None;
        }
        let fresh = || Entry {
            name: format!("{}.{:x}", note.key.name, clock.as_nanosecond()),
            count: 0,
            first: clock,
            last: now,
        };
        let entry = self
            .said
            .entry((note.uid.clone(), note.reason, note.message.clone()))
            .or_insert_with(fresh);
        if now.duration_since(entry.last) > FORGET {
            *entry = fresh();
        }
        entry.count = entry.count.saturating_add(1);
        entry.last = now;
        Some(entry.clone())
    }
}

/// How many may still be written.
#[derive(Clone)]
struct Room {
    left: f64,
    since: Instant,
}

impl Room {
    fn new(left: f64, now: Instant) -> Self {
        Self { left, since: now }
    }

    fn take(&mut self, (burst, refill): (f64, Duration), now: Instant) -> bool {
        let more = now.duration_since(self.since).as_secs_f64() / refill.as_secs_f64();
        (self.left, self.since) = ((self.left + more).min(burst), now);
        let room = self.left >= 1.0;
        if room {
            self.left -= 1.0;
        }
        room
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(service: &str, reason: &'static str) -> Note {
        let key = ObjectKey::new("shop", service);
        Note {
            key,
            uid: format!("uid-{service}"),
            warning: false,
            reason,
            message: "m".to_owned(),
        }
    }

    #[test]
    fn what_is_said_again_is_counted() {
        let now = Instant::now();
        let mut said_events = SaidEvents::new(now);
        let clock = Timestamp::UNIX_EPOCH;
        let first = said_events
            .enter(&note("web", "EnsuringLoadBalancer"), now, clock)
            .unwrap();
        let later = now + Duration::from_secs(5);
        let second = said_events
            .enter(&note("web", "EnsuringLoadBalancer"), later, clock)
            .unwrap();
        assert_eq!(
            (first.count, second.count, &first.name),
            (1, 2, &second.name)
        );
        assert_eq!(
            said_events
                .enter(&note("web", "EnsuredLoadBalancer"), later, clock)
                .unwrap()
                .count,
            1
        );
        assert_eq!(
            said_events
                .enter(
                    &note("web", "EnsuringLoadBalancer"),
                    later + FORGET * 2,
                    clock
                )
                .unwrap()
                .count,
            1
        );
    }

    #[test]
    fn one_service_has_room_for_so_many() {
        let now = Instant::now();
        let mut said_events = SaidEvents::new(now);
        let told = |said_events: &mut SaidEvents, now| {
            said_events
                .enter(&note("web", "X"), now, Timestamp::UNIX_EPOCH)
                .is_some()
        };
        assert_eq!((0..50).filter(|_| told(&mut said_events, now)).count(), 25);
        assert!(told(&mut said_events, now + OF_ONE.1));
        assert!(!told(&mut said_events, now + OF_ONE.1));
    }

    #[test]
    fn thousands_of_services_are_no_flood_and_hide_no_warning() {
        let now = Instant::now();
        let mut said_events = SaidEvents::new(now);
        let names: Vec<String> = (0..10_000).map(|number| number.to_string()).collect();
        let mut told = |warning: bool| {
            let notes = names.iter().map(|name| Note {
                warning,
                ..note(name, "X")
            });
            notes
                .filter(|note| {
                    said_events
                        .enter(note, now, Timestamp::UNIX_EPOCH)
                        .is_some()
                })
                .count()
        };
        assert_eq!((told(false), told(true)), (100, 100));
    }
}
