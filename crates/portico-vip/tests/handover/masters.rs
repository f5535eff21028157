//! Two masters that share an address and do what the daemon does, a third server, and a client, on
//! one switch.

use portico_testbed::{Host, Testbed};
use portico_vip::election::{Election, Settings, State};
use portico_vip::forward::{ForwardSettings, Forwarding, Mode, Wanted};
use portico_vip::handover::{self, Handover};
use portico_vip::servers::Server;
use portico_vrrp::{Config, Role, Version};
use std::net::{IpAddr, SocketAddr};
use std::process::Command;
use std::time::Duration;

pub(crate) const PORT: u16 = 6443;
/// For what takes less than a second when nothing else runs.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);
pub(crate) const RELAY_FOR: Duration = Duration::from_secs(300);
/// Longer than any request.
const DRAIN: Duration = Duration::from_millis(500);

pub(crate) struct Lab {
    pub client: Host,
    pub switch: Host,
    pub servers: Vec<Host>,
    _bed: Testbed,
}

/// Of the servers, counted from one; the first two are the masters.
pub(crate) fn address(number: usize, v6: bool) -> IpAddr {
    let text = if v6 {
        format!("fd00:64::3{number}")
    } else {
        format!("172.16.64.3{number}")
    };
    text.parse().unwrap()
}

pub(crate) fn vip(v6: bool) -> SocketAddr {
    let address: IpAddr = if v6 { "fd00:64::58" } else { "172.16.64.58" }
        .parse()
        .unwrap();
    SocketAddr::new(address, PORT)
}

impl Lab {
    pub(crate) fn new() -> Self {
        let bed = Testbed::new().unwrap();
        let [switch, client] = ["switch", "client"].map(|name| bed.host(name).unwrap());
        switch.bridge("br0").unwrap();
        let plug = |host: &Host, v4: String, v6: String| {
            host.cable_to_switch("eth0", &switch, host.name(), "br0")
                .unwrap();
            host.address("eth0", &format!("{v4}/24")).unwrap();
            host.address("eth0", &format!("{v6}/64")).unwrap();
        };
        plug(&client, "172.16.64.9".to_owned(), "fd00:64::9".to_owned());
        let servers: Vec<Host> = (1..=3)
            .map(|number| bed.host(&format!("server{number}")).unwrap())
            .collect();
        for (number, host) in (1..).zip(&servers) {
            plug(
                host,
                address(number, false).to_string(),
                address(number, true).to_string(),
            );
            // As strict as hosts are.
            for (setting, value) in [
                ("net/ipv4/ip_forward", "1"),
                ("net/ipv6/conf/all/forwarding", "1"),
                ("net/ipv4/conf/all/rp_filter", "1"),
                ("net/ipv4/conf/eth0/rp_filter", "1"),
                ("net/ipv4/conf/all/send_redirects", "1"),
                ("net/ipv4/conf/eth0/send_redirects", "1"),
            ] {
                host.sysctl(setting, value).unwrap();
            }
        }
        Self {
            client,
            switch,
            servers,
            _bed: bed,
        }
    }
}

/// Runs a program in a host, its output; nothing if it fails.
pub(crate) fn run(host: &Host, line: &str) -> String {
    let mut words = line.split_whitespace();
    let mut command = Command::new(words.next().unwrap());
    command.args(words);
    host.run(command, "").unwrap_or_default()
}

pub(crate) fn forwarding() -> Forwarding {
    Forwarding::new(ForwardSettings {
        mode: Mode::Direct,
        ..ForwardSettings::default()
    })
}

pub(crate) fn wanted(v6: bool) -> Wanted {
    let server = |number| Server {
        address: SocketAddr::new(address(number, v6), PORT),
        healthy: true,
        gone: false,
    };
    Wanted {
        addresses: vec![vip(v6).ip()],
        port: PORT,
        servers: (1..=3).map(server).collect(),
        cluster: Vec::new(),
        closing: false,
    }
}

pub(crate) fn election(number: usize, v6: bool, priority: u8) -> Settings {
    let router = Config {
        version: Version::V3,
        vrid: 59,
        addresses: vec![vip(v6).ip()],
        own: address(number, v6),
        priority,
        interval: Duration::from_millis(100),
        preempt: true,
        least_hops: 255,
        preempt_delay: Duration::ZERO,
        password: None,
        peers: Vec::new(),
    };
    Settings {
        router,
        auth: None,
        interface: "eth0".to_owned(),
        prefix: if v6 { 128 } else { 24 },
        announcements: 3,
        announcement_gap: Duration::from_millis(50),
        announce_every: None,
        virtual_mac: false,
    }
}

/// What runs on a master.
pub(crate) struct Master {
    pub host: Host,
    /// With the hardware address of the virtual router.
    pub virtual_mac: bool,
    number: usize,
    v6: bool,
    relay_for: Duration,
    forwarding: Forwarding,
    running: Option<(Election, Handover)>,
}

impl Master {
    pub(crate) fn new(lab: &Lab, number: usize, v6: bool, relay_for: Duration) -> Self {
        let host = lab.servers[number - 1].clone();
        Self {
            host,
            virtual_mac: false,
            number,
            v6,
            relay_for,
            forwarding: forwarding(),
            running: None,
        }
    }

    pub(crate) fn own(&self) -> IpAddr {
        address(self.number, self.v6)
    }

    pub(crate) fn start(&mut self, priority: u8) {
        let wanted = wanted(self.v6);
        let settings = Settings {
            virtual_mac: self.virtual_mac,
            ..election(self.number, self.v6, priority)
        };
        let over = handover::Settings {
            interface: "eth0".to_owned(),
            frontends: vec![vip(self.v6)],
            relay_for: self.relay_for,
        };
        let Self {
            host, forwarding, ..
        } = self;
        self.running = Some(tokio::task::block_in_place(|| {
            host.enter(|| {
                forwarding.apply(&wanted).unwrap();
                let election = Election::start(settings).unwrap();
                let handover = Handover::start(over, election.state()).unwrap();
                (election, handover)
            })
        }));
    }

    fn parts(&self) -> &(Election, Handover) {
        self.running.as_ref().expect("it runs")
    }

    pub(crate) fn set_priority(&self, priority: u8) {
        self.parts().0.set_priority(priority);
    }

    /// To whom it sends what it does not know, as an owner.
    pub(crate) async fn until_relaying(&self, to: Option<IpAddr>) {
        let relaying = || self.parts().1.relaying().to.map(|(to, _)| to);
        eventually(&format!("relaying to {to:?}"), || relaying() == to).await;
    }

    pub(crate) async fn until(&self, what: &str, fits: impl Fn(&State) -> bool) -> State {
        let mut state = self.parts().0.state();
        let found = tokio::time::timeout(PATIENCE, state.wait_for(|state| fits(state))).await;
        let found = found.map(|found| found.unwrap().clone());
        found.unwrap_or_else(|_| {
            panic!("{} is not {what}: {:#?}", self.host.name(), *state.borrow())
        })
    }

    pub(crate) async fn until_owner(&self) -> State {
        self.until("owner", |state| state.role == Role::Owner).await
    }

    /// It stands by, and is ready for a hand-over of this owner.
    pub(crate) async fn until_ready(&self, owner: IpAddr) {
        self.until("standby", |state| {
            state.role == Role::Standby && state.owner == Some(owner)
        })
        .await;
        if !self.relay_for.is_zero() {
            eventually("ready for a hand-over", || {
                self.rules().contains(&format!("dup to {owner}"))
            })
            .await;
        }
    }

    /// Those of the hand-over.
    pub(crate) fn rules(&self) -> String {
        let family = if self.v6 { "ip6" } else { "ip" };
        run(
            &self.host,
            &format!("nft list table {family} portico-vip-handover"),
        )
    }

    /// Packets that were sent on, as long as it is to the same host.
    pub(crate) fn relayed(&self) -> u64 {
        let rules = self.rules();
        let count = rules
            .split("packets ")
            .nth(1)
            .and_then(|rest| rest.split(' ').next());
        count.map_or(0, |count| count.parse().unwrap())
    }

    /// As it is when the daemon is asked to end.
    pub(crate) async fn stop(&mut self) {
        let (election, handover) = self.running.take().unwrap();
        election.release().await;
        let closing = Wanted {
            closing: true,
            ..wanted(self.v6)
        };
        tokio::task::block_in_place(|| self.host.enter(|| self.forwarding.apply(&closing)))
            .unwrap();
        tokio::time::sleep(DRAIN).await;
        handover.end().await;
        tokio::task::block_in_place(|| self.host.enter(|| self.forwarding.remove())).unwrap();
    }
}

/// Waits until something is so.
pub(crate) async fn eventually(what: &str, is_so: impl Fn() -> bool) {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while !tokio::task::block_in_place(&is_so) {
        assert!(tokio::time::Instant::now() < deadline, "not {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
