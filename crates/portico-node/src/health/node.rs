//! `/healthz`, `/livez` and `/readyz` of the node.

use super::listen::{self, Answer};
use super::{Monitor, Verdict};
use hyper::{Request, body::Incoming};
use prometheus_client::metrics::{counter::Counter, family::Family};
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

const RETRY: Duration = Duration::from_secs(5);

/// Answers given, by status code (`code="200"`): kube-proxy's `proxy_healthz_total` and
/// `proxy_livez_total`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Answers {
    pub healthz: Counts,
    pub livez: Counts,
}

pub(crate) type Counts = Family<[(&'static str, &'static str); 1], Counter>;

/// Serve until dropped. A port that is taken is tried again and again, unless that is `fatal`.
pub(crate) async fn serve(
    address: SocketAddr,
    monitor: Monitor,
    answers: Answers,
    fatal: bool,
) -> io::Result<Infallible> {
    let listener = loop {
        match listen::bind_everywhere(address) {
            Ok(listener) => break listener,
            Err(error) if fatal => return Err(error),
            Err(error) => tracing::error!(%address, %error, "cannot serve healthz, will try again"),
        }
        tokio::time::sleep(RETRY).await;
    };
    tracing::info!(%address, "serving healthz");
    Ok(listen::serve(listener, move |request| {
        respond(request, &monitor, &answers)
    })
    .await)
}

fn respond(request: &Request<Incoming>, monitor: &Monitor, answers: &Answers) -> Answer {
    match request.uri().path() {
        "/healthz" => counted(monitor.healthz(), &answers.healthz),
        "/livez" => counted(monitor.livez(), &answers.livez),
        "/readyz" => {
            let verdict = monitor.readyz();
            listen::json(verdict.good, verdict.body)
        }
        _ => listen::not_found(),
    }
}

fn counted(verdict: Verdict, counts: &Counts) -> Answer {
    counts
        .get_or_create(&[("code", if verdict.good { "200" } else { "503" })])
        .inc();
    listen::json(verdict.good, verdict.body)
}

#[cfg(test)]
mod tests;
