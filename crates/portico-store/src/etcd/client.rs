//! Connections to the members of an etcd cluster: which one is used, for how long a call may take,
//! and which member is asked next. A read goes to the next member on failure; a write only if it
//! surely was not sent.

use std::error::Error as StdError;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::uri::PathAndQuery;
use tokio_stream::StreamExt;
use tonic::client::Grpc;
use tonic::metadata::MetadataValue;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Request, Status, Streaming};
use tonic_prost::ProstCodec;

use super::failure::Failure;
use super::proto::{
    self, CompactRequest, CompactResponse, RangeRequest, RangeResponse, TxnRequest, TxnResponse,
};
use super::proto::{WatchCreate, WatchRequest, WatchResponse};
use super::{EtcdOptions, EtcdTls};
use crate::OpenError;

/// etcd drops clients that ask more often than every 5 seconds.
const KEEP_ALIVE: Duration = Duration::from_secs(10);

pub(super) struct Client {
    members: Vec<Channel>,
    current: AtomicUsize,
    timeout: Duration,
}

impl Client {
    pub(super) fn new(options: &EtcdOptions) -> Result<Self, OpenError> {
        if options.endpoints.is_empty() {
            return Err(OpenError::Option {
                option: "endpoints",
                reason: "there are none".into(),
            });
        }
        let tls = options.tls.as_ref().map(tls_config).transpose()?;
        let members = options
            .endpoints
            .iter()
            .map(|endpoint| channel(endpoint, options, tls.clone()));
        let members = members.collect::<Result<_, _>>()?;
        Ok(Self {
            members,
            current: AtomicUsize::new(0),
            timeout: options.request_timeout,
        })
    }

    pub(super) async fn range(&self, request: RangeRequest) -> Result<RangeResponse, Failure> {
        self.call(proto::RANGE, request, Failure::is_outage).await
    }

    pub(super) async fn txn(&self, request: TxnRequest) -> Result<TxnResponse, Failure> {
        self.call(proto::TXN, request, Failure::was_not_sent).await
    }

    /// Compacting what is already compacted is fine.
    pub(super) async fn compact(&self, revision: i64) -> Result<(), Failure> {
        match self
            .call::<_, CompactResponse>(
                proto::COMPACT,
                CompactRequest { revision },
                Failure::is_outage,
            )
            .await
        {
            Err(failure) if !failure.is_compacted() => Err(failure),
            _ => Ok(()),
        }
    }

    pub(super) async fn watch(
        &self,
        create: WatchCreate,
    ) -> Result<Streaming<WatchResponse>, Failure> {
        let create = WatchRequest {
            create: Some(create),
        };
        // The stream of requests stays open: its end would end the watch.
        let requests = tokio_stream::once(create).chain(tokio_stream::pending());
        let (_, mut grpc) = self.current();
        let call = async {
            ready(&mut grpc).await?;
            grpc.streaming(
                with_leader(requests),
                PathAndQuery::from_static(proto::WATCH),
                ProstCodec::default(),
            )
            .await
        };
        let opened = self.in_time(call).await?;
        Ok(opened.into_inner())
    }

    /// Leaves the member that is used now for the next one.
    pub(super) fn go_on(&self) {
        let (index, _) = self.current();
        self.go_on_from(index);
    }

    async fn call<Q, A>(
        &self,
        path: &'static str,
        request: Q,
        again: fn(&Failure) -> bool,
    ) -> Result<A, Failure>
    where
        Q: prost::Message + Clone + 'static,
        A: prost::Message + Default + 'static,
    {
        // Once more than there are members: the first failure may be a connection that died long
        // ago.
        let mut tries = self.members.len();
        loop {
            let (index, mut grpc) = self.current();
            let request = with_leader(request.clone());
            let call = async {
                ready(&mut grpc).await?;
                grpc.unary(
                    request,
                    PathAndQuery::from_static(path),
                    ProstCodec::default(),
                )
                .await
            };
            let failure = match self.in_time(call).await {
                Ok(answer) => return Ok(answer.into_inner()),
                Err(failure) => failure,
            };
            if failure.is_outage() {
                self.go_on_from(index);
            }
            if tries == 0 || !again(&failure) {
                return Err(failure);
            }
            tries -= 1;
        }
    }

    async fn in_time<T>(
        &self,
        call: impl Future<Output = Result<T, Status>>,
    ) -> Result<T, Failure> {
        let late = |_| {
            Err(Status::deadline_exceeded(format!(
                "no answer within {:?}",
                self.timeout
            )))
        };
        tokio::time::timeout(self.timeout, call)
            .await
            .unwrap_or_else(late)
            .map_err(Failure)
    }

    fn current(&self) -> (usize, Grpc<Channel>) {
        let index = self.current.load(Ordering::Relaxed) % self.members.len();
        (
            index,
            Grpc::new(self.members[index].clone()).max_decoding_message_size(i32::MAX as usize),
        )
    }

    /// Many calls may fail on one member at once: only the first moves on.
    fn go_on_from(&self, index: usize) {
        let next = (index + 1) % self.members.len();
        let _ = self
            .current
            .compare_exchange(index, next, Ordering::Relaxed, Ordering::Relaxed);
    }
}

async fn ready(grpc: &mut Grpc<Channel>) -> Result<(), Status> {
    grpc.ready()
        .await
        .map_err(|error| Status::from_error(error.into()))
}

/// A member that lost the cluster shall say so at once.
fn with_leader<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    request
        .metadata_mut()
        .insert("hasleader", MetadataValue::from_static("true"));
    request
}

fn channel(
    address: &str,
    options: &EtcdOptions,
    tls: Option<ClientTlsConfig>,
) -> Result<Channel, OpenError> {
    let wrong = |reason: String| OpenError::Option {
        option: "endpoints",
        reason: format!("{address}: {reason}"),
    };
    let endpoint =
        Endpoint::from_shared(address.to_owned()).map_err(|error| wrong(error.to_string()))?;
    let endpoint = match (endpoint.uri().scheme_str(), tls) {
        (Some("http"), _) => endpoint,
        (Some("https"), Some(tls)) => endpoint
            .tls_config(tls)
            .map_err(|error| tls_error(&error))?,
        (Some("https"), None) => {
            return Err(wrong("https needs the tls option with a CA file".into()));
        }
        _ => return Err(wrong("it must start with http:// or https://".into())),
    };
    let endpoint = endpoint
        .connect_timeout(options.connect_timeout)
        .tcp_nodelay(true);
    let endpoint = endpoint
        .http2_keep_alive_interval(KEEP_ALIVE)
        .keep_alive_timeout(options.request_timeout)
        .keep_alive_while_idle(true);
    Ok(endpoint.connect_lazy())
}

fn tls_config(tls: &EtcdTls) -> Result<ClientTlsConfig, OpenError> {
    let mut config =
        ClientTlsConfig::new().ca_certificate(Certificate::from_pem(read_pem(&tls.ca)?));
    if let Some((certificate, key)) = &tls.identity {
        config = config.identity(Identity::from_pem(read_pem(certificate)?, read_pem(key)?));
    }
    if let Some(name) = &tls.server_name {
        config = config.domain_name(name);
    }
    Ok(config)
}

fn read_pem(path: &Path) -> Result<Vec<u8>, OpenError> {
    fs::read(path).map_err(|error| OpenError::Option {
        option: "tls",
        reason: format!("{}: {error}", path.display()),
    })
}

fn tls_error(error: &dyn StdError) -> OpenError {
    let reason = error
        .source()
        .map_or_else(|| error.to_string(), |source| source.to_string());
    OpenError::Option {
        option: "tls",
        reason,
    }
}
