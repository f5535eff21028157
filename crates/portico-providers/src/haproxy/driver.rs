//! The task that has the table: takes what is asked of it in one go, makes HAProxy so, and answers.
//! It looks after HAProxy between times.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until, timeout_at};
use tracing::{info, warn};

use super::desired::Desired;
use super::proxy::{Proxy, ProxyError, Scope};
use super::settings::Settings;
use super::table::{Site, Table};
use crate::{Balancer, ProviderError};
use portico_controller::Shutdown;

/// How long a change that needs a reload waits for others that do.
const TOGETHER: Duration = Duration::from_millis(50);
/// Changes of servers are on disk after this long; HAProxy and the API know them before.
const SAVE: Duration = Duration::from_secs(1);
/// Whether the same worker runs as before.
const GLANCE: Duration = Duration::from_secs(2);
/// Glances between two looks at every server.
const LOOK: u32 = 15;

#[derive(Debug)]
pub(super) enum Ask {
    Ensure(Box<Desired>),
    Delete { uid: String },
    Describe { uid: String },
}

/// The load balancer that there is then.
pub(super) type Reply = Result<Option<Balancer>, ProviderError>;

#[derive(Debug)]
pub(super) struct Command {
    pub ask: Ask,
    pub reply: oneshot::Sender<Reply>,
}

/// A change that HAProxy does not know of yet, and what there was before.
struct Pending {
    command: Command,
    uid: String,
    before: Option<Site>,
}

async fn stopped(shutdown: &mut Shutdown) {
    _ = shutdown.wait_for(|stop| *stop).await;
}

pub(super) struct Driver {
    settings: Arc<Settings>,
    table: Table,
    proxy: Proxy,
    commands: mpsc::Receiver<Command>,
    /// When what is not on disk goes there.
    save: Option<Instant>,
    glances: u32,
}

impl Driver {
    pub(super) async fn new(
        settings: Arc<Settings>,
        mut table: Table,
        commands: mpsc::Receiver<Command>,
    ) -> Self {
        let mut proxy = Proxy::new(Arc::clone(&settings));
        proxy.adopt(&mut table).await;
        if let Err(error) = proxy.prepare(&table) {
            warn!(
                error = &error as &dyn std::error::Error,
                "HAProxy cannot be started by others"
            );
        }
        let mut driver = Self {
            settings,
            table,
            proxy,
            commands,
            save: None,
            glances: 0,
        };
        driver.repair().await;
        driver
    }

    pub(super) async fn run(mut self, mut shutdown: Shutdown) {
        let mut glances = interval(GLANCE);
        glances.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let save_at = self.save.unwrap_or_else(|| Instant::now() + SAVE);
            tokio::select! {
                biased;
                () = stopped(&mut shutdown) => break,
                command = self.commands.recv() => match command {
                    Some(command) => self.take(command).await,
                    None => break,
                },
                () = sleep_until(save_at), if self.save.is_some() => self.save(),
                _ = glances.tick() => self.glance().await,
            }
        }
        self.save();
        info!(reloads = self.proxy.reloads, "HAProxy goes on as it is");
    }

    /// Takes a command, with everything that waits beside it.
    async fn take(&mut self, first: Command) {
        let mut pending = Vec::new();
        let mut structure = self.note(first, &mut pending).await;
        while let Ok(command) = self.commands.try_recv() {
            structure |= self.note(command, &mut pending).await;
        }
        let deadline = Instant::now() + TOGETHER;
        while structure && let Ok(Some(command)) = timeout_at(deadline, self.commands.recv()).await
        {
            self.note(command, &mut pending).await;
        }
        self.settle(pending, structure).await;
    }

    /// Into the table, or answered at once. Whether it needs a reload.
    async fn note(&mut self, command: Command, pending: &mut Vec<Pending>) -> bool {
        let (uid, desired) = match &command.ask {
            Ask::Describe { uid } => {
                let answer = self.describe(uid).await;
                _ = command.reply.send(answer);
                return false;
            }
            Ask::Ensure(desired) => (desired.uid.clone(), Some(Desired::clone(desired))),
            Ask::Delete { uid } => (uid.clone(), None),
        };
        let before = self.table.sites.get(&uid).cloned();
        let changed = match desired {
            Some(desired) => self.table.ensure(desired, &self.settings),
            None => {
                self.table.sites.remove(&uid);
                Ok(())
            }
        };
        if let Err(error) = changed {
            _ = command.reply.send(Err(error));
            return false;
        }
        let same = match (&before, self.table.sites.get(&uid)) {
            (Some(before), Some(after)) => before.has_structure_of(after),
            (None, None) => true,
            _ => false,
        };
        pending.push(Pending {
            command,
            uid,
            before,
        });
        !same
    }

    /// Brings the table into HAProxy; a Service that HAProxy refuses does not hold up the others.
    async fn settle(&mut self, mut pending: Vec<Pending>, structure: bool) {
        if pending.is_empty() {
            return;
        }
        match self.converge(&pending, structure).await {
            Ok(()) => {
                self.save.get_or_insert_with(|| Instant::now() + SAVE);
                pending.into_iter().for_each(|done| self.answer(done));
            }
            Err(error) if error.is_about_configuration() && pending.len() > 1 => {
                warn!(%error, "one of {} changes is not possible: each on its own", pending.len());
                self.undo(&mut pending);
                for one in pending {
                    let mut alone = Vec::new();
                    let structure = self.note(one.command, &mut alone).await;
                    Box::pin(self.settle(alone, structure)).await;
                }
            }
            Err(error) => {
                self.undo(&mut pending);
                warn!(%error, "HAProxy is as it was");
                pending
                    .into_iter()
                    .for_each(|failed| _ = failed.command.reply.send(Err((&error).into())));
            }
        }
    }

    async fn converge(&mut self, pending: &[Pending], structure: bool) -> Result<(), ProxyError> {
        if structure {
            self.proxy.note_structure(&self.table);
        }
        let scope = Scope::Some(pending.iter().map(|one| one.uid.clone()).collect());
        self.proxy.converge(&self.table, &scope).await
    }

    fn undo(&mut self, pending: &mut [Pending]) {
        for one in pending.iter_mut().rev() {
            match one.before.take() {
                Some(before) => _ = self.table.sites.insert(one.uid.clone(), before),
                None => _ = self.table.sites.remove(&one.uid),
            }
        }
        self.proxy.note_structure(&self.table);
    }

    fn answer(&self, done: Pending) {
        let site = self.table.sites.get(&done.uid);
        _ = done
            .command
            .reply
            .send(Ok(site.map(|site| site.balancer(&self.settings))));
    }

    async fn describe(&mut self, uid: &str) -> Reply {
        let Some(site) = self.table.sites.get(uid) else {
            return Ok(None);
        };
        match self.proxy.has(site).await {
            Ok(true) => Ok(Some(site.balancer(&self.settings))),
            Ok(false) => Ok(None),
            Err(error) => Err((&error).into()),
        }
    }

    async fn glance(&mut self) {
        self.glances += 1;
        if self.glances.is_multiple_of(LOOK) {
            self.proxy.forget();
        }
        if self.proxy.notice().await {
            self.repair().await;
        }
    }

    /// Whatever HAProxy was told by others, or forgot.
    async fn repair(&mut self) {
        if let Err(error) = self.proxy.converge(&self.table, &Scope::All).await {
            warn!(
                error = &error as &dyn std::error::Error,
                "HAProxy is not what it should be; trying again"
            );
        }
    }

    fn save(&mut self) {
        if self.save.take().is_some()
            && let Err(error) = self.proxy.save(&self.table)
        {
            warn!(
                error = &error as &dyn std::error::Error,
                "the next HAProxy would begin with old servers"
            );
        }
    }
}
