//! A small web server for pages about a daemon: metrics, health, a dashboard. Every daemon has the
//! same bounds on connections and on silence.

use crate::connections::{Connections, Guest, Limits, UnderWay};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};

/// The time limit for the head of a request to arrive, counted from the connection or from the
/// answer before it.
pub const PATIENCE: Duration = Duration::from_secs(10);
/// Requests are a line and a few headers.
const MOST_HEADER_BYTES: usize = 16 << 10;
/// No answer takes longer to be taken, except where it is a stream.
const STALLED: Duration = Duration::from_secs(60);
/// What there is to wait after a connection could not be accepted.
const PAUSE: Duration = Duration::from_millis(50);

/// Bounds for a server of pages: half of its connections may come from one address.
pub fn limits(connections: usize) -> Limits {
    Limits {
        all: connections,
        strangers: connections,
        of_one_peer: connections.div_ceil(2),
        of_one_identity: connections,
        first_request: PATIENCE,
        idle: PATIENCE,
    }
}

/// Answer until dropped, which also ends the connections.
pub async fn serve<A, F, B>(listener: TcpListener, connections: usize, answer: A) -> Infallible
where
    A: Fn(Request<Incoming>) -> F + Send + Sync + 'static,
    F: Future<Output = Response<B>> + Send + 'static,
    B: Body + Send + Unpin + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let answer = Arc::new(answer);
    let guests = Connections::new(limits(connections), |_| {});
    let mut tasks = tokio::task::JoinSet::new();
    let accept = async {
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                Some(_) = tasks.join_next() => continue,
            };
            match accepted {
                Ok((stream, from)) => {
                    if let Some(guest) = guests.enter(from.ip()) {
                        tasks.spawn(connection(stream, Arc::new(guest), Arc::clone(&answer)));
                    }
                }
                Err(error) => {
                    // Out of file descriptors, most likely: one of ours has to do.
                    tracing::warn!(%error, "cannot accept a connection");
                    guests.make_room();
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    };
    tokio::select! {
        never = accept => never,
        never = guests.sweep() => never,
    }
}

async fn connection<A, F, B>(stream: TcpStream, guest: Arc<Guest>, answer: Arc<A>)
where
    A: Fn(Request<Incoming>) -> F,
    F: Future<Output = Response<B>>,
    B: Body + Unpin + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let service = service_fn(|request| {
        let mut under_way = guest.request(None);
        let answered = answer(request);
        async move {
            let answer = answered.await;
            // A stream, such as a watch that is passed on, may take as long as it likes.
            if answer.body().size_hint().exact().is_some() {
                under_way.sending(STALLED);
            }
            Ok::<_, Infallible>(answer.map(|body| Sent {
                body,
                _under_way: under_way,
            }))
        }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(PATIENCE)
        .max_buf_size(MOST_HEADER_BYTES)
        .serve_connection(TokioIo::new(stream), service);
    tokio::select! {
        // An error here means that the client has gone, and no answer can reach it.
        _ = served => {}
        () = guest.ended() => {}
    }
}

/// A body that is under way until it is dropped.
struct Sent<B> {
    body: B,
    _under_way: UnderWay,
}

impl<B: Body + Unpin> Body for Sent<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
