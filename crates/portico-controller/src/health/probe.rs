//! Asks one endpoint whether it is fit. A connection for each probe, because what is asked for is
//! also whether a new one can be made.

use std::{io, net::SocketAddr, sync::Arc};

use portico_client::tls;
use rustls::pki_types::ServerName;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};
use tokio_rustls::TlsConnector;

use super::{Check, How};

/// What is read of an answer: the first line is enough.
const ENOUGH: usize = 64;

#[derive(Clone)]
pub(super) struct Prober {
    tls: TlsConnector,
}

impl Prober {
    pub(super) fn new() -> Result<Self, rustls::Error> {
        // An endpoint is known by its address, which no certificate has to name.
        let config = tls::any_certificate()?;
        Ok(Self {
            tls: TlsConnector::from(Arc::new(config)),
        })
    }

    /// Why it is not fit, for people.
    pub(super) async fn probe(&self, address: SocketAddr, check: &Check) -> Result<(), String> {
        match timeout(check.timeout, self.ask(address, &check.how)).await {
            Err(_) => Err(format!("no answer within {:?}", check.timeout)),
            Ok(Err(error)) => Err(error.to_string()),
            Ok(Ok(None)) => Ok(()),
            Ok(Ok(Some(line))) => judge(&line),
        }
    }

    /// The beginning of the answer, where one is asked for.
    async fn ask(&self, address: SocketAddr, how: &How) -> io::Result<Option<Vec<u8>>> {
        let stream = TcpStream::connect(address).await?;
        match how {
            How::Tcp => Ok(None),
            How::Http(path) => get(stream, address, path).await.map(Some),
            How::Https(path) => {
                let stream = self
                    .tls
                    .connect(ServerName::IpAddress(address.ip().into()), stream)
                    .await?;
                get(stream, address, path).await.map(Some)
            }
        }
    }
}

async fn get<S: AsyncRead + AsyncWrite + Unpin>(
    mut stream: S,
    address: SocketAddr,
    path: &str,
) -> io::Result<Vec<u8>> {
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: {address}\r\nUser-Agent: portico-health\r\nAccept: \
         */*\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await?;
    stream.flush().await?;
    let mut line = Vec::with_capacity(ENOUGH);
    while !line.contains(&b'\n') && line.len() < ENOUGH && stream.read_buf(&mut line).await? > 0 {}
    Ok(line)
}

/// From a line such as `HTTP/1.1 200 OK`.
fn judge(line: &[u8]) -> Result<(), String> {
    let text = String::from_utf8_lossy(line);
    let code = text
        .lines()
        .next()
        .and_then(|line| line.strip_prefix("HTTP/1."))
        .and_then(|rest| rest.split(' ').nth(1));
    match code.and_then(|code| code.parse::<u16>().ok()) {
        Some(200..=399) => Ok(()),
        Some(code) => Err(format!("answered {code}")),
        None if line.is_empty() => Err("closed the connection without an answer".to_owned()),
        None => Err("the answer is not HTTP".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tokio::net::TcpListener;

    #[test]
    fn success_and_redirects_are_good() {
        for (line, good) in [
            ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n", true),
            ("HTTP/1.0 204 No Content\r\n", true),
            ("HTTP/1.1 302 Found\r\n", true),
            ("HTTP/1.1 404 Not Found\r\n", false),
            ("HTTP/1.1 503 Service Unavailable\r\n", false),
            ("HTTP/1.1 2000\r\n", false),
            ("SSH-2.0-OpenSSH\r\n", false),
            ("", false),
        ] {
            assert_eq!(judge(line.as_bytes()).is_ok(), good, "{line:?}");
        }
    }

    /// A server of one connection.
    async fn answering(answer: &'static str) -> (SocketAddr, tokio::task::JoinHandle<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = vec![0; 1024];
            let count = stream.read(&mut request).await.unwrap();
            stream.write_all(answer.as_bytes()).await.unwrap();
            String::from_utf8_lossy(&request[..count]).into_owned()
        });
        (address, server)
    }

    fn check(text: &str) -> Check {
        Check {
            timeout: Duration::from_secs(30),
            ..text.parse().unwrap()
        }
    }

    #[tokio::test]
    async fn asks_for_the_path() {
        let prober = Prober::new().unwrap();
        let (address, server) = answering("HTTP/1.1 200 OK\r\n\r\n").await;
        assert_eq!(
            prober.probe(address, &check("http:/live?a=b")).await,
            Ok(())
        );
        assert!(
            server
                .await
                .unwrap()
                .starts_with("GET /live?a=b HTTP/1.1\r\n")
        );
        let (address, _server) = answering("HTTP/1.1 500 Oh\r\n\r\n").await;
        assert_eq!(
            prober.probe(address, &check("http:/")).await,
            Err("answered 500".to_owned())
        );
    }

    #[tokio::test]
    async fn a_closed_port_is_bad_whatever_is_asked() {
        let prober = Prober::new().unwrap();
        let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = taken.local_addr().unwrap();
        assert_eq!(prober.probe(address, &check("tcp")).await, Ok(()));
        let silent = Check {
            timeout: Duration::from_millis(50),
            ..check("http:/")
        };
        assert_eq!(
            prober.probe(address, &silent).await,
            Err("no answer within 50ms".to_owned())
        );
        drop(taken);
        for how in ["tcp", "http:/", "https:/"] {
            let closed = prober.probe(address, &check(how)).await.unwrap_err();
            assert!(closed.contains("refused"), "{how}: {closed}");
        }
    }
}
