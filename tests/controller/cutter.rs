//! A proxy in front of the API server that holds back the answer to one write, or the write itself,
//! for ever: whoever made it can be killed at that very moment. It speaks plain HTTP to its clients
//! and adds the administrator's token.

use crate::common::Client;
use bytes::Bytes;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use std::sync::{Arc, Mutex};
use tokio::net::TcpListener;
use tokio::sync::Notify;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Cut {
    /// The write does not arrive.
    Before(usize),
    /// Its answer does not.
    After(usize),
}

#[derive(Clone)]
pub(crate) struct Cutter {
    pub url: String,
    state: Arc<Mutex<State>>,
    pub tripped: Arc<Notify>,
}

#[derive(Default)]
struct State {
    writes: Vec<String>,
    cut: Option<Cut>,
}

impl Cutter {
    pub(crate) async fn start(upstream: Client) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let cutter = Self {
            url,
            state: Arc::default(),
            tripped: Arc::default(),
        };
        let serving = cutter.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (cutter, upstream) = (serving.clone(), upstream.clone());
                tokio::spawn(async move {
                    let service = service_fn(move |request| {
                        forward(cutter.clone(), upstream.clone(), request)
                    });
                    let _ = hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), service)
                        .await;
                });
            }
        });
        cutter
    }

    /// Counting starts again.
    pub(crate) fn cut(&self, cut: Option<Cut>) {
        *self.state.lock().unwrap() = State {
            writes: Vec::new(),
            cut,
        };
    }

    /// The writes so far that count: not of Leases and the numbers of pools, which come by the
    /// clock, and not of Events and the key of nodes, which nothing waits for.
    pub(crate) fn writes(&self) -> Vec<String> {
        self.state.lock().unwrap().writes.clone()
    }

    /// What happens to this request.
    fn arrives(&self, request: &Request<Incoming>) -> Option<Cut> {
        let path = request.uri().path();
        let ignored = ["/leases", "/events", "/addresspools", "/secrets"];
        if request.method() == "GET" || ignored.iter().any(|ignored| path.contains(ignored)) {
            return None;
        }
        let mut state = self.state.lock().unwrap();
        let number = state.writes.len();
        state.writes.push(format!("{} {path}", request.method()));
        state
            .cut
            .take_if(|cut| matches!(cut, Cut::Before(at) | Cut::After(at) if *at == number))
    }

    async fn trip<T>(&self) -> T {
        self.tripped.notify_one();
        std::future::pending().await
    }
}

type Body = BoxBody<Bytes, hyper::Error>;

async fn forward(
    cutter: Cutter,
    upstream: Client,
    request: Request<Incoming>,
) -> std::io::Result<Response<Body>> {
    let cut = cutter.arrives(&request);
    if matches!(cut, Some(Cut::Before(_))) {
        return cutter.trip().await;
    }
    let (mut head, body) = request.into_parts();
    let body = body
        .collect()
        .await
        .map_err(std::io::Error::other)?
        .to_bytes();
    let token = format!("Bearer {}", upstream.token);
    head.headers.insert(
        "authorization",
        token.parse().map_err(std::io::Error::other)?,
    );
    head.headers.remove("connection");
    let stream = upstream.tls_stream().await?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .map_err(std::io::Error::other)?;
    tokio::spawn(connection);
    let answer = sender
        .send_request(Request::from_parts(head, Full::new(body)))
        .await
        .map_err(std::io::Error::other)?;
    if cut.is_some() {
        let _ = answer.into_body().collect().await;
        return cutter.trip().await;
    }
    Ok(answer.map(|body| {
        // The connection lives as long as its answer.
        body.map_frame(move |frame| {
            let _ = &sender;
            frame
        })
        .boxed()
    }))
}
