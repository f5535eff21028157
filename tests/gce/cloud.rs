//! The cloud's API and the metadata server of its machines, over HTTP.

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use portico_fakecloud::gce::Gce;
use portico_testbed::Host;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};

const TOKEN: &str = "hush";

/// Answers as long as it lives.
pub(crate) struct Api {
    pub address: SocketAddr,
    _runtime: Runtime,
}

impl Api {
    pub(crate) fn serve(cloud: &Arc<Gce>, host: &Host) -> Self {
        let listener = host
            .enter(|| std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)))
            .unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        runtime.spawn(accept(listener, Arc::clone(cloud)));
        Self {
            address,
            _runtime: runtime,
        }
    }

    /// The file of `--cloud-config`.
    pub(crate) fn config(&self) -> String {
        format!(
            "[global]\nproject-id = {}\nlocal-zone = {}-b\nnetwork-name = default\nnode-tags = nodes\n\
             api-endpoint = http://{}/compute/v1/\n",
            Gce::PROJECT,
            Gce::REGION,
            self.address
        )
    }
}

async fn accept(listener: std::net::TcpListener, cloud: Arc<Gce>) {
    let listener = TcpListener::from_std(listener).unwrap();
    while let Ok((stream, _)) = listener.accept().await {
        let cloud = Arc::clone(&cloud);
        let service = service_fn(move |request| answer(Arc::clone(&cloud), request));
        tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
    }
}

async fn answer(
    cloud: Arc<Gce>,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, hyper::Error> {
    let (head, body) = request.into_parts();
    if head.uri.path().starts_with("/computeMetadata/") {
        let token =
            format!(r#"{{"access_token": "{TOKEN}", "expires_in": 3600, "token_type": "Bearer"}}"#);
        return Ok(Response::new(Full::from(token)));
    }
    if head
        .headers
        .get("authorization")
        .is_none_or(|value| value != &format!("Bearer {TOKEN}"))
    {
        let mut refused = Response::new(Full::default());
        *refused.status_mut() = StatusCode::UNAUTHORIZED;
        return Ok(refused);
    }
    let request = Request::from_parts(head, body.collect().await?.to_bytes());
    Ok(cloud.answer(&request).map(Full::from))
}
