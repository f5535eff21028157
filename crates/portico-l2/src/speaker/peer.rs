//! What is known of another node.

use super::{Timing, micros};
use crate::Time;
use crate::frame::Mac;
use crate::heartbeat::{Echo, Heartbeat};
use crate::rank::NodeId;

#[derive(Clone, Debug)]
pub(super) struct Peer {
    /// Its process and the latest that was heard of it.
    latest: Option<Echo>,
    /// It was not silent for too long.
    live: bool,
    live_until: Time,
    /// Since when it is live, as far as we know. What it told before, or while it did not know of
    /// us, says nothing about now.
    contact_at: Time,
    settled: bool,
    /// The latest of ours that it has heard.
    echoed: u64,
    ready: bool,
    leaves: bool,
    lacks: Vec<u64>,
    macs: Vec<Mac>,
    view: Vec<NodeId>,
    view_since: u64,
}

/// What there is to do about a heartbeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Heard {
    /// It is not for us, or old.
    Nothing,
    /// What was known already, and that the other has heard us.
    Same,
    /// It is worth an answer.
    News,
    /// And what it can have is not what it was.
    Fitness,
}

impl Peer {
    /// A peer that was not heard yet, and that may well be there.
    pub(super) fn presumed(now: Time, timing: &Timing) -> Self {
        Self {
            latest: None,
            live: true,
            live_until: now + timing.dead,
            contact_at: now,
            settled: false,
            echoed: 0,
            ready: false,
            leaves: false,
            lacks: vec![],
            macs: vec![],
            view: vec![],
            view_since: 0,
        }
    }

    pub(super) fn hear(
        &mut self,
        now: Time,
        heartbeat: &Heartbeat,
        ours: Echo,
        timing: &Timing,
    ) -> Heard {
        let echoed = heartbeat
            .echo
            .filter(|echo| echo.incarnation == ours.incarnation && echo.stamp <= ours.stamp);
        let fresh = echoed.is_some_and(|echo| echo.stamp + micros(timing.dead) >= micros(now));
        let echoed = echoed.map_or(0, |echo| echo.stamp);
        let mut news = !self.live;
        match self.latest {
            // Old, or twice.
            Some(known)
                if known.incarnation == heartbeat.incarnation && heartbeat.stamp <= known.stamp =>
            {
                return Heard::Nothing;
            }
            Some(known) if known.incarnation == heartbeat.incarnation => {}
            // A repeated heartbeat of an earlier process: it cannot echo what this node said just
            // now.
            Some(known) if heartbeat.incarnation < known.incarnation && !fresh => {
                return Heard::Nothing;
            }
            Some(_) => {
                *self = Self::presumed(now, timing);
                news = true;
            }
            None => news = true,
        }
        if !self.live {
            (self.live, self.settled, self.contact_at) = (true, false, now);
        }
        self.latest = Some(Echo {
            incarnation: heartbeat.incarnation,
            stamp: heartbeat.stamp,
        });
        self.live_until = now + timing.dead;
        self.echoed = self.echoed.max(echoed);
        let settles = !self.settled && self.echoed >= micros(self.contact_at);
        self.settled |= settles;
        let fitness = heartbeat.lacks != self.lacks;
        news |= self.take_note(heartbeat) || settles;
        match (fitness, news) {
            (true, _) => Heard::Fitness,
            (false, true) => Heard::News,
            (false, false) => Heard::Same,
        }
    }

    /// Whether it tells something new.
    fn take_note(&mut self, heartbeat: &Heartbeat) -> bool {
        let (flags, known) = (
            (heartbeat.ready, heartbeat.leaves),
            (self.ready, self.leaves),
        );
        let view = heartbeat.view.as_ref().filter(|view| **view != self.view);
        let since = heartbeat.view_since != self.view_since;
        let news = flags != known || view.is_some() || since;
        (self.ready, self.leaves, self.view_since) =
            (heartbeat.ready, heartbeat.leaves, heartbeat.view_since);
        view.into_iter().for_each(|view| self.view.clone_from(view));
        self.lacks.clone_from(&heartbeat.lacks);
        self.macs.clone_from(&heartbeat.macs);
        news
    }

    /// We did not run for a while, and it may have said something.
    pub(super) fn forgive(&mut self, missed: Time) {
        self.live_until += missed;
        self.contact_at += if self.settled { Time::ZERO } else { missed };
    }

    /// We did not run for so long that what we know of it is worth nothing.
    pub(super) fn begin_anew(&mut self, now: Time, timing: &Timing) {
        if self.live {
            self.presume(now, timing);
        }
    }

    /// It may well be there, or still be: what it has is to be heard.
    pub(super) fn presume(&mut self, now: Time, timing: &Timing) {
        (self.live, self.live_until, self.contact_at, self.settled) =
            (true, now + timing.dead, now, false);
    }

    /// Whether something ended: it is gone, or does not hear us.
    pub(super) fn expire(&mut self, now: Time, timing: &Timing) -> bool {
        let gone = self.live && now >= self.live_until;
        let deaf = self.live && !self.settled && now >= self.contact_at + timing.dead;
        self.live &= !gone;
        self.settled |= deaf;
        gone || deaf
    }

    pub(super) fn deadline(&self, timing: &Timing) -> Option<Time> {
        let deaf = if self.settled {
            Time::MAX
        } else {
            self.contact_at + timing.dead
        };
        self.live.then(|| self.live_until.min(deaf))
    }

    /// What it tells is about now, or it is not there.
    pub(super) fn is_settled(&self) -> bool {
        !self.live || self.settled
    }

    /// It can have addresses.
    pub(super) fn serves(&self) -> bool {
        self.live && self.ready && !self.leaves
    }

    /// It may have addresses, by what it told: those of this view. `None`: it has none.
    pub(super) fn view(&self) -> Option<&[NodeId]> {
        self.serves().then_some(&self.view)
    }

    /// It has addresses, and shares them out without this node.
    pub(super) fn denies(&self, node: NodeId) -> bool {
        self.serves() && self.settled && self.view.binary_search(&node).is_err()
    }

    pub(super) fn lacks(&self, links: u64) -> bool {
        self.lacks.contains(&links)
    }

    pub(super) fn has_mac(&self, mac: Mac) -> bool {
        self.macs.contains(&mac)
    }

    pub(super) fn latest(&self) -> Option<Echo> {
        self.latest
    }

    /// It has heard this of us.
    pub(super) fn knows(&self, stamp: u64) -> bool {
        self.echoed >= stamp
    }
}
