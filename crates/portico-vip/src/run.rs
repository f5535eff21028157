//! The daemon from start to end: brings the parts together and waits for the order to stop.

use crate::access::{AccessError, Credentials};
use crate::config::{Config, read_keys};
use crate::election::{self, Election, ElectionError, State, Transition};
use crate::forward::worker::Worker;
use crate::forward::{ForwardError, Mode, Wanted};
use crate::handover::{self, Handover};
use crate::metrics;
use crate::page::{self, Source};
use crate::servers::discover::Discovery;
use crate::servers::probe::Prober;
use crate::servers::remembered::Remembered;
use crate::servers::{self, Following, Known};
use crate::status::Status;
use futures_util::future;
use portico_client::error::chain;
use portico_vrrp::{Auth, Reason, Role};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

/// A port that is taken is tried again so often.
const RETRY: Duration = Duration::from_secs(5);
/// A starting node joins the election once it forwards, or after this time.
const HEAD_START: Duration = Duration::from_secs(2);

#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each message says what its variant means")]
pub enum RunError {
    #[error(transparent)]
    Access(#[from] AccessError),
    #[error(transparent)]
    Election(#[from] ElectionError),
    #[error("{doing}")]
    Io {
        doing: &'static str,
        source: io::Error,
    },
    #[error("a part of the daemon broke: {0}")]
    Broken(String),
    #[error(transparent)]
    Forward(#[from] ForwardError),
}

/// Work until `stop`, then give the address away and take everything back.
pub async fn run(mut config: Config, stop: impl Future<Output = ()>) -> Result<(), RunError> {
    let credentials = config.servers.access.open().await?;
    give_haproxy_the_authorities(&mut config, &credentials);
    let (known, knowing) = watch::channel(Known::default());
    let worker = Worker::start(config.forward.clone(), config.check_every)?;
    let mut tasks = JoinSet::new();
    let (doubts, doubted) = mpsc::channel(8);
    let following = Following {
        fixed: config.servers.fixed.clone(),
        discovery: credentials.kube.map(Discovery::new),
        remembered: Some(Remembered::new(config.servers.remembered.clone())),
        prober: Prober::new(
            credentials.tls,
            credentials.name,
            credentials.token,
            config.servers.timeout,
        ),
        interval: config.servers.interval,
        thresholds: config.servers.thresholds,
        rediscover: config.servers.rediscover,
        doubts: doubted,
    };
    tasks.spawn(servers::follow(following, known));
    let _ = tokio::time::timeout(
        HEAD_START,
        begin_to_forward(&config, knowing.clone(), &worker),
    )
    .await;
    // Nothing of the rest is needed to hold the address.
    let elections = match config
        .elections
        .iter()
        .cloned()
        .map(Election::start)
        .collect::<Result<Vec<_>, _>>()
    {
        Ok(elections) => elections,
        Err(error) => {
            worker.end().await?;
            return Err(error.into());
        }
    };
    let states: Vec<watch::Receiver<State>> = elections.iter().map(Election::state).collect();
    let handovers = handovers(&config, &states)?;

    let config = Arc::new(config);
    let desk = Arc::new(Desk {
        config: Arc::clone(&config),
        states: states.clone(),
        knowing: knowing.clone(),
        worker,
        handovers,
    });
    if let Some(address) = config.status {
        tasks.spawn(serve(address, Arc::clone(&desk)));
    }
    let stopped = tokio::select! {
        () = stop => Ok(()),
        error = follow(&config, knowing, &desk.worker, &elections, states, doubts) => Err(error),
        Some(ended) = tasks.join_next() => Err(RunError::Broken(format!("{ended:?}"))),
    };
    tracing::info!("giving the address to another");
    if release(elections, &desk.states).await {
        // Clients on this machine would connect here to the last moment, and be cut off then.
        desk.worker.close();
        tracing::info!(drain = ?config.drain, "another has the address, what is in flight ends here");
        tokio::time::sleep(config.drain).await;
    }
    tasks.shutdown().await;
    future::join_all(desk.handovers.iter().map(Handover::end)).await;
    desk.worker.end().await?;
    stopped
}

/// What comes to an owner that does not forward yet stays there, and ends with the next hand-over.
async fn begin_to_forward(config: &Config, mut knowing: watch::Receiver<Known>, worker: &Worker) {
    let known = knowing
        .wait_for(|known| known.complete)
        .await
        .map(|known| known.clone());
    if let Ok(known) = known {
        worker.want(wanted(config, &known));
        worker.attempted().await;
    }
}

fn handovers(
    config: &Config,
    states: &[watch::Receiver<State>],
) -> Result<Vec<Handover>, RunError> {
    let start = |(settings, state): (&election::Settings, &watch::Receiver<State>)| {
        let frontends = settings
            .router
            .addresses
            .iter()
            .map(|address| SocketAddr::new(*address, config.port));
        let settings = handover::Settings {
            interface: settings.interface.clone(),
            frontends: frontends.collect(),
            relay_for: config.relay_for,
        };
        let bad = |source| RunError::Io {
            doing: "cannot start the thread that hands over",
            source,
        };
        Handover::start(settings, state.clone()).map_err(bad)
    };
    config.elections.iter().zip(states).map(start).collect()
}

/// Gives every address to another; whether another has one now.
async fn release(elections: Vec<Election>, states: &[watch::Receiver<State>]) -> bool {
    let asked = SystemTime::now();
    let before: Vec<State> = states.iter().map(|state| state.borrow().clone()).collect();
    future::join_all(elections.into_iter().map(Election::release)).await;
    before
        .iter()
        .zip(states)
        .any(|(before, state)| is_with_another(before, &state.borrow(), asked))
}

/// The state when we were asked to stop, and the one after that.
fn is_with_another(before: &State, after: &State, asked: SystemTime) -> bool {
    match before.role {
        Role::Owner => after
            .peers
            .iter()
            .any(|peer| peer.priority > 0 && peer.last_heard >= asked),
        Role::Standby => before.owner.is_some(),
        Role::Stopped => false,
    }
}

/// HAProxy verifies servers as we do, and reads no kubeconfig.
fn give_haproxy_the_authorities(config: &mut Config, credentials: &Credentials) {
    let haproxy = &mut config.forward.haproxy;
    if haproxy.ca_file.is_some() || config.forward.mode != Mode::Haproxy {
        return;
    }
    let path = haproxy.folder.join("ca.crt");
    match credentials.write_authorities(&path) {
        Ok(written) => haproxy.ca_file = written.then_some(path),
        Err(error) => {
            tracing::warn!(path = %path.display(), %error, "HAProxy cannot verify the API servers")
        }
    }
}

/// What is known of the API servers decides what is forwarded, and how good this node is. Ends only
/// with an error.
async fn follow(
    config: &Config,
    mut knowing: watch::Receiver<Known>,
    worker: &Worker,
    elections: &[Election],
    states: Vec<watch::Receiver<State>>,
    doubts: mpsc::Sender<IpAddr>,
) -> RunError {
    let died = future::select_all(
        states
            .into_iter()
            .map(|state| Box::pin(notice_silence(state, doubts.clone()))),
    );
    let work = async {
        loop {
            let known = knowing.borrow_and_update().clone();
            if known.complete {
                worker.want(wanted(config, &known));
            }
            let priority = priority(config, &known);
            elections
                .iter()
                .for_each(|election| election.set_priority(priority));
            if knowing.changed().await.is_err() {
                return;
            }
        }
    };
    tokio::select! {
        () = follow_keys(config, elections) => RunError::Broken("nobody reads the keys any more".to_owned()),
        () = work => RunError::Broken("nobody follows the API servers any more".to_owned()),
        _ = died => RunError::Broken("the election ended".to_owned()),
        () = worker.died() => RunError::Broken("nobody forwards any more".to_owned()),
    }
}

/// Keys that are replaced in their file are used without a restart. A file that cannot be used
/// changes nothing: the keys of before are as good as they were.
async fn follow_keys(config: &Config, elections: &[Election]) {
    let Some(path) = &config.auth_key_file else {
        return future::pending().await;
    };
    let mut told = None;
    loop {
        tokio::time::sleep(config.check_every).await;
        match read_keys(path) {
            Ok(keys) => {
                told = None;
                for (election, settings) in elections.iter().zip(&config.elections) {
                    let auth = settings.auth.clone();
                    election.set_auth(auth.map(|auth| Auth {
                        keys: keys.clone(),
                        ..auth
                    }));
                }
            }
            Err(error) => {
                let text = chain(&error);
                if told.as_ref() != Some(&text) {
                    tracing::error!("the keys of before stay in use: {text}");
                }
                told = Some(text);
            }
        }
    }
}

/// An owner that went silent takes its API server with it. Ends with the election.
async fn notice_silence(mut state: watch::Receiver<State>, doubts: mpsc::Sender<IpAddr>) {
    let mut noticed = None;
    while state.changed().await.is_ok() {
        let last = state.borrow_and_update().transitions.last().cloned();
        if last != noticed
            && let Some(Transition {
                role: Role::Owner,
                reason:
                    Reason::OwnerSilent {
                        last: Some(machine),
                    },
                ..
            }) = &last
        {
            // With so many waiting, every server is in doubt already.
            let _ = doubts.try_send(*machine);
        }
        noticed = last;
    }
}

fn wanted(config: &Config, known: &Known) -> Wanted {
    Wanted {
        addresses: config.addresses.clone(),
        port: config.port,
        servers: known.list(),
        cluster: known.cluster.clone(),
        closing: false,
    }
}

/// A node whose own API server does not answer should not be the one that all clients come to.
fn priority(config: &Config, known: &Known) -> u8 {
    let own = known
        .servers
        .iter()
        .find(|(server, _)| config.own_addresses.contains(&server.ip()));
    match own {
        Some((_, health)) if !health.healthy => config
            .priority
            .saturating_sub(config.priority_penalty)
            .max(1),
        _ => config.priority,
    }
}

/// Answers `status` and the health page.
struct Desk {
    config: Arc<Config>,
    states: Vec<watch::Receiver<State>>,
    knowing: watch::Receiver<Known>,
    worker: Worker,
    handovers: Vec<Handover>,
}

impl Desk {
    fn status_with(&self, rules: Vec<String>) -> Status {
        let states: Vec<State> = self
            .states
            .iter()
            .map(|state| state.borrow().clone())
            .collect();
        Status::new(
            &self.config,
            &states,
            &self.knowing.borrow(),
            &self.worker.attempt(),
            rules,
        )
        .handing_over(self.handovers.iter().map(Handover::relaying))
    }
}

impl Source for Desk {
    async fn status(&self) -> Status {
        let rules = self.worker.rules().await;
        self.status_with(rules)
    }

    async fn metrics(&self) -> String {
        metrics::text(&self.status_with(Vec::new()), &self.worker.attempt())
    }
}

async fn serve(address: SocketAddr, desk: Arc<Desk>) {
    let listener = loop {
        match TcpListener::bind(address).await {
            Ok(listener) => break listener,
            Err(error) => {
                tracing::error!(%address, %error, "cannot serve the status, will try again")
            }
        }
        tokio::time::sleep(RETRY).await;
    };
    match page::serve(listener, desk).await {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Given, Surroundings, resolve};
    use crate::election::Peer;
    use crate::servers::health::{Finding, Health};
    use std::time::SystemTime;

    #[test]
    fn losing_ones_own_server_lowers_the_priority() {
        let given = Given {
            addresses: Some(vec!["10.0.0.9".parse().unwrap()]),
            ..Given::default()
        };
        let around = Surroundings {
            addresses: vec![("eth0".to_owned(), "10.0.0.1/24".parse().unwrap())],
        };
        let config = resolve(given, &around).unwrap();
        let health = |finding| Health::new(&finding, SystemTime::UNIX_EPOCH);
        let bad = || health(Finding::Unreachable("refused".to_owned()));
        let (own, other) = (
            "10.0.0.1:6443".parse().unwrap(),
            "10.0.0.2:6443".parse().unwrap(),
        );
        let mut known = Known::default();
        assert_eq!(priority(&config, &known), 100);
        known.servers = [(own, health(Finding::Ready)), (other, bad())].into();
        assert_eq!(priority(&config, &known), 100);
        known.servers.insert(own, bad());
        assert_eq!(priority(&config, &known), 50);
    }

    #[test]
    fn another_has_the_address_that_took_it_or_had_it_all_the_time() {
        let (address, asked) = (
            "10.0.0.2".parse().unwrap(),
            SystemTime::UNIX_EPOCH + Duration::from_secs(9),
        );
        let state = |role| State {
            role,
            ..State::new(100)
        };
        let heard = |priority, last_heard| State {
            peers: vec![Peer {
                address,
                priority,
                last_heard,
            }],
            owner: Some(address),
            ..state(Role::Stopped)
        };
        let standby = |owner| State {
            owner,
            ..state(Role::Standby)
        };
        for (before, after, expected) in [
            (state(Role::Owner), heard(100, asked), true),
            (state(Role::Owner), heard(0, asked), false),
            (
                state(Role::Owner),
                heard(100, SystemTime::UNIX_EPOCH),
                false,
            ),
            (state(Role::Owner), state(Role::Stopped), false),
            (standby(Some(address)), state(Role::Stopped), true),
            (standby(None), state(Role::Stopped), false),
            (state(Role::Stopped), heard(100, asked), false),
        ] {
            assert_eq!(
                is_with_another(&before, &after, asked),
                expected,
                "{before:?} {after:?}"
            );
        }
    }
}
