//! What load balancers cost in calls of a cloud's API, exactly: the controller with each provider
//! on its cloud in memory. The numbers are in docs/benchmarks.md;
//! `make bench-controller ONLY=calls` prints them, with 500 Services on 100 nodes.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test may panic and print"
)]

#[path = "calls/mod.rs"]
mod calls;
#[path = "common/mod.rs"]
mod common;

use calls::openstack::memory::Memory;
use calls::rig::Rig;
use calls::story::Story;
use calls::{openstack, table};
use common::eventually;
use std::sync::Arc;
use std::time::Duration;

const SERVICES: usize = 3;

#[tokio::test]
async fn a_change_costs_the_calls_that_make_it_and_no_others() {
    let mut surprises = Vec::new();
    for cloud in calls::all() {
        let cloud = cloud();
        let name = cloud.name;
        let told = Story::whole(cloud, SERVICES).await;
        table::print(name, &told);
        surprises.extend(table::surprises(name, &told));
    }
    assert!(surprises.is_empty(), "{}", surprises.join("\n"));
}

/// A provider that goes by what it did last does not notice; it is made to look every period.
#[tokio::test]
async fn what_somebody_changed_inside_a_balancer_is_put_right_every_period() {
    let memory: Arc<Memory> = Arc::default();
    let mut rig = Rig::start(openstack::on(&memory), 2, Duration::from_millis(500)).await;
    rig.create(0).await;
    let is_made = |lines: &Vec<String>| lines.iter().any(|line| line.starts_with("floatingip"));
    let before = eventually("it is made", || async {
        Some(memory.lines(true)).filter(is_made)
    })
    .await;
    for (collection, field) in [
        ("listeners", "connection_limit"),
        ("members", "protocol_port"),
    ] {
        memory.change(collection, |it| it[field] = 7.into());
        let is_right = || async { (memory.lines(true) == before).then_some(()) };
        eventually(&format!("{collection} are as they were"), is_right).await;
    }
    rig.stop().await;
}
