//! VRRP: any packet is an advert or is refused, and a router lives through any inputs at any time.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use portico_vrrp::{Advert, Config, Input, Output, Role, Router, Version, packet};

use crate::body::damaged;
use crate::common::random::Random;

/// Inputs for one router, before there is another.
const INPUTS: usize = 300;

#[test]
fn any_packet_and_any_input_is_lived_through() {
    let seed = crate::variable("PORTICO_FUZZ_SEED").unwrap_or(1);
    let seconds = crate::variable("PORTICO_FUZZ_SECONDS")
        .unwrap_or(20)
        .div_ceil(10);
    println!("PORTICO_FUZZ_SEED={seed}");
    let mut random = Random::seeded(seed);
    let end = Instant::now() + Duration::from_secs(seconds);
    let (mut accepted, mut refused) = (0, 0);
    while Instant::now() < end {
        let config = config(&mut random);
        let mut watched = Watched {
            router: Router::new(config),
            has_address: false,
            now: Duration::from_secs(1),
        };
        for _ in 0..INPUTS {
            let outputs = watched.step(&mut random);
            accepted += outputs
                .iter()
                .filter(|output| matches!(output, Output::Heard { .. }))
                .count();
            refused += outputs
                .iter()
                .filter(|output| matches!(output, Output::Ignored { .. }))
                .count();
        }
    }
    println!("{accepted} packets taken, {refused} refused");
    assert!(
        accepted > 1000 && refused > 1000,
        "{accepted} packets taken, {refused} refused"
    );
}

fn ip(v6: bool, last: u8) -> IpAddr {
    if v6 {
        IpAddr::from([0xfe80, 0, 0, 0, 0, 0, 0, last.into()])
    } else {
        IpAddr::from([192, 0, 2, last])
    }
}

/// Also such as [`Config::check`] would refuse.
fn config(random: &mut Random) -> Config {
    let v6 = random.one_in(3);
    let version = if random.one_in(3) {
        Version::V2
    } else {
        Version::V3
    };
    Config {
        version,
        vrid: 59,
        addresses: (0..random.below(4)).map(|n| ip(v6, 50 + n as u8)).collect(),
        own: ip(v6, 5),
        priority: random.next() as u8,
        interval: *random.pick(&[0, 10, 100, 1000, 1000, 40_950, 1_000_000])
            * Duration::from_millis(1),
        preempt: random.one_in(2),
        least_hops: 255,
        preempt_delay: *random.pick(&[Duration::ZERO, Duration::from_secs(1), Duration::MAX]),
        password: random.one_in(4).then_some(*b"password"),
        peers: (0..random.below(3)).map(|n| ip(v6, 6 + n as u8)).collect(),
    }
}

/// A router, and the address that it has put on the link.
struct Watched {
    router: Router,
    has_address: bool,
    now: Duration,
}

impl Watched {
    fn step(&mut self, random: &mut Random) -> Vec<Output> {
        self.pass_time(random);
        let (from, to, hops, payload) = packet(random, self.router.config());
        let input = match random.below(40) {
            0..5 => Input::Start,
            5..15 => Input::Tick,
            15 => Input::LinkDown,
            16 | 17 => Input::LinkUp,
            18 => Input::Priority(random.next() as u8),
            19 => Input::Claimed {
                address: from,
                by: [2; 6],
            },
            20 => Input::Claimed {
                address: ip(from.is_ipv6(), 50),
                by: [2; 6],
            },
            21 => Input::Release,
            _ => Input::Packet {
                from,
                to,
                hops,
                payload: &payload,
            },
        };
        let tick = input == Input::Tick;
        let before = self.router.clone();
        let outputs = self.router.handle(self.now, input.clone());
        self.apply(&outputs);
        let owner = self.router.role() == Role::Owner;
        assert_eq!(
            owner, self.has_address,
            "{before:?} at {:?}: {input:?}: {outputs:?}",
            self.now
        );
        let awaited = self
            .router
            .deadline()
            .is_none_or(|deadline| deadline > self.now);
        assert!(
            awaited || !tick,
            "a tick that calls for another at once: {:?} at {:?}",
            self.router,
            self.now
        );
        outputs
    }

    /// Mostly to the next deadline, sometimes far beyond.
    fn pass_time(&mut self, random: &mut Random) {
        let deadline = self.router.deadline().unwrap_or_default();
        match random.below(10) {
            0..4 => self.now = self.now.max(deadline),
            4..9 => self.now += Duration::from_micros(random.next() % 200_000),
            _ => self.now += Duration::from_millis(random.next() % 100_000),
        }
    }

    fn apply(&mut self, outputs: &[Output]) {
        for output in outputs {
            match output {
                Output::Take { .. } => self.has_address = true,
                Output::Drop => self.has_address = false,
                _ => {}
            }
        }
    }
}

/// A packet that could be right, or nearly is, or is nothing.
fn packet(random: &mut Random, config: &Config) -> (IpAddr, IpAddr, u8, Vec<u8>) {
    let from = ip(config.own.is_ipv6(), 5 + random.below(5) as u8);
    let to = if config.peers.is_empty() != random.one_in(10) {
        packet::group(config.own)
    } else {
        config.own
    };
    let hops = if random.one_in(20) {
        random.next() as u8
    } else {
        packet::HOPS
    };
    let (wrong, any) = (random.one_in(10), random.next() as u8);
    let advert = Advert {
        version: if wrong { Version::V2 } else { config.version },
        vrid: if random.one_in(20) {
            random.next() as u8
        } else {
            config.vrid
        },
        priority: *random.pick(&[0, 1, 100, config.priority, any, 255]),
        interval: if random.one_in(4) {
            Duration::from_millis(random.next() % 50_000)
        } else {
            config.interval
        },
        addresses: config.addresses.clone(),
        password: if random.one_in(10) {
            None
        } else {
            config.password
        },
    };
    let payload = match random.below(10) {
        0 => (0..random.below(64)).map(|_| random.next() as u8).collect(),
        1..4 => damaged(random, advert.encode(from, to)),
        _ => advert.encode(from, to),
    };
    if let Ok(read) = Advert::decode(&payload, from, to) {
        assert_eq!(Advert::decode(&read.encode(from, to), from, to), Ok(read));
    }
    (from, to, hops, payload)
}
