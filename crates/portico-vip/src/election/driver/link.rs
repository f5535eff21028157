//! The link that we take part through: it comes and goes, and what is on it is changed by others.

use super::Driver;
use crate::election::attached::Attached;
use crate::election::rtnetlink::Link;
use crate::election::view::Event;
use crate::election::{ElectionError, thread};
use portico_client::error::chain;
use portico_vrrp::{Input, Output, Role};
use std::time::Duration;

/// The time to wait after a failure that may pass by itself.
const RETRY: Duration = Duration::from_secs(1);
/// Addresses that another program keeps deleting are put back at most this often; after that with
/// the next refresh.
const RESTORE_GAP: Duration = Duration::from_millis(100);

impl Driver {
    /// Something happened to a link or an address.
    pub(super) fn notice(&mut self, events: &[Event]) {
        let mut unsure = false;
        for event in events {
            unsure |= self.view.apply(event);
        }
        if unsure && let Err(error) = self.view.read(&mut self.lister) {
            return self.suspend(format!("cannot list links and addresses: {error}"));
        }
        if events.iter().any(|event| self.lost_virtual_link(event)) {
            self.suspend("the virtual link was deleted".to_owned());
            self.retry_at = None;
        }
        self.follow_link();
        if events.iter().any(|event| self.lost_address(event)) {
            self.restore();
        } else if events.contains(&Event::Lost) && self.router.role() == Role::Owner {
            self.act(
                thread::now(),
                Output::Take {
                    lifetime: self.lifetime,
                },
            );
            self.give_way();
        }
    }

    fn lost_virtual_link(&self, event: &Event) -> bool {
        matches!(event, Event::Link { link, present: false } if self.hold.link() == Some(link.index))
    }

    fn lost_address(&self, event: &Event) -> bool {
        let Event::Address {
            held,
            present: false,
        } = event
        else {
            return false;
        };
        self.hold.link() == Some(held.link)
            && self.settings.router.addresses.contains(&held.address)
    }

    /// Puts back an address of ours that another program deleted.
    fn restore(&mut self) {
        let now = thread::now();
        let recently = self
            .restored_at
            .is_some_and(|at| now.saturating_sub(at) < RESTORE_GAP);
        if self.router.role() != Role::Owner || recently {
            return;
        }
        self.restored_at = Some(now);
        self.report.count(|state| state.counters.restored += 1);
        tracing::warn!(addresses = ?self.settings.router.addresses, "somebody took the addresses off, they are put back");
        self.act(
            now,
            Output::Take {
                lifetime: self.lifetime,
            },
        );
        self.act(now, Output::Announce);
        self.give_way();
    }

    /// Takes part through the link as it is now, or not at all.
    fn follow_link(&mut self) {
        let usable = self.view.usable().cloned();
        let changed = match (&self.attached, &usable) {
            (Some(attached), Ok(link)) => !attached.is_on(link),
            (Some(_), Err(_)) => true,
            (None, _) => false,
        };
        if let Err(why) = &usable {
            self.report.trouble(Some(why.clone()));
        }
        if changed {
            self.feed(thread::now(), Input::LinkDown);
            self.detach();
        }
        match usable {
            Ok(link) if self.attached.is_none() && self.retry_at.is_none() => {
                match self.attach(&link) {
                    Ok(()) => self.feed(thread::now(), Input::LinkUp),
                    Err(error) => self.suspend(chain(&error)),
                }
            }
            _ => {}
        }
    }

    pub(super) fn attach(&mut self, link: &Link) -> Result<(), ElectionError> {
        let attached = Attached::open(&self.settings, link)?;
        self.hold.place(Some(attached.holder()));
        for link in [attached.holder(), link.index] {
            let foreign = self.hold.clean(link).map_err(ElectionError::doing(
                "take off what an earlier process left",
            ))?;
            if !foreign.is_empty() {
                let interface = &self.settings.interface;
                tracing::warn!(
                    ?foreign,
                    interface,
                    "somebody else put virtual addresses on the link for good: while they are \
                     there, no other host can own them"
                );
            }
        }
        self.attached = Some(attached);
        self.report.trouble(None);
        Ok(())
    }

    fn detach(&mut self) {
        self.attached = None;
        self.hold.place(None);
        self.announcing.stop();
    }

    /// Goes on without the link for a while, since something that is needed does not work.
    pub(super) fn suspend(&mut self, why: String) {
        tracing::error!(interface = self.settings.interface, "{why}");
        self.report.trouble(Some(why));
        let now = thread::now();
        self.feed(now, Input::LinkDown);
        self.detach();
        self.retry_at = Some(now + RETRY);
    }
}
