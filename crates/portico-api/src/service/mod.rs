//! The Service: what it looks like, its defaults, which addresses and ports it takes, what may
//! change, what is valid, and its two spellings. Metadata is not its business.

pub(crate) mod allocate;
pub(crate) mod defaults;
mod deletion;
mod families;
mod portico;
pub(crate) mod ranges;
pub(crate) mod spelling;
pub(crate) mod types;
pub mod update;
pub(crate) mod validate;
mod view;

use crate::field::{Error, Errors, Path};
use crate::gates::Gates;
use crate::kinds::{Claim, Claims, Info, Kind, Pool};
use crate::names;
use crate::object;
use crate::status::ApiError;
use memchr::memmem;
use serde_json::Value;
use types::{LOAD_BALANCER, Service};

pub use portico::PorticoServiceKind;
pub use ranges::Ranges;

/// `core/v1` Services.
#[derive(Clone, Debug)]
pub struct ServiceKind {
    ranges: Ranges,
    /// Allocation depends on a gate and is not told them.
    gates: Gates,
}

const INFO: Info = Info {
    group: "",
    version: "v1",
    kind: "Service",
    plural: "services",
    singular: "service",
    short_names: &["svc"],
    categories: &["all"],
    namespaced: true,
    status: true,
    schema: "Service",
    storage: "services",
    create_on_update: true,
    delete_returns_object: true,
    selectable_fields: &["spec.clusterIP", "spec.type"],
    columns: view::COLUMNS,
    ..Info::USUAL
};

impl ServiceKind {
    /// The kind for a cluster with these ranges and gates.
    pub fn new(ranges: Ranges, gates: Gates) -> Self {
        Self { ranges, gates }
    }

    fn claims(
        &self,
        new: &mut Value,
        old: Option<&Value>,
        pool: &mut dyn Pool,
        dry_run: bool,
    ) -> Result<Claims, Errors> {
        let mut service = read(new)?;
        let old = old.map(read).transpose()?;
        let claims = allocate::allocate(
            &mut service,
            old.as_ref(),
            &self.ranges,
            &self.gates,
            pool,
            dry_run,
        )?;
        *new = service.into_value();
        Ok(claims)
    }
}

/// Change a typed copy and write it back. What cannot be read is left as it is: validation will say
/// so.
fn edit(object: &mut Value, change: impl FnOnce(&mut Service)) {
    if let Ok(mut service) = Service::from_value(object) {
        change(&mut service);
        *object = service.into_value();
    }
}

fn read(object: &Value) -> Result<Service, Errors> {
    Service::from_value(object)
        .map_err(|why| vec![Error::type_invalid(&Path::new("spec"), "", why.to_string())])
}

/// Both, read; the errors are those of the first that cannot be read.
fn read_both(new: &Value, old: &Value) -> Result<(Service, Service), Errors> {
    Ok((read(new)?, read(old)?))
}

impl Kind for ServiceKind {
    fn info(&self) -> &'static Info {
        &INFO
    }

    fn to_stored(&self, object: &mut Value, old: Option<&Value>, patched: bool) -> Errors {
        // A client that sends a whole object in the words of the core API has seen no others, so
        // none of them can be left over.
        spelling::to_core(object, old.filter(|_| patched))
    }

    fn mark_deleted(&self, object: &mut Value) {
        deletion::say_why_it_waits(object);
    }

    fn read_patch(&self, patch: &mut Value) {
        spelling::removals_to_core(patch);
    }

    fn other_words(&self, request: &Value) -> Vec<(&'static str, &'static str)> {
        spelling::other_words(request)
    }

    fn default(&self, object: &mut Value, gates: &Gates) {
        edit(object, |service| defaults::set(service, gates));
    }

    fn may_need_read(&self, stored: &[u8]) -> bool {
        const INGRESS: &[u8] = b"\"ingress\":[";
        self.gates.load_balancer_ip_mode && memmem::find(stored, INGRESS).is_some()
    }

    /// The Endpoints of the same name are a part of the Service in all but form.
    fn goes_with(&self, object: &Value) -> Vec<String> {
        vec![format!(
            "endpoints/{}/{}",
            object::namespace(object),
            object::name(object)
        )]
    }

    fn read(&self, object: &mut Value, gates: &Gates) -> bool {
        let without_mode =
            |point: &Value| point.get("ip").is_some() && point.get("ipMode").is_none();
        let points = object::items(object, "status.loadBalancer.ingress");
        let stale = gates.load_balancer_ip_mode
            && points.iter().any(without_mode)
            && object::text(object, "spec.type") == LOAD_BALANCER;
        if stale {
            edit(object, |service| {
                defaults::ip_modes(&mut service.status);
            });
        }
        stale
    }

    fn allocate(
        &self,
        new: &mut Value,
        old: Option<&Value>,
        pool: &mut dyn Pool,
        dry_run: bool,
    ) -> Result<Claims, ApiError> {
        self.claims(new, old, pool, dry_run)
            .map_err(|errors| ApiError::invalid(INFO.group, INFO.kind, object::name(new), &errors))
    }

    fn owned(&self, object: &Value) -> Vec<Claim> {
        read(object)
            .map(|service| allocate::owned(&service).into_iter().collect())
            .unwrap_or_default()
    }

    fn prepare_create(&self, object: &mut Value, gates: &Gates) {
        edit(object, |service| {
            service.status = types::ServiceStatus::default();
            update::drop_disabled(&mut service.spec, None, gates);
            update::drop_unused_internal_policy(&mut service.spec);
        });
    }

    fn validate_create(&self, object: &Value, _gates: &Gates) -> Errors {
        read(object).map_or_else(|errors| errors, |service| validate::create(&service))
    }

    fn prepare_update(&self, new: &mut Value, old: &Value, gates: &Gates) {
        let Ok(old) = read(old) else { return };
        edit(new, |new| {
            new.status = old.status.clone();
            update::drop_disabled(&mut new.spec, Some(&old.spec), gates);
            update::drop_outlived(new, &old);
            update::drop_unused_internal_policy(&mut new.spec);
        });
    }

    fn validate_update(&self, new: &Value, old: &Value, _gates: &Gates) -> Errors {
        read_both(new, old).map_or_else(|errors| errors, |(new, old)| validate::update(&new, &old))
    }

    fn prepare_status_update(&self, new: &mut Value, old: &Value, gates: &Gates) {
        let Ok(old) = read(old) else { return };
        edit(new, |new| {
            update::drop_disabled_status(&mut new.status, &old.status, gates);
            new.spec = old.spec;
        });
    }

    fn validate_status_update(&self, new: &Value, old: &Value, gates: &Gates) -> Errors {
        read_both(new, old).map_or_else(
            |errors| errors,
            |(new, old)| validate::status(&new, &old, gates),
        )
    }

    fn warnings(&self, new: &Value, old: Option<&Value>) -> Vec<String> {
        let old = old.and_then(|old| read(old).ok());
        read(new)
            .map(|new| view::warnings(&new, old.as_ref()))
            .unwrap_or_default()
    }

    fn name_problems(&self, name: &str, prefix: bool) -> Vec<String> {
        names::dns_label(name, prefix)
    }

    fn row(&self, object: &Value, now: i64) -> Vec<Value> {
        read(object)
            .map(|service| view::row(&service, now))
            .unwrap_or_default()
    }
}

#[cfg(test)]
mod tests;
