//! Google Compute Engine: forwarding rules and target pools.

use super::cloud::{Cloud, Kind};
use bytes::Bytes;
use http::{Method, Request};
use portico_fakecloud::gce::Gce as Memory;
use portico_providers::Provider;
use portico_providers::cloud::faults::no_waits;
use portico_providers::cloud::{CallMetrics, Fixed, Header, TransportError};
use portico_providers::gce::{Config, Gce, Parts, Place};
use secrecy::SecretString;
use serde_json::json;
use std::sync::Arc;

const ZONE: &str = "europe-west1-b";
const NODES: usize = 100;

pub(super) fn passthrough() -> Cloud {
    let memory = Memory::default();
    (1..=NODES + 1)
        .for_each(|number| memory.add_instance(ZONE, &format!("node-{number}"), &["nodes"]));
    let wire =
        move |request: Request<Bytes>| -> Result<_, TransportError> { Ok(memory.answer(&request)) };
    let each = [
        (1, 3),
        (1, 3),
        (0, 0),
        (0, 1),
        (0, 1),
        (5, 0),
        (0, 5),
        (0, 3),
    ];
    // The health check of all Services with policy Cluster, and its firewall.
    let mut shared = [(0, 0); 8];
    (shared[0], shared[5], shared[7]) = ((2, 2), (2, 0), (0, 2));
    Cloud {
        name: "gce",
        start: Box::new(|transport| {
            let (pace, poll) = no_waits();
            let authorize = Arc::new(Fixed {
                header: Header::Bearer,
                token: SecretString::from("hush"),
            });
            let config = Config::parse("[global]\nnode-tags = nodes\n").unwrap();
            let place = Place::new(
                &config,
                Memory::PROJECT.into(),
                ZONE,
                "default",
                "0123456789abcdef".into(),
            );
            let parts = Parts {
                transport,
                authorize,
                pace,
                poll,
                metrics: CallMetrics::default(),
            };
            Arc::new(Gce::new(place, parts)) as Arc<dyn Provider>
        }),
        wire: Arc::new(wire),
        kind: Arc::new(kind),
        annotations: json!({}),
        provider_id: |number| format!("gce://{}/{ZONE}/node-{number}", Memory::PROJECT),
        tries: 1,
        nodes: NODES,
        each,
        shared,
    }
}

fn kind(request: &Request<Bytes>) -> Kind {
    match *request.method() {
        _ if request.uri().path().ends_with("/wait") => Kind::Wait,
        Method::GET => Kind::Read,
        _ => Kind::Write,
    }
}
