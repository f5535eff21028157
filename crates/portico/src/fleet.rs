//! Reads the fleet from the API server: once for a command that prints, or for as long as a screen
//! or a page shows it. What it means is decided in `portico-view`.

use crate::client::Reader;
use futures_util::stream::{BoxStream, SelectAll, select_all};
use futures_util::{Stream, StreamExt, stream};
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client};
use portico_client::error::chain;
use portico_client::reflector::{Watched, watch};
use portico_client::wait::Backoff;
use portico_model::report;
use portico_view::{Fleet, Kind, Object};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Which Services: those of a namespace, or all.
pub(crate) type Scope<'a> = Option<&'a str>;

/// Reports are read last, so that what they should have reached is older than they are.
pub(crate) async fn read(reader: &Reader, scope: Scope<'_>) -> anyhow::Result<Fleet> {
    let mut fleet = Fleet::default();
    read_again(reader, scope, &mut fleet).await?;
    Ok(fleet)
}

/// Reads everything again into what was read before, by which it is seen which nodes have reported
/// since.
pub(crate) async fn read_again(
    reader: &Reader,
    scope: Scope<'_>,
    fleet: &mut Fleet,
) -> anyhow::Result<()> {
    let slices = path("/apis/discovery.k8s.io/v1", scope, "endpointslices");
    let leases = path(
        "/apis/coordination.k8s.io/v1",
        Some(report::NAMESPACE),
        "leases",
    );
    let services: Vec<Service> = reader.list(&path("/api/v1", scope, "services")).await?;
    let slices: Vec<EndpointSlice> = reader.list(&slices).await?;
    let nodes: Vec<Node> = reader.list("/api/v1/nodes").await?;
    let leases: Vec<Lease> = reader.list(&leases).await?;
    let clock = Timestamp::now();
    fleet.replace(Kind::Service, objects(services), clock);
    fleet.replace(Kind::Slice, objects(slices), clock);
    fleet.replace(Kind::Node, objects(nodes), clock);
    fleet.replace(Kind::Lease, objects(leases), clock);
    Ok(())
}

/// For a node whose report is late: so long is waited for it at most.
pub(crate) const LONGEST_DOUBT: Duration = Duration::from_secs(2);

/// Reads the fleet; where a report is late, once more after the time in which it comes if the node
/// lives. In a large cluster, where that takes long, the clocks decide.
pub(crate) async fn read_beyond_doubt(reader: &Reader, scope: Scope<'_>) -> anyhow::Result<Fleet> {
    let mut fleet = read(reader, scope).await?;
    let doubt = fleet.doubt(Timestamp::now());
    if let Some(wait) = doubt.filter(|wait| *wait <= LONGEST_DOUBT) {
        tokio::time::sleep(wait).await;
        read_again(reader, scope, &mut fleet).await?;
    }
    Ok(fleet)
}

fn objects<K>(listed: Vec<K>) -> Vec<Object>
where
    Object: From<K>,
{
    listed.into_iter().map(Object::from).collect()
}

/// The path of a list: `/api/v1/namespaces/shop/services` or `/api/v1/services`.
pub(crate) fn path(api: &str, scope: Scope<'_>, plural: &str) -> String {
    match scope {
        Some(namespace) => format!("{api}/namespaces/{namespace}/{plural}"),
        None => format!("{api}/{plural}"),
    }
}

/// What happened at the API server.
#[derive(Clone, Debug)]
pub(crate) enum News {
    /// A list begins. What it has counts when it is complete.
    ListBegins(Kind),
    Listed(Object),
    ListEnds(Kind),
    Applied(Object),
    Deleted(Object),
    Failed(String),
}

/// The fleet as a watch keeps it.
#[derive(Clone, Debug, Default)]
pub(crate) struct WatchedFleet {
    pub fleet: Fleet,
    /// Why what is known may be old.
    pub trouble: Option<String>,
    lists: BTreeMap<Kind, Vec<Object>>,
    complete: BTreeSet<Kind>,
}

impl WatchedFleet {
    /// Came now. Says whether there is anything new to show.
    pub(crate) fn apply(&mut self, news: News, clock: Timestamp) -> bool {
        match news {
            News::ListBegins(kind) => {
                self.lists.insert(kind, Vec::new());
            }
            News::Listed(object) => self.lists.entry(object.kind()).or_default().push(object),
            News::ListEnds(kind) => {
                let listed = self.lists.remove(&kind).unwrap_or_default();
                self.fleet.replace(kind, listed, clock);
                self.complete.insert(kind);
                self.trouble = None;
            }
            News::Applied(object) => return self.fleet.apply(object, clock),
            News::Deleted(object) => self.fleet.delete(&object),
            News::Failed(problem) => self.trouble = Some(problem),
        }
        true
    }

    /// All lists are there but that of Leases, which an API server need not have.
    pub(crate) fn is_complete(&self) -> bool {
        Kind::ALL
            .iter()
            .all(|kind| *kind == Kind::Lease || self.complete.contains(kind))
    }
}

pub(crate) type AllNews = SelectAll<BoxStream<'static, News>>;

/// Lists everything, and follows what happens from then on. The watches are made again when they
/// end, so the stream does not end.
pub(crate) fn follow(client: &Client) -> AllNews {
    let all = watcher::Config::default;
    select_all([
        news::<Service>(Api::all(client.clone()), all(), Kind::Service).boxed(),
        news::<EndpointSlice>(Api::all(client.clone()), all(), Kind::Slice).boxed(),
        news::<Node>(Api::all(client.clone()), all(), Kind::Node).boxed(),
        news::<Lease>(
            Api::namespaced(client.clone(), report::NAMESPACE),
            all(),
            Kind::Lease,
        )
        .boxed(),
    ])
}

fn news<K>(api: Api<K>, config: watcher::Config, kind: Kind) -> impl Stream<Item = News> + Send
where
    K: Watched,
    Object: From<K>,
{
    let read = move |event: watcher::Result<Event<K>>| match event {
        Ok(Event::Init) => News::ListBegins(kind),
        Ok(Event::InitApply(object)) => News::Listed(object.into()),
        Ok(Event::InitDone) => News::ListEnds(kind),
        Ok(Event::Apply(object)) => News::Applied(object.into()),
        Ok(Event::Delete(object)) => News::Deleted(object.into()),
        Err(error) => News::Failed(chain(&error)),
    };
    watch(api, config, Backoff::of_controllers())
        .map(read)
        .chain(stream::pending())
}
