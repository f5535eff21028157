//! A cloud in memory with its calls counted, and providers on it.

use super::story::Cost;
use bytes::Bytes;
use futures_util::FutureExt;
use http::Request as HttpRequest;
use portico_providers::cloud::{Sent, Transport};
use portico_providers::{Abilities, Answer, Balancer, Provider, Request};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

/// What a request to a cloud is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Read,
    Write,
    /// A further page of a list, of which the first is a read.
    Page,
    /// A look at something that takes its time.
    Wait,
    /// About who asks, and not about any Service.
    Login,
}

pub(crate) type Sort = Arc<dyn Fn(&HttpRequest<Bytes>) -> Kind + Send + Sync>;
pub(crate) type Start = Box<dyn Fn(Arc<dyn Transport>) -> Arc<dyn Provider>>;

pub(crate) struct Cloud {
    pub name: &'static str,
    /// A provider as after a start of the program.
    pub start: Start,
    pub wire: Arc<dyn Transport>,
    pub kind: Sort,
    /// What Services are annotated with.
    pub annotations: Value,
    /// `spec.providerID` of a node.
    pub provider_id: fn(usize) -> String,
    /// How often a new one is ensured until it is ready.
    pub tries: usize,
    /// With how many nodes many Services are made.
    pub nodes: usize,
    /// Of each chapter of the story: reads and writes for each Service.
    pub each: [(usize, usize); 8],
    /// And for what all Services share.
    pub shared: [(usize, usize); 8],
}

#[derive(Default)]
struct Counts {
    reads: AtomicUsize,
    writes: AtomicUsize,
    pages: AtomicUsize,
    waits: AtomicUsize,
}

/// Counts requests on their way.
struct Counted {
    wire: Arc<dyn Transport>,
    kind: Sort,
    counts: Arc<Counts>,
}

impl Transport for Counted {
    fn send(&self, request: HttpRequest<Bytes>) -> Sent<'_> {
        let count = match (self.kind)(&request) {
            Kind::Read => Some(&self.counts.reads),
            Kind::Write => Some(&self.counts.writes),
            Kind::Page => Some(&self.counts.pages),
            Kind::Wait => Some(&self.counts.waits),
            Kind::Login => None,
        };
        count.inspect(|count| _ = count.fetch_add(1, SeqCst));
        self.wire.send(request)
    }
}

/// How often a provider was called, to the end of the call.
#[derive(Default)]
struct Calls {
    ensured: AtomicUsize,
    moved: AtomicUsize,
    deleted: AtomicUsize,
}

/// A call of a provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    Ensure,
    UpdateNodes,
    Delete,
}

/// A provider that tells how often it was called, and what that cost.
pub(crate) struct Watched {
    provider: Arc<dyn Provider>,
    counts: Arc<Counts>,
    calls: Calls,
    /// By the name of the balancer, how many nodes it was told of last.
    nodes: Mutex<BTreeMap<String, usize>>,
}

impl Watched {
    pub(crate) fn on(cloud: &Cloud) -> Self {
        let counts: Arc<Counts> = Arc::default();
        let counted = Counted {
            wire: Arc::clone(&cloud.wire),
            kind: Arc::clone(&cloud.kind),
            counts: Arc::clone(&counts),
        };
        Self {
            provider: (cloud.start)(Arc::new(counted)),
            counts,
            calls: Calls::default(),
            nodes: Mutex::default(),
        }
    }

    pub(crate) fn called(&self, call: Call) -> usize {
        self.count(call).load(SeqCst)
    }

    /// How many balancers know so many nodes.
    pub(crate) fn with_nodes(&self, nodes: usize) -> usize {
        self.nodes
            .lock()
            .unwrap()
            .values()
            .filter(|known| **known == nodes)
            .count()
    }

    fn count(&self, call: Call) -> &AtomicUsize {
        match call {
            Call::Ensure => &self.calls.ensured,
            Call::UpdateNodes => &self.calls.moved,
            Call::Delete => &self.calls.deleted,
        }
    }

    /// Since the last time.
    pub(crate) fn take_cost(&self) -> Cost {
        let Counts {
            reads,
            writes,
            pages,
            waits,
        } = &*self.counts;
        let [reads, writes, pages, waits] =
            [reads, writes, pages, waits].map(|count| count.swap(0, SeqCst));
        Cost {
            reads,
            writes,
            pages,
            waits,
        }
    }

    async fn counting<T>(
        &self,
        call: Call,
        request: &Request,
        answer: Answer<'_, T>,
    ) -> Result<T, portico_providers::ProviderError> {
        let answer = answer.await;
        assert!(answer.is_ok(), "{call:?}: {:?}", answer.as_ref().err());
        self.nodes
            .lock()
            .unwrap()
            .insert(request.balancer_name.clone(), request.nodes.len());
        self.count(call).fetch_add(1, SeqCst);
        answer
    }
}

impl Provider for Watched {
    fn name(&self) -> &str {
        self.provider.name()
    }

    fn abilities(&self) -> Abilities {
        self.provider.abilities()
    }

    fn describe<'a>(&'a self, request: &'a Request) -> Answer<'a, Option<Balancer>> {
        self.provider.describe(request)
    }

    fn ensure<'a>(&'a self, request: &'a Request) -> Answer<'a, Balancer> {
        self.counting(Call::Ensure, request, self.provider.ensure(request))
            .boxed()
    }

    fn update_nodes<'a>(&'a self, request: &'a Request) -> Answer<'a, ()> {
        self.counting(
            Call::UpdateNodes,
            request,
            self.provider.update_nodes(request),
        )
        .boxed()
    }

    fn delete<'a>(&'a self, request: &'a Request) -> Answer<'a, ()> {
        self.counting(Call::Delete, request, self.provider.delete(request))
            .boxed()
    }

    fn forget(&self, request: &Request) {
        self.provider.forget(request);
    }
}
