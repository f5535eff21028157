//! Follows one kind of object of the API server: lists it page by page, watches from there, resumes
//! where a connection broke, and lists again when the server no longer has what came in between.

mod event;
mod stream;

use crate::client::{self, RequestError};
use crate::objects::{Kind, Name, Object};
use bytes::Bytes;
use hyper::body::Body;
use kube::Client;
use portico_client::error::chain;
use portico_client::wait::{Backoff, fraction};
use portico_model::objects;
use serde::Deserialize;
use serde_json::value::RawValue;
use std::collections::HashSet;
use std::mem;
use std::sync::Arc;
use std::time::Duration;
use stream::EventStream;
use tokio::sync::{mpsc, watch as flag};
use tokio::time::{Instant, timeout_at};
use tower::BoxError;

const PAGE: usize = 500;
/// The server ends a watch after a time between this and twice as much, so that watches spread over
/// servers again.
const WATCH: Duration = Duration::from_secs(300);
/// A server that does not end it is taken for dead after so much more. Not before, however silent
/// it is: a kube-apiserver where nothing happens sends no bookmarks either.
const OVERTIME: Duration = Duration::from_secs(30);
/// Until a kind is asked for again that the server does not have or does not show.
const DENIED: Duration = Duration::from_secs(600);
/// A watch that lasted so long was a good one, even if nothing happened.
const GOOD_WATCH: Duration = Duration::from_secs(5);

/// The path that lists one Service: kube-proxy's role may list and watch Services, and not get one.
pub(crate) fn list_of_one(namespace: &str, service: &str) -> String {
    format!(
        "/api/v1/namespaces/{namespace}/services?fieldSelector=metadata.name%3D{service}&limit=1"
    )
}

/// What there is to know of objects.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum News {
    /// It is there, or it changed.
    Apply(Object),
    Delete(Name),
    /// These are all that there are of a kind; whatever else is known of it is gone.
    Listed(Kind, HashSet<Name>),
    /// The server does not have a kind that it need not have, or does not show it.
    Denied(Kind),
    /// All that there was of a kind up to this resource version has been told, also what is of no
    /// interest here.
    Reached(Kind, u64),
}

struct Contents {
    /// With those of the pages before.
    names: HashSet<Name>,
    metadata: ListMetadata,
}

fn read_page(
    kind: Kind,
    body: &[u8],
    mut names: HashSet<Name>,
    news: &mut Vec<News>,
) -> Result<Contents, RequestError> {
    let page: List<'_> = serde_json::from_slice(body).map_err(RequestError::Decode)?;
    for item in page.items.iter().flatten() {
        match kind.decode(item.get()) {
            Ok(object) => {
                names.insert(object.name());
                news.push(News::Apply(object));
            }
            Err(error) => {
                let note: Note = serde_json::from_str(item.get()).unwrap_or_default();
                names.extend(leave_out(kind, note.metadata, &error));
            }
        }
    }
    Ok(Contents {
        names,
        metadata: page.metadata,
    })
}

/// Where the news go.
#[derive(Clone)]
pub(crate) struct Listener {
    pub news: mpsc::Sender<Vec<News>>,
    /// The server gave an answer.
    pub answered: Arc<flag::Sender<bool>>,
}

impl Listener {
    /// Waits while there is much that was not read yet.
    async fn tell(&self, news: Vec<News>) {
        if news.is_empty() {
            return;
        }
        if self.news.send(news).await.is_err() {
            // The daemon ends: what would come next is not read.
            std::future::pending().await
        }
    }

    fn answered(&self) {
        self.answered
            .send_if_modified(|answered| !mem::replace(answered, true));
    }
}

/// Follow for ever. The kinds that a server need not have are asked for rarely where
/// it has not.
#[expect(
    clippy::cognitive_complexity,
    reason = "one loop from a list to the end of its watch"
)]
pub(crate) async fn follow(
    client: Client,
    kind: Kind,
    node: Arc<str>,
    listener: Listener,
) -> std::convert::Infallible {
    let (url, identity) = (kind.url(&node), String::new());
    let mut watcher = Watcher {
        client,
        kind,
        url,
        revision: None,
        listed: false,
        lost: false,
        identity,
        listener,
    };
    let mut backoff = Backoff::of_nodes();
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
                tracing::info!(
                    kind = kind.plural(),
                    "the server has no history from here on, listing again"
                );
                watcher.revision = None;
                backoff.wait().await;
            }
            // Who had it before is refused by mistake, as while rights are written anew: what is
            // known stays.
            Err(error) if error.is_denied() && kind.is_optional() && !watcher.listed => {
                match kind {
                    Kind::Pod => tracing::warn!(
                        error = %chain(&error),
                        "cannot know this node's pods, for which the right to list and watch pods \
                         is needed: Services of visibility namespace serve nobody here, and pods \
                         in the DMZ are not kept from any Service"
                    ),
                    Kind::Partition if error.is_forbidden() => tracing::warn!(
                        error = %chain(&error),
                        "cannot know the port partitions, for which the right to list and watch \
                         them is needed: node ports of Services in one answer nowhere here, and \
                         those of others answer on all addresses, also on those of a partition"
                    ),
                    _ => {
                        tracing::info!(kind = kind.plural(), error = %chain(&error), "going on without");
                    }
                }
                watcher
                    .listener
                    .tell(vec![News::Listed(kind, HashSet::new()), News::Denied(kind)])
                    .await;
                tokio::time::sleep(DENIED.mul_f64(0.5 + fraction())).await;
            }
            Err(error) => {
                match backoff.is_failing() {
                    false => {
                        tracing::warn!(kind = kind.plural(), error = %chain(&error), "cannot follow, will try again")
                    }
                    true => {
                        tracing::debug!(kind = kind.plural(), error = %chain(&error), "still cannot follow")
                    }
                }
                watcher.failed(&error);
                backoff.wait().await;
            }
        }
    }
}

struct Watcher {
    client: Client,
    kind: Kind,
    url: String,
    /// Where to go on; `None` is from the beginning.
    revision: Option<String>,
    /// There was a list, some time.
    listed: bool,
    /// The connection broke: another server may answer next.
    lost: bool,
    /// The identity of the store that `revision` belongs to.
    identity: String,
    listener: Listener,
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

/// The little that is read of an object before, or instead of, the rest: also of bookmarks and
/// errors.
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
    fn from(all: &objects::Metadata) -> Self {
        Self {
            namespace: all.namespace.clone(),
            name: all.name.clone(),
            uid: all.uid.clone(),
            resource_version: all.resource_version.clone(),
        }
    }
}

impl Metadata {
    /// The name of the object; `None` if it has none.
    fn name(self, kind: Kind) -> Option<Name> {
        (!self.name.is_empty()).then_some(Name {
            kind,
            namespace: self.namespace,
            name: self.name,
        })
    }
}

impl Watcher {
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
            RequestError::Status {
                code: 429 | 503, ..
            } => {}
            // It does not want to go on from here, for whatever reason.
            RequestError::Status { .. } | RequestError::Decode(_) => self.revision = None,
            RequestError::Send(_) | RequestError::Read(_) | RequestError::Timeout => {
                self.lost = true
            }
        }
    }

    /// A server that came back with another store, or with an older state than ours, was set up
    /// anew or restored: its history is not ours, and it would let us wait for revisions that mean
    /// something else.
    async fn recognise(&mut self) -> Result<(), RequestError> {
        let (identity, theirs) = self.identify().await?;
        let ours = self
            .revision
            .as_ref()
            .and_then(|revision| revision.parse::<u64>().ok());
        if identity != self.identity || theirs.zip(ours).is_none_or(|(theirs, ours)| theirs < ours)
        {
            self.revision = None;
        }
        self.lost = false;
        Ok(())
    }

    /// What tells one store from another: the Service that every API server makes for itself, and
    /// how far the store is.
    async fn identify(&self) -> Result<(String, Option<u64>), RequestError> {
        let body = client::get(&self.client, &list_of_one("default", "kubernetes")).await?;
        let list: List<'_> = serde_json::from_slice(&body).map_err(RequestError::Decode)?;
        let first = list.items.iter().flatten().next();
        let note: Note = first
            .and_then(|item| serde_json::from_str(item.get()).ok())
            .unwrap_or_default();
        Ok((
            note.metadata.uid,
            list.metadata.resource_version.parse().ok(),
        ))
    }

    async fn list(&mut self) -> Result<(), RequestError> {
        let mut names = HashSet::new();
        let mut next = String::new();
        loop {
            let url = format!("{}&limit={PAGE}&continue={}", self.url, escape(&next));
            let body = client::get(&self.client, &url).await?;
            self.listener.answered();
            let mut news = Vec::new();
            let read = read_page(self.kind, &body, names, &mut news);
            drop(body);
            self.listener.tell(news).await;
            let Contents {
                names: so_far,
                metadata,
            } = read?;
            (names, next) = (so_far, metadata.next);
            if next.is_empty() {
                return self.listed(names, metadata.resource_version).await;
            }
        }
    }

    async fn listed(&mut self, names: HashSet<Name>, revision: String) -> Result<(), RequestError> {
        tracing::debug!(kind = self.kind.plural(), count = names.len(), "listed");
        let reached = revision
            .parse()
            .ok()
            .map(|version| News::Reached(self.kind, version));
        let news = [News::Listed(self.kind, names)]
            .into_iter()
            .chain(reached)
            .collect();
        self.listener.tell(news).await;
        self.identity = self
            .identify()
            .await
            .map(|(identity, _)| identity)
            .unwrap_or_default();
        self.revision = Some(revision);
        self.listed = true;
        Ok(())
    }

    async fn watch(&mut self, revision: &str) -> Result<bool, RequestError> {
        let length = WATCH.mul_f64(1.0 + fraction());
        let url = format!(
            "{}&watch=1&allowWatchBookmarks=true&resourceVersion={}&timeoutSeconds={}",
            self.url,
            escape(revision),
            length.as_secs()
        );
        let ends_by = Instant::now() + length + OVERTIME;
        let body = client::open_stream(&self.client, client::get_request(&url)?).await?;
        self.listener.answered();
        self.follow_events(EventStream::new(self.kind, body), ends_by)
            .await
    }

    /// Says whether there were any.
    async fn follow_events<B>(
        &mut self,
        mut stream: EventStream<B>,
        ends_by: Instant,
    ) -> Result<bool, RequestError>
    where
        B: Body<Data = Bytes, Error: Into<BoxError>> + Unpin,
    {
        let mut news = Vec::new();
        loop {
            let read = timeout_at(ends_by, stream.read(&mut news)).await;
            // What came before an error counts.
            self.listener.tell(mem::take(&mut news)).await;
            if let Some(reached) = stream.revision() {
                self.revision = Some(reached.to_owned());
            }
            match read {
                Ok(Ok(true)) => {}
                Ok(Ok(false)) => return Ok(stream.has_begun()),
                Ok(Err(error)) => return Err(error),
                Err(_) => return Err(RequestError::Timeout),
            }
        }
    }
}

/// An object that cannot be read is left out (what is known of it stays): one bad object must not
/// hide the others.
fn leave_out(kind: Kind, metadata: Metadata, error: &dyn std::fmt::Display) -> Option<Name> {
    let bad = metadata.name(kind);
    let name = bad
        .as_ref()
        .map(|bad| format!("{}/{}", bad.namespace, bad.name))
        .unwrap_or_default();
    tracing::error!(kind = kind.plural(), name, %error, "cannot read it, it is left out");
    bad
}

/// The objects of a list that can be read.
pub(crate) fn objects_of_list(kind: Kind, body: &[u8]) -> Result<Vec<Object>, RequestError> {
    let list: List<'_> = serde_json::from_slice(body).map_err(RequestError::Decode)?;
    Ok(list
        .items
        .iter()
        .flatten()
        .filter_map(|item| kind.decode(item.get()).ok())
        .collect())
}

/// Escapes the value of a query parameter.
fn escape(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    text.bytes()
        .map(|byte| {
            if plain(byte) {
                char::from(byte).to_string()
            } else {
                format!("%{byte:02X}")
            }
        })
        .collect()
}

#[cfg(test)]
mod tests;
