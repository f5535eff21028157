//! The writes to a Service: strategic merge patches of its status, which also take metadata. The
//! uid is always in them, so that a Service that was made anew under the same name is not touched.

use serde_json::{Value, json};

use super::conditions;
use super::service::{Claim, FINALIZER, Facts, Ownership};
use crate::provider::{Host, Ingress, IpMode};

/// The patch before the first call of the provider.
pub(super) fn hold(facts: &Facts, ours: &Ownership, conditions: &[Value]) -> Value {
    json!({
        "metadata": {"uid": facts.uid(), "resourceVersion": facts.resource_version, "finalizers": [FINALIZER, ours.finalizer]},
        "status": {"conditions": conditions},
    })
}

/// `ingress` is always written whole, and only onto what it was decided on; its modes with the
/// feature gate alone.
pub(super) fn status(
    facts: &Facts,
    ingress: Option<&[Ingress]>,
    ip_mode: bool,
    conditions: &[Value],
) -> Value {
    match ingress {
        None => json!({"metadata": {"uid": facts.uid()}, "status": {"conditions": conditions}}),
        Some(ingress) => {
            let ingress: Vec<Value> = ingress.iter().map(|one| entry(one, ip_mode)).collect();
            json!({
                "metadata": {"uid": facts.uid(), "resourceVersion": facts.resource_version},
                "status": {"loadBalancer": {"ingress": ingress}, "conditions": conditions},
            })
        }
    }
}

/// The patch after the last call of the provider. The shared finalizer and the address stay where
/// another controller has taken over.
pub(super) fn release(facts: &Facts, ours: &Ownership) -> Value {
    let metadata = |finalizers: Value| json!({"uid": facts.uid(), "$deleteFromPrimitiveList/finalizers": finalizers});
    let conditions = if facts.conditions.is_empty() {
        Vec::new()
    } else {
        conditions::removal()
    };
    match facts.claim {
        Claim::HandOver => {
            json!({"metadata": metadata(json!([ours.finalizer])), "status": {"conditions": conditions}})
        }
        _ => json!({
            "metadata": metadata(json!([FINALIZER, ours.finalizer])),
            "status": {"loadBalancer": {"ingress": null}, "conditions": conditions},
        }),
    }
}

fn entry(ingress: &Ingress, ip_mode: bool) -> Value {
    let mode = match ingress.mode {
        IpMode::Vip => "VIP",
        IpMode::Proxy => "Proxy",
    };
    match &ingress.host {
        Host::Ip(address) if ip_mode => json!({"ip": address.to_string(), "ipMode": mode}),
        Host::Ip(address) => json!({"ip": address.to_string()}),
        Host::Name(name) => json!({"hostname": name}),
    }
}
