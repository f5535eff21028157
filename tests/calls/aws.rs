//! Amazon's cloud: both kinds of load balancers.

#[path = "../../crates/portico-providers/tests/aws/double/mod.rs"]
#[allow(dead_code, reason = "its own tests use more of it")]
mod double;

use super::cloud::{Cloud, Kind};
use bytes::Bytes;
use http::Request;
use portico_providers::Provider;
use serde_json::{Value, json};
use std::sync::Arc;

pub(super) fn network() -> Cloud {
    let annotations = json!({});
    let each = [
        (0, 7),
        (0, 7),
        (0, 0),
        (0, 1),
        (0, 1),
        (7, 0),
        (0, 5),
        (0, 5),
    ];
    cloud("aws, network", annotations, each)
}

pub(super) fn classic() -> Cloud {
    let annotations = json!({"service.beta.kubernetes.io/aws-load-balancer-type": "classic"});
    let each = [
        (0, 6),
        (0, 6),
        (0, 0),
        (0, 1),
        (0, 1),
        (4, 0),
        (0, 3),
        (0, 3),
    ];
    cloud("aws, classic", annotations, each)
}

fn cloud(name: &'static str, annotations: Value, each: [(usize, usize); 8]) -> Cloud {
    let lab = double::Lab::quick();
    // Subnets, routes, and the groups of nodes.
    let mut shared = [(0, 0); 8];
    shared[0] = (3, 0);
    let wire = Arc::new(lab.clone());
    Cloud {
        name,
        start: Box::new(move |transport| {
            Arc::new(lab.provider_over(transport)) as Arc<dyn Provider>
        }),
        wire,
        kind: Arc::new(kind),
        annotations,
        provider_id: |number| double::node(number).provider_id,
        tries: 1,
        nodes: 100,
        each,
        shared,
    }
}

fn kind(request: &Request<Bytes>) -> Kind {
    let body = String::from_utf8_lossy(request.body());
    if body.contains("Action=Describe") {
        Kind::Read
    } else {
        Kind::Write
    }
}
