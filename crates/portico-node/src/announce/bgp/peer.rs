//! Drives one session: bytes, routes and time go in, and what comes out is done.

use super::config::PeerConfig;
use super::connection::{Connection, Event};
use super::metrics::of;
use super::report::Report;
use super::socket;
use ipnet::IpNet;
use portico_bgp::routes::{Attributes, Change};
use portico_bgp::session::Stop;
use portico_bgp::{Input, Now, Output, Session, State};
use portico_client::wait::{fraction, sleep_until};
use std::collections::BTreeMap;
use std::future::pending;
use std::io;
use std::net::Ipv4Addr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::time::Instant;

/// What others want of a session. Changes of one prefix become one, so that no more waits than
/// there are prefixes.
#[derive(Default)]
pub(super) struct Mailbox {
    mail: Mutex<Mail>,
    arrived: Notify,
}

#[derive(Default)]
struct Mail {
    routes: BTreeMap<IpNet, Option<Arc<Attributes>>>,
    stop: Option<Stop>,
}

impl Mailbox {
    pub(super) fn change(&self, changes: Vec<Change>) {
        self.lock().routes.extend(changes);
        self.arrived.notify_one();
    }

    pub(super) fn stop(&self, why: Stop) {
        self.lock().stop = Some(why);
        self.arrived.notify_one();
    }

    fn take(&self) -> Mail {
        std::mem::take(&mut *self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, Mail> {
        // A panic while it was held leaves it whole.
        self.mail.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(super) struct Task {
    config: PeerConfig,
    session: Session,
    mailbox: Arc<Mailbox>,
    report: Report,
    began: Instant,
    link: Link,
    stopping: bool,
}

enum Link {
    None,
    Connecting(Pin<Box<dyn Future<Output = io::Result<TcpStream>> + Send>>),
    Connected(Connection),
}

/// What a session waits for.
enum Happened {
    Mail,
    Deadline,
    Connected(io::Result<TcpStream>),
    Traffic(Event),
}

impl Task {
    pub(super) fn new(
        config: PeerConfig,
        router_id: Ipv4Addr,
        mailbox: Arc<Mailbox>,
        report: Report,
    ) -> Self {
        let session = Session::new(config.session(router_id));
        Self {
            config,
            session,
            mailbox,
            report,
            began: Instant::now(),
            link: Link::None,
            stopping: false,
        }
    }

    /// Runs until it is told to stop and has ended the session.
    pub(super) async fn run(mut self) {
        self.read_mail().await;
        self.input(Input::Start).await;
        loop {
            self.send_routes().await;
            if self.stopping && self.session.state() == State::Stopped {
                return;
            }
            if !self.stopping {
                self.report.status(self.session.status());
            }
            match self.wait().await {
                Happened::Mail => self.read_mail().await,
                Happened::Deadline => self.input(Input::Tick).await,
                Happened::Connected(result) => self.connected(result).await,
                Happened::Traffic(event) => self.traffic(event).await,
            }
        }
    }

    async fn wait(&mut self) -> Happened {
        let deadline = self
            .session
            .deadline()
            .map(|deadline| (self.began + deadline).into_std());
        tokio::select! {
            () = self.mailbox.arrived.notified() => Happened::Mail,
            () = sleep_until(deadline) => Happened::Deadline,
            happened = self.link.next() => happened,
        }
    }

    async fn read_mail(&mut self) {
        let Mail { routes, stop } = self.mailbox.take();
        let changes: Vec<Change> = routes.into_iter().collect();
        self.input(Input::Routes(&changes)).await;
        if let Some(stop) = stop {
            self.stopping = true;
            self.input(Input::Stop(stop)).await;
        }
    }

    async fn connected(&mut self, result: io::Result<TcpStream>) {
        self.link = Link::None;
        match result {
            Ok(stream) => {
                let connection = Connection::new(stream);
                let next_hops = connection.next_hops();
                self.link = Link::Connected(connection);
                self.input(Input::Connected(next_hops)).await;
            }
            Err(error) => self.input(Input::Failed(&error.to_string())).await,
        }
    }

    async fn traffic(&mut self, event: Event) {
        match event {
            Event::Wrote => {}
            Event::Closed(why) => {
                self.link = Link::None;
                self.input(Input::Closed(&why)).await;
            }
            Event::Read(count) => {
                let Link::Connected(connection) = &self.link else {
                    return;
                };
                let outputs = self
                    .session
                    .handle(now(self.began), Input::Bytes(connection.bytes(count)));
                self.act(outputs).await;
            }
        }
    }

    /// Sends as many routes as have room: the rest follows when the router has taken some.
    async fn send_routes(&mut self) {
        loop {
            let Link::Connected(connection) = &self.link else {
                return;
            };
            if !connection.has_room() {
                return;
            }
            let outputs = self.session.pull();
            if outputs.is_empty() {
                return;
            }
            let (metrics, peer) = self.report.metrics();
            metrics.updates_sent.get_or_create(&of(peer)).inc();
            self.act(outputs).await;
        }
    }

    async fn input(&mut self, input: Input<'_>) {
        let outputs = self.session.handle(now(self.began), input);
        self.act(outputs).await;
    }

    async fn act(&mut self, outputs: Vec<Output>) {
        for output in outputs {
            match output {
                Output::Connect => {
                    self.link = Link::Connecting(Box::pin(socket::connect(self.config.clone())))
                }
                Output::Send(bytes) => {
                    if let Link::Connected(connection) = &mut self.link {
                        connection.send(&bytes);
                    }
                }
                Output::Close => {
                    if let Link::Connected(connection) = self.link.take() {
                        connection.close().await;
                    }
                }
                Output::Became(state) => self.became(state),
                Output::Down(reason) => self.down(&reason),
                Output::Heard(_) => {
                    let (metrics, peer) = self.report.metrics();
                    metrics.updates_received.get_or_create(&of(peer)).inc();
                }
            }
        }
    }

    fn became(&self, state: State) {
        let (peer, address) = (&self.config.name, self.config.address);
        tracing::debug!(peer, ?state, "BGP session");
        if state == State::Established {
            let (metrics, name) = self.report.metrics();
            metrics.sessions.get_or_create(&of(name)).inc();
            tracing::info!(peer, %address, "BGP session is established");
        }
    }

    /// A router that stays away is told of once.
    fn down(&self, reason: &portico_bgp::session::Reason) {
        let (metrics, name) = self.report.metrics();
        metrics.failures.get_or_create(&of(name)).inc();
        let (peer, address) = (&self.config.name, self.config.address);
        match self.session.is_first_failure() {
            true => tracing::warn!(peer, %address, %reason, "no BGP session, will try again"),
            false => tracing::debug!(peer, %address, %reason, "still no BGP session"),
        }
    }
}

fn now(began: Instant) -> Now {
    Now {
        time: began.elapsed(),
        chance: fraction(),
    }
}

impl Link {
    fn take(&mut self) -> Self {
        std::mem::replace(self, Self::None)
    }

    async fn next(&mut self) -> Happened {
        match self {
            Self::None => pending().await,
            Self::Connected(connection) => Happened::Traffic(connection.next().await),
            Self::Connecting(attempt) => {
                let result = attempt.await;
                *self = Self::None;
                Happened::Connected(result)
            }
        }
    }
}
