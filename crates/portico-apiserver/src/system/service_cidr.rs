//! The ServiceCIDR `kubernetes`: the ranges that this server was given. It is there before any
//! client is served, and comes back when it is deleted.

use super::{ensure, options};
use crate::registry::{Part, Registry, Target, key};
use portico_api::codec::stored;
use portico_api::kinds::Kind;
use portico_api::object;
use portico_api::status::{ApiError, Result};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

const NAME: &str = "kubernetes";
const LOOK_EVERY: Duration = Duration::from_secs(3);

/// Create the object, and return what keeps it from then on.
pub(crate) async fn keep(registry: Arc<Registry>, ranges: Vec<String>) -> impl Future<Output = ()> {
    let mut differs = false;
    try_once(&registry, &ranges, &mut differs).await;
    async move {
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            try_once(&registry, &ranges, &mut differs).await;
        }
    }
}

async fn try_once(registry: &Registry, ranges: &[String], differs: &mut bool) {
    match once(registry, ranges).await {
        Ok(agrees) => {
            if !agrees && !*differs {
                tracing::warn!(
                    ?ranges,
                    "the ServiceCIDR {NAME} has other ranges than this server hands out"
                );
            }
            *differs = !agrees;
        }
        Err(error) => tracing::warn!(%error, "cannot keep the ServiceCIDR {NAME}"),
    }
}

/// Says whether the object has the ranges of this server.
async fn once(registry: &Registry, ranges: &[String]) -> Result<bool> {
    let kind = registry
        .kind("networking.k8s.io", "v1", "servicecidrs")
        .ok_or_else(|| ApiError::internal("servicecidrs are not served"))?
        .as_ref();
    ensure(
        registry,
        kind,
        json!({"metadata": {"name": NAME}, "spec": {"cidrs": ranges}}),
    )
    .await?;
    let Some(entry) = registry.store.get(&key(kind, "", NAME)) else {
        return Ok(true);
    };
    let mut live = stored::load(&entry.value, entry.modified).map_err(ApiError::internal)?;
    let found = object::items(&live, "spec.cidrs").to_vec();
    // A server that was given a second family.
    if found.len() == 1
        && ranges.len() == 2
        && found
            .first()
            .is_some_and(|one| ranges.first().is_some_and(|first| one == first))
    {
        live["spec"]["cidrs"] = json!(ranges);
        write(registry, kind, Part::Main, live).await?;
        return Ok(true);
    }
    let agrees = found.iter().eq(ranges.iter());
    if agrees && !has_verdict(&live) && object::text(&live, "metadata.deletionTimestamp").is_empty()
    {
        live["status"] = json!({"conditions": [ready()]});
        write(registry, kind, Part::Status, live).await?;
    }
    Ok(agrees)
}

async fn write(registry: &Registry, kind: &dyn Kind, part: Part, wanted: Value) -> Result<()> {
    let target = Target {
        kind,
        namespace: "",
        name: NAME,
        part,
    };
    registry
        .update(target, wanted, &options())
        .await
        .map(|_| ())
}

/// Whether it has a condition `Ready`, of this server or another.
fn has_verdict(object: &Value) -> bool {
    let of_ready = |condition: &&Value| object::text(condition, "type") == "Ready";
    let ready = object::items(object, "status.conditions")
        .iter()
        .find(of_ready);
    ready.is_some_and(|condition| ["True", "False"].contains(&object::text(condition, "status")))
}

fn ready() -> Value {
    json!({
        "type": "Ready", "status": "True", "reason": "", "lastTransitionTime": crate::clock::now_text(),
        "message": "Kubernetes default Service CIDR is ready",
    })
}
