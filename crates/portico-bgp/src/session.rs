//! One session with a peer, from our side: we call, the peer answers.
//!
//! ```text
//!            Start              due                Connected             OPEN             KEEPALIVE
//!  Stopped ───────▶ Waiting ──────────▶ Connecting ─────────▶ OpenSent ───────▶ OpenConfirm ─────────▶ Established
//!     ▲                ▲                    │                    │                  │                      │
//!     │                └── failed, closed, refused, silent ◀─────┴──────────────────┴──────────────────────┘
//!     └──────────────────── Stop: told everybody that all routes are gone ─────────────────────────────────┘
//! ```
//! RFC 4271 section 8, without the half that listens: routers are configured to be called, and then
//! there is never more than one connection between the two. `Waiting` is its Idle and Active,
//! `Connecting` its Connect.
//!
//! What is announced is a set of routes that are wanted ([`Input::Routes`] changes it).
//! [`Session::pull`] makes UPDATEs of what the peer has not been told yet, when there is room to
//! send them.

mod config;
mod established;
mod negotiate;
mod reason;
mod rib;

pub use config::{Config, NextHops};
pub use reason::Reason;

use crate::message::{self, Message, Notification, Update, cease, code};
use crate::routes::Change;
use established::Established;
use negotiate::Agreed;
use rib::Rib;
use std::time::Duration;

/// Since some moment that does not change while the process lives.
pub type Time = Duration;

/// The time limit for a connection to be made.
const CONNECT: Duration = Duration::from_secs(5);
/// How long a connected peer may take to send its OPEN.
const INTRODUCTION: Duration = Duration::from_secs(60);
/// The time between the first two attempts. Each further one waits twice as long.
const FIRST_RETRY: Duration = Duration::from_secs(1);
/// A session that lasted so long was a good one: the next attempt comes soon.
const GOOD_SESSION: Duration = Duration::from_secs(30);

/// When something happens, and a number from 0 to 1 by chance, so that not all nodes call at once.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Now {
    /// The time since a start that the driver chose.
    pub time: Time,
    /// A random number from 0 to 1.
    pub chance: f64,
}

/// The state of a session (RFC 4271, 8.2.2; `Connect` and `Active` are [`State::Connecting`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// It was not started, or was told to stop.
    Stopped,
    /// The next attempt is not due yet.
    Waiting,
    /// A connection is being opened.
    Connecting,
    /// The OPEN was sent, and that of the peer is awaited.
    OpenSent,
    /// Both OPENs were accepted, and a KEEPALIVE of the peer is awaited.
    OpenConfirm,
    /// Routes are exchanged.
    Established,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input<'a> {
    /// All routes that are wanted have been told: begin.
    Start,
    /// A deadline has come.
    Tick,
    /// There is a connection, and this is how we are reached from there.
    Connected(NextHops),
    /// There is none, for this reason.
    Failed(&'a str),
    /// Bytes came in.
    Bytes(&'a [u8]),
    /// The connection is gone.
    Closed(&'a str),
    /// Routes that changed.
    Routes(&'a [Change]),
    /// Take everything back and end: [`Output::Close`] comes when that is told.
    Stop(Stop),
}

/// Why a session ends for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// This node announces nothing any more.
    Drain,
    /// The peer is not configured any more.
    Removed,
}

/// What is to be done, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Make a connection.
    Connect,
    /// Send these bytes.
    Send(Vec<u8>),
    /// Close the connection, or stop making one; what was to be sent is sent before.
    Close,
    /// The state changed.
    Became(State),
    /// A session is over, or did not come to be.
    Down(Reason),
    /// The peer told of routes, which is nothing to us.
    Heard(Update),
}

/// How it goes, for people.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// Whether routes are exchanged.
    pub established: bool,
    /// Routes that the peer has been told.
    pub routes: usize,
    /// Routes that it is yet to be told.
    pub due: usize,
    /// Why there is no session, or what is wrong with it.
    pub trouble: String,
}

/// The state machine.
#[derive(Clone, Debug)]
pub struct Session {
    config: Config,
    phase: Phase,
    rib: Rib,
    /// What has come in of the next message.
    received: Vec<u8>,
    /// Attempts without a good session.
    failures: u32,
    /// No session of this process has told all its routes yet.
    restarted: bool,
    stop: Option<Stop>,
    trouble: Option<Reason>,
}

#[derive(Clone, Debug)]
enum Phase {
    Stopped,
    Waiting { until: Time },
    Connecting { until: Time },
    OpenSent { until: Time, next_hops: NextHops },
    OpenConfirm(Agreed),
    Established(Established),
}

impl Session {
    /// Stopped until [`Input::Start`].
    pub fn new(config: Config) -> Self {
        let rib = Rib::default();
        let phase = Phase::Stopped;
        Self {
            config,
            phase,
            rib,
            received: vec![],
            failures: 0,
            restarted: true,
            stop: None,
            trouble: None,
        }
    }

    /// What the session was made with.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The state at present.
    pub fn state(&self) -> State {
        match self.phase {
            Phase::Stopped => State::Stopped,
            Phase::Waiting { .. } => State::Waiting,
            Phase::Connecting { .. } => State::Connecting,
            Phase::OpenSent { .. } => State::OpenSent,
            Phase::OpenConfirm(_) => State::OpenConfirm,
            Phase::Established(_) => State::Established,
        }
    }

    /// How the session goes.
    pub fn status(&self) -> Status {
        let established = match &self.phase {
            Phase::Established(established) => Some(established),
            _ => None,
        };
        let trouble = match established {
            Some(established) => established.trouble(&self.rib),
            None => self
                .trouble
                .as_ref()
                .map(Reason::to_string)
                .unwrap_or_default(),
        };
        let (routes, due) = (self.rib.told(), self.rib.due());
        Status {
            established: established.is_some(),
            routes,
            due,
            trouble,
        }
    }

    /// There was one failure since the last good session, and no more.
    pub fn is_first_failure(&self) -> bool {
        self.failures == 1
    }

    /// When the next [`Input::Tick`] is due.
    pub fn deadline(&self) -> Option<Time> {
        match &self.phase {
            Phase::Stopped => None,
            Phase::Waiting { until }
            | Phase::Connecting { until }
            | Phase::OpenSent { until, .. } => Some(*until),
            Phase::OpenConfirm(agreed) => agreed.deadline(),
            Phase::Established(established) => established.agreed.deadline(),
        }
    }

    /// What becomes of an input. Time never goes back.
    pub fn handle(&mut self, now: Now, input: Input<'_>) -> Vec<Output> {
        let mut out = Vec::new();
        match input {
            Input::Start => self.start(&mut out, now),
            Input::Tick => self.tick(&mut out, now),
            Input::Connected(next_hops) => self.connected(&mut out, now, next_hops),
            Input::Failed(why) => self.failed(&mut out, now, why),
            Input::Bytes(bytes) => self.bytes(&mut out, now, bytes),
            Input::Closed(why) => self.closed(&mut out, now, why),
            Input::Routes(changes) => changes
                .iter()
                .for_each(|(prefix, route)| self.rib.want(*prefix, route.clone())),
            Input::Stop(stop) => self.end(&mut out, stop),
        }
        out
    }

    /// The next message with routes, if there is one: to be asked for while there is room, until
    /// nothing comes.
    pub fn pull(&mut self) -> Vec<Output> {
        let Phase::Established(established) = &mut self.phase else {
            return vec![];
        };
        if let Some(message) = established.next(&self.config, &mut self.rib) {
            return vec![Output::Send(message)];
        }
        let Some(stop) = self.stop else {
            self.restarted &= !established.is_told();
            return vec![];
        };
        let mut out = vec![Output::Send(farewell(stop).encode()), Output::Close];
        self.become_(&mut out, Phase::Stopped);
        out
    }

    fn start(&mut self, out: &mut Vec<Output>, now: Now) {
        if matches!(self.phase, Phase::Stopped) {
            self.stop = None;
            self.connect(out, now);
        }
    }

    fn tick(&mut self, out: &mut Vec<Output>, now: Now) {
        if self.deadline().is_none_or(|deadline| now.time < deadline) {
            return;
        }
        match &mut self.phase {
            Phase::Stopped => {}
            Phase::Waiting { .. } => self.connect(out, now),
            Phase::Connecting { .. } => self.down(out, now, Reason::NoAnswer),
            Phase::OpenSent { .. } => self.refuse(out, now, Notification::new(code::HOLD_TIME, 0)),
            Phase::OpenConfirm(agreed) | Phase::Established(Established { agreed, .. }) => {
                if agreed.is_silent(now.time) {
                    return self.refuse(out, now, Notification::new(code::HOLD_TIME, 0));
                }
                agreed.spoke(now.time);
                out.push(Output::Send(message::keepalive()));
            }
        }
    }

    fn connect(&mut self, out: &mut Vec<Output>, now: Now) {
        out.push(Output::Connect);
        self.become_(
            out,
            Phase::Connecting {
                until: now.time + CONNECT,
            },
        );
    }

    fn connected(&mut self, out: &mut Vec<Output>, now: Now, next_hops: NextHops) {
        if !matches!(self.phase, Phase::Connecting { .. }) {
            return;
        }
        self.received.clear();
        let open = negotiate::open(&self.config, &next_hops, self.restarted);
        out.push(Output::Send(open.encode()));
        self.become_(
            out,
            Phase::OpenSent {
                until: now.time + INTRODUCTION,
                next_hops,
            },
        );
    }

    fn failed(&mut self, out: &mut Vec<Output>, now: Now, why: &str) {
        if matches!(self.phase, Phase::Connecting { .. }) {
            self.down(out, now, Reason::Unreachable(why.to_owned()));
        }
    }

    fn closed(&mut self, out: &mut Vec<Output>, now: Now, why: &str) {
        let introduced = match self.phase {
            Phase::Stopped | Phase::Waiting { .. } | Phase::Connecting { .. } => return,
            Phase::OpenSent { .. } => false,
            Phase::OpenConfirm(_) | Phase::Established(_) => true,
        };
        self.down(
            out,
            now,
            Reason::Closed {
                introduced,
                why: why.to_owned(),
            },
        );
    }

    fn bytes(&mut self, out: &mut Vec<Output>, now: Now, bytes: &[u8]) {
        let mut rest = bytes;
        while !rest.is_empty() && self.is_connected() {
            // No more than the largest message is ever held.
            let room = message::LARGEST.saturating_sub(self.received.len());
            let (some, later) = rest.split_at(room.min(rest.len()));
            self.received.extend(some);
            rest = later;
            let mut buffer = std::mem::take(&mut self.received);
            let used = self.messages(out, now, &buffer);
            buffer.drain(..used.min(buffer.len()));
            if self.is_connected() {
                self.received = buffer;
            }
        }
    }

    /// Takes whole messages; how many bytes they had.
    fn messages(&mut self, out: &mut Vec<Output>, now: Now, buffer: &[u8]) -> usize {
        let mut used = 0;
        while self.is_connected() {
            let rest = buffer.get(used..).unwrap_or_default();
            let length = match message::length(rest) {
                Ok(Some(length)) => length,
                Ok(None) => break,
                Err(wrong) => {
                    self.refuse(out, now, wrong);
                    break;
                }
            };
            used += length;
            match Message::decode(rest.get(..length).unwrap_or_default(), self.four_octets()) {
                Ok(message) => self.message(out, now, message),
                Err(wrong) => self.refuse(out, now, wrong),
            }
        }
        used
    }

    fn message(&mut self, out: &mut Vec<Output>, now: Now, message: Message) {
        if let Phase::OpenConfirm(agreed) | Phase::Established(Established { agreed, .. }) =
            &mut self.phase
        {
            agreed.heard(now.time);
        }
        match (&mut self.phase, message) {
            (_, Message::Notification(notification)) => {
                self.down(out, now, Reason::Refused(notification))
            }
            (Phase::OpenSent { next_hops, .. }, Message::Open(open)) => {
                match negotiate::agree(&self.config, *next_hops, &open, now.time) {
                    Ok(agreed) => {
                        out.push(Output::Send(message::keepalive()));
                        self.become_(out, Phase::OpenConfirm(agreed));
                    }
                    Err((reason, notification)) => self.give_up(out, now, reason, notification),
                }
            }
            (Phase::OpenConfirm(agreed), Message::Keepalive) => {
                let established = Established::begin(now.time, agreed.clone(), &mut self.rib);
                self.trouble = None;
                self.become_(out, Phase::Established(established));
            }
            (Phase::Established(_), Message::Update(update)) => out.push(Output::Heard(update)),
            (Phase::Established(established), Message::RouteRefresh(family)) => {
                family
                    .into_iter()
                    .for_each(|family| established.refresh(family, &mut self.rib));
            }
            (Phase::Established(_), Message::Keepalive) => {}
            // RFC 6608: which state it was.
            (Phase::OpenSent { .. }, _) => self.refuse(out, now, Notification::new(code::STATE, 1)),
            (Phase::OpenConfirm(_), _) => self.refuse(out, now, Notification::new(code::STATE, 2)),
            (Phase::Established(_), _) => self.refuse(out, now, Notification::new(code::STATE, 3)),
            (Phase::Stopped | Phase::Waiting { .. } | Phase::Connecting { .. }, _) => {}
        }
    }

    /// Ends an attempt for good. Without a session nothing was announced, so nothing is withdrawn
    /// and no NOTIFICATION is sent.
    fn end(&mut self, out: &mut Vec<Output>, stop: Stop) {
        self.stop = Some(stop);
        match self.phase {
            Phase::Stopped => {}
            Phase::Established(_) => self.rib.want_nothing(),
            Phase::OpenSent { .. } | Phase::OpenConfirm(_) => {
                out.extend([Output::Send(farewell(stop).encode()), Output::Close]);
                self.become_(out, Phase::Stopped);
            }
            Phase::Waiting { .. } | Phase::Connecting { .. } => {
                out.push(Output::Close);
                self.become_(out, Phase::Stopped);
            }
        }
    }

    fn is_connected(&self) -> bool {
        matches!(
            self.phase,
            Phase::OpenSent { .. } | Phase::OpenConfirm(_) | Phase::Established(_)
        )
    }

    fn four_octets(&self) -> bool {
        match &self.phase {
            Phase::OpenConfirm(agreed) | Phase::Established(Established { agreed, .. }) => {
                agreed.four_octets
            }
            _ => true,
        }
    }

    /// Ends the session with a notification, since the peer broke the protocol.
    fn refuse(&mut self, out: &mut Vec<Output>, now: Now, notification: Notification) {
        self.give_up(
            out,
            now,
            Reason::Refusing(notification.clone()),
            notification,
        );
    }

    fn give_up(
        &mut self,
        out: &mut Vec<Output>,
        now: Now,
        reason: Reason,
        notification: Notification,
    ) {
        out.push(Output::Send(notification.encode()));
        self.down(out, now, reason);
    }

    fn down(&mut self, out: &mut Vec<Output>, now: Now, reason: Reason) {
        out.push(Output::Close);
        let was_good = match &self.phase {
            Phase::Established(established) => {
                now.time.saturating_sub(established.since) >= GOOD_SESSION
            }
            _ => false,
        };
        self.failures = if was_good { 0 } else { self.failures };
        self.rib.lost();
        self.received = vec![];
        self.trouble = Some(reason.clone());
        out.push(Output::Down(reason));
        match self.stop {
            Some(_) => self.become_(out, Phase::Stopped),
            None => {
                let until = now.time + self.retry(now.chance);
                self.become_(out, Phase::Waiting { until });
            }
        }
    }

    /// The time until the next attempt.
    fn retry(&mut self, chance: f64) -> Duration {
        let longest = FIRST_RETRY
            .saturating_mul(1 << self.failures.min(16))
            .min(self.config.longest_retry);
        self.failures = self.failures.saturating_add(1);
        longest.mul_f64(0.75 + chance.clamp(0.0, 1.0) / 4.0)
    }

    fn become_(&mut self, out: &mut Vec<Output>, phase: Phase) {
        let before = self.state();
        self.phase = phase;
        if matches!(self.phase, Phase::Stopped) {
            self.rib.lost();
        }
        if self.state() != before {
            out.push(Output::Became(self.state()));
        }
    }
}

fn farewell(stop: Stop) -> Notification {
    match stop {
        Stop::Drain => Notification::cease(cease::SHUTDOWN, "this node is being drained"),
        Stop::Removed => Notification::new(code::CEASE, cease::DECONFIGURED),
    }
}

#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;
