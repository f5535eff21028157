//! Faults, caused: forwarding of untouched Services never blinks, and the table converges.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "faults/balancer.rs"]
mod balancer;
#[path = "common/mod.rs"]
mod common;
#[path = "faults/rig.rs"]
mod rig;

use balancer::Balancer;
use common::Store;
use portico_testbed::Ask as _;
use portico_testbed::{Flow, Protocol};
use rig::{
    PODS, Rig, SERVICES, SLICES, STEADY, on_a_node, on_a_node_with, second_server, service, slice,
};
use serde_json::json;
use std::time::{Duration, Instant};

/// How long the API server stays away (the default keeps the tests quick; nothing depends on it).
fn absence() -> Duration {
    let seconds = std::env::var("PORTICO_TEST_ABSENCE")
        .ok()
        .and_then(|text| text.parse().ok());
    Duration::from_secs(seconds.unwrap_or(4))
}

async fn the_api_server_comes_back_with_other_content(rig: &mut Rig) {
    rig.service("goes", "10.96.1.1", &[1]).await;
    rig.reaches("10.96.1.1:80", &["pod1"]).await;
    let watchman = rig.watchman();
    rig.server.kill();
    let (gone, since) = (absence(), Instant::now());
    while since.elapsed() < gone {
        rig.reaches("10.96.1.1:80", &["pod1"]).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    // Another API server, with a store of its own: other revisions, other objects.
    let data = format!("--data-dir={}", rig.server.dir().join("other").display());
    std::fs::create_dir(rig.server.dir().join("other")).unwrap();
    copy(
        &rig.server.dir().join("data/pki"),
        &rig.server.dir().join("other/pki"),
    );
    // A node that listed the new store before it has the Service that nobody touches would rightly
    // stop forwarding to it.
    rig.freeze();
    rig.server
        .restart(Some(&[
            "--endpoint-slice-controller=false",
            "--new-store",
            &data,
        ]))
        .await;
    rig.set_the_stage().await;
    rig.thaw();
    rig.service("comes", "10.96.1.2", &[0, 1]).await;
    rig.reaches("10.96.1.2:80", &["pod0", "pod1"]).await;
    rig.reaches("10.96.1.1:80", &["-"]).await;
    watchman.saw_nothing();
}

fn copy(from: &std::path::Path, to: &std::path::Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().flatten() {
        std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

#[test]
fn nftables_the_api_server_comes_back_with_other_content() {
    on_a_node("nftables", the_api_server_comes_back_with_other_content);
}

#[test]
fn iptables_the_api_server_comes_back_with_other_content() {
    on_a_node("iptables", the_api_server_comes_back_with_other_content);
}

/// SIGKILL while changes pour in, again and again; each time the next process finishes the work.
async fn killed_in_the_middle_of_a_batch(rig: &mut Rig) {
    for n in 0..40 {
        rig.service(&format!("busy-{n}"), &format!("10.96.2.{}", n + 1), &[0])
            .await;
    }
    rig.reaches("10.96.2.40:80", &["pod0"]).await;
    let watchman = rig.watchman();
    for round in 0..6u64 {
        let pod = usize::from(round % 2 == 0);
        for n in 0..40 {
            rig.endpoints(&format!("busy-{n}"), &[pod]).await;
            if n == 20 + round as usize {
                rig.kill();
                rig.start();
            }
        }
        for address in ["10.96.2.1:80", "10.96.2.21:80", "10.96.2.40:80"] {
            rig.reaches(address, &[["pod0", "pod1"][pod]]).await;
        }
    }
    watchman.saw_nothing();
}

#[test]
fn nftables_killed_in_the_middle_of_a_batch() {
    on_a_node("nftables", killed_in_the_middle_of_a_batch);
}

#[test]
fn iptables_killed_in_the_middle_of_a_batch() {
    on_a_node("iptables", killed_in_the_middle_of_a_batch);
}

/// Nothing changes in the API; the daemon notices by itself.
#[test]
fn nftables_somebody_deletes_what_is_ours() {
    on_a_node("nftables", async |rig| {
        rig.service("other", "10.96.1.1", &[0, 1]).await;
        rig.reaches("10.96.1.1:80", &["pod0", "pod1"]).await;
        rig.run("nft flush chain ip portico services");
        rig.reaches("10.96.1.1:80", &["pod0", "pod1"]).await;
        rig.run("nft delete table ip portico");
        rig.reaches(STEADY, &["pod0"]).await;
        rig.run("nft flush ruleset");
        rig.reaches(STEADY, &["pod0"]).await;
        rig.reaches("10.96.1.1:80", &["pod0", "pod1"]).await;
        // Elements, which no chain tells about.
        rig.run("nft flush map ip portico endpoints");
        rig.reaches("10.96.1.1:80", &["pod0", "pod1"]).await;
    });
}

/// A server that does not answer is left within this time, however alive its connection is.
const HUNG: Duration = Duration::from_secs(15);

/// Its process is frozen: the kernel still acknowledges what it is sent, and accepts connections.
#[test]
fn nftables_an_api_server_that_hangs_is_left_for_another() {
    on_a_node_with(Store::Etcd, "nftables", async |rig| {
        let balancer = Balancer::start(rig.server.port);
        rig.behind(&balancer, true).await;
        let second = second_server(rig.server.etcd().unwrap()).await;
        let watchman = rig.watchman();
        rig.run(&format!("kill -STOP {}", rig.server.pid()));
        let since = Instant::now();
        balancer.lead_to(second.port);
        let slice = slice("new", &[PODS[1].to_owned()]);
        second.admin().post(SLICES, &slice).await.expect(201);
        let service = service("new", "10.96.1.1");
        second.admin().post(SERVICES, &service).await.expect(201);
        rig.reaches("10.96.1.1:80", &["pod1"]).await;
        let took = since.elapsed();
        println!("left the server that hangs after {took:.1?}");
        assert!(took < HUNG, "{took:?}: {}", rig.log());
        assert!(rig.log().contains("cannot follow"), "{}", rig.log());
        watchman.saw_nothing();
    });
}

#[test]
fn nftables_a_connection_that_a_balancer_lost_is_left() {
    on_a_node("nftables", async |rig| {
        let balancer = Balancer::start(rig.server.port);
        rig.behind(&balancer, false).await;
        balancer.lose_connections();
        let since = Instant::now();
        rig.service("new", "10.96.1.1", &[1]).await;
        rig.reaches("10.96.1.1:80", &["pod1"]).await;
        let took = since.elapsed();
        println!("left the connection that was lost after {took:.1?}");
        assert!(took < HUNG, "{took:?}: {}", rig.log());
    });
}

/// One that sends no event and no bookmark for longer than a server may hang.
#[test]
fn nftables_an_api_server_that_is_quiet_is_not_left() {
    // It is asked only after seconds of silence, each time.
    const ASKED: usize = 5;
    // In a cluster of so many nodes each reports once in half a minute.
    const NODES: usize = 300;
    on_a_node("nftables", async |rig| {
        for number in 0..NODES {
            let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": format!("n{number}")}});
            rig.server
                .admin()
                .post("/api/v1/nodes", &node)
                .await
                .expect(201);
        }
        let balancer = Balancer::start(rig.server.port);
        rig.behind(&balancer, false).await;
        let (before, since) = (balancer.answers(), Instant::now());
        let asked = |answers: &[Option<usize>]| {
            let more = |(now, before): (&Option<usize>, &Option<usize>)| {
                now.zip(*before).map_or(0, |(now, before)| now - before)
            };
            answers.iter().zip(&before).map(more).max().unwrap_or(0)
        };
        while asked(&balancer.answers()) < ASKED {
            let answers = balancer.answers();
            assert!(since.elapsed() < 4 * HUNG, "nobody asks: {answers:?}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        println!("the server was quiet for {:.1?}", since.elapsed());
        assert!(since.elapsed() > HUNG, "it was asked too often to tell");
        rig.service("new", "10.96.1.1", &[1]).await;
        rig.reaches("10.96.1.1:80", &["pod1"]).await;
        let open = |answers: Vec<Option<usize>>| -> Vec<bool> {
            answers.iter().map(Option::is_some).collect()
        };
        assert_eq!(open(balancer.answers()), open(before), "other connections");
        assert!(!rig.log().contains("cannot follow"), "{}", rig.log());
    });
}

/// A node that boots while the API server is away forwards what it last knew.
async fn boots_without_an_api_server(rig: &mut Rig) {
    rig.service("kept", "10.96.1.1", &[0, 1]).await;
    rig.reaches("10.96.1.1:80", &["pod0", "pod1"]).await;
    rig.stop();
    rig.server.kill();
    rig.run("nft flush ruleset");
    rig.reaches(STEADY, &["-"]).await;
    rig.start();
    rig.reaches(STEADY, &["pod0"]).await;
    rig.reaches("10.96.1.1:80", &["pod0", "pod1"]).await;
    // And it catches up when the API server is back.
    rig.server.restart(None).await;
    rig.endpoints("kept", &[1]).await;
    rig.reaches("10.96.1.1:80", &["pod1"]).await;
}

#[test]
fn nftables_boots_without_an_api_server() {
    on_a_node("nftables", boots_without_an_api_server);
}

#[test]
fn iptables_boots_without_an_api_server() {
    on_a_node("iptables", boots_without_an_api_server);
}

/// One Service of a thousand ports and one of a thousand endpoints, while others go on.
async fn large_objects(rig: &mut Rig) {
    let watchman = rig.watchman();
    let ports: Vec<_> = (0..1_000)
        .map(|n| json!({"name": format!("p{n}"), "port": 1_000 + n, "protocol": "TCP", "targetPort": 8080}))
        .collect();
    let wide = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "wide"},
                      "spec": {"clusterIP": "10.96.3.1", "ports": ports}});
    let mut endpoints = slice("wide", &[rig::PODS[1].to_owned()]);
    endpoints["ports"] = (0..100)
        .map(|n| json!({"name": format!("p{}", n * 10), "port": 8080, "protocol": "TCP"}))
        .collect();
    rig.api().post(SLICES, &endpoints).await.expect(201);
    rig.api().post(SERVICES, &wide).await.expect(201);
    rig.reaches("10.96.3.1:1000", &["pod1"]).await;
    rig.reaches("10.96.3.1:1990", &["pod1"]).await;
    // A port that no slice serves is refused, not forwarded.
    rig.reaches("10.96.3.1:1991", &["-"]).await;

    let mut many: Vec<String> = (0..999)
        .map(|n| format!("10.244.{}.{}", 100 + n / 250, n % 250 + 1))
        .collect();
    many.push(rig::PODS[1].to_owned());
    rig.api()
        .post(SERVICES, &service("long", "10.96.3.2"))
        .await
        .expect(201);
    rig.api()
        .post(SLICES, &slice("long", &many))
        .await
        .expect(201);
    rig.api()
        .put(&format!("{SLICES}/long-s"), &slice("long", &many[998..]))
        .await
        .expect(200);
    rig.api()
        .put(&format!("{SLICES}/long-s"), &slice("long", &many))
        .await
        .expect(200);
    rig.endpoints("long", &[0, 1]).await;
    rig.reaches("10.96.3.2:80", &["pod0", "pod1"]).await;
    watchman.saw_nothing();
}

#[test]
fn nftables_large_objects() {
    on_a_node("nftables", large_objects);
}

#[test]
fn iptables_large_objects() {
    on_a_node("iptables", large_objects);
}

/// Five hundred changes as fast as they can be made: all of them arrive, and the last is live soon
/// after it was made.
async fn five_hundred_changes(rig: &mut Rig) {
    for n in 0..50 {
        rig.service(&format!("busy-{n}"), &format!("10.96.2.{}", n + 1), &[0])
            .await;
    }
    let watchman = rig.watchman();
    for n in 0..500 {
        rig.endpoints(&format!("busy-{}", n % 50), &[n % 2]).await;
    }
    for (n, pods) in [
        (0usize, ["pod0"]),
        (1, ["pod1"]),
        (48, ["pod0"]),
        (49, ["pod1"]),
    ] {
        rig.reaches(&format!("10.96.2.{}:80", n + 1), &pods).await;
    }
    watchman.saw_nothing();
    assert!(rig.is_running());
}

#[test]
fn nftables_five_hundred_changes() {
    on_a_node("nftables", five_hundred_changes);
}

#[test]
fn iptables_five_hundred_changes() {
    on_a_node("iptables", five_hundred_changes);
}

/// The dataplane is another one after a restart; connections, established or new, do not notice.
#[test]
fn dataplanes_change_places_without_a_blink() {
    on_a_node("nftables", async |rig| {
        rig.service("other", "10.96.1.1", &[0, 1]).await;
        rig.reaches("10.96.1.1:80", &["pod0", "pod1"]).await;
        let watchman = rig.watchman();
        for mode in ["iptables", "nftables", "iptables", "nftables"] {
            rig.stop();
            rig.mode = mode;
            rig.start();
            rig.other_dataplane_is_gone().await;
            rig.reaches("10.96.1.1:80", &["pod0", "pod1"]).await;
        }
        watchman.saw_nothing();
    });
}

/// One that is told to end may write what it knows once more when our rules are in, and what it
/// knows may be old.
#[test]
fn nftables_a_kube_proxy_that_is_still_ending_comes_too_late() {
    const TABLE: &str = "add table ip kube-proxy";
    const CHAIN: &str = "add chain ip kube-proxy nat { type nat hook prerouting priority -110 ; }";
    on_a_node("nftables", async |rig| {
        let rule = format!(
            "add rule ip kube-proxy nat ip daddr 10.96.9.9 tcp dport 80 dnat to {}:8080",
            PODS[1]
        );
        let write = format!("nft {TABLE} ; {CHAIN} ; {rule}");
        rig.stop();
        rig.run(&write);
        rig.reaches(STEADY, &["pod1"]).await;
        rig.start();
        rig.is_gone("kube-proxy", "nft list tables").await;
        rig.run(&write);
        rig.is_gone("kube-proxy", "nft list tables").await;
        rig.reaches(STEADY, &["pod0"]).await;
    });
}

/// The node is late, and the client has its connection all the same: not even its first packet is
/// lost.
#[test]
fn nftables_a_connection_comes_before_its_service() {
    on_a_node("nftables", async |rig| {
        rig.api()
            .post(SLICES, &slice("early", &[PODS[1].to_owned()]))
            .await
            .expect(201);
        rig.freeze();
        rig.api()
            .post(SERVICES, &service("early", "10.96.1.1"))
            .await
            .expect(201);
        let pod = rig.pods[2].clone();
        // Shorter than the first retransmission.
        let patience = Duration::from_millis(900);
        let flow = Flow {
            patience,
            ..Flow::new(Protocol::Tcp, "10.96.1.1:80".parse().unwrap())
        };
        let go_on = async {
            while !rig.somebody_waits() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            rig.thaw();
        };
        let (answer, waited) = tokio::join!(
            pod.ask(&flow),
            tokio::time::timeout(Duration::from_secs(10), go_on)
        );
        assert!(waited.is_ok(), "nobody waits: {}", rig.log());
        assert_eq!(answer.unwrap().seen.host, "pod1", "{}", rig.log());
        let metrics = rig.run("curl -s http://127.0.0.1:10249/metrics");
        assert!(
            metrics.contains("\nportico_early_connections_served_total 1\n"),
            "{metrics}"
        );
    });
}
