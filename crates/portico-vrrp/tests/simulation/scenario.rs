//! What happens to the machines: storms in which anything goes, calms in which they must settle,
//! and one planned event at a time of which the outcome is known.

use crate::machine::Process;
use crate::network::{HEAVY, Network};
use crate::random::Random;
use crate::world::{Event, World, name};
use portico_vrrp::router::timing;
use portico_vrrp::{Config, Input, Version};
use std::net::IpAddr;
use std::time::Duration;

/// How long nothing may change once all has settled, in intervals.
const QUIET: u32 = 12;

pub(crate) fn run(seed: u64, traced: bool) -> World {
    let mut random = Random::seeded(seed);
    let configs = configs(&mut random);
    let network = network(&mut random, &configs);
    let mut world = World::new(configs, network, random, traced);
    for node in 0..world.nodes.len() {
        if node == 0 || world.random.percent(80) {
            world.start(node);
        }
    }
    for _ in 0..3 {
        if world.random.percent(80) {
            storm(&mut world);
        }
        calm(&mut world);
        for _ in 0..world.random.below(4) {
            planned(&mut world);
        }
    }
    world
}

fn configs(random: &mut Random) -> Vec<Config> {
    let version = if random.percent(20) {
        Version::V2
    } else {
        Version::V3
    };
    let v6 = version == Version::V3 && random.percent(30);
    let millis = match version {
        Version::V2 => random.pick(&[1000, 2000]),
        Version::V3 => random.pick(&[20, 50, 100, 100, 250, 500, 1000]),
    };
    let mixed = version == Version::V3 && random.percent(25);
    let (unicast, kind, preempt) = (random.percent(30), random.below(3), random.percent(50));
    let count = 2 + random.below(6);
    let own = |node: usize| match v6 {
        true => IpAddr::from([0xfe80, 0, 0, 0, 0, 0, 0, 10 + node as u16]),
        false => IpAddr::from([192, 0, 2, 10 + node as u8]),
    };
    let one = |node: usize| {
        let factor = if mixed { random.pick(&[1, 2, 4]) } else { 1 };
        let interval = Duration::from_millis(millis) * factor;
        Config {
            version,
            vrid: 59,
            addresses: vec![if v6 {
                IpAddr::from([0xfe80, 0, 0, 0, 0, 0, 0, 58])
            } else {
                IpAddr::from([192, 0, 2, 58])
            }],
            own: own(node),
            priority: match kind {
                0 => 100,
                1 => random.pick(&[100, 150]),
                _ => 1 + random.below(254) as u8,
            },
            interval,
            preempt: if preempt { true } else { random.percent(50) },
            least_hops: 255,
            preempt_delay: if random.percent(70) {
                Duration::ZERO
            } else {
                random.upto(10 * interval)
            },
            password: (version == Version::V2).then_some(*b"password"),
            peers: if unicast {
                (0..count).filter(|peer| *peer != node).map(own).collect()
            } else {
                vec![]
            },
        }
    };
    (0..count).map(one).collect()
}

/// Delays are small against the interval, or it would be chosen too short.
fn network(random: &mut Random, configs: &[Config]) -> Network {
    let interval = configs
        .iter()
        .map(|config| config.interval)
        .min()
        .unwrap_or_default();
    let exact = random.percent(40);
    let least_delay = random.upto(interval / 100);
    let most_delay = if exact {
        least_delay
    } else {
        least_delay + random.upto(interval / 4)
    };
    let late = if exact {
        Duration::ZERO
    } else {
        random.upto(interval / 20)
    };
    Network {
        least_delay,
        most_delay,
        loss: 0,
        in_a_row: 0,
        twice: 0,
        late,
    }
}

fn storm(world: &mut World) {
    world.note(|| "--- storm".into());
    world.guarded.clear();
    let heavy = world.random.percent(50);
    (world.network.loss, world.network.in_a_row) = if heavy {
        (world.random.below(90), HEAVY)
    } else {
        (30, 2)
    };
    world.network.twice = world.random.pick(&[0, 20]);
    for _ in 0..5 + world.random.below(20) {
        fault(world);
        let time = world.random.upto(2 * world.interval());
        world.run_for(time);
    }
}

fn fault(world: &mut World) {
    let (node, interval) = (world.random.below(world.nodes.len()), world.interval());
    let time = world.random.upto(10 * interval);
    match world.random.below(12) {
        0 | 1 => world.pause(node, Process::Stopped, true, time),
        2 => {
            let clock_goes_on = world.random.percent(50);
            world.pause(node, Process::Frozen, clock_goes_on, time);
        }
        3 => jump(world, node, time),
        4 => world.kill(node),
        5 => world.start(node),
        6 => {
            let up = !world.nodes[node].link;
            world.set_link(node, up);
        }
        7 => {
            let priority = 1 + world.random.below(254) as u8;
            world.set_priority(node, priority);
        }
        8 if world.nodes[node].runs() => {
            world.handle(node, Input::Release);
            world.forget_overlaps();
        }
        9 => {
            let other = world.random.below(world.nodes.len());
            world.ways.cut[node][other] ^= true;
        }
        10 => part(world),
        _ => world.at(world.now, Event::Claimed { node, by: 99 }),
    }
}

fn jump(world: &mut World, node: usize, by: Duration) {
    world.note(|| format!("{} clock jumps by {by:?}", name(node)));
    world.nodes[node].clock.jump(by);
    if world.nodes[node].runs() {
        world.handle(node, Input::Tick);
    }
}

/// Everybody is in one of up to three parts, and hears exactly the others in it.
fn part(world: &mut World) {
    let parts = world.random.pick(&[1, 1, 1, 2, 3]);
    let of: Vec<usize> = world
        .nodes
        .iter()
        .map(|_| world.random.below(parts))
        .collect();
    for a in 0..of.len() {
        for b in 0..of.len() {
            world.ways.cut[a][b] = of[a] != of[b];
        }
    }
    world.note(|| format!("parts: {of:?}"));
}

/// Those who hear each other and take part.
fn parts(world: &World) -> Vec<Vec<usize>> {
    let mut parts: Vec<Vec<usize>> = vec![];
    for node in (0..world.nodes.len()).filter(|node| world.nodes[*node].takes_part()) {
        match parts
            .iter_mut()
            .find(|part| world.hear_each_other(part[0], node))
        {
            Some(part) => part.push(node),
            None => parts.push(vec![node]),
        }
    }
    parts
}

fn calm(world: &mut World) {
    world.note(|| "--- calm".into());
    world.guarded.clear();
    let exact =
        world.network.most_delay == world.network.least_delay && world.network.late.is_zero();
    world.network.in_a_row = world.random.below(if exact { 3 } else { 2 });
    world.network.loss = 40;
    world.forget_overlaps();
    part(world);
    for node in 0..world.nodes.len() {
        world.resume(node);
        if !world.nodes[node].link && world.random.percent(70) {
            world.set_link(node, true);
        }
        if world.random.percent(70) {
            world.start(node);
        }
    }
    world.run_for(world.network.late); // everybody knows about its link
    settle(world);
}

/// From a moment at which maybe nobody has the address.
fn settle(world: &mut World) {
    world.guarded.clear();
    world.run_for(world.owner_bound());
    keep(world);
}

/// From a moment at which somebody has it in each part: from now on somebody always has.
fn keep(world: &mut World) {
    world.guarded = parts(world);
    world.run_for(world.settle_bound());
    settled(world);
    hold_still(world);
}

fn hold_still(world: &mut World) {
    world.quiet = true;
    world.run_for(QUIET * world.interval());
    world.quiet = false;
}

/// One has it in each part, and nobody who would take it from that one.
fn settled(world: &mut World) {
    for part in parts(world) {
        let holders: Vec<usize> = (0..world.nodes.len())
            .filter(|node| world.nodes[*node].holds() && world.hear_each_other(part[0], *node))
            .collect();
        let &[owner] = holders.as_slice() else {
            let names: String = holders.iter().map(|node| name(*node)).collect();
            return world.fail(format!("in the end '{names}' have the address"));
        };
        let better = part.iter().find(|node| {
            let other = &world.nodes[**node];
            other.router.config().preempt && other.priority > world.nodes[owner].priority
        });
        if let Some(better) = better {
            return world.fail(format!(
                "in the end {} has it, not {}",
                name(owner),
                name(*better)
            ));
        }
    }
}

/// Something happens to machines that have settled.
fn planned(world: &mut World) {
    let all = parts(world);
    if all.is_empty() {
        return;
    }
    let part = world.random.pick(&(0..all.len()).collect::<Vec<_>>());
    let part = &all[part];
    let Some(owner) = part.iter().copied().find(|node| world.nodes[*node].owns()) else {
        return;
    };
    let others: Vec<usize> = part.iter().copied().filter(|node| *node != owner).collect();
    world.became_owner.clear();
    world.released.clear();
    match world.random.below(9) {
        0 => lose(world, owner, &others, |world, owner| world.kill(owner)),
        1 => lose(world, owner, &others, |world, owner| {
            world.set_link(owner, false);
            world.run_for(world.network.late);
        }),
        2 => sleep(world, owner, &others),
        3 => release(world, owner, &others),
        4 => {
            world.note(|| format!("--- {} gets the lowest priority", name(owner)));
            world.set_priority(owner, 1);
            keep(world);
        }
        5 => doze(world, &others),
        6 => jump_ahead(world, &others),
        7 => claim(world),
        _ => join(world),
    }
}

/// The owner is gone without a word: somebody follows in time, and if there is a first one, only
/// that one.
fn lose(world: &mut World, owner: usize, others: &[usize], how: fn(&mut World, usize)) {
    world.note(|| format!("--- {} is lost", name(owner)));
    world.count("owner lost");
    world.guarded.clear();
    let part: Vec<u8> = others
        .iter()
        .map(|node| world.nodes[*node].priority)
        .collect();
    how(world, owner);
    settle(world);
    let first = part.iter().max().copied().unwrap_or_default();
    let clear = part
        .iter()
        .filter(|priority| !world.is_clearly_first(first, **priority))
        .count()
        <= 1;
    if world.network.in_a_row == 0 && clear && world.became_owner.len() > 1 {
        world.fail(format!(
            "{:?} took over, where one was clearly first",
            world.became_owner
        ));
    }
}

/// The owner's process stops, or its machine: when it goes on, another has the address and keeps it
/// for now.
fn sleep(world: &mut World, owner: usize, others: &[usize]) {
    world.note(|| format!("--- {} sleeps", name(owner)));
    world.count("owner slept");
    world.guarded.clear();
    let how = world.random.pick(&[Process::Stopped, Process::Frozen]);
    world.pause(owner, how, true, Duration::from_secs(3600));
    world.run_for(world.owner_bound());
    if !others.is_empty() {
        world.guarded = parts(world);
    }
    let more = world.random.upto(4 * world.interval());
    world.run_for(more);
    world.became_owner.clear();
    let before = world.nodes[owner].router.clone();
    world.resume(owner);
    let woke_as_owner = world.nodes[owner].owns();
    if woke_as_owner {
        world.fail(format!(
            "{} slept, and still is the owner: {before:?}",
            name(owner)
        ));
    }
    if others.is_empty() {
        settle(world)
    } else {
        keep(world)
    }
}

fn release(world: &mut World, owner: usize, others: &[usize]) {
    world.note(|| format!("--- {} gives it up", name(owner)));
    world.count("owner released");
    let config = world.nodes[owner].router.config().clone();
    let start = world.now;
    if others.is_empty() || world.network.in_a_row > 1 {
        world.guarded.clear();
    }
    world.handle(owner, Input::Release);
    let bound = match !others.is_empty() && world.network.in_a_row == 0 {
        true => world.skew() + 2 * world.network.most_delay,
        false => timing::leave(config.version, config.sent_interval()),
    };
    world.run_for(bound + 3 * world.network.late);
    match world.released.first().copied() {
        None => world.fail(format!(
            "{} did not come to an end within {bound:?}",
            name(owner)
        )),
        Some(time) => world.note(|| format!("given up within {:?}", time - start)),
    }
    world.kill(owner);
    if world.guarded.is_empty() {
        settle(world)
    } else {
        keep(world)
    }
}

/// One that has not the address does not run for a while: nobody else notices.
fn doze(world: &mut World, others: &[usize]) {
    if others.is_empty() || world.network.in_a_row > 0 {
        return;
    }
    let node = world.random.pick(others);
    let how = world.random.pick(&[Process::Stopped, Process::Frozen]);
    let time = world.random.upto(10 * world.interval());
    world.note(|| format!("--- {} dozes", name(node)));
    world.count("standby dozed");
    world.quiet = true;
    world.pause(node, how, true, time);
    world.run_for(time);
    hold_still(world);
}

/// The clock of one that has not the address jumps: nobody else notices.
fn jump_ahead(world: &mut World, others: &[usize]) {
    if others.is_empty() || world.network.in_a_row > 0 {
        return;
    }
    let node = world.random.pick(others);
    let by = world.random.upto(10 * world.interval());
    world.note(|| format!("--- {} jumps ahead", name(node)));
    world.count("standby jumped");
    world.quiet = true;
    jump(world, node, by);
    hold_still(world);
}

/// Somebody who takes no part says that it has the address, again and again.
fn claim(world: &mut World) {
    world.note(|| "--- a stranger claims the address".into());
    world.count("claimed");
    world.quiet = true;
    for _ in 0..10 {
        for node in 0..world.nodes.len() {
            world.at(world.now, Event::Claimed { node, by: 99 });
        }
        let time = world.random.upto(world.interval());
        world.run_for(time);
    }
    hold_still(world);
}

/// One more takes part: it takes over only if it may.
fn join(world: &mut World) {
    let Some(node) = (0..world.nodes.len()).find(|node| !world.nodes[*node].takes_part()) else {
        return;
    };
    let newcomer = world.nodes[node].router.config().clone();
    let up = !world.nodes[node].link;
    let mut part = parts(world)
        .into_iter()
        .filter(|part| !world.ways.cut[part[0]][node]);
    let owner = part
        .next()
        .and_then(|part| part.into_iter().find(|node| world.nodes[*node].owns()));
    world.note(|| format!("--- {} joins", name(node)));
    world.count("joined");
    if up {
        world.set_link(node, true);
        world.run_for(world.network.late);
    }
    world.start(node);
    let Some(owner) = owner else {
        return settle(world);
    };
    let may = newcomer.preempt && newcomer.priority > world.nodes[owner].priority;
    world.became_owner.clear();
    world.guarded = parts(world);
    // One with a shorter interval does not wait long enough for the first advert of an owner with a
    // longer one, and losses of two owners, one after the other, add up.
    let sure = world.network.in_a_row == 0
        && world
            .nodes
            .iter()
            .all(|other| other.router.config().interval == newcomer.interval);
    world.run_for(newcomer.preempt_delay);
    if sure && !newcomer.preempt_delay.is_zero() && !world.became_owner.is_empty() {
        world.fail(format!(
            "{:?} did not wait for {:?}",
            world.became_owner, newcomer.preempt_delay
        ));
    }
    world.run_for(world.settle_bound());
    settled(world);
    let expected: &[usize] = if may { &[node] } else { &[] };
    if sure && world.became_owner != expected {
        world.fail(format!(
            "{:?} took over, not {expected:?}",
            world.became_owner
        ));
    }
    hold_still(world);
}
