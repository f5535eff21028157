//! The API servers: which there are, and which of them answer.
//!
//! [`follow`] keeps a [`Known`] up to date: [`discover`] finds the servers, a task for each of them
//! [`probe`]s it, and [`health`] decides what that means. What was found is [`remembered`] for a
//! start at which no server answers.

pub(crate) mod discover;
pub(crate) mod health;
pub(crate) mod probe;
pub(crate) mod remembered;

use discover::{Discovery, Found};
use health::{Finding, Health, Thresholds};
use probe::Prober;
use remembered::Remembered;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, SystemTime};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;

/// One API server as it is known now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// The address and port of the server.
    pub address: SocketAddr,
    /// Whether it answers its probes.
    pub healthy: bool,
    /// It takes no connections, so those that are open lead nowhere.
    pub gone: bool,
}

/// The servers that are to get connections: the healthy ones, and all of them where none is.
pub fn eligible(servers: &[Server]) -> Vec<SocketAddr> {
    let all = || servers.iter().map(|server| server.address);
    let healthy: Vec<_> = servers
        .iter()
        .filter(|server| server.healthy)
        .map(|server| server.address)
        .collect();
    if healthy.is_empty() {
        all().collect()
    } else {
        healthy
    }
}

/// All that is known of API servers at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Known {
    /// Those of which at least one probe has ended.
    pub servers: BTreeMap<SocketAddr, Health>,
    /// The cluster IPs of `default/kubernetes`, with the port.
    pub cluster: Vec<SocketAddr>,
    /// Why the list of servers could not be read.
    pub trouble: Option<String>,
    /// Whether every server has been probed at least once.
    pub complete: bool,
}

impl Known {
    /// The servers in the order of their addresses.
    pub fn list(&self) -> Vec<Server> {
        let server = |(&address, health): (&SocketAddr, &Health)| Server {
            address,
            healthy: health.healthy,
            gone: health.gone,
        };
        self.servers.iter().map(server).collect()
    }
}

/// How they are followed.
pub struct Following {
    /// Always there, whatever is found.
    pub fixed: Vec<SocketAddr>,
    /// How servers are found; `None` where only the fixed ones are used.
    pub discovery: Option<Discovery>,
    /// The file with the servers that were found last; `None` for none.
    pub remembered: Option<Remembered>,
    /// What probes a server.
    pub prober: Prober,
    /// The time between two probes of a server.
    pub interval: Duration,
    /// How many answers in a row change a server's health.
    pub thresholds: Thresholds,
    /// The time between two reads of the list of servers.
    pub rediscover: Duration,
    /// Machines that went silent, as others noticed.
    pub doubts: mpsc::Receiver<IpAddr>,
}

/// Keep `known` up to date until dropped.
pub async fn follow(following: Following, known: watch::Sender<Known>) {
    let Following {
        fixed,
        discovery,
        remembered,
        prober,
        interval,
        thresholds,
        rediscover,
        mut doubts,
    } = following;
    let (findings, mut found) = mpsc::channel(64);
    let (discovered, mut discoveries) = mpsc::channel(1);
    let last = remembered
        .as_ref()
        .map(Remembered::read)
        .unwrap_or_default();
    let mut crowd = Crowd {
        probes: JoinSet::new(),
        members: BTreeMap::new(),
        prober,
        interval,
        findings,
    };
    crowd.set(
        fixed
            .iter()
            .copied()
            .chain(last.servers.iter().copied())
            .collect(),
    );
    known.send_modify(|known| known.cluster = last.cluster);
    let looking = discovery
        .map(|discovery| tokio::spawn(look(discovery, rediscover, known.subscribe(), discovered)));
    let _looking = looking.map(AbortOnDrop);
    loop {
        tokio::select! {
            Some((server, finding)) = found.recv() => {
                if crowd.members.contains_key(&server) {
                    record(&known, &crowd, server, &finding, thresholds);
                }
            }
            Some(machine) = doubts.recv() => doubt(&known, machine, thresholds),
            Some(looked) = discoveries.recv() => match looked {
                Ok(found) => {
                    crowd.set(fixed.iter().copied().chain(found.servers.iter().copied()).collect());
                    if let Some(remembered) = &remembered {
                        remembered.write(&found);
                    }
                    settle(&known, &crowd, Some(found.cluster), None);
                }
                Err(problem) => settle(&known, &crowd, None, Some(problem)),
            },
        }
    }
}

struct AbortOnDrop(tokio::task::JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Reads the list of servers again and again.
async fn look(
    mut discovery: Discovery,
    every: Duration,
    known: watch::Receiver<Known>,
    discovered: mpsc::Sender<Result<Found, String>>,
) {
    loop {
        let servers: Vec<SocketAddr> = known.borrow().servers.keys().copied().collect();
        if discovered
            .send(discovery.find(&servers).await)
            .await
            .is_err()
        {
            return;
        }
        tokio::time::sleep(every).await;
    }
}

/// A probing task for each server.
struct Crowd {
    probes: JoinSet<()>,
    members: BTreeMap<SocketAddr, tokio::task::AbortHandle>,
    prober: Prober,
    interval: Duration,
    findings: mpsc::Sender<(SocketAddr, Finding)>,
}

impl Crowd {
    fn set(&mut self, servers: BTreeSet<SocketAddr>) {
        self.members.retain(|server, probing| {
            let stays = servers.contains(server);
            if !stays {
                probing.abort();
            }
            stays
        });
        for server in servers {
            if !self.members.contains_key(&server) {
                let work = keep_probing(
                    self.prober.clone(),
                    server,
                    self.interval,
                    self.findings.clone(),
                );
                self.members.insert(server, self.probes.spawn(work));
            }
        }
        while self.probes.try_join_next().is_some() {}
    }
}

async fn keep_probing(
    prober: Prober,
    server: SocketAddr,
    every: Duration,
    findings: mpsc::Sender<(SocketAddr, Finding)>,
) {
    let mut ticks = tokio::time::interval(every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        if findings
            .send((server, prober.probe(server).await))
            .await
            .is_err()
        {
            return;
        }
    }
}

fn record(
    known: &watch::Sender<Known>,
    crowd: &Crowd,
    server: SocketAddr,
    finding: &Finding,
    thresholds: Thresholds,
) {
    let now = SystemTime::now();
    known.send_if_modified(|known| {
        let changed = match known.servers.get_mut(&server) {
            Some(health) => {
                let before = health.healthy;
                let changed = health.record(finding, thresholds, now);
                if health.healthy != before {
                    tell(server, health);
                }
                changed
            }
            None => {
                let health = Health::new(finding, now);
                tell(server, &health);
                known.servers.insert(server, health);
                true
            }
        };
        let complete = known.complete;
        known.complete = crowd
            .members
            .keys()
            .all(|member| known.servers.contains_key(member));
        changed || complete != known.complete
    });
}

/// A probe would find out as well, later: what is sent to a machine that is gone until then is
/// lost.
fn doubt(known: &watch::Sender<Known>, machine: IpAddr, thresholds: Thresholds) {
    let now = SystemTime::now();
    known.send_if_modified(|known| {
        let mut changed = false;
        for (server, health) in known
            .servers
            .iter_mut()
            .filter(|(server, _)| server.ip() == machine)
        {
            if health.doubt("its machine went silent", thresholds, now) {
                tell(*server, health);
                changed = true;
            }
        }
        changed
    });
}

fn tell(server: SocketAddr, health: &Health) {
    match (&health.last, health.healthy) {
        (None, true) => tracing::info!(%server, "API server is ready"),
        (Some(note), true) => tracing::warn!(%server, note, "API server answers"),
        (why, false) => tracing::warn!(%server, why, "API server is not ready"),
    }
}

fn settle(
    known: &watch::Sender<Known>,
    crowd: &Crowd,
    cluster: Option<Vec<SocketAddr>>,
    trouble: Option<String>,
) {
    known.send_if_modified(|known| {
        let mut now = known.clone();
        now.servers
            .retain(|server, _| crowd.members.contains_key(server));
        now.cluster = cluster.unwrap_or(now.cluster);
        now.complete = crowd
            .members
            .keys()
            .all(|member| now.servers.contains_key(member));
        if now.trouble.is_none()
            && let Some(problem) = &trouble
        {
            tracing::warn!(
                problem,
                "cannot find out which API servers there are, going on with those that are known"
            );
        }
        now.trouble = trouble;
        let changed = *known != now;
        *known = now;
        changed
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_healthy_one_all_are_eligible() {
        let server = |port, healthy| Server {
            address: ([127, 0, 0, 1], port).into(),
            healthy,
            gone: !healthy,
        };
        let ports = |servers: &[Server]| {
            eligible(servers)
                .iter()
                .map(SocketAddr::port)
                .collect::<Vec<_>>()
        };
        assert_eq!(
            ports(&[server(1, true), server(2, false), server(3, true)]),
            [1, 3]
        );
        assert_eq!(ports(&[server(1, false), server(2, false)]), [1, 2]);
        assert_eq!(ports(&[]), [0_u16; 0]);
    }
}
