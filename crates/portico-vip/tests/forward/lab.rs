//! Three masters with an API server each (which says who it is), a pod on the first, a host
//! outside, and a virtual address that the first master has. Every master forwards.

use portico_testbed::{Ask as _, Echo as _};
use portico_testbed::{Failure, Flow, Host, Protocol, Route, Testbed};
use portico_vip::forward::{Applied, ForwardSettings, Forwarding, HaproxySettings, Wanted};
use portico_vip::servers::Server;
use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::process::Command;
use std::time::Duration;

pub(crate) const PORT: u16 = 6443;
pub(crate) const MASTERS: [&str; 3] = ["master1", "master2", "master3"];

pub(crate) struct Lab {
    pub outside: Host,
    pub pod: Host,
    pub masters: Vec<Host>,
    _bed: Testbed,
}

/// One of the masters, counted from one.
pub(crate) fn master(number: usize, v6: bool) -> IpAddr {
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

pub(crate) fn cluster_ip(v6: bool) -> SocketAddr {
    if v6 {
        "[fd00:10:244:ff::1]:443"
    } else {
        "10.244.255.1:443"
    }
    .parse()
    .unwrap()
}

/// Settings that know nobody: what else is on this machine uses the usual folders.
pub(crate) fn alone() -> ForwardSettings {
    let nowhere = "/nonexistent/portico";
    let haproxy = HaproxySettings {
        folder: nowhere.into(),
        ..HaproxySettings::default()
    };
    ForwardSettings {
        static_services: nowhere.into(),
        haproxy,
        ..ForwardSettings::default()
    }
}

/// All masters serve, these of them in good health; the others do not answer.
pub(crate) fn wanted(healthy: &[usize]) -> Wanted {
    let server = |v6: bool| {
        let at = move |n| SocketAddr::new(master(n, v6), PORT);
        let health = |n| (healthy.contains(&n), !healthy.contains(&n));
        (1..=3)
            .map(move |n| (at(n), health(n)))
            .map(|(address, (healthy, gone))| Server {
                address,
                healthy,
                gone,
            })
    };
    Wanted {
        addresses: vec![vip(false).ip(), vip(true).ip()],
        port: PORT,
        servers: server(false).chain(server(true)).collect(),
        cluster: vec![cluster_ip(false), cluster_ip(true)],
        closing: false,
    }
}

impl Lab {
    pub(crate) fn new() -> Self {
        let bed = Testbed::new().unwrap();
        let [switch, outside, pod] =
            ["switch", "outside", "pod"].map(|name| bed.host(name).unwrap());
        let masters: Vec<Host> = MASTERS.iter().map(|name| bed.host(name).unwrap()).collect();
        switch.bridge("br0").unwrap();
        let plug = |host: &Host, v4: String, v6: String| {
            host.cable_to_switch("eth0", &switch, host.name(), "br0")
                .unwrap();
            host.address("eth0", &format!("{v4}/24")).unwrap();
            host.address("eth0", &format!("{v6}/64")).unwrap();
        };
        plug(&outside, "172.16.64.9".to_owned(), "fd00:64::9".to_owned());
        for (number, host) in (1..).zip(&masters) {
            plug(
                host,
                master(number, false).to_string(),
                master(number, true).to_string(),
            );
            host.sysctl("net/ipv4/ip_forward", "1").unwrap();
            host.sysctl("net/ipv6/conf/all/forwarding", "1").unwrap();
            host.serve(PORT).unwrap();
        }
        let lab = Self {
            outside,
            pod,
            masters,
            _bed: bed,
        };
        lab.build_pod();
        lab.owner()
            .address("eth0", &vip(false).ip().to_string())
            .unwrap();
        lab.owner()
            .address("eth0", &vip(true).ip().to_string())
            .unwrap();
        lab
    }

    pub(crate) fn owner(&self) -> &Host {
        &self.masters[0]
    }

    /// It is known to nobody but its node, so it is masqueraded, or nobody answers.
    fn build_pod(&self) {
        let node = self.owner();
        node.bridge("cni0").unwrap();
        self.pod
            .cable_to_switch("eth0", node, "veth1", "cni0")
            .unwrap();
        for (of_node, of_pod, default) in [
            ("10.244.1.1/24", "10.244.1.11/24", "default"),
            ("fd00:10:244:1::1/64", "fd00:10:244:1::11/64", "default6"),
        ] {
            node.address("cni0", of_node).unwrap();
            self.pod.address("eth0", of_pod).unwrap();
            self.pod
                .route(Route::to(default).via(of_node.split('/').next().unwrap()))
                .unwrap();
        }
    }

    /// Who answers, asked until all of these have, and often enough to hear of others.
    pub(crate) async fn who(
        &self,
        from: &Host,
        to: SocketAddr,
        expected: &BTreeSet<String>,
    ) -> BTreeSet<String> {
        let mut seen = BTreeSet::new();
        for round in 0..200 {
            let answer = from.ask(&Flow::new(Protocol::Tcp, to)).await;
            seen.insert(answer.map_or_else(
                |failure: Failure| failure.to_string(),
                |answer| answer.seen.host,
            ));
            if round >= 8 && seen.is_superset(expected) {
                break;
            }
        }
        seen
    }

    /// From outside, from the pod, from its owner and from another master, in both families.
    pub(crate) async fn check(&self, expected: &[usize], when: &str) {
        let names: BTreeSet<String> = expected
            .iter()
            .map(|number| MASTERS[number - 1].to_owned())
            .collect();
        for v6 in [false, true] {
            for from in [&self.outside, &self.pod, self.owner(), &self.masters[1]] {
                assert_eq!(
                    self.who(from, vip(v6), &names).await,
                    names,
                    "{when}: from {} to {}",
                    from.name(),
                    vip(v6)
                );
            }
        }
    }

    /// A connection from outside through the virtual address to one of the masters.
    pub(crate) async fn connection_to(
        &self,
        name: &str,
        v6: bool,
    ) -> portico_testbed::flow::Conversation {
        for _ in 0..200 {
            let (answer, conversation) = self
                .outside
                .open(&Flow::new(Protocol::Tcp, vip(v6)))
                .await
                .unwrap();
            if answer.seen.host == name {
                return conversation;
            }
        }
        panic!("{name} never answers");
    }
}

/// Runs a program in a host, its output.
pub(crate) fn run(host: &Host, line: &str) -> String {
    let mut words = line.split_whitespace();
    let mut command = Command::new(words.next().unwrap());
    command.args(words);
    host.run(command, "").unwrap()
}

/// What each master runs.
pub(crate) struct Daemons<'a> {
    lab: &'a Lab,
    pub each: Vec<Forwarding>,
    /// Waits until what was applied has sunk in.
    pub settle: Box<dyn Fn() + 'a>,
}

impl<'a> Daemons<'a> {
    pub(crate) fn new(lab: &'a Lab, settings: impl Fn(usize) -> ForwardSettings) -> Self {
        let each = (1..=3)
            .map(|number| Forwarding::new(settings(number)))
            .collect();
        Daemons {
            lab,
            each,
            settle: Box::new(|| ()),
        }
    }

    pub(crate) fn apply(&mut self, wanted: &Wanted) -> Applied {
        let all = self.each.iter_mut().zip(&self.lab.masters);
        let mut applied: Vec<Applied> = all
            .map(|(daemon, host)| host.enter(|| daemon.apply(wanted)).unwrap())
            .collect();
        (self.settle)();
        applied.remove(0)
    }

    pub(crate) fn rules(&mut self) -> Vec<String> {
        self.lab.owner().enter(|| self.each[0].rules()).unwrap()
    }

    pub(crate) fn remove(&mut self) {
        for (daemon, host) in self.each.iter_mut().zip(&self.lab.masters) {
            host.enter(|| daemon.remove()).unwrap();
        }
    }
}

/// The way that every way of forwarding has to go.
pub(crate) async fn go_all_the_way(lab: &Lab, daemons: &mut Daemons<'_>) {
    const SOON: Duration = Duration::from_secs(5);
    daemons.apply(&wanted(&[1, 2, 3]));
    lab.check(&[1, 2, 3], "all healthy").await;

    let mut cut = [
        lab.connection_to("master3", false).await,
        lab.connection_to("master3", true).await,
    ];
    let mut kept = [
        lab.connection_to("master2", false).await,
        lab.connection_to("master1", true).await,
    ];
    let mut unready = wanted(&[1, 2]);
    unready
        .servers
        .iter_mut()
        .for_each(|server| server.gone = false);
    daemons.apply(&unready);
    lab.check(&[1, 2], "one is not ready").await;
    for conversation in &mut cut {
        conversation
            .again(SOON)
            .await
            .expect("it goes on with what it has");
    }
    daemons.apply(&wanted(&[1, 2]));
    lab.check(&[1, 2], "it is gone").await;
    for conversation in &mut cut {
        assert!(
            matches!(
                conversation.again(SOON).await,
                Err(Failure::Reset | Failure::Closed)
            ),
            "it begins anew"
        );
    }
    for conversation in &mut kept {
        conversation
            .again(SOON)
            .await
            .expect("nobody else is disturbed");
    }
    daemons.apply(&wanted(&[1, 2, 3]));
    lab.check(&[1, 2, 3], "it is back").await;
    daemons.apply(&wanted(&[2]));
    lab.check(&[2], "the owner's own is out too").await;
    daemons.apply(&wanted(&[]));
    lab.check(&[1, 2, 3], "none is healthy").await;
    for conversation in &mut kept[..1] {
        conversation
            .again(SOON)
            .await
            .expect("nobody is cut where nobody is better");
    }
}

/// A master that is about to go, for who is on it: what is open goes on, what begins goes to the
/// owner, and nothing is cut at its end.
pub(crate) async fn close_one(lab: &Lab, daemons: &mut Daemons<'_>) {
    const SOON: Duration = Duration::from_secs(5);
    let (host, everybody) = (&lab.masters[1], MASTERS.map(str::to_owned).into());
    daemons.apply(&wanted(&[1, 2, 3]));
    let (_, mut open) = host
        .open(&Flow::new(Protocol::Tcp, vip(false)))
        .await
        .unwrap();
    let closing = Wanted {
        closing: true,
        ..wanted(&[1, 2, 3])
    };
    host.enter(|| daemons.each[1].apply(&closing)).unwrap();
    open.again(SOON).await.expect("it goes on with what it has");
    let rules = host.enter(|| daemons.each[1].rules()).unwrap().join("\n");
    assert!(!rules.contains("172.16.64.58:6443 to"), "{rules}");
    let (_, mut new) = host
        .open(&Flow::new(Protocol::Tcp, vip(false)))
        .await
        .unwrap();
    assert_eq!(
        lab.who(host, vip(false), &everybody).await,
        everybody,
        "through the owner"
    );
    drop(open);
    host.enter(|| daemons.each[1].remove()).unwrap();
    new.again(SOON).await.expect("it is with the owner");
}
