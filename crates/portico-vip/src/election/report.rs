//! Publishes [`State`]. Counting wakes no receiver; a change that matters does.

use super::state::{PEERS, Peer, State, TRANSITIONS, Transition};
use portico_vrrp::{Advert, Conflict, Reason, Role};
use std::net::IpAddr;
use std::time::SystemTime;
use tokio::sync::watch;

pub(super) struct Report(watch::Sender<State>);

impl Report {
    pub(super) fn new(priority: u8) -> (Self, watch::Receiver<State>) {
        let (sender, receiver) = watch::channel(State::new(priority));
        (Self(sender), receiver)
    }

    /// Changes counters without waking a receiver.
    pub(super) fn count(&self, count: impl FnOnce(&mut State)) {
        self.0.send_if_modified(|state| {
            count(state);
            false
        });
    }

    pub(super) fn became(&self, role: Role, reason: Reason, own: IpAddr) {
        self.0.send_modify(|state| {
            state.owner = match (role, &reason) {
                (Role::Owner, _) => Some(own),
                (_, Reason::Outranked { by, .. }) => Some(*by),
                _ => state.owner.filter(|owner| *owner != own),
            };
            state.counters.became_owner += u64::from(role == Role::Owner);
            state.role = role;
            state.counters.transitions += 1;
            state.transitions.push(Transition {
                at: SystemTime::now(),
                role,
                reason,
            });
            let old = state.transitions.len().saturating_sub(TRANSITIONS);
            state.transitions.drain(..old);
        });
    }

    pub(super) fn heard(&self, from: IpAddr, advert: &Advert) {
        self.0.send_if_modified(|state| {
            state.counters.adverts_received += 1;
            let said = Peer {
                address: from,
                priority: advert.priority,
                last_heard: SystemTime::now(),
            };
            // An owner that hears one of lower priority stays the owner, and one that leaves still
            // has it.
            let owner = if state.role == Role::Owner {
                state.owner
            } else {
                Some(from)
            };
            let known = state.peers.iter_mut().find(|peer| peer.address == from);
            let news = owner != state.owner
                || known
                    .as_ref()
                    .is_none_or(|peer| peer.priority != said.priority);
            match known {
                Some(peer) => *peer = said,
                None => remember(&mut state.peers, said),
            }
            state.owner = owner;
            news
        });
    }

    pub(super) fn conflict(&self, conflict: Conflict) {
        self.0.send_modify(|state| {
            state.counters.conflicts += 1;
            state.conflict = Some((SystemTime::now(), conflict));
        });
    }

    pub(super) fn priority(&self, priority: u8) {
        self.0.send_modify(|state| state.priority = priority);
    }

    pub(super) fn trouble(&self, trouble: Option<String>) {
        self.0.send_if_modified(|state| {
            let news = state.trouble != trouble;
            state.trouble = trouble;
            news
        });
    }
}

fn remember(peers: &mut Vec<Peer>, new: Peer) {
    if peers.len() >= PEERS {
        let longest_silent = (0..)
            .zip(peers.iter())
            .min_by_key(|(_, peer)| peer.last_heard)
            .map(|(index, _)| index);
        longest_silent.map(|index: usize| peers.swap_remove(index));
    }
    peers.push(new);
    peers.sort_by_key(|peer| peer.address);
}

#[cfg(test)]
mod tests;
