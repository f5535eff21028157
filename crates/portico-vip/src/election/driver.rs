//! The loop: what happens goes into the state machine, and what it says is done.

use super::announcing::Announcing;
use super::attached::Attached;
use super::hold::Hold;
use super::report::Report;
use super::rtnetlink::Link;
use super::view::{Event, View, Watch};
use super::wire::Mac;
use super::{ElectionError, Settings, thread};
use portico_dataplane::netlink::Socket;
use portico_vrrp::{Input, Output, Reason, Role, Router, Time};
use std::io;
use std::net::IpAddr;
use std::ops::ControlFlow;
use std::time::Duration;
use tokio::sync::{oneshot, watch};

/// After a failure that only time can heal.
const RETRY: Duration = Duration::from_secs(1);
/// Who deletes the addresses again and again finds them put back this often at most; then with the next refresh.
const RESTORE_GAP: Duration = Duration::from_millis(100);
/// Who takes over announces itself just before its advert comes: a claim is looked at when it has had the time to come.
const CLAIM_RESTS: Duration = Duration::from_millis(20);
/// What was on its way to us when another took over still gets its answer, after a planned end.
const LINGER: Duration = Duration::from_millis(10);
/// After so many packets the others on this host get a chance: nobody on the link can keep a processor busy.
const BURST: u32 = 64;
const BREATH: Duration = Duration::from_millis(1);
const FAR: Duration = Duration::from_secs(3600);

/// One virtual router on one link. What it holds is let go in this order when it is dropped.
pub struct Driver {
    hold: Hold,
    attached: Option<Attached>,
    settings: Settings,
    router: Router,
    announcing: Announcing,
    view: View,
    watch: Watch,
    lister: Socket,
    report: Report,
    priority: watch::Receiver<u8>,
    /// A word asks for a planned end; if whoever could say it is gone, that is the end.
    stop: oneshot::Receiver<()>,
    leaving: bool,
    released: bool,
    /// What could not be done, and means that we cannot take part for now.
    failed: Option<String>,
    retry_at: Option<Time>,
    /// Somebody said to have an address, and when that is to be looked at.
    claim: Option<(Time, IpAddr, Mac)>,
    restored_at: Option<Time>,
    lifetime: Duration,
    sending_fails: bool,
}

/// What ends a wait.
enum Wake {
    Timer,
    Packet(io::Result<super::adverts::Received>),
    Claim(io::Result<(IpAddr, Mac)>),
    Events(io::Result<Vec<Event>>),
    Priority(u8),
    /// Planned or at once.
    Stop {
        planned: bool,
    },
}

impl Driver {
    /// Takes part from now on, or as soon as there is a link. To be called in an async runtime.
    pub fn open(
        settings: Settings,
        report: Report,
        priority: watch::Receiver<u8>,
        stop: oneshot::Receiver<()>,
    ) -> Result<Driver, ElectionError> {
        let netlink = ElectionError::doing("listen to what happens to links and addresses");
        let config = &settings.router;
        let prefix = if settings.virtual_mac { super::longest_prefix(config.own) } else { settings.prefix };
        let opened = Hold::open(config.addresses.clone(), prefix).and_then(|hold| {
            let watch = Watch::open(hold.port())?;
            let mut lister = Socket::open(libc::NETLINK_ROUTE)?;
            let mut view = View::new(&settings.interface, config.own);
            view.read(&mut lister)?;
            Ok((hold, watch, lister, view))
        });
        let (hold, watch, lister, view) = opened.map_err(netlink)?;
        let mut driver = Driver {
            hold,
            attached: None,
            router: Router::new(config.clone()),
            announcing: Announcing::new(settings.announcements, settings.announcement_gap, settings.announce_every),
            settings,
            view,
            watch,
            lister,
            report,
            priority,
            stop,
            leaving: false,
            released: false,
            failed: None,
            retry_at: None,
            claim: None,
            restored_at: None,
            lifetime: Duration::ZERO,
            sending_fails: false,
        };
        driver.begin()?;
        Ok(driver)
    }

    /// What fails now fails for good; what fails later may heal.
    fn begin(&mut self) -> Result<(), ElectionError> {
        let now = thread::now();
        match self.view.usable().cloned() {
            Ok(link) => self.attach(&link)?,
            Err(why) => {
                tracing::warn!(interface = self.settings.interface, "{why}: waiting for it");
                self.report.trouble(Some(why));
                self.feed(now, Input::LinkDown);
            }
        }
        self.feed(now, Input::Start);
        Ok(())
    }

    /// Until the end that was asked for.
    pub async fn run(mut self) {
        let mut buffer = [0; 4096];
        let mut packets = 0;
        loop {
            let wake = self.next(&mut buffer).await;
            if matches!(wake, Wake::Packet(_) | Wake::Claim(_)) {
                packets += 1;
                if packets % BURST == 0 {
                    tokio::time::sleep(BREATH).await;
                }
            }
            if self.handle(wake, &mut buffer).is_break() {
                return tokio::time::sleep(LINGER).await;
            }
        }
    }

    async fn next(&mut self, buffer: &mut [u8]) -> Wake {
        let claim_at = self.claim.map(|(at, ..)| at);
        let deadlines = [self.router.deadline(), self.announcing.deadline(), self.retry_at, claim_at];
        let wait = deadlines.into_iter().flatten().min().map_or(FAR, |at| at.saturating_sub(thread::now()));
        if wait.is_zero() {
            return Wake::Timer;
        }
        let Driver { attached, watch, view, hold, settings, priority, stop, leaving, .. } = self;
        let attached = attached.as_ref();
        let wanted = |event: &Event| match event {
            Event::Link { link, .. } => view.concerns(link) || hold.link() == Some(link.index),
            Event::Address { held, .. } => {
                held.address == settings.router.own || settings.router.addresses.contains(&held.address)
            }
            Event::Lost => true,
        };
        tokio::select! {
            biased;
            () = tokio::time::sleep(wait) => Wake::Timer,
            asked = stop, if !*leaving => Wake::Stop { planned: asked.is_ok() },
            received = maybe(attached.map(|attached| attached.adverts.receive(buffer))) => Wake::Packet(received),
            claim = maybe(attached.map(|attached| attached.wire.claim())) => Wake::Claim(claim),
            events = watch.next(wanted) => Wake::Events(events),
            changed = priority.changed() => match changed {
                Ok(()) => Wake::Priority(*priority.borrow_and_update()),
                Err(_) => Wake::Stop { planned: false },
            },
        }
    }

    fn handle(&mut self, wake: Wake, buffer: &mut [u8]) -> ControlFlow<()> {
        match wake {
            Wake::Timer => self.catch_up(buffer),
            Wake::Packet(Ok(received)) => self.hear(&received, buffer),
            Wake::Claim(Ok((address, by))) => {
                if self.attached.as_ref().is_some_and(|attached| !attached.is_ours(by)) {
                    self.claim.get_or_insert_with(|| (thread::now() + CLAIM_RESTS, address, by));
                }
            }
            Wake::Events(Ok(events)) => {
                self.catch_up(buffer);
                self.notice(&events);
            }
            Wake::Packet(Err(error)) | Wake::Claim(Err(error)) => self.suspend(format!("cannot receive: {error}")),
            Wake::Events(Err(error)) => {
                tracing::error!(%error, "cannot hear what happens to links and addresses");
                self.notice(&[Event::Lost]);
            }
            Wake::Priority(priority) => {
                self.feed(thread::now(), Input::Priority(priority));
                self.report.priority(self.router.config().priority);
            }
            Wake::Stop { planned } => {
                self.leaving = true;
                self.feed(thread::now(), Input::Release);
                self.released |= !planned;
            }
        }
        if self.released { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    /// What is due is done, after the packets that came before.
    fn catch_up(&mut self, buffer: &mut [u8]) {
        for _ in 0..BURST {
            let Some(received) = self.attached.as_ref().and_then(|attached| attached.adverts.waiting(buffer)) else {
                break;
            };
            self.hear(&received, buffer);
        }
        let now = thread::now();
        if self.router.deadline().is_some_and(|at| at <= now) {
            self.feed(now, Input::Tick);
        }
        if let Some((_, address, by)) = self.claim.take_if(|(at, ..)| *at <= now) {
            self.feed(now, Input::Claimed { address, by });
        }
        if self.retry_at.take_if(|at| *at <= now).is_some() {
            self.notice(&[Event::Lost]);
        }
        self.announce(now);
    }

    fn hear(&mut self, received: &super::adverts::Received, buffer: &[u8]) {
        let payload = buffer.get(received.payload.clone()).unwrap_or_default();
        let (from, to, hops) = (received.from, received.to, received.hops);
        self.feed(thread::now(), Input::Packet { from, to, hops, payload });
    }

    /// Something happened to a link or an address.
    fn notice(&mut self, events: &[Event]) {
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
        }
    }

    fn lost_virtual_link(&self, event: &Event) -> bool {
        matches!(event, Event::Link { link, present: false } if self.hold.link() == Some(link.index))
    }

    fn lost_address(&self, event: &Event) -> bool {
        match event {
            Event::Lost => true,
            Event::Address { held, present: false } => {
                self.hold.link() == Some(held.link) && self.settings.router.addresses.contains(&held.address)
            }
            _ => false,
        }
    }

    /// Somebody took an address off that is ours.
    fn restore(&mut self) {
        let now = thread::now();
        let recently = self.restored_at.is_some_and(|at| now.saturating_sub(at) < RESTORE_GAP);
        if self.router.role() != Role::Owner || recently {
            return;
        }
        self.restored_at = Some(now);
        self.report.count(|state| state.counters.restored += 1);
        tracing::warn!(addresses = ?self.settings.router.addresses, "somebody took the addresses off, they are put back");
        self.act(now, Output::Take { lifetime: self.lifetime });
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
            Ok(link) if self.attached.is_none() && self.retry_at.is_none() => match self.attach(&link) {
                Ok(()) => self.feed(thread::now(), Input::LinkUp),
                Err(error) => self.suspend(error.to_string()),
            },
            _ => {}
        }
    }

    fn attach(&mut self, link: &Link) -> Result<(), ElectionError> {
        let attached = Attached::open(&self.settings, link)?;
        self.hold.place(Some(attached.holder()));
        for link in [attached.holder(), link.index] {
            let foreign =
                self.hold.clean(link).map_err(ElectionError::doing("take off what an earlier process left"))?;
            if !foreign.is_empty() {
                let interface = &self.settings.interface;
                tracing::warn!(
                    ?foreign,
                    interface,
                    "somebody else put virtual addresses on the link for good: while they are there, no other host can own them"
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

    /// Without the link for a while, since something does not work that has to.
    fn suspend(&mut self, why: String) {
        tracing::error!(interface = self.settings.interface, "{why}");
        self.report.trouble(Some(why));
        let now = thread::now();
        self.feed(now, Input::LinkDown);
        self.detach();
        self.retry_at = Some(now + RETRY);
    }

    fn feed(&mut self, now: Time, input: Input<'_>) {
        for output in self.router.handle(now, input) {
            self.act(now, output);
        }
        self.give_way();
    }

    /// An owner that cannot hold the addresses is none.
    fn give_way(&mut self) {
        if let Some(why) = self.failed.take() {
            self.suspend(why);
        }
    }

    fn act(&mut self, now: Time, output: Output) {
        match output {
            Output::Send(payload) => self.send(|attached| attached.adverts.send(&payload)),
            Output::SendTo(peer, payload) => self.send(|attached| attached.adverts.send_to(peer, &payload)),
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

    fn send(&mut self, send: impl FnOnce(&Attached) -> io::Result<()>) {
        let sent = self.attached.as_ref().map_or(Err(io::ErrorKind::NotConnected.into()), send);
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
    fn announce(&mut self, now: Time) {
        if self.announcing.due(now)
            && let Some(attached) = &self.attached
        {
            let sent = attached.announce(&self.settings.router.addresses);
            self.report.count(|state| state.counters.announcements += sent);
        }
    }

    fn probe(&self) {
        if let Some(attached) = &self.attached {
            attached.probe(&self.settings.router.addresses);
        }
    }

    fn ignored(&self, from: IpAddr, why: &portico_vrrp::Refused) {
        let mut before = 0;
        self.report.count(|state| {
            let count = state.counters.adverts_ignored.entry(why.name()).or_default();
            before = *count;
            *count += 1;
        });
        match before {
            0 => tracing::warn!(%from, "an advert is ignored: {why}"),
            _ => tracing::debug!(%from, "an advert is ignored: {why}"),
        }
    }
}

/// Waits for ever where there is nothing to wait for.
async fn maybe<T>(future: Option<impl Future<Output = T>>) -> T {
    match future {
        Some(future) => future.await,
        None => std::future::pending().await,
    }
}

fn mac_text(mac: Mac) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}
