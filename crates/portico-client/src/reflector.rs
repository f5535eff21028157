//! One watch of a kind for all parts of a process that want to know of it.
//!
//! A [`Reflector`] lists and follows a kind while it has subscribers. It keeps the objects as they
//! are now, so that a subscriber that comes later begins with a list without asking the server. All
//! hold the same objects: they are shared, not copied.
//!
//! Each subscriber has the changes that it has not taken yet, of which there is at most one for
//! each object: what it did not look at in time it sees as it is by then. So a slow subscriber
//! holds up nobody and needs no bound other than the number of objects. What it sees is in the
//! order of the watch, and a deletion is never left out for the object of the same name that came
//! after it.
//!
//! A list that starts over (a watch that expired, an API server that went away) begins when all
//! subscribers have taken notice: what they were answered before is in it. One that takes no notice
//! for long gets what there is when it does.
//!
//! The shared store of `kube` was not used because it passes on no deletions and waits for its
//! slowest subscriber.

use crate::wait::{Backoff, WatchBackoff};
use futures_util::stream::BoxStream;
use futures_util::{Stream, StreamExt};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Resource};
use portico_model::key::ObjectKey;
use portico_view::key_of;
use serde::de::DeserializeOwned;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::task::AbortHandle;

/// For subscribers to take notice of a list before it begins.
const NOTICE: Duration = Duration::from_secs(10);

/// What can be watched.
pub trait Watched: Resource + Clone + DeserializeOwned + Debug + Send + Sync + 'static {}

impl<K: Resource + Clone + DeserializeOwned + Debug + Send + Sync + 'static> Watched for K {}

/// A watch of one's own, for a kind that nothing else in the process follows. It does not end.
pub fn watch<K: Watched>(
    api: Api<K>,
    config: watcher::Config,
    backoff: Backoff,
) -> BoxStream<'static, watcher::Result<Event<K>>> {
    watcher(api, config)
        .backoff(WatchBackoff::new(backoff))
        .boxed()
}

/// What a subscriber hears. A failure is told to all of them.
pub type SharedResult<K> = Result<Event<Arc<K>>, Arc<watcher::Error>>;

/// A kind that several parts of a process follow over one watch.
pub struct Reflector<K> {
    shared: Arc<Shared<K>>,
}

impl<K> Clone for Reflector<K> {
    fn clone(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
        }
    }
}

impl<K: Watched> Reflector<K> {
    /// `cut` takes away what nobody in this process reads. Nothing is asked before somebody
    /// subscribes.
    pub fn new(api: Api<K>, backoff: Backoff, cut: fn(&mut K)) -> Self {
        let shared = Shared {
            api,
            backoff,
            cut,
            state: Mutex::default(),
            noticed: Notify::new(),
        };
        Self {
            shared: Arc::new(shared),
        }
    }

    /// All objects that `wanted` says yes to, and their changes. One that it says no to from now on
    /// is deleted for this subscriber, as with a selector. Needs a runtime: the first subscriber
    /// starts the watch, and it ends with the last.
    pub fn subscribe(&self, wanted: fn(&K) -> bool) -> Subscription<K> {
        let mut state = self.shared.lock();
        let id = state.subscribe();
        if state.task.is_none() {
            let task = tokio::spawn(follow(Arc::clone(&self.shared), state.period));
            state.task = Some(task.abort_handle());
        }
        Subscription {
            shared: Arc::clone(&self.shared),
            id,
            wanted,
            known: BTreeSet::new(),
        }
    }
}

/// A part of the process that follows a kind. A stream without an end.
pub struct Subscription<K> {
    shared: Arc<Shared<K>>,
    id: u64,
    wanted: fn(&K) -> bool,
    /// What this subscriber was told to be there.
    known: BTreeSet<ObjectKey>,
}

impl<K: Watched> Stream for Subscription<K> {
    type Item = SharedResult<K>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        loop {
            let next = {
                let mut state = this.shared.lock();
                let next = state.next(this.id);
                if next.is_none() {
                    state.wake_later(this.id, context.waker());
                }
                next
            };
            match next {
                None => return Poll::Pending,
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                Some(Ok(event)) => {
                    if matches!(event, Event::Init) {
                        this.shared.noticed.notify_one();
                    }
                    if let Some(event) = this.select(event) {
                        return Poll::Ready(Some(Ok(event)));
                    }
                }
            }
        }
    }
}

impl<K: Resource> Subscription<K> {
    /// What an event is to a subscriber that does not want all objects.
    fn select(&mut self, event: Event<Arc<K>>) -> Option<Event<Arc<K>>> {
        let (Event::InitApply(object) | Event::Apply(object) | Event::Delete(object)) = &event
        else {
            if matches!(event, Event::Init) {
                self.known.clear();
            }
            return Some(event);
        };
        let key = key_of(object.meta());
        if !matches!(event, Event::Delete(_)) && (self.wanted)(object) {
            self.known.insert(key);
            return Some(event);
        }
        let was_known = self.known.remove(&key);
        was_known.then(|| Event::Delete(Arc::clone(object)))
    }
}

impl<K> Drop for Subscription<K> {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.subscribers.remove(&self.id);
        if state.subscribers.is_empty() {
            if let Some(task) = state.task.take() {
                task.abort();
            }
            // What is not followed is not known. The task may be in the middle of an event.
            state.period += 1;
            (state.objects, state.listing, state.is_listed) = (BTreeMap::new(), None, false);
        }
        drop(state);
        self.shared.noticed.notify_one();
    }
}

struct Shared<K> {
    api: Api<K>,
    backoff: Backoff,
    cut: fn(&mut K),
    state: Mutex<State<K>>,
    /// A subscriber has taken notice of a list, or is gone.
    noticed: Notify,
}

impl<K> Shared<K> {
    fn lock(&self) -> MutexGuard<'_, State<K>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn until_noticed(&self) {
        while !self.lock().subscribers.values().all(Inbox::has_noticed) {
            self.noticed.notified().await;
        }
    }
}

async fn follow<K: Watched>(shared: Arc<Shared<K>>, period: u64) {
    let mut events = watch(
        shared.api.clone(),
        watcher::Config::default(),
        shared.backoff,
    );
    while let Some(event) = events.next().await {
        let is_begin = matches!(event, Ok(Event::Init));
        {
            let mut state = shared.lock();
            if state.period != period {
                return;
            }
            state.take(event, shared.cut);
        }
        if is_begin
            && tokio::time::timeout(NOTICE, shared.until_noticed())
                .await
                .is_err()
        {
            tracing::debug!("a list begins that a part of this process has taken no notice of");
        }
    }
}

struct State<K> {
    objects: BTreeMap<ObjectKey, Arc<K>>,
    /// What the list under way has shown.
    listing: Option<BTreeSet<ObjectKey>>,
    /// `objects` are all that there are.
    is_listed: bool,
    subscribers: BTreeMap<u64, Inbox<K>>,
    last_id: u64,
    /// Counts the times without subscribers: what a watch of before brings is not for those of now.
    period: u64,
    task: Option<AbortHandle>,
}

impl<K> Default for State<K> {
    fn default() -> Self {
        Self {
            objects: BTreeMap::new(),
            listing: None,
            is_listed: false,
            subscribers: BTreeMap::new(),
            last_id: 0,
            period: 0,
            task: None,
        }
    }
}

impl<K: Resource> State<K> {
    fn subscribe(&mut self) -> u64 {
        let mut inbox = Inbox::default();
        if self.listing.is_some() || self.is_listed {
            inbox.begin();
        }
        self.last_id += 1;
        self.subscribers.insert(self.last_id, inbox);
        self.last_id
    }

    /// What this subscriber hears next.
    fn next(&mut self, subscriber: u64) -> Option<SharedResult<K>> {
        let inbox = self.subscribers.get_mut(&subscriber)?;
        if inbox.failed.is_none() && matches!(inbox.list, List::Begins) {
            let listing = self.listing.as_ref();
            let mut objects = Pending::default();
            for (key, object) in &self.objects {
                if listing.is_none_or(|listed| listed.contains(key)) {
                    objects.put(identity(key, &**object), Arc::clone(object));
                }
            }
            let is_complete = listing.is_none();
            inbox.list = List::UnderWay {
                objects,
                is_complete,
            };
            return Some(Ok(Event::Init));
        }
        inbox.next()
    }

    fn wake_later(&mut self, subscriber: u64, waker: &Waker) {
        if let Some(inbox) = self.subscribers.get_mut(&subscriber) {
            inbox.waker = Some(waker.clone());
        }
    }

    fn take(&mut self, event: watcher::Result<Event<K>>, cut: fn(&mut K)) {
        match event {
            Err(error) => {
                let error = Arc::new(error);
                self.tell(|inbox| inbox.failed = Some(Arc::clone(&error)));
            }
            Ok(Event::Init) => {
                self.listing = Some(BTreeSet::new());
                self.tell(Inbox::begin);
            }
            Ok(Event::InitApply(object)) => {
                let (key, object) = self.keep(object, cut);
                self.listing.get_or_insert_default().insert(key.clone());
                self.tell(|inbox| inbox.list(&key, Arc::clone(&object)));
            }
            Ok(Event::InitDone) => {
                let listed = self.listing.take().unwrap_or_default();
                self.objects.retain(|key, _| listed.contains(key));
                self.is_listed = true;
                self.tell(Inbox::end);
            }
            Ok(Event::Apply(object)) => {
                let (key, object) = self.keep(object, cut);
                self.tell(|inbox| inbox.apply(&key, Arc::clone(&object)));
            }
            Ok(Event::Delete(mut object)) => {
                cut(&mut object);
                let key = key_of(object.meta());
                self.objects.remove(&key);
                let object = Arc::new(object);
                self.tell(|inbox| inbox.delete(&key, Arc::clone(&object)));
            }
        }
    }

    fn keep(&mut self, mut object: K, cut: fn(&mut K)) -> (ObjectKey, Arc<K>) {
        cut(&mut object);
        let (key, object) = (key_of(object.meta()), Arc::new(object));
        self.objects.insert(key.clone(), Arc::clone(&object));
        (key, object)
    }

    fn tell(&mut self, tell: impl Fn(&mut Inbox<K>)) {
        for inbox in self.subscribers.values_mut() {
            tell(inbox);
            if let Some(waker) = inbox.waker.take() {
                waker.wake();
            }
        }
    }
}

/// What one subscriber has not taken yet.
struct Inbox<K> {
    failed: Option<Arc<watcher::Error>>,
    list: List<K>,
    /// After the list.
    changes: Pending<Event<Arc<K>>>,
    waker: Option<Waker>,
}

enum List<K> {
    /// The subscriber has heard all of the last one.
    Over,
    /// The subscriber has not heard that one began. What it has by then is what there is by then, so
    /// that nothing it was told of otherwise, by another part of the process, is missing.
    Begins,
    UnderWay {
        objects: Pending<Arc<K>>,
        is_complete: bool,
    },
}

impl<K> Default for Inbox<K> {
    fn default() -> Self {
        Self {
            failed: None,
            list: List::Over,
            changes: Pending::default(),
            waker: None,
        }
    }
}

impl<K: Resource> Inbox<K> {
    fn list(&mut self, key: &ObjectKey, object: Arc<K>) {
        if let List::UnderWay { objects, .. } = &mut self.list {
            objects.put(identity(key, &*object), object);
        }
    }

    fn apply(&mut self, key: &ObjectKey, object: Arc<K>) {
        self.failed = None;
        let identity = identity(key, &*object);
        match &mut self.list {
            List::Begins => {}
            List::UnderWay { objects, .. } if objects.has(&identity) => {
                objects.put(identity, object);
            }
            List::UnderWay { .. } | List::Over => self.changes.put(identity, Event::Apply(object)),
        }
    }

    fn delete(&mut self, key: &ObjectKey, object: Arc<K>) {
        self.failed = None;
        let identity = identity(key, &*object);
        let is_told = match &mut self.list {
            List::Begins => true,
            // What the list does not have is gone.
            List::UnderWay { objects, .. } => objects.remove(&identity),
            List::Over => false,
        };
        if !is_told {
            self.changes.put(identity, Event::Delete(object));
        }
    }
}

impl<K> Inbox<K> {
    /// The list will have all that came before it.
    fn begin(&mut self) {
        self.changes = Pending::default();
        self.list = List::Begins;
    }

    fn end(&mut self) {
        if let List::UnderWay { is_complete, .. } = &mut self.list {
            *is_complete = true;
        }
        self.failed = None;
    }

    fn has_noticed(&self) -> bool {
        !matches!(self.list, List::Begins)
    }

    fn next(&mut self) -> Option<SharedResult<K>> {
        if let Some(error) = self.failed.take() {
            return Some(Err(error));
        }
        let List::UnderWay {
            objects,
            is_complete,
        } = &mut self.list
        else {
            return self.changes.next().map(Ok);
        };
        if let Some(object) = objects.next() {
            return Some(Ok(Event::InitApply(object)));
        }
        if !*is_complete {
            return None;
        }
        self.list = List::Over;
        Some(Ok(Event::InitDone))
    }
}

/// Two objects of one name, one after the other, are two.
type Identity = (ObjectKey, String);

fn identity<K: Resource>(key: &ObjectKey, object: &K) -> Identity {
    (key.clone(), object.meta().uid.clone().unwrap_or_default())
}

/// One entry for each object, in the order in which they were put last.
struct Pending<T> {
    entries: BTreeMap<u64, (Identity, T)>,
    turns: BTreeMap<Identity, u64>,
    last: u64,
}

impl<T> Default for Pending<T> {
    fn default() -> Self {
        Self {
            entries: BTreeMap::new(),
            turns: BTreeMap::new(),
            last: 0,
        }
    }
}

impl<T> Pending<T> {
    fn has(&self, identity: &Identity) -> bool {
        self.turns.contains_key(identity)
    }

    fn put(&mut self, identity: Identity, entry: T) {
        self.remove(&identity);
        self.last += 1;
        self.turns.insert(identity.clone(), self.last);
        self.entries.insert(self.last, (identity, entry));
    }

    fn remove(&mut self, identity: &Identity) -> bool {
        let turn = self.turns.remove(identity);
        turn.is_some_and(|turn| self.entries.remove(&turn).is_some())
    }

    fn next(&mut self) -> Option<T> {
        let (_, (identity, entry)) = self.entries.pop_first()?;
        self.turns.remove(&identity);
        Some(entry)
    }
}

#[cfg(test)]
mod tests;
