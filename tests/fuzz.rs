//! Throws random and mutated requests at every resource and subresource, packets at VRRP
//! (`fuzz/vrrp.rs`) and answers of the kernel at who reads them (`fuzz/netlink.rs`). The targets of
//! cargo-fuzz run over their corpus (`fuzz/corpus.rs`).
//!
//! Whatever comes, the server answers, never with a 5xx, never by dropping the connection; it lives
//! on, and no port is lost. Runs for `PORTICO_FUZZ_SECONDS` (20) from `PORTICO_FUZZ_SEED`, which is
//! fixed unless given: `make fuzz` picks a new one each time.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test may panic and print"
)]

#[path = "fuzz/body.rs"]
mod body;
mod common;
#[path = "fuzz/corpus.rs"]
mod corpus;
#[path = "fuzz/netlink.rs"]
mod netlink;
#[expect(unreachable_pub, reason = "the targets of cargo-fuzz call them")]
#[path = "../fuzz/src/lib.rs"]
mod parsers;
#[path = "fuzz/protobuf.rs"]
mod protobuf;
#[path = "fuzz/target.rs"]
mod target;
#[path = "fuzz/vrrp.rs"]
mod vrrp;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use body::Body;
use bytes::Bytes;
use common::client::{APPLY, JSON, JSON_PATCH, MERGE, PROTOBUF, STRATEGIC};
use common::ports::assert_no_port_leaked;
use common::random::Random;
use common::{Client, Server, Store, rival};
use target::{NAMES, Target};

const WORKERS: u64 = 4;
const YAML: &str = "application/yaml";
/// Nine in ten requests say what their body is.
const KINDS: [&str; 4] = [JSON, JSON, YAML, PROTOBUF];
const WRONG_KINDS: [&str; 3] = ["text/plain", "", "application/json;charset=latin1"];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn any_request_is_answered() {
    let seed = variable("PORTICO_FUZZ_SEED").unwrap_or(1);
    let mut server =
        Server::start(Store::Embedded, &["--service-node-port-range=30000-30063"]).await;
    println!("PORTICO_FUZZ_SEED={seed}");
    server.admin().create_namespace("fuzz").await;
    let targets = Arc::new(target::all(&server.admin()).await);
    assert!(
        targets.len() > 20 || rival().is_some(),
        "few resources: {targets:?}"
    );
    let end = Instant::now() + Duration::from_secs(variable("PORTICO_FUZZ_SECONDS").unwrap_or(20));
    let workers: Vec<_> = (0..WORKERS)
        .map(|n| {
            tokio::spawn(work(
                server.admin(),
                targets.clone(),
                Random::seeded(seed ^ n),
                end,
            ))
        })
        .collect();
    let (mut statuses, mut failures) = (BTreeMap::new(), vec![]);
    for worker in workers {
        let outcome = worker.await.unwrap();
        failures.extend(outcome.failures);
        for (status, count) in outcome.statuses {
            *statuses.entry(status).or_insert(0) += count;
        }
    }
    println!("answers by status: {statuses:?}");
    for failure in failures.iter().take(20) {
        println!("{failure}");
    }
    assert!(
        failures.is_empty() || rival().is_some(),
        "{} failures with PORTICO_FUZZ_SEED={seed}",
        failures.len()
    );
    assert_eq!(server.admin().get("/livez").await.status, 200);
    assert!(
        !server.log().contains("panicked"),
        "PORTICO_FUZZ_SEED={seed}"
    );
    if rival().is_none() {
        assert_no_port_leaked(&server.admin(), 30000..=30063).await;
        server.restart(None).await; // whatever was stored can be read again
        assert_no_port_leaked(&server.admin(), 30000..=30063).await;
    }
}

fn variable(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|value| value.parse().unwrap())
}

#[derive(Default)]
struct Outcome {
    statuses: BTreeMap<u16, usize>,
    failures: Vec<String>,
}

async fn work(
    client: Client,
    targets: Arc<Vec<Target>>,
    mut random: Random,
    end: Instant,
) -> Outcome {
    let mut outcome = Outcome::default();
    while Instant::now() < end && outcome.failures.len() < 20 {
        let request = request(&mut random, &targets);
        let headers: Vec<_> = request
            .headers
            .iter()
            .map(|(name, value)| (*name, *value))
            .collect();
        let body = request
            .body
            .as_ref()
            .map(|body| (request.kind, Bytes::from(body.clone())));
        let answer = client
            .try_call(request.method, &request.path, &headers, body)
            .await;
        let wrong = match &answer {
            Ok(answer) => {
                *outcome.statuses.entry(answer.status).or_default() += 1;
                (answer.status >= 500).then(|| format!("{} {}", answer.status, answer.text()))
            }
            Err(error) => Some(error.to_string()),
        };
        if let Some(wrong) = wrong {
            outcome
                .failures
                .push(format!("{request}\n  answered with {wrong}"));
        }
    }
    outcome
}

struct Request {
    method: &'static str,
    path: String,
    headers: Vec<(&'static str, &'static str)>,
    kind: &'static str,
    body: Option<Vec<u8>>,
}

impl std::fmt::Display for Request {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let body = self
            .body
            .as_deref()
            .map_or(String::new(), |body| body.escape_ascii().to_string());
        let (short, rest) = body.split_at(body.len().min(1500));
        let more = if rest.is_empty() { "" } else { "…" };
        write!(
            f,
            "{} {} {:?} {}\n  {short}{more}",
            self.method, self.path, self.headers, self.kind
        )
    }
}

fn request(random: &mut Random, targets: &[Target]) -> Request {
    let target = random.pick(targets);
    let method = target.method(random);
    let name = *random.pick(&NAMES);
    let path = target.path(random, method, name);
    let (kind, body) = match method {
        "POST" | "PUT" => {
            let kind = if random.one_in(10) {
                *random.pick(&WRONG_KINDS)
            } else {
                *random.pick(&KINDS)
            };
            (kind, Some(content(random, target, name, kind)))
        }
        "PATCH" => {
            let kind = *random.pick(&[MERGE, STRATEGIC, JSON_PATCH, APPLY, APPLY, JSON]);
            (kind, Some(content(random, target, name, kind)))
        }
        "DELETE" if random.one_in(2) => (JSON, Some(Body::delete_options(random).into_bytes())),
        _ => (JSON, None),
    };
    Request {
        method,
        path,
        headers: headers(random),
        kind,
        body,
    }
}

/// The body for a media type: nearly right, mostly.
fn content(random: &mut Random, target: &Target, name: &str, kind: &str) -> Vec<u8> {
    let object = Body::near(random, target, name);
    let bytes = match kind {
        PROTOBUF => protobuf::object(random, &object),
        JSON_PATCH => Body::json_patch(random, &object).into_bytes(),
        YAML | APPLY if random.one_in(2) => Body::yaml(&object).into_bytes(),
        _ => object.to_string().into_bytes(),
    };
    if random.one_in(8) {
        body::damaged(random, bytes)
    } else {
        bytes
    }
}

fn headers(random: &mut Random) -> Vec<(&'static str, &'static str)> {
    const ACCEPTS: [&str; 7] = [
        "*/*",
        "application/json;as=Table;v=v1;g=meta.k8s.io,application/json",
        "application/vnd.kubernetes.protobuf",
        "application/yaml",
        "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
        "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
        "nonsense",
    ];
    let mut headers = vec![];
    if random.one_in(3) {
        headers.push(("accept", *random.pick(&ACCEPTS)));
    }
    if random.one_in(20) {
        headers.push((
            "impersonate-user",
            *random.pick(&["nobody", "system:serviceaccount:default:default", "\u{fc}"]),
        ));
    }
    if random.one_in(20) {
        headers.push((
            "content-encoding",
            *random.pick(&["gzip", "identity", "br"]),
        ));
    }
    headers
}
