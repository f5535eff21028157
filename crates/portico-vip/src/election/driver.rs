//! The loop: what happens goes into the state machine, and what it says is done (`act`). `link`
//! follows the link.

mod act;
mod link;

use super::adverts::Received;
use super::announcing::Announcing;
use super::attached::Attached;
use super::hmac::Ring;
use super::hold::Hold;
use super::report::Report;
use super::view::{Event, View, Watch};
use super::wire::Mac;
use super::{ElectionError, Settings, thread};
use portico_dataplane::netlink::Socket;
use portico_vrrp::{Auth, Input, Output, Refused, Router, Signer, Time, screen};
use std::io;
use std::net::IpAddr;
use std::ops::ControlFlow;
use std::time::{Duration, SystemTime};
use tokio::sync::{oneshot, watch};

/// A new owner announces the address just before its advert comes: a claim is judged when that
/// advert has had the time to arrive.
const CLAIM_RESTS: Duration = Duration::from_millis(20);
/// What was on its way to us when another took over still gets its answer, after a planned end.
const LINGER: Duration = Duration::from_millis(10);
/// After this many packets the loop pauses, so that no host on the link can keep a processor busy.
const BURST: u32 = 64;
const BREATH: Duration = Duration::from_millis(1);
const FAR: Duration = Duration::from_secs(3600);

/// One virtual router on one link. What it holds is let go in this order when it is dropped.
pub(super) struct Driver {
    hold: Hold,
    attached: Option<Attached>,
    settings: Settings,
    router: Router,
    /// Signs and verifies adverts, where there are keys.
    signer: Option<Signer<Ring>>,
    announcing: Announcing,
    view: View,
    watch: Watch,
    lister: Socket,
    report: Report,
    priority: watch::Receiver<u8>,
    auth: watch::Receiver<Option<Auth>>,
    /// A message asks for a planned end; a dropped sender ends the election at once.
    stop: oneshot::Receiver<()>,
    leaving: bool,
    released: bool,
    /// What could not be done, and means that we cannot take part for now.
    failed: Option<String>,
    retry_at: Option<Time>,
    /// A claim of another host, and when it is to be judged.
    claim: Option<(Time, IpAddr, Mac)>,
    restored_at: Option<Time>,
    lifetime: Duration,
    sending_fails: bool,
}

/// What ends a wait.
enum Wake {
    Timer,
    Packet(io::Result<Received>),
    Claim(io::Result<(IpAddr, Mac)>),
    Events(io::Result<Vec<Event>>),
    Priority(u8),
    Auth(Option<Auth>),
    /// Planned or at once.
    Stop {
        planned: bool,
    },
}

impl Driver {
    /// Takes part from now on, or as soon as there is a link. To be called in an async runtime.
    pub(super) fn open(
        settings: Settings,
        report: Report,
        priority: watch::Receiver<u8>,
        auth: watch::Receiver<Option<Auth>>,
        stop: oneshot::Receiver<()>,
    ) -> Result<Self, ElectionError> {
        let netlink = ElectionError::doing("listen to what happens to links and addresses");
        let config = &settings.router;
        let prefix = if settings.virtual_mac {
            super::longest_prefix(config.own)
        } else {
            settings.prefix
        };
        let opened = Hold::open(config.addresses.clone(), prefix).and_then(|hold| {
            let watch = Watch::open(hold.port())?;
            let mut lister = Socket::open(libc::NETLINK_ROUTE)?;
            let mut view = View::new(&settings.interface, config.own);
            view.read(&mut lister)?;
            Ok((hold, watch, lister, view))
        });
        let (hold, watch, lister, view) = opened.map_err(netlink)?;
        let mut driver = Self {
            hold,
            attached: None,
            router: Router::new(config.clone()),
            signer: settings.auth.clone().map(|auth| Signer::new(auth, Ring)),
            announcing: Announcing::new(
                settings.announcements,
                settings.announcement_gap,
                settings.announce_every,
            ),
            settings,
            view,
            watch,
            lister,
            report,
            priority,
            auth,
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

    /// Runs until the end that was asked for.
    pub(super) async fn run(mut self) {
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
        let deadlines = [
            self.router.deadline(),
            self.announcing.deadline(),
            self.retry_at,
            claim_at,
        ];
        let wait = deadlines
            .into_iter()
            .flatten()
            .min()
            .map_or(FAR, |at| at.saturating_sub(thread::now()));
        if wait.is_zero() {
            return Wake::Timer;
        }
        let Self {
            attached,
            watch,
            view,
            hold,
            settings,
            priority,
            auth,
            stop,
            leaving,
            ..
        } = self;
        let attached = attached.as_ref();
        let wanted = |event: &Event| match event {
            Event::Link { link, .. } => view.concerns(link) || hold.link() == Some(link.index),
            Event::Address { held, .. } => {
                held.address == settings.router.own
                    || settings.router.addresses.contains(&held.address)
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
            Ok(()) = auth.changed() => Wake::Auth(auth.borrow_and_update().clone()),
        }
    }

    fn handle(&mut self, wake: Wake, buffer: &mut [u8]) -> ControlFlow<()> {
        match wake {
            Wake::Timer => self.catch_up(buffer),
            Wake::Packet(Ok(received)) => self.hear(&received, buffer),
            Wake::Claim(Ok((address, by))) => {
                if self
                    .attached
                    .as_ref()
                    .is_some_and(|attached| !attached.is_ours(by))
                {
                    self.claim
                        .get_or_insert_with(|| (thread::now() + CLAIM_RESTS, address, by));
                }
            }
            Wake::Events(Ok(events)) => {
                self.catch_up(buffer);
                self.notice(&events);
            }
            // That is told as an event as well, but maybe later.
            Wake::Packet(Err(error)) | Wake::Claim(Err(error))
                if error.raw_os_error() == Some(libc::ENETDOWN) =>
            {
                self.notice(&[Event::Lost]);
            }
            Wake::Packet(Err(error)) | Wake::Claim(Err(error)) => {
                self.suspend(format!("cannot receive: {error}"))
            }
            Wake::Events(Err(error)) => {
                tracing::error!(%error, "cannot hear what happens to links and addresses");
                self.notice(&[Event::Lost]);
            }
            Wake::Priority(priority) => {
                self.feed(thread::now(), Input::Priority(priority));
                self.report.priority(self.router.config().priority);
            }
            Wake::Auth(auth) => match (&mut self.signer, auth) {
                (Some(signer), Some(auth)) => signer.set(auth),
                (signer, auth) => *signer = auth.map(|auth| Signer::new(auth, Ring)),
            },
            Wake::Stop { planned } => {
                self.leaving = true;
                self.announcing.stop();
                self.feed(thread::now(), Input::Release);
                self.released |= !planned;
            }
        }
        if self.released {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    }

    /// What is due is done, after the packets that came before.
    fn catch_up(&mut self, buffer: &mut [u8]) {
        for _ in 0..BURST {
            let Some(received) = self
                .attached
                .as_ref()
                .and_then(|attached| attached.adverts.waiting(buffer))
            else {
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

    fn hear(&mut self, received: &Received, buffer: &[u8]) {
        let payload = buffer.get(received.payload.clone()).unwrap_or_default();
        let (from, to, hops) = (received.from, received.to, received.hops);
        let now = thread::now();
        let proven =
            screen(self.router.config(), from, to, hops).and_then(|()| match &mut self.signer {
                None => Ok(payload.into()),
                Some(signer) => signer
                    .verify(payload, from, to, clock())
                    .map_err(Refused::from),
            });
        match proven {
            Ok(payload) => self.feed(
                now,
                Input::Packet {
                    from,
                    to,
                    hops,
                    payload: &payload,
                },
            ),
            Err(why) => self.act(now, Output::Ignored { from, why }),
        }
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
}

/// The time of day, by which packets are signed: since 1970.
pub(super) fn clock() -> Duration {
    SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default()
}

/// Waits for ever where there is nothing to wait for.
async fn maybe<T>(future: Option<impl Future<Output = T>>) -> T {
    match future {
        Some(future) => future.await,
        None => std::future::pending().await,
    }
}
