//! Watch streams. A watcher is a position in the store's log: nothing is buffered for it, and one
//! that falls too far behind is told so and dropped.

use crate::negotiate::Accept;
use crate::registry::Registry;
use crate::render;
use bytes::Bytes;
use futures_util::stream::{self, Stream};
use portico_api::kinds::Kind;
use portico_api::selector::{FieldSelector, LabelSelector};
use portico_api::status::{ApiError, Result};
use portico_store::{Entry, Event, Watch, WatchError};
use serde_json::json;
use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Bytes of initial events that are written in one go.
const PIECE: usize = 64 * 1024;
const BOOKMARK_EVERY: Duration = Duration::from_secs(60);
/// The last bookmark comes this long before the end.
const BOOKMARK_BEFORE_END: Duration = Duration::from_secs(2);

/// What to watch and how to tell about it.
pub(crate) struct Watcher {
    pub registry: Arc<Registry>,
    pub kind: Arc<dyn Kind>,
    pub labels: LabelSelector,
    pub fields: FieldSelector,
    pub accept: Accept,
    pub bookmarks: bool,
    /// Objects that exist already, told as ADDED before anything else.
    pub initial: VecDeque<Entry>,
    /// After those, a bookmark that says that they were all, as of this revision.
    pub initial_end: Option<u64>,
    pub watch: Watch,
    /// Changes up to here are known to the client.
    pub after: u64,
    pub timeout: Duration,
    /// Has a Table told its columns?
    pub columns_told: Cell<bool>,
}

impl Watcher {
    /// The events as pieces of the response body.
    pub(crate) fn stream(self) -> impl Stream<Item = Bytes> {
        let now = Instant::now();
        let end = now + self.timeout;
        let state = State {
            bookmark_at: next_bookmark(now, end),
            end,
            sent: self.after,
            watcher: self,
            over: false,
        };
        stream::unfold(state, |mut state| async move {
            let piece = state.next().await?;
            Some((piece, state))
        })
    }
}

struct State {
    watcher: Watcher,
    end: Instant,
    bookmark_at: Instant,
    /// The revision of the last event or bookmark that was sent.
    sent: u64,
    over: bool,
}

fn next_bookmark(now: Instant, end: Instant) -> Instant {
    let last = end.checked_sub(BOOKMARK_BEFORE_END).unwrap_or(now);
    if now >= last {
        end
    } else {
        last.min(now + BOOKMARK_EVERY)
    }
}

impl State {
    async fn next(&mut self) -> Option<Bytes> {
        if self.over {
            return None;
        }
        if !self.watcher.initial.is_empty() {
            return self.told(Self::initial);
        }
        if let Some(revision) = self.watcher.initial_end.take() {
            return self.told(|state| state.watcher.bookmark(revision, true));
        }
        loop {
            let wake = if self.watcher.bookmarks {
                self.bookmark_at.min(self.end)
            } else {
                self.end
            };
            match tokio::time::timeout_at(wake, self.watcher.watch.next()).await {
                Ok(Ok(events)) => match self.watcher.events(&events, &mut self.sent) {
                    Ok(piece) if piece.is_empty() => {}
                    Ok(piece) => {
                        // A client that gets changes knows its revision, so the next bookmark can
                        // wait.
                        self.bookmark_at = next_bookmark(Instant::now(), self.end);
                        return Some(piece);
                    }
                    Err(error) => return self.fail(&error),
                },
                Ok(Err(WatchError::Compacted { .. })) => {
                    return self.fail(&ApiError::expired(
                        "The resourceVersion for the provided watch is too old.",
                    ));
                }
                Ok(Err(WatchError::Closed)) => return None,
                Err(_) if Instant::now() >= self.end => return None,
                Err(_) => {
                    self.bookmark_at = next_bookmark(Instant::now(), self.end);
                    let position = self.watcher.watch.position().max(self.sent);
                    return self.told(|state| state.watcher.bookmark(position, false));
                }
            }
        }
    }

    fn told(&mut self, make: impl FnOnce(&mut Self) -> Result<Bytes>) -> Option<Bytes> {
        match make(self) {
            Ok(piece) => Some(piece),
            Err(error) => self.fail(&error),
        }
    }

    fn initial(&mut self) -> Result<Bytes> {
        let mut out = Vec::new();
        while out.len() < PIECE {
            let Some(entry) = self.watcher.initial.pop_front() else {
                break;
            };
            let watcher = &self.watcher;
            let line = watcher.rendered("ADDED", &entry)?;
            out.extend_from_slice(&line);
        }
        Ok(out.into())
    }

    /// Tell the error as the last event.
    fn fail(&mut self, error: &ApiError) -> Option<Bytes> {
        self.over = true;
        render::event_of("ERROR", "Status", error.status(), self.watcher.accept).ok()
    }
}

impl Watcher {
    fn events(&self, events: &[Arc<Event>], sent: &mut u64) -> Result<Bytes> {
        // One change for one watcher is the common case: share its bytes instead of copying them.
        if let [only] = events {
            return self.event(only, sent).map(Option::unwrap_or_default);
        }
        let mut out = Vec::new();
        for event in events {
            out.extend_from_slice(&self.event(event, sent)?.unwrap_or_default());
        }
        Ok(out.into())
    }

    /// What this watcher is told about one change, if anything.
    fn event(&self, event: &Event, sent: &mut u64) -> Result<Option<Bytes>> {
        if event.revision <= self.after {
            return Ok(None);
        }
        let kind = self.kind.as_ref();
        let show =
            |entry: &Option<Entry>| entry.clone().map(|entry| self.registry.shown(kind, entry));
        let (now, before) = (show(&event.now), show(&event.before));
        let selected = |entry: &Option<Entry>| match entry {
            Some(entry) => crate::registry::matches(kind, entry, &self.labels, &self.fields),
            None => Ok(false),
        };
        let (word, entry) = match (now, before, selected(&event.before)?, selected(&event.now)?) {
            (Some(now), _, false, true) => ("ADDED", now),
            (Some(now), _, true, true) => ("MODIFIED", now),
            // Gone, or no longer selected: what it was, at the version of the change.
            (_, Some(before), true, false) => (
                "DELETED",
                Entry {
                    modified: event.revision,
                    ..before
                },
            ),
            _ => return Ok(None),
        };
        *sent = event.revision;
        let usual = match (&event.now, &event.before) {
            (Some(_), None) => "ADDED",
            (Some(_), Some(_)) => "MODIFIED",
            _ => "DELETED",
        };
        if word != usual || !render::plain(kind, self.accept) {
            return self.rendered(word, &entry).map(Some);
        }
        if let Some(ready) = event.cache.get() {
            return Ok(Some(ready.clone()));
        }
        let line = self.rendered(word, &entry)?;
        Ok(Some(event.cache.get_or_init(|| line).clone()))
    }

    fn rendered(&self, word: &str, entry: &Entry) -> Result<Bytes> {
        let first = !self.columns_told.replace(true);
        render::event(
            &self.registry,
            self.kind.as_ref(),
            word,
            entry,
            self.accept,
            first,
        )
    }

    fn bookmark(&self, revision: u64, initial_end: bool) -> Result<Bytes> {
        let info = self.kind.info();
        let mut metadata =
            json!({"resourceVersion": revision.to_string(), "creationTimestamp": null});
        if initial_end {
            metadata["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        let version = self.accept.version.api_version();
        let object = match self.accept.form {
            crate::negotiate::Form::Object => {
                json!({"kind": info.kind, "apiVersion": info.api_version(), "metadata": metadata})
            }
            crate::negotiate::Form::Metadata | crate::negotiate::Form::MetadataList => {
                json!({"kind": "PartialObjectMetadata", "apiVersion": version, "metadata": metadata})
            }
            crate::negotiate::Form::Table(_) => json!({
                "kind": "Table", "apiVersion": version,
                "metadata": {"resourceVersion": revision.to_string()}, "columnDefinitions": [],
                "rows": [{"cells": [], "object": {"kind": "PartialObjectMetadata", "apiVersion": version, "metadata": metadata}}],
            }),
        };
        render::event_of("BOOKMARK", info.schema, object, self.accept)
    }
}
