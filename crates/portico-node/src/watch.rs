//! Follows one kind of object of the API server: lists it page by page, watches from there, resumes
//! where a connection broke, and lists again when the server no longer has what came in between.
//! Events are read by who wants to know them ([`Stream`]).

mod event;
mod stream;

use crate::backoff::{Backoff, fraction};
use crate::client::{self, Clients, RequestError};
use crate::objects::{Kind, Name, Object};
use bytes::Bytes;
use portico_model::objects;
use serde::Deserialize;
use serde_json::value::RawValue;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};
use stream::Ended;
pub use stream::{Reading, Stream};
use tokio::sync::{mpsc, oneshot, watch as flag};

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

/// One Service: kube-proxy's role may list and watch them, and not get one.
pub fn list_of_one(namespace: &str, service: &str) -> String {
    format!(
        "/api/v1/namespaces/{namespace}/services?fieldSelector=metadata.name%3D{service}&limit=1"
    )
}

/// What there is to know of objects.
#[derive(Debug, PartialEq, Eq)]
pub enum News {
    /// It is there, or it changed.
    Apply(Object),
    Delete(Name),
    /// These are all that there are of a kind; whatever else is known of it is gone.
    Listed(Kind, HashSet<Name>),
    /// All that there was of a kind up to this resource version has been told, also what is of no
    /// interest here.
    Reached(Kind, u64),
}

/// What is told, in this order for each kind.
pub enum Told {
    Page(Page),
    /// The end of a list.
    News(Vec<News>),
    /// From here on the news are in this stream.
    Stream(Stream),
}

/// A page of a list, to be read by who wants to know what is on it: what it keeps of it is then
/// memory of its own thread.
pub struct Page {
    kind: Kind,
    body: Bytes,
    /// Of the pages before.
    names: HashSet<Name>,
    read: oneshot::Sender<Result<Contents, RequestError>>,
}

struct Contents {
    /// With those of the pages before.
    names: HashSet<Name>,
    metadata: ListMetadata,
}

impl Page {
    pub fn read(self, news: &mut Vec<News>) {
        let contents = read_page(self.kind, &self.body, self.names, news);
        drop(self.body);
        let _ = self.read.send(contents);
    }
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

/// Who wants to know.
#[derive(Clone)]
pub struct Listener {
    pub told: mpsc::Sender<Told>,
    /// The server gave an answer.
    pub answered: Arc<flag::Sender<bool>>,
}

impl Listener {
    /// Nobody listens any more only at the end.
    async fn tell(&self, told: Told) {
        let _ = self.told.send(told).await;
    }

    fn answered(&self) {
        self.answered
            .send_if_modified(|answered| !std::mem::replace(answered, true));
    }
}

/// Follow for ever. The kinds that a server need not have (`optional`) are asked for rarely where
/// it has not.
#[expect(
    clippy::cognitive_complexity,
    reason = "one loop from a list to the end of its watch"
)]
pub async fn follow(
    clients: Clients,
    kind: Kind,
    node: Arc<str>,
    listener: Listener,
) -> std::convert::Infallible {
    let (url, identity) = (kind.url(&node), String::new());
    let mut watcher = Watcher {
        clients,
        kind,
        url,
        revision: None,
        listed: false,
        lost: false,
        identity,
        listener,
    };
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
                tracing::info!(
                    kind = kind.plural(),
                    "the server has no history from here on, listing again"
                );
                watcher.revision = None;
                backoff.wait().await;
            }
            // Who had it before is refused by mistake, as while rights are written anew: what is
            // known stays.
            Err(error) if error.is_denied() && kind == Kind::Cidr && !watcher.listed => {
                tracing::info!(kind = kind.plural(), %error, "going on without");
                watcher
                    .listener
                    .tell(Told::News(vec![News::Listed(kind, HashSet::new())]))
                    .await;
                tokio::time::sleep(DENIED.mul_f64(0.5 + fraction())).await;
            }
            Err(error) => {
                match backoff.is_failing() {
                    false => {
                        tracing::warn!(kind = kind.plural(), %error, "cannot follow, will try again")
                    }
                    true => tracing::debug!(kind = kind.plural(), %error, "still cannot follow"),
                }
                watcher.failed(&error);
                backoff.wait().await;
            }
        }
    }
}

struct Watcher {
    clients: Clients,
    kind: Kind,
    url: String,
    /// Where to go on; `None` is from the beginning.
    revision: Option<String>,
    /// There was a list, some time.
    listed: bool,
    /// The connection broke: who answers next may be another server.
    lost: bool,
    /// Of the store that `revision` belongs to.
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
        let body = client::get(
            &self.clients.requests,
            &list_of_one("default", "kubernetes"),
        )
        .await?;
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
            let body = client::get(&self.clients.requests, &url).await?;
            self.listener.answered();
            let (read, contents) = oneshot::channel();
            self.listener
                .tell(Told::Page(Page {
                    kind: self.kind,
                    body,
                    names,
                    read,
                }))
                .await;
            // Otherwise nobody wants to know any more.
            let Ok(contents) = contents.await else {
                return std::future::pending().await;
            };
            let Contents {
                names: so_far,
                metadata,
            } = contents?;
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
        self.listener.tell(Told::News(news)).await;
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
        let connection =
            client::open_stream(&self.clients.watches, client::get_request(&url)?).await?;
        self.listener.answered();
        let (ended, end) = oneshot::channel();
        let stream = Stream::new(
            connection,
            self.kind,
            revision,
            Instant::now() + length + OVERTIME,
            ended,
        );
        self.listener.tell(Told::Stream(stream)).await;
        match end.await {
            Ok(Ended { result, revision }) => {
                self.revision = Some(revision);
                result
            }
            // Nobody wants to know any more.
            Err(_) => std::future::pending().await,
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
pub fn objects_of_list(kind: Kind, body: &[u8]) -> Result<Vec<Object>, RequestError> {
    let list: List<'_> = serde_json::from_slice(body).map_err(RequestError::Decode)?;
    Ok(list
        .items
        .iter()
        .flatten()
        .filter_map(|item| kind.decode(item.get()).ok())
        .collect())
}

/// For the value of a query parameter.
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
