//! What happens to the machines: storms, after which everything has to come to rest, and single
//! events, after which only what they touch may move.

use crate::machine::Process;
use crate::network::{HEAVY, Network};
use crate::random::Random;
use crate::world::{Guard, World, members, name};
use portico_l2::{Input, Timing};
use std::collections::BTreeSet;
use std::time::Duration;

/// An address that a stranger has is left alone for so long.
const AVOIDED: Duration = Duration::from_secs(10);

pub(crate) fn run(seed: u64, traced: bool) -> World {
    let mut random = Random::seeded(seed);
    let nodes = random.pick(&[2, 2, 3, 3, 3, 4, 4, 5, 6, 7]);
    let addresses = 4 + random.below(28);
    let shares = (0..addresses).map(|_| share(&mut random, nodes)).collect();
    let network = network(&mut random);
    let mut world = World::new(nodes, shares, network, random, traced);
    for node in 0..nodes {
        if node == 0 || world.random.percent(80) {
            world.start(node);
        }
    }
    for _ in 0..2 {
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

/// Most addresses are for everybody, some for those that have endpoints, some come later.
fn share(random: &mut Random, nodes: usize) -> Option<u32> {
    match random.below(10) {
        0 => None,
        1 | 2 => Some((random.below(1 << nodes) as u32).max(1)),
        _ => Some(u32::MAX),
    }
}

fn network(random: &mut Random) -> Network {
    let interval = Timing::default().interval;
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
    for _ in 0..5 + world.random.below(15) {
        fault(world);
        let time = world.random.upto(2 * world.timing.interval);
        world.run_for(time);
    }
}

fn fault(world: &mut World) {
    let node = world.random.below(world.nodes.len());
    let address = world.random.below(world.shares.len());
    let time = world.random.upto(10 * world.timing.interval);
    match world.random.below(13) {
        0 | 1 => world.pause(node, Process::Stopped, true, time),
        2 => {
            let clock_goes_on = world.random.percent(50);
            world.pause(node, Process::Frozen, clock_goes_on, time);
        }
        3 => jump(world, node, time),
        4 => world.kill(node),
        5 | 6 => world.start(node),
        7 => {
            let up = !world.nodes[node].link;
            world.set_link(node, up);
        }
        8 if world.nodes[node].runs() => world.handle(node, Input::Leave),
        9 => {
            let other = world.random.below(world.nodes.len());
            world.ways.cut[node][other] ^= true;
            world.forget_overlaps();
        }
        10 => part(world),
        11 => {
            let nodes = world.nodes.len();
            let share = share(&mut world.random, nodes);
            world.set_share(address, share);
        }
        _ => world.claim(address),
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
    world.forget_overlaps();
}

/// Those who hear each other and take part.
fn parts(world: &World) -> Vec<u32> {
    let mut parts: Vec<(usize, u32)> = vec![];
    for node in (0..world.nodes.len()).filter(|node| world.nodes[*node].takes_part()) {
        match parts
            .iter_mut()
            .find(|(first, _)| world.hear_each_other(*first, node))
        {
            Some((_, part)) => *part |= 1 << node,
            None => parts.push((node, 1 << node)),
        }
    }
    parts.into_iter().map(|(_, part)| part).collect()
}

fn calm(world: &mut World) {
    world.note(|| "--- calm".into());
    world.guarded.clear();
    world.network.in_a_row = world.random.below(3);
    world.network.loss = 40;
    part(world);
    for node in 0..world.nodes.len() {
        world.resume(node);
        if !world.nodes[node].link && world.random.percent(70) {
            world.set_link(node, true);
        }
        if world.nodes[node].leaves {
            world.kill(node);
        }
        if world.random.percent(70) {
            world.start(node);
        }
    }
    world.run_for(world.network.late); // everybody knows about its link
    if world.counts.contains_key("conflict") {
        world.run_for(AVOIDED);
    }
    settle(world);
}

/// Comes to rest, and stays there.
fn settle(world: &mut World) {
    world.run_for(world.settle_bound());
    settled(world);
    hold_still(world);
    guard(world);
}

/// From now on somebody in each part has each address.
fn guard(world: &mut World) {
    world.guarded = parts(world)
        .into_iter()
        .map(|part| Guard {
            may: part,
            by: part,
        })
        .collect();
}

/// A node comes into a part: it may have what the others had.
fn guard_with(world: &mut World, node: usize) {
    let hears = |guard: &Guard| {
        members(guard.by, world.nodes.len()).any(|other| world.hear_each_other(other, node))
    };
    let guards = world.guarded.iter().map(|guard| match hears(guard) {
        true => Guard {
            by: guard.by | 1 << node,
            ..*guard
        },
        false => *guard,
    });
    world.guarded = guards.collect();
}

fn hold_still(world: &mut World) {
    world.quiet = true;
    world.run_for(5 * world.timing.interval);
    world.quiet = false;
}

/// In each part the one that is to have an address has it, and nobody else.
fn settled(world: &mut World) {
    for part in parts(world) {
        for address in 0..world.shares.len() {
            let first = world.first(part, address).map_or(0, |node| 1 << node);
            let holders = world.answering(address) & part;
            if holders != first {
                let who: String = members(holders, world.nodes.len()).map(name).collect();
                return world.fail(format!(
                    "in the end '{who}' have address {address}, not {first:b} of {part:b}"
                ));
            }
        }
    }
}

/// Something happens to machines that have settled.
fn planned(world: &mut World) {
    let all = parts(world);
    if all.is_empty() {
        return;
    }
    let part = world.random.pick(&all);
    let inside: Vec<usize> = members(part, world.nodes.len()).collect();
    let node = world.random.pick(&inside);
    world.taken.clear();
    world.left.clear();
    match world.random.below(9) {
        0 => lose(world, part, node, "node lost", |world, node| {
            world.kill(node)
        }),
        1 => lose(world, part, node, "link lost", |world, node| {
            world.set_link(node, false)
        }),
        2 => sleep(world, part, node),
        3 => leave(world, part, node),
        4 => doze(world, node),
        5 => jump_ahead(world, node),
        6 => claim(world),
        7 => add(world),
        _ => come_back(world),
    }
}

/// What a node had, others have in time, and nothing else moves.
fn lose(world: &mut World, part: u32, node: usize, what: &'static str, how: fn(&mut World, usize)) {
    world.note(|| format!("--- {what}: {}", name(node)));
    world.count(what);
    let had = held_by(world, node);
    world.guarded.clear();
    how(world, node);
    world.run_for(world.owner_bound());
    guard(world);
    world.run_for(Duration::ZERO);
    only_these_moved(world, part & !(1 << node), &had);
    world.guarded.clear();
    settle(world);
}

fn held_by(world: &World, node: usize) -> BTreeSet<usize> {
    (0..world.shares.len())
        .filter(|address| world.holders[*address] & 1 << node != 0)
        .collect()
}

fn only_these_moved(world: &mut World, part: u32, these: &BTreeSet<usize>) {
    let moved = |(by, address): &&(usize, usize)| part & 1 << by != 0 && !these.contains(address);
    if let Some((by, address)) = world.taken.iter().find(moved).copied() {
        world.fail(format!(
            "{} took address {address}, which had nothing to do with it",
            name(by)
        ));
    }
}

/// A process stops, or its machine: when it goes on, others have what it had, and give it back when
/// they count it in again.
fn sleep(world: &mut World, part: u32, node: usize) {
    world.note(|| format!("--- {} sleeps", name(node)));
    world.count("node slept");
    let had = held_by(world, node);
    world.guarded.clear();
    let how = world.random.pick(&[Process::Stopped, Process::Frozen]);
    world.pause(node, how, true, Duration::from_secs(3600));
    world.run_for(world.owner_bound());
    guard(world);
    let more = world.random.upto(4 * world.timing.interval);
    world.run_for(more);
    guard_with(world, node);
    world.resume(node);
    if !held_by(world, node).is_empty() && part.count_ones() > 1 {
        world.fail(format!("{} slept, and still holds something", name(node)));
    }
    // One that was alone in the part was the only one to guard.
    if part.count_ones() == 1 || world.network.in_a_row > 0 {
        world.guarded.clear();
    }
    world.run_for(world.settle_bound());
    only_these_moved(world, part, &had);
    settle(world);
}

/// Somebody holds each address at every moment.
fn leave(world: &mut World, part: u32, node: usize) {
    world.note(|| format!("--- {} leaves", name(node)));
    world.count("node left");
    let had = held_by(world, node);
    if world.network.in_a_row > 0 {
        world.guarded.clear();
    }
    // What only this one may have is gone with it.
    world
        .guarded
        .iter_mut()
        .for_each(|guard| guard.may &= !(1 << node));
    world.handle(node, Input::Leave);
    world.run_for(world.timing.dead + 2 * world.network.late);
    if world.left.is_empty() {
        world.fail(format!("{} did not come to an end", name(node)));
    }
    only_these_moved(world, part & !(1 << node), &had);
    world.kill(node);
    world.guarded.clear();
    settle(world);
}

/// A short stop: nobody notices.
fn doze(world: &mut World, node: usize) {
    if world.network.in_a_row > 0 {
        return;
    }
    world.note(|| format!("--- {} dozes", name(node)));
    world.count("node dozed");
    world.guarded.clear();
    let time = world.random.upto(world.timing.interval * 5 / 2);
    let how = world.random.pick(&[Process::Stopped, Process::Frozen]);
    world.quiet = true;
    world.pause(node, how, true, time);
    world.run_for(time);
    hold_still(world);
}

/// A short jump: nobody notices.
fn jump_ahead(world: &mut World, node: usize) {
    if world.network.in_a_row > 0 {
        return;
    }
    let by = world.random.upto(world.timing.interval * 5 / 2);
    world.note(|| format!("--- {} jumps ahead", name(node)));
    world.count("clock jumped");
    world.quiet = true;
    jump(world, node, by);
    hold_still(world);
}

/// Somebody who takes no part says that it has an address, again and again.
fn claim(world: &mut World) {
    world.note(|| "--- a stranger claims an address".into());
    world.count("stranger claimed");
    world.quiet = true;
    let address = world.random.below(world.shares.len());
    for _ in 0..5 {
        world.claim(address);
        let time = world.random.upto(world.timing.interval);
        world.run_for(time);
    }
    hold_still(world);
}

/// An address that nobody had.
fn add(world: &mut World) {
    let Some(address) = world.shares.iter().position(Option::is_none) else {
        return;
    };
    world.note(|| "--- an address is added".into());
    world.count("address added");
    world.guarded.clear();
    world.set_share(address, Some(u32::MAX));
    world.run_for(2 * world.timing.probe_gap + 4 * world.network.late);
    for part in parts(world) {
        only_these_moved(world, part, &BTreeSet::from([address]));
    }
    guard(world);
    settle(world);
}

/// A node comes back and takes its share, from nobody else than it should, and without a gap.
fn come_back(world: &mut World) {
    let Some(node) =
        (0..world.nodes.len()).find(|node| world.nodes[*node].process == Process::Dead)
    else {
        return;
    };
    world.note(|| format!("--- {} comes back", name(node)));
    world.count("node returned");
    if world.network.in_a_row > 0 {
        world.guarded.clear();
    }
    let up = !world.nodes[node].link;
    if up {
        world.set_link(node, true);
        world.run_for(world.network.late);
    }
    guard_with(world, node);
    world.start(node);
    world.run_for(world.settle_bound());
    let part = parts(world)
        .into_iter()
        .find(|part| part & 1 << node != 0)
        .unwrap_or_default();
    let share = |address: &usize| world.first(part, *address) == Some(node);
    let share: BTreeSet<usize> = (0..world.shares.len()).filter(share).collect();
    only_these_moved(world, part, &share);
    settle(world);
}
