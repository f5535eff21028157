//! The loop: what happens goes into the state machine, and what it says is done.

use super::groups::Groups;
use super::heartbeats::Heartbeats;
use super::holdings::{Holdings, Layer2, Reason};
use super::links::{self, Links, Watch};
use super::metrics::Metrics;
use super::wire::{Heard, Wire};
use super::{Parts, Peers};
use crate::announce::{Share, ShareChanges};
use jiff::Timestamp;
use portico_dataplane::netlink::Socket;
use portico_dataplane::thread;
use portico_l2::{
    Announcer, Conflict, Heartbeat, Input, Mac, NodeId, Output, Speaker, Time, Timing, speaker,
};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::IpAddr;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::sync::watch;

/// After this many packets the loop pauses, so that no host on the link can keep a processor busy.
const BURST: u32 = 64;
const BREATH: Duration = Duration::from_millis(1);
/// What happens to links comes in bursts.
const LINKS_REST: Duration = Duration::from_millis(5);

pub(super) struct Driver {
    speaker: Speaker,
    announcer: Announcer,
    heartbeats: Heartbeats,
    wire: Wire,
    groups: Groups,
    watch: Watch,
    lister: Socket,
    links: Links,
    /// When they are to be read anew.
    links_at: Option<Time>,
    shares: BTreeMap<IpAddr, Arc<Share>>,
    /// Addresses that are ours, and where they are announced.
    held: BTreeMap<IpAddr, Vec<(u32, Mac)>>,
    /// What links shares need, by number, each with one that needs them.
    needs: BTreeMap<u64, (IpAddr, Share)>,
    names: BTreeMap<NodeId, Arc<str>>,
    addresses: BTreeMap<NodeId, IpAddr>,
    /// The same, with what the report says of them.
    holdings: Holdings,
    report: watch::Sender<Layer2>,
    metrics: Metrics,
    sending_fails: bool,
    left: bool,
}

/// What ends a wait.
enum Wake {
    Timer,
    Heartbeat(Option<Heartbeat>),
    Frame(Option<Heard>),
    Links,
    Peers,
    Shares(Option<ShareChanges>),
}

impl Driver {
    /// To be called in an async runtime.
    pub(super) fn open(parts: &Parts) -> io::Result<Self> {
        let since_1970 = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default();
        let incarnation = u64::try_from(since_1970.as_nanos()).unwrap_or_default();
        let watch = Watch::open()?;
        let mut lister = Socket::open(libc::NETLINK_ROUTE)?;
        Ok(Self {
            speaker: Speaker::new(NodeId::of(&parts.node), incarnation, Timing::default()),
            announcer: Announcer::default(),
            heartbeats: Heartbeats::open(parts.key.clone(), parts.port)?,
            wire: Wire::open()?,
            groups: Groups::default(),
            links: Links::read(&mut lister)?,
            watch,
            lister,
            links_at: None,
            shares: BTreeMap::new(),
            held: BTreeMap::new(),
            needs: BTreeMap::new(),
            names: BTreeMap::new(),
            addresses: BTreeMap::new(),
            holdings: Holdings::default(),
            report: parts.report.clone(),
            metrics: parts.metrics.clone(),
            sending_fails: false,
            left: false,
        })
    }

    /// Runs until the sender of shares is dropped and every address is handed over.
    pub(super) async fn run(mut self, parts: &mut Parts) {
        let mut packets = 0;
        self.tell_links();
        let peers = parts.peers.borrow_and_update().clone();
        self.set_peers(&peers);
        let mut ending = false;
        while !self.left {
            let wake = self.next(parts, ending).await;
            if matches!(wake, Wake::Heartbeat(_) | Wake::Frame(_)) {
                packets += 1;
                if packets % BURST == 0 {
                    tokio::time::sleep(BREATH).await;
                }
            }
            ending |= self.take(wake, parts).is_break();
        }
        self.report.send_replace(Layer2::default());
    }

    async fn next(&mut self, parts: &mut Parts, ending: bool) -> Wake {
        let deadlines = [
            self.speaker.deadline(),
            self.announcer.deadline(),
            self.links_at,
        ];
        let now = thread::now();
        let wait = deadlines
            .into_iter()
            .flatten()
            .min()
            .map_or(Duration::MAX, |at| at.saturating_sub(now));
        if wait.is_zero() {
            return Wake::Timer;
        }
        tokio::select! {
            biased;
            () = tokio::time::sleep(wait) => Wake::Timer,
            heartbeat = self.heartbeats.next() => Wake::Heartbeat(heartbeat),
            frame = self.wire.next() => Wake::Frame(frame),
            () = self.watch.changed() => Wake::Links,
            Ok(()) = parts.peers.changed() => Wake::Peers,
            changes = parts.shares.recv(), if !ending => Wake::Shares(changes),
        }
    }

    /// Breaks when there is nothing more to come.
    fn take(&mut self, wake: Wake, parts: &mut Parts) -> ControlFlow<()> {
        match wake {
            Wake::Timer => self.catch_up(),
            Wake::Heartbeat(heartbeat) => self.hear(heartbeat),
            Wake::Frame(Some(frame)) => self.see(&frame),
            Wake::Frame(None) => {}
            Wake::Links => self.links_at = self.links_at.or(Some(thread::now() + LINKS_REST)),
            Wake::Peers => {
                let peers = parts.peers.borrow_and_update().clone();
                self.set_peers(&peers);
            }
            Wake::Shares(Some(changes)) => self.set_shares(changes),
            Wake::Shares(None) => {
                self.feed(Input::Leave);
                return ControlFlow::Break(());
            }
        }
        ControlFlow::Continue(())
    }

    /// What is due is done, after the heartbeats that came before: they may be why it is not to be
    /// done.
    fn catch_up(&mut self) {
        for _ in 0..BURST {
            let Some(heartbeat) = self.heartbeats.waiting() else {
                break;
            };
            self.hear(heartbeat);
        }
        let now = thread::now();
        if self.links_at.take_if(|at| *at <= now).is_some() {
            self.read_links();
        }
        if self.speaker.deadline().is_some_and(|at| at <= now) {
            self.feed(Input::Tick);
        }
        for address in self.announcer.due(now) {
            self.announce(address);
        }
    }

    fn hear(&mut self, heartbeat: Option<Heartbeat>) {
        match heartbeat {
            Some(heartbeat) => {
                self.metrics.heartbeats_received.inc();
                self.feed(Input::Heard(&heartbeat));
            }
            None => drop(self.metrics.heartbeats_refused.inc()),
        }
    }

    /// Answers a frame that asks for an address of this node, and passes on one by which another
    /// host claims an address.
    fn see(&mut self, frame: &Heard) {
        if !self.speaker.is_awake(thread::now()) {
            self.feed(Input::Tick);
        }
        if let Some(mac) = frame
            .question()
            .and_then(|address| self.mac_of(address, frame.link))
        {
            match self.wire.send(frame.link, &frame.answer(mac)) {
                Ok(()) => drop(self.metrics.answers.inc()),
                Err(error) => {
                    tracing::debug!(%error, link = frame.link, "a question cannot be answered")
                }
            }
        }
        let shared = |(address, _): &(IpAddr, Mac)| self.shares.contains_key(address);
        if let Some((address, by)) = frame.claim().filter(shared)
            && self
                .links
                .get(frame.link)
                .is_some_and(|link| link.mac != by)
            && self.is_announced_on(address, frame.link)
        {
            self.feed(Input::Claimed { address, by });
        }
    }

    /// The hardware address to answer with, if the address is ours and announced on the link.
    fn mac_of(&self, address: IpAddr, link: u32) -> Option<Mac> {
        let links = self.held.get(&address)?;
        links
            .iter()
            .find(|(index, _)| *index == link)
            .map(|(_, mac)| *mac)
    }

    fn is_announced_on(&self, address: IpAddr, link: u32) -> bool {
        let links = self
            .shares
            .get(&address)
            .map(|share| self.links.of(address, share))
            .unwrap_or_default();
        links.iter().any(|(index, _)| *index == link)
    }

    fn set_peers(&mut self, peers: &Peers) {
        self.names = peers
            .keys()
            .map(|name| (NodeId::of(name), Arc::clone(name)))
            .collect();
        let first = |(name, addresses): (&Arc<str>, &Vec<IpAddr>)| {
            Some((NodeId::of(name), *addresses.first()?))
        };
        self.addresses = peers.iter().filter_map(first).collect();
        self.feed(Input::Peers(
            self.names.keys().copied().collect::<BTreeSet<_>>(),
        ));
    }

    fn set_shares(&mut self, changes: ShareChanges) {
        let mut told = Vec::with_capacity(changes.len());
        for (address, share) in changes {
            told.push((
                address,
                share.as_deref().map(|share| self.share(address, share)),
            ));
            match share {
                Some(share) => drop(self.shares.insert(address, share)),
                None => drop(self.shares.remove(&address)),
            }
        }
        self.tell_links();
        self.feed(Input::Shares(told));
        self.place_all();
    }

    fn share(&mut self, address: IpAddr, share: &Share) -> speaker::Share {
        let links = links::need(address, share);
        self.needs
            .entry(links)
            .or_insert_with(|| (address, share.clone()));
        let nodes = share.nodes.as_ref().map(|nodes| {
            let mut nodes: Vec<NodeId> = nodes.iter().map(|name| NodeId::of(name)).collect();
            nodes.sort_unstable();
            nodes.into()
        });
        speaker::Share { nodes, links }
    }

    fn read_links(&mut self) {
        match Links::read(&mut self.lister) {
            Ok(links) if links == self.links => {}
            Ok(links) => {
                self.links = links;
                self.tell_links();
                self.place_all();
            }
            Err(error) => {
                tracing::warn!(%error, "cannot list links and addresses, will try again");
                self.links_at = Some(thread::now() + super::RETRY);
            }
        }
    }

    fn tell_links(&mut self) {
        let (lacks, macs) = (self.links.lacks(&self.needs), self.links.macs());
        self.feed(Input::Links { lacks, macs });
    }

    /// Links changed, or what is asked of them: what is ours is announced where it was not.
    fn place_all(&mut self) {
        let addresses: Vec<IpAddr> = self.held.keys().copied().collect();
        for address in addresses {
            let links = self
                .shares
                .get(&address)
                .map(|share| self.links.of(address, share))
                .unwrap_or_default();
            if self.held.get(&address) != Some(&links) {
                self.unplace(address);
                self.place(address, links);
                self.announcer.begin(thread::now(), address);
            }
        }
    }

    fn place(&mut self, address: IpAddr, links: Vec<(u32, Mac)>) {
        if let IpAddr::V6(address) = address {
            links
                .iter()
                .for_each(|(link, _)| self.groups.join(*link, address));
        }
        self.held.insert(address, links);
    }

    fn unplace(&mut self, address: IpAddr) {
        let links = self.held.remove(&address).unwrap_or_default();
        if let IpAddr::V6(address) = address {
            links
                .iter()
                .for_each(|(link, _)| self.groups.leave(*link, address));
        }
    }

    fn feed(&mut self, input: Input<'_>) {
        let now = thread::now();
        for output in self.speaker.handle(now, input) {
            self.act(now, output);
        }
        self.tell_holdings();
        self.metrics
            .held
            .set(i64::try_from(self.held.len()).unwrap_or(i64::MAX));
    }

    fn act(&mut self, now: Time, output: Output) {
        match output {
            Output::Send(heartbeat) => self.send(&heartbeat),
            Output::Hold(address) => {
                self.metrics.taken.inc();
                let before = self.speaker.before(address);
                let reason = Reason::new(before, self.speaker.members(), &self.names);
                let since = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
                self.holdings.take(address, since, reason);
                let links = self
                    .shares
                    .get(&address)
                    .map(|share| self.links.of(address, share))
                    .unwrap_or_default();
                self.place(address, links);
                self.announcer.begin(now, address);
            }
            Output::Announce(address) => self.announcer.begin(now, address),
            Output::Release(address) => {
                self.metrics.released.inc();
                self.holdings.release(address);
                self.announcer.stop(address);
                self.unplace(address);
            }
            Output::Probe(address) => self.probe(address),
            Output::Conflict(conflict) => self.tell_conflict(conflict),
            Output::Members(members) => self.tell_members(&members),
            Output::Left => self.left = true,
        }
    }

    fn send(&mut self, heartbeat: &Heartbeat) {
        let Some(to) = self.addresses.get(&heartbeat.to) else {
            return;
        };
        let sent = self.heartbeats.send(*to, heartbeat);
        match &sent {
            Ok(()) => drop(self.metrics.heartbeats_sent.inc()),
            Err(error) if !self.sending_fails => {
                tracing::warn!(%error, %to, "a heartbeat cannot be sent")
            }
            Err(_) => {}
        }
        self.sending_fails = sent.is_err();
    }

    fn announce(&mut self, address: IpAddr) {
        for (link, mac) in self.held.get(&address).into_iter().flatten() {
            match self.wire.announce(*link, *mac, address) {
                Ok(()) => drop(self.metrics.announcements.inc()),
                Err(error) => {
                    tracing::warn!(%error, %address, link, "an address cannot be announced")
                }
            }
        }
    }

    fn probe(&self, address: IpAddr) {
        let links = self
            .shares
            .get(&address)
            .map(|share| self.links.of(address, share))
            .unwrap_or_default();
        for (link, mac) in links {
            if let Err(error) = self.wire.probe(link, mac, address) {
                tracing::warn!(%error, %address, link, "cannot ask whether somebody has the address");
            }
        }
    }

    fn tell_conflict(&self, Conflict { address, by, held }: Conflict) {
        self.metrics.conflicts.inc();
        let by = by.map(|byte| format!("{byte:02x}")).join(":");
        match held {
            true => {
                tracing::warn!(%address, by, "somebody else says to have the address: it is announced again")
            }
            false => {
                tracing::error!(%address, by, "somebody else has the address: it is not announced until that one is gone")
            }
        }
    }

    fn tell_members(&self, members: &[NodeId]) {
        let mut names: Vec<String> = members
            .iter()
            .filter_map(|id| self.names.get(id))
            .map(ToString::to_string)
            .collect();
        names.sort_unstable();
        tracing::info!(?names, "addresses are shared out among these nodes");
        self.metrics
            .members
            .set(i64::try_from(names.len()).unwrap_or(i64::MAX));
        self.report.send_modify(|told| told.members = names);
    }

    /// Who has an address is known to people as soon as it changes.
    fn tell_holdings(&mut self) {
        let news = self.holdings.take_news();
        if news.is_empty() {
            return;
        }
        for line in news {
            tracing::info!("{line}");
        }
        let (holds, more_held) = self.holdings.listed();
        self.report.send_modify(|told| {
            told.holds = holds;
            told.more_held = more_held;
        });
    }
}
