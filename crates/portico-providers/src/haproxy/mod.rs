//! Load balancers out of a HAProxy beside the controller: a section for each port of a Service, a
//! server for each node or endpoint.
//!
//! Owns its configuration file and the sections `portico_*`, nothing else. What changes while
//! Services live (servers) HAProxy is told while it runs; what is left (ports, options) goes by a
//! reload that hands the listening sockets on. Neither ends a connection (design/0017).
//!
//! - `settings`: the cloud configuration; `desired`: what a Service asks for.
//! - `table`, `render`, `running`, `plan`: what is wanted, as text, what runs, and the difference.
//!   Pure.
//! - `socket`, `files`: HAProxy's socket and its configuration on disk.
//! - `proxy`: makes what runs what is wanted; `driver`: the task that does it for all Services.

mod description;
mod desired;
mod driver;
mod files;
mod plan;
mod proxy;
mod render;
mod running;
mod settings;
mod socket;
mod table;
#[cfg(test)]
mod testing;

use std::path::Path;
use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};

use super::{Abilities, Answer, Balancer, Provider, ProviderError, Request};
pub(crate) use description::DESCRIPTION;
use desired::Desired;
use driver::{Ask, Command, Driver, Reply};
use portico_controller::Shutdown;
use portico_controller::task::AbortOnDrop;
use settings::Settings;

/// Requests that wait for the task.
const WAITING: usize = 1024;

/// The provider `haproxy`.
#[derive(Debug)]
pub struct Haproxy {
    settings: Arc<Settings>,
    commands: mpsc::Sender<Command>,
    _task: AbortOnDrop,
}

impl Haproxy {
    /// Adopts the HAProxy that runs, or starts one, and starts the task that looks after it; it
    /// ends with `shutdown`, and where it stands when the provider is dropped. HAProxy stays. An
    /// error is one of the configuration: a HAProxy that is away is waited for.
    pub async fn start(config: &Path, shutdown: Shutdown) -> Result<Self, String> {
        let settings = Arc::new(Settings::read(config)?);
        files::make_folders(&settings).map_err(|error| error.to_string())?;
        let table = files::read_table(&settings.table_path()).map_err(|error| error.to_string())?;
        let (commands, receiver) = mpsc::channel(WAITING);
        let driver = Driver::new(Arc::clone(&settings), table, receiver).await;
        let task = tokio::spawn(driver.run(shutdown));
        Ok(Self {
            settings,
            commands,
            _task: AbortOnDrop(task.abort_handle()),
        })
    }

    async fn ask(&self, ask: Ask) -> Reply {
        let stopped = || ProviderError::Failed("the controller is being stopped".to_owned());
        let (reply, answer) = oneshot::channel();
        self.commands
            .send(Command { ask, reply })
            .await
            .map_err(|_| stopped())?;
        answer.await.map_err(|_| stopped())?
    }

    async fn make(&self, request: &Request) -> Result<Balancer, ProviderError> {
        let desired = Desired::new(request, &self.settings)?;
        Ok(self
            .ask(Ask::Ensure(Box::new(desired)))
            .await?
            .unwrap_or_default())
    }
}

impl Provider for Haproxy {
    fn name(&self) -> &str {
        "haproxy"
    }

    fn abilities(&self) -> Abilities {
        Abilities {
            uses_nodes: true,
            uses_endpoints: true,
            ..Abilities::default()
        }
    }

    fn describe<'a>(&'a self, request: &'a Request) -> Answer<'a, Option<Balancer>> {
        Box::pin(self.ask(Ask::Describe {
            uid: request.service.uid.clone(),
        }))
    }

    fn ensure<'a>(&'a self, request: &'a Request) -> Answer<'a, Balancer> {
        Box::pin(self.make(request))
    }

    fn update_nodes<'a>(&'a self, request: &'a Request) -> Answer<'a, ()> {
        Box::pin(async { self.make(request).await.map(drop) })
    }

    fn delete<'a>(&'a self, request: &'a Request) -> Answer<'a, ()> {
        Box::pin(async {
            self.ask(Ask::Delete {
                uid: request.service.uid.clone(),
            })
            .await
            .map(drop)
        })
    }
}
