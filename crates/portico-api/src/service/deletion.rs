//! What a Service says of itself while it is deleted. A controller may not run, so the API server
//! writes it.

use crate::object;
use serde_json::{Value, json};

/// The finalizer that controllers of load balancers set, and remove once the balancer is gone.
const LOAD_BALANCER: &str = "service.kubernetes.io/load-balancer-cleanup";
const CONDITION: &str = "Deleting";

/// A condition for a Service that stays until its load balancer is gone.
pub(super) fn say_why_it_waits(service: &mut Value) {
    let finalizers: Vec<&str> = object::items(service, "metadata.finalizers")
        .iter()
        .filter_map(Value::as_str)
        .collect();
    if !finalizers.contains(&LOAD_BALANCER) {
        return;
    }
    let message = format!(
        "the load balancer goes first: this Service waits for the controller that made it to \
         remove the finalizers {}. If no such controller runs any more, delete the load balancer \
         by hand and remove them with kubectl edit",
        finalizers.join(", ")
    );
    let mut condition = json!({
        "type": CONDITION, "status": "True", "reason": "WaitsForController", "message": message,
        "lastTransitionTime": object::at(service, "metadata.deletionTimestamp"),
    });
    let generation = object::at(service, "metadata.generation");
    if generation.is_number() {
        condition["observedGeneration"] = generation.clone();
    }
    let status = object::child(service, "status");
    let conditions = status.entry("conditions").or_insert_with(|| json!([]));
    if let Some(conditions) = conditions.as_array_mut() {
        conditions.retain(|held| object::text(held, "type") != CONDITION);
        conditions.push(condition);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_service_with_a_load_balancer_waits() {
        let mut service = json!({"metadata": {"finalizers": ["example.com/other"]}});
        say_why_it_waits(&mut service);
        assert!(service.get("status").is_none());
    }

    #[test]
    fn the_condition_names_who_is_waited_for() {
        let mut service = json!({
            "metadata": {"finalizers": [LOAD_BALANCER, "portico.dev/metal"], "generation": 3,
                "deletionTimestamp": "2026-01-01T00:00:00Z"},
            "status": {"conditions": [{"type": "Allocated"}, {"type": CONDITION}]},
        });
        say_why_it_waits(&mut service);
        let conditions = object::items(&service, "status.conditions");
        assert_eq!(conditions.len(), 2, "{service}");
        let said = &conditions[1];
        assert_eq!(said["observedGeneration"], 3);
        assert_eq!(said["lastTransitionTime"], "2026-01-01T00:00:00Z");
        let message = object::text(said, "message");
        assert!(message.contains(LOAD_BALANCER) && message.contains("portico.dev/metal"));
    }
}
