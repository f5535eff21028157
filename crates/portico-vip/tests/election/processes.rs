//! An owner in a process of its own, which is killed or paused.

use crate::segment::*;
use crate::timeline::Timeline;
use portico_testbed::{Host, Process};
use portico_vrrp::{Reason, Role};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const LOG: &str = "PORTICO_TEST_ELECTION_LOG";

/// The kernel counts whole seconds, and looks no more often than once in one.
const KERNEL_REMOVES: Duration = Duration::from_secs(4);

/// Not a test but what [`owner`] starts: takes part on host 1 and writes down what happens.
#[tokio::test]
#[ignore = "runs as a process of other tests"]
async fn takes_part() {
    let Ok(log) = std::env::var(LOG) else { return };
    let mut settings = MULTICAST.settings(1, 150);
    settings.router.preempt = false;
    let election = portico_vip::election::Election::start(settings).unwrap();
    let mut state = election.state();
    loop {
        let lines: Vec<_> = state
            .borrow_and_update()
            .transitions
            .iter()
            .map(|it| format!("{:?}", it.reason))
            .collect();
        std::fs::write(&log, lines.join("\n")).unwrap();
        state.changed().await.unwrap();
    }
}

fn owner(host: &Host, log: &Path) -> Process {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "processes::takes_part", "--ignored"])
        .env(LOG, log);
    host.spawn(command).unwrap()
}

#[tokio::test]
async fn the_address_of_a_process_that_is_killed_goes_by_itself() {
    let (segment, folder) = (Segment::new(2), tempfile::tempdir().unwrap());
    let timeline = Timeline::watch(&segment.hosts, V4.parse().unwrap());
    let mut killed = owner(&segment.hosts[0], &folder.path().join("log"));
    timeline.wait_for(&[0], PATIENCE);
    let other = MULTICAST.start(&segment, 2, 100);
    until(other.state(), "aware of the owner", |state| {
        state.owner == Some(MULTICAST.own(1))
    })
    .await;
    killed.kill();
    let state = until_role(&other, Role::Owner).await;
    assert_eq!(
        state.transitions.last().unwrap().reason,
        Reason::OwnerSilent {
            last: Some(MULTICAST.own(1))
        }
    );
    timeline.wait_for(&[1], KERNEL_REMOVES);
}

#[tokio::test]
async fn a_process_that_was_paused_owns_nothing_any_more() {
    for pause in [Duration::ZERO, KERNEL_REMOVES] {
        let (segment, folder) = (Segment::new(2), tempfile::tempdir().unwrap());
        let log = folder.path().join("log");
        let timeline = Timeline::watch(&segment.hosts, V4.parse().unwrap());
        let mut paused = owner(&segment.hosts[0], &log);
        timeline.wait_for(&[0], PATIENCE);
        let other = MULTICAST.start(&segment, 2, 100);
        until(other.state(), "aware of the owner", |state| {
            state.owner == Some(MULTICAST.own(1))
        })
        .await;

        paused.signal(libc::SIGSTOP);
        until_role(&other, Role::Owner).await;
        if !pause.is_zero() {
            timeline.wait_for(&[1], pause); // the kernel does what the process cannot
        }
        paused.signal(libc::SIGCONT);
        let reasons = || std::fs::read_to_string(&log).unwrap();
        eventually("aware that it was paused", || reasons().contains("Paused")).await;
        timeline.wait_for(&[1], PATIENCE);
        let state = other.state().borrow().clone();
        assert_eq!(
            (state.role, state.counters.became_owner),
            (Role::Owner, 1),
            "it kept the address: {timeline:?}"
        );
    }
}
