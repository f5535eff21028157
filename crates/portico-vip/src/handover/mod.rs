//! A hand-over without cut connections: those of the former owner go on there.
//!
//! When the address moves, packets of connections through the owner of before come to the new one,
//! which does not know them. It sends them to the one that does
//! ([`relay`](portico_dataplane::nftables::relay)). A standby has the rules ready, for the owner of
//! now: at the moment of the take-over there is nothing to do, and before it they do nothing, since
//! no host sends packets for the address to a standby.
//!
//! [`course`] decides to which host and for how long; [`reach`] asks the link whether that host is
//! still there. What was decided is done here, on a thread of its own, since it waits for the
//! kernel.

mod course;
mod reach;

use crate::election::{State, rtnetlink};
use course::Course;
use portico_dataplane::ApplyError;
use portico_dataplane::netlink::Socket;
use portico_dataplane::nftables::relay::{Relay, RelayTable};
use portico_model::table::Family;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant, SystemTime};
use tokio::sync::watch;

const TABLE: &str = "portico-vip-handover";
/// The time limit for everything to be removed.
const PATIENCE: Duration = Duration::from_secs(5);

/// What of one virtual router is handed over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The link that the others are on.
    pub interface: String,
    /// The virtual addresses, all of one family, with their port.
    pub frontends: Vec<SocketAddr>,
    /// How long after a take-over the owner of before is sent its connections; zero for not at all.
    pub relay_for: Duration,
}

/// How it goes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Relaying {
    /// The owner of before, and since when it is sent its connections.
    pub to: Option<(IpAddr, SystemTime)>,
    /// Why it is not possible, for people.
    pub trouble: Option<String>,
}

/// Follows one election until it is dropped, or ended.
pub struct Handover {
    relaying: watch::Receiver<Relaying>,
    stop: watch::Sender<bool>,
}

impl Handover {
    /// Belongs to the network namespace of the calling thread. Where the kernel lacks what it
    /// needs, that is told, and the address is handed over without.
    pub fn start(settings: Settings, election: watch::Receiver<State>) -> io::Result<Self> {
        let (report, relaying) = watch::channel(Relaying::default());
        let (stop, stopped) = watch::channel(false);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let run = move || {
            let course = Course::new(settings.relay_for);
            runtime.block_on(
                Work {
                    settings,
                    course,
                    kernel: None,
                    report,
                }
                .run(election, stopped),
            );
        };
        std::thread::Builder::new()
            .name("handover".to_owned())
            .spawn(run)?;
        Ok(Self { relaying, stop })
    }

    /// Where packets of unknown connections are sent at present.
    pub fn relaying(&self) -> Relaying {
        self.relaying.borrow().clone()
    }

    /// Remove everything.
    pub async fn end(&self) {
        self.stop.send_replace(true);
        let _ = tokio::time::timeout(PATIENCE, self.stop.closed()).await;
    }
}

/// What a killed process left.
pub fn remove() -> Result<(), ApplyError> {
    Family::BOTH
        .into_iter()
        .try_for_each(|family| RelayTable::open(TABLE, family)?.set(None))
}

struct Work {
    settings: Settings,
    course: Course,
    /// Opened when first needed, and anew after a failure.
    kernel: Option<Kernel>,
    report: watch::Sender<Relaying>,
}

impl Work {
    async fn run(
        mut self,
        mut election: watch::Receiver<State>,
        mut stopped: watch::Receiver<bool>,
    ) {
        loop {
            let state = election.borrow_and_update().clone();
            self.apply(Some(&state));
            tokio::select! {
                biased;
                _ = stopped.changed() => break,
                changed = election.changed() => if changed.is_err() { break },
                () = tokio::time::sleep(self.course.wait(Instant::now())) => {}
            }
        }
        self.apply(None);
    }

    /// What this state asks for; without one, nothing.
    fn apply(&mut self, state: Option<&State>) {
        let done = self.try_apply(state);
        if done.is_err() {
            self.kernel = None;
        }
        let relaying = done
            .as_ref()
            .ok()
            .copied()
            .flatten()
            .filter(|_| self.course.is_owner());
        let trouble = done.err().map(|error| error.to_string());
        self.report
            .send_if_modified(|known| tell(known, relaying, trouble));
    }

    /// The host that packets are sent to once the rules are in place.
    fn try_apply(&mut self, state: Option<&State>) -> Result<Option<IpAddr>, ApplyError> {
        let kernel = match &mut self.kernel {
            Some(kernel) => kernel,
            None => self.kernel.insert(Kernel::open(&self.settings)?),
        };
        let link = kernel.link(&self.settings.interface)?;
        let (now, course) = (Instant::now(), &mut self.course);
        if let Some((to, link)) = state.and_then(|state| course.follow(now, state)).zip(link)
            && course.is_to_look(now)
        {
            course.saw(now, reach::look_and_ask(&mut kernel.routes, link, to));
        }
        let relay = state.and_then(|state| course.follow(now, state)).zip(link);
        let frontends = || self.settings.frontends.clone();
        let relay = relay.map(|(to, link)| Relay {
            frontends: frontends(),
            to,
            link,
        });
        kernel.table.set(relay.as_ref())?;
        Ok(relay.map(|relay| relay.to))
    }
}

struct Kernel {
    table: RelayTable,
    routes: Socket,
}

impl Kernel {
    fn open(settings: &Settings) -> Result<Self, ApplyError> {
        let v4 = settings
            .frontends
            .first()
            .is_none_or(|first| first.is_ipv4());
        let table = RelayTable::open(TABLE, if v4 { Family::V4 } else { Family::V6 })?;
        let routes =
            Socket::open(libc::NETLINK_ROUTE).map_err(failed("opening a netlink socket"))?;
        Ok(Self { table, routes })
    }

    /// Its index, if it is there.
    fn link(&mut self, name: &str) -> Result<Option<u32>, ApplyError> {
        match self.routes.query(&rtnetlink::get_link(name), |message| {
            rtnetlink::link(&message)
        }) {
            Ok(found) => Ok(found.first().map(|(link, _)| link.index)),
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) => Ok(None),
            Err(error) => Err(failed("looking up a link")(error)),
        }
    }
}

fn failed(doing: &str) -> impl FnOnce(io::Error) -> ApplyError {
    let doing = doing.to_owned();
    move |source| ApplyError::Kernel { doing, source }
}

/// Takes note, and says it once.
fn tell(known: &mut Relaying, relaying: Option<IpAddr>, trouble: Option<String>) -> bool {
    let (before, had_trouble) = (known.to.map(|(to, _)| to), known.trouble.is_some());
    match &trouble {
        Some(trouble) if !had_trouble => {
            tracing::warn!(
                trouble,
                "a hand-over will end connections: what is in flight cannot be sent to the owner \
                 before us"
            );
        }
        _ => {}
    }
    if before != relaying {
        match (before, relaying) {
            (_, Some(to)) => {
                tracing::info!(%to, "connections that the owner before us has are sent there")
            }
            (Some(to), None) => tracing::info!(%to, "connections are no longer sent there"),
            (None, None) => {}
        }
        known.to = relaying.map(|to| (to, SystemTime::now()));
    }
    let news = before != relaying || known.trouble != trouble;
    known.trouble = trouble;
    news
}
