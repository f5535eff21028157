//! What every end-to-end test of the API server needs: a server process, a client, and patience.
//!
//! `process` starts servers on free loopback ports in a temporary directory and stops them on
//! drop; `client` speaks HTTPS to them. Nothing here knows Portico's code: the tests see the
//! binary as its users do.
//!
//! With `PORTICO_TEST_KUBE_APISERVER=/path/to/kube-apiserver` every test starts that server
//! instead, which is how the tests themselves are tested.
#![allow(
    dead_code,
    unused_imports,
    reason = "each test target uses its own part of this module"
)]

pub(crate) mod client;
pub(crate) mod ports;
pub(crate) mod process;
pub(crate) mod random;
pub(crate) mod tls;

use std::future::Future;
use std::time::{Duration, Instant};

pub(crate) use client::{Answer, Client, Watch};
pub(crate) use process::{Etcd, Server, Store, rival};
use serde_json::Value;

/// How long anything may take before a test gives up on it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// Polls until the probe yields something, and panics with what was awaited after a deadline.
pub(crate) async fn eventually<T, F: Future<Output = Option<T>>>(
    what: &str,
    mut probe: impl FnMut() -> F,
) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = probe().await {
            return found;
        }
        assert!(
            Instant::now() < deadline,
            "waited {PATIENCE:?} in vain: {what}"
        );
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// The value at a dotted path; list items by index. Null when there is none.
pub(crate) fn at<'a>(value: &'a Value, path: &str) -> &'a Value {
    path.split('.').fold(value, |value, step| match value {
        Value::Array(items) => step
            .parse()
            .ok()
            .and_then(|n: usize| items.get(n))
            .unwrap_or(&Value::Null),
        _ => value.get(step).unwrap_or(&Value::Null),
    })
}

/// The text at a dotted path, empty when there is none.
pub(crate) fn text<'a>(value: &'a Value, path: &str) -> &'a str {
    at(value, path).as_str().unwrap_or_default()
}

/// The items of a list answer.
pub(crate) fn items(list: &Value) -> &[Value] {
    list["items"].as_array().map_or(&[], Vec::as_slice)
}

/// The (field, reason) pairs of an error, sorted.
pub(crate) fn causes(status: &Value) -> Vec<(String, String)> {
    let causes = at(status, "details.causes")
        .as_array()
        .map_or(&[][..], Vec::as_slice);
    let mut pairs: Vec<_> = causes
        .iter()
        .map(|cause| {
            (
                text(cause, "field").to_owned(),
                text(cause, "reason").to_owned(),
            )
        })
        .collect();
    pairs.sort();
    pairs
}
