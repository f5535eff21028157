//! Asking a health or metrics endpoint.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper::Request;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use portico_testbed::Ask as _;
use portico_testbed::{Cluster, Failure, Flow, Protocol};
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::matching::{forget_recency, mask_times};
use crate::probes::{address, mark};
use crate::scenario::Probe;

/// Headers that clients look at.
const HEADERS: [&str; 3] = [
    "content-type",
    "x-content-type-options",
    "x-load-balancing-endpoint-weight",
];

pub(crate) async fn get(cluster: &Cluster, probe: &Probe, patience: Duration) -> Value {
    match timeout(patience, exchange(cluster, probe, patience)).await {
        Ok(Ok(observed)) => observed,
        Ok(Err(failure)) => json!({"fail": failure.to_string()}),
        Err(_) => json!({"fail": "timeout"}),
    }
}

async fn exchange(cluster: &Cluster, probe: &Probe, patience: Duration) -> Result<Value, Failure> {
    let (authority, path) = split(&probe.url);
    let to = address(cluster, authority);
    let flow = Flow {
        mark: mark(probe),
        patience,
        ..Flow::new(Protocol::Tcp, to)
    };
    let stream = cluster.host(&probe.from).unwrap().connect(&flow).await?;
    let broken = |error: hyper::Error| Failure::Other(format!("error:{error:?}"));
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream))
        .await
        .map_err(broken)?;
    tokio::spawn(connection);
    let request = Request::get(path)
        .header("host", to.to_string())
        .header("connection", "close");
    let response = sender
        .send_request(request.body(Empty::<Bytes>::new()).unwrap())
        .await
        .map_err(broken)?;
    let mut observed = json!({"status": response.status().as_u16()});
    if !probe.noheaders {
        let headers = response.headers();
        let kept = HEADERS
            .iter()
            .filter_map(|name| Some((*name, headers.get(*name)?.to_str().ok()?)));
        observed["headers"] = json!(kept.collect::<std::collections::BTreeMap<_, _>>());
    }
    let body = response
        .into_body()
        .collect()
        .await
        .map_err(broken)?
        .to_bytes();
    if !probe.nobody {
        match serde_json::from_slice(&body) {
            Ok(document) => observed["json"] = masked(document, observed["status"] == 200),
            Err(_) => observed["body"] = json!(String::from_utf8_lossy(&body).trim()),
        }
    }
    Ok(observed)
}

/// Only the present, and of a healthy program its last update, are promised to be of now.
fn masked(mut document: Value, healthy: bool) -> Value {
    mask_times(&mut document);
    for (name, value) in document.as_object_mut().into_iter().flatten() {
        if name != "currentTime" && !(name == "lastUpdated" && healthy) {
            forget_recency(value);
        }
    }
    document
}

/// The authority, which may be a host with one of its addresses (`node1/ip6:80`), and the path.
fn split(url: &str) -> (&str, &str) {
    let rest = url
        .strip_prefix("http://")
        .unwrap_or_else(|| panic!("no http URL: {url}"));
    let port = rest
        .find("]:")
        .map_or_else(|| rest.find(':'), |at| Some(at + 1))
        .unwrap_or_else(|| panic!("{url}"));
    let path = rest[port..].find('/').map_or(rest.len(), |at| port + at);
    (
        &rest[..path],
        if path == rest.len() {
            "/"
        } else {
            &rest[path..]
        },
    )
}

#[test]
fn urls_are_split_before_the_path() {
    assert_eq!(
        split("http://node1:10256/healthz"),
        ("node1:10256", "/healthz")
    );
    assert_eq!(
        split("http://node1/ip6:10256/a/b:c"),
        ("node1/ip6:10256", "/a/b:c")
    );
    assert_eq!(split("http://[fd00::1]:80/"), ("[fd00::1]:80", "/"));
}
