//! What `portico vip status` shows: which node has the address and why, which API servers answer,
//! and what is in force.

use crate::config::Config;
use crate::election::{Counters, Settings, State};
use crate::forward::{Applied, Mode};
use crate::handover::Relaying;
use crate::servers::Known;
use clap::ValueEnum;
use jiff::Timestamp;
use portico_vrrp::{Role, Version};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::{self, Write};
use std::net::{IpAddr, SocketAddr};
use std::time::SystemTime;

/// What `portico vip status` shows, as JSON on the status page.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    /// The port of the virtual addresses.
    pub port: u16,
    /// The elections, one for each family.
    pub routers: Vec<Router>,
    /// The API servers that are known.
    pub servers: Vec<ServerStatus>,
    /// Why it is not known which there are.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub servers_trouble: Option<String>,
    /// How connections are forwarded.
    pub forwarding: Forwarding,
}

/// One virtual router: the addresses of one family.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Router {
    /// The virtual addresses.
    pub addresses: Vec<IpAddr>,
    /// The link that has them.
    pub interface: String,
    /// The address that adverts are sent from.
    pub own: IpAddr,
    /// The number of the virtual router.
    pub virtual_router_id: u8,
    /// The version of VRRP.
    pub vrrp_version: u8,
    /// `owner`, `standby` or `stopped`.
    pub role: String,
    /// The priority of this node at present.
    pub priority: u8,
    /// The address of the owner; absent where none is known.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub owner: Option<IpAddr>,
    /// The routers whose adverts were heard.
    pub peers: Vec<Peer>,
    /// The last changes of role, newest last.
    pub transitions: Vec<Transition>,
    /// The last time that another host had the address.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub conflict: Option<Conflict>,
    /// Which adverts count: `signed`, `signed, unsigned ones too`, `of the peers`, `any on the link`.
    #[serde(default)]
    pub adverts: String,
    /// The last advert of a sender outside of this election.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub stranger: Option<Stranger>,
    /// How many there were since the start, by what was wrong with them.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub strangers: BTreeMap<String, u64>,
    /// Why this node cannot take part.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub trouble: Option<String>,
    /// Where packets of unknown connections are sent at present.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub relay: Option<Relay>,
    /// Why connections would not outlive a hand-over.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub relay_trouble: Option<String>,
    /// How often things happened, by name.
    pub counters: BTreeMap<String, u64>,
    /// Adverts that did not count, by why.
    pub adverts_ignored: BTreeMap<String, u64>,
}

/// Another router of the election.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Peer {
    /// Its address.
    pub address: IpAddr,
    /// The priority in its last advert.
    pub priority: u8,
    /// When its last advert came.
    pub last_heard: Timestamp,
}

/// A change of role.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Transition {
    /// When it happened.
    pub at: Timestamp,
    /// The new role.
    pub role: String,
    /// Why it changed.
    pub reason: String,
}

/// Another host that had the address.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Conflict {
    /// When it was seen.
    pub at: Timestamp,
    /// The virtual address.
    pub address: IpAddr,
    /// The hardware address of the other host.
    pub hardware: String,
}

/// An advert of a sender outside of the election.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stranger {
    /// When it came.
    pub at: Timestamp,
    /// May be forged.
    pub from: IpAddr,
    /// Why it does not count.
    pub why: String,
}

/// The former owner, to which packets of its connections are sent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Relay {
    /// The address of the host that gets them.
    pub to: IpAddr,
    /// When that began.
    pub since: Timestamp,
}

/// An API server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ServerStatus {
    /// Its address and port.
    pub address: SocketAddr,
    /// Whether it answers its probes.
    pub healthy: bool,
    /// It runs on this node.
    pub own: bool,
    /// When that last changed.
    pub since: Timestamp,
    /// What the last probe said, where it was not plainly good.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub note: Option<String>,
}

/// How connections are forwarded.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Forwarding {
    /// The way that is in use.
    pub mode: String,
    /// Why this way was chosen.
    pub why: String,
    /// What is wrong with it.
    pub problems: Vec<String>,
    /// The rules in force, as their own tool prints them.
    pub rules: Vec<String>,
}

/// What became of the last attempt to forward.
#[derive(Clone, Debug, Default)]
pub struct Attempt {
    /// What was done; `None` before the first success.
    pub applied: Option<Applied>,
    /// Why the last attempt failed; `None` if it succeeded.
    pub error: Option<String>,
    /// How many attempts failed since the start.
    pub errors: u64,
}

impl Status {
    /// The status at present.
    pub fn new(
        config: &Config,
        states: &[State],
        known: &Known,
        attempt: &Attempt,
        rules: Vec<String>,
    ) -> Self {
        Self {
            port: config.port,
            routers: config
                .elections
                .iter()
                .zip(states)
                .map(|(settings, state)| Router::new(settings, state))
                .collect(),
            servers: known
                .servers
                .iter()
                .map(|(&address, health)| ServerStatus {
                    address,
                    healthy: health.healthy,
                    own: config.own_addresses.contains(&address.ip()),
                    since: at(health.since),
                    note: health.last.clone(),
                })
                .collect(),
            servers_trouble: known.trouble.clone(),
            forwarding: Forwarding::new(attempt, rules),
        }
    }

    /// Adds how the routers hand over, in their order.
    pub fn handing_over(mut self, each: impl IntoIterator<Item = Relaying>) -> Self {
        for (router, relaying) in self.routers.iter_mut().zip(each) {
            router.relay = relaying.to.map(|(to, since)| Relay {
                to,
                since: at(since),
            });
            router.relay_trouble = relaying.trouble;
        }
        self
    }
}

impl Router {
    fn new(settings: &Settings, state: &State) -> Self {
        Self {
            addresses: settings.router.addresses.clone(),
            interface: settings.interface.clone(),
            own: settings.router.own,
            virtual_router_id: settings.router.vrid,
            vrrp_version: match settings.router.version {
                Version::V2 => 2,
                Version::V3 => 3,
            },
            role: role(state.role),
            priority: state.priority,
            owner: state.owner,
            peers: state
                .peers
                .iter()
                .map(|peer| Peer {
                    address: peer.address,
                    priority: peer.priority,
                    last_heard: at(peer.last_heard),
                })
                .collect(),
            transitions: state
                .transitions
                .iter()
                .map(|change| Transition {
                    at: at(change.at),
                    role: role(change.role),
                    reason: change.reason.to_string(),
                })
                .collect(),
            conflict: state.conflict.as_ref().map(|(when, conflict)| Conflict {
                at: at(*when),
                address: conflict.address,
                hardware: conflict.by.map(|byte| format!("{byte:02x}")).join(":"),
            }),
            adverts: adverts(settings).to_owned(),
            stranger: state.stranger.as_ref().map(|stranger| Stranger {
                at: at(stranger.at),
                from: stranger.from,
                why: stranger.why.clone(),
            }),
            strangers: state
                .counters
                .strangers
                .iter()
                .map(|(why, n)| ((*why).to_owned(), *n))
                .collect(),
            trouble: state.trouble.clone(),
            relay: None,
            relay_trouble: None,
            counters: counters(&state.counters),
            adverts_ignored: state
                .counters
                .adverts_ignored
                .iter()
                .map(|(why, n)| ((*why).to_owned(), *n))
                .collect(),
        }
    }
}

fn adverts(settings: &Settings) -> &'static str {
    match &settings.auth {
        Some(auth) if auth.mode == portico_vrrp::Mode::Enforce => "signed",
        Some(_) => "signed, and for now unsigned ones too",
        None if settings.router.peers.is_empty() => "of anybody on the link",
        None => "of the peers, unsigned",
    }
}

fn counters(counters: &Counters) -> BTreeMap<String, u64> {
    let table = [
        ("adverts_sent", counters.adverts_sent),
        ("adverts_received", counters.adverts_received),
        ("send_errors", counters.send_errors),
        ("transitions", counters.transitions),
        ("became_owner", counters.became_owner),
        ("conflicts", counters.conflicts),
        ("announcements", counters.announcements),
        ("restored", counters.restored),
    ];
    table
        .into_iter()
        .map(|(name, count)| (name.to_owned(), count))
        .collect()
}

impl Forwarding {
    fn new(attempt: &Attempt, rules: Vec<String>) -> Self {
        let applied = attempt.applied.as_ref();
        let mut problems = applied
            .map(|applied| applied.problems.clone())
            .unwrap_or_default();
        problems.extend(attempt.error.clone());
        Self {
            mode: applied.map_or("none".to_owned(), |applied| mode(applied.mode)),
            why: applied.map_or("nothing is forwarded yet".to_owned(), |applied| {
                applied.why.clone()
            }),
            problems,
            rules,
        }
    }
}

fn mode(mode: Mode) -> String {
    mode.to_possible_value()
        .map_or(String::new(), |value| value.get_name().to_owned())
}

fn role(role: Role) -> String {
    match role {
        Role::Stopped => "stopped",
        Role::Standby => "standby",
        Role::Owner => "owner",
    }
    .to_owned()
}

/// A clock beyond the year 9999 shows the epoch.
fn at(time: SystemTime) -> Timestamp {
    Timestamp::try_from(time).unwrap_or(Timestamp::UNIX_EPOCH)
}

/// For people.
impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for router in &self.routers {
            router.print(self.port, f)?;
        }
        writeln!(f, "\nAPI servers")?;
        for server in &self.servers {
            let state = if server.healthy { "ready" } else { "not ready" };
            let own = if server.own { " (this node)" } else { "" };
            let note = server
                .note
                .as_ref()
                .map_or(String::new(), |note| format!(": {note}"));
            writeln!(
                f,
                "  {}{own}  {state} since {:.0}{note}",
                server.address, server.since
            )?;
        }
        if self.servers.is_empty() {
            writeln!(f, "  none is known")?;
        }
        if let Some(trouble) = &self.servers_trouble {
            writeln!(f, "  which there are cannot be found out: {trouble}")?;
        }
        writeln!(
            f,
            "\nForwarding: {} ({})",
            self.forwarding.mode, self.forwarding.why
        )?;
        for problem in &self.forwarding.problems {
            writeln!(f, "  problem: {problem}")?;
        }
        for rule in &self.forwarding.rules {
            writeln!(f, "  {rule}")?;
        }
        Ok(())
    }
}

impl Router {
    fn print(&self, port: u16, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut addresses = String::new();
        for address in &self.addresses {
            write!(addresses, "{} ", SocketAddr::new(*address, port))?;
        }
        writeln!(
            f,
            "{addresses}on {}: {}, priority {} (VRRP {}, id {})",
            self.interface, self.role, self.priority, self.vrrp_version, self.virtual_router_id
        )?;
        if let Some(trouble) = &self.trouble {
            writeln!(f, "  trouble: {trouble}")?;
        }
        if let Some(conflict) = &self.conflict {
            writeln!(
                f,
                "  conflict: {} was used by {} at {:.0}",
                conflict.address, conflict.hardware, conflict.at
            )?;
        }
        match self.owner {
            Some(owner) if owner == self.own => writeln!(f, "  owner: this node ({owner})")?,
            Some(owner) => writeln!(f, "  owner: {owner}")?,
            None => writeln!(f, "  owner: nobody was heard")?,
        }
        if let Some(relay) = &self.relay {
            writeln!(
                f,
                "  connections of before are relayed to {} since {:.0}",
                relay.to, relay.since
            )?;
        }
        if let Some(trouble) = &self.relay_trouble {
            writeln!(f, "  a hand-over would end connections: {trouble}")?;
        }
        writeln!(f, "  adverts that count: {}", self.adverts)?;
        if let Some(stranger) = &self.stranger {
            writeln!(
                f,
                "  strangers: {} adverts were dropped, the last from {} at {:.0}: {}",
                self.strangers.values().sum::<u64>(),
                stranger.from,
                stranger.at,
                stranger.why
            )?;
        }
        for peer in &self.peers {
            writeln!(
                f,
                "  peer {}: priority {}, heard at {:.0}",
                peer.address, peer.priority, peer.last_heard
            )?;
        }
        for change in self.transitions.iter().rev() {
            writeln!(f, "  {:.0} {}: {}", change.at, change.role, change.reason)?;
        }
        Ok(())
    }
}
