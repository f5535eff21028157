//! What load balancers cost in calls of a cloud's API, with each provider on its cloud in memory.

use crate::calls::story::Story;
use crate::calls::{all, table};

const SERVICES: usize = 500;

pub(crate) async fn measure() {
    let mut surprises = Vec::new();
    for cloud in all() {
        let name = cloud().name;
        let told = Story::whole(cloud(), 10).await;
        table::print(name, &told);
        surprises.extend(table::surprises(name, &told));
        let many = cloud();
        let nodes = many.nodes;
        let told = Story::many(many, SERVICES, nodes).await;
        table::print(
            &format!("{name}, {SERVICES} Services, {nodes} nodes"),
            &told,
        );
        surprises.extend(table::surprises(name, &told));
    }
    assert!(surprises.is_empty(), "{}", surprises.join("\n"));
}
