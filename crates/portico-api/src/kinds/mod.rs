//! The kinds that are served. A kind is one small file: its names, defaults, validation, columns
//! and hooks.

mod address_block;
mod address_pool;
mod bgp_peer;
pub(crate) mod checks;
mod config_map;
mod endpoint_slice;
mod endpoints;
mod event;
mod lease;
pub mod metadata;
pub mod namespace;
mod node;
mod pod;
mod port_partition;
pub(crate) mod ranges;
mod rbac;
mod secret;
mod service_account;
mod service_cidr;
pub(crate) mod table;

use crate::field::Errors;
use crate::gates::Gates;
use crate::object;
use crate::status::{ApiError, Subject};
use serde_json::Value;
use std::net::IpAddr;
use std::sync::Arc;

/// All kinds but Service.
pub fn all() -> Vec<Box<dyn Kind>> {
    vec![
        Box::new(namespace::Namespace),
        Box::new(node::Node),
        Box::new(pod::Pod),
        Box::new(endpoints::Endpoints),
        Box::new(config_map::ConfigMap),
        Box::new(secret::Secret),
        Box::new(service_account::ServiceAccount),
        Box::new(event::CORE),
        Box::new(event::EVENTS),
        Box::new(endpoint_slice::EndpointSlice),
        Box::new(lease::Lease),
        Box::new(service_cidr::ServiceCidr),
        Box::new(rbac::ROLE),
        Box::new(rbac::CLUSTER_ROLE),
        Box::new(rbac::ROLE_BINDING),
        Box::new(rbac::CLUSTER_ROLE_BINDING),
        Box::new(address_pool::AddressPool),
        Box::new(address_block::AddressBlock),
        Box::new(bgp_peer::BgpPeer),
        Box::new(port_partition::PortPartition),
    ]
}

/// The names under which a kind is served, and everything about it that does not depend on an
/// object.
#[derive(Debug)]
pub struct Info {
    /// The API group; empty for the core group.
    pub group: &'static str,
    /// The version that is served.
    pub version: &'static str,
    /// The name of the kind, such as `Service`.
    pub kind: &'static str,
    /// The resource in paths, such as `services`.
    pub plural: &'static str,
    /// The name for one object, such as `service`.
    pub singular: &'static str,
    /// Short names for kubectl, such as `svc`.
    pub short_names: &'static [&'static str],
    /// The groups of kubectl to which it belongs, such as `all`.
    pub categories: &'static [&'static str],
    /// Whether objects live in namespaces.
    pub namespaced: bool,
    /// Has a `status` subresource.
    pub status: bool,
    /// The type in the schema.
    pub schema: &'static str,
    /// The first part of the storage key. Two spellings of one object share it.
    pub storage: &'static str,
    /// Kubernetes keeps a copy of these objects at hand, which is what a read of version 0 gives.
    pub cached: bool,
    /// A delete may wait for the objects that name this one as their owner, or orphan them.
    pub has_dependents: bool,
    /// A finalizer without a domain must be one that Kubernetes knows.
    pub known_finalizers: bool,
    /// `PUT` of a missing object creates it.
    pub create_on_update: bool,
    /// An update needs no resourceVersion.
    pub unconditional_update: bool,
    /// Deleting answers with the object instead of a Status.
    pub delete_returns_object: bool,
    /// The fields that a field selector may name, besides `metadata.name` and `metadata.namespace`.
    pub selectable_fields: &'static [&'static str],
    /// What `kubectl get` shows, in this order.
    pub columns: &'static [Column],
    /// A text for the `Warning` header of every request for this kind.
    pub deprecation: Option<&'static str>,
}

impl Info {
    /// What most kinds have; a kind fills in its names and says where it differs.
    pub const USUAL: Self = Self {
        group: "",
        version: "v1",
        kind: "",
        plural: "",
        singular: "",
        short_names: &[],
        categories: &[],
        namespaced: true,
        status: false,
        schema: "",
        storage: "",
        cached: true,
        has_dependents: true,
        known_finalizers: true,
        create_on_update: false,
        unconditional_update: true,
        delete_returns_object: false,
        selectable_fields: &[],
        columns: &[],
        deprecation: None,
    };

    /// The kind as errors of the API name it.
    pub fn subject(&self) -> Subject<'static> {
        Subject {
            group: self.group,
            resource: self.plural,
        }
    }

    /// `v1` or `discovery.k8s.io/v1`.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_owned()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }
}

/// A column of a Table, as `kubectl get` prints it. Priority 0 is always shown, 1 with `-o wide`.
#[derive(Debug)]
pub struct Column {
    /// The title of the column.
    pub name: &'static str,
    /// The OpenAPI type: `string`, `integer`, `date`.
    pub kind: &'static str,
    /// The OpenAPI format; `name` for the object's name, else empty.
    pub format: &'static str,
    /// What the column shows.
    pub description: &'static str,
    /// 0 for a column that is always shown, 1 for one with `-o wide`.
    pub priority: u8,
}

/// Something of which there is only one, that an object can own.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Claim {
    /// A cluster IP.
    Address(IpAddr),
    /// A node port, whatever its protocol.
    NodePort(u16),
    /// A node port in the port space of this PortPartition.
    PartitionPort(Arc<str>, u16),
}

/// What an object takes and gives back in the transaction that stores it.
#[derive(Debug, Default, PartialEq)]
pub struct Claims {
    /// What has to be free, and is owned afterwards.
    pub take: Vec<Claim>,
    /// What is given up.
    pub free: Vec<Claim>,
}

/// What allocation may ask: is this owned, and a random number.
pub trait Pool {
    /// Whether another Service has it.
    fn is_taken(&self, claim: &Claim) -> bool;
    /// A random number, from any source: the pure part has none.
    fn random(&mut self) -> u64;
}

/// One kind. For a create the registry calls `to_stored`, `default`, `allocate`, `prepare_create`,
/// `validate_create`; for an update `to_stored`, `default`, `allocate`, `prepare_update`,
/// `validate_update`; for the status `to_stored`, `default`, `prepare_status_update`,
/// `validate_status_update`; and `from_stored` on the way out.
pub trait Kind: Send + Sync {
    /// The names under which the kind is served.
    fn info(&self) -> &'static Info;

    /// The kind whose spelling is stored, for a kind that is another view of the same objects.
    fn stored_info(&self) -> &'static Info {
        self.info()
    }

    /// Turn a request into the form that is stored, before anything else is done with it. `old` is
    /// the stored object, if there is one; `patched` says that the client sent a patch to it rather
    /// than a whole object.
    fn to_stored(&self, _object: &mut Value, _old: Option<&Value>, _patched: bool) -> Errors {
        Errors::new()
    }

    /// Turn a merge patch into words that the patched object has. A `null` for any other word would
    /// remove nothing.
    fn read_patch(&self, _patch: &mut Value) {}

    /// Parts of field names with what a request calls them, for the errors that answer it.
    fn other_words(&self, _request: &Value) -> Vec<(&'static str, &'static str)> {
        Vec::new()
    }

    /// Turn a stored object into what this kind shows, after everything else is done with it. All
    /// other methods see the stored form.
    /// The object as clients of this kind see it.
    /// The object as clients of this kind see it.
    #[expect(
        clippy::wrong_self_convention,
        reason = "the pair of `to_stored`; the kind is not what is made"
    )]
    fn from_stored(&self, object: Value) -> Value {
        object
    }

    /// Fill in defaults. Runs on every decoded object: requests, and the results of patches.
    fn default(&self, _object: &mut Value, _gates: &Gates) {}

    /// A cheap test on the stored bytes: might `read` have something to do?
    fn may_need_read(&self, _stored: &[u8]) -> bool {
        false
    }

    /// Defaults for objects that were stored before a gate was switched on; says whether it changed
    /// anything.
    fn read(&self, _object: &mut Value, _gates: &Gates) -> bool {
        false
    }

    /// Take addresses and ports for a new object, or the difference for a changed one. Runs before
    /// validation, as in Kubernetes, so its error is reported alone. In a dry run nothing is kept.
    fn allocate(
        &self,
        _new: &mut Value,
        _old: Option<&Value>,
        _pool: &mut dyn Pool,
        _dry_run: bool,
    ) -> Result<Claims, ApiError> {
        Ok(Claims::default())
    }

    /// Returns everything that an object owns, which is given back when it is deleted.
    fn owned(&self, _object: &Value) -> Vec<Claim> {
        Vec::new()
    }

    /// Does something (finalizers) keep a deleted object from going?
    fn is_held(&self, object: &Value) -> bool {
        !object::items(object, "metadata.finalizers").is_empty()
    }

    /// Why this object can never be deleted, if so.
    fn undeletable(&self, _name: &str) -> Option<&'static str> {
        None
    }

    /// More to write down when an object is marked as being deleted.
    fn mark_deleted(&self, _object: &mut Value) {}

    /// Storage keys of other objects that go in the same transaction as this one.
    fn goes_with(&self, _object: &Value) -> Vec<String> {
        Vec::new()
    }

    /// Drop what a client may not set on create: status, and fields that belong to gates that are
    /// off.
    fn prepare_create(&self, object: &mut Value, _gates: &Gates) {
        if self.info().status {
            object::map(object).remove("status");
        }
    }

    /// What is wrong with a new object.
    fn validate_create(&self, _object: &Value, _gates: &Gates) -> Errors {
        Errors::new()
    }

    /// Carry over what an update of the main resource may not change: the status.
    fn prepare_update(&self, new: &mut Value, old: &Value, _gates: &Gates) {
        if self.info().status {
            object::copy_key(old, new, "status");
        }
    }

    /// What is wrong with a change of an object.
    fn validate_update(&self, new: &Value, _old: &Value, gates: &Gates) -> Errors {
        self.validate_create(new, gates)
    }

    /// Carry over what an update of the status may not change: everything else but metadata.
    fn prepare_status_update(&self, new: &mut Value, old: &Value, _gates: &Gates) {
        object::copy_key(old, new, "spec");
    }

    /// What is wrong with a change of the status.
    fn validate_status_update(&self, _new: &Value, _old: &Value, _gates: &Gates) -> Errors {
        Errors::new()
    }

    /// Texts for the `Warning` header of a create or update that goes through.
    fn warnings(&self, _new: &Value, _old: Option<&Value>) -> Vec<String> {
        Vec::new()
    }

    /// Messages about a name (or, with `prefix`, a generateName) that this kind does not take.
    fn name_problems(&self, name: &str, prefix: bool) -> Vec<String> {
        crate::names::dns_subdomain(name, prefix)
    }

    /// The value of a selectable field, from the stored spelling.
    fn selectable_field(&self, object: &Value, field: &str) -> String {
        object::text(object, field).to_owned()
    }

    /// Whether a selectable field is a text that is stored as the selector names it. An object whose
    /// bytes do not have that text need not be parsed: thousands of nodes each follow their own
    /// pods, and every change of a pod is held against all of their selectors.
    fn is_stored_as_selected(&self, _field: &str) -> bool {
        false
    }

    /// The cells of one row, one per column of its [`Info`], from the stored spelling. `now` in seconds since 1970
    /// is for ages.
    fn row(&self, object: &Value, now: i64) -> Vec<Value>;
}

#[cfg(test)]
mod tests;
