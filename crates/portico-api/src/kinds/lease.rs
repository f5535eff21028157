//! Leases: the holder of an election, and until when it holds it.

use super::{Column, Info, Kind, table};
use crate::field::{Error, Errors, Path};
use crate::gates::Gates;
use crate::object;
use serde_json::Value;

pub(super) struct Lease;

static INFO: Info = Info {
    group: "coordination.k8s.io",
    version: "v1",
    kind: "Lease",
    plural: "leases",
    singular: "lease",
    namespaced: true,
    status: false,
    schema: "Lease",
    storage: "leases",
    known_finalizers: false,
    create_on_update: true,
    // A holder must have seen the lease that it renews.
    unconditional_update: false,
    columns: COLUMNS,
    ..Info::USUAL
};

const COLUMNS: &[Column] = &[
    table::NAME,
    table::column("Holder", "Who holds the lease."),
    table::AGE,
];

impl Kind for Lease {
    fn info(&self) -> &'static Info {
        &INFO
    }

    fn prepare_create(&self, object: &mut Value, _gates: &Gates) {
        drop_coordination(object);
    }

    fn validate_create(&self, object: &Value, _gates: &Gates) -> Errors {
        let spec = Path::new("spec");
        let mut errors = Errors::new();
        for (key, least, message) in [
            ("leaseDurationSeconds", 1, "must be greater than 0"),
            ("leaseTransitions", 0, "must be greater than or equal to 0"),
        ] {
            let value = object::at(object, "spec").get(key).and_then(Value::as_i64);
            if let Some(value) = value.filter(|value| *value < least) {
                errors.push(Error::invalid(&spec.child(key), value, message));
            }
        }
        errors
    }

    fn prepare_update(&self, new: &mut Value, _old: &Value, _gates: &Gates) {
        drop_coordination(new);
    }

    fn row(&self, object: &Value, now: i64) -> Vec<Value> {
        vec![
            object::name(object).into(),
            object::text(object, "spec.holderIdentity").into(),
            table::age(object, now),
        ]
    }
}

/// Coordinated leader election is off by default in Kubernetes and not offered here.
fn drop_coordination(object: &mut Value) {
    if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) {
        spec.remove("strategy");
        spec.remove("preferredHolder");
    }
}
