//! Services of `portico.dev/v1`: the stored core Service in other words. Only what is said at the
//! edge differs.

use super::{ServiceKind, read, spelling, view};
use crate::field::Errors;
use crate::gates::Gates;
use crate::kinds::{Claim, Claims, Info, Kind, Pool};
use crate::object;
use crate::status::ApiError;
use serde_json::Value;

/// The kind Service of `portico.dev/v1`: the same objects in other words.
#[derive(Clone, Debug)]
pub struct PorticoServiceKind(ServiceKind);

const INFO: Info = Info {
    group: "portico.dev",
    version: "v1",
    kind: "Service",
    plural: "services",
    singular: "service",
    short_names: &["psvc"],
    namespaced: true,
    status: true,
    schema: "PorticoService",
    storage: "services",
    create_on_update: true,
    delete_returns_object: true,
    selectable_fields: &["spec.portalIP", "spec.visibility"],
    columns: view::PORTICO_COLUMNS,
    ..Info::USUAL
};

impl PorticoServiceKind {
    /// The other spelling of this kind.
    pub fn new(core: ServiceKind) -> Self {
        Self(core)
    }
}

/// The same errors, at the fields as they are called here.
fn in_our_words(mut errors: Errors) -> Errors {
    for error in &mut errors {
        error.field = match error.field.as_str() {
            "spec.type" => "spec.visibility".to_owned(),
            "metadata.annotations[portico.dev/visibility]" => "spec.visibility".to_owned(),
            "spec.clusterIP" => "spec.portalIP".to_owned(),
            field => field
                .replace("].nodePort", "].hostPort")
                .replace("spec.externalIPs[", "spec.publicIPs["),
        };
    }
    errors
}

impl Kind for PorticoServiceKind {
    fn info(&self) -> &'static Info {
        &INFO
    }

    fn stored_info(&self) -> &'static Info {
        self.0.info()
    }

    fn may_need_read(&self, stored: &[u8]) -> bool {
        self.0.may_need_read(stored)
    }

    fn goes_with(&self, object: &Value) -> Vec<String> {
        self.0.goes_with(object)
    }

    fn to_stored(&self, object: &mut Value, old: Option<&Value>, patched: bool) -> Errors {
        if let Some(old) = old.filter(|_| patched) {
            spelling::remove_public_ips(object, old);
        }
        spelling::from_portico(object, old)
    }

    fn from_stored(&self, object: Value) -> Value {
        spelling::to_portico(&object)
    }

    fn default(&self, object: &mut Value, gates: &Gates) {
        self.0.default(object, gates);
    }

    fn read(&self, object: &mut Value, gates: &Gates) -> bool {
        self.0.read(object, gates)
    }

    fn allocate(
        &self,
        new: &mut Value,
        old: Option<&Value>,
        pool: &mut dyn Pool,
        dry_run: bool,
    ) -> Result<Claims, ApiError> {
        self.0.claims(new, old, pool, dry_run).map_err(|errors| {
            ApiError::invalid(
                INFO.group,
                INFO.kind,
                object::name(new),
                &in_our_words(errors),
            )
        })
    }

    fn owned(&self, object: &Value) -> Vec<Claim> {
        self.0.owned(object)
    }

    fn prepare_create(&self, object: &mut Value, gates: &Gates) {
        self.0.prepare_create(object, gates);
    }

    fn validate_create(&self, object: &Value, gates: &Gates) -> Errors {
        in_our_words(self.0.validate_create(object, gates))
    }

    fn prepare_update(&self, new: &mut Value, old: &Value, gates: &Gates) {
        self.0.prepare_update(new, old, gates);
    }

    fn validate_update(&self, new: &Value, old: &Value, gates: &Gates) -> Errors {
        in_our_words(self.0.validate_update(new, old, gates))
    }

    fn prepare_status_update(&self, new: &mut Value, old: &Value, gates: &Gates) {
        self.0.prepare_status_update(new, old, gates);
    }

    fn validate_status_update(&self, new: &Value, old: &Value, gates: &Gates) -> Errors {
        self.0.validate_status_update(new, old, gates)
    }

    fn warnings(&self, new: &Value, old: Option<&Value>) -> Vec<String> {
        self.0.warnings(new, old)
    }

    fn name_problems(&self, name: &str, prefix: bool) -> Vec<String> {
        self.0.name_problems(name, prefix)
    }

    fn selectable_field(&self, object: &Value, field: &str) -> String {
        object::text(&spelling::to_portico(object), field).to_owned()
    }

    fn row(&self, object: &Value, now: i64) -> Vec<Value> {
        read(object)
            .map(|service| view::portico_row(&service, now))
            .unwrap_or_default()
    }
}
