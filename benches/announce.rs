//! For how long an address cannot be reached when the node that answers for it at layer 2 is lost.
//!
//! A cluster of three nodes with API server and controller, and a client on their link, in network
//! namespaces. The client asks the address of a Service every 5 ms, each time on a new connection,
//! while the owner's daemon is killed or paused, its cable is pulled, or it is asked to stop. The
//! pod is on a node that is not lost. An outage is the longest time in which nothing was answered;
//! the address has moved when the client's kernel knows another node for it, which it is told and
//! does not ask. `$ROUNDS` (20), `QUICK=1` for 5.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a benchmark may panic and print"
)]

#[path = "outage.rs"]
mod outage;
#[path = "report.rs"]
mod report;
#[path = "../tests/announce/rig.rs"]
mod rig;

use outage::Client;
use portico_testbed::Ask as _;
use portico_testbed::{Flow, Protocol};
use report::{Report, percentile};
use rig::{NEAR, PORT, Rig, service};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

/// Answers in a row after which the address counts as back.
const STEADY: Duration = Duration::from_millis(300);
/// On the link of the nodes.
const CLIENT: &str = "client";
/// The pod is there.
const SAFE: &str = "node3";

/// How an owner is lost.
#[derive(Clone, Copy)]
enum Loss {
    Killed,
    Paused,
    Unplugged,
    Asked,
}

impl Loss {
    const ALL: [Self; 4] = [Self::Killed, Self::Paused, Self::Unplugged, Self::Asked];

    fn name(self) -> &'static str {
        match self {
            Self::Killed => "daemon killed",
            Self::Paused => "daemon paused",
            Self::Unplugged => "node unplugged",
            Self::Asked => "planned hand-over",
        }
    }

    fn happen(self, rig: &mut Rig, node: &str) {
        match self {
            Self::Killed => drop(rig.node(node).kill()),
            Self::Paused => rig.node(node).signal(libc::SIGSTOP),
            Self::Unplugged => rig.cluster.unplug(node).unwrap(),
            Self::Asked => rig.node(node).signal(libc::SIGTERM),
        }
    }

    fn mend(self, rig: &mut Rig, node: &'static str) {
        match self {
            Self::Killed | Self::Asked => rig.start_node(node),
            Self::Paused => rig.node(node).signal(libc::SIGCONT),
            Self::Unplugged => rig.cluster.plug_in(node).unwrap(),
        }
    }
}

fn main() {
    let quick = std::env::var_os("QUICK").is_some();
    let rounds =
        std::env::var("ROUNDS").map_or(if quick { 5 } else { 20 }, |text| text.parse().unwrap());
    let mut rig = Rig::start();
    rig.pool("near", &NEAR[..1], &["Layer2"]);
    let (address, owner) = service_at_another_node(&rig);
    println!("{address} is {owner}'s, {rounds} rounds");
    let host = rig.host(CLIENT).clone();
    let flow = Flow::new(Protocol::Tcp, SocketAddr::new(address, PORT));
    let asking = host.clone();
    let client = Client::start(host, move || {
        let (host, flow) = (asking.clone(), flow.clone());
        async move {
            host.ask(&flow)
                .await
                .map(drop)
                .map_err(|_| io::Error::from(io::ErrorKind::TimedOut))
        }
    });
    let mut report = Report::new("portico");
    for loss in Loss::ALL {
        measure(
            &mut rig,
            &client,
            (address, owner),
            loss,
            rounds,
            &mut report,
        );
    }
    report::print(&[report]);
}

/// A Service whose owner can be lost without its pod.
fn service_at_another_node(rig: &Rig) -> (IpAddr, &'static str) {
    for number in 0.. {
        let name = format!("web{number}");
        let mut objects = service(&name, "Cluster", &["pod3-1"]);
        objects[0]["spec"]["ipFamilyPolicy"] = "SingleStack".into();
        rig.apply(&objects);
        let address = rig.addresses(&name)[0];
        rig.wait_for_answer(CLIENT, address);
        if let Some(owner) = rig.owner(CLIENT, address).filter(|owner| *owner != SAFE) {
            return (address, owner);
        }
    }
    unreachable!("some address is another node's")
}

fn measure(
    rig: &mut Rig,
    client: &Client,
    (address, owner): (IpAddr, &'static str),
    loss: Loss,
    rounds: usize,
    report: &mut Report,
) {
    let (mut outages, mut moves, mut failed, mut sent) = (Vec::new(), Vec::new(), 0, 0);
    for _ in 0..rounds {
        wait_for_owner(rig, address, |now| now == owner);
        client.wait_until_steady(STEADY);
        let from = Instant::now();
        loss.happen(rig, owner);
        wait_for_owner(rig, address, |now| now != owner);
        moves.push(from.elapsed().as_secs_f64() * 1e3);
        client.wait_until_steady(STEADY);
        let window = client.window(from);
        outages.push(window.outage.as_secs_f64() * 1e3);
        failed += window.failed;
        sent += window.sent;
        loss.mend(rig, owner);
    }
    report.add(
        &format!("{}, moved after p50", loss.name()),
        percentile(&mut moves, 50.0),
        "ms",
        false,
    );
    report.add(
        &format!("{}, moved after p99", loss.name()),
        percentile(&mut moves, 99.0),
        "ms",
        false,
    );
    report.add(
        &format!("{}, outage p50", loss.name()),
        percentile(&mut outages, 50.0),
        "ms",
        false,
    );
    report.add(
        &format!("{}, outage p99", loss.name()),
        percentile(&mut outages, 99.0),
        "ms",
        false,
    );
    report.add(
        &format!("{}, failed", loss.name()),
        failed as f64,
        "requests",
        false,
    );
    report.add(
        &format!("{}, sent", loss.name()),
        sent as f64,
        "requests",
        true,
    );
}

/// By the client's kernel.
fn wait_for_owner(rig: &Rig, address: IpAddr, is_it: impl Fn(&str) -> bool) {
    let began = Instant::now();
    while !rig.owner(CLIENT, address).is_some_and(&is_it) {
        assert!(
            began.elapsed() < rig::PATIENCE,
            "the address does not move\n{}",
            rig.logs()
        );
        std::thread::sleep(Duration::from_millis(1));
    }
}
