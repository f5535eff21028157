//! A node and a router, each a [`Session`], over connections that break in the middle of messages;
//! the node restarts as well.
//!
//! The router keeps what it hears as RFC 4724 has it. When the storm is over it knows exactly what
//! the node wants to be known; and what the node wanted all along, restarts of its daemon included,
//! the router knew all along.

use super::*;
use crate::family::{AfiSafi, PerFamily};
use crate::routes::Attributes;
use ipnet::IpNet;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

const SEEDS: u64 = 400;
const STORM: Duration = Duration::from_secs(300);
const CALM: Duration = Duration::from_secs(400);
const RESTART: u16 = 120;

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    fn chance(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

fn config(local_as: u32, peer_as: u32) -> Config {
    Config {
        local_as,
        peer_as,
        router_id: Ipv4Addr::from(local_as),
        hold_time: 9,
        keepalive_time: None,
        longest_retry: Duration::from_secs(5),
        restart_time: Some(RESTART),
    }
}

fn hops() -> NextHops {
    let own = PerFamily {
        v4: Some(IpAddr::from([192, 0, 2, 7])),
        v6: Some("2001:db8::7".parse().unwrap()),
    };
    NextHops {
        own,
        session: Some(AfiSafi::Ipv4Unicast),
    }
}

/// What the router knows of a prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Known {
    communities: crate::Communities,
    stale: bool,
}

struct World {
    random: Random,
    now: Time,
    node: Session,
    router: Session,
    wanted: BTreeMap<IpNet, Arc<Attributes>>,
    /// Since when, without a break.
    since: BTreeMap<IpNet, Time>,
    known: BTreeMap<IpNet, Known>,
    /// Until when the router keeps what is stale.
    stale_until: Option<Time>,
    /// Bytes on their way: to the router, to the node. `None`: no connection.
    wires: Option<[VecDeque<u8>; 2]>,
    /// No packet passes, and neither side sees an error.
    cut: bool,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut world = Self {
            random: Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1),
            now: Duration::from_secs(1),
            node: Session::new(config(64512, 64513)),
            router: Session::new(config(64513, 64512)),
            wanted: BTreeMap::new(),
            since: BTreeMap::new(),
            known: BTreeMap::new(),
            stale_until: None,
            wires: None,
            cut: false,
        };
        world.input(true, Input::Start);
        world.input(false, Input::Start);
        world
    }

    fn input(&mut self, node: bool, input: Input<'_>) {
        let now = Now {
            time: self.now,
            chance: self.random.chance(),
        };
        let outputs = if node {
            self.node.handle(now, input)
        } else {
            self.router.handle(now, input)
        };
        self.act(node, outputs);
    }

    fn act(&mut self, node: bool, outputs: Vec<Output>) {
        for output in outputs {
            match output {
                Output::Send(bytes) => {
                    let notified = bytes.get(18) == Some(&3);
                    if let Some(wires) = &mut self.wires {
                        wires[usize::from(!node)].extend(bytes);
                    }
                    if notified && !node {
                        self.forget();
                    }
                }
                Output::Close => self.close(node),
                Output::Down(Reason::Refused(_)) if !node => self.forget(),
                Output::Became(State::Established) if !node => self.stale_until = None,
                Output::Heard(update) if !node => self.learn(update),
                _ => {}
            }
        }
    }

    /// What was sent before arrives before.
    fn close(&mut self, by_node: bool) {
        let wire = self
            .wires
            .as_mut()
            .filter(|_| !self.cut)
            .map(|wires| std::mem::take(&mut wires[usize::from(!by_node)]));
        if let Some(bytes) = wire.filter(|bytes| !bytes.is_empty()) {
            self.input(!by_node, Input::Bytes(&Vec::from(bytes)));
        }
        self.disconnect(by_node);
    }

    /// The router loses a session without a word: what it knows is stale from now on (RFC 4724
    /// section 4.2).
    fn disconnect(&mut self, by_node: bool) {
        if self.wires.take().is_none() {
            return;
        }
        if self.router.state() == State::Established || !by_node {
            self.known.values_mut().for_each(|known| known.stale = true);
            self.stale_until = Some(self.now + Duration::from_secs(RESTART.into()));
        }
        match by_node {
            true => self.input(false, Input::Closed("cut")),
            false => self.input(true, Input::Closed("cut")),
        }
    }

    fn forget(&mut self) {
        self.known.clear();
    }

    fn learn(&mut self, update: Update) {
        assert_eq!(update.flaw, None);
        for prefix in update.withdrawn {
            self.known.remove(&prefix);
        }
        for prefix in update
            .reached
            .into_iter()
            .flat_map(|reached| reached.prefixes)
        {
            self.known.insert(
                prefix,
                Known {
                    communities: update.path.communities.clone(),
                    stale: false,
                },
            );
        }
        if let Some(family) = update.end_of_rib {
            self.known
                .retain(|prefix, known| !known.stale || AfiSafi::of_net(prefix) != family);
        }
    }

    fn want(&mut self, changes: Vec<Change>) {
        for (prefix, route) in &changes {
            match route {
                Some(route) => {
                    self.wanted.insert(*prefix, Arc::clone(route));
                    self.since.entry(*prefix).or_insert(self.now);
                }
                None => {
                    self.wanted.remove(prefix);
                    self.since.remove(prefix);
                }
            }
        }
        self.input(true, Input::Routes(&changes));
    }

    fn change_something(&mut self) {
        let count = self.random.below(30) + 1;
        let mut changes = vec![];
        for _ in 0..count {
            let number = self.random.below(200);
            let address = match number % 2 {
                0 => IpAddr::from([203, 0, 113, number as u8]),
                _ => IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, number as u16]),
            };
            let prefix = IpNet::from(address);
            let small = vec![crate::Community(self.random.below(3) as u32)];
            let communities = crate::Communities {
                small,
                large: vec![],
            };
            let route = (self.random.below(3) > 0).then(|| {
                Arc::new(Attributes {
                    communities,
                    local_preference: None,
                })
            });
            changes.push((prefix, route));
        }
        self.want(changes);
    }

    /// The daemon of the node ends without a word and begins again.
    fn restart(&mut self) {
        self.disconnect(true);
        self.node = Session::new(config(64512, 64513));
        let all: Vec<Change> = self
            .wanted
            .iter()
            .map(|(prefix, route)| (*prefix, Some(Arc::clone(route))))
            .collect();
        self.input(true, Input::Routes(&all));
        self.input(true, Input::Start);
    }

    /// Both want a connection: there is one.
    fn connect(&mut self) {
        let both = [&self.node, &self.router]
            .iter()
            .all(|session| session.state() == State::Connecting);
        if both && self.wires.is_none() && !self.cut {
            self.wires = Some([VecDeque::new(), VecDeque::new()]);
            self.input(true, Input::Connected(hops()));
            self.input(false, Input::Connected(hops()));
        }
    }

    fn deliver(&mut self, to_node: bool) {
        if self.cut {
            return;
        }
        let count = self.random.below(5000) as usize + 1;
        let Some(wires) = &mut self.wires else { return };
        let wire = &mut wires[usize::from(to_node)];
        let bytes: Vec<u8> = wire.drain(..count.min(wire.len())).collect();
        if !bytes.is_empty() {
            self.input(to_node, Input::Bytes(&bytes));
        }
    }

    /// A little of what is to be told, as if there were no more room.
    fn pull(&mut self) {
        for _ in 0..self.random.below(4) {
            let outputs = self.node.pull();
            self.act(true, outputs);
            let outputs = self.router.pull();
            self.act(false, outputs);
        }
    }

    fn pass_time(&mut self) {
        self.now += Duration::from_millis(self.random.below(400));
        for node in [true, false] {
            let deadline = if node {
                self.node.deadline()
            } else {
                self.router.deadline()
            };
            if deadline.is_some_and(|deadline| deadline <= self.now) {
                self.input(node, Input::Tick);
            }
        }
        if self.stale_until.is_some_and(|until| until <= self.now) {
            self.known.retain(|_, known| !known.stale);
            self.stale_until = None;
        }
    }

    fn step(&mut self) {
        self.pass_time();
        self.connect();
        self.pull();
        self.deliver(true);
        self.deliver(false);
    }

    fn settle(&mut self) {
        self.cut = false;
        let end = self.now + CALM;
        while self.now < end {
            self.step();
        }
    }

    fn check(&self, seed: u64) {
        let told: BTreeMap<&IpNet, &crate::Communities> = self
            .known
            .iter()
            .map(|(prefix, known)| (prefix, &known.communities))
            .collect();
        let wanted: BTreeMap<&IpNet, &crate::Communities> = self
            .wanted
            .iter()
            .map(|(prefix, route)| (prefix, &route.communities))
            .collect();
        assert_eq!(told, wanted, "seed {seed}");
        assert_eq!(self.node.status().routes, self.wanted.len(), "seed {seed}");
    }
}

/// Connections break, are cut in silence, daemons restart.
#[test]
fn after_any_storm_the_router_knows_what_the_node_wants() {
    for seed in 0..SEEDS {
        let mut world = World::new(seed);
        while world.now < STORM {
            match world.random.below(60) {
                0..4 => world.change_something(),
                4 => {
                    let by_node = world.random.below(2) == 0;
                    if world.wires.is_some() {
                        world.disconnect(by_node);
                        world.input(by_node, Input::Closed("cut"));
                    }
                }
                5 => world.restart(),
                6 if world.random.below(8) == 0 => world.cut = !world.cut,
                7 => {
                    let family = AfiSafi::BOTH[world.random.below(2) as usize];
                    let wires = world.wires.as_mut();
                    let established = world.router.state() == State::Established;
                    if let Some(wires) = wires.filter(|_| established) {
                        wires[1].extend(message::route_refresh(family));
                    }
                }
                _ => world.step(),
            }
        }
        world.settle();
        world.check(seed);
    }
}

/// Nothing but restarts and connections that break: what is wanted throughout never leaves the
/// router.
#[test]
fn restarts_do_not_flap() {
    for seed in 0..SEEDS {
        let mut world = World::new(seed);
        world.change_something();
        world.settle();
        let throughout: BTreeSet<IpNet> = world
            .wanted
            .keys()
            .copied()
            .filter(|_| world.random.below(2) == 0)
            .collect();
        let others: Vec<Change> = world
            .wanted
            .keys()
            .filter(|prefix| !throughout.contains(prefix))
            .map(|prefix| (*prefix, None))
            .collect();
        let mut others = Some(others);
        let end = world.now + STORM;
        while world.now < end {
            match world.random.below(100) {
                0 => world.restart(),
                1 => others
                    .take()
                    .into_iter()
                    .for_each(|others| world.want(others)),
                _ => world.step(),
            }
            let missing = throughout
                .iter()
                .find(|prefix| !world.known.contains_key(*prefix));
            assert_eq!(missing, None, "seed {seed}");
        }
        world.settle();
        world.check(seed);
    }
}

/// A node that is drained takes back everything.
#[test]
fn after_a_drain_the_router_knows_nothing() {
    for seed in 0..SEEDS {
        let mut world = World::new(seed);
        world.change_something();
        world.settle();
        assert!(!world.known.is_empty() || world.wanted.is_empty());
        world.input(true, Input::Stop(Stop::Drain));
        for _ in 0..200 {
            world.pull();
            world.deliver(false);
        }
        assert_eq!(world.known, BTreeMap::new(), "seed {seed}");
        assert_eq!(world.node.state(), State::Stopped);
    }
}
