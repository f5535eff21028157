//! A small HTTPS client: one request at a time on kept HTTP/1.1 connections, watches on their own.

use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::PATIENCE;

pub(crate) const JSON: &str = "application/json";
pub(crate) const MERGE: &str = "application/merge-patch+json";
pub(crate) const STRATEGIC: &str = "application/strategic-merge-patch+json";
pub(crate) const JSON_PATCH: &str = "application/json-patch+json";
pub(crate) const APPLY: &str = "application/apply-patch+yaml";
pub(crate) const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

type Sender = http1::SendRequest<Full<Bytes>>;

/// A client of one server with one identity; clones share connections.
#[derive(Clone)]
pub(crate) struct Client {
    /// `127.0.0.1:PORT`
    pub authority: String,
    pub token: String,
    pub ca: Option<std::path::PathBuf>,
    tls: Arc<ClientConfig>,
    idle: Arc<Mutex<Vec<Sender>>>,
}

/// A whole answer.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl Answer {
    /// The body as JSON; null when it is none.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The body of an answer that must have this status.
    #[track_caller]
    pub(crate) fn expect(&self, status: u16) -> Value {
        assert_eq!(self.status, status, "{}", self.text());
        self.json()
    }
}

impl Client {
    pub(crate) fn new(authority: &str, token: &str, ca: Option<std::path::PathBuf>) -> Self {
        let tls = super::tls::config(ca.as_deref(), "http/1.1");
        Self {
            authority: authority.to_owned(),
            token: token.to_owned(),
            ca,
            tls,
            idle: Arc::default(),
        }
    }

    /// The same server with another token; empty for none.
    pub(crate) fn with_token(&self, token: &str) -> Self {
        Self {
            token: token.to_owned(),
            ..self.clone()
        }
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.call("GET", path, &[], None).await
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Answer {
        self.call("POST", path, &[], Some((JSON, body.to_string().into())))
            .await
    }

    pub(crate) async fn put(&self, path: &str, body: &Value) -> Answer {
        self.call("PUT", path, &[], Some((JSON, body.to_string().into())))
            .await
    }

    pub(crate) async fn patch(&self, path: &str, kind: &str, body: &Value) -> Answer {
        self.call("PATCH", path, &[], Some((kind, body.to_string().into())))
            .await
    }

    pub(crate) async fn delete(&self, path: &str) -> Answer {
        self.call("DELETE", path, &[], None).await
    }

    /// One request; panics when the connection fails.
    pub(crate) async fn call(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: Option<(&str, Bytes)>,
    ) -> Answer {
        match self.try_call(method, path, headers, body).await {
            Ok(answer) => answer,
            Err(error) => panic!("{method} {path}: {error}"),
        }
    }

    /// One request; an error means the server did not answer, or not in whole.
    pub(crate) async fn try_call(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: Option<(&str, Bytes)>,
    ) -> io::Result<Answer> {
        let idle = self.idle.lock().unwrap().pop();
        if let Some(mut sender) = idle
            && sender.ready().await.is_ok()
        {
            match self
                .exchange(sender, method, path, headers, body.clone())
                .await
            {
                Err(error) if closed_while_idle(&error) => {}
                outcome => return outcome.map_err(io::Error::other),
            }
        }
        let sender = self.connect().await?;
        self.exchange(sender, method, path, headers, body)
            .await
            .map_err(io::Error::other)
    }

    async fn exchange(
        &self,
        mut sender: Sender,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: Option<(&str, Bytes)>,
    ) -> Result<Answer, Failure> {
        let request = self
            .request(method, path, headers, body)
            .map_err(Failure::Request)?;
        let whole = async {
            let response = sender.send_request(request).await?;
            let (status, headers) = (response.status().as_u16(), response.headers().clone());
            let body = response.into_body().collect().await?.to_bytes();
            Ok::<_, hyper::Error>(Answer {
                status,
                headers,
                body,
            })
        };
        let answer = timeout(PATIENCE, whole)
            .await
            .map_err(|_| Failure::Late)?
            .map_err(Failure::Http)?;
        if sender.ready().await.is_ok() {
            self.idle.lock().unwrap().push(sender);
        }
        Ok(answer)
    }

    fn request(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: Option<(&str, Bytes)>,
    ) -> Result<Request<Full<Bytes>>, hyper::http::Error> {
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", &self.authority);
        if !self.token.is_empty() {
            request = request.header(AUTHORIZATION, format!("Bearer {}", self.token));
        }
        let (kind, body) = body.map_or((None, Bytes::new()), |(kind, body)| (Some(kind), body));
        let mut request = request.body(Full::new(body))?;
        let own = [("accept", Some(JSON)), (CONTENT_TYPE.as_str(), kind)];
        for (name, value) in own
            .into_iter()
            .filter_map(|(name, value)| Some((name, value?)))
            .chain(headers.iter().copied())
        {
            request
                .headers_mut()
                .insert(HeaderName::try_from(name)?, HeaderValue::try_from(value)?);
        }
        Ok(request)
    }

    /// A fresh TLS connection.
    pub(crate) async fn tls_stream(&self) -> io::Result<TlsStream<TcpStream>> {
        self.stream(self.tls.clone()).await
    }

    async fn stream(&self, tls: Arc<ClientConfig>) -> io::Result<TlsStream<TcpStream>> {
        let tcp = TcpStream::connect(&self.authority).await?;
        tcp.set_nodelay(true)?;
        let host = self
            .authority
            .rsplit_once(':')
            .map_or(self.authority.as_str(), |(host, _)| host);
        let name = ServerName::try_from(host.trim_matches(['[', ']']).to_owned())
            .map_err(io::Error::other)?;
        TlsConnector::from(tls).connect(name, tcp).await
    }

    async fn connect(&self) -> io::Result<Sender> {
        let stream = self.tls_stream().await?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream))
            .await
            .map_err(io::Error::other)?;
        tokio::spawn(connection);
        Ok(sender)
    }

    /// Opens a watch on a connection of its own; panics unless the answer is 200.
    pub(crate) async fn watch(&self, path: &str) -> Watch {
        match self.try_watch(path, &[]).await.unwrap() {
            Ok(watch) => watch,
            Err(answer) => panic!("watch {path}: {} {}", answer.status, answer.text()),
        }
    }

    /// Opens a watch; an answer other than 200 is the inner error.
    pub(crate) async fn try_watch(
        &self,
        path: &str,
        headers: &[(&str, &str)],
    ) -> io::Result<Result<Watch, Answer>> {
        let request = self
            .request("GET", path, headers, None)
            .map_err(io::Error::other)?;
        let mut sender = self.connect().await?;
        let response = timeout(PATIENCE, sender.send_request(request))
            .await?
            .map_err(io::Error::other)?;
        if response.status() == 200 {
            return Ok(Ok(Watch::new(response, Some(sender))));
        }
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let body = response
            .into_body()
            .collect()
            .await
            .map_err(io::Error::other)?
            .to_bytes();
        Ok(Err(Answer {
            status,
            headers,
            body,
        }))
    }

    /// An HTTP/2 connection, which can carry many watches.
    pub(crate) async fn http2(&self) -> Http2 {
        let stream = self
            .stream(super::tls::config(self.ca.as_deref(), "h2"))
            .await
            .unwrap();
        let (sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
            .await
            .unwrap();
        tokio::spawn(connection);
        Http2 {
            client: self.clone(),
            sender,
        }
    }

    // What the tests say most often

    pub(crate) async fn create_namespace(&self, name: &str) {
        let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        self.post("/api/v1/namespaces", &body).await.expect(201);
    }

    /// Creates a Service in the namespace `default` from its spec.
    pub(crate) async fn create_service(&self, name: &str, spec: Value) -> Answer {
        self.post("/api/v1/namespaces/default/services", &service(name, spec))
            .await
    }
}

/// A Service object.
pub(crate) fn service(name: &str, spec: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec})
}

#[derive(Debug)]
enum Failure {
    Request(hyper::http::Error),
    Http(hyper::Error),
    Late,
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Request(error) => write!(f, "{error}"),
            Self::Http(error) => write!(f, "{error:?}"),
            Self::Late => write!(f, "no answer within {PATIENCE:?}"),
        }
    }
}

impl std::error::Error for Failure {}

/// The server closed a kept connection before it saw the request, which is its right.
fn closed_while_idle(failure: &Failure) -> bool {
    matches!(failure, Failure::Http(error) if error.is_canceled())
}

/// An HTTP/2 connection.
#[derive(Clone)]
pub(crate) struct Http2 {
    client: Client,
    sender: http2::SendRequest<Full<Bytes>>,
}

impl Http2 {
    pub(crate) async fn get(&mut self, path: &str) -> Answer {
        let response = self.send(path).await;
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let body = response.into_body().collect().await.unwrap().to_bytes();
        Answer {
            status,
            headers,
            body,
        }
    }

    pub(crate) async fn watch(&mut self, path: &str) -> Watch {
        let response = self.send(path).await;
        assert_eq!(response.status(), 200);
        Watch::new(response, None)
    }

    async fn send(&mut self, path: &str) -> Response<Incoming> {
        let uri = format!("https://{}{path}", self.client.authority);
        let mut request = self.client.request("GET", &uri, &[], None).unwrap();
        request.headers_mut().remove("host");
        self.sender.ready().await.unwrap();
        self.sender.send_request(request).await.unwrap()
    }
}

/// An open watch.
pub(crate) struct Watch {
    pub headers: HeaderMap,
    body: Incoming,
    read: BytesMut,
    _keep: Option<Sender>,
}

impl Watch {
    fn new(response: Response<Incoming>, keep: Option<Sender>) -> Self {
        let headers = response.headers().clone();
        Self {
            headers,
            body: response.into_body(),
            read: BytesMut::new(),
            _keep: keep,
        }
    }

    /// The next event, which must come.
    pub(crate) async fn next(&mut self) -> Value {
        match self.within(PATIENCE).await {
            Some(Some(event)) => event,
            Some(None) => panic!("the watch ended"),
            None => panic!("no event within {PATIENCE:?}"),
        }
    }

    /// The next event that is not a bookmark.
    pub(crate) async fn next_change(&mut self) -> Value {
        loop {
            let event = self.next().await;
            if event["type"] != "BOOKMARK" {
                return event;
            }
        }
    }

    /// The next event; `Some(None)` when the server ended the watch, `None` when time is up.
    pub(crate) async fn within(&mut self, time: Duration) -> Option<Option<Value>> {
        let line = timeout(time, self.line()).await.ok()?;
        Some(line.map(|line| serde_json::from_slice(&line).unwrap()))
    }

    /// The next line as it came; none at the end. Cancelling loses nothing.
    pub(crate) async fn line(&mut self) -> Option<Bytes> {
        loop {
            if let Some(end) = self.read.iter().position(|&byte| byte == b'\n') {
                return Some(self.read.split_to(end + 1).freeze());
            }
            match self.body.frame().await {
                Some(Ok(frame)) => self
                    .read
                    .extend_from_slice(frame.data_ref().map_or(&[][..], |data| data)),
                _ => return (!self.read.is_empty()).then(|| self.read.split().freeze()),
            }
        }
    }
}
