//! The states of an address.
//!
//! ```text
//!             to be ours            nobody else has it                  nobody answered
//!   Others ──────────────▶ Waiting ───────────────────▶ Probing ───────────────────────────────────▶ Held
//!     ▲                     ▲ ▲ │                          │                                          ▲ │ │
//!     │                     │ │ └─ a member was to have it: Proving ─────────── nobody answered ──────┘ │ │
//!     │                     │ │                            │                                            │ │
//!     │                     │ └─ Avoiding ◀── answered ────┘                          another's by what │ │ to be another's
//!     │                     └────────────────────────────────────────────────────────── that one told ──┘ ▼
//!     └──────────────────────────────────────────────────────── that one knows, or did not hear for long ── Giving
//! ```
//!
//! Proving is having it already: a node that takes over answers at once. But the node before it
//! need not have had the address, if it was about to find, or had found, that a stranger has it.

use super::{Conflict, Output, Peer, Share, Speaker, Touched};
use crate::Time;
use crate::frame::Mac;
use crate::rank::{self, NodeId};
use std::net::IpAddr;
use std::time::Duration;

/// So often the link is asked for an address that no member had.
const PROBES: u32 = 2;
/// So many addresses are asked for at the same time.
const MOST_PROBING: usize = 512;
/// How often an address that another host has is probed again, and an own one defended
/// (DEFEND_INTERVAL of RFC 5227).
const DEFEND: Duration = Duration::from_secs(10);

#[derive(Clone, Debug)]
pub(super) struct Entry {
    share: Share,
    hash: u64,
    /// The node that is to have it, by this node's view.
    first: Option<NodeId>,
    /// Which other node was last to have it.
    before: Option<NodeId>,
    state: State,
    /// Another member was to have it while we knew of it: it is taken before it is asked for.
    vouched: bool,
    defended_at: Option<Time>,
    due: Option<Time>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Others,
    Waiting,
    /// How often the link was asked.
    Probing(u32),
    /// A host with this hardware address answered the probe.
    Avoiding(Mac),
    /// Ours, and how often the link was asked.
    Proving(u32),
    Held,
    Giving,
}

impl Entry {
    fn new(address: IpAddr, share: Share) -> Self {
        let hash = rank::hash_address(address);
        Self {
            share,
            hash,
            first: None,
            before: None,
            state: State::Others,
            vouched: false,
            defended_at: None,
            due: None,
        }
    }

    pub(super) fn is_held(&self) -> bool {
        matches!(self.state, State::Proving(_) | State::Held | State::Giving)
    }

    fn is_restless(&self) -> bool {
        !matches!(self.state, State::Others | State::Held)
    }
}

impl State {
    /// An answer of the link is waited for.
    fn asks(self) -> bool {
        matches!(self, Self::Probing(_) | Self::Proving(1..))
    }
}

/// Why an address cannot be ours yet.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Blocked {
    No,
    /// A node that might have it has not told its view yet.
    Unknown,
    /// A node has it by the view that it told.
    Claimed,
}

impl Speaker {
    pub(super) fn set_shares(
        &mut self,
        changes: Vec<(IpAddr, Option<Share>)>,
        out: &mut Vec<Output>,
    ) -> Touched {
        for (address, share) in changes {
            match share {
                Some(share) => self.set_share(address, share),
                None => {
                    self.set_state(address, State::Others, None, out);
                    self.entries.remove(&address);
                }
            }
        }
        match std::mem::replace(&mut self.ready, true) {
            true => Touched::Restless,
            false => Touched::All,
        }
    }

    fn set_share(&mut self, address: IpAddr, share: Share) {
        let entry = self
            .entries
            .entry(address)
            .or_insert_with(|| Entry::new(address, share.clone()));
        entry.share = share;
        self.restless.insert(address);
        self.set_first(address);
    }

    /// Finds out who is to have the address now.
    fn set_first(&mut self, address: IpAddr) {
        let (first, me) = (self.first(address), self.me);
        if let Some(entry) = self.entries.get_mut(&address) {
            let last = std::mem::replace(&mut entry.first, first);
            let moved = last.filter(|last| Some(*last) != first && *last != me);
            entry.before = moved.or(entry.before);
        }
    }

    /// The other node that was last to have an address, if one was while we knew of the address.
    pub fn before(&self, address: IpAddr) -> Option<NodeId> {
        self.entries.get(&address).and_then(|entry| entry.before)
    }

    pub(super) fn drop_all(&mut self, out: &mut Vec<Output>) {
        let addresses: Vec<IpAddr> = self.entries.keys().copied().collect();
        addresses
            .into_iter()
            .for_each(|address| self.set_state(address, State::Others, None, out));
    }

    /// Members changed: everything is looked at, though little moves.
    pub(super) fn step_all(&mut self, now: Time, out: &mut Vec<Output>) {
        let addresses: Vec<IpAddr> = self.entries.keys().copied().collect();
        for address in addresses {
            self.set_first(address);
            self.step(now, address, out);
        }
    }

    pub(super) fn step_restless(&mut self, now: Time, out: &mut Vec<Output>) {
        for address in std::mem::take(&mut self.restless) {
            self.step(now, address, out);
            if self.entries.get(&address).is_some_and(Entry::is_restless) {
                self.restless.insert(address);
            }
        }
    }

    pub(super) fn step_due(&mut self, now: Time, out: &mut Vec<Output>) {
        let is_due = |(at, _): &&(Time, IpAddr)| *at <= now;
        if self.due.iter().next().filter(is_due).is_some() {
            self.step_restless(now, out);
        }
    }

    fn step(&mut self, now: Time, address: IpAddr, out: &mut Vec<Output>) {
        let Some(entry) = self.entries.get(&address) else {
            return;
        };
        let (state, wanted) = (entry.state, entry.first == Some(self.me));
        let is_due = entry.due.is_some_and(|at| at <= now);
        match state {
            State::Others | State::Waiting if wanted => self.wait(now, address, out),
            State::Waiting | State::Others | State::Probing(_) | State::Avoiding(_) if !wanted => {
                self.vouch(address);
                self.set_state(address, State::Others, None, out);
            }
            State::Others | State::Waiting => {}
            State::Probing(_) if self.blocked(address) != Blocked::No => {
                self.set_state(address, State::Waiting, None, out)
            }
            State::Probing(sent) if is_due && sent < PROBES => self.probe(now, address, sent, out),
            State::Probing(_) if is_due => self.set_state(address, State::Held, None, out),
            // If it was a member, we had not heard of it then.
            State::Avoiding(by) if is_due || self.is_member(by) => self.wait(now, address, out),
            State::Probing(_) | State::Avoiding(_) => {}
            State::Proving(_) | State::Held | State::Giving
                if wanted && self.is_claimed_without_us(address) =>
            {
                self.set_state(address, State::Waiting, None, out);
            }
            State::Proving(sent) if wanted && is_due => self.prove(now, address, sent, out),
            State::Proving(_) | State::Held if wanted => {}
            State::Giving if wanted => {
                self.set_state(address, State::Held, None, out);
                out.push(Output::Announce(address)); // the other one may have announced it
            }
            State::Proving(_) | State::Held if self.is_followed(address) => {
                self.set_state(address, State::Giving, Some(now + self.timing.dead), out);
            }
            State::Giving if self.is_followed(address) && !is_due && !self.is_taken(address) => {}
            State::Proving(_) | State::Held | State::Giving => {
                self.vouch(address);
                self.set_state(address, State::Others, None, out);
            }
        }
    }

    fn wait(&mut self, now: Time, address: IpAddr, out: &mut Vec<Output>) {
        let blocked = self.blocked(address);
        if blocked == Blocked::Claimed {
            self.vouch(address);
        }
        let vouched = self
            .entries
            .get(&address)
            .is_some_and(|entry| entry.vouched);
        match blocked {
            Blocked::No if vouched => self.prove(now, address, 0, out),
            Blocked::No if self.probing < MOST_PROBING => self.probe(now, address, 0, out),
            _ => self.set_state(address, State::Waiting, None, out),
        }
    }

    fn probe(&mut self, now: Time, address: IpAddr, sent: u32, out: &mut Vec<Output>) {
        self.set_state(
            address,
            State::Probing(sent + 1),
            Some(now + self.timing.probe_gap),
            out,
        );
        out.push(Output::Probe(address));
    }

    /// Many at once wait for their turn to ask, and are ours meanwhile.
    fn prove(&mut self, now: Time, address: IpAddr, sent: u32, out: &mut Vec<Output>) {
        if sent == PROBES {
            return self.set_state(address, State::Held, None, out);
        }
        let may_ask = sent > 0 || self.probing < MOST_PROBING;
        let sent = sent + u32::from(may_ask);
        self.set_state(
            address,
            State::Proving(sent),
            Some(now + self.timing.probe_gap),
            out,
        );
        out.extend(may_ask.then_some(Output::Probe(address)));
    }

    fn vouch(&mut self, address: IpAddr) {
        if let Some(entry) = self.entries.get_mut(&address) {
            entry.vouched |= entry.first.is_some();
        }
    }

    fn set_state(
        &mut self,
        address: IpAddr,
        state: State,
        due: Option<Time>,
        out: &mut Vec<Output>,
    ) {
        let Some(entry) = self.entries.get_mut(&address) else {
            return;
        };
        let was_held = entry.is_held();
        let before = std::mem::replace(&mut entry.state, state);
        let is_held = entry.is_held();
        if let Some(at) = std::mem::replace(&mut entry.due, due) {
            self.due.remove(&(at, address));
        }
        self.due.extend(due.map(|at| (at, address)));
        match entry.is_restless() {
            true => self.restless.insert(address),
            false => self.restless.remove(&address),
        };
        self.probing -= usize::from(before.asks());
        self.probing += usize::from(state.asks());
        match (was_held, is_held) {
            (false, true) => out.push(Output::Hold(address)),
            (true, false) => out.push(Output::Release(address)),
            _ => {}
        }
    }

    /// A host claims an address. Members do while it changes hands; a claim of any other host is
    /// reported and changes nothing, since every host on the link can make one.
    pub(super) fn claimed(
        &mut self,
        now: Time,
        address: IpAddr,
        by: Mac,
        out: &mut Vec<Output>,
    ) -> Touched {
        let member = self.is_member(by);
        let Some(entry) = self.entries.get_mut(&address).filter(|_| !member) else {
            return Touched::Nothing;
        };
        let held = entry.state == State::Held;
        let recently = entry
            .defended_at
            .is_some_and(|at| now.saturating_sub(at) < DEFEND);
        match entry.state {
            State::Held if recently => {}
            State::Held | State::Probing(_) | State::Proving(_) => {
                entry.defended_at = Some(now);
                out.push(Output::Conflict(Conflict { address, by, held }));
                match held {
                    true => out.push(Output::Announce(address)),
                    false => self.set_state(address, State::Avoiding(by), Some(now + DEFEND), out),
                }
            }
            _ => {}
        }
        Touched::Nothing
    }

    fn is_member(&self, mac: Mac) -> bool {
        self.macs.contains(&mac) || self.peers.values().any(|peer| peer.has_mac(mac))
    }

    fn first(&self, address: IpAddr) -> Option<NodeId> {
        let entry = self.entries.get(&address)?;
        let fit = self
            .view
            .iter()
            .copied()
            .filter(|node| self.is_fit(entry, *node));
        rank::first(entry.hash, fit)
    }

    fn is_fit(&self, entry: &Entry, node: NodeId) -> bool {
        let links = entry.share.links;
        let lacks = match self.peers.get(&node) {
            Some(peer) => peer.lacks(links),
            None => node == self.me && self.lacks.binary_search(&links).is_ok(),
        };
        !lacks
            && entry
                .share
                .nodes
                .as_ref()
                .is_none_or(|nodes| nodes.binary_search(&node).is_ok())
    }

    /// Whether a node from which the address is to be taken over may still have it.
    fn blocked(&self, address: IpAddr) -> Blocked {
        let Some(entry) = self.entries.get(&address) else {
            return Blocked::No;
        };
        let of_peer = |(node, peer): (&NodeId, &Peer)| match peer.view() {
            None => Blocked::No,
            Some(_) if !peer.is_settled() => {
                if self.is_fit(entry, *node) {
                    Blocked::Unknown
                } else {
                    Blocked::No
                }
            }
            Some(view) if view == self.view => Blocked::No,
            Some(view) if self.claims(entry, *node, view) => Blocked::Claimed,
            Some(_) => Blocked::No,
        };
        let mut found = self
            .peers
            .iter()
            .map(of_peer)
            .filter(|blocked| *blocked != Blocked::No);
        found.next().unwrap_or(Blocked::No)
    }

    /// Another node has it by a view without this node.
    fn is_claimed_without_us(&self, address: IpAddr) -> bool {
        let Some(entry) = self.entries.get(&address) else {
            return false;
        };
        let mut denying = self.peers.iter().filter(|(_, peer)| peer.denies(self.me));
        denying.any(|(node, peer)| {
            peer.view()
                .is_some_and(|view| self.claims(entry, *node, view))
        })
    }

    /// Whether the node has the address by this view.
    fn claims(&self, entry: &Entry, node: NodeId, view: &[NodeId]) -> bool {
        let own = rank::score(entry.hash, node);
        let outranks =
            |other: &NodeId| rank::score(entry.hash, *other) > own && self.is_fit(entry, *other);
        view.binary_search(&node).is_ok() && self.is_fit(entry, node) && !view.iter().any(outranks)
    }

    /// A next owner is known, and keeping the address until it is ready is better than letting go.
    fn is_followed(&self, address: IpAddr) -> bool {
        self.entries
            .get(&address)
            .is_some_and(|entry| entry.first.is_some() && self.is_fit(entry, self.me))
    }

    /// The next owner knows and has taken the address, or another node has it by now.
    fn is_taken(&self, address: IpAddr) -> bool {
        let Some((entry, next)) = self
            .entries
            .get(&address)
            .and_then(|entry| Some((entry, entry.first?)))
        else {
            return true;
        };
        let claims = |(node, peer): (&NodeId, &Peer)| {
            *node != next
                && peer.is_settled()
                && peer
                    .view()
                    .is_some_and(|view| self.claims(entry, *node, view))
        };
        self.peers
            .get(&next)
            .is_none_or(|peer| peer.knows(self.view_since))
            || self.peers.iter().any(claims)
    }
}
