//! OpenStack: Octavia and Neutron.

#[path = "../../crates/portico-providers/tests/openstack/memory.rs"]
#[allow(dead_code, reason = "its own tests use more of it")]
pub(crate) mod memory;
#[path = "../../crates/portico-providers/tests/openstack/raw.rs"]
#[allow(dead_code, reason = "its own tests use more of it")]
mod raw;

use super::cloud::{Cloud, Kind};
use bytes::Bytes;
use http::{Method, Request};
use memory::{Memory, URL};
use portico_providers::Provider;
use portico_providers::cloud::CallMetrics;
use portico_providers::cloud::faults::no_waits;
use portico_providers::openstack::{Config, OpenStack, Parts};
use serde_json::json;
use std::sync::Arc;

pub(crate) fn octavia() -> Cloud {
    on(&Arc::default())
}

pub(crate) fn on(memory: &Arc<Memory>) -> Cloud {
    let text = format!(
        "[Global]\nauth-url={URL}\nusername=u\npassword=p\n[LoadBalancer]\nsubnet-id=sub\nfloating-network-id=world\n"
    );
    let each = [
        (1, 2),
        (1, 2),
        (0, 0),
        (0, 1),
        (0, 1),
        (6, 0),
        (0, 4),
        (1, 2),
    ];
    Cloud {
        name: "openstack",
        start: Box::new(move |transport| {
            let (pace, poll) = no_waits();
            let parts = Parts {
                transport,
                pace,
                poll,
                metrics: CallMetrics::default(),
            };
            Arc::new(OpenStack::new(Config::parse(&text).unwrap(), parts)) as Arc<dyn Provider>
        }),
        wire: memory::transport(memory),
        kind: Arc::new(kind),
        annotations: json!({}),
        provider_id: |number| format!("openstack:///c0ffee00-0000-4000-8000-{number:012}"),
        tries: 1,
        nodes: 100,
        each,
        shared: [(0, 0); 8],
    }
}

fn kind(request: &Request<Bytes>) -> Kind {
    let path = request.uri().path();
    match *request.method() {
        _ if path.ends_with("/auth/tokens") => Kind::Login,
        Method::GET if path.contains("/loadbalancers/") => Kind::Wait,
        Method::GET => Kind::Read,
        _ => Kind::Write,
    }
}
