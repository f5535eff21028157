//! Planned moves: not one request fails.

use crate::load::{Load, Outcome, serve};
use crate::masters::{Lab, Master, RELAY_FOR, run, vip};
use portico_vrrp::Reason;
use std::time::Duration;

/// Between two moves.
const REQUESTS: u64 = 100;

/// There and back so often. More for those who measure: `PORTICO_HANDOVERS=10`.
fn rounds() -> usize {
    std::env::var("PORTICO_HANDOVERS")
        .ok()
        .and_then(|count| count.parse().ok())
        .unwrap_or(2)
}

struct Scene {
    lab: Lab,
    /// The first is the owner at the beginning.
    masters: [Master; 2],
}

impl Scene {
    async fn new(v6: bool, relay_for: Duration) -> Self {
        Self::with(v6, relay_for, |_| {}).await
    }

    async fn with(v6: bool, relay_for: Duration, change: impl Fn(&mut Master)) -> Self {
        let lab = Lab::new();
        serve(&lab);
        let mut masters = [1, 2].map(|number| Master::new(&lab, number, v6, relay_for));
        masters.iter_mut().for_each(change);
        masters[0].start(150);
        masters[0].until_owner().await;
        masters[1].start(100);
        masters[1].until_ready(masters[0].own()).await;
        Self { lab, masters }
    }

    /// Another proxy on the masters, whose rules stay when ours go.
    fn beside_a_proxy(&self, v6: bool) {
        let (family, to) = if v6 {
            ("ip6", "[fd00:10::1]:443")
        } else {
            ("ip", "10.1.0.1:443")
        };
        for master in &self.masters {
            for line in [
                format!("nft add table {family} proxy"),
                format!(
                    "nft add chain {family} proxy services {{ type nat hook prerouting priority \
                     -100; }}"
                ),
                format!("nft add rule {family} proxy services tcp dport 443 dnat to {to}"),
            ] {
                run(&master.host, &line);
            }
            assert!(run(&master.host, "nft list ruleset").contains("dnat to"));
        }
    }
}

fn check(outcome: &Outcome, what: &str, relayed: u64) {
    let Outcome {
        requests,
        lines,
        failures,
    } = outcome;
    println!(
        "{what}: {requests} requests, {lines} lines, {} failed, {relayed} packets sent on",
        failures.len()
    );
    assert!(failures.is_empty(), "{what}: {failures:#?}");
    assert!(relayed > 0, "{what}: nothing was in flight");
}

/// The priorities change and change back.
async fn preempt_there_and_back(v6: bool, scene: Scene) {
    let Scene { lab, masters } = scene;
    let load = Load::start(&lab.client, vip(v6), true).await;
    for round in 0..2 * rounds() {
        let (from, to) = (&masters[round % 2], &masters[(round + 1) % 2]);
        load.go_on(REQUESTS).await;
        to.set_priority(200);
        from.set_priority(100);
        let state = to.until_owner().await;
        assert_eq!(
            state.transitions.last().unwrap().reason,
            Reason::Preempted(from.own())
        );
        to.until_relaying(Some(from.own())).await;
        from.until_ready(to.own()).await;
    }
    load.go_on(REQUESTS).await;
    let relayed = masters.iter().map(Master::relayed).sum();
    check(
        &load.stop().await,
        &format!("{} moves by priority", 2 * rounds()),
        relayed,
    );
}

/// The owner is asked to stop, and comes back as a standby. Connections outlive that where
/// something else keeps the kernel translating.
async fn release_there_and_back(v6: bool, beside_a_proxy: bool) {
    let mut scene = Scene::new(v6, RELAY_FOR).await;
    if beside_a_proxy {
        scene.beside_a_proxy(v6);
    }
    let load = Load::start(&scene.lab.client, vip(v6), beside_a_proxy).await;
    let mut relayed = 0;
    for round in 0..2 * rounds() {
        let [first, second] = &mut scene.masters;
        let (from, to) = if round % 2 == 0 {
            (first, second)
        } else {
            (second, first)
        };
        load.go_on(REQUESTS).await;
        from.stop().await;
        let state = to.until_owner().await;
        assert_eq!(
            state.transitions.last().unwrap().reason,
            Reason::OwnerLeft(from.own())
        );
        to.until_relaying(Some(from.own())).await;
        load.go_on(REQUESTS).await;
        relayed += to.relayed();
        from.start(100);
        from.until_ready(to.own()).await;
    }
    check(
        &load.stop().await,
        &format!("{} moves by a stop", 2 * rounds()),
        relayed,
    );
    for mut master in scene.masters {
        master.stop().await;
        assert_eq!(master.rules(), "", "nothing is left");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_notices_a_change_of_priorities() {
    preempt_there_and_back(false, Scene::new(false, RELAY_FOR).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_notices_a_change_of_priorities_with_ipv6() {
    preempt_there_and_back(true, Scene::new(true, RELAY_FOR).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_notices_a_change_of_priorities_with_a_virtual_hardware_address() {
    for v6 in [false, true] {
        let scene = Scene::with(v6, RELAY_FOR, |master| master.virtual_mac = true).await;
        preempt_there_and_back(v6, scene).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_request_notices_that_the_owner_stops() {
    release_there_and_back(false, false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_connection_notices_that_the_owner_stops_beside_a_proxy() {
    release_there_and_back(false, true).await;
    release_there_and_back(true, true).await;
}

/// The others would not notice if there were nothing to notice.
#[tokio::test(flavor = "multi_thread")]
async fn without_a_relay_requests_fail() {
    let Scene { lab, masters } = Scene::new(false, Duration::ZERO).await;
    let load = Load::start(&lab.client, vip(false), true).await;
    load.go_on(REQUESTS).await;
    masters[1].set_priority(200);
    masters[1].until_owner().await;
    load.go_on(REQUESTS).await;
    let failures = load.stop().await.failures;
    assert!(failures.len() > 2, "{failures:?}");
}
