use super::*;
use std::net::Ipv4Addr;

const MS: Duration = Duration::from_millis(1);
const BEGIN: Time = Duration::from_secs(100);

fn id(name: &str) -> NodeId {
    NodeId::of(name)
}

fn address(n: u32) -> IpAddr {
    Ipv4Addr::from(0x0a00_0000 + n).into()
}

fn addresses(count: u32) -> Vec<(IpAddr, Option<Share>)> {
    (0..count)
        .map(|n| (address(n), Some(Share::default())))
        .collect()
}

/// Speakers that hear each other at once, unless they are cut off.
struct Net {
    now: Time,
    speakers: Vec<Speaker>,
    deaf: BTreeSet<NodeId>,
    /// What they say is lost.
    mute: BTreeSet<NodeId>,
    log: Vec<(NodeId, Output)>,
}

impl Net {
    fn of(names: &[&str], shares: u32) -> Self {
        let peers: BTreeSet<NodeId> = names.iter().map(|name| id(name)).collect();
        let speakers = names
            .iter()
            .map(|name| Speaker::new(id(name), 1, Timing::default()))
            .collect();
        let mut net = Self {
            now: BEGIN,
            speakers,
            deaf: BTreeSet::new(),
            mute: BTreeSet::new(),
            log: vec![],
        };
        for (n, name) in names.iter().enumerate() {
            net.give(
                name,
                Input::Links {
                    lacks: vec![],
                    macs: vec![[2, 0, 0, 0, 0, n as u8]],
                },
            );
            net.give(name, Input::Peers(peers.clone()));
            net.give(name, Input::Shares(addresses(shares)));
        }
        net.run(1000);
        net
    }

    fn speaker(&self, name: &str) -> &Speaker {
        self.speakers
            .iter()
            .find(|speaker| speaker.me == id(name))
            .unwrap()
    }

    fn give(&mut self, name: &str, input: Input<'_>) {
        self.handle(id(name), input);
    }

    fn handle(&mut self, to: NodeId, input: Input<'_>) {
        let Some(speaker) = self.speakers.iter_mut().find(|speaker| speaker.me == to) else {
            return;
        };
        let outputs = speaker.handle(self.now, input);
        for output in outputs {
            match &output {
                Output::Send(_) if self.mute.contains(&to) => {}
                Output::Send(heartbeat)
                    if !self.deaf.contains(&to) && !self.deaf.contains(&heartbeat.to) =>
                {
                    let heartbeat = Heartbeat::parse(&heartbeat.emit()).unwrap();
                    self.handle(heartbeat.to, Input::Heard(&heartbeat));
                }
                Output::Send(_) => {}
                _ => self.log.push((to, output)),
            }
        }
    }

    fn run(&mut self, millis: u32) {
        let end = self.now + millis * MS;
        while let Some((at, node)) = self
            .speakers
            .iter()
            .filter_map(|one| Some((one.deadline()?, one.me)))
            .min()
            && at <= end
        {
            self.now = self.now.max(at);
            self.handle(node, Input::Tick);
        }
        self.now = end;
    }

    fn held(&self, name: &str) -> BTreeSet<IpAddr> {
        self.speaker(name).held().collect()
    }

    fn changes(&mut self) -> Vec<(NodeId, Output)> {
        let kept =
            |(_, output): &(NodeId, Output)| matches!(output, Output::Hold(_) | Output::Release(_));
        std::mem::take(&mut self.log)
            .into_iter()
            .filter(kept)
            .collect()
    }
}

#[test]
fn all_addresses_are_held_once_and_everybody_has_a_part() {
    let net = Net::of(&["a", "b", "c"], 60);
    let parts = ["a", "b", "c"].map(|name| net.held(name));
    assert!(
        parts.iter().all(|part| part.len() > 8),
        "{:?}",
        parts.each_ref().map(BTreeSet::len)
    );
    assert_eq!(parts.iter().map(BTreeSet::len).sum::<usize>(), 60);
    assert_eq!(parts.iter().flatten().collect::<BTreeSet<_>>().len(), 60);
}

#[test]
fn what_a_node_had_that_fell_silent_others_have_within_its_bound() {
    let mut net = Net::of(&["a", "b", "c"], 60);
    let (had, others) = (net.held("a"), [net.held("b"), net.held("c")]);
    net.deaf.insert(id("a"));
    net.changes();
    net.run(400);
    let taken: BTreeSet<IpAddr> = net.held("b").union(&net.held("c")).copied().collect();
    assert!(had.is_subset(&taken));
    assert!(
        others[0].is_subset(&net.held("b")) && others[1].is_subset(&net.held("c")),
        "what they had, they keep"
    );
}

#[test]
fn who_comes_back_takes_its_share_and_nothing_else() {
    let mut net = Net::of(&["a", "b", "c"], 60);
    let parts = ["a", "b", "c"].map(|name| net.held(name));
    net.deaf.insert(id("a"));
    net.run(1000);
    net.deaf.clear();
    net.changes();
    net.run(1000);
    assert_eq!(["a", "b", "c"].map(|name| net.held(name)), parts);
    for (node, change) in net.changes() {
        let (Output::Hold(address) | Output::Release(address)) = change else {
            continue;
        };
        assert!(
            node == id("a") || parts[0].contains(&address),
            "{node:?} {change:?}"
        );
    }
    assert_eq!(net.speaker("b").members().len(), 3);
}

/// The other one holds it, and only then is it let go.
#[test]
fn who_leaves_hands_over_at_once_and_without_a_gap() {
    let mut net = Net::of(&["a", "b"], 20);
    let had = net.held("a");
    net.log.clear();
    net.give("a", Input::Leave);
    assert_eq!(net.held("b").len(), 20);
    assert_eq!(net.log.last(), Some(&(id("a"), Output::Left)));
    let changes = net.changes();
    for address in had {
        let hold = changes
            .iter()
            .position(|change| *change == (id("b"), Output::Hold(address)))
            .unwrap();
        let release = changes
            .iter()
            .position(|change| *change == (id("a"), Output::Release(address)))
            .unwrap();
        assert!(hold < release);
    }
}

#[test]
fn nobody_to_hand_over_to_is_no_reason_to_stay() {
    let mut net = Net::of(&["a"], 3);
    assert_eq!(net.held("a").len(), 3);
    net.give("a", Input::Leave);
    assert_eq!(
        (net.held("a").len(), net.log.last()),
        (0, Some(&(id("a"), Output::Left)))
    );
    assert_eq!(net.speaker("a").deadline(), None);
}

#[test]
fn who_did_not_run_for_long_lets_go_before_anything_else() {
    let mut net = Net::of(&["a", "b"], 20);
    assert!(net.speaker("a").is_awake(net.now));
    net.now += 401 * MS;
    assert!(!net.speaker("a").is_awake(net.now));
    let had = net.held("a").len();
    let outputs = net.speakers[0].handle(net.now, Input::Tick);
    assert!(
        outputs[..had]
            .iter()
            .all(|output| matches!(output, Output::Release(_))),
        "{outputs:?}"
    );
    assert!(net.held("a").is_empty());
    net.run(1000);
    assert_eq!(net.held("a").len() + net.held("b").len(), 20);
}

/// Packets pass one way only: a node that is not heard learns that others share out addresses
/// without it.
#[test]
fn who_is_not_heard_gives_way() {
    let mut net = Net::of(&["a", "b"], 20);
    assert!(!net.held("a").is_empty());
    net.mute.insert(id("a"));
    net.run(500);
    assert_eq!((net.held("a").len(), net.held("b").len()), (0, 20));
    net.mute.clear();
    net.run(500);
    assert!(!net.held("a").is_empty());
    assert_eq!(net.held("a").len() + net.held("b").len(), 20);
}

#[test]
fn what_was_said_before_counts_for_nothing() {
    let mut net = Net::of(&["a", "b"], 20);
    let old = net.speakers[1]
        .heartbeat(id("a"), net.speakers[1].stamp)
        .unwrap();
    net.deaf.insert(id("b"));
    net.run(1000);
    assert_eq!(net.held("a").len(), 20);
    let earlier = Heartbeat {
        incarnation: 0,
        stamp: old.stamp + 5_000_000,
        ..old.clone()
    };
    for replayed in [&old, &earlier] {
        net.give("a", Input::Heard(replayed));
        assert_eq!(net.speaker("a").members(), [id("a")], "it is not back");
    }
    let for_another = Heartbeat {
        to: id("c"),
        stamp: old.stamp + 5_000_000,
        ..old.clone()
    };
    let from_nobody = Heartbeat {
        from: id("x"),
        stamp: old.stamp + 5_000_000,
        ..old
    };
    for other in [for_another, from_nobody] {
        net.give("a", Input::Heard(&other));
        assert_eq!(net.speaker("a").members(), [id("a")]);
    }
}

/// A process whose clock on the wall went back has a lesser incarnation, but it knows what was said
/// just now.
#[test]
fn a_new_process_is_believed_whatever_its_incarnation() {
    let mut net = Net::of(&["a", "b"], 20);
    let peers: BTreeSet<NodeId> = [id("a"), id("b")].into();
    net.speakers[1] = Speaker::new(id("b"), 0, Timing::default());
    net.give("b", Input::Peers(peers));
    net.give("b", Input::Shares(addresses(20)));
    net.run(1500);
    assert_eq!(net.held("a").len() + net.held("b").len(), 20);
    assert_eq!(net.speaker("a").members().len(), 2);
}

#[test]
fn only_nodes_that_may_have_an_address_have_it() {
    let mut net = Net::of(&["a", "b", "c"], 0);
    let only = |name: &str| {
        Some(Share {
            nodes: Some([id(name)].into()),
            links: 0,
        })
    };
    for name in ["a", "b", "c"] {
        net.give(
            name,
            Input::Shares(vec![
                (address(1), only("b")),
                (
                    address(2),
                    Some(Share {
                        nodes: Some([].into()),
                        links: 0,
                    }),
                ),
            ]),
        );
    }
    net.run(300);
    assert_eq!(net.held("b"), [address(1)].into());
    for name in ["c", "b", "a"] {
        net.give(name, Input::Shares(vec![(address(1), only("c"))]));
    }
    assert_eq!(
        (net.held("b").len(), net.held("c")),
        (0, [address(1)].into()),
        "it moves at once"
    );
    for name in ["a", "b", "c"] {
        net.give(name, Input::Shares(vec![(address(1), None)]));
    }
    assert!(net.held("c").is_empty());
}

#[test]
fn who_lacks_the_link_does_not_get_the_address() {
    let mut net = Net::of(&["a", "b"], 0);
    for name in ["a", "b"] {
        net.give(
            name,
            Input::Shares(
                (0..20)
                    .map(|n| {
                        (
                            address(n),
                            Some(Share {
                                nodes: None,
                                links: 7,
                            }),
                        )
                    })
                    .collect(),
            ),
        );
    }
    net.run(500);
    assert!(!net.held("a").is_empty() && !net.held("b").is_empty());
    net.give(
        "a",
        Input::Links {
            lacks: vec![7],
            macs: vec![],
        },
    );
    assert_eq!((net.held("a").len(), net.held("b").len()), (0, 20));
}

#[test]
fn who_is_not_one_of_the_nodes_has_nothing() {
    let mut net = Net::of(&["a", "b"], 20);
    net.give("a", Input::Peers([id("b")].into()));
    net.give("b", Input::Peers([id("b")].into()));
    assert_eq!((net.held("a").len(), net.held("b").len()), (0, 20));
}

#[test]
fn an_address_that_a_stranger_has_is_not_taken_before_it_is_free() {
    let mut net = Net::of(&["a"], 0);
    let stranger = [2, 0, 0, 0, 9, 9];
    net.give(
        "a",
        Input::Shares(vec![(address(1), Some(Share::default()))]),
    );
    assert_eq!(net.log.last(), Some(&(id("a"), Output::Probe(address(1)))));
    net.give(
        "a",
        Input::Claimed {
            address: address(1),
            by: stranger,
        },
    );
    let conflict = Conflict {
        address: address(1),
        by: stranger,
        held: false,
    };
    assert_eq!(net.log.last(), Some(&(id("a"), Output::Conflict(conflict))));
    net.run(9000);
    assert!(net.held("a").is_empty());
    net.run(2000);
    assert_eq!(
        net.held("a").len(),
        1,
        "it was asked for again, and nobody answered"
    );
}

/// The node that was to have it had found that, and could not have it either.
#[test]
fn an_address_that_a_stranger_has_is_left_alone_also_by_who_comes_next() {
    let mut net = Net::of(&["a", "b"], 0);
    let stranger = [2, 0, 0, 0, 9, 9];
    for name in ["a", "b"] {
        net.give(
            name,
            Input::Shares(vec![(address(1), Some(Share::default()))]),
        );
    }
    let asked = |net: &Net| {
        net.log
            .iter()
            .rev()
            .find_map(|(node, what)| (*what == Output::Probe(address(1))).then_some(*node))
    };
    let first = if asked(&net) == Some(id("a")) {
        "a"
    } else {
        "b"
    };
    let second = if first == "a" { "b" } else { "a" };
    net.give(
        first,
        Input::Claimed {
            address: address(1),
            by: stranger,
        },
    );
    net.run(1000);
    net.log.clear();
    net.deaf.insert(id(first));
    net.run(500);
    assert_eq!(asked(&net), Some(id(second)), "it is asked for once more");
    net.give(
        second,
        Input::Claimed {
            address: address(1),
            by: stranger,
        },
    );
    assert!(net.held(second).is_empty());
    net.run(9000);
    assert!(net.held(second).is_empty());
}

#[test]
fn an_address_that_is_ours_is_defended_and_kept() {
    let mut net = Net::of(&["a", "b"], 1);
    let owner = if net.held("a").is_empty() { "b" } else { "a" };
    net.log.clear();
    for _ in 0..50 {
        net.give(
            owner,
            Input::Claimed {
                address: address(0),
                by: [2, 0, 0, 0, 9, 9],
            },
        );
        net.run(100);
    }
    let told = net
        .log
        .iter()
        .filter(|(_, output)| matches!(output, Output::Conflict(_)))
        .count();
    let defended = net
        .log
        .iter()
        .filter(|(_, output)| matches!(output, Output::Announce(_)))
        .count();
    assert_eq!(
        (told, defended, net.held(owner).len()),
        (1, 1, 1),
        "once in ten seconds"
    );
    net.log.clear();
    net.give(
        owner,
        Input::Claimed {
            address: address(0),
            by: [2, 0, 0, 0, 0, 0],
        },
    );
    net.give(
        owner,
        Input::Claimed {
            address: address(0),
            by: [2, 0, 0, 0, 0, 1],
        },
    );
    assert_eq!(net.log, [], "that was a member");
}

/// Thousands of addresses cost heartbeats nothing, and a node that comes or goes little.
#[test]
fn heartbeats_are_small_whatever_there_is_to_share_out() {
    let mut net = Net::of(&["a", "b", "c"], 10_000);
    net.run(10_000);
    let held: usize = ["a", "b", "c"]
        .iter()
        .map(|name| net.held(name).len())
        .sum();
    assert_eq!(held, 10_000);
    let speaker = net.speaker("a");
    assert_eq!(
        speaker
            .heartbeat(id("b"), speaker.stamp)
            .unwrap()
            .emit()
            .len(),
        70
    );
}
