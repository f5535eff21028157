//! Calls to a plugin: how long one may take, how large an answer may be, and what happens while no
//! plugin listens.

use std::path::{Path, PathBuf};
use std::time::Duration;

use http::uri::PathAndQuery;
use prost::Message;
use tokio::time::{Instant, sleep, timeout};
use tonic::client::Grpc;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status, Streaming};
use tonic_prost::ProstCodec;

use portico_client::wait::Backoff;

use super::errors;
use super::messages::{GET_INFO, GetInfoRequest, Info, NEWS, NewsItem, Nothing, REVISION};

/// What gRPC takes by default in every language, and far more than any Service needs.
pub(super) const LARGEST: usize = 4 << 20;

/// The pauses between tries.
const SHORTEST: Duration = Duration::from_millis(20);
const LONGEST: Duration = Duration::from_secs(1);

/// How patient the controller is with a plugin.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// For an answer.
    pub answer: Duration,
    /// How long a plugin that does not listen is waited for: it is being started, or restarted.
    pub outage: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            answer: Duration::from_secs(120),
            outage: Duration::from_secs(30),
        }
    }
}

#[derive(Clone, Debug)]
pub(super) struct Client {
    pub socket: PathBuf,
    channel: Channel,
    patience: Patience,
}

impl Client {
    /// Connects when there is something to say.
    pub(super) fn new(socket: &Path, patience: Patience) -> Result<Self, String> {
        let path = socket.to_str().filter(|path| path.starts_with('/'));
        let path = path
            .ok_or_else(|| format!("{} is not the absolute path of a socket", socket.display()))?;
        let endpoint =
            Endpoint::from_shared(format!("unix:{path}")).map_err(|error| error.to_string())?;
        let channel = endpoint.connect_timeout(patience.outage).connect_lazy();
        Ok(Self {
            socket: socket.to_owned(),
            channel,
            patience,
        })
    }

    pub(super) async fn info(&self) -> Result<Info, Status> {
        self.call(GET_INFO, GetInfoRequest { revision: REVISION })
            .await
    }

    /// Every call of the contract may be repeated, so one is, whenever the connection breaks, as
    /// long as the patience lasts.
    pub(super) async fn call<Q, A>(&self, path: &'static str, request: Q) -> Result<A, Status>
    where
        Q: Message + Clone + 'static,
        A: Message + Default + 'static,
    {
        let (began, mut backoff) = (Instant::now(), Backoff::new(SHORTEST, LONGEST));
        loop {
            let status = match self.once(path, request.clone()).await {
                Ok(answer) => return Ok(answer),
                Err(status) => status,
            };
            let pause = backoff.next_wait();
            if !errors::is_outage(&status) || began.elapsed() + pause > self.patience.outage {
                return Err(status);
            }
            sleep(pause).await;
        }
    }

    async fn once<Q, A>(&self, path: &'static str, request: Q) -> Result<A, Status>
    where
        Q: Message + Clone + 'static,
        A: Message + Default + 'static,
    {
        let mut request = Request::new(request);
        // A plugin that looks can give up in time.
        request.set_timeout(self.patience.answer);
        let mut grpc = self.grpc();
        let call = async {
            ready(&mut grpc).await?;
            grpc.unary(
                request,
                PathAndQuery::from_static(path),
                ProstCodec::default(),
            )
            .await
        };
        let late =
            || Status::deadline_exceeded(format!("no answer within {:?}", self.patience.answer));
        timeout(self.patience.answer, call)
            .await
            .unwrap_or_else(|_| Err(late()))
            .map(tonic::Response::into_inner)
    }

    /// Items come as long as the connection lives.
    pub(super) async fn news(&self) -> Result<Streaming<NewsItem>, Status> {
        let mut grpc = self.grpc();
        ready(&mut grpc).await?;
        let request = Request::new(Nothing {});
        let path = PathAndQuery::from_static(NEWS);
        grpc.server_streaming(request, path, ProstCodec::default())
            .await
            .map(tonic::Response::into_inner)
    }

    fn grpc(&self) -> Grpc<Channel> {
        Grpc::new(self.channel.clone())
            .max_decoding_message_size(LARGEST)
            .max_encoding_message_size(LARGEST)
    }
}

async fn ready(grpc: &mut Grpc<Channel>) -> Result<(), Status> {
    grpc.ready()
        .await
        .map_err(|error| Status::from_error(error.into()))
}
