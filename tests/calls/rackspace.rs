//! Rackspace: a load balancer for each port.

use super::cloud::{Cloud, Kind};
use bytes::Bytes;
use http::{Method, Request, Response};
use portico_fakecloud::rackspace::Rackspace as Memory;
use portico_providers::Provider;
use portico_providers::cloud::faults::no_waits;
use portico_providers::cloud::{CallMetrics, TransportError};
use portico_providers::rackspace::{Config, Parts, Rackspace};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

/// Where those are that were created since the provider was started.
type Created = Arc<Mutex<BTreeSet<String>>>;

pub(super) fn proxy() -> Cloud {
    let memory = Memory::default();
    // One that is asked for again, or written to, is ready.
    memory.set_looks(1);
    // As if the vendor had raised it.
    memory.set_quota(10_000);
    let created = Created::default();
    let (made, before) = (Arc::clone(&created), Arc::clone(&created));
    let wire = move |request: Request<Bytes>| -> Result<_, TransportError> {
        let answer = memory.answer(&request);
        made.lock().unwrap().extend(path_of_new(&request, &answer));
        Ok(answer)
    };
    Cloud {
        name: "rackspace",
        start: Box::new(move |transport| {
            before.lock().unwrap().clear();
            let (pace, poll) = no_waits();
            let parts = Parts {
                transport,
                pace,
                poll,
                metrics: CallMetrics::default(),
            };
            Arc::new(Rackspace::new(config(), parts)) as Arc<dyn Provider>
        }),
        wire: Arc::new(wire),
        kind: Arc::new(move |request: &Request<Bytes>| kind(request, &created)),
        annotations: json!({}),
        provider_id: |number| format!("rackspace://{number}"),
        tries: 1,
        // The vendor takes 25 in a load balancer, and one more joins.
        nodes: 24,
        each: [
            (1, 1),
            (1, 1),
            (0, 0),
            (0, 1),
            (0, 1),
            (2, 0),
            (0, 1),
            (0, 1),
        ],
        shared: [(0, 0); 8],
    }
}

fn config() -> Config {
    let (url, user, key) = (Memory::URL, Memory::USER, Memory::KEY);
    let text =
        format!("[Global]\nauth-url = {url}\nusername = {user}\napi-key = {key}\nregion = ord\n");
    Config::parse(&text, |_| None).unwrap()
}

fn path_of_new(request: &Request<Bytes>, answer: &Response<Bytes>) -> Option<String> {
    let path = request.uri().path();
    let creates = request.method() == Method::POST && path.ends_with("/loadbalancers");
    let body: Value = serde_json::from_slice(answer.body())
        .ok()
        .filter(|_| creates)?;
    Some(format!("{path}/{}", body["loadBalancer"]["id"]))
}

/// What this provider created it looks at only until that is ready; others it reads.
fn kind(request: &Request<Bytes>, created: &Created) -> Kind {
    let (path, query) = (
        request.uri().path(),
        request.uri().query().unwrap_or_default(),
    );
    match *request.method() {
        _ if path.ends_with("/tokens") => Kind::Login,
        Method::GET if created.lock().unwrap().contains(path) => Kind::Wait,
        Method::GET if query.contains("marker=") => Kind::Page,
        Method::GET => Kind::Read,
        _ => Kind::Write,
    }
}
