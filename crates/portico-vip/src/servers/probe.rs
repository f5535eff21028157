//! Asks one API server whether it is ready: a new connection each time, TLS verified,
//! `GET /readyz`.

use super::health::Finding;
use http::header::{AUTHORIZATION, HOST, HeaderValue};
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Bytes;
use hyper_util::rt::TokioIo;
use portico_client::error::chain;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};
use tokio_rustls::TlsConnector;

/// The most bytes of an answer; a server that is not ready lists its checks.
const MOST_BYTES: usize = 64 << 10;

#[derive(Clone)]
pub struct Prober {
    tls: TlsConnector,
    /// The name in the certificate, where it is not the server's address.
    name: Option<ServerName<'static>>,
    token: Option<HeaderValue>,
    path: String,
    limit: Duration,
}

impl Prober {
    pub fn new(
        tls: ClientConfig,
        name: Option<ServerName<'static>>,
        token: Option<HeaderValue>,
        limit: Duration,
    ) -> Self {
        let mut tls = tls;
        tls.alpn_protocols = vec![b"http/1.1".to_vec()];
        Self {
            tls: TlsConnector::from(Arc::new(tls)),
            name,
            token,
            path: "/readyz".to_owned(),
            limit,
        }
    }

    pub async fn probe(&self, server: SocketAddr) -> Finding {
        let limit = Instant::now() + self.limit;
        let stream = match timeout_at(limit, TcpStream::connect(server)).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => return Finding::Unreachable(format!("cannot connect: {error}")),
            Err(_) => {
                return Finding::Unreachable(format!("no connection within {:?}", self.limit));
            }
        };
        match timeout_at(limit, self.ask(server, stream)).await {
            Ok(finding) => finding,
            Err(_) => Finding::NotReady(format!("no answer within {:?}", self.limit)),
        }
    }

    async fn ask(&self, server: SocketAddr, stream: TcpStream) -> Finding {
        let name = self
            .name
            .clone()
            .unwrap_or_else(|| ServerName::IpAddress(server.ip().into()));
        let stream = match self.tls.connect(name, stream).await {
            Ok(stream) => stream,
            Err(error) => return Finding::NotReady(tls_problem(&error)),
        };
        match self.request(server, stream).await {
            Ok((StatusCode::OK, _)) => Finding::Ready,
            Ok((code @ (StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN), _)) => {
                Finding::Silent(format!(
                    "{} is answered {code}: give --kubeconfig with credentials that may read it",
                    self.path
                ))
            }
            Ok((code, body)) => Finding::NotReady(format!(
                "{} is answered {code}{}",
                self.path,
                failed_checks(&body)
            )),
            Err(error) => Finding::NotReady(chain(&*error)),
        }
    }

    async fn request(
        &self,
        server: SocketAddr,
        stream: tokio_rustls::client::TlsStream<TcpStream>,
    ) -> Result<(StatusCode, Bytes), Box<dyn std::error::Error + Send + Sync>> {
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        let connection = tokio::spawn(connection);
        let mut request = Request::get(&self.path).header(HOST, server.to_string());
        if let Some(token) = &self.token {
            request = request.header(AUTHORIZATION, token);
        }
        let answer = sender
            .send_request(request.body(Empty::<Bytes>::new())?)
            .await;
        let answer = match answer {
            Ok(answer) => {
                let status = answer.status();
                Limited::new(answer.into_body(), MOST_BYTES)
                    .collect()
                    .await
                    .map(|body| (status, body.to_bytes()))
            }
            Err(error) => Err(error.into()),
        };
        connection.abort();
        answer
    }
}

/// What is wrong with a certificate is for the operator of this program as often as for the
/// server's.
fn tls_problem(error: &std::io::Error) -> String {
    let text = error.to_string();
    match text.contains("NotValidForName") || text.contains("not valid for name") {
        true => format!("{text}; give --tls-server-name with a name that is in it"),
        false => text,
    }
}

/// The checks that failed, from lines such as `[-]etcd failed: reason withheld`.
fn failed_checks(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    let failed: Vec<&str> = text
        .lines()
        .filter_map(|line| line.strip_prefix("[-]"))
        .map(|line| line.split(' ').next().unwrap_or(line))
        .collect();
    if failed.is_empty() {
        String::new()
    } else {
        format!(" ({} failed)", failed.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_the_checks_that_failed() {
        let body =
            b"[+]ping ok\n[-]etcd failed: reason withheld\n[-]informer-sync failed: x\nreadyz \
              check failed\n";
        assert_eq!(failed_checks(body), " (etcd, informer-sync failed)");
        assert_eq!(failed_checks(b"no"), "");
    }
}
