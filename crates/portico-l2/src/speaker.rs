//! One node's part in sharing out addresses among all.
//!
//! Every node tells all others, ten times a second, among which nodes it shares out addresses: its
//! *view*, which is all nodes that it hears and that are ready. The owner of an address follows
//! from a view, so a node that tells its view tells what it has. In short:
//!
//! - a node that leaves a view, or was silent for [`Timing::dead`], has nothing in that view, and
//!   the node that is then first for an address takes it at once;
//! - no node takes what another still has by the view that the other told last: a node that comes
//!   back waits until the others count it in;
//! - a node that is to give an address to another keeps it until the other knows (has echoed the
//!   new view), so that the address is answered for at every moment;
//! - a node that is told that it is not in another's view gives way to that one;
//! - a node that did not run for as long as the others wait drops everything, and listens before it
//!   takes part again.
//!
//! `peer` is what is known of each other node, `owning` the states of an address.

mod owning;
mod peer;

use crate::Time;
use crate::frame::Mac;
use crate::heartbeat::{Echo, Heartbeat, MOST_LACKS, MOST_MEMBERS};
use crate::rank::NodeId;
use owning::Entry;
use peer::{Heard, Peer};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// How soon things happen; the same on all nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// The time between heartbeats.
    pub interval: Duration,
    /// A node that was silent for this long is gone: four intervals, so that three heartbeats can
    /// be lost.
    pub dead: Duration,
    /// The time between the probes for an address, and after the last one.
    pub probe_gap: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        let interval = Duration::from_millis(100);
        Self {
            interval,
            dead: 4 * interval,
            probe_gap: interval,
        }
    }
}

/// The nodes that may have an address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Share {
    /// The nodes, sorted; `None` for all nodes.
    pub nodes: Option<Arc<[NodeId]>>,
    /// A hash of which links it needs: nodes that lack them cannot have it.
    pub links: u64,
}

/// What happened. Inputs come in the order in which they happened; [`Input::Tick`] at (or after)
/// each deadline, once the heartbeats that came before are read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input<'a> {
    /// A deadline has come.
    Tick,
    /// From another node, beyond doubt.
    Heard(&'a Heartbeat),
    /// These are all nodes that could take part. If we are not among them we have nothing.
    Peers(BTreeSet<NodeId>),
    /// The first of them are all that there are; before that, this node takes no part.
    Shares(Vec<(IpAddr, Option<Share>)>),
    /// Links that shares need and we do not have (or that are down), and the hardware addresses of
    /// those that we have.
    Links {
        /// Links that this node does not have, as hashes.
        lacks: Vec<u64>,
        /// The hardware addresses of the links that it has.
        macs: Vec<Mac>,
    },
    /// Another host on the link claims an address (an ARP or neighbour packet from another hardware
    /// address).
    Claimed {
        /// The address that is claimed.
        address: IpAddr,
        /// The hardware address of the host that claims it.
        by: Mac,
    },
    /// Give everything to others and take no more part: `Output::Left` says when it is done.
    Leave,
}

/// What is to be done, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Send this heartbeat to the node in it.
    Send(Heartbeat),
    /// Answer for the address from now on, and announce it.
    Hold(IpAddr),
    /// Announce it again: another host did.
    Announce(IpAddr),
    /// Do not answer for the address any more.
    Release(IpAddr),
    /// Probe the link for the address.
    Probe(IpAddr),
    /// A host that takes no part has an address that is to be this node's.
    Conflict(Conflict),
    /// Addresses are shared out among these from now on, sorted.
    Members(Vec<NodeId>),
    /// After `Leave`: it is over.
    Left,
}

/// An address that another host on the link has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// The address.
    pub address: IpAddr,
    /// The hardware address of the other host.
    pub by: Mac,
    /// It was ours already, and stays ours; otherwise it is left alone for a while.
    pub held: bool,
}

/// The state machine.
#[derive(Clone, Debug)]
pub struct Speaker {
    me: NodeId,
    incarnation: u64,
    timing: Timing,
    /// Shares are known.
    ready: bool,
    /// We are one of the nodes that could take part.
    counted_in: bool,
    /// Others may have something that we do not know of: until they have all answered, or were
    /// silent for long enough.
    listening: bool,
    leaving: bool,
    left: bool,
    lacks: Vec<u64>,
    macs: Vec<Mac>,
    peers: BTreeMap<NodeId, Peer>,
    /// The nodes among which addresses are shared out, sorted.
    view: Vec<NodeId>,
    view_since: u64,
    entries: BTreeMap<IpAddr, Entry>,
    /// Addresses that are about to change hands.
    restless: BTreeSet<IpAddr>,
    /// When they are to be looked at.
    due: BTreeSet<(Time, IpAddr)>,
    probing: usize,
    /// When this node last sent heartbeats to all, and when it last ran.
    told_at: Option<Time>,
    ran_at: Time,
    stamp: u64,
}

/// What an input changed, and so what has to be looked at again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Touched {
    Nothing,
    /// What others told.
    Restless,
    /// What we have to offer.
    All,
}

impl Speaker {
    /// `incarnation` is greater than that of any process before on this node, if clocks allow.
    pub fn new(me: NodeId, incarnation: u64, timing: Timing) -> Self {
        Self {
            me,
            incarnation,
            timing,
            ready: false,
            counted_in: false,
            listening: true,
            leaving: false,
            left: false,
            lacks: vec![],
            macs: vec![],
            peers: BTreeMap::new(),
            view: vec![],
            view_since: 0,
            entries: BTreeMap::new(),
            restless: BTreeSet::new(),
            due: BTreeSet::new(),
            probing: 0,
            told_at: None,
            ran_at: Duration::ZERO,
            stamp: 0,
        }
    }

    /// Addresses that we answer for.
    pub fn held(&self) -> impl Iterator<Item = IpAddr> {
        self.entries
            .iter()
            .filter(|(_, entry)| entry.is_held())
            .map(|(address, _)| *address)
    }

    /// Whether this node answers for the address now.
    pub fn holds(&self, address: IpAddr) -> bool {
        self.entries.get(&address).is_some_and(Entry::is_held)
    }

    /// Whether an answer may be given now: not if the process did not run for so long that another
    /// may have it.
    pub fn is_awake(&self, now: Time) -> bool {
        self.told_at
            .is_some_and(|at| now.saturating_sub(at) < self.timing.dead)
    }

    /// The nodes among which addresses are shared out, sorted.
    pub fn members(&self) -> &[NodeId] {
        &self.view
    }

    /// When the next [`Input::Tick`] is due.
    pub fn deadline(&self) -> Option<Time> {
        let round = self
            .told_at
            .map_or(Duration::ZERO, |at| at + self.timing.interval);
        let peers = self
            .peers
            .values()
            .filter_map(|peer| peer.deadline(&self.timing));
        let address = self.due.first().map(|(at, _)| *at);
        (!self.left).then(|| peers.chain(address).fold(round, Duration::min))
    }

    /// What becomes of an input. Time never goes back; where it jumps ahead, we were paused.
    pub fn handle(&mut self, now: Time, input: Input<'_>) -> Vec<Output> {
        let mut out = Vec::new();
        if self.left {
            return out;
        }
        let mut touched = self.notice_pause(now, &mut out);
        let mut answer = None;
        touched = touched.max(match input {
            Input::Tick => Touched::Nothing,
            Input::Heard(heartbeat) => {
                let heard = self.hear(now, heartbeat);
                answer = matches!(heard, Heard::News | Heard::Fitness).then_some(heartbeat.from);
                match heard {
                    Heard::Nothing => Touched::Nothing,
                    Heard::Same | Heard::News => Touched::Restless,
                    Heard::Fitness => Touched::All,
                }
            }
            Input::Peers(peers) => self.set_peers(now, peers),
            Input::Shares(changes) => self.set_shares(changes, &mut out),
            Input::Links { lacks, macs } => self.set_links(now, lacks, macs),
            Input::Claimed { address, by } => self.claimed(now, address, by, &mut out),
            Input::Leave => {
                self.leaving = true;
                Touched::All
            }
        });
        touched = touched.max(self.expire(now));
        self.follow(now, touched, answer, &mut out);
        out
    }

    /// A node that did not run cannot tell whether others were silent, and after a long pause not
    /// whether they still count it in.
    fn notice_pause(&mut self, now: Time, out: &mut Vec<Output>) -> Touched {
        let ran_at = std::mem::replace(&mut self.ran_at, now);
        let missed = now.saturating_sub(ran_at);
        if self.told_at.is_none() || missed <= self.timing.interval * 3 / 2 {
            return Touched::Nothing;
        }
        if self.is_awake(now) {
            self.peers
                .values_mut()
                .for_each(|peer| peer.forgive(missed));
            return Touched::Nothing;
        }
        self.peers
            .values_mut()
            .for_each(|peer| peer.begin_anew(now, &self.timing));
        self.listening = true;
        self.drop_all(out);
        Touched::All
    }

    fn hear(&mut self, now: Time, heartbeat: &Heartbeat) -> Heard {
        let (incarnation, stamp) = (self.incarnation, self.stamp);
        match self.peers.get_mut(&heartbeat.from) {
            Some(peer) if heartbeat.to == self.me => {
                peer.hear(now, heartbeat, Echo { incarnation, stamp }, &self.timing)
            }
            _ => Heard::Nothing,
        }
    }

    fn set_peers(&mut self, now: Time, mut peers: BTreeSet<NodeId>) -> Touched {
        self.counted_in = peers.remove(&self.me);
        self.peers.retain(|node, _| peers.contains(node));
        for node in peers.into_iter().take(MOST_MEMBERS - 1) {
            self.peers
                .entry(node)
                .or_insert_with(|| Peer::presumed(now, &self.timing));
        }
        Touched::All
    }

    fn set_links(&mut self, now: Time, mut lacks: Vec<u64>, macs: Vec<Mac>) -> Touched {
        lacks.sort_unstable();
        lacks.dedup();
        lacks.truncate(MOST_LACKS);
        if (&self.lacks, &self.macs) == (&lacks, &macs) {
            return Touched::Nothing;
        }
        let regained = self
            .lacks
            .iter()
            .any(|links| lacks.binary_search(links).is_err());
        (self.lacks, self.macs) = (lacks, macs);
        // A node that was alone for want of a link does not know which nodes are there now.
        if regained && self.held().next().is_none() && !self.peers.values().any(Peer::serves) {
            self.peers
                .values_mut()
                .for_each(|peer| peer.presume(now, &self.timing));
            self.listening = true;
        }
        Touched::All
    }

    /// Drops nodes that were silent for too long, and stops waiting for answers that are this late.
    fn expire(&mut self, now: Time) -> Touched {
        let mut touched = Touched::Nothing;
        for peer in self.peers.values_mut() {
            if peer.expire(now, &self.timing) {
                touched = Touched::Restless;
            }
        }
        if self.listening && self.counted_in && self.peers.values().all(Peer::is_settled) {
            self.listening = false;
            touched = Touched::All;
        }
        touched
    }

    /// Acts on what is known now, then tells others: an echo says that we have done what follows
    /// from it.
    fn follow(
        &mut self,
        now: Time,
        touched: Touched,
        answer: Option<NodeId>,
        out: &mut Vec<Output>,
    ) {
        let view = self.look_around();
        let moved = view != self.view;
        if moved {
            out.push(Output::Members(view.clone()));
            self.view = view;
        }
        let news = moved || touched == Touched::All;
        if news {
            self.view_since = self.next_stamp(now);
        }
        match touched {
            _ if moved || touched == Touched::All => self.step_all(now, out),
            Touched::Restless if self.is_denied() => self.step_all(now, out),
            Touched::Restless => self.step_restless(now, out),
            _ => self.step_due(now, out),
        }
        if news
            || self
                .told_at
                .is_none_or(|at| now >= at + self.timing.interval)
        {
            self.tell_all(now, out);
        } else if let Some(node) = answer {
            let stamp = self.next_stamp(now);
            out.extend(self.heartbeat(node, stamp).map(Output::Send));
        }
        if self.leaving && self.restless.is_empty() {
            self.left = true;
            out.push(Output::Left);
        }
    }

    fn is_serving(&self) -> bool {
        self.ready && self.counted_in && !self.listening && !self.leaving
    }

    fn look_around(&self) -> Vec<NodeId> {
        let others = self
            .peers
            .iter()
            .filter(|(_, peer)| peer.serves())
            .map(|(node, _)| *node);
        let mut view: Vec<NodeId> = others.chain(self.is_serving().then_some(self.me)).collect();
        view.sort_unstable();
        view
    }

    /// Another node shares out addresses without this one.
    fn is_denied(&self) -> bool {
        self.is_serving() && self.peers.values().any(|peer| peer.denies(self.me))
    }

    fn tell_all(&mut self, now: Time, out: &mut Vec<Output>) {
        let stamp = self.next_stamp(now);
        out.extend(
            self.peers
                .keys()
                .filter_map(|node| self.heartbeat(*node, stamp))
                .map(Output::Send),
        );
        self.told_at = Some(now);
    }

    fn heartbeat(&self, to: NodeId, stamp: u64) -> Option<Heartbeat> {
        let peer = self.peers.get(&to)?;
        Some(Heartbeat {
            from: self.me,
            to,
            incarnation: self.incarnation,
            stamp,
            echo: peer.latest(),
            ready: self.ready && self.counted_in && !self.listening,
            leaves: self.leaving,
            lacks: self.lacks.clone(),
            macs: self.macs.clone(),
            view_since: self.view_since,
            view: (!peer.knows(self.view_since)).then(|| self.view.clone()),
        })
    }

    fn next_stamp(&mut self, now: Time) -> u64 {
        self.stamp = micros(now).max(self.stamp + 1);
        self.stamp
    }
}

fn micros(time: Time) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
