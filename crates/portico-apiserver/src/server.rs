//! The listening socket: TLS, HTTP/1.1 and HTTP/2, and an orderly end.

mod linger;

use crate::app::App;
use crate::auth::certificate::ClientCertificate;
use crate::handler::{self, Peer};
use crate::limits::LastRefusal;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use linger::Linger;
use portico_client::connections::Guest;
use socket2::{SockRef, TcpKeepalive};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Also between two requests: a client that comes every half minute keeps the connection. The first
/// request has less time, see `limits`.
const HEADER_TIMEOUT: Duration = Duration::from_secs(90);
/// What may be read of HTTP/1 before it is a request. A URI has at most half of this.
const MOST_HEADER_BYTES: usize = 128 * 1024;
/// How long open requests have to end after the server was asked to stop.
const FAREWELL: Duration = Duration::from_secs(5);
/// A peer that takes nothing for this long is gone, or reads too slowly to be worth the memory.
const STALLED: Duration = Duration::from_secs(60);

/// Accept connections until `stop` turns true.
pub(crate) async fn serve(
    app: Arc<App>,
    listener: TcpListener,
    tls: TlsAcceptor,
    mut stop: watch::Receiver<bool>,
) {
    let graceful = GracefulShutdown::new();
    let connections = Arc::clone(&app.connections);
    let accept = async {
        loop {
            let (stream, address) = match listener.accept().await {
                Ok(accepted) => accepted,
                Err(error) => {
                    // Out of file descriptors, most likely: one that is idle has to do.
                    tracing::warn!(%error, "cannot accept a connection");
                    connections.make_room();
                    tokio::time::sleep(Duration::from_millis(5)).await;
                    continue;
                }
            };
            let Some(guest) = connections.enter(address.ip()) else {
                continue;
            };
            let (app, tls, watcher) = (Arc::clone(&app), tls.clone(), graceful.watcher());
            tokio::spawn(async move {
                let guest = Arc::new(guest);
                let served = connection(app, tls, stream, address, Arc::clone(&guest), watcher);
                tokio::select! {
                    served = served => if let Err(error) = served {
                        tracing::debug!(%error, %address, "connection ended");
                    },
                    () = guest.ended() => tracing::debug!(%address, "connection was ended"),
                }
            });
        }
    };
    tokio::select! {
        () = accept => {}
        _ = connections.sweep() => {}
        _ = stop.wait_for(|stop| *stop) => {}
    }
    drop(listener);
    let _ = tokio::time::timeout(FAREWELL, graceful.shutdown()).await;
}

type Error = Box<dyn std::error::Error + Send + Sync>;

async fn connection(
    app: Arc<App>,
    tls: TlsAcceptor,
    stream: TcpStream,
    address: SocketAddr,
    guest: Arc<Guest>,
    watcher: Watcher,
) -> Result<(), Error> {
    tune(&stream);
    let stream = tokio::time::timeout(HANDSHAKE_TIMEOUT, tls.accept(stream)).await??;
    let certificates = stream.get_ref().1.peer_certificates();
    let certificate = certificates
        .and_then(|chain| chain.first())
        .map(|der| ClientCertificate::parse(der));
    let peer = Arc::new(Peer {
        address,
        guest,
        last_refusal: LastRefusal::default(),
        certificate,
    });
    let service = service_fn(move |request| {
        let (app, peer) = (Arc::clone(&app), Arc::clone(&peer));
        async move { Ok::<_, std::convert::Infallible>(handler::handle(app, peer, request).await) }
    });
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .max_buf_size(MOST_HEADER_BYTES);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(1_000)
        .keep_alive_interval(Duration::from_secs(30))
        .keep_alive_timeout(Duration::from_secs(30));
    let served = builder.serve_connection(TokioIo::new(Linger::new(stream)), service);
    watcher.watch(served.into_owned()).await
}

/// Small answers leave at once; dead and stalled peers are found out by the kernel.
fn tune(stream: &TcpStream) {
    let socket = SockRef::from(stream);
    let keepalive = TcpKeepalive::new()
        .with_time(STALLED)
        .with_interval(Duration::from_secs(15));
    for result in [
        socket.set_tcp_nodelay(true),
        socket.set_tcp_keepalive(&keepalive),
        socket.set_tcp_user_timeout(Some(STALLED)),
    ] {
        if let Err(error) = result {
            tracing::debug!(%error, "cannot set a socket option");
        }
    }
}
