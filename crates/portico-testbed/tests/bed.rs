//! The bed itself: hosts talk, beds do not see each other, and nothing stays.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use portico_testbed::{Ask as _, Echo as _};
use portico_testbed::{Cluster, Failure, Flow, Host, Protocol, Testbed};
use std::fs;
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

fn two_hosts(bed: &Testbed) -> (Host, Host) {
    let (left, right) = (bed.host("left").unwrap(), bed.host("right").unwrap());
    left.cable("eth0", &right, "eth0").unwrap();
    for (host, last) in [(&left, 1), (&right, 2)] {
        host.address("eth0", &format!("10.0.0.{last}/24")).unwrap();
        host.address("eth0", &format!("fd00::{last}/64")).unwrap();
    }
    (left, right)
}

fn to(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

#[tokio::test]
async fn two_hosts_talk() {
    let bed = Testbed::new().unwrap();
    let (left, right) = two_hosts(&bed);
    right.serve(80).unwrap();
    right.serve_sctp(&[80]).unwrap();
    for protocol in [Protocol::Tcp, Protocol::Udp, Protocol::Sctp] {
        for (address, own) in [("10.0.0.2:80", "10.0.0.1"), ("[fd00::2]:80", "fd00::1")] {
            let answer = left.ask(&Flow::new(protocol, to(address))).await.unwrap();
            assert_eq!(
                (
                    answer.seen.host.as_str(),
                    answer.seen.source.ip().to_string().as_str(),
                    answer.seen.port
                ),
                ("right", own, 80)
            );
            assert_eq!(answer.local.to_string(), own);
        }
        for address in ["10.0.0.2:81", "[fd00::2]:81"] {
            let outcome = left.ask(&Flow::new(protocol, to(address))).await;
            assert_eq!(
                outcome.err(),
                Some(Failure::Refused),
                "{protocol:?} {address}"
            );
        }
    }
    let silence = Flow {
        patience: Duration::from_millis(50),
        ..Flow::new(Protocol::Udp, to("10.0.0.3:80"))
    };
    assert_eq!(left.ask(&silence).await.err(), Some(Failure::Timeout));
}

#[tokio::test]
async fn a_conversation_can_be_kept() {
    let bed = Testbed::new().unwrap();
    let (left, right) = two_hosts(&bed);
    right.serve(80).unwrap();
    for protocol in [Protocol::Tcp, Protocol::Udp] {
        let (first, mut conversation) = left
            .open(&Flow::new(protocol, to("10.0.0.2:80")))
            .await
            .unwrap();
        assert_eq!(
            conversation.again(Duration::from_secs(3)).await,
            Ok(first.seen)
        );
    }
}

#[test]
fn twenty_beds_have_the_same_addresses_at_once() {
    let talk = || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let bed = Testbed::new().unwrap();
            let (left, right) = two_hosts(&bed);
            right.serve(80).unwrap();
            for _ in 0..20 {
                left.ask(&Flow::new(Protocol::Tcp, to("10.0.0.2:80")))
                    .await
                    .unwrap();
            }
        });
    };
    std::thread::scope(|scope| (0..20).for_each(|_| drop(scope.spawn(talk))));
}

#[test]
fn a_program_runs_inside_and_its_failure_is_told() {
    let bed = Testbed::new().unwrap();
    let host = bed.host("alone").unwrap();
    let mut cat = Command::new("cat");
    cat.arg("/proc/self/net/dev");
    assert_eq!(
        host.run(cat, "").unwrap().matches(':').count(),
        1,
        "only lo"
    );
    let error = host.run(Command::new("false"), "").unwrap_err();
    assert!(
        error.to_string().contains("alone: run \"false\""),
        "{error}"
    );
}

/// Whether a process with this in its command line is alive.
fn running(mark: &str) -> bool {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    processes
        .filter_map(|process| fs::read(process.path().join("cmdline")).ok())
        .any(|line| String::from_utf8_lossy(&line).contains(mark))
}

fn eventually(what: &str, mut check: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !check() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// How many network namespaces are alive that this process holds open or lives in, by what `/proc`
/// tells.
fn namespaces_held() -> usize {
    let files = fs::read_dir("/proc/self/fd").unwrap().flatten();
    files
        .filter_map(|file| fs::read_link(file.path()).ok())
        .filter(|path| path.to_string_lossy().starts_with("net:"))
        .count()
}

#[test]
fn nothing_is_left_after_a_panic() {
    // In a process of its own, where nobody else makes namespaces.
    if std::env::var_os("TESTBED_ALONE").is_none() {
        let mut again = Command::new(std::env::current_exe().unwrap());
        again
            .args(["--exact", "nothing_is_left_after_a_panic"])
            .env("TESTBED_ALONE", "1");
        assert!(again.status().unwrap().success());
        return;
    }
    let before = namespaces_held();
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        let bed = Testbed::new().unwrap();
        let (left, right) = two_hosts(&bed);
        right.serve(80).unwrap();
        let mut sleep = Command::new("sleep");
        sleep.arg("86401");
        let _process = left.spawn(sleep).unwrap();
        assert!(namespaces_held() > before && running("86401"));
        panic!("on purpose");
    }));
    assert!(panicked.is_err());
    assert!(!running("86401"));
    eventually("the servers let go of their namespaces", || {
        namespaces_held() == before
    });
}

#[test]
fn nothing_is_left_after_a_kill() {
    if std::env::var_os("TESTBED_KILLED").is_some() {
        let bed = Testbed::new().unwrap();
        let host = bed.host("host").unwrap();
        let mut sleep = Command::new("sleep");
        sleep.arg("86402");
        let _process = std::thread::spawn(move || host.spawn(sleep).unwrap())
            .join()
            .unwrap();
        std::thread::sleep(Duration::from_secs(60));
        return;
    }
    let mut victim = Command::new(std::env::current_exe().unwrap());
    victim
        .args(["--exact", "nothing_is_left_after_a_kill"])
        .env("TESTBED_KILLED", "1");
    let mut victim = victim
        .stdout(Stdio::null())
        .process_group(0)
        .spawn()
        .unwrap();
    eventually("the victim starts its program", || running("86402"));
    victim.kill().unwrap();
    victim.wait().unwrap();
    eventually("its program dies with it", || !running("86402"));
}

#[tokio::test]
async fn a_cluster_is_up_at_once_and_everybody_reaches_everybody() {
    let started = Instant::now();
    let cluster = Cluster::new().unwrap();
    println!("17 hosts are up after {:?}", started.elapsed());
    let hosts = ["pod1-1", "pod3-3", "node1", "node2", "client", "cp"]
        .map(|name| cluster.host(name).unwrap());
    for host in hosts {
        for target in ["pod1-1", "pod1-2", "pod2-3"] {
            for which in ["ip", "ip6"] {
                let address = SocketAddr::new(cluster.addresses.of(target, which).unwrap(), 8080);
                // A client's default route leads to the box that answers everything; the mark leads
                // it through a node.
                let mark = (host.name() == "client").then_some(2);
                for protocol in [Protocol::Tcp, Protocol::Udp, Protocol::Sctp] {
                    let flow = Flow {
                        mark,
                        ..Flow::new(protocol, address)
                    };
                    let answer = host.ask(&flow).await;
                    let answer = answer
                        .unwrap_or_else(|error| panic!("{host:?} {protocol:?} {address}: {error}"));
                    assert_eq!(answer.seen.host, target);
                    assert_eq!(
                        cluster.addresses.owner(answer.seen.source.ip()),
                        Some(host.name()),
                        "{host:?} {address}"
                    );
                }
            }
        }
    }
}

#[tokio::test]
async fn what_nobody_takes_ends_at_the_box_that_answers_everything() {
    let cluster = Cluster::new().unwrap();
    for (host, mark) in [
        ("pod2-1", None),
        ("node3", None),
        ("client", Some(1)),
        ("client", None),
    ] {
        for address in ["203.0.113.7:4711", "[2001:db8:99::7]:4711"] {
            for protocol in [Protocol::Tcp, Protocol::Udp] {
                let flow = Flow {
                    mark,
                    ..Flow::new(protocol, to(address))
                };
                let answer = cluster.host(host).unwrap().ask(&flow).await.unwrap();
                assert_eq!(answer.seen.host, "lb");
                assert_eq!(cluster.addresses.owner(answer.seen.source.ip()), Some(host));
            }
        }
    }
}
