//! The owner says nothing any more. Where only its process died, connections go on; where the host
//! did, nobody waits for it.

use crate::load::{Load, serve};
use crate::masters::*;
use portico_testbed::Process;
use portico_vip::election::Election;
use portico_vrrp::Reason;
use std::process::Command;

const FAMILY: &str = "PORTICO_TEST_HANDOVER_FAMILY";
const REQUESTS: u64 = 100;

/// Not a test but what [`owner`] starts: the first master.
#[tokio::test]
#[ignore = "runs as a process of other tests"]
async fn owns_the_address() {
    let Ok(family) = std::env::var(FAMILY) else {
        return;
    };
    let v6 = family == "v6";
    forwarding().apply(&wanted(v6)).unwrap();
    let _election = Election::start(election(1, v6, 150)).unwrap();
    std::future::pending().await
}

fn owner(lab: &Lab, v6: bool) -> Process {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "silence::owns_the_address", "--ignored"])
        .env(FAMILY, if v6 { "v6" } else { "v4" });
    lab.servers[0].spawn(command).unwrap()
}

/// An owner, who is to die, and the other one.
async fn scene(v6: bool) -> (Lab, Process, Master) {
    let lab = Lab::new();
    serve(&lab);
    let process = owner(&lab, v6);
    let mut other = Master::new(&lab, 2, v6, RELAY_FOR);
    let has_it =
        || run(&lab.servers[0], "ip addr show dev eth0").contains(&vip(v6).ip().to_string());
    eventually("an owner", has_it).await;
    other.start(100);
    other.until_ready(address(1, v6)).await;
    (lab, process, other)
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_go_on_when_the_process_of_the_owner_is_killed_and_end_when_its_host_is_gone() {
    for v6 in [false, true] {
        let (lab, mut process, other) = scene(v6).await;
        let load = Load::start(&lab.client, vip(v6), true).await;
        load.go_on(REQUESTS).await;
        process.kill();
        let state = other.until_owner().await;
        let first = address(1, v6);
        assert_eq!(
            state.transitions.last().unwrap().reason,
            Reason::OwnerSilent { last: Some(first) }
        );
        other.until_relaying(Some(first)).await;
        load.go_on(5 * REQUESTS).await;
        other.until_relaying(Some(first)).await;
        let outcome = load.stop().await;
        assert!(outcome.failures.is_empty(), "{:#?}", outcome.failures);

        run(&lab.switch, "ip link set server1 down");
        other.until_relaying(None).await;
        assert_eq!(other.rules(), "");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_waits_for_a_host_that_is_gone() {
    for v6 in [false, true] {
        let (lab, _process, other) = scene(v6).await;
        run(&lab.switch, "ip link set server1 down");
        other.until_owner().await;
        eventually("without the rules", || other.rules().is_empty()).await;
        other.until_relaying(None).await;
    }
}
