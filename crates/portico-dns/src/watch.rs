//! Follows Services, EndpointSlices, Nodes and the reports of nodes at the API server. What comes
//! in is cut down to facts at once. While the server is away, what is known stays.

use crate::facts::{self, Node, Service, Slice};
use crate::index::Index;
use futures_util::stream::{BoxStream, SelectAll, select_all};
use futures_util::{StreamExt, stream};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client};
use portico_client::error::chain;
use portico_client::reflector::{Watched, watch};
use portico_client::wait::Backoff;
use portico_model::key::ObjectKey;
use portico_model::report;
use std::collections::{BTreeSet, HashSet};

/// A watch ends after this time and goes on with the next; a connection that died silently is
/// noticed a little later.
const WATCH_SECONDS: u32 = 60;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Service,
    Slice,
    Node,
    Report,
}

impl Kind {
    /// Without these there is no zone. A server need not have or show reports.
    pub(crate) const NEEDED: [Self; 3] = [Self::Service, Self::Slice, Self::Node];
}

/// Something happened at the API server.
pub(crate) enum News {
    Begin(Kind),
    Service(ObjectKey, Option<Service>),
    Slice(ObjectKey, Option<Slice>),
    Node(String, Option<Node>),
    Report(String, Option<facts::Report>),
    End(Kind),
    Failed(Kind, String),
}

/// What the API server says, from now on.
pub(crate) fn follow(client: &Client) -> SelectAll<BoxStream<'static, News>> {
    let config = watcher::Config::default().timeout(WATCH_SECONDS);
    let slices = config
        .clone()
        .labels(&format!("!{}", portico_model::objects::HEADLESS));
    let reports = Api::<Lease>::namespaced(client.clone(), report::NAMESPACE);
    select_all([
        news(
            Kind::Service,
            Api::<core::Service>::all(client.clone()),
            config.clone(),
            |object, there| {
                facts::service(object)
                    .map(|(name, service)| News::Service(name, there.then_some(service)))
            },
        ),
        news(
            Kind::Slice,
            Api::<EndpointSlice>::all(client.clone()),
            slices,
            |object, there| {
                facts::slice(object).map(|(name, slice)| News::Slice(name, there.then_some(slice)))
            },
        ),
        news(
            Kind::Node,
            Api::<core::Node>::all(client.clone()),
            config.clone(),
            |object, there| {
                facts::node(object).map(|(name, node)| News::Node(name, there.then_some(node)))
            },
        ),
        news(Kind::Report, reports, config, |object, there| {
            facts::report(object)
                .map(|(name, report)| News::Report(name, Some(report).filter(|_| there)))
        }),
    ])
}

fn news<K>(
    kind: Kind,
    api: Api<K>,
    config: watcher::Config,
    cut: fn(&K, bool) -> Option<News>,
) -> BoxStream<'static, News>
where
    K: Watched,
{
    let events = watch(api, config, Backoff::of_controllers());
    let read = move |event: watcher::Result<Event<K>>| match event {
        Ok(Event::Init) => Some(News::Begin(kind)),
        Ok(Event::InitApply(object) | Event::Apply(object)) => cut(&object, true),
        Ok(Event::Delete(object)) => cut(&object, false),
        Ok(Event::InitDone) => Some(News::End(kind)),
        Err(error) => Some(News::Failed(kind, chain(&error))),
    };
    events
        .filter_map(move |event| std::future::ready(read(event)))
        .chain(stream::pending())
        .boxed()
}

/// Puts news into an index, and knows of each kind whether it has been listed.
#[derive(Default)]
pub(crate) struct Feed {
    listed: BTreeSet<Kind>,
    failing: BTreeSet<Kind>,
    /// Lists that are under way.
    under_way: BTreeSet<Kind>,
    known: Known,
    /// What a list that is under way has named.
    listing: Known,
}

#[derive(Default)]
struct Known {
    services: HashSet<ObjectKey>,
    slices: HashSet<ObjectKey>,
    nodes: HashSet<String>,
    reports: HashSet<String>,
}

impl Feed {
    pub(crate) fn is_complete(&self) -> bool {
        Kind::NEEDED.iter().all(|kind| self.listed.contains(kind))
    }

    pub(crate) fn take(&mut self, index: &mut Index, news: News) {
        match news {
            News::Begin(kind) => self.begin(kind),
            News::End(kind) => self.end(index, kind),
            News::Failed(kind, error) => match self.failing.insert(kind) {
                true => tracing::warn!(?kind, error, "cannot follow, will try again"),
                false => tracing::debug!(?kind, error, "still cannot follow"),
            },
            News::Service(name, service) => {
                let listing = self
                    .works(Kind::Service)
                    .then_some(&mut self.listing.services);
                note(&mut self.known.services, listing, &name, service.is_some());
                index.set_service(name, service);
            }
            News::Slice(name, slice) => {
                let listing = self.works(Kind::Slice).then_some(&mut self.listing.slices);
                note(&mut self.known.slices, listing, &name, slice.is_some());
                index.set_slice(name, slice);
            }
            News::Node(name, node) => {
                let listing = self.works(Kind::Node).then_some(&mut self.listing.nodes);
                note(&mut self.known.nodes, listing, &name, node.is_some());
                index.set_node(&name, node);
            }
            News::Report(name, report) => {
                let listing = self
                    .works(Kind::Report)
                    .then_some(&mut self.listing.reports);
                note(&mut self.known.reports, listing, &name, report.is_some());
                index.set_report(&name, report);
            }
        }
    }

    /// The server answered. Tells whether a list is under way.
    fn works(&mut self, kind: Kind) -> bool {
        if self.failing.remove(&kind) {
            tracing::info!(?kind, "following again");
        }
        self.under_way.contains(&kind)
    }

    fn begin(&mut self, kind: Kind) {
        self.under_way.insert(kind);
        match kind {
            Kind::Service => self.listing.services.clear(),
            Kind::Slice => self.listing.slices.clear(),
            Kind::Node => self.listing.nodes.clear(),
            Kind::Report => self.listing.reports.clear(),
        }
    }

    /// The list is complete: what it does not name is gone.
    fn end(&mut self, index: &mut Index, kind: Kind) {
        self.works(kind);
        self.under_way.remove(&kind);
        self.listed.insert(kind);
        let (known, listing) = (&mut self.known, &mut self.listing);
        match kind {
            Kind::Service => {
                gone(&mut known.services, &mut listing.services)
                    .for_each(|name| index.set_service(name, None));
            }
            Kind::Slice => gone(&mut known.slices, &mut listing.slices)
                .for_each(|name| index.set_slice(name, None)),
            Kind::Node => gone(&mut known.nodes, &mut listing.nodes)
                .for_each(|name| index.set_node(&name, None)),
            Kind::Report => gone(&mut known.reports, &mut listing.reports)
                .for_each(|name| index.set_report(&name, None)),
        }
    }
}

fn note<N: Clone + Eq + std::hash::Hash>(
    known: &mut HashSet<N>,
    listing: Option<&mut HashSet<N>>,
    name: &N,
    there: bool,
) {
    for names in std::iter::once(known).chain(listing) {
        match there {
            true => drop(names.insert(name.clone())),
            false => drop(names.remove(name)),
        }
    }
}

fn gone<N: Clone + Eq + std::hash::Hash>(
    known: &mut HashSet<N>,
    listing: &mut HashSet<N>,
) -> impl Iterator<Item = N> {
    let before = std::mem::replace(known, std::mem::take(listing));
    let gone: Vec<N> = before
        .into_iter()
        .filter(|name| !known.contains(name))
        .collect();
    gone.into_iter()
}
