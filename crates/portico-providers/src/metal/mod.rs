//! Load balancers without a cloud: addresses out of AddressPools, which Portico's nodes announce.
//!
//! Owns the allocation of addresses. An address belongs to a Service by a claim in an AddressBlock,
//! written with optimistic locking before the address appears anywhere, and removed after it is
//! gone everywhere (design/0013). Announcing is the nodes'.
//!
//! - `pools`, `runs`: the addresses there are, and which are free.
//! - `desired`: what a Service asks for.
//! - `blocks`, `allocations`, `choose`: which Service has what, and which gets what. Pure.
//! - `allocate`, `store`: deciding and writing, until both agree.
//! - `driver`: the task that does it; `status`: what a pool shows.
//! - `key`: by which nodes that announce authenticate each other.

mod allocate;
mod allocations;
mod blocks;
mod choose;
mod description;
mod desired;
mod driver;
mod key;
mod pools;
mod runs;
mod status;
mod store;
#[cfg(test)]
mod testing;

use std::net::IpAddr;

use futures_util::future::BoxFuture;
use tokio::sync::{mpsc, oneshot, watch};

use super::{
    Abilities, Answer, Balancer, Host, Ingress, IpMode, News, Provider, ProviderError, Request,
};
use allocate::{Addresses, Ask};
pub(crate) use description::DESCRIPTION;
use desired::Desired;
use driver::{Command, Driver};
use portico_controller::Shutdown;
use portico_controller::cluster::Cluster as WatchedCluster;
use portico_controller::task::AbortOnDrop;
use store::Cluster;

/// Requests that wait for the task.
const WAITING: usize = 1024;

/// The provider `metal`.
#[derive(Debug)]
pub(crate) struct Metal {
    commands: mpsc::Sender<Command>,
    news: watch::Receiver<News>,
    settled: watch::Receiver<bool>,
    _tasks: [AbortOnDrop; 2],
}

impl Metal {
    /// Starts the tasks that allocate and provide the key; they end with `shutdown`, and where they
    /// stand when the provider is dropped.
    pub(crate) fn start(
        WatchedCluster {
            client, services, ..
        }: WatchedCluster,
        shutdown: Shutdown,
    ) -> Self {
        let (commands, receiver) = mpsc::channel(WAITING);
        let (sender, news) = watch::channel(News::default());
        let (settling, settled) = watch::channel(false);
        let key = tokio::spawn(key::provide(client.clone()));
        let driver = tokio::spawn(
            Driver::new(Cluster::new(client), services, receiver, sender, settling).run(shutdown),
        );
        Self {
            commands,
            news,
            settled,
            _tasks: [key, driver].map(|task| AbortOnDrop(task.abort_handle())),
        }
    }

    async fn ask(&self, ask: Ask) -> Result<Addresses, ProviderError> {
        let stopped = || ProviderError::Failed("the controller is being stopped".to_owned());
        let (reply, answer) = oneshot::channel();
        self.commands
            .send(Command { ask, reply })
            .await
            .map_err(|_| stopped())?;
        answer.await.map_err(|_| stopped())?
    }
}

impl Provider for Metal {
    fn name(&self) -> &str {
        "metal"
    }

    fn abilities(&self) -> Abilities {
        Abilities {
            announced_by_nodes: true,
            ..Abilities::default()
        }
    }

    fn describe<'a>(&'a self, request: &'a Request) -> Answer<'a, Option<Balancer>> {
        Box::pin(async move {
            let ask = Ask::Describe {
                uid: request.service.uid.clone(),
                families: request.families.clone(),
            };
            let found = self.ask(ask).await?;
            Ok((!found.addresses.is_empty()).then(|| balancer(&found.addresses)))
        })
    }

    fn ensure<'a>(&'a self, request: &'a Request) -> Answer<'a, Balancer> {
        Box::pin(async move {
            let given = self
                .ask(Ask::Ensure(Box::new(Desired::new(request))))
                .await?;
            Ok(balancer(&given.addresses))
        })
    }

    /// Nodes take part by announcing, which they decide themselves.
    fn update_nodes<'a>(&'a self, _request: &'a Request) -> Answer<'a, ()> {
        Box::pin(async { Ok(()) })
    }

    fn delete<'a>(&'a self, request: &'a Request) -> Answer<'a, ()> {
        Box::pin(async move {
            let ask = Ask::Delete {
                uid: request.service.uid.clone(),
                current: desired::current(request),
            };
            self.ask(ask).await.map(drop)
        })
    }

    fn news(&self) -> Option<watch::Receiver<News>> {
        Some(self.news.clone())
    }

    /// A claim ends when no status shows its address any more.
    fn settle(&self) -> BoxFuture<'_, ()> {
        let mut settled = self.settled.clone();
        Box::pin(async move {
            // An error is the end of the task, after which nothing changes either.
            let _ = settled.wait_for(|settled| *settled).await;
        })
    }
}

fn balancer(addresses: &[IpAddr]) -> Balancer {
    let ingress = addresses.iter().map(|address| Ingress {
        host: Host::Ip(*address),
        mode: IpMode::Vip,
    });
    Balancer {
        ingress: ingress.collect(),
        pending: None,
    }
}
