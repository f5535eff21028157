//! Listening sockets for answers of a few hundred bytes.

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{HeaderName, HeaderValue};
use hyper::{Request, Response, StatusCode, body::Incoming, header};
use portico_client::pages;
use socket2::{Domain, Protocol, Socket, Type};
use std::convert::Infallible;
use std::io;
use std::net::{Ipv6Addr, SocketAddr};
use tokio::net::TcpListener;

/// An answer with its whole body.
pub type Answer = Response<Full<Bytes>>;

/// For each listening socket.
const MOST_CONNECTIONS: usize = 128;

/// Answers on the IPv6 wildcard address go to both families.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// The family of the address alone.
    OneFamily,
    /// Both families, where the address is the unspecified one.
    BothFamilies,
}

/// Bind so that `0.0.0.0` and `[::]` both stand for every address of the node, if it speaks IPv6 at
/// all.
pub fn bind_everywhere(address: SocketAddr) -> io::Result<TcpListener> {
    if !address.ip().is_unspecified() {
        return bind(address, Reach::OneFamily);
    }
    match bind(
        SocketAddr::from((Ipv6Addr::UNSPECIFIED, address.port())),
        Reach::BothFamilies,
    ) {
        Err(error) if error.kind() != io::ErrorKind::AddrInUse => bind(address, Reach::OneFamily),
        bound => bound,
    }
}

/// A listening socket, which does not block.
pub fn bind(address: SocketAddr, reach: Reach) -> io::Result<TcpListener> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM,
        Some(Protocol::TCP),
    )?;
    if address.is_ipv6() {
        socket.set_only_v6(reach == Reach::OneFamily)?;
    }
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(128)?;
    TcpListener::from_std(socket.into())
}

/// Answer until dropped, which also ends the connections.
pub async fn serve<F>(listener: TcpListener, answer: F) -> Infallible
where
    F: Fn(&Request<Incoming>) -> Answer + Send + Sync + 'static,
{
    pages::serve(listener, MOST_CONNECTIONS, move |request| {
        std::future::ready(answer(&request))
    })
    .await
}

/// A JSON answer: 200 if `good`, otherwise 503.
pub fn json(good: bool, body: String) -> Answer {
    let status = if good {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    plain(status, HeaderValue::from_static("application/json"), body)
}

/// What Prometheus reads.
pub fn metrics(body: String) -> Answer {
    plain(
        StatusCode::OK,
        HeaderValue::from_static(portico_client::metrics::CONTENT_TYPE),
        body,
    )
}

/// A page for people.
pub fn text(body: String) -> Answer {
    plain(
        StatusCode::OK,
        HeaderValue::from_static("text/plain; charset=utf-8"),
        body,
    )
}

/// The answer 404.
pub fn not_found() -> Answer {
    let text = HeaderValue::from_static("text/plain; charset=utf-8");
    plain(
        StatusCode::NOT_FOUND,
        text,
        "404 page not found\n".to_owned(),
    )
}

fn plain(status: StatusCode, content_type: HeaderValue, body: String) -> Answer {
    let mut response = Response::new(Full::from(body));
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, content_type);
    response.headers_mut().insert(
        HeaderName::from_static("x-content-type-options"),
        HeaderValue::from_static("nosniff"),
    );
    response
}
