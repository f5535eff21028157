//! Creating objects.

use super::update::Written;
use super::{ATTEMPTS, Registry, WriteOptions, claims, invalid, key, load, store_error};
use crate::random;
use bytes::Bytes;
use memchr::memmem;
use portico_api::codec::stored;
use portico_api::kinds::{Kind, metadata};
use portico_api::object;
use portico_api::status::{ApiError, Result, Subject};
use portico_store::{Check, Entry, Op, Txn, TxnError};
use serde_json::{Value, json};

const NAMESPACES: Subject<'static> = Subject {
    group: "",
    resource: "namespaces",
};

impl Registry {
    /// Create a decoded, defaulted object whose field ownership is already noted.
    pub(crate) async fn create(
        &self,
        kind: &dyn Kind,
        mut wanted: Value,
        options: &WriteOptions,
    ) -> Result<Written> {
        // What is no version says nothing.
        let version = object::child(&mut wanted, "metadata").remove("resourceVersion");
        let version = version
            .as_ref()
            .and_then(Value::as_str)
            .and_then(|version| version.parse::<u64>().ok());
        if version.is_some_and(|version| version != 0) {
            return Err(ApiError::bad_request(
                "resourceVersion should not be set on objects to be created",
            ));
        }
        metadata::prepare_create(&mut wanted, &random::uuid(), &crate::clock::now_text());
        let generate = object::name(&wanted).is_empty();
        for attempt in 0..ATTEMPTS {
            if generate && !object::text(&wanted, "metadata.generateName").is_empty() {
                name_it(&mut wanted);
            }
            let found = self.try_create(kind, wanted.clone(), options).await;
            match found {
                Err(CreateError::Race) if attempt > 0 => self.settle().await?,
                Err(CreateError::Race) => {}
                Err(CreateError::Exists(_)) if generate && attempt < 8 => {}
                Err(CreateError::Exists(error) | CreateError::Other(error)) => return Err(error),
                Ok(written) => return Ok(written),
            }
        }
        Err(ApiError::unavailable(
            "too many others are changing the same objects; try again",
        ))
    }

    async fn try_create(
        &self,
        kind: &dyn Kind,
        mut object: Value,
        options: &WriteOptions,
    ) -> std::result::Result<Written, CreateError> {
        let info = kind.info();
        let namespace = object::namespace(&object).to_owned();
        let home = self.home(kind, &object)?;
        let name = object::name(&object).to_owned();
        let key = key(kind, &namespace, &name);
        let claims = kind.allocate(
            &mut object,
            None,
            &mut claims::StorePool(&self.store),
            options.dry_run,
        )?;
        let warnings = self.checked(kind, &mut object, options)?;
        if self.store.get(&key).is_some() {
            return Err(CreateError::Exists(ApiError::already_exists(
                info.subject(),
                &name,
            )));
        }
        let value = Bytes::from(stored::store(&object));
        if options.dry_run {
            let entry = Entry {
                key: key.into(),
                value,
                created: 0,
                modified: 0,
            };
            return Ok(Written {
                entry,
                created: true,
                warnings,
            });
        }
        let mut txn = Txn {
            checks: vec![Check {
                key: key.clone(),
                modified: 0,
            }],
            ops: Vec::new(),
        };
        txn.checks.extend(home);
        txn.ops.push(Op::Put {
            key: key.clone(),
            value: value.clone(),
        });
        claims::add(&claims, &key, &mut txn.checks, &mut txn.ops);
        match self.store.commit(txn).await {
            Ok(revision) => {
                let entry = Entry {
                    key: key.into(),
                    value,
                    created: revision,
                    modified: revision,
                };
                Ok(Written {
                    entry,
                    created: true,
                    warnings,
                })
            }
            Err(TxnError::Conflict { key: lost }) if lost == key => Err(CreateError::Exists(
                ApiError::already_exists(info.subject(), &name),
            )),
            Err(TxnError::Conflict { .. }) => Err(CreateError::Race),
            Err(error) => Err(store_error(error).into()),
        }
    }

    /// The last steps before an object is stored: drop what clients may not set, then validate.
    /// Returns warnings.
    fn checked(
        &self,
        kind: &dyn Kind,
        object: &mut Value,
        options: &WriteOptions,
    ) -> Result<Vec<String>> {
        kind.prepare_create(object, &self.gates);
        if options.trusted {
            return Ok(Vec::new());
        }
        let mut errors = metadata::validate_create(kind, object);
        errors.extend(kind.validate_create(object, &self.gates));
        let name = object::name(object).to_owned();
        invalid(kind, &name, &errors)?;
        options.ask(object, None)?;
        Ok(kind.warnings(object, None))
    }

    /// The namespace must be there and must stay as it is until the object is in it.
    fn home(&self, kind: &dyn Kind, object: &Value) -> Result<Option<Check>> {
        if !kind.info().namespaced {
            return Ok(None);
        }
        let namespace = object::namespace(object);
        let key = format!("namespaces/{namespace}");
        let Some(entry) = self.store.get(&key) else {
            return Err(ApiError::not_found(NAMESPACES, namespace));
        };
        // Most namespaces are not being deleted: look closer only when the word is there.
        if memmem::find(&entry.value, b"\"deletionTimestamp\"").is_some()
            && object::at(&load(&entry)?, "metadata.deletionTimestamp").is_string()
        {
            return Err(terminating(kind, namespace, object::name(object)));
        }
        Ok(Some(Check {
            key,
            modified: entry.modified,
        }))
    }

    /// Wait until the mirror has what others wrote, before trying again.
    pub(super) async fn settle(&self) -> Result<()> {
        self.store
            .barrier()
            .await
            .map(|_| ())
            .map_err(super::read_error)
    }
}

enum CreateError {
    Exists(ApiError),
    /// Another object took what was picked; another pick may do.
    Race,
    Other(ApiError),
}

impl From<ApiError> for CreateError {
    fn from(error: ApiError) -> Self {
        Self::Other(error)
    }
}

fn name_it(object: &mut Value) {
    let name = metadata::generated_name(
        object::text(object, "metadata.generateName"),
        random::number(),
    );
    object::child(object, "metadata").insert("name".into(), name.into());
}

fn terminating(kind: &dyn Kind, namespace: &str, name: &str) -> ApiError {
    let why = format!(
        "unable to create new content in namespace {namespace} because it is being terminated"
    );
    let mut error = ApiError::forbidden(kind.info().subject(), name, why);
    let message = format!("namespace {namespace} is being terminated");
    let cause = json!([{"reason": "NamespaceTerminating", "message": message, "field": "metadata.namespace"}]);
    error.details.insert("causes".into(), cause);
    error
}
