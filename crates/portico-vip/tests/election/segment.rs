//! A link with hosts on it that elect an owner of an address, and eyes on who has it when.

use portico_testbed::{Host, Testbed};
use portico_vip::election::{Election, Settings, State};
use portico_vrrp::{Config, Role, Version};
use std::net::IpAddr;
use std::process::Command;
use std::time::Duration;
use tokio::sync::watch;

pub(crate) const V4: &str = "10.0.0.100";
pub(crate) const V6: &str = "fd00::100";
pub(crate) const V6_LINK: &str = "fe80::100";
pub(crate) const VRID: u8 = 101;
/// For what takes less than a second when nothing else runs.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);
/// For how long two may have the address, or nobody, when it goes from one that works to another
/// that works: a few milliseconds, and as much again as a busy machine needs to notice. Nobody
/// takes over from silence in that time.
pub(crate) const HAND_OVER: Duration = Duration::from_millis(200);

/// Hosts on one switch; each has `eth0` with `10.0.0.N/24`, `fd00::N/64` and `fe80::N/64`, where N
/// is 1, 2, ….
pub(crate) struct Segment {
    pub hosts: Vec<Host>,
    pub switch: Host,
    _bed: Testbed,
}

impl Segment {
    pub(crate) fn new(hosts: usize) -> Self {
        let bed = Testbed::new().unwrap();
        let switch = bed.host("switch").unwrap();
        switch.bridge("br0").unwrap();
        let mut segment = Self {
            hosts: Vec::new(),
            switch,
            _bed: bed,
        };
        for number in 1..=hosts {
            let host = segment._bed.host(&format!("host{number}")).unwrap();
            host.cable_to_switch("eth0", &segment.switch, &format!("port{number}"), "br0")
                .unwrap();
            for address in [
                format!("10.0.0.{number}/24"),
                format!("fd00::{number}/64"),
                format!("fe80::{number}/64"),
            ] {
                host.address("eth0", &address).unwrap();
            }
            segment.hosts.push(host);
        }
        segment
    }
}

/// Runs `ip` in a host.
pub(crate) fn ip(host: &Host, arguments: &str) -> String {
    let mut command = Command::new("ip");
    command.args(arguments.split_whitespace());
    host.run(command, "").unwrap()
}

/// How the hosts talk in a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Dialect {
    pub version: Version,
    pub v6: bool,
    pub unicast: bool,
}

pub(crate) const MULTICAST: Dialect = Dialect {
    version: Version::V3,
    v6: false,
    unicast: false,
};

pub(crate) const DIALECTS: [Dialect; 6] = [
    MULTICAST,
    Dialect {
        unicast: true,
        ..MULTICAST
    },
    Dialect {
        v6: true,
        ..MULTICAST
    },
    Dialect {
        v6: true,
        unicast: true,
        ..MULTICAST
    },
    Dialect {
        version: Version::V2,
        ..MULTICAST
    },
    Dialect {
        version: Version::V2,
        unicast: true,
        ..MULTICAST
    },
];

impl Dialect {
    /// As short as can be told without keeping a loaded machine from it.
    pub(crate) fn interval(self) -> Duration {
        match self.version {
            Version::V2 => Duration::from_secs(1),
            Version::V3 => Duration::from_millis(100),
        }
    }

    pub(crate) fn addresses(self) -> Vec<IpAddr> {
        let addresses: &[&str] = if self.v6 { &[V6_LINK, V6] } else { &[V4] };
        addresses
            .iter()
            .map(|address| address.parse().unwrap())
            .collect()
    }

    /// The address of host 1, 2, … that it sends from.
    pub(crate) fn own(self, number: usize) -> IpAddr {
        let text = if self.v6 {
            format!("fe80::{number}")
        } else {
            format!("10.0.0.{number}")
        };
        text.parse().unwrap()
    }

    /// Of one of two hosts, or of more with multicast.
    pub(crate) fn settings(self, number: usize, priority: u8) -> Settings {
        let router = Config {
            version: self.version,
            vrid: VRID,
            addresses: self.addresses(),
            own: self.own(number),
            priority,
            interval: self.interval(),
            preempt: true,
            least_hops: Config::usual_least_hops(self.own(number)),
            preempt_delay: Duration::ZERO,
            password: None,
            peers: if self.unicast {
                vec![self.own(3 - number)]
            } else {
                Vec::new()
            },
        };
        Settings {
            router,
            auth: None,
            interface: "eth0".to_owned(),
            prefix: if self.v6 { 128 } else { 32 },
            announcements: 3,
            announcement_gap: Duration::from_millis(50),
            announce_every: None,
            virtual_mac: false,
        }
    }

    /// Takes part on host 1, 2, ….
    pub(crate) fn start(self, segment: &Segment, number: usize, priority: u8) -> Election {
        start(&segment.hosts[number - 1], self.settings(number, priority))
    }
}

pub(crate) fn start(host: &Host, settings: Settings) -> Election {
    host.enter(|| Election::start(settings)).unwrap()
}

/// Waits for a state that fits, and returns it.
pub(crate) async fn until(
    mut state: watch::Receiver<State>,
    what: &str,
    fits: impl Fn(&State) -> bool,
) -> State {
    let found = tokio::time::timeout(PATIENCE, state.wait_for(|state| fits(state))).await;
    let found = found.map(|found| found.expect("the election runs").clone());
    found.unwrap_or_else(|_| panic!("not {what}: {:#?}", *state.borrow()))
}

pub(crate) async fn until_role(election: &Election, role: Role) -> State {
    until(election.state(), &format!("{role:?}"), |state| {
        state.role == role
    })
    .await
}

/// What `ip` shows of an address on a link of a host, or nothing.
pub(crate) fn shown(host: &Host, link: &str, address: &str) -> String {
    let all = ip(host, &format!("-o addr show dev {link}"));
    all.lines()
        .find(|line| line.contains(&format!(" {address}/")))
        .unwrap_or_default()
        .to_owned()
}

/// Waits until something is so.
pub(crate) async fn eventually(what: &str, is_so: impl Fn() -> bool) {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while !is_so() {
        assert!(tokio::time::Instant::now() < deadline, "not {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
