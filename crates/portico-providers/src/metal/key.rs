//! The key by which nodes that share out addresses authenticate each other: a Secret that is made
//! once and never changed. To change the key, delete the Secret and start the controller again.

use std::io::Read;
use std::time::Duration;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{ObjectMeta, Patch, PatchParams};
use kube::{Api, Client};
use tracing::{info, warn};

const NAMESPACE: &str = "kube-system";
const NAME: &str = "portico-announce";
const ENTRY: &str = "key";
const MANAGER: &str = "portico-controller";
/// A version that no Secret has: the first object of a store is older.
const NEVER: &str = "1";
/// The time between tries that fail.
const PAUSE: Duration = Duration::from_secs(30);

/// See to it that there is one. Nothing here waits for it: addresses are given without.
pub(super) async fn provide(client: Client) {
    let api: Api<Secret> = Api::namespaced(client, NAMESPACE);
    let mut told = false;
    while let Err(error) = create(&api).await {
        if !std::mem::replace(&mut told, true) {
            warn!(%error, "cannot create the Secret {NAMESPACE}/{NAME}, without which nodes announce \
                           nothing at layer 2: trying again");
        }
        tokio::time::sleep(PAUSE).await;
    }
}

async fn create(api: &Api<Secret>) -> Result<(), String> {
    let key = random().map_err(|error| format!("no random numbers: {error}"))?;
    // Applied by its name, so that a rule can allow this Secret alone: a user who may create any
    // Secret in kube-system can make join tokens. One that is there has another version than this,
    // which makes the apply a conflict; and none changes the key of one that was made so.
    let secret = Secret {
        metadata: ObjectMeta {
            name: Some(NAME.to_owned()),
            resource_version: Some(NEVER.to_owned()),
            ..ObjectMeta::default()
        },
        immutable: Some(true),
        data: Some([(ENTRY.to_owned(), ByteString(key.to_vec()))].into()),
        type_: Some("Opaque".to_owned()),
        ..Secret::default()
    };
    let parameters = PatchParams::apply(MANAGER);
    match api.patch(NAME, &parameters, &Patch::Apply(&secret)).await {
        Ok(_) => info!("created the Secret {NAMESPACE}/{NAME}"),
        // It is there.
        Err(kube::Error::Api(status)) if status.code == 409 => {}
        Err(error) => return Err(error.to_string()),
    }
    Ok(())
}

fn random() -> std::io::Result<[u8; 32]> {
    let mut key = [0; 32];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut key)?;
    Ok(key)
}
