//! Requests that have a connection for themselves, whose answer is read by who asked. Of a connection that is shared, another task reads
//! and passes on what came in: for an event of a watch, which finds all caches cold, that is a good part of what it costs.

use super::framing::{self, Framing, Next};
use bytes::{Bytes, BytesMut};
use http::header::HOST;
use http::{Method, Request, Response, Uri};
use hyper::body::{Body as HttpBody, Frame};
use hyper_util::rt::TokioIo;
use kube::client::Body;
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tower::{BoxError, Service, ServiceExt};

/// Read at once, at most.
const READ: usize = 8 << 10;

/// Asks by GET, on connections that the connector makes.
#[derive(Clone)]
pub struct Direct<C>(pub C);

impl<C> Service<Request<Body>> for Direct<C>
where
    C: Service<Uri, Response: hyper::rt::Read + hyper::rt::Write + Send + Unpin + 'static> + Clone + Send + 'static,
    C::Error: Into<BoxError>,
    C::Future: Send,
{
    type Response = Response<Incoming<TokioIo<C::Response>>>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let connector = self.0.clone();
        Box::pin(async move {
            let head = head(&request)?;
            let stream = connector.oneshot(request.uri().clone()).await.map_err(Into::into)?;
            Ok(ask(TokioIo::new(stream), &head).await?)
        })
    }
}

/// The request as it is sent.
fn head(request: &Request<Body>) -> Result<Vec<u8>, BoxError> {
    if request.method() != Method::GET {
        return Err(format!("{} has no connection for itself", request.method()).into());
    }
    let authority = request.uri().authority().ok_or("the server has no name")?.as_str();
    let host = authority.rsplit('@').next().unwrap_or(authority);
    let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
    let mut head = format!("GET {path} HTTP/1.1\r\n").into_bytes();
    if !request.headers().contains_key(HOST) {
        head.extend(format!("host: {host}\r\n").into_bytes());
    }
    for (name, value) in request.headers() {
        [name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"].into_iter().for_each(|part| head.extend(part));
    }
    head.extend(b"\r\n");
    Ok(head)
}

async fn ask<S: AsyncRead + AsyncWrite + Unpin>(mut stream: S, head: &[u8]) -> io::Result<Response<Incoming<S>>> {
    stream.write_all(head).await?;
    stream.flush().await?;
    let mut buffer = BytesMut::with_capacity(READ);
    loop {
        if let Some(answer) = framing::head(&mut buffer)? {
            return Ok(answer.map(|framing| Incoming { stream, buffer, framing }));
        }
        if stream.read_buf(&mut buffer).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}

/// The body of an answer.
pub struct Incoming<S> {
    stream: S,
    buffer: BytesMut,
    framing: Framing,
}

impl<S: AsyncRead + Unpin> HttpBody for Incoming<S> {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let Incoming { stream, buffer, framing } = &mut *self;
        loop {
            match framing.next(buffer)? {
                Next::Data(data) => return Poll::Ready(Some(Ok(Frame::data(data)))),
                Next::End => return Poll::Ready(None),
                Next::More => buffer.reserve(READ),
            }
            let read = ready!(pin!(stream.read_buf(buffer)).poll(context))?;
            match (read, framing.may_end()) {
                (0, true) => return Poll::Ready(None),
                (0, false) => return Poll::Ready(Some(Err(io::ErrorKind::UnexpectedEof.into()))),
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_says_what_the_layers_put_in() {
        let get =
            Request::get("https://me:secret@[fd00::1]:6443/api/v1/pods?watch=1").header("authorization", "Bearer x");
        let sent = String::from_utf8(head(&get.body(Body::empty()).unwrap()).unwrap()).unwrap();
        assert_eq!(
            sent,
            "GET /api/v1/pods?watch=1 HTTP/1.1\r\nhost: [fd00::1]:6443\r\nauthorization: Bearer x\r\n\r\n"
        );
        let post = Request::post("https://a/b").body(Body::empty()).unwrap();
        assert!(head(&post).is_err());
    }

    #[tokio::test]
    async fn a_body_that_breaks_off_is_not_one_that_ends() {
        for (answer, is_whole) in [
            ("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n", true),
            ("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n", false),
            ("HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nab", false),
            ("HTTP/1.1 200 OK\r\n\r\nab", true),
        ] {
            let stream = answering(answer);
            let body = ask(stream, b"GET / HTTP/1.1\r\n\r\n").await.unwrap().into_body();
            let read = http_body_util::BodyExt::collect(body).await;
            assert_eq!(read.is_ok(), is_whole, "{answer:?}");
        }
    }

    /// Takes what is written, and gives the answer.
    fn answering(answer: &'static str) -> impl AsyncRead + AsyncWrite + Unpin {
        tokio::io::join(answer.as_bytes(), tokio::io::sink())
    }
}
