//! The key by which nodes know each other's heartbeats: a Secret that is made once and never changed.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client};
use ring::rand::{SecureRandom, SystemRandom};
use tokio::time::timeout;
use tracing::{debug, info, warn};

use crate::Shutdown;

const NAMESPACE: &str = "kube-system";
const NAME: &str = "portico-announce";
const FIELD: &str = "key";
const BYTES: usize = 32;
/// An answer that takes longer is none.
const PATIENCE: Duration = Duration::from_secs(10);
const RETRY: Duration = Duration::from_secs(10);

/// Make the Secret if there is none, however often that has to be tried.
pub(super) async fn ensure(client: Client, mut shutdown: Shutdown) {
    let secrets: Api<Secret> = Api::namespaced(client, NAMESPACE);
    let mut told = false;
    loop {
        match timeout(PATIENCE, create(&secrets)).await {
            Ok(Ok(())) => return info!("made the Secret {NAMESPACE}/{NAME} for heartbeats of nodes"),
            Ok(Err(kube::Error::Api(status))) if status.code == 409 => return,
            Ok(Err(error)) if !std::mem::replace(&mut told, true) => {
                warn!(%error, "cannot make the Secret {NAMESPACE}/{NAME}, without which nodes do not announce at layer 2");
            }
            Ok(Err(error)) => debug!(%error, "still cannot make the Secret {NAMESPACE}/{NAME}"),
            Err(_) => debug!("no answer, making the Secret {NAMESPACE}/{NAME}"),
        }
        tokio::select! {
            () = tokio::time::sleep(RETRY) => {}
            _ = shutdown.wait_for(|stop| *stop) => return,
        }
    }
}

/// Nothing is read and nothing written over: what is there already is somebody's key.
async fn create(secrets: &Api<Secret>) -> Result<(), kube::Error> {
    let secret = Secret {
        metadata: ObjectMeta { name: Some(NAME.into()), ..ObjectMeta::default() },
        data: Some(BTreeMap::from([(FIELD.to_owned(), ByteString(random()?))])),
        immutable: Some(true),
        ..Secret::default()
    };
    secrets.create(&PostParams::default(), &secret).await.map(drop)
}

fn random() -> Result<Vec<u8>, kube::Error> {
    let mut bytes = vec![0; BYTES];
    let failed = |_| kube::Error::Service("the system has no randomness".into());
    SystemRandom::new().fill(&mut bytes).map_err(failed)?;
    Ok(bytes)
}
