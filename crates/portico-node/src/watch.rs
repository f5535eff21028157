//! Follows one kind of object of the API server: lists it page by page, watches from there, resumes where a connection
//! broke, and lists again when the server no longer has what came in between.

mod event;

use crate::backoff::{Backoff, fraction};
use crate::client::{self, Clients, RequestError};
use crate::objects::{Kind, Name, Object};
use bytes::Bytes;
use event::Event;
use http_body_util::BodyExt;
use hyper::body::Body as HttpBody;
use memchr::memchr;
use portico_model::objects;
use serde::Deserialize;
use serde_json::value::RawValue;
use std::collections::HashSet;
use std::pin::pin;
use std::time::{Duration, Instant};
use std::{io, mem};
use tower::BoxError;

const PAGE: usize = 500;
/// The server ends a watch after a time between this and twice as much, so that watches spread over servers again.
const WATCH: Duration = Duration::from_secs(300);
/// A server that does not end it is taken for dead after so much more.
const OVERTIME: Duration = Duration::from_secs(30);
/// Until a kind is asked for again that the server does not have or does not show.
const DENIED: Duration = Duration::from_secs(600);
/// A watch that lasted so long was a good one, even if nothing happened.
const GOOD_WATCH: Duration = Duration::from_secs(5);
const IDENTITY: &str = "/api/v1/namespaces/default/services?fieldSelector=metadata.name%3Dkubernetes&limit=1";
/// Of one event.
const MOST_LINE: usize = 64 << 20;

/// Who wants to know. Is told of a page of a list, or of what was read at once of a watch, without a pause.
pub trait Sink: Send + Sync {
    /// It is there, or it changed.
    fn apply(&self, object: Object);
    fn delete(&self, name: Name);
    /// These are all that there are of a kind; whatever else is known of it is gone.
    fn listed(&self, kind: Kind, names: HashSet<Name>);
    /// All that there was of a kind up to this resource version has been told, also what is of no interest here.
    fn reached(&self, _kind: Kind, _version: u64) {}
    /// The server gave an answer.
    fn answered(&self) {}
}

/// Follow for ever. The kinds that a server need not have (`optional`) are asked for rarely where it has not.
pub async fn follow<S: Sink>(clients: Clients, kind: Kind, node: &str, sink: &S) -> std::convert::Infallible {
    let mut watcher =
        Watcher { clients, kind, url: kind.url(node), revision: None, lost: false, identity: String::new(), sink };
    let mut backoff = Backoff::default();
    loop {
        let began = Instant::now();
        match watcher.step().await {
            Ok(progress) if progress || began.elapsed() > GOOD_WATCH => {
                if backoff.is_failing() {
                    tracing::info!(kind = kind.plural(), "following again");
                }
                backoff.reset();
            }
            Ok(_) => backoff.wait().await,
            Err(error) if error.is_gone() => {
                tracing::info!(kind = kind.plural(), "the server has no history from here on, listing again");
                watcher.revision = None;
                backoff.wait().await;
            }
            Err(error) if error.is_denied() && kind == Kind::Cidr => {
                tracing::info!(kind = kind.plural(), %error, "going on without");
                sink.listed(kind, HashSet::new());
                tokio::time::sleep(DENIED.mul_f64(0.5 + fraction())).await;
            }
            Err(error) => {
                match backoff.is_failing() {
                    false => tracing::warn!(kind = kind.plural(), %error, "cannot follow, will try again"),
                    true => tracing::debug!(kind = kind.plural(), %error, "still cannot follow"),
                }
                watcher.failed(&error);
                backoff.wait().await;
            }
        }
    }
}

struct Watcher<'a, S> {
    clients: Clients,
    kind: Kind,
    url: String,
    /// Where to go on; `None` is from the beginning.
    revision: Option<String>,
    /// The connection broke: who answers next may be another server.
    lost: bool,
    /// Of the store that `revision` belongs to.
    identity: String,
    sink: &'a S,
}

#[derive(Deserialize)]
struct List<'a> {
    #[serde(default)]
    metadata: ListMetadata,
    #[serde(borrow, default)]
    items: Option<Vec<&'a RawValue>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ListMetadata {
    resource_version: String,
    #[serde(rename = "continue")]
    next: String,
}

/// The little that is read of an object before, or instead of, the rest: also of bookmarks and errors.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Note {
    metadata: Metadata,
    code: u16,
    message: String,
}

#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Metadata {
    namespace: String,
    name: String,
    uid: String,
    resource_version: String,
}

impl From<&objects::Metadata> for Metadata {
    fn from(all: &objects::Metadata) -> Metadata {
        Metadata {
            namespace: all.namespace.clone(),
            name: all.name.clone(),
            uid: all.uid.clone(),
            resource_version: all.resource_version.clone(),
        }
    }
}

impl Metadata {
    /// Unless it has none.
    fn name(self, kind: Kind) -> Option<Name> {
        (!self.name.is_empty()).then_some(Name { kind, namespace: self.namespace, name: self.name })
    }
}

impl<S: Sink> Watcher<'_, S> {
    /// A list, or one watch to its end. Says whether there was anything.
    async fn step(&mut self) -> Result<bool, RequestError> {
        if self.lost {
            self.recognise().await?;
        }
        match self.revision.clone() {
            None => self.list().await.map(|()| true),
            Some(revision) => self.watch(&revision).await,
        }
    }

    fn failed(&mut self, error: &RequestError) {
        match error {
            // It is only busy.
            RequestError::Status { code: 429 | 503, .. } => {}
            // It does not want to go on from here, for whatever reason.
            RequestError::Status { .. } | RequestError::Decode(_) => self.revision = None,
            RequestError::Send(_) | RequestError::Read(_) | RequestError::Timeout => self.lost = true,
        }
    }

    /// A server that came back with another store, or with an older state than ours, was set up anew or restored: its history is
    /// not ours, and it would let us wait for revisions that mean something else.
    async fn recognise(&mut self) -> Result<(), RequestError> {
        let (identity, theirs) = self.identify().await?;
        let ours = self.revision.as_ref().and_then(|revision| revision.parse::<u64>().ok());
        if identity != self.identity || theirs.zip(ours).is_none_or(|(theirs, ours)| theirs < ours) {
            self.revision = None;
        }
        self.lost = false;
        Ok(())
    }

    /// What tells one store from another: the Service that every API server makes for itself, and how far the store is.
    async fn identify(&self) -> Result<(String, Option<u64>), RequestError> {
        let body = client::get(&self.clients.requests, IDENTITY).await?;
        let list: List<'_> = serde_json::from_slice(&body).map_err(RequestError::Decode)?;
        let first = list.items.iter().flatten().next();
        let note: Note = first.and_then(|item| serde_json::from_str(item.get()).ok()).unwrap_or_default();
        Ok((note.metadata.uid, list.metadata.resource_version.parse().ok()))
    }

    async fn list(&mut self) -> Result<(), RequestError> {
        let mut names = HashSet::new();
        let mut next = String::new();
        loop {
            let url = format!("{}&limit={PAGE}&continue={}", self.url, escape(&next));
            let body = client::get(&self.clients.requests, &url).await?;
            self.sink.answered();
            let page: List<'_> = serde_json::from_slice(&body).map_err(RequestError::Decode)?;
            for item in page.items.iter().flatten() {
                match self.kind.decode(item.get()) {
                    Ok(object) => {
                        names.insert(object.name());
                        self.sink.apply(object);
                    }
                    Err(error) => {
                        let note: Note = serde_json::from_str(item.get()).unwrap_or_default();
                        names.extend(self.leave_out(note.metadata, &error));
                    }
                }
            }
            next = page.metadata.next;
            if next.is_empty() {
                tracing::debug!(kind = self.kind.plural(), count = names.len(), "listed");
                self.sink.listed(self.kind, names);
                self.identity = self.identify().await.map(|(identity, _)| identity).unwrap_or_default();
                let version = self.go_on_from(&page.metadata.resource_version);
                self.reached(version);
                return Ok(());
            }
        }
    }

    /// An object that cannot be read is left out (what is known of it stays): one bad object must not hide the others.
    fn leave_out(&self, metadata: Metadata, error: &dyn std::fmt::Display) -> Option<Name> {
        let bad = metadata.name(self.kind);
        let name = bad.as_ref().map(|bad| format!("{}/{}", bad.namespace, bad.name)).unwrap_or_default();
        tracing::error!(kind = self.kind.plural(), name, %error, "cannot read it, it is left out");
        bad
    }

    async fn watch(&mut self, revision: &str) -> Result<bool, RequestError> {
        let length = WATCH.mul_f64(1.0 + fraction());
        let url = format!(
            "{}&watch=1&allowWatchBookmarks=true&resourceVersion={}&timeoutSeconds={}",
            self.url,
            escape(revision),
            length.as_secs()
        );
        let body = client::open(&self.clients.watches, client::get_request(&url)?).await?;
        self.sink.answered();
        let mut lines = Lines { body, part: Bytes::new(), begun: Vec::new() };
        let mut seen = false;
        // One timer for all events.
        let mut end = pin!(tokio::time::sleep(length + OVERTIME));
        loop {
            let line = tokio::select! {
                biased;
                line = lines.next() => line.map_err(RequestError::Read)?,
                () = &mut end => return Err(RequestError::Timeout),
            };
            let Some(line) = line else { return Ok(seen) };
            self.event(&line)?;
            seen = true;
        }
    }

    fn event(&mut self, line: &[u8]) -> Result<(), RequestError> {
        let event = event::read(self.kind, line)?;
        let version = match event.revision() {
            "" => None,
            revision => self.go_on_from(revision),
        };
        match event {
            Event::Applied(object) => self.sink.apply(object),
            Event::Deleted(metadata) => {
                if let Some(name) = metadata.name(self.kind) {
                    self.sink.delete(name);
                }
            }
            Event::Unreadable(metadata, error) => drop(self.leave_out(metadata, &error)),
            Event::Other(_) => {}
        }
        self.reached(version);
        Ok(())
    }

    /// Says which version that is.
    fn go_on_from(&mut self, revision: &str) -> Option<u64> {
        revision.clone_into(self.revision.get_or_insert_default());
        revision.parse().ok()
    }

    fn reached(&self, version: Option<u64>) {
        if let Some(version) = version {
            self.sink.reached(self.kind, version);
        }
    }
}

/// The objects of a list that can be read.
pub fn objects_of_list(kind: Kind, body: &[u8]) -> Result<Vec<Object>, RequestError> {
    let list: List<'_> = serde_json::from_slice(body).map_err(RequestError::Decode)?;
    Ok(list.items.iter().flatten().filter_map(|item| kind.decode(item.get()).ok()).collect())
}

/// For the value of a query parameter.
fn escape(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    text.bytes().map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }).collect()
}

/// The lines of a body as they come in.
struct Lines<B> {
    body: B,
    /// What came in last, from the next line on. Not held while there is nothing in it, so that who reads has the memory back.
    part: Bytes,
    /// The beginning of a line that came in before it.
    begun: Vec<u8>,
}

impl<B: HttpBody<Data = Bytes, Error: Into<BoxError>> + Unpin> Lines<B> {
    /// With its end; `None` at the end of the body. What has no line end when the stream ends was cut off, and is not a line.
    async fn next(&mut self) -> io::Result<Option<Bytes>> {
        loop {
            if let Some(length) = memchr(b'\n', &self.part) {
                let line = self.part.split_to(length + 1);
                if self.begun.is_empty() {
                    return Ok(Some(line));
                }
                self.begun.extend_from_slice(&line);
                return Ok(Some(mem::take(&mut self.begun).into()));
            }
            self.begun.extend_from_slice(&mem::take(&mut self.part));
            if self.begun.len() > MOST_LINE {
                return Err(io::Error::other("an event is too long"));
            }
            let Some(frame) = self.body.frame().await else { return Ok(None) };
            self.part = frame.map_err(io::Error::other)?.into_data().unwrap_or_default();
        }
    }
}

#[cfg(test)]
mod tests;
