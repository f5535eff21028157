//! Machines on a link that loses, delays, repeats and parts, and what must hold at every moment.

use crate::machine::Process;
use crate::network::{HEAVY, Network, Ways};
use crate::node::Node;
use crate::queue::Queue;
use crate::random::Random;
use portico_l2::{Heartbeat, Input, NodeId, Output, Share, Time, Timing, rank};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::rc::Rc;
use std::time::Duration;

const STRANGER: [u8; 6] = [2, 0, 0, 0, 0, 99];

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Event {
    Tick {
        node: usize,
        generation: u64,
    },
    Arrive {
        node: usize,
        bytes: Rc<[u8]>,
    },
    Claimed {
        node: usize,
        address: usize,
        by: [u8; 6],
    },
    Link {
        node: usize,
    },
    Share {
        node: usize,
        address: usize,
    },
    Resume {
        node: usize,
        generation: u64,
    },
}

/// Each address that one of `may` may have must be held by one of `by`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Guard {
    pub may: u32,
    pub by: u32,
}

pub(crate) struct World {
    pub now: Time,
    pub random: Random,
    pub nodes: Vec<Node>,
    pub network: Network,
    pub timing: Timing,
    /// Who may have which address; `None`: it is not shared out yet. A set of nodes is a set of
    /// bits.
    pub shares: Vec<Option<u32>>,
    /// Who holds which address.
    pub holders: Vec<u32>,
    /// Since when two that hear each other both hold an address.
    overlaps: Vec<Option<Time>>,
    pub ways: Ways,
    queue: Queue<Event>,
    pub guarded: Vec<Guard>,
    /// Nothing may change hands.
    pub quiet: bool,
    /// What changed hands: who took which address.
    pub taken: Vec<(usize, usize)>,
    pub left: Vec<Time>,
    pub failure: Option<String>,
    pub trace: Option<Vec<String>>,
    pub counts: BTreeMap<&'static str, usize>,
}

impl World {
    pub(crate) fn new(
        nodes: usize,
        shares: Vec<Option<u32>>,
        network: Network,
        random: Random,
        traced: bool,
    ) -> Self {
        Self {
            now: Duration::ZERO,
            random,
            nodes: (0..nodes).map(|node| Node::new(name(node))).collect(),
            network,
            timing: Timing::default(),
            holders: vec![0; shares.len()],
            overlaps: vec![None; shares.len()],
            shares,
            ways: Ways::among(nodes),
            queue: Queue::new(),
            guarded: vec![],
            quiet: false,
            taken: vec![],
            left: vec![],
            failure: None,
            trace: traced.then(Vec::new),
            counts: BTreeMap::new(),
        }
    }

    pub(crate) fn note(&mut self, text: impl FnOnce() -> String) {
        let (now, failed) = (self.now, self.failure.is_some());
        if let Some(trace) = self.trace.as_mut().filter(|_| !failed) {
            trace.push(format!("{:>10.3}  {}", now.as_secs_f64() * 1000.0, text()));
        }
    }

    pub(crate) fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    pub(crate) fn fail(&mut self, why: String) {
        if self.failure.is_none() {
            self.note(|| format!("WRONG: {why}"));
            self.failure = Some(why);
        }
    }

    pub(crate) fn at(&mut self, time: Time, event: Event) {
        self.queue.add(time, event);
    }

    pub(crate) fn run_for(&mut self, duration: Duration) {
        let end = self.now + duration;
        while self.failure.is_none()
            && let Some((time, event)) = self.queue.next_until(end)
        {
            self.now = time;
            self.happen(event);
            self.observe();
        }
        self.now = end;
        self.observe();
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Tick { node, generation } => {
                if self.nodes[node].runs() && self.nodes[node].tick == generation {
                    self.handle(node, Input::Tick);
                }
            }
            Event::Resume { node, generation } => {
                if self.nodes[node].pauses == generation {
                    self.resume(node);
                }
            }
            Event::Arrive { node, .. }
            | Event::Claimed { node, .. }
            | Event::Link { node }
            | Event::Share { node, .. } => {
                let machine = &mut self.nodes[node];
                let is_packet = matches!(event, Event::Arrive { .. } | Event::Claimed { .. });
                match machine.process {
                    Process::Running => self.deliver(event),
                    Process::Frozen if is_packet => {}
                    Process::Stopped | Process::Frozen => machine.inbox.push(event),
                    Process::Dead => {}
                }
            }
        }
    }

    fn deliver(&mut self, event: Event) {
        match event {
            Event::Arrive { node, bytes } if self.nodes[node].link => {
                let heartbeat = Heartbeat::parse(&bytes).unwrap();
                self.handle(node, Input::Heard(&heartbeat));
            }
            Event::Claimed { node, address, by } => {
                self.handle(
                    node,
                    Input::Claimed {
                        address: address_of(address),
                        by,
                    },
                );
            }
            // Whoever is told looks how it is then.
            Event::Link { node } => {
                let lacks = if self.nodes[node].link {
                    vec![]
                } else {
                    vec![0]
                };
                self.handle(
                    node,
                    Input::Links {
                        lacks,
                        macs: vec![mac(node)],
                    },
                );
            }
            Event::Share { node, address } => {
                let share = self.shares[address].map(|nodes| self.share(nodes));
                self.handle(node, Input::Shares(vec![(address_of(address), share)]));
            }
            _ => {}
        }
    }

    fn share(&self, nodes: u32) -> Share {
        let all = nodes == u32::MAX;
        let mut ids: Vec<NodeId> = members(nodes, self.nodes.len())
            .map(|node| self.nodes[node].id)
            .collect();
        ids.sort_unstable();
        Share {
            nodes: (!all).then(|| ids.into()),
            links: 0,
        }
    }

    /// A new process, which learns what there is.
    pub(crate) fn start(&mut self, node: usize) {
        if self.nodes[node].process != Process::Dead {
            return;
        }
        let clock_is_wrong = self.random.percent(10);
        self.note(|| format!("{} starts", name(node)));
        self.nodes[node].restart(clock_is_wrong);
        self.forget_holder(node);
        let lacks = if self.nodes[node].link {
            vec![]
        } else {
            vec![0]
        };
        self.handle(
            node,
            Input::Links {
                lacks,
                macs: vec![mac(node)],
            },
        );
        self.handle(
            node,
            Input::Peers(self.nodes.iter().map(|node| node.id).collect()),
        );
        let known = self
            .shares
            .iter()
            .enumerate()
            .filter(|(_, share)| share.is_some());
        let shares = known
            .map(|(address, share)| (address_of(address), share.map(|nodes| self.share(nodes))));
        self.handle(node, Input::Shares(shares.collect()));
    }

    /// Everybody who runs learns of it at once.
    pub(crate) fn set_share(&mut self, address: usize, nodes: Option<u32>) {
        self.note(|| format!("address {address} is shared out among {nodes:?}"));
        self.shares[address] = nodes;
        for node in 0..self.nodes.len() {
            self.at(self.now, Event::Share { node, address });
        }
    }

    pub(crate) fn kill(&mut self, node: usize) {
        if self.nodes[node].process == Process::Frozen {
            return; // nothing happens there
        }
        self.note(|| format!("{} is killed", name(node)));
        self.nodes[node].process = Process::Dead;
        self.forget_holder(node);
    }

    pub(crate) fn pause(&mut self, node: usize, how: Process, clock_goes_on: bool, time: Duration) {
        if !self.nodes[node].runs() {
            return;
        }
        self.note(|| {
            format!(
                "{} is {how:?} for {time:?}, clock goes on: {clock_goes_on}",
                name(node)
            )
        });
        let machine = &mut self.nodes[node];
        machine.process = how;
        machine.clock_goes_on = clock_goes_on || how == Process::Stopped;
        machine.paused_at = self.now;
        machine.pauses += 1;
        let generation = machine.pauses;
        self.at(self.now + time, Event::Resume { node, generation });
    }

    /// Reads what has come meanwhile before or after it looks at the clock.
    pub(crate) fn resume(&mut self, node: usize) {
        let now = self.now;
        let machine = &mut self.nodes[node];
        if !matches!(machine.process, Process::Frozen | Process::Stopped) {
            return;
        }
        machine.process = Process::Running;
        machine.pauses += 1;
        let stood = if machine.clock_goes_on {
            Duration::ZERO
        } else {
            now - machine.paused_at
        };
        machine.clock.stand_still(stood);
        self.note(|| format!("{} goes on", name(node)));
        let inbox = std::mem::take(&mut self.nodes[node].inbox);
        if self.random.percent(50) {
            self.handle(node, Input::Tick);
        }
        for event in inbox {
            self.deliver(event);
        }
        self.handle(node, Input::Tick);
    }

    pub(crate) fn set_link(&mut self, node: usize, up: bool) {
        self.note(|| format!("{} link up: {up}", name(node)));
        self.nodes[node].link = up;
        let late = self.random.upto(self.network.late);
        self.at(self.now + late, Event::Link { node });
    }

    pub(crate) fn handle(&mut self, node: usize, input: Input<'_>) {
        let clock = self.nodes[node].clock.shows(self.now);
        self.nodes[node].leaves |= input == Input::Leave;
        let outputs = self.nodes[node].speaker.handle(clock, input.clone());
        if self.trace.is_some() {
            let line = self.describe(&input, &outputs);
            self.note(|| format!("{} {line}", name(node)));
        }
        for output in outputs {
            self.apply(node, output);
        }
        self.nodes[node].tick += 1;
        if let Some(deadline) = self.nodes[node].speaker.deadline() {
            let late = self.random.upto(self.network.late);
            let time = self.nodes[node].clock.when(deadline).max(self.now) + late;
            let generation = self.nodes[node].tick;
            self.at(time, Event::Tick { node, generation });
        }
    }

    fn apply(&mut self, node: usize, output: Output) {
        match output {
            Output::Send(heartbeat) => {
                let to = self.nodes.iter().position(|other| other.id == heartbeat.to);
                to.into_iter()
                    .for_each(|to| self.transmit(node, to, &heartbeat));
            }
            Output::Hold(address) => {
                let address = index_of(address);
                self.count("hold");
                self.holders[address] |= 1 << node;
                self.taken.push((node, address));
                self.announce(node, address);
                self.moved(node, address, "takes");
            }
            Output::Release(address) => {
                let address = index_of(address);
                self.count("release");
                self.holders[address] &= !(1 << node);
                self.moved(node, address, "lets go of");
            }
            Output::Announce(address) => self.announce(node, index_of(address)),
            Output::Probe(address) => {
                self.count("probe");
                self.probe(node, index_of(address));
            }
            Output::Conflict(conflict) => {
                self.count(if conflict.held {
                    "defended"
                } else {
                    "conflict"
                });
                let by = self.nodes.get(usize::from(conflict.by[5])).map(|by| by.id);
                if by.is_some_and(|by| self.nodes[node].speaker.members().contains(&by)) {
                    self.fail(format!("{} takes a member for a stranger", name(node)));
                }
            }
            Output::Members(_) => {}
            Output::Left => self.left.push(self.now),
        }
    }

    fn moved(&mut self, node: usize, address: usize, how: &str) {
        if self.quiet {
            self.fail(format!(
                "{} {how} address {address} without a cause",
                name(node)
            ));
        }
    }

    fn announce(&mut self, node: usize, address: usize) {
        for to in (0..self.nodes.len())
            .filter(|to| *to != node && self.hear_each_other(node, *to))
            .collect::<Vec<_>>()
        {
            let time = self.now + self.network.most_delay;
            self.at(
                time,
                Event::Claimed {
                    node: to,
                    address,
                    by: mac(node),
                },
            );
        }
    }

    fn probe(&mut self, node: usize, address: usize) {
        let holders = members(self.holders[address], self.nodes.len());
        let answering = holders.filter(|by| {
            *by != node && self.nodes[*by].answers() && self.hear_each_other(node, *by)
        });
        for by in answering.collect::<Vec<_>>() {
            let time = self.now + 2 * self.network.most_delay;
            self.at(
                time,
                Event::Claimed {
                    node,
                    address,
                    by: mac(by),
                },
            );
        }
    }

    /// Somebody who does not take part says to have an address.
    pub(crate) fn claim(&mut self, address: usize) {
        for node in 0..self.nodes.len() {
            self.at(
                self.now,
                Event::Claimed {
                    node,
                    address,
                    by: STRANGER,
                },
            );
        }
    }

    fn transmit(&mut self, from: usize, to: usize, heartbeat: &Heartbeat) {
        if !self.nodes[from].link || self.nodes[to].process == Process::Dead {
            return;
        }
        let arrivals = self
            .ways
            .arrivals((from, to), self.now, &self.network, &mut self.random);
        let bytes: Rc<[u8]> = heartbeat.emit().into();
        for time in arrivals {
            self.at(
                time,
                Event::Arrive {
                    node: to,
                    bytes: Rc::clone(&bytes),
                },
            );
        }
    }

    pub(crate) fn hear_each_other(&self, a: usize, b: usize) -> bool {
        self.nodes[a].link && self.nodes[b].link && self.ways.are_open(a, b)
    }

    fn forget_holder(&mut self, node: usize) {
        self.holders
            .iter_mut()
            .for_each(|holders| *holders &= !(1 << node));
    }

    /// Of those who hold an address, the ones that answer.
    pub(crate) fn answering(&self, address: usize) -> u32 {
        let holders = members(self.holders[address], self.nodes.len());
        holders
            .filter(|node| self.nodes[*node].answers())
            .fold(0, |set, node| set | 1 << node)
    }

    /// What must hold at every moment.
    fn observe(&mut self) {
        let now = self.now;
        for address in 0..self.shares.len() {
            if self.holders[address].count_ones() < 2
                || self.network.in_a_row == HEAVY
                || !self.is_double(address)
            {
                self.overlaps[address] = None;
            } else if now - *self.overlaps[address].get_or_insert(now) > self.yield_bound() {
                let who: String = members(self.holders[address], self.nodes.len())
                    .map(name)
                    .collect();
                self.fail(format!(
                    "{who} all hold address {address} for {:?}",
                    self.yield_bound()
                ));
            }
            let answering = if self.guarded.is_empty() {
                0
            } else {
                self.answering(address)
            };
            let share = self.shares[address].unwrap_or_default();
            let broken = |guard: &&Guard| guard.may & share != 0 && guard.by & answering == 0;
            if let Some(guard) = self.guarded.iter().find(broken) {
                let part: String = members(guard.by, self.nodes.len()).map(name).collect();
                self.fail(format!("nobody of {part} holds address {address}"));
            }
        }
    }

    fn is_double(&self, address: usize) -> bool {
        let answering: Vec<usize> = members(self.answering(address), self.nodes.len()).collect();
        let hears = |a: &usize, b: &usize| a != b && self.hear_each_other(*a, *b);
        answering
            .iter()
            .any(|a| answering.iter().any(|b| hears(a, b)))
    }

    /// Who hears whom changed, and with it who is to yield.
    pub(crate) fn forget_overlaps(&mut self) {
        self.overlaps.fill(None);
    }

    /// Who of a set is to have an address.
    pub(crate) fn first(&self, part: u32, address: usize) -> Option<usize> {
        let hash = rank::hash_address(address_of(address));
        let fit = members(part & self.shares[address]?, self.nodes.len());
        fit.max_by_key(|node| rank::score(hash, self.nodes[*node].id))
    }

    /// Everybody has heard everybody within so long.
    pub(crate) fn hear_bound(&self) -> Duration {
        let losses = u32::try_from(self.network.in_a_row.min(3)).unwrap_or(3);
        (self.timing.interval + self.network.late) * (losses + 1) + self.network.most_delay
    }

    /// Of two that have the same address one hears of it, says so, and hears that the other knows.
    pub(crate) fn yield_bound(&self) -> Duration {
        3 * self.hear_bound()
    }

    /// What a node had that was lost, another has.
    pub(crate) fn owner_bound(&self) -> Duration {
        self.timing.dead + self.network.most_delay + 2 * self.network.late
    }

    /// Nothing changes any more after so long, if nothing happens.
    pub(crate) fn settle_bound(&self) -> Duration {
        2 * self.timing.dead
            + self.yield_bound()
            + 3 * self.timing.probe_gap
            + 8 * self.network.late
    }

    fn describe(&self, input: &Input<'_>, outputs: &[Output]) -> String {
        let of = |id: NodeId| {
            self.nodes
                .iter()
                .position(|node| node.id == id)
                .map_or('?', name)
        };
        let view = |view: &[NodeId]| view.iter().map(|id| of(*id)).collect::<String>();
        let input = match input {
            Input::Heard(heard) => format!(
                "hears {} ready {} leaves {} view {:?}",
                of(heard.from),
                heard.ready,
                heard.leaves,
                heard.view.as_deref().map(view)
            ),
            Input::Claimed { address, by } => {
                format!("sees {} claimed by {}", index_of(*address), by[5])
            }
            Input::Shares(shares) => format!("learns of {} shares", shares.len()),
            other => format!("{other:?}"),
        };
        let output = |output: &Output| match output {
            Output::Send(heartbeat) => format!("Send {}", of(heartbeat.to)),
            Output::Hold(address) => format!("Hold {}", index_of(*address)),
            Output::Release(address) => format!("Release {}", index_of(*address)),
            Output::Announce(address) => format!("Announce {}", index_of(*address)),
            Output::Probe(address) => format!("Probe {}", index_of(*address)),
            Output::Members(members) => format!("Members {}", view(members)),
            other => format!("{other:?}"),
        };
        format!(
            "{input}: {}",
            outputs.iter().map(output).collect::<Vec<_>>().join(", ")
        )
    }
}

pub(crate) fn members(set: u32, nodes: usize) -> impl Iterator<Item = usize> {
    (0..nodes).filter(move |node| set & 1 << node != 0)
}

pub(crate) fn name(node: usize) -> char {
    char::from(b'a' + node as u8)
}

fn mac(node: usize) -> [u8; 6] {
    [2, 0, 0, 0, 0, node as u8]
}

fn address_of(index: usize) -> IpAddr {
    Ipv4Addr::new(192, 0, 2, index as u8).into()
}

fn index_of(address: IpAddr) -> usize {
    let IpAddr::V4(address) = address else {
        return usize::MAX;
    };
    address.octets()[3].into()
}
