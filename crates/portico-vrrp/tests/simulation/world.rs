//! Machines on a link that loses, delays, repeats and parts, and what must hold at every moment.

use crate::machine::Process;
use crate::network::{HEAVY, Network, Ways};
use crate::node::{Held, Node};
use crate::queue::Queue;
use crate::random::Random;
use portico_vrrp::router::timing;
use portico_vrrp::{Config, Input, Output, Role, Time, Version, packet};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::rc::Rc;
use std::time::Duration;

/// The kernel looks once a second, and a quarter of one early.
const KERNEL_EARLY: Duration = Duration::from_millis(250);
const KERNEL_LATE: Duration = Duration::from_secs(1);

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Event {
    Tick {
        node: usize,
        generation: u64,
    },
    Arrive {
        node: usize,
        from: IpAddr,
        to: IpAddr,
        payload: Rc<[u8]>,
    },
    Claimed {
        node: usize,
        by: usize,
    },
    Link {
        node: usize,
        up: bool,
    },
    Expire {
        node: usize,
        generation: u64,
    },
    Resume {
        node: usize,
        generation: u64,
    },
}

/// Two that answer for the address and hear each other.
#[derive(Clone, Copy)]
struct Overlap {
    since: Time,
    /// While both run, and know their ranks.
    both_run_since: Time,
}

pub(crate) struct World {
    pub now: Time,
    pub random: Random,
    pub nodes: Vec<Node>,
    pub network: Network,
    pub ways: Ways,
    queue: Queue<Event>,
    overlaps: BTreeMap<(usize, usize), Overlap>,
    /// Everybody in the same part hears each other, and in each of these there must be an owner.
    pub guarded: Vec<Vec<usize>>,
    /// Nobody may change its role.
    pub quiet: bool,
    pub became_owner: Vec<usize>,
    pub released: Vec<Time>,
    pub failure: Option<String>,
    pub trace: Option<Vec<String>>,
    pub counts: BTreeMap<&'static str, usize>,
}

impl World {
    pub(crate) fn new(
        configs: Vec<Config>,
        network: Network,
        random: Random,
        traced: bool,
    ) -> Self {
        let count = configs.len();
        Self {
            now: Duration::ZERO,
            random,
            nodes: configs.into_iter().map(Node::new).collect(),
            network,
            ways: Ways::among(count),
            queue: Queue::new(),
            overlaps: BTreeMap::new(),
            guarded: vec![],
            quiet: false,
            became_owner: vec![],
            released: vec![],
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
            Event::Expire { node, generation } => self.expire(node, generation),
            Event::Resume { node, generation } => {
                if self.nodes[node].pauses == generation {
                    self.resume(node);
                }
            }
            Event::Arrive { node, .. } | Event::Claimed { node, .. } | Event::Link { node, .. } => {
                let machine = &mut self.nodes[node];
                let keeps =
                    matches!(event, Event::Link { .. }) || machine.process == Process::Stopped;
                match machine.process {
                    Process::Running => self.deliver(event),
                    Process::Stopped | Process::Frozen if keeps && machine.inbox.len() < 200 => {
                        machine.inbox.push(event)
                    }
                    _ => {}
                }
            }
        }
    }

    fn deliver(&mut self, event: Event) {
        match event {
            Event::Arrive {
                node,
                from,
                to,
                payload,
            } if self.nodes[node].link => {
                self.handle(
                    node,
                    Input::Packet {
                        from,
                        to,
                        hops: 255,
                        payload: &payload,
                    },
                );
            }
            Event::Claimed { node, by } => {
                let address = self.nodes[node].router.config().addresses[0];
                self.handle(
                    node,
                    Input::Claimed {
                        address,
                        by: [2, 0, 0, 0, 0, by as u8],
                    },
                );
            }
            Event::Link { node, up: true } => self.handle(node, Input::LinkUp),
            Event::Link { node, up: false } => self.handle(node, Input::LinkDown),
            _ => {}
        }
    }

    fn expire(&mut self, node: usize, generation: u64) {
        let (now, machine) = (self.now, &mut self.nodes[node]);
        let due = machine
            .address
            .as_ref()
            .is_some_and(|held| held.generation == generation && now >= held.until);
        if !due || machine.process == Process::Frozen {
            return; // a machine that stands still looks at it when it goes on
        }
        machine.address = None;
        let owns = machine.owns();
        self.count("kernel removed the address");
        self.note(|| format!("{} its kernel removes the address", name(node)));
        if owns {
            self.fail(format!(
                "the kernel removed the address of {}, an owner that runs",
                name(node)
            ));
        }
    }

    /// A new process, or one that was asked to stop and is to take part again.
    pub(crate) fn start(&mut self, node: usize) {
        let dead = self.nodes[node].process == Process::Dead;
        if dead {
            self.nodes[node].restart();
        }
        if self.nodes[node].runs() {
            self.handle(node, Input::Start);
        }
        if dead && !self.nodes[node].link {
            self.handle(node, Input::LinkDown);
        }
    }

    pub(crate) fn kill(&mut self, node: usize) {
        if self.nodes[node].process == Process::Frozen {
            return; // nothing happens there
        }
        self.note(|| format!("{} is killed", name(node)));
        self.nodes[node].process = Process::Dead;
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
        let frozen = machine.process == Process::Frozen;
        if !frozen && machine.process != Process::Stopped {
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
        if frozen && let Some(held) = &mut machine.address {
            held.until += stood;
            let (until, generation) = (held.until.max(now), held.generation);
            self.at(until, Event::Expire { node, generation });
        }
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
        self.at(self.now + late, Event::Link { node, up });
    }

    pub(crate) fn set_priority(&mut self, node: usize, priority: u8) {
        if self.nodes[node].runs() {
            self.nodes[node].priority = priority;
            self.handle(node, Input::Priority(priority));
            self.forget_overlaps();
        }
    }

    pub(crate) fn handle(&mut self, node: usize, input: Input<'_>) {
        let clock = self.nodes[node].clock.shows(self.now);
        self.nodes[node].leaves |= input == Input::Release;
        let outputs = self.nodes[node].router.handle(clock, input.clone());
        if self.trace.is_some() {
            let line = describe(&input, &outputs);
            self.note(|| format!("{} {line}", name(node)));
        }
        for output in &outputs {
            self.apply(node, output, &outputs);
        }
        self.order_tick(node);
        let machine = &self.nodes[node];
        if (machine.router.role() == Role::Owner) != machine.address.is_some() {
            self.fail(format!(
                "{} is {:?}, and the address is not so",
                name(node),
                machine.router.role()
            ));
        }
    }

    fn order_tick(&mut self, node: usize) {
        self.nodes[node].tick += 1;
        let Some(deadline) = self.nodes[node].router.deadline() else {
            return;
        };
        let late = self.random.upto(self.network.late);
        let time = self.nodes[node].clock.when(deadline).max(self.now) + late;
        let generation = self.nodes[node].tick;
        self.at(time, Event::Tick { node, generation });
    }

    fn apply(&mut self, node: usize, output: &Output, all: &[Output]) {
        let own = self.nodes[node].router.config().own;
        match output {
            Output::Send(payload) => {
                for to in (0..self.nodes.len()).filter(|to| *to != node) {
                    self.transmit(node, to, packet::group(own), payload);
                }
            }
            Output::SendTo(peer, payload) => {
                let to = self
                    .nodes
                    .iter()
                    .position(|other| other.router.config().own == *peer);
                to.into_iter()
                    .for_each(|to| self.transmit(node, to, *peer, payload));
            }
            Output::Take { lifetime } => self.take(node, *lifetime),
            Output::Drop => self.nodes[node].address = None,
            Output::Announce => self.announce(node, all),
            Output::Probe => {
                self.count("probe");
                let answers = |to: &usize| {
                    self.nodes[*to].holds() && *to != node && self.hear_each_other(node, *to)
                };
                let holders: Vec<_> = (0..self.nodes.len()).filter(answers).collect();
                for by in holders {
                    let time = self.now + 2 * self.network.most_delay;
                    self.at(time, Event::Claimed { node, by });
                }
            }
            Output::Became(role, reason) => {
                self.count(reason_name(reason));
                self.nodes[node].leaves &= *role == Role::Owner;
                if *role == Role::Owner {
                    self.became_owner.push(node);
                }
                if self.quiet {
                    self.fail(format!(
                        "{} became {role:?} without cause: {reason}",
                        name(node)
                    ));
                }
            }
            Output::Conflict(_) => {
                self.count("conflict");
                let clock = self.nodes[node].clock.shows(self.now);
                let before = self.nodes[node].conflict_told.replace(clock);
                if before.is_some_and(|before| clock - before < Duration::from_secs(1)) {
                    self.fail(format!("{} tells of conflicts too often", name(node)));
                }
            }
            Output::Ignored { why, .. } => {
                self.fail(format!("{} ignored a packet: {why}", name(node)))
            }
            Output::Released => self.released.push(self.now),
            Output::Heard { .. } => {}
        }
    }

    fn take(&mut self, node: usize, lifetime: Duration) {
        let jitter = self.random.upto(KERNEL_EARLY + KERNEL_LATE);
        let until = self.now + lifetime + jitter - KERNEL_EARLY;
        let generation = self.queue.count;
        self.nodes[node].address = Some(Held { until, generation });
        self.at(until, Event::Expire { node, generation });
    }

    fn announce(&mut self, node: usize, all: &[Output]) {
        let others =
            (0..self.nodes.len()).filter(|to| *to != node && self.hear_each_other(node, *to));
        for to in others.collect::<Vec<_>>() {
            let time = self.now + self.network.most_delay;
            self.at(time, Event::Claimed { node: to, by: node });
        }
        if all
            .iter()
            .any(|output| matches!(output, Output::Became(..)))
        {
            return;
        }
        self.count("defended");
        let clock = self.nodes[node].clock.shows(self.now);
        let before = self.nodes[node].announced.replace(clock);
        if before.is_some_and(|before| clock - before < Duration::from_secs(1)) {
            self.fail(format!("{} defends the address too often", name(node)));
        }
    }

    fn transmit(&mut self, from: usize, to: usize, destination: IpAddr, payload: &[u8]) {
        if !self.nodes[from].link {
            return;
        }
        let arrivals = self
            .ways
            .arrivals((from, to), self.now, &self.network, &mut self.random);
        let source = self.nodes[from].router.config().own;
        for time in arrivals {
            self.at(
                time,
                Event::Arrive {
                    node: to,
                    from: source,
                    to: destination,
                    payload: payload.into(),
                },
            );
        }
    }

    pub(crate) fn hear_each_other(&self, a: usize, b: usize) -> bool {
        self.nodes[a].link && self.nodes[b].link && self.ways.are_open(a, b)
    }

    /// What must hold at every moment.
    fn observe(&mut self) {
        for a in 0..self.nodes.len() {
            for b in a + 1..self.nodes.len() {
                self.observe_pair(a, b);
            }
        }
        let unowned = self
            .guarded
            .iter()
            .find(|part| !part.iter().any(|node| self.nodes[*node].owns()));
        if let Some(part) = unowned {
            let part: String = part.iter().map(|node| name(*node)).collect();
            self.fail(format!("nobody of {part} owns the address"));
        }
    }

    fn observe_pair(&mut self, a: usize, b: usize) {
        let both = self.nodes[a].holds() && self.nodes[b].holds();
        if !both || !self.hear_each_other(a, b) || self.network.in_a_row == HEAVY {
            self.overlaps.remove(&(a, b));
            return;
        }
        let now = self.now;
        let overlap = self.overlaps.entry((a, b)).or_insert(Overlap {
            since: now,
            both_run_since: now,
        });
        if !self.nodes[a].runs() || !self.nodes[b].runs() {
            overlap.both_run_since = now;
        }
        let overlap = *overlap;
        if now - overlap.both_run_since > self.yield_bound() {
            let longer = now - overlap.both_run_since;
            self.fail(format!(
                "{} and {} both own the address for {longer:?}",
                name(a),
                name(b)
            ));
        } else if now - overlap.since > self.yield_bound() + self.kernel_bound() {
            self.fail(format!(
                "{} and {} both have the address for {:?}",
                name(a),
                name(b),
                now - overlap.since
            ));
        }
    }

    /// Ranks changed, or the network: who is to yield may be another, or hear of it later.
    pub(crate) fn forget_overlaps(&mut self) {
        self.overlaps.clear();
    }

    fn longest(&self, of: impl Fn(&Config) -> Duration) -> Duration {
        self.nodes
            .iter()
            .map(|node| of(node.router.config()))
            .max()
            .unwrap_or_default()
    }

    pub(crate) fn interval(&self) -> Duration {
        self.longest(Config::sent_interval)
    }

    /// One that is outranked hears of it within so long.
    pub(crate) fn yield_bound(&self) -> Duration {
        let losses = u32::try_from(self.network.in_a_row.min(3)).unwrap_or(3);
        (self.interval() + self.network.late) * (losses + 1) + self.network.most_delay
    }

    /// A kernel keeps the address of a process that does not run for so long.
    pub(crate) fn kernel_bound(&self) -> Duration {
        self.silence() + Duration::from_millis(1500) + KERNEL_LATE
    }

    /// Somebody owns the address after so long, if nothing happens.
    pub(crate) fn owner_bound(&self) -> Duration {
        self.silence() + self.network.most_delay + 3 * self.network.late
    }

    /// For who has the lowest priority. The skew is less than a second in version 2, and than an
    /// interval in version 3.
    fn silence(&self) -> Duration {
        3 * self.interval() + self.skew()
    }

    pub(crate) fn skew(&self) -> Duration {
        match self.nodes[0].router.config().version {
            Version::V2 => Duration::from_secs(1),
            Version::V3 => self.interval(),
        }
    }

    /// Nothing changes any more after so long, if nothing happens.
    pub(crate) fn settle_bound(&self) -> Duration {
        let delay = self.longest(|config| config.preempt_delay) + self.skew();
        let preempted = self.owner_bound()
            + self.yield_bound()
            + delay.max(self.silence())
            + 2 * self.network.late;
        preempted.max(self.kernel_bound()) + self.yield_bound()
    }

    /// So much earlier than the others that they hear of it in time.
    pub(crate) fn is_clearly_first(&self, first: u8, other: u8) -> bool {
        let config = self.nodes[0].router.config();
        let skew = |priority| timing::skew(config.version, self.least_interval(), priority);
        skew(other).saturating_sub(skew(first))
            > 2 * self.network.most_delay + 4 * self.network.late
    }

    fn least_interval(&self) -> Duration {
        self.nodes
            .iter()
            .map(|node| node.router.config().sent_interval())
            .min()
            .unwrap_or_default()
    }
}

pub(crate) fn name(node: usize) -> char {
    char::from(b'a' + node as u8)
}

fn reason_name(reason: &portico_vrrp::Reason) -> &'static str {
    use portico_vrrp::Reason::*;
    match reason {
        Started => "started",
        OwnerSilent { .. } => "owner silent",
        OwnerLeft(_) => "owner left",
        Preempted(_) => "preempted",
        Outranked { .. } => "outranked",
        Paused { .. } => "paused",
        LinkDown => "link down",
        LinkUp => "link up",
        Asked => "asked",
    }
}

fn describe(input: &Input<'_>, outputs: &[Output]) -> String {
    let input = match input {
        Input::Packet { from, .. } => format!("hears {from}"),
        Input::Claimed { by, .. } => format!(
            "sees a claim of {}",
            if by[5] == 99 { '?' } else { name(by[5].into()) }
        ),
        other => format!("{other:?}"),
    };
    let outputs: Vec<String> = outputs
        .iter()
        .map(|output| match output {
            Output::Send(payload) => format!("Send {}", payload[2]),
            Output::SendTo(peer, payload) => format!("Send {} to {peer}", payload[2]),
            Output::Became(role, reason) => format!("Became {role:?} ({reason})"),
            Output::Heard { advert, .. } => format!("priority {}", advert.priority),
            other => format!("{other:?}"),
        })
        .collect();
    format!("{input}: {}", outputs.join(", "))
}
