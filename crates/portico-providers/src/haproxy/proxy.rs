//! Makes a running HAProxy what a table says, without ending a connection: by commands where they
//! do, by a reload where not. It remembers what it told HAProxy, and reads what runs at the start,
//! after a failure, and when asked to.

use portico_client::error::chain;
use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpSocket;
use tokio::time::{Instant, sleep};
use tracing::{info, warn};

use super::desired::refused;
use super::files::{self, FileError};
use super::plan::{Plan, What, plan};
use super::render::{generation, render};
use super::running::{Running, worth_keeping};
use super::settings::Settings;
use super::socket::{Master, SocketError};
use super::table::{Site, Table};
use crate::ProviderError;

/// Plans until what runs is what is wanted; the first does, unless something interferes.
const TRIES: usize = 4;
/// The time limit for a new worker to run.
const RELOAD: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(10);
/// The time limit for a master that is there and does not answer.
const BUSY: Duration = Duration::from_secs(10);

#[derive(Debug, thiserror::Error)]
pub enum ProxyError {
    #[error(transparent)]
    Socket(#[from] SocketError),
    #[error(transparent)]
    File(#[from] FileError),
    #[error(
        "HAProxy did not load its new configuration and goes on with the old one: its log says why"
    )]
    NotLoaded,
    #[error("HAProxy cannot listen at {address}")]
    CannotBind {
        address: SocketAddr,
        source: io::Error,
    },
    #[error(
        "HAProxy is not what it was told to be after {TRIES} tries: does somebody else change it?"
    )]
    Unsettled,
}

impl ProxyError {
    /// Others could be served if this were not asked for.
    pub fn is_about_configuration(&self) -> bool {
        matches!(
            self,
            Self::File(FileError::Invalid(_)) | Self::NotLoaded | Self::CannotBind { .. }
        )
    }
}

impl From<&ProxyError> for ProviderError {
    fn from(error: &ProxyError) -> Self {
        match error {
            ProxyError::CannotBind { .. } => refused("CannotListen", chain(error)),
            _ => Self::Failed(chain(error)),
        }
    }
}

/// The part of a table that may have changed.
#[derive(Clone, Debug)]
pub(super) enum Scope {
    All,
    /// By uid.
    Some(Vec<String>),
}

impl Scope {
    fn sites<'a>(&self, table: &'a Table) -> Vec<&'a Site> {
        match self {
            Self::All => table.sites.values().collect(),
            Self::Some(uids) => uids.iter().filter_map(|uid| table.sites.get(uid)).collect(),
        }
    }
}

#[derive(Debug)]
pub(super) struct Proxy {
    settings: Arc<Settings>,
    master: Master,
    /// `None` where it has to be read.
    running: Option<Running>,
    /// Where HAProxy listens already; `None` where that is not known.
    bound: Option<BTreeSet<SocketAddr>>,
    /// The generation of the table that was last seen.
    generation: u64,
    pub reloads: u64,
}

impl Proxy {
    pub(super) fn new(settings: Arc<Settings>) -> Self {
        let master = Master::new(&settings.master_socket);
        Self {
            settings,
            master,
            running: None,
            bound: None,
            generation: 0,
            reloads: 0,
        }
    }

    /// What runs is of use as it is: servers stay as they are until they are changed.
    pub(super) async fn adopt(&mut self, table: &mut Table) {
        self.generation = generation(table, &self.settings);
        let Ok(running) = self.read_patiently().await else {
            return;
        };
        if running.generation != Some(self.generation) {
            return;
        }
        self.bound = Some(table.binds());
        for site in table.sites.values_mut() {
            let sections: Vec<(u16, String)> = site
                .ports
                .keys()
                .map(|port| (*port, site.section(*port)))
                .collect();
            for (port, section) in sections {
                let servers = running
                    .sections
                    .get(&section)
                    .into_iter()
                    .flat_map(|servers| servers.values());
                let enabled = servers
                    .filter(|server| server.enabled)
                    .map(|server| server.address);
                site.ports.insert(port, enabled.collect());
            }
        }
        info!(
            worker = running.worker,
            services = table.sites.len(),
            "adopted a running HAProxy"
        );
        self.running = Some(running);
    }

    /// Writes a first configuration, with which HAProxy can be started.
    pub(super) fn prepare(&self, table: &Table) -> Result<(), FileError> {
        if files::read(&self.settings.state_path())?.is_none() {
            files::write(&self.settings.state_path(), "1\n")?;
        }
        if files::read(&self.settings.config_path())?.is_none() {
            self.save(table)
        } else {
            Ok(())
        }
    }

    /// Notes that something other than servers may have changed in the table.
    pub(super) fn note_structure(&mut self, table: &Table) {
        self.generation = generation(table, &self.settings);
    }

    pub(super) fn forget(&mut self) {
        self.running = None;
    }

    /// Another worker than ours runs, or none: everything it was told is forgotten.
    pub(super) async fn notice(&mut self) -> bool {
        let current = self.master.worker().await.ok().map(|(worker, _)| worker);
        self.running
            .take_if(|running| Some(running.worker) != current);
        self.running.is_none()
    }

    /// What runs is what the table says; the configuration on disk is that of the table if
    /// something was reloaded.
    pub(super) async fn converge(
        &mut self,
        table: &Table,
        scope: &Scope,
    ) -> Result<(), ProxyError> {
        let result = self.try_converge(table, scope).await;
        if result.is_err() {
            self.running = None;
        }
        result
    }

    async fn try_converge(&mut self, table: &Table, scope: &Scope) -> Result<(), ProxyError> {
        let mut scope = scope.clone();
        // Another program may have reloaded it; the former worker would still take commands.
        self.notice().await;
        for _ in 0..TRIES {
            if self.running.is_none() {
                self.running = Some(self.read_or_start(table).await?);
                scope = Scope::All;
            }
            let Some(running) = &mut self.running else {
                continue;
            };
            let sites = scope.sites(table);
            match plan(sites, self.generation, &self.settings, running) {
                Plan::Commands(commands) if commands.is_empty() => return Ok(()),
                Plan::Commands(commands) => match self.master.tell(running, &commands).await {
                    // Those that wait for connections to end are tried again another time.
                    Ok(()) => return Ok(()),
                    Err(error) => {
                        warn!(%error, "reading again what HAProxy has");
                        self.running = None;
                    }
                },
                Plan::Reload => self.reload(table).await?,
            }
        }
        Err(ProxyError::Unsettled)
    }

    /// While the master loads a configuration, also one that an earlier process asked for, it does
    /// not answer: that is no reason to start another.
    async fn read_patiently(&self) -> Result<Running, SocketError> {
        let deadline = Instant::now() + BUSY;
        loop {
            match self.master.read().await {
                Err(SocketError::Away { .. })
                    if files::is_started(&self.settings) && Instant::now() < deadline =>
                {
                    sleep(POLL).await;
                }
                read => return read,
            }
        }
    }

    async fn read_or_start(&mut self, table: &Table) -> Result<Running, ProxyError> {
        match self.read_patiently().await {
            Ok(running) => return Ok(running),
            Err(SocketError::Away { .. }) if self.settings.run => {}
            Err(error) => return Err(error.into()),
        }
        info!("starting HAProxy");
        self.bound = Some(BTreeSet::new());
        let before = self.save_checked(table).await?;
        match self.start().await {
            Ok(running) => {
                self.bound = Some(table.binds());
                Ok(running)
            }
            Err(error) => {
                self.restore(before)?;
                Err(error)
            }
        }
    }

    async fn start(&self) -> Result<Running, ProxyError> {
        files::start(&self.settings).await?;
        let deadline = Instant::now() + RELOAD;
        loop {
            match self.master.read().await {
                Ok(running) => return Ok(running),
                Err(error) if Instant::now() > deadline => return Err(error.into()),
                Err(_) => sleep(POLL).await,
            }
        }
    }

    async fn reload(&mut self, table: &Table) -> Result<(), ProxyError> {
        let before = self.save_checked(table).await?;
        self.bound = None;
        match self.load(Some(self.generation)).await {
            Ok(running) => {
                self.reloads += 1;
                self.bound = Some(table.binds());
                self.running = Some(running);
                Ok(())
            }
            Err(error) => {
                self.restore(before)?;
                // The master waits for a configuration that it can use; the worker goes on
                // meanwhile.
                self.running = Some(self.load(None).await?);
                Err(error)
            }
        }
    }

    /// A worker with this generation, or whichever is in the file.
    async fn load(&self, wanted: Option<u64>) -> Result<Running, ProxyError> {
        let (worker, loads) = self.master.worker().await?;
        let states = self.master.states(worker).await?;
        files::write(&self.settings.state_path(), &worth_keeping(&states))?;
        self.master.reload().await;
        let deadline = Instant::now() + RELOAD;
        loop {
            match self.master.worker().await {
                Ok((new, count)) if new != worker && count > loads => break,
                // The master answers again, and has no new worker.
                Ok((_, count)) if count > loads => return Err(ProxyError::NotLoaded),
                Err(error) if Instant::now() > deadline => return Err(error.into()),
                Ok(_) if Instant::now() > deadline => return Err(ProxyError::NotLoaded),
                Ok(_) | Err(_) => sleep(POLL).await,
            }
        }
        let running = self.master.read().await?;
        match wanted.is_none() || running.generation == wanted {
            true => Ok(running),
            false => Err(ProxyError::NotLoaded),
        }
    }

    /// The table is on disk, if HAProxy takes it and can listen where it says; what was there
    /// before.
    async fn save_checked(&mut self, table: &Table) -> Result<[Option<String>; 2], ProxyError> {
        if let Some(bound) = &self.bound {
            table
                .binds()
                .difference(bound)
                .try_for_each(|address| try_bind(*address))?;
        }
        let rendered = render(table, &self.settings);
        self.generation = rendered.generation;
        files::check(&self.settings, &rendered.text).await?;
        let before = [
            files::read(&self.settings.table_path())?,
            files::read(&self.settings.config_path())?,
        ];
        self.write(table, &rendered.text)?;
        Ok(before)
    }

    /// Writes the state for the next start of HAProxy or of this program.
    pub(super) fn save(&self, table: &Table) -> Result<(), FileError> {
        self.write(table, &render(table, &self.settings).text)
    }

    fn write(&self, table: &Table, text: &str) -> Result<(), FileError> {
        let json = serde_json::to_string(table).unwrap_or_default();
        files::write(&self.settings.table_path(), &json)?;
        files::write(&self.settings.config_path(), text)
    }

    fn restore(&self, before: [Option<String>; 2]) -> Result<(), FileError> {
        let paths = [self.settings.table_path(), self.settings.config_path()];
        paths
            .iter()
            .zip(before)
            .try_for_each(|(path, text)| text.map_or(Ok(()), |text| files::write(path, &text)))
    }

    /// Whether HAProxy has a Service as it should be. Reads, changes nothing.
    pub(super) async fn has(&mut self, site: &Site) -> Result<bool, ProxyError> {
        let running = self.master.read().await?;
        let plan = plan([site], self.generation, &self.settings, &running);
        self.running = Some(running);
        Ok(
            matches!(plan, Plan::Commands(commands) if commands.iter().all(|command| command.what == What::Delete)),
        )
    }
}

/// A worker that cannot listen somewhere makes its predecessor stop listening for a moment before
/// it gives up, so we try first.
fn try_bind(address: SocketAddr) -> Result<(), ProxyError> {
    let tried = || {
        let socket = if address.is_ipv4() {
            TcpSocket::new_v4()?
        } else {
            TcpSocket::new_v6()?
        };
        socket.set_reuseaddr(true)?;
        socket.bind(address)
    };
    match tried() {
        // We may have fewer rights than HAProxy.
        Err(source)
            if [io::ErrorKind::AddrInUse, io::ErrorKind::AddrNotAvailable]
                .contains(&source.kind()) =>
        {
            Err(ProxyError::CannotBind { address, source })
        }
        _ => Ok(()),
    }
}
