//! The plugin's end of the contract, for providers written in Rust: what implements [`Provider`] is
//! a plugin in one call.

use std::convert::Infallible;
use std::sync::Arc;

use futures_util::stream::{self, Stream};
use http::Response;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use tokio::net::UnixListener;
use tokio::sync::{Semaphore, watch};
use tonic::body::Body;
use tonic::server::Grpc;
use tonic::{Request, Status};
use tonic_prost::ProstCodec;
use tracing::debug;

use super::client::LARGEST;
use super::errors::to_status;
use super::messages::{self as wire, NewsItem, NewsKind};
use crate::conformance::Can;
use crate::{News, Provider, ProviderError};

/// The controller needs one.
const MOST_CONNECTIONS: usize = 16;
const MOST_CALLS: u32 = 256;

/// What is served.
pub struct Served {
    /// Answers the calls.
    pub provider: Arc<dyn Provider>,
    /// The version of the plugin, for people.
    pub version: String,
    /// What the provider does about what not every one can do, for the conformance test.
    pub can: Can,
}

/// Serve a provider on a socket, until the future is dropped.
pub async fn serve(served: Served, listener: UnixListener) -> std::io::Result<Infallible> {
    let (served, places) = (Arc::new(served), Arc::new(Semaphore::new(MOST_CONNECTIONS)));
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else {
            return Err(std::io::Error::other("closed"));
        };
        let (stream, _) = listener.accept().await?;
        let served = Arc::clone(&served);
        tokio::spawn(async move {
            let service = service_fn(move |request| answer(Arc::clone(&served), request));
            let mut server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            let connection = server
                .max_concurrent_streams(MOST_CALLS)
                .serve_connection(TokioIo::new(stream), service);
            if let Err(error) = connection.await {
                debug!(%error, "a connection ended");
            }
            drop(place);
        });
    }
}

type HttpRequest = http::Request<Incoming>;
type Reply<A> = Result<tonic::Response<A>, Status>;

async fn answer(served: Arc<Served>, request: HttpRequest) -> Result<Response<Body>, Infallible> {
    let provider = Arc::clone(&served.provider);
    Ok(match request.uri().path() {
        wire::GET_INFO => {
            unary(request, |_: wire::GetInfoRequest| async move {
                Ok(info(&served))
            })
            .await
        }
        wire::DESCRIBE => {
            let describe = |wanted: wire::Request| async move {
                let found = provider
                    .describe(&read(wanted)?)
                    .await
                    .map_err(|error| to_status(&error))?;
                Ok(wire::Description {
                    balancer: found.as_ref().map(wire::Balancer::from),
                })
            };
            unary(request, describe).await
        }
        wire::ENSURE => {
            let ensure = |wanted: wire::Request| async move {
                let made = provider
                    .ensure(&read(wanted)?)
                    .await
                    .map_err(|error| to_status(&error))?;
                Ok(wire::Balancer::from(&made))
            };
            unary(request, ensure).await
        }
        wire::UPDATE_NODES => {
            let update = |wanted: wire::Request| async move {
                nothing(provider.update_nodes(&read(wanted)?).await)
            };
            unary(request, update).await
        }
        wire::DELETE => {
            let delete = |wanted: wire::Request| async move {
                nothing(provider.delete(&read(wanted)?).await)
            };
            unary(request, delete).await
        }
        wire::NEWS => news(request, provider.news()).await,
        other => Status::unimplemented(format!("{other} is not a call of portico.provider.v1"))
            .into_http(),
    })
}

fn info(served: &Served) -> wire::Info {
    wire::Info {
        name: served.provider.name().to_owned(),
        version: served.version.clone(),
        needs_revision: wire::REVISION,
        abilities: Some(served.provider.abilities().into()),
        features: Some((&served.can).into()),
    }
}

fn read(request: wire::Request) -> Result<crate::Request, Status> {
    request
        .try_into()
        .map_err(|error: super::convert::Malformed| Status::invalid_argument(error.to_string()))
}

fn nothing(done: Result<(), ProviderError>) -> Result<wire::Nothing, Status> {
    done.map(|()| wire::Nothing {})
        .map_err(|error| to_status(&error))
}

async fn unary<Q, A, F>(request: HttpRequest, work: impl FnOnce(Q) -> F + Clone) -> Response<Body>
where
    Q: Message + Default + 'static,
    A: Message + 'static,
    F: Future<Output = Result<A, Status>> + Send + 'static,
{
    let work = tower::service_fn(move |message: Request<Q>| {
        let work = work.clone();
        async move { Reply::Ok(tonic::Response::new(work(message.into_inner()).await?)) }
    });
    let mut grpc = Grpc::new(ProstCodec::<A, Q>::default()).max_decoding_message_size(LARGEST);
    grpc.unary(work, request).await
}

async fn news(request: HttpRequest, news: Option<watch::Receiver<News>>) -> Response<Body> {
    let Some(news) = news else {
        return Status::unimplemented("there is never any news").into_http();
    };
    let work = tower::service_fn(move |_: Request<wire::Nothing>| {
        let items = items(news.clone());
        async move { Reply::Ok(tonic::Response::new(items)) }
    });
    Grpc::new(ProstCodec::<NewsItem, wire::Nothing>::default())
        .server_streaming(work, request)
        .await
}

/// What changes from now on.
fn items(mut news: watch::Receiver<News>) -> impl Stream<Item = Result<NewsItem, Status>> + Send {
    let before = *news.borrow_and_update();
    stream::unfold((news, before), |(mut news, before)| async move {
        loop {
            news.changed().await.ok()?;
            let now = *news.borrow_and_update();
            let kind = if now.changed == before.changed {
                NewsKind::Freed
            } else {
                NewsKind::Changed
            };
            if now != before {
                return Some((Ok(NewsItem { kind: kind.into() }), (news, now)));
            }
        }
    })
}
