//! What the state machine says is done.

use super::{Driver, clock};
use crate::election::attached::Attached;
use crate::election::state::Stranger;
use crate::election::wire::Mac;
use portico_vrrp::{Output, Reason, Refused, Time};
use std::io;
use std::net::IpAddr;
use std::time::SystemTime;

impl Driver {
    pub(super) fn act(&mut self, now: Time, output: Output) {
        match output {
            Output::Send(payload) => {
                let group = portico_vrrp::packet::group(self.settings.router.own);
                let payload = self.signed(payload, group);
                self.send(|attached| attached.adverts.send(&payload));
            }
            Output::SendTo(peer, payload) => {
                let payload = self.signed(payload, peer);
                self.send(|attached| attached.adverts.send_to(peer, &payload));
            }
            Output::Take { lifetime } => {
                self.lifetime = lifetime;
                if let Err(error) = self.take() {
                    self.failed = Some(format!("cannot put the addresses on the link: {error}"));
                }
            }
            Output::Announce => {
                self.announcing.begin(now);
                self.announce(now);
            }
            Output::Drop if self.leaving => {} // with everything else, at the end
            Output::Drop => self.drop_addresses(),
            Output::Probe => self.probe(),
            Output::Became(role, reason) => {
                tracing::info!(vrid = self.settings.router.vrid, addresses = ?self.settings.router.addresses, "{role:?}: {reason}");
                if !matches!(reason, Reason::OwnerSilent { .. }) {
                    self.claim = None; // the owner of before was right to say so
                }
                self.report.became(role, reason, self.settings.router.own);
            }
            Output::Conflict(conflict) => {
                tracing::warn!(address = %conflict.address, by = %mac_text(conflict.by), "somebody else has the address as well");
                self.report.conflict(conflict);
            }
            Output::Heard { from, advert } => self.report.heard(from, &advert),
            Output::Ignored { from, why } => self.ignored(from, &why),
            Output::Released => self.released = true,
        }
    }

    fn signed(&mut self, payload: Vec<u8>, to: IpAddr) -> Vec<u8> {
        let own = self.settings.router.own;
        match &mut self.signer {
            None => payload,
            Some(signer) => signer.sign(payload, own, to, clock()),
        }
    }

    fn send(&mut self, send: impl FnOnce(&Attached) -> io::Result<()>) {
        let sent = self
            .attached
            .as_ref()
            .map_or(Err(io::ErrorKind::NotConnected.into()), send);
        match &sent {
            Ok(()) => self.report.count(|state| state.counters.adverts_sent += 1),
            Err(error) => {
                self.report.count(|state| state.counters.send_errors += 1);
                if !self.sending_fails {
                    tracing::warn!(%error, "an advert cannot be sent");
                }
            }
        }
        self.sending_fails = sent.is_err();
    }

    fn take(&mut self) -> io::Result<()> {
        if let Some(attached) = &mut self.attached {
            attached.enliven(self.settings.router.own)?;
        }
        self.hold.take(self.lifetime)
    }

    fn drop_addresses(&mut self) {
        self.announcing.stop();
        self.hold.give_up();
        if let Some(attached) = &mut self.attached {
            attached.calm();
        }
    }

    /// Tells the link where the addresses are, if that is due.
    pub(super) fn announce(&mut self, now: Time) {
        if self.announcing.due(now)
            && let Some(attached) = &self.attached
        {
            let sent = attached.announce(&self.settings.router.addresses);
            self.report
                .count(|state| state.counters.announcements += sent);
        }
    }

    fn probe(&self) {
        if let Some(attached) = &self.attached {
            attached.probe(&self.settings.router.addresses);
        }
    }

    fn ignored(&self, from: IpAddr, why: &Refused) {
        let mut before = 0;
        self.report.count(|state| {
            let count = state
                .counters
                .adverts_ignored
                .entry(why.name())
                .or_default();
            before = *count;
            *count += 1;
            if why.is_strangers() {
                state.stranger = Some(Stranger {
                    at: SystemTime::now(),
                    from,
                    why: why.to_string(),
                });
                *state.counters.strangers.entry(why.name()).or_default() += 1;
            }
        });
        match before {
            0 => tracing::warn!(%from, "an advert is ignored: {why}"),
            _ => tracing::debug!(%from, "an advert is ignored: {why}"),
        }
    }
}

fn mac_text(mac: Mac) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}
