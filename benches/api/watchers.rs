//! How long one change takes to reach a thousand watchers.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Instant;

use tokio::sync::{Notify, Semaphore};

use crate::common::client::Http2;
use crate::common::{Client, text};
use crate::raw::{self, Connection};
use crate::report::{Report, percentile};

const WATCHERS: usize = 1_000;
/// A server allows a hundred streams on a connection, maybe.
const CONNECTIONS: usize = 20;
const CHANGES: usize = 20;

pub(crate) async fn measure(report: &mut Report, client: &Client) {
    let version = current_version(client).await;
    let path = format!("/api/v1/namespaces/default/services?watch=1&resourceVersion={version}");

    let arrivals = Arrivals::default();
    let mut watches = vec![];
    for _ in 0..CONNECTIONS {
        let mut connection = client.http2().await;
        for _ in 0..WATCHERS / CONNECTIONS {
            watches.push(tokio::task::spawn_local(streamed(
                connection.clone(),
                path.clone(),
                arrivals.clone(),
            )));
            tokio::task::yield_now().await;
        }
        connection.get("/livez").await;
    }
    fan_out(report, "HTTP/2", client, &arrivals).await;
    watches.drain(..).for_each(|watch| watch.abort());

    let path = path.replace(&version, &current_version(client).await);
    let arrivals = Arrivals::default();
    for _ in 0..WATCHERS {
        let watch = Connection::open(client).await.watch(&raw::get(&path)).await;
        watches.push(tokio::task::spawn_local(separate(watch, arrivals.clone())));
    }
    fan_out(report, "HTTP/1.1", client, &arrivals).await;
    watches.iter().for_each(|watch| watch.abort());
}

async fn current_version(client: &Client) -> String {
    let list = client
        .get("/api/v1/namespaces/default/services?limit=1")
        .await
        .expect(200);
    text(&list, "metadata.resourceVersion").to_owned()
}

/// When each watcher saw the change.
#[derive(Clone)]
struct Arrivals {
    open: Rc<Semaphore>,
    seen: Rc<RefCell<Vec<Instant>>>,
    all: Rc<Notify>,
}

impl Default for Arrivals {
    fn default() -> Self {
        Self {
            open: Rc::new(Semaphore::new(0)),
            seen: Rc::default(),
            all: Rc::default(),
        }
    }
}

impl Arrivals {
    fn one(&self) {
        let mut seen = self.seen.borrow_mut();
        seen.push(Instant::now());
        if seen.len() == WATCHERS {
            self.all.notify_one();
        }
    }
}

async fn streamed(mut connection: Http2, path: String, arrivals: Arrivals) {
    let mut watch = connection.watch(&path).await;
    arrivals.open.add_permits(1);
    while watch.line().await.is_some() {
        arrivals.one();
    }
}

async fn separate(mut watch: Connection, arrivals: Arrivals) {
    arrivals.open.add_permits(1);
    loop {
        watch.event().await;
        arrivals.one();
    }
}

/// Changes one Service again and again; the times until the watchers know.
async fn fan_out(report: &mut Report, what: &str, client: &Client, arrivals: &Arrivals) {
    drop(arrivals.open.acquire_many(WATCHERS as u32).await.unwrap());
    let mut writer = Connection::open(client).await;
    let mut times = vec![];
    for change in 0..CHANGES {
        let body = format!(r#"{{"metadata":{{"annotations":{{"change":"{what} {change}"}}}}}}"#);
        let request = raw::patch("/api/v1/namespaces/default/services/web-00001", &body);
        let started = Instant::now();
        assert_eq!(writer.exchange(&request).await, 200);
        arrivals.all.notified().await;
        let seen = arrivals.seen.take();
        times.extend(
            seen.iter()
                .map(|seen| (*seen - started).as_secs_f64() * 1e3),
        );
    }
    report.add(
        &format!("one change to 1,000 watchers, {what}, p50"),
        percentile(&mut times, 50.0),
        "ms",
        false,
    );
    report.add(
        &format!("one change to 1,000 watchers, {what}, p99"),
        percentile(&mut times, 99.0),
        "ms",
        false,
    );
}
