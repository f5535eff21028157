//! Paths that are no resources: health, version, discovery, OpenAPI, metrics, the backup.

use crate::answer::Answer;
use crate::app::App;
use crate::handler::is_ready;
use crate::request::Query;
use crate::resource::method_not_allowed;
use hyper::header::{self, HeaderMap};
use portico_api::openapi::{Documents, Served, V2_PROTOBUF, V2_PROTOBUF_ACCEPTED};
use portico_api::schema::schema;
use portico_api::status::{ApiError, Result};
use serde_json::{Value, json};
use std::sync::Arc;

const BACKUP: &str = "application/octet-stream";
/// The Kubernetes version whose behaviour this server has.
const MAJOR: &str = "1";
const MINOR: &str = "36";

pub(crate) async fn answer(
    app: &Arc<App>,
    method: &str,
    path: &str,
    query: &Query,
    headers: &HeaderMap,
) -> Result<Answer> {
    let accept = headers
        .get(header::ACCEPT)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    if !matches!(method, "GET" | "HEAD") {
        return Err(method_not_allowed());
    }
    let path = if path.len() > 1 {
        path.trim_end_matches('/')
    } else {
        path
    };
    match path {
        "/version" => Ok(Answer::json(200, &version())),
        "/metrics" => {
            refresh(app);
            Ok(Answer::bytes(
                200,
                portico_client::metrics::CONTENT_TYPE,
                app.metrics.text(),
            ))
        }
        "/debug/claims" => {
            let problems = crate::registry::check_claims(&app.registry.store, app.registry.kinds());
            Ok(Answer::json(200, &json!({"problems": problems})))
        }
        "/.well-known/openid-configuration" | "/openid/v1/jwks" => {
            crate::reviews::issuer_document(app, path)
        }
        "/backup" => backup(app, method).await,
        "/" => Ok(Answer::json(200, &json!({"paths": PATHS}))),
        _ if health_path(path).is_some() => health(app, path, query).await,
        _ if path.starts_with("/openapi/") => openapi(app, path, accept, headers),
        _ => match app.discovery.answer(path, accept, &app.address) {
            Some((document, kind)) => Ok(Answer::bytes(200, &kind, document.to_string())),
            None => Err(ApiError::no_such_path()),
        },
    }
}

const PATHS: &[&str] = &[
    "/api",
    "/api/v1",
    "/apis",
    "/backup",
    "/healthz",
    "/livez",
    "/metrics",
    "/openapi/v2",
    "/openapi/v3",
    "/readyz",
    "/version",
];

/// The Kubernetes whose API this is.
pub fn kubernetes_version() -> String {
    format!("v{MAJOR}.{MINOR}.4")
}

fn version() -> Value {
    let portico = env!("CARGO_PKG_VERSION");
    json!({
        "major": MAJOR, "minor": MINOR, "gitVersion": format!("{}+portico-{portico}", kubernetes_version()),
        "gitCommit": "", "gitTreeState": "clean", "buildDate": "", "goVersion": "", "compiler": "rustc",
        "platform": format!("{}/{}", std::env::consts::OS, std::env::consts::ARCH),
        "emulationMajor": MAJOR, "emulationMinor": MINOR, "minCompatibilityMajor": MAJOR, "minCompatibilityMinor": "35",
    })
}

/// `("/livez", "etcd")` for `/livez/etcd`.
fn health_path(path: &str) -> Option<(&str, &str)> {
    ["/livez", "/readyz", "/healthz"]
        .into_iter()
        .find_map(|root| {
            let rest = path.strip_prefix(root)?;
            (rest.is_empty() || rest.starts_with('/')).then(|| (root, rest.trim_start_matches('/')))
        })
}

async fn health(app: &App, path: &str, query: &Query) -> Result<Answer> {
    let Some((root, only)) = health_path(path) else {
        return Err(ApiError::no_such_path());
    };
    let mut checks = vec![("ping", Ok(()))];
    if root != "/livez" {
        checks.push(("store", store_health(app).await));
        let starting = || Err("it is starting or stopping".to_owned());
        let ready = is_ready(app).then_some(()).map_or_else(starting, Ok);
        checks.push(("ready", ready));
    }
    if !only.is_empty() {
        checks.retain(|(name, _)| *name == only);
        if checks.is_empty() {
            return Err(ApiError::no_such_path());
        }
    }
    let excluded: Vec<&str> = query.all("exclude").collect();
    checks.retain(|(name, _)| !excluded.contains(name));
    let well = checks.iter().all(|(_, result)| result.is_ok());
    let name = root.trim_start_matches('/');
    let line = |(check, result): &(&str, std::result::Result<(), String>)| match result {
        Ok(()) => format!("[+]{check} ok\n"),
        Err(why) => format!("[-]{check} failed: {why}\n"),
    };
    let lines: String = checks.iter().map(line).collect();
    match (well, query.flag("verbose")) {
        (true, false) => Ok(Answer::text(200, "ok")),
        (true, true) => Ok(Answer::text(200, format!("{lines}{name} check passed\n"))),
        (false, _) => Ok(Answer::text(500, format!("{lines}{name} check failed\n"))),
    }
}

/// Whether what is read is up to date, and whether writes can succeed.
async fn store_health(app: &App) -> std::result::Result<(), String> {
    let store = &app.registry.store;
    store.barrier().await.map_err(|error| error.to_string())?;
    store.writable().map_err(|outage| outage.to_string())
}

/// Sends everything that is stored, secrets too: for users who may read any path. One at a time,
/// because each holds the objects of its revision until it is sent.
async fn backup(app: &Arc<App>, method: &str) -> Result<Answer> {
    let turn = Arc::clone(&app.backups).try_acquire_owned();
    let turn = turn.map_err(|_| ApiError::too_many_requests("a backup is being made", 10))?;
    let store = &app.registry.store;
    let backup = store.backup().await;
    let backup = backup.map_err(|error| ApiError::unavailable(error.to_string()))?;
    if method == "HEAD" {
        return Ok(Answer::bytes(200, BACKUP, bytes::Bytes::new()));
    }
    let damaged = store.damaged().iter();
    let missing = damaged.map(|damaged| format!("{} is damaged and left out", damaged.key));
    let pieces = futures_util::stream::iter(backup.into_pieces());
    let answer = Answer::stream(BACKUP, pieces).warn(missing.collect());
    Ok(answer.holding(turn))
}

fn openapi(app: &App, path: &str, accept: &str, headers: &HeaderMap) -> Result<Answer> {
    let documents = app.openapi.get_or_init(|| {
        let served: Vec<Served<'_>> = app
            .registry
            .kinds()
            .iter()
            .map(|kind| Served {
                info: kind.info(),
                verbs: crate::discovery::verbs(kind.info()),
            })
            .collect();
        Documents::build(schema(), &served)
    });
    let (body, kind) = match path.strip_prefix("/openapi/").unwrap_or_default() {
        "v2" if crate::negotiate::clauses(accept)
            .any(|clause| V2_PROTOBUF_ACCEPTED.contains(&clause.media)) =>
        {
            (&documents.v2_protobuf, V2_PROTOBUF)
        }
        "v2" => (&documents.v2, "application/json"),
        "v3" => (&documents.v3_index, "application/json"),
        other => {
            let name = other
                .strip_prefix("v3/")
                .ok_or_else(ApiError::no_such_path)?;
            (
                documents.v3.get(name).ok_or_else(ApiError::no_such_path)?,
                "application/json",
            )
        }
    };
    let etag = format!("\"{:08X}\"", crc32(body));
    let known = headers
        .get(header::IF_NONE_MATCH)
        .and_then(|value| value.to_str().ok());
    if known == Some(etag.as_str()) {
        return Ok(Answer::bytes(304, kind, bytes::Bytes::new()).etag(etag));
    }
    Ok(Answer::bytes(200, kind, body.clone()).etag(etag))
}

fn crc32(bytes: &[u8]) -> u32 {
    let mut crc = flate2::Crc::new();
    crc.update(bytes);
    crc.sum()
}

fn refresh(app: &App) {
    let (all, strangers) = app.connections.count();
    app.metrics.set_connections(all - strangers, strangers);
    let store = &app.registry.store;
    app.metrics
        .revision
        .set(i64::try_from(store.revision()).unwrap_or(i64::MAX));
    let gauge = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
    let writable = i64::from(store.writable().is_ok());
    app.metrics.writable.set(writable);
    app.metrics.damaged.set(gauge(store.damaged().len()));
    for kind in app.registry.kinds() {
        let resource = kind.info().subject().qualified();
        let prefix = crate::registry::prefix(kind.as_ref(), "");
        let range = portico_store::Range {
            prefix: &prefix,
            after: None,
            limit: 1,
            at: None,
        };
        let count = store
            .range(range)
            .map_or(0, |found| found.entries.len() + found.remaining);
        let label = crate::metrics::Kind { resource };
        app.metrics.objects.get_or_create(&label).set(gauge(count));
    }
}
