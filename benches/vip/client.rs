//! What the client asks the control plane: whether it lives, on a new connection with TLS.

use crate::outage;
use crate::rig::VIP;
use crate::tls;
use portico_testbed::Host;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// Works until the benchmark ends.
pub(crate) fn start(host: Host) -> outage::Client {
    let tls = tls::config(None, "http/1.1");
    outage::Client::start(host, move || ask(Arc::clone(&tls)))
}

async fn ask(tls: Arc<ClientConfig>) -> std::io::Result<()> {
    let to: SocketAddr = VIP.parse().unwrap();
    let stream = TcpStream::connect(to).await?;
    stream.set_nodelay(true)?;
    let mut stream = TlsConnector::from(tls)
        .connect(ServerName::IpAddress(to.ip().into()), stream)
        .await?;
    stream
        .write_all(b"GET /livez HTTP/1.1\r\nHost: vip\r\nConnection: close\r\n\r\n")
        .await?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await?;
    if answer.starts_with(b"HTTP/1.1 200") {
        Ok(())
    } else {
        Err(std::io::ErrorKind::InvalidData.into())
    }
}
