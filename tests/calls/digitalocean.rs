//! DigitalOcean: one resource is all.

use super::cloud::{Cloud, Kind};
use bytes::Bytes;
use http::{Method, Request};
use portico_fakecloud::digitalocean::DigitalOcean as Memory;
use portico_providers::Provider;
use portico_providers::cloud::faults::no_waits;
use portico_providers::cloud::{CallMetrics, Fixed, Header, TransportError};
use portico_providers::digitalocean::{Config, DigitalOcean, Parts};
use secrecy::SecretString;
use serde_json::json;
use std::sync::Arc;

const FIRST_DROPLET: usize = 3_164_440;
const NODES: usize = 100;

pub(super) fn regional() -> Cloud {
    let memory = Memory::default();
    (1..=NODES + 1).for_each(|number| memory.add_droplet((FIRST_DROPLET + number) as u64));
    // Whoever is asked for again is ready.
    memory.set_looks(1);
    let wire =
        move |request: Request<Bytes>| -> Result<_, TransportError> { Ok(memory.answer(&request)) };
    Cloud {
        name: "digitalocean",
        start: Box::new(|transport| {
            let ((pace, _), metrics, region) = (
                no_waits(),
                CallMetrics::default(),
                Memory::REGION.to_owned(),
            );
            let authorize = Arc::new(Fixed {
                header: Header::Bearer,
                token: SecretString::from("hush"),
            });
            let parts = Parts {
                transport,
                authorize,
                region,
                pace,
                metrics,
            };
            Arc::new(DigitalOcean::new(Config::default(), parts)) as Arc<dyn Provider>
        }),
        wire: Arc::new(wire),
        kind: Arc::new(kind),
        annotations: json!({}),
        provider_id: |number| format!("digitalocean://{}", FIRST_DROPLET + number),
        tries: 2,
        nodes: NODES,
        each: [
            (1, 1),
            (1, 1),
            (0, 0),
            (0, 1),
            (0, 1),
            (1, 0),
            (0, 1),
            (0, 1),
        ],
        shared: [(0, 0); 8],
    }
}

/// A single one is read only while it is being made.
fn kind(request: &Request<Bytes>) -> Kind {
    let is_first = request
        .uri()
        .query()
        .is_some_and(|query| query.starts_with("page=1&"));
    match *request.method() {
        Method::GET if request.uri().path().contains("/load_balancers/") => Kind::Wait,
        Method::GET if is_first => Kind::Read,
        Method::GET => Kind::Page,
        _ => Kind::Write,
    }
}
