//! The difference between what is wanted and what runs, as what to tell HAProxy: commands while it
//! runs, or a reload.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;

use super::desired::Check;
use super::render::{server_arguments, server_name};
use super::running::{Running, Server};
use super::settings::Settings;
use super::table::Site;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Plan {
    /// Anything but servers is different.
    Reload,
    /// Servers are; or nothing is, if there are none.
    Commands(Vec<Command>),
}

/// About one server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Command {
    pub section: String,
    pub server: String,
    pub what: What,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// It is made known; it gets no connections yet.
    Add {
        address: SocketAddr,
        arguments: String,
    },
    /// Its health is asked for.
    Check,
    /// It gets connections.
    Enable,
    /// It gets connections after it was found healthy.
    Doubt,
    /// It has another address than its own, by a command of another program.
    Move { address: SocketAddr },
    /// It gets no new connections; it keeps those that it has.
    Disable,
    /// It is removed if no connection uses it any more.
    Delete,
}

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = format!("{}/{}", self.section, self.server);
        match &self.what {
            What::Add { address, arguments } => {
                write!(f, "add server {name} {address} {arguments}")
            }
            What::Check => write!(f, "enable health {name}"),
            What::Enable => write!(f, "set server {name} state ready"),
            What::Doubt => write!(f, "set server {name} health down"),
            What::Move { address } => write!(
                f,
                "set server {name} addr {} port {}",
                address.ip(),
                address.port()
            ),
            What::Disable => write!(f, "set server {name} state maint"),
            What::Delete => write!(f, "del server {name}"),
        }
    }
}

impl Command {
    /// Whether this is the answer of a HAProxy that has done it.
    pub(super) fn is_done(&self, answer: &str) -> bool {
        match self.what {
            What::Add { .. } => answer == "New server registered.",
            What::Delete => answer == "Server deleted.",
            What::Move { .. } => !answer.contains("rror") && !answer.contains("nvalid"),
            What::Check | What::Enable | What::Doubt | What::Disable => answer.is_empty(),
        }
    }

    /// Whether a server gets no more connections after it.
    pub(super) fn takes_away(&self) -> bool {
        matches!(self.what, What::Disable | What::Delete)
    }

    /// Whether HAProxy may refuse it: as long as there are connections, it is tried again later.
    pub(super) fn may_wait(&self) -> bool {
        self.what == What::Delete
    }

    /// What runs once it is done.
    pub(super) fn apply(&self, running: &mut Running) {
        let Some(servers) = running.sections.get_mut(&self.section) else {
            return;
        };
        match (&self.what, servers.get_mut(&self.server)) {
            (What::Add { address, .. }, _) => {
                let server = Server {
                    address: *address,
                    enabled: false,
                    up: true,
                };
                servers.insert(self.server.clone(), server);
            }
            (What::Delete, _) => _ = servers.remove(&self.server),
            (What::Enable, Some(server)) => (server.enabled, server.up) = (true, true),
            (What::Disable, Some(server)) => server.enabled = false,
            (What::Doubt, Some(server)) => server.up = false,
            (What::Move { address }, Some(server)) => server.address = *address,
            (What::Check | What::Enable | What::Disable | What::Doubt | What::Move { .. }, _) => {}
        }
    }
}

/// The plan for these Services of a table. `generation` is that of the whole table.
pub(super) fn plan<'a>(
    sites: impl IntoIterator<Item = &'a Site>,
    generation: u64,
    settings: &Settings,
    running: &Running,
) -> Plan {
    if running.generation != Some(generation) {
        return Plan::Reload;
    }
    let mut commands = Vec::new();
    for site in sites {
        for (port, servers) in &site.ports {
            let section = site.section(*port);
            let Some(present) = running.sections.get(&section) else {
                return Plan::Reload;
            };
            let wanted = servers
                .iter()
                .map(|server| (server_name(server), *server))
                .collect();
            Difference {
                site,
                section,
                wanted,
                present,
                settings,
            }
            .commands(&mut commands);
        }
    }
    Plan::Commands(commands)
}

struct Difference<'a> {
    site: &'a Site,
    section: String,
    wanted: BTreeMap<String, SocketAddr>,
    present: &'a BTreeMap<String, Server>,
    settings: &'a Settings,
}

impl Difference<'_> {
    /// Adds servers before it removes others, so that one can serve at all times.
    fn commands(&self, commands: &mut Vec<Command>) {
        let others = self.present.iter().any(|(name, server)| {
            server.enabled && server.up && self.wanted.get(name) == Some(&server.address)
        });
        for (name, address) in &self.wanted {
            self.come(name, *address, others, commands);
        }
        for (name, server) in self
            .present
            .iter()
            .filter(|(name, _)| !self.wanted.contains_key(*name))
        {
            if server.enabled {
                commands.push(self.command(name, What::Disable));
            }
            commands.push(self.command(name, What::Delete));
        }
    }

    fn come(&self, name: &str, address: SocketAddr, others: bool, commands: &mut Vec<Command>) {
        let mut push = |what| commands.push(self.command(name, what));
        let present = self.present.get(name);
        if present.is_none() {
            let arguments = server_arguments(&self.site.options, self.settings);
            push(What::Add { address, arguments });
            push(What::Check);
        }
        if present.is_some_and(|server| server.address != address) {
            push(What::Move { address });
        }
        if !present.is_some_and(|server| server.enabled) {
            push(What::Enable);
            // The API knows which endpoints are ready. Whether a node is ready is known only after
            // a check; as the only server it gets connections at once.
            if others && self.site.options.check != Check::Connect {
                push(What::Doubt);
            }
        }
    }

    fn command(&self, server: &str, what: What) -> Command {
        Command {
            section: self.section.clone(),
            server: server.to_owned(),
            what,
        }
    }
}

#[cfg(test)]
mod tests;
