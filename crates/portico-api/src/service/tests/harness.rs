//! Drives a kind as the registry does, and checks after each step that what is claimed is what is
//! owned.

use crate::gates::Gates;
use crate::kinds::{Claim, Claims, Kind, Pool};
use crate::object;
use crate::service::ranges::Ranges;
use crate::service::types::PORT_PARTITION;
use crate::service::{PorticoServiceKind, ServiceKind};
use crate::status::ApiError;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Default)]
pub(super) struct FakePool {
    pub taken: BTreeSet<Claim>,
    pub seed: u64,
}

impl Pool for FakePool {
    fn is_taken(&self, claim: &Claim) -> bool {
        self.taken.contains(claim)
    }

    fn random(&mut self) -> u64 {
        self.seed = self
            .seed
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        self.seed >> 16
    }
}

impl FakePool {
    fn apply(&mut self, claims: Claims) {
        for claim in claims.take {
            assert!(self.taken.insert(claim.clone()), "{claim:?} is owned twice");
        }
        for claim in claims.free {
            assert!(self.taken.remove(&claim), "{claim:?} was not owned");
        }
    }
}

pub(super) struct Server {
    core: ServiceKind,
    portico: PorticoServiceKind,
    pub gates: Gates,
    pub store: BTreeMap<String, Value>,
    pub pool: FakePool,
}

pub(super) type Answer = Result<Value, ApiError>;

impl Server {
    pub(super) fn new(cluster: &str, node_ports: &str, gates: Gates) -> Self {
        let mut server = Self::dual_stack();
        server.configure(cluster, node_ports, gates);
        server
    }

    pub(super) fn dual_stack() -> Self {
        let core = kind(
            "10.96.0.0/16,fd00:10:96::/112",
            "30000-32767",
            Gates::default(),
        );
        let portico = PorticoServiceKind::new(core.clone());
        Self {
            core,
            portico,
            gates: Gates::default(),
            store: BTreeMap::new(),
            pool: FakePool::default(),
        }
    }

    /// Start again with other flags and the same data.
    pub(super) fn configure(&mut self, cluster: &str, node_ports: &str, gates: Gates) {
        self.core = kind(cluster, node_ports, gates);
        self.portico = PorticoServiceKind::new(self.core.clone());
        self.gates = gates;
    }

    pub(super) fn with_gates(&mut self, gates: Gates) {
        self.configure("10.96.0.0/16,fd00:10:96::/112", "30000-32767", gates);
    }

    fn invalid(object: &Value, errors: &[crate::field::Error]) -> Result<(), ApiError> {
        if errors.is_empty() {
            Ok(())
        } else {
            Err(ApiError::invalid(
                "",
                "Service",
                object::name(object),
                errors,
            ))
        }
    }

    fn write(&mut self, in_portico: bool, mut new: Value, patched: bool, dry_run: bool) -> Answer {
        let kind: &dyn Kind = if in_portico {
            &self.portico
        } else {
            &self.core
        };
        let name = object::name(&new).to_owned();
        let old = self.store.get(&name);
        let errors = kind.to_stored(&mut new, old, patched);
        Self::invalid(&new, &errors)?;
        kind.default(&mut new, &self.gates);
        let claims = kind.allocate(&mut new, old, &mut self.pool, dry_run)?;
        let errors = match old {
            Some(old) => {
                kind.prepare_update(&mut new, old, &self.gates);
                kind.validate_update(&new, old, &self.gates)
            }
            None => {
                kind.prepare_create(&mut new, &self.gates);
                kind.validate_create(&new, &self.gates)
            }
        };
        Self::invalid(&new, &errors)?;
        let shown = kind.from_stored(new.clone());
        if !dry_run {
            self.pool.apply(claims);
            self.store.insert(name, new);
            self.check();
        }
        Ok(shown)
    }

    fn check(&self) {
        let owned: Vec<Claim> = self
            .store
            .values()
            .flat_map(|object| self.core.owned(object))
            .collect();
        let distinct: BTreeSet<Claim> = owned.iter().cloned().collect();
        assert_eq!(owned.len(), distinct.len(), "owned twice");
        assert_eq!(distinct, self.pool.taken, "claimed and owned differ");
    }

    /// POST or PUT, by whether it is there.
    pub(super) fn put(&mut self, name: &str, spec: Value) -> Answer {
        self.write(false, service(name, spec), false, false)
    }

    pub(super) fn dry_run(&mut self, name: &str, spec: Value) -> Answer {
        self.write(false, service(name, spec), false, true)
    }

    pub(super) fn put_portico(&mut self, object: Value) -> Answer {
        self.write(true, object, false, false)
    }

    /// A merge patch to the spec.
    pub(super) fn patch(&mut self, name: &str, spec: Value) -> Answer {
        let mut new = self.store[name].clone();
        merge(&mut new["spec"], spec);
        self.write(false, new, true, false)
    }

    /// Write a whole object, as after reading it.
    pub(super) fn replace(&mut self, object: Value) -> Answer {
        self.write(false, object, false, false)
    }

    /// With all that is stored, in another port partition.
    pub(super) fn move_to(&mut self, name: &str, partition: Option<&str>) -> Answer {
        let new = in_partition(self.store[name].clone(), partition);
        self.write(false, new, true, false)
    }

    pub(super) fn put_status(&mut self, in_portico: bool, mut new: Value) -> Answer {
        let kind: &dyn Kind = if in_portico {
            &self.portico
        } else {
            &self.core
        };
        let name = object::name(&new).to_owned();
        let old = self.store[&name].clone();
        let errors = kind.to_stored(&mut new, Some(&old), false);
        Self::invalid(&new, &errors)?;
        kind.default(&mut new, &self.gates);
        kind.prepare_status_update(&mut new, &old, &self.gates);
        let errors = kind.validate_status_update(&new, &old, &self.gates);
        Self::invalid(&new, &errors)?;
        self.store.insert(name, new.clone());
        Ok(kind.from_stored(new))
    }

    /// Report ingress points, as a controller does after reading the object.
    pub(super) fn report(&mut self, name: &str, ingress: Value) -> Answer {
        let mut new = self.store[name].clone();
        new["status"] = json!({"loadBalancer": {"ingress": ingress}});
        self.put_status(false, new)
    }

    pub(super) fn get(&self, name: &str) -> Value {
        let mut object = self.store[name].clone();
        self.core.read(&mut object, &self.gates);
        object
    }

    pub(super) fn delete(&mut self, name: &str) {
        let object = self.store.remove(name).unwrap();
        let free = self.core.owned(&object);
        self.pool.apply(Claims { take: vec![], free });
        self.check();
    }

    pub(super) fn kind(&self) -> &ServiceKind {
        &self.core
    }
}

fn kind(cluster: &str, node_ports: &str, gates: Gates) -> ServiceKind {
    ServiceKind::new(Ranges::parse(cluster, node_ports).unwrap(), gates)
}

pub(super) fn service(name: &str, spec: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec})
}

pub(super) fn in_partition(mut service: Value, partition: Option<&str>) -> Value {
    service["metadata"]["annotations"] = json!({ PORT_PARTITION: partition.unwrap_or_default() });
    service
}

fn merge(target: &mut Value, patch: Value) {
    let Value::Object(patch) = patch else {
        *target = patch;
        return;
    };
    for (key, value) in patch {
        if value.is_null() {
            object::map(target).remove(&key);
        } else {
            merge(object::map(target).entry(key).or_insert(Value::Null), value);
        }
    }
}

/// The fields an error names, with the reason of each.
pub(super) fn causes(answer: Answer) -> Vec<String> {
    let error = answer.expect_err("refused");
    assert_eq!((error.code, error.reason), (422, "Invalid"), "{error}");
    let causes = error.details["causes"].as_array().unwrap().iter();
    causes
        .map(|cause| {
            format!(
                "{} {}",
                cause["field"].as_str().unwrap(),
                &cause["reason"].as_str().unwrap()[10..]
            )
        })
        .collect()
}
