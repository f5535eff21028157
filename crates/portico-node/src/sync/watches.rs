//! The watches of the API server, read in the loop itself: to wake another task for each change would cost more than the change.

use super::Input;
use crate::client::Clients;
use crate::objects::{Kind, Name, Object};
use crate::watch::{self, Sink};
use futures_util::stream::{FuturesUnordered, StreamExt};
use std::collections::HashSet;
use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Instant;
use tokio::sync::watch as flag;

type Following = Pin<Box<dyn Future<Output = Infallible> + Send>>;

#[derive(Default)]
pub struct Watches {
    following: FuturesUnordered<Following>,
    told: Told,
}

impl Watches {
    /// Follow every kind. The flag says that the server gave an answer.
    pub fn follow(clients: &Clients, node: &Arc<str>) -> (Watches, flag::Receiver<bool>) {
        let (answered, answers) = flag::channel(false);
        let (told, answered) = (Told::default(), Arc::new(answered));
        let follow = |kind| -> Following {
            let (clients, node) = (clients.clone(), Arc::clone(node));
            let inbox = Inbox { told: told.clone(), answered: Arc::clone(&answered) };
            Box::pin(async move { watch::follow(clients, kind, &node, &inbox).await })
        };
        (Watches { following: Kind::ALL.into_iter().map(follow).collect(), told }, answers)
    }

    /// Read until something was told.
    pub async fn read(&mut self) {
        poll_fn(|context| {
            // They never end.
            let _ = self.following.poll_next_unpin(context);
            if self.told.lock().is_empty() { Poll::Pending } else { Poll::Ready(()) }
        })
        .await;
    }

    /// Put what was told into an empty list.
    pub fn take(&mut self, inputs: &mut Vec<Input>) {
        std::mem::swap(&mut *self.told.lock(), inputs);
    }
}

/// What was told and not taken: at most a page of each kind, since nothing is read before it is taken.
#[derive(Clone, Default)]
struct Told(Arc<Mutex<Vec<Input>>>);

impl Told {
    fn lock(&self) -> MutexGuard<'_, Vec<Input>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Inbox {
    told: Told,
    answered: Arc<flag::Sender<bool>>,
}

impl Sink for Inbox {
    fn apply(&self, object: Object) {
        self.told.lock().push(Input::Apply(object, Instant::now()));
    }

    fn delete(&self, name: Name) {
        self.told.lock().push(Input::Delete(name, Instant::now()));
    }

    fn listed(&self, kind: Kind, names: HashSet<Name>) {
        self.told.lock().push(Input::Listed(kind, names));
    }

    fn reached(&self, kind: Kind, version: u64) {
        if matches!(kind, Kind::Service | Kind::Slice) {
            self.told.lock().push(Input::Reached(kind, version));
        }
    }

    fn answered(&self) {
        self.answered.send_if_modified(|answered| !std::mem::replace(answered, true));
    }
}
