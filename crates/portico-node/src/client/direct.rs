//! Requests that have a connection for themselves, whose answer is a stream. Once its head has come
//! the runtime has nothing more to do with the connection: who asked gets it, and reads the rest of
//! it as it comes in.

use super::framing::{self, Framing, Next};
use bytes::{Bytes, BytesMut};
use http::header::HOST;
use http::{Method, Request, Response};
use http_body_util::Full;
use hyper_rustls::{HttpsConnector, MaybeHttpsStream};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioIo;
use kube::client::Body;
use rustls::ClientConnection;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsRawFd, RawFd};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tower::{BoxError, Service, ServiceExt};

/// Read at once, at most.
const READ: usize = 8 << 10;
/// Of the body of a refusal.
const MOST_REFUSAL: usize = 64 << 10;

/// Asks by GET.
#[derive(Clone)]
pub struct Direct(pub HttpsConnector<HttpConnector>);

/// Comes with a good answer, whose body is on the connection.
#[derive(Clone)]
struct HandedOver(Arc<Mutex<Option<Connection>>>);

/// The connection of a good answer.
pub fn connection<B>(answer: &Response<B>) -> Option<Connection> {
    let HandedOver(connection) = answer.extensions().get()?;
    connection
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .take()
}

impl Service<Request<Body>> for Direct {
    type Response = Response<Full<Bytes>>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let connector = self.0.clone();
        Box::pin(async move {
            let head = head(&request)?;
            let mut stream = TokioIo::new(connector.oneshot(request.uri().clone()).await?);
            let mut buffer = BytesMut::with_capacity(READ);
            let (answer, mut framing) = split(ask(&mut stream, &head, &mut buffer).await?);
            if !answer.status().is_success() {
                let body = refusal(&mut stream, &mut framing, &mut buffer).await?;
                return Ok(answer.map(|()| Full::new(body)));
            }
            let connection = Connection::new(stream.into_inner(), framing, buffer)?;
            let mut answer = answer.map(|()| Full::default());
            answer
                .extensions_mut()
                .insert(HandedOver(Arc::new(Mutex::new(Some(connection)))));
            Ok(answer)
        })
    }
}

/// The request as it is sent.
fn head(request: &Request<Body>) -> Result<Vec<u8>, BoxError> {
    if request.method() != Method::GET {
        return Err(format!("{} has no connection for itself", request.method()).into());
    }
    let authority = request
        .uri()
        .authority()
        .ok_or("the server has no name")?
        .as_str();
    let host = authority.rsplit('@').next().unwrap_or(authority);
    let path = request
        .uri()
        .path_and_query()
        .map_or("/", |path| path.as_str());
    let mut head = format!("GET {path} HTTP/1.1\r\n").into_bytes();
    if !request.headers().contains_key(HOST) {
        head.extend(format!("host: {host}\r\n").into_bytes());
    }
    for (name, value) in request.headers() {
        [name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"]
            .into_iter()
            .for_each(|part| head.extend(part));
    }
    head.extend(b"\r\n");
    Ok(head)
}

fn split(answer: Response<Framing>) -> (Response<()>, Framing) {
    let (parts, framing) = answer.into_parts();
    (Response::from_parts(parts, ()), framing)
}

/// The head of the answer; what came with it of the body is in the buffer.
async fn ask<S>(stream: &mut S, head: &[u8], buffer: &mut BytesMut) -> io::Result<Response<Framing>>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    stream.write_all(head).await?;
    stream.flush().await?;
    loop {
        if let Some(answer) = framing::head(buffer)? {
            return Ok(answer);
        }
        if stream.read_buf(buffer).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}

/// A body that is not a stream, or as much of it as anybody wants to know.
async fn refusal<S>(
    stream: &mut S,
    framing: &mut Framing,
    buffer: &mut BytesMut,
) -> io::Result<Bytes>
where
    S: AsyncRead + Unpin,
{
    let mut body = BytesMut::new();
    while body.len() < MOST_REFUSAL {
        match framing.next(buffer)? {
            Next::Data(data) => body.extend_from_slice(&data),
            Next::End => break,
            Next::More => {
                if stream.read_buf(buffer).await? == 0 {
                    break;
                }
            }
        }
    }
    Ok(body.freeze())
}

/// On which the body of an answer comes in. Never waits.
pub struct Connection {
    socket: TcpStream,
    tls: Option<Box<ClientConnection>>,
    framing: Framing,
    buffer: BytesMut,
    /// There is nothing to read until the kernel says that there is.
    drained: bool,
    /// The other side sends nothing more: what is left is read to its end.
    closing: bool,
}

/// What comes next of a body.
#[derive(Debug, PartialEq, Eq)]
pub enum Arrival {
    Data(Bytes),
    /// Nothing until the kernel says that there is more to read.
    Nothing,
    End,
}

impl Connection {
    fn new(
        stream: MaybeHttpsStream<TokioIo<tokio::net::TcpStream>>,
        framing: Framing,
        buffer: BytesMut,
    ) -> io::Result<Connection> {
        let (socket, tls) = match stream {
            MaybeHttpsStream::Http(socket) => (socket, None),
            MaybeHttpsStream::Https(stream) => {
                let (socket, tls) = stream.into_inner().into_inner();
                (socket.into_inner(), Some(Box::new(tls)))
            }
        };
        let socket = socket.into_inner().into_std()?;
        Ok(Connection {
            socket,
            tls,
            framing,
            buffer,
            drained: false,
            closing: false,
        })
    }

    /// The kernel says that there is more to read, and whether it is the last.
    pub fn is_readable(&mut self, closing: bool) {
        self.drained = false;
        self.closing |= closing;
    }

    pub fn next(&mut self, scratch: &mut [u8]) -> io::Result<Arrival> {
        loop {
            match self.framing.next(&mut self.buffer)? {
                Next::Data(data) => return Ok(Arrival::Data(data)),
                Next::End => return Ok(Arrival::End),
                Next::More => {}
            }
            match self.read(scratch) {
                Ok(0) if self.framing.may_end() => return Ok(Arrival::End),
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(read) => self
                    .buffer
                    .extend_from_slice(scratch.get(..read).unwrap_or_default()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Ok(Arrival::Nothing);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn read(&mut self, scratch: &mut [u8]) -> io::Result<usize> {
        let mut wire = Wire {
            socket: &self.socket,
            drained: &mut self.drained,
            closing: self.closing,
        };
        let Some(tls) = &mut self.tls else {
            return wire.read(scratch);
        };
        loop {
            match tls.reader().read(scratch) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                read => return read,
            }
            tls.read_tls(&mut wire)?;
            let processed = tls.process_new_packets();
            // An answer to the other side, or what we have against it. There is always room for so
            // little.
            while tls.wants_write() && tls.write_tls(&mut wire).is_ok_and(|written| written > 0) {}
            processed.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        }
    }
}

impl AsRawFd for Connection {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

/// The socket, which is not asked for what it does not have: a read that does not fill its buffer
/// took all there was.
struct Wire<'a> {
    socket: &'a TcpStream,
    drained: &'a mut bool,
    closing: bool,
}

impl Read for Wire<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if *self.drained && !self.closing {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let read = self.socket.read(buffer);
        *self.drained = !read.as_ref().is_ok_and(|read| *read == buffer.len());
        read
    }
}

impl Write for Wire<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.socket.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests;
