//! Credentials that do not stay what they are: certificates and keys are replaced in their files,
//! programs give out others, and at boot there may be none yet. So the client is made with the first
//! request, and made anew when its credentials are out of date.

use super::{AccessError, client_files, config};
use crate::config::ApiAccess;
use http::{Request, Response, StatusCode};
use kube::Client;
use kube::client::Body;
use portico_client::access;
use portico_client::error::chain;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::SystemTime;
use tokio::sync::Mutex;
use tower::{BoxError, Service};

pub(super) struct Credentials {
    access: ApiAccess,
    made: Mutex<Option<Made>>,
    /// The server does not know us by them.
    refused: AtomicBool,
}

struct Made {
    client: Client,
    from: Vec<(PathBuf, Option<Version>)>,
}

/// The version of a file, which changes when another is renamed into its place.
type Version = (u64, SystemTime, u64);

impl Credentials {
    pub(super) fn new(access: ApiAccess) -> Arc<Self> {
        Arc::new(Self {
            access,
            made: Mutex::new(None),
            refused: AtomicBool::new(false),
        })
    }

    /// Requests that come while one is made wait for it.
    async fn client(&self) -> Result<Client, AccessError> {
        let mut made = self.made.lock().await;
        let refused = self.refused.swap(false, Ordering::Relaxed);
        if let Some(made) = made
            .as_ref()
            .filter(|made| !refused && made.from.iter().all(is_current))
        {
            return Ok(made.client.clone());
        }
        match (self.make().await, made.as_ref()) {
            (Ok(fresh), _) => {
                let client = fresh.client.clone();
                *made = Some(fresh);
                Ok(client)
            }
            (Err(error), Some(old)) => {
                tracing::warn!(error = %chain(&error), "cannot use the credentials that are there now, going on with those of \
                                        before");
                Ok(old.client.clone())
            }
            (Err(error), None) => Err(error),
        }
    }

    async fn make(&self) -> Result<Made, AccessError> {
        // What changes from here on counts the next time.
        let from = client_files(&self.access)
            .into_iter()
            .map(|path| (path.clone(), version(&path)))
            .collect();
        let config = config(&self.access).await?;
        // Programs that give out credentials take their time.
        let client = tokio::task::spawn_blocking(move || access::client_of(&config))
            .await
            .map_err(AccessError::Broken)??;
        Ok(Made { client, from })
    }
}

fn is_current((path, found): &(PathBuf, Option<Version>)) -> bool {
    version(path) == *found
}

fn version(path: &PathBuf) -> Option<Version> {
    let metadata = fs::metadata(path).ok()?;
    Some((metadata.ino(), metadata.modified().ok()?, metadata.len()))
}

/// Asks with the credentials of the moment.
#[derive(Clone)]
pub(super) struct Renewed(pub Arc<Credentials>);

impl Service<Request<Body>> for Renewed {
    type Response = Response<Body>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let Self(credentials) = self.clone();
        Box::pin(async move {
            let client = credentials.client().await?;
            let answer = client.send(request).await?;
            if answer.status() == StatusCode::UNAUTHORIZED {
                credentials.refused.store(true, Ordering::Relaxed);
            }
            Ok(answer)
        })
    }
}

#[cfg(test)]
mod tests;
