//! Whatever goes wrong, HAProxy goes on: a controller that is killed, nonsense, somebody else at
//! the socket.

use crate::common::eventually;
use crate::common::random::Random;
use crate::load::Loads;
use crate::rig::{PORT, Rig, assert_tidy, get, request};
use portico_providers::{Port, Protocol, Provider};
use std::net::TcpListener;
use std::process::Command;
use std::time::Duration;

#[test]
fn a_controller_that_is_killed_in_the_middle_of_a_change_is_replaced() {
    let rig = Rig::new("");
    let outside = tokio::runtime::Runtime::new().unwrap();
    let endpoints = outside.block_on(rig.endpoints(6));
    let web = |count: usize| {
        request(
            "web",
            80,
            endpoints[..count].iter().map(|endpoint| endpoint.address),
        )
    };
    outside.block_on(async { rig.start().await.ensure(&web(2)).await });
    let loads = outside.block_on(async { Loads::start(rig.frontend(80)) });
    let seed = Random::fresh_seed();
    let mut random = Random::seeded(seed);
    let mut cut = 0;
    for round in 0..12 {
        // All that a controller is dies with its runtime, wherever it stands.
        let doomed = tokio::runtime::Runtime::new().unwrap();
        let pause = Duration::from_micros(random.below(400_000) as u64);
        cut += doomed.block_on(async {
            let running = rig.start().await;
            let (more, other) = (
                web(2 + round % 4),
                request(&format!("other-{round}"), 1000 + round as u16, []),
            );
            let changes = async {
                running.ensure(&more).await;
                running.ensure(&other).await;
                running.haproxy.delete(&other).await.unwrap();
            };
            usize::from(tokio::time::timeout(pause, changes).await.is_err())
        });
        doomed.shutdown_background();
    }
    println!("killed {cut} of 12 times in the middle (seed {seed})");
    outside.block_on(async {
        let running = rig.start().await;
        running.ensure(&web(5)).await;
        for round in 0..12 {
            running
                .haproxy
                .delete(&request(&format!("other-{round}"), 1, []))
                .await
                .unwrap();
        }
        assert_eq!(
            running.haproxy.describe(&web(5)).await.unwrap(),
            Some(running.haproxy.ensure(&web(5)).await.unwrap())
        );
        eventually("five servers", || async {
            (rig.servers().await.len() == 5).then_some(())
        })
        .await;
        assert_eq!(
            rig.config_text().matches("listen portico_").count(),
            1,
            "{}",
            rig.config_text()
        );
        loads.stop().await;
    });
    assert_tidy(rig.path("").as_path());
}

#[tokio::test(flavor = "multi_thread")]
async fn nonsense_is_refused_and_changes_nothing() {
    let rig = Rig::new("");
    let running = rig.start().await;
    let endpoints = rig.endpoints(2).await;
    let addresses = || endpoints.iter().map(|endpoint| endpoint.address);
    running.ensure(&request("web", 80, addresses())).await;
    let loads = Loads::start(rig.frontend(80));
    let before = rig.config_text();
    let mut udp = request("udp", 53, []);
    udp.ports[0].protocol = Protocol::Udp;
    assert_eq!(running.refusal(&udp).await, "ProtocolNotSupported");
    let mut evil = request("evil", 81, []);
    evil.annotations.insert(
        "portico.dev/balance".to_owned(),
        "random\n    server evil 192.0.2.66:1".to_owned(),
    );
    assert_eq!(running.refusal(&evil).await, "InvalidAnnotation");
    assert_eq!(
        running.refusal(&request("a\nglobal", 81, [])).await,
        "InvalidName"
    );
    assert_eq!(
        running.refusal(&request("rival", 80, [])).await,
        "PortTaken"
    );
    assert_eq!(rig.config_text(), before);
    // Another program has the port of one of two that come at once: the other gets what it wants.
    let taken = TcpListener::bind(rig.frontend(82)).unwrap();
    let (blocked, free) = (
        request("blocked", 82, addresses()),
        request("free", 83, addresses()),
    );
    let (refused, ()) = tokio::join!(running.refusal(&blocked), running.ensure(&free));
    assert_eq!(refused, "CannotListen");
    assert!(
        get(rig.address(2), rig.frontend(83)).await.is_some()
            && !rig.config_text().contains("blocked")
    );
    drop(taken);
    running.ensure(&blocked).await;
    assert!(get(rig.address(2), rig.frontend(82)).await.is_some());
    loads.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_somebody_else_does_is_put_right() {
    let rig = Rig::new("");
    let running = rig.start().await;
    let endpoints = rig.endpoints(2).await;
    let web = request("web", 80, endpoints.iter().map(|endpoint| endpoint.address));
    running.ensure(&web).await;
    let section = rig
        .config_text()
        .lines()
        .find_map(|line| line.strip_prefix("listen "))
        .unwrap()
        .split(' ')
        .next()
        .unwrap()
        .to_owned();
    let name = format!("{}_{PORT}", endpoints[0].address.ip());
    rig.ask(&format!("set server {section}/{name} state maint"))
        .await;
    assert_eq!(
        running.haproxy.describe(&web).await.unwrap(),
        None,
        "it is not what it should be"
    );
    running.ensure(&web).await;
    assert_eq!(rig.servers().await.len(), 2);
    assert!(running.haproxy.describe(&web).await.unwrap().is_some());
    // HAProxy dies, and its successor knows what the last one was told.
    let mut more = web.clone();
    more.ports.push(Port {
        port: 81,
        ..web.ports[0].clone()
    });
    running.ensure(&more).await;
    let pid = std::fs::read_to_string(rig.path("haproxy.pid")).unwrap();
    assert!(
        Command::new("kill")
            .args(["-9", pid.trim()])
            .status()
            .unwrap()
            .success()
    );
    eventually("another one answers", || async {
        get(rig.address(2), rig.frontend(81)).await
    })
    .await;
    assert_eq!(rig.servers().await.len(), 4);
}

/// Somebody else runs HAProxy, with a configuration of their own beside ours.
#[tokio::test(flavor = "multi_thread")]
async fn sections_of_others_stay_as_they_are() {
    let rig = Rig::new("run: false");
    let endpoints = rig.endpoints(1).await;
    let theirs = format!(
        "defaults\n  mode tcp\n  timeout client 10s\n  timeout server 10s\n  timeout connect \
         1s\nlisten theirs\n  bind {}\n  server a {}\n",
        rig.frontend(90),
        endpoints[0].address
    );
    std::fs::write(rig.path("theirs.cfg"), &theirs).unwrap();
    let running = rig.start().await;
    let error = running
        .haproxy
        .ensure(&request("web", 80, []))
        .await
        .unwrap_err();
    assert!(
        error.to_string().contains("HAProxy does not answer at"),
        "{error}"
    );
    let mut command = Command::new("haproxy");
    command
        .arg("-W")
        .arg("-D")
        .arg("-S")
        .arg(rig.path("master.sock"))
        .arg("-p")
        .arg(rig.path("haproxy.pid"));
    let started = command
        .arg("-f")
        .arg(rig.path("theirs.cfg"))
        .arg("-f")
        .arg(rig.path("haproxy.cfg"))
        .status()
        .unwrap();
    assert!(started.success());
    eventually("HAProxy answers", || async {
        get(rig.address(2), rig.frontend(90)).await
    })
    .await;
    let loads = Loads::start(rig.frontend(90));
    for round in 0..5 {
        let web = request(
            "web",
            80 + round % 2,
            endpoints.iter().map(|endpoint| endpoint.address),
        );
        running.ensure(&web).await;
        assert!(
            get(rig.address(2), rig.frontend(80 + round % 2))
                .await
                .is_some()
        );
    }
    running
        .haproxy
        .delete(&request("web", 80, []))
        .await
        .unwrap();
    running
        .haproxy
        .delete(&request("web", 80, []))
        .await
        .unwrap();
    loads.stop().await;
    assert_eq!(
        std::fs::read_to_string(rig.path("theirs.cfg")).unwrap(),
        theirs
    );
    assert!(
        rig.ask("show backend").await.contains("theirs") && !rig.config_text().contains("listen")
    );
}
