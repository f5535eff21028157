//! Changing objects: full updates, patches and server-side apply, of the object or of a part of it.

use super::{
    ATTEMPTS, Registry, WriteOptions, claims, invalid, key, load, store_error, wipe_system_fields,
};
use crate::decode::{self, FieldValidation};
use bytes::Bytes;
use portico_api::bounds;
use portico_api::codec::stored;
use portico_api::field::{self, Path};
use portico_api::kinds::{Claims, Kind, metadata};
use portico_api::object;
use portico_api::patch;
use portico_api::patch::managed::{self, Owners};
use portico_api::schema::schema;
use portico_api::status::{ApiError, Result};
use portico_store::{Check, Entry, Op, Txn, TxnError};
use serde_json::Value;

/// What part of an object a request may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Main,
    Status,
    /// `spec.finalizers` of a namespace.
    Finalize,
}

impl Part {
    fn subresource(self) -> &'static str {
        match self {
            Self::Main => "",
            Self::Status => "status",
            Self::Finalize => "finalize",
        }
    }
}

#[derive(Debug)]
pub(crate) enum PatchBody {
    Json(Value),
    Merge(Value),
    Strategic(Value),
    /// Server-side apply of this (decoded) object.
    Apply {
        object: Value,
        force: bool,
    },
}

/// An object after a write.
#[derive(Debug)]
pub(crate) struct Written {
    pub entry: Entry,
    pub created: bool,
    pub warnings: Vec<String>,
}

/// Which object is meant.
#[derive(Clone, Copy)]
pub(crate) struct Target<'a> {
    pub kind: &'a dyn Kind,
    pub namespace: &'a str,
    pub name: &'a str,
    pub part: Part,
}

impl Target<'_> {
    fn key(&self) -> String {
        key(self.kind, self.namespace, self.name)
    }

    fn not_found(&self) -> ApiError {
        ApiError::not_found(self.kind.info().subject(), self.name)
    }
}

impl Registry {
    /// `PUT`: replace the object by a decoded one.
    pub(crate) async fn update(
        &self,
        target: Target<'_>,
        wanted: Value,
        options: &WriteOptions,
    ) -> Result<Written> {
        self.change(target, options, |live| {
            let mut new = decode::inward(target.kind, wanted.clone(), live, false, &self.gates)?;
            let Some(live) = live else {
                return self.put_missing(target, new, options);
            };
            same_incarnation(target, &new, live)?;
            self.note_owner(target, Some(live), &mut new, options);
            Ok((new, Vec::new()))
        })
        .await
    }

    fn put_missing(
        &self,
        target: Target<'_>,
        mut new: Value,
        options: &WriteOptions,
    ) -> Result<(Value, Vec<String>)> {
        if target.part != Part::Main || !target.kind.info().create_on_update {
            return Err(target.not_found());
        }
        options.may_create()?;
        let uid = object::text(&new, "metadata.uid");
        if !uid.is_empty() {
            let why =
                format!("Precondition failed: UID in precondition: {uid}, UID in object meta: ");
            return Err(ApiError::conflict(
                target.kind.info().subject(),
                target.name,
                why,
            ));
        }
        forget_version(&mut new)?;
        wipe_system_fields(&mut new);
        self.note_owner(target, None, &mut new, options);
        Ok((new, Vec::new()))
    }

    /// `PATCH` in all its forms.
    pub(crate) async fn patch(
        &self,
        target: Target<'_>,
        body: &PatchBody,
        validation: FieldValidation,
        options: &WriteOptions,
    ) -> Result<Written> {
        self.change(target, options, |live| match (body, live) {
            (PatchBody::Apply { object, force }, live) => {
                if live.is_none() {
                    options.may_create()?;
                }
                self.applied(target, object, *force, live, options)
            }
            (_, None) => Err(target.not_found()),
            (body, Some(live)) => {
                let (mut new, warnings) = self.patched(target, body, validation, live)?;
                self.note_owner(target, Some(live), &mut new, options);
                Ok((new, warnings))
            }
        })
        .await
    }

    /// The live object with a JSON, merge or strategic patch applied, decoded again.
    fn patched(
        &self,
        target: Target<'_>,
        body: &PatchBody,
        validation: FieldValidation,
        live: &Value,
    ) -> Result<(Value, Vec<String>)> {
        let kind = target.kind;
        let before = self.outward(kind, live.clone());
        let after = match body {
            PatchBody::Json(ops) => patch::json::apply(before, ops)?,
            PatchBody::Merge(merge) => {
                let mut merge = merge.clone();
                kind.read_patch(&mut merge);
                patch::merge::apply(before, &merge)?
            }
            PatchBody::Strategic(strategic) => {
                let mut strategic = strategic.clone();
                kind.read_patch(&mut strategic);
                patch::strategic::apply(schema(), kind.info().schema, before, &strategic)?
            }
            PatchBody::Apply { .. } => {
                return Err(ApiError::internal("apply is not a patch of this form"));
            }
        };
        if matches!(body, PatchBody::Json(_) | PatchBody::Merge(_)) {
            decode::check_patched_kind(kind, &after)?;
        }
        let mut decoded = decode::patched(kind, after, validation)?;
        let metadata = object::child(&mut decoded.object, "metadata");
        if !kind.info().namespaced {
            metadata.remove("namespace");
        } else if metadata
            .get("namespace")
            .and_then(Value::as_str)
            .is_none_or(str::is_empty)
        {
            metadata.insert("namespace".into(), target.namespace.into());
        }
        let new = decode::inward(kind, decoded.object, Some(live), true, &self.gates)?;
        decode::check_place(&new, target.namespace, target.name)?;
        Ok((new, decoded.warnings))
    }

    fn applied(
        &self,
        target: Target<'_>,
        applied: &Value,
        force: bool,
        live: Option<&Value>,
        options: &WriteOptions,
    ) -> Result<(Value, Vec<String>)> {
        let kind = target.kind;
        if live.is_none() && target.part != Part::Main {
            return Err(target.not_found());
        }
        let uid = object::text(applied, "metadata.uid");
        if live.is_none() && !uid.is_empty() {
            let why = format!(
                "uid mismatch: the provided object specified uid {uid}, and no existing object \
                 was found"
            );
            return Err(ApiError::conflict(kind.info().subject(), target.name, why));
        }
        let mut applied = applied.clone();
        if live.is_none() {
            forget_version(&mut applied)?;
        }
        invalid(
            kind,
            target.name,
            &kind.to_stored(&mut applied, None, false),
        )?;
        let now = crate::clock::now_text();
        let api_version = kind.stored_info().api_version();
        let map = object::map(&mut applied);
        map.insert("apiVersion".into(), api_version.as_str().into());
        map.insert("kind".into(), kind.stored_info().kind.into());
        let mut merged =
            owners(target, options, &api_version, &now).apply(live, &applied, force)?;
        bounds::check(&merged).map_err(patch::too_much)?;
        if live.is_none() {
            object::child(&mut merged, "metadata").remove("resourceVersion");
        }
        kind.default(&mut merged, &self.gates);
        decode::check_place(&merged, target.namespace, target.name)?;
        Ok((merged, Vec::new()))
    }

    /// Write down which manager owns the fields that differ from the live object.
    pub(crate) fn note_owner(
        &self,
        target: Target<'_>,
        live: Option<&Value>,
        new: &mut Value,
        options: &WriteOptions,
    ) {
        let now = crate::clock::now_text();
        let api_version = target.kind.stored_info().api_version();
        owners(target, options, &api_version, &now).update(live, new);
    }

    /// An object as clients of this kind see it, with its kind and version.
    pub(crate) fn outward(&self, kind: &dyn Kind, stored: Value) -> Value {
        let mut object = kind.from_stored(stored);
        let map = object::map(&mut object);
        map.insert("kind".into(), kind.info().kind.into());
        map.insert("apiVersion".into(), kind.info().api_version().into());
        object
    }

    /// Reads, makes the new object, writes it if the version is still the same, and else begins
    /// again.
    async fn change(
        &self,
        target: Target<'_>,
        options: &WriteOptions,
        mut make: impl FnMut(Option<&Value>) -> Result<(Value, Vec<String>)>,
    ) -> Result<Written> {
        for _ in 0..ATTEMPTS {
            self.settle().await?;
            let Some(entry) = self.store.get(&target.key()) else {
                let (new, mut warnings) = make(None)?;
                let written = match self.create(target.kind, new, options).await {
                    Err(error) if error.reason == "AlreadyExists" => continue,
                    other => other?,
                };
                warnings.extend(written.warnings);
                return Ok(Written {
                    warnings,
                    ..written
                });
            };
            let entry = self.shown(target.kind, entry);
            let live = load(&entry)?;
            let (new, mut warnings) = make(Some(&live))?;
            if let Some(written) = self.replace(target, entry, live, new, options).await? {
                warnings.extend(written.warnings);
                return Ok(Written {
                    warnings,
                    ..written
                });
            }
        }
        Err(ApiError::modified(
            target.kind.info().subject(),
            target.name,
        ))
    }

    /// Store `new` in the place of `live`; `None` if it has changed meanwhile.
    async fn replace(
        &self,
        target: Target<'_>,
        entry: Entry,
        live: Value,
        mut new: Value,
        options: &WriteOptions,
    ) -> Result<Option<Written>> {
        let kind = target.kind;
        expect_version(target, &new, entry.modified)?;
        let claims = self.prepare(target, &live, &mut new, options)?;
        let warnings = kind.warnings(&new, Some(&live));
        let written = |entry| {
            Ok(Some(Written {
                entry,
                created: false,
                warnings,
            }))
        };
        managed::keep_times(&live, &mut new);
        let key = entry.key.to_string();
        let value = Bytes::from(stored::store(&new));
        let deleted =
            object::at(&live, "metadata.deletionTimestamp").is_string() && !kind.is_held(&new);
        if !deleted && value == entry.value {
            return written(entry);
        }
        let mut txn = Txn {
            checks: vec![Check {
                key: key.clone(),
                modified: entry.modified,
            }],
            ops: Vec::new(),
        };
        if deleted {
            txn.ops = super::delete::ops(kind, &live, &key);
        } else {
            txn.ops.push(Op::Put {
                key: key.clone(),
                value: value.clone(),
            });
            claims::add(&claims, &key, &mut txn.checks, &mut txn.ops);
        }
        if options.dry_run {
            return written(Entry { value, ..entry });
        }
        match self.store.commit(txn).await {
            // What went with its last finalizer is shown with the version that it had.
            Ok(_) if deleted => written(Entry { value, ..entry }),
            Ok(revision) => written(Entry {
                value,
                modified: revision,
                ..entry
            }),
            Err(TxnError::Conflict { .. }) => Ok(None),
            Err(error) => Err(store_error(error)),
        }
    }

    fn prepare(
        &self,
        target: Target<'_>,
        live: &Value,
        new: &mut Value,
        options: &WriteOptions,
    ) -> Result<Claims> {
        let (kind, gates) = (target.kind, &self.gates);
        let mut claims = Claims::default();
        metadata::prepare_update(new, live);
        let errors = match target.part {
            Part::Main => {
                claims = kind.allocate(
                    new,
                    Some(live),
                    &mut claims::StorePool(&self.store),
                    options.dry_run,
                )?;
                kind.prepare_update(new, live, gates);
                kind.validate_update(new, live, gates)
            }
            Part::Status => {
                kind.prepare_status_update(new, live, gates);
                kind.validate_status_update(new, live, gates)
            }
            Part::Finalize => {
                let finalizers = object::at(new, "spec.finalizers").clone();
                let mut kept = live.clone();
                object::copy_key(new, &mut kept, "metadata");
                object::child(&mut kept, "spec").insert("finalizers".into(), finalizers);
                *new = kept;
                portico_api::kinds::namespace::validate_finalize(new)
            }
        };
        let mut all = metadata::validate_update(kind, new, live);
        all.extend(errors);
        if !options.trusted {
            invalid(kind, target.name, &all)?;
            options.ask(new, Some(live))?;
        }
        Ok(claims)
    }
}

/// Ownership is kept in the stored spelling, whichever one the client used.
fn owners<'a>(
    target: Target<'a>,
    options: &'a WriteOptions,
    api_version: &'a str,
    now: &'a str,
) -> Owners<'a> {
    Owners {
        schema: schema(),
        type_name: target.kind.stored_info().schema,
        api_version,
        manager: &options.manager,
        subresource: target.part.subresource(),
        now,
    }
}

/// A `PUT` that names a uid means that very object, not another of the same name.
fn same_incarnation(target: Target<'_>, new: &Value, live: &Value) -> Result<()> {
    let (wanted, found) = (
        object::text(new, "metadata.uid"),
        object::text(live, "metadata.uid"),
    );
    if wanted.is_empty() || wanted == found {
        return Ok(());
    }
    let why =
        format!("Precondition failed: UID in precondition: {wanted}, UID in object meta: {found}");
    Err(ApiError::conflict(
        target.kind.info().subject(),
        target.name,
        why,
    ))
}

fn expect_version(target: Target<'_>, new: &Value, found: u64) -> Result<()> {
    let info = target.kind.info();
    match object::text(new, "metadata.resourceVersion") {
        "" | "0" if target.kind.info().unconditional_update => Ok(()),
        "" | "0" => {
            let path = Path::new("metadata").child("resourceVersion");
            let error = field::Error::invalid(&path, 0, "must be specified for an update");
            Err(ApiError::invalid(
                info.group,
                info.plural,
                target.name,
                &[error],
            ))
        }
        text => match text.parse::<u64>() {
            Ok(version) if version == found => Ok(()),
            Ok(_) => Err(ApiError::modified(info.subject(), target.name)),
            Err(_) => Err(no_version(text)),
        },
    }
}

/// A full update or an apply of what is not there creates it, whatever version it expected to find.
fn forget_version(new: &mut Value) -> Result<()> {
    let version = object::child(new, "metadata").remove("resourceVersion");
    match version.as_ref().and_then(Value::as_str) {
        Some(text) if !text.is_empty() && text.parse::<u64>().is_err() => Err(no_version(text)),
        _ => Ok(()),
    }
}

fn no_version(text: &str) -> ApiError {
    ApiError::bad_request(format!(
        "metadata.resourceVersion: Invalid value: {text:?}: must be a version that the server gave"
    ))
}
