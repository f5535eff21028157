//! Follows the API server for one open page, and tells the page what changes.

use super::changes::Changes;
use crate::client::Reader;
use crate::fleet::{self, WatchedFleet};
use bytes::Bytes;
use futures_util::{FutureExt, Stream, StreamExt};
use http::header::AUTHORIZATION;
use jiff::Timestamp;
use kube::Client;
use kube::client::Body;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior};

/// Changes are gathered for this long, so that a page is not drawn more often than people see.
const GATHER: Duration = Duration::from_millis(200);
/// The fleet is judged again after this time, also when nothing has happened.
const JUDGE_AGAIN: Duration = Duration::from_secs(5);
/// A page that reads slower than the fleet changes is told less often, and no line is kept for it.
const LINES: usize = 1;

/// A line of JSON for everything that is there, then one for whatever changes, until the page is
/// closed.
pub(super) fn lines(reader: Reader) -> impl Stream<Item = Bytes> + Send {
    let (sender, receiver) = mpsc::channel(LINES);
    tokio::spawn(async move {
        let closed = sender.clone();
        tokio::select! {
            () = follow(reader, sender) => {}
            () = closed.closed() => {}
        }
    });
    futures_util::stream::unfold(receiver, |mut receiver| async move {
        let line = receiver.recv().await?;
        Some((line, receiver))
    })
}

async fn follow(reader: Reader, page: mpsc::Sender<Bytes>) {
    let mut news = fleet::follow(&as_caller(reader));
    let (mut watched, mut changes) = (WatchedFleet::default(), Changes::default());
    let (mut is_new, mut judged) = (true, Instant::now());
    // Silence changes what is shown as well: reports grow old.
    let mut silence = None;
    let mut look = tokio::time::interval(GATHER);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            Some(event) = news.next() => {
                is_new |= watched.apply(event, Timestamp::now());
                while let Some(Some(event)) = news.next().now_or_never() {
                    is_new |= watched.apply(event, Timestamp::now());
                }
            }
            _ = look.tick(), if watched.is_complete() || watched.trouble.is_some() => {
                let clock = Timestamp::now();
                let is_silent = silence.is_some_and(|silence| silence <= clock);
                if !is_new && !is_silent && judged.elapsed() < JUDGE_AGAIN {
                    continue;
                }
                (is_new, judged) = (false, Instant::now());
                silence = watched.fleet.next_silence(clock);
                let line = changes.next(&watched.fleet, watched.trouble.as_deref(), clock);
                let Some(mut line) = line.and_then(|line| serde_json::to_vec(&line).ok()) else {
                    continue;
                };
                line.push(b'\n');
                if page.send(line.into()).await.is_err() {
                    return;
                }
            }
        }
    }
}

/// The same client with the caller's credentials in place of its own.
fn as_caller(reader: Reader) -> Client {
    let Some(authorization) = reader.authorization else {
        return reader.client;
    };
    let service = tower::service_fn(move |mut request: http::Request<Body>| {
        let client = reader.client.clone();
        request
            .headers_mut()
            .insert(AUTHORIZATION, authorization.clone());
        async move { client.send(request).await }
    });
    Client::new(service, "default")
}
