//! What the server does on its own account: objects that must always be there, and chores.

mod access;
mod bootstrap;
mod dependents;
mod events;
mod kubernetes;
mod namespaces;
mod service_cidr;

pub(crate) use access::feed as feed_access_rules;
pub(crate) use bootstrap::bootstrap;
pub(crate) use dependents::finish as finish_deletions;
pub(crate) use events::expire as expire_events;
pub(crate) use kubernetes::{Advertised, keep as keep_kubernetes_service, leave};
pub(crate) use namespaces::finish as finish_namespaces;
pub(crate) use service_cidr::keep as keep_default_service_cidr;

use crate::registry::{Part, Registry, Target, WriteOptions};
use portico_api::kinds::Kind;
use portico_api::object;
use portico_api::status::Result;
use serde_json::Value;

/// The field manager of the server's own writes.
const MANAGER: &str = "portico-apiserver";

fn options() -> WriteOptions {
    WriteOptions {
        manager: MANAGER.to_owned(),
        trusted: true,
        ..WriteOptions::default()
    }
}

/// Create an object of the server's own, unless it is there already.
async fn ensure(registry: &Registry, kind: &dyn Kind, mut wanted: Value) -> Result<()> {
    let (namespace, name) = (
        object::namespace(&wanted).to_owned(),
        object::name(&wanted).to_owned(),
    );
    if registry
        .store
        .get(&crate::registry::key(kind, &namespace, &name))
        .is_some()
    {
        return Ok(());
    }
    kind.default(&mut wanted, &registry.gates);
    let target = Target {
        kind,
        namespace: &namespace,
        name: &name,
        part: Part::Main,
    };
    registry.note_owner(target, None, &mut wanted, &options());
    match registry.create(kind, wanted, &options()).await {
        Err(error) if error.reason != "AlreadyExists" => Err(error),
        _ => Ok(()),
    }
}

/// Create an object of the server's own, or make it what it should be.
async fn put(registry: &Registry, kind: &dyn Kind, mut wanted: Value) -> Result<()> {
    let (namespace, name) = (
        object::namespace(&wanted).to_owned(),
        object::name(&wanted).to_owned(),
    );
    let target = Target {
        kind,
        namespace: &namespace,
        name: &name,
        part: Part::Main,
    };
    kind.default(&mut wanted, &registry.gates);
    if registry
        .store
        .get(&crate::registry::key(kind, &namespace, &name))
        .is_none()
    {
        return ensure(registry, kind, wanted).await;
    }
    registry
        .update(target, wanted, &options())
        .await
        .map(|_| ())
}
