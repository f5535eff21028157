//! Decides which node has the address: drives `portico-vrrp` with real packets, and puts the
//! address on the link.
//!
//! An [`Election`] runs on a thread of its own, before all ordinary threads where that is allowed,
//! and needs neither an API server nor another part of the process. The addresses are given to the
//! kernel for a few seconds at a time, so that they expire with the process, however it ends.
//!
//! `driver` is the loop; `adverts` has the sockets of VRRP, `wire` those of ARP and neighbour
//! discovery (`claims`: what is read from them; `announcing`: when they are sent); `hold` has the
//! addresses and `virtual_link` the link with the virtual hardware address; `view` knows the link;
//! `hmac` signs adverts; `report` keeps the [`State`].

mod adverts;
mod announcing;
mod attached;
mod claims;
mod driver;
#[doc(hidden)]
pub mod hmac;
mod hold;
mod ready;
mod report;
mod state;
mod view;
mod virtual_link;
mod wire;

pub use state::{Counters, PEERS, Peer, State, Stranger, TRANSITIONS, Transition};

pub(crate) use portico_dataplane::link::rtnetlink;

use driver::Driver;
use portico_dataplane::link::{filter, longest_prefix};
use portico_dataplane::thread;
use portico_vrrp::Auth;
use report::Report;
use std::io;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::sync::{oneshot, watch};

/// How one virtual router is to be driven.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The virtual router.
    pub router: portico_vrrp::Config,
    /// How adverts are signed; `None` where they are not.
    pub auth: Option<Auth>,
    /// The link that has the addresses, for example `eth0`. Our own address has to be on it.
    pub interface: String,
    /// Prefix length with which the addresses are added: that of our own address where they are in
    /// one IPv4 network, otherwise 32 or 128, unless the host has no other address in their
    /// network.
    pub prefix: u8,
    /// Announcements are repeated so often after a take-over, and so far apart; then at
    /// `announce_every` while it is owned.
    pub announcements: u32,
    /// The time between two announcements after a take-over.
    pub announcement_gap: Duration,
    /// The time between two announcements of an owner; `None` for none.
    pub announce_every: Option<Duration>,
    /// Own the address with the hardware address of the virtual router, on a link of its own.
    pub virtual_mac: bool,
}

/// Why an election cannot begin.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each message says what its variant means")]
pub enum ElectionError {
    #[error(transparent)]
    Router(#[from] portico_vrrp::Unfit),
    #[error("{0}")]
    Settings(String),
    #[error("{doing}")]
    Io {
        doing: String,
        #[source]
        source: io::Error,
    },
}

impl ElectionError {
    fn doing(doing: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let doing = doing.into();
        move |source| Self::Io { doing, source }
    }
}

/// A planned end takes no longer than the others need to take over; then it is over in any case.
const LONGEST_RELEASE: Duration = Duration::from_secs(20);
/// An end without a plan.
const LONGEST_END: Duration = Duration::from_secs(2);

/// Takes part in the election of one virtual router until it is dropped, or released.
pub struct Election {
    state: watch::Receiver<State>,
    priority: watch::Sender<u8>,
    auth: watch::Sender<Option<Auth>>,
    stop: Option<oneshot::Sender<()>>,
    ended: oneshot::Receiver<()>,
    thread: JoinHandle<()>,
}

impl Election {
    /// Begins. A link that is not there yet is waited for; what is wrong with the settings, or not
    /// allowed, is an error now. Belongs to the network namespace of the calling thread.
    pub fn start(settings: Settings) -> Result<Self, ElectionError> {
        check(&settings)?;
        let (report, state) = Report::new(settings.router.priority);
        let (priority, priorities) = watch::channel(settings.router.priority);
        let (auth, auths) = watch::channel(settings.auth.clone());
        let (stop, stopped) = oneshot::channel();
        let (end, ended) = oneshot::channel();
        let (begin, begun) = std::sync::mpsc::sync_channel(1);
        let run = move || {
            let _end: oneshot::Sender<()> = end;
            thread::run_on_time();
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build();
            let runtime =
                match runtime.map_err(ElectionError::doing("start the runtime of the election")) {
                    Ok(runtime) => runtime,
                    Err(error) => return drop(begin.send(Err(error))),
                };
            runtime.block_on(async {
                match Driver::open(settings, report, priorities, auths, stopped) {
                    Err(error) => drop(begin.send(Err(error))),
                    Ok(driver) => {
                        drop(begin.send(Ok(())));
                        driver.run().await;
                    }
                }
            });
        };
        let thread = std::thread::Builder::new()
            .name("election".to_owned())
            .spawn(run);
        let thread = thread.map_err(ElectionError::doing("start the thread of the election"))?;
        let died = || {
            Err(ElectionError::Settings(
                "the thread of the election died".to_owned(),
            ))
        };
        begun.recv().unwrap_or_else(|_| died())?;
        Ok(Self {
            state,
            priority,
            auth,
            stop: Some(stop),
            ended,
            thread,
        })
    }

    /// What is known now, at any time; counters included. A receiver is woken by changes of role,
    /// owner, priority, peers, trouble and by conflicts, not by each packet. It is closed when the
    /// thread died, which is a reason to end the process: the address is gone by itself.
    pub fn state(&self) -> watch::Receiver<State> {
        self.state.clone()
    }

    /// 1 to 254: how good we are compared to the others. Takes effect at once.
    pub fn set_priority(&self, priority: u8) {
        self.priority
            .send_if_modified(|known| std::mem::replace(known, priority) != priority);
    }

    /// Other keys to sign and verify with. Takes effect at once.
    pub fn set_auth(&self, auth: Option<Auth>) {
        self.auth.send_if_modified(|known| {
            let news = *known != auth;
            *known = auth;
            news
        });
    }

    /// Hands the address to another node, which answers before this one stops to, and takes no more
    /// part. Without another this ends after a few intervals.
    pub async fn release(mut self) {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
        let _ = tokio::time::timeout(LONGEST_RELEASE, &mut self.ended).await;
    }
}

impl Drop for Election {
    /// Says that it leaves, takes the addresses off, and waits until they are.
    fn drop(&mut self) {
        self.stop = None;
        (self.priority, _) = watch::channel(0);
        let deadline = Instant::now() + LONGEST_END;
        while !self.thread.is_finished() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_micros(200));
        }
    }
}

fn check(settings: &Settings) -> Result<(), ElectionError> {
    settings.router.check()?;
    let longest = longest_prefix(settings.router.own);
    if !(1..=longest).contains(&settings.prefix) {
        let text = format!(
            "a prefix length of {} is not possible, only 1 to {longest}",
            settings.prefix
        );
        return Err(ElectionError::Settings(text));
    }
    let name = &settings.interface;
    if name.is_empty() || name.len() >= libc::IFNAMSIZ || name.contains(['/', '\0']) {
        return Err(ElectionError::Settings(format!(
            "{name:?} cannot be the name of a link"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
