//! Load balancers made by another program, which serves the contract of `proto/plugin.proto` on a
//! unix socket (docs/plugins.md).
//!
//! - `messages`, `convert`, `errors`: what goes over the socket.
//! - `client`: calls, with deadlines, bounds and repeats.
//! - `news`: what the plugin says on its own accord.
//! - `serve`: the other end, for plugins in Rust: any [`Provider`] on a socket.

mod client;
mod convert;
mod description;
mod errors;
mod messages;
mod news;
mod serve;

use std::path::Path;

use futures_util::FutureExt;
use tokio::sync::watch;
use tonic::{Code, Status};
use tracing::info;

use super::{Abilities, Answer, Balancer, News, Provider, ProviderError, Request};
use crate::conformance::Can;
use client::Client;
use messages as wire;
use portico_controller::Shutdown;

pub use client::Patience;
pub(crate) use description::DESCRIPTION;
pub use serve::{Served, serve};

/// A provider that is another program.
#[derive(Debug)]
pub struct Plugin {
    /// `plugin`, and its own name for itself.
    name: String,
    version: String,
    abilities: Abilities,
    can: Can,
    client: Client,
    news: watch::Receiver<News>,
}

impl Plugin {
    /// Waits for the plugin to answer, and asks what it can do. What the plugin says on its own
    /// accord is heard until `shutdown`.
    pub async fn start(
        socket: &Path,
        patience: Patience,
        mut shutdown: Shutdown,
    ) -> Result<Self, String> {
        let client = Client::new(socket, patience)?;
        let info = tokio::select! {
            info = client.info() => info.map_err(|status| no_info(socket, &status))?,
            _ = shutdown.wait_for(|stop| *stop) => return Err("stopped before the plugin answered".to_owned()),
        };
        check_revision(&info)?;
        let (sender, news) = watch::channel(News::default());
        tokio::spawn(news::follow(client.clone(), info.clone(), sender, shutdown));
        info!(plugin = info.name, version = info.version, socket = %socket.display(), "found the plugin");
        Ok(Self {
            name: format!("plugin:{}", info.name),
            version: info.version,
            abilities: info.abilities.unwrap_or_default().into(),
            can: info.features.unwrap_or_default().into(),
            client,
            news,
        })
    }

    /// The version that the plugin says to have.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// What it says that it does about what not every one can do.
    pub fn can(&self) -> &Can {
        &self.can
    }

    async fn ask<A: prost::Message + Default + 'static>(
        &self,
        path: &'static str,
        request: &Request,
    ) -> Result<A, ProviderError> {
        let answer = self.client.call(path, wire::Request::from(request)).await;
        answer.map_err(|status| match errors::is_outage(&status) {
            true => ProviderError::Failed(unreachable(&self.client.socket, &status)),
            false => errors::from_status(&status),
        })
    }
}

impl Provider for Plugin {
    fn name(&self) -> &str {
        &self.name
    }

    fn abilities(&self) -> Abilities {
        self.abilities
    }

    fn describe<'a>(&'a self, request: &'a Request) -> Answer<'a, Option<Balancer>> {
        let ask = async move {
            let described: wire::Description = self.ask(wire::DESCRIBE, request).await?;
            described.balancer.map(balancer).transpose()
        };
        ask.boxed()
    }

    fn ensure<'a>(&'a self, request: &'a Request) -> Answer<'a, Balancer> {
        async move { balancer(self.ask(wire::ENSURE, request).await?) }.boxed()
    }

    fn update_nodes<'a>(&'a self, request: &'a Request) -> Answer<'a, ()> {
        async move {
            self.ask::<wire::Nothing>(wire::UPDATE_NODES, request)
                .await
                .map(drop)
        }
        .boxed()
    }

    fn delete<'a>(&'a self, request: &'a Request) -> Answer<'a, ()> {
        async move {
            self.ask::<wire::Nothing>(wire::DELETE, request)
                .await
                .map(drop)
        }
        .boxed()
    }

    fn news(&self) -> Option<watch::Receiver<News>> {
        Some(self.news.clone())
    }
}

fn balancer(message: wire::Balancer) -> Result<Balancer, ProviderError> {
    let read = Balancer::try_from(message);
    read.map_err(|error| {
        ProviderError::Failed(format!("the plugin's answer cannot be used: {error}"))
    })
}

fn check_revision(info: &wire::Info) -> Result<(), String> {
    let (needs, ours) = (info.needs_revision, wire::REVISION);
    if needs <= ours {
        return Ok(());
    }
    Err(format!(
        "the plugin {} {} needs revision {needs} of portico.provider.v1, and this program has {ours}: update Portico, or use an \
         older plugin",
        info.name, info.version
    ))
}

fn no_info(socket: &Path, status: &Status) -> String {
    match status.code() {
        _ if errors::is_outage(status) => unreachable(socket, status),
        Code::Unimplemented => {
            format!(
                "the plugin at {} does not speak portico.provider.v1: use one that does",
                socket.display()
            )
        }
        _ => format!(
            "the plugin at {} does not say what it is: {}",
            socket.display(),
            errors::cause(status)
        ),
    }
}

fn unreachable(socket: &Path, status: &Status) -> String {
    let (socket, cause) = (socket.display(), errors::cause(status));
    format!(
        "no plugin answers at {socket} ({cause}): see that it runs, and that this user may write \
         to the socket"
    )
}

#[cfg(test)]
mod tests;
