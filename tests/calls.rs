//! What load balancers cost in calls of a cloud's API, exactly: the controller with each provider on its cloud in memory. The
//! numbers are in docs/benchmarks.md; `make bench-controller ONLY=calls` prints them, with 500 Services on 100 nodes.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test may panic and print")]

#[path = "calls/mod.rs"]
mod calls;
#[path = "common/mod.rs"]
mod common;

use calls::story::Story;
use calls::table;

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
