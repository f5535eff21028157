//! The verbs on resources: from a decoded request to the registry and back to an answer.

use crate::answer::Answer;
use crate::decode::{self, Expected, FieldValidation};
use crate::limits::{Limits, Load};
use crate::negotiate::{Accept, Form};
use crate::registry::{
    DeleteOptions, Deleted, Guard, ListOptions, Part, PatchBody, Registry, Target, Version,
    WriteOptions,
};
use crate::render;
use crate::request::{Query, ResourcePath};
use crate::shares::Flow;
use crate::watch::Watcher;
use portico_api::codec::json;
use portico_api::field::{self, Path};
use portico_api::kinds::{Info, Kind};
use portico_api::object;
use portico_api::patch::managed;
use portico_api::selector::{FieldSelector, LabelSelector};
use portico_api::status::{ApiError, Result};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

/// Selectors with more bytes than this are parsed in a turn of their own.
const LONG_TEXT: usize = 4 * 1024;
/// And so are longer lists written.
const LONG_LIST: usize = 128 * 1024;

/// What a client wants to do with a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    Get,
    List,
    Watch,
    Create,
    Update,
    Patch,
    Delete,
    DeleteCollection,
}

impl Verb {
    pub(crate) fn of(method: &str, path: &ResourcePath, query: &Query) -> Option<Self> {
        let named = !path.name.is_empty();
        match method {
            // A subresource such as serviceaccounts/x/token is created on a named object.
            "POST" if !named || !path.subresource.is_empty() => Some(Self::Create),
            "GET" if path.watch => Some(Self::Watch),
            "GET" if named => Some(Self::Get),
            "GET" if query.flag("watch") => Some(Self::Watch),
            "GET" => Some(Self::List),
            "PUT" if named => Some(Self::Update),
            "PATCH" if named => Some(Self::Patch),
            "DELETE" if named => Some(Self::Delete),
            "DELETE" => Some(Self::DeleteCollection),
            _ => None,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Watch => "watch",
            Self::Create => "create",
            Self::Update => "update",
            Self::Patch => "patch",
            Self::Delete => "delete",
            Self::DeleteCollection => "deletecollection",
        }
    }

    pub(crate) fn writes(self) -> bool {
        !matches!(self, Self::Get | Self::List | Self::Watch)
    }
}

/// A request for a resource, with everything that came along.
pub(crate) struct Call<'a> {
    pub registry: &'a Arc<Registry>,
    pub limits: &'a Arc<Limits>,
    /// The user whose share it counts for.
    pub flow: &'a Flow,
    pub kind: Arc<dyn Kind>,
    pub path: &'a ResourcePath,
    pub query: &'a Query,
    pub accept: Accept,
    pub content_type: &'a str,
    pub user_agent: &'a str,
    pub body: &'a [u8],
    /// Why the caller may not create what a PUT or an apply does not find, if so.
    pub may_not_create: Option<ApiError>,
    pub guard: Option<Guard>,
    pub watch_timeout: Duration,
}

impl Call<'_> {
    pub(crate) async fn answer(&self, verb: Verb) -> Result<Answer> {
        let part = self.part(verb)?;
        if matches!(self.path.name.as_str(), "." | "..") || self.path.name.contains('%') {
            return Err(ApiError::bad_request(format!(
                "Name parameter invalid: {:?}",
                self.path.name
            )));
        }
        let answer = match verb {
            Verb::Get => self.get().await,
            Verb::List => self.list().await,
            Verb::Watch => self.watch().await,
            Verb::Create => self.create().await,
            Verb::Update => self.update(part).await,
            Verb::Patch => self.patch(part).await,
            Verb::Delete => self.delete().await,
            Verb::DeleteCollection => self.delete_collection().await,
        };
        answer.map_err(|error| self.in_words_of_the_client(error))
    }

    fn in_words_of_the_client(&self, error: ApiError) -> ApiError {
        if error.code != 422 {
            return error;
        }
        let request = serde_json::from_slice(self.body)
            .ok()
            .or_else(|| decode::yaml(self.body).ok().map(|(request, _)| request));
        match request {
            Some(request) => error.in_words(&self.kind.other_words(&request)),
            None => error,
        }
    }

    /// The part of the object that the path means, if the verb goes with it.
    fn part(&self, verb: Verb) -> Result<Part> {
        let info = self.kind.info();
        let not_allowed = || Err(method_not_allowed());
        let in_one_namespace = matches!(verb, Verb::Create | Verb::DeleteCollection);
        if info.namespaced && self.path.namespace.is_empty() && in_one_namespace {
            return not_allowed();
        }
        match (self.path.subresource.as_str(), verb) {
            ("", _) if info.plural == "namespaces" && verb == Verb::DeleteCollection => {
                not_allowed()
            }
            ("", _) => Ok(Part::Main),
            ("status", Verb::Get | Verb::Update | Verb::Patch) if info.status => Ok(Part::Status),
            ("status", _) if info.status => not_allowed(),
            ("finalize", Verb::Update) if info.plural == "namespaces" => Ok(Part::Finalize),
            ("finalize", _) if info.plural == "namespaces" => not_allowed(),
            _ => Err(ApiError::no_such_path()),
        }
    }

    fn target(&self, part: Part) -> Target<'_> {
        Target {
            kind: self.kind.as_ref(),
            namespace: &self.path.namespace,
            name: &self.path.name,
            part,
        }
    }

    async fn get(&self) -> Result<Answer> {
        let version = self.query.text("resourceVersion");
        if !version.is_empty() && version.parse::<u64>().is_err() {
            return Err(ApiError::bad_request(format!(
                "resourceVersion: Invalid value: {version:?}"
            )));
        }
        let entry = self
            .registry
            .get(self.kind.as_ref(), &self.path.namespace, &self.path.name)
            .await?;
        self.one(200, &entry)
    }

    async fn list(&self) -> Result<Answer> {
        let (kind, options) = (self.kind.as_ref(), self.list_options().await?);
        let list = self.registry.list(kind, &options).await?;
        // The answer is not written before there is room for it.
        let size = render::list_size(&list);
        let mut share = self.limits.take(self.flow, Load::Bytes, size)?;
        let write = || render::list(self.registry, kind, &list, self.accept);
        let body = match size {
            ..LONG_LIST => write()?,
            _ => self.registry.processor.run(self.flow, write).await??,
        };
        share.settle(body.len());
        let answer = Answer::bytes(200, self.accept.wire.content_type(), body).charged(share);
        Ok(answer.warn(self.registry.missing(kind, &options).into_iter().collect()))
    }

    async fn selectors(&self) -> Result<(LabelSelector, FieldSelector)> {
        let (labels, fields) = (
            self.query.text("labelSelector"),
            self.query.text("fieldSelector"),
        );
        let parse = || {
            Ok((
                LabelSelector::parse(labels)?,
                FieldSelector::parse(self.kind.as_ref(), fields)?,
            ))
        };
        match labels.len() + fields.len() {
            ..LONG_TEXT => parse(),
            _ => self.registry.processor.run(self.flow, parse).await?,
        }
    }

    async fn list_options(&self) -> Result<ListOptions> {
        let query = self.query;
        let limit = usize::try_from(query.number("limit")?.unwrap_or(0)).unwrap_or(0);
        let token = query.text("continue").to_owned();
        let (version, matching) = (
            query.text("resourceVersion"),
            query.text("resourceVersionMatch"),
        );
        query.number("timeoutSeconds")?;
        let mut errors = Version::problems(version, matching, !token.is_empty());
        if query.get("sendInitialEvents").is_some() {
            let path = Path::new("sendInitialEvents");
            errors.push(field::Error::forbidden(
                &path,
                "sendInitialEvents is forbidden for list",
            ));
        }
        if !errors.is_empty() {
            return Err(ApiError::invalid("meta.k8s.io", "ListOptions", "", &errors));
        }
        if !token.is_empty() && !matches!(version, "" | "0") {
            return Err(ApiError::bad_request(
                "specifying resource version is not allowed when using continue",
            ));
        }
        let (labels, fields) = self.selectors().await?;
        Ok(ListOptions {
            flow: self.flow.clone(),
            namespace: self.path.namespace.clone(),
            labels,
            fields,
            version: Version::parse(version, matching, limit > 0, !token.is_empty())?,
            // What is at hand costs nothing more to tell in full: a limit does not count.
            limit: if version == "0" && token.is_empty() && self.kind.info().cached {
                0
            } else {
                limit
            },
            continue_token: token,
        })
    }

    async fn watch(&self) -> Result<Answer> {
        let (query, kind) = (self.query, self.kind.as_ref());
        let begin = Begin::parse(query)?;
        if self.accept.wire == crate::negotiate::Wire::Yaml {
            return Err(crate::negotiate::not_acceptable(
                "YAML has no form for a stream of events",
            ));
        }
        let (labels, mut fields) = self.selectors().await?;
        if !self.path.name.is_empty() {
            fields = FieldSelector::parse(kind, &format!("metadata.name={}", self.path.name))?;
        }
        query.number("limit")?;
        let timeout = match query.number("timeoutSeconds")? {
            None | Some(0) => self.watch_timeout,
            // A time that is over already ends the watch at once.
            Some(seconds) => Duration::from_secs(u64::try_from(seconds).unwrap_or(0)),
        };
        let mut initial = Vec::new();
        let after = if begin.with_existing {
            let options = ListOptions {
                labels: labels.clone(),
                fields: fields.clone(),
                version: begin.version,
                ..ListOptions::all(self.flow.clone(), &self.path.namespace)
            };
            let list = self.registry.list(kind, &options).await?;
            initial = list.entries;
            list.revision
        } else {
            match begin.version {
                Version::NotOlderThan(revision) | Version::Exactly(revision) => revision,
                Version::Any | Version::Newest => self
                    .registry
                    .store
                    .barrier()
                    .await
                    .map_err(|e| ApiError::unavailable(e.to_string()))?,
            }
        };
        let prefix = crate::registry::prefix(kind, &self.path.namespace);
        // A version that is still to come is waited for: nothing older is told.
        let from = after.min(self.registry.store.revision());
        let watch = match self.registry.store.watch(&prefix, from) {
            Ok(watch) => watch.before_answers(),
            Err(_) => {
                let why = format!(
                    "too old resource version: {after} ({})",
                    self.registry.store.compacted()
                );
                let line = render::event_of(
                    "ERROR",
                    "Status",
                    ApiError::expired(why).status(),
                    self.accept,
                )?;
                return Ok(Answer::bytes(200, self.accept.wire.content_type(), line));
            }
        };
        let watcher = Watcher {
            registry: Arc::clone(self.registry),
            kind: Arc::clone(&self.kind),
            labels,
            fields,
            accept: self.accept,
            bookmarks: query.flag("allowWatchBookmarks"),
            initial_end: (begin.send_initial_events && query.flag("allowWatchBookmarks"))
                .then_some(after),
            initial: initial.into(),
            watch,
            after,
            timeout,
            columns_told: std::cell::Cell::new(false),
        };
        let stream_type = match self.accept.wire {
            crate::negotiate::Wire::Protobuf => "application/vnd.kubernetes.protobuf;stream=watch",
            wire => wire.content_type(),
        };
        Ok(Answer::stream(stream_type, watcher.stream()))
    }

    async fn create(&self) -> Result<Answer> {
        let (options, validation) = self.write_options("CreateOptions")?;
        let kind = self.kind.as_ref();
        let mut decoded = decode::body(kind, self.content_type, self.body, validation)?;
        self.settle_namespace(&mut decoded.object)?;
        let mut wanted = decode::inward(kind, decoded.object, None, false, &self.registry.gates)?;
        crate::registry::wipe_system_fields(&mut wanted);
        self.registry
            .note_owner(self.target(Part::Main), None, &mut wanted, &options);
        let written = self.registry.create(kind, wanted, &options).await?;
        decoded.warnings.extend(written.warnings);
        Ok(self.one(201, &written.entry)?.warn(decoded.warnings))
    }

    async fn update(&self, part: Part) -> Result<Answer> {
        let (options, validation) = self.write_options("UpdateOptions")?;
        let kind = self.kind.as_ref();
        let mut decoded = decode::body(kind, self.content_type, self.body, validation)?;
        self.settle_namespace(&mut decoded.object)?;
        decode::check_place(&decoded.object, &self.path.namespace, &self.path.name)?;
        let written = self
            .registry
            .update(self.target(part), decoded.object, &options)
            .await?;
        decoded.warnings.extend(written.warnings);
        Ok(self
            .one(if written.created { 201 } else { 200 }, &written.entry)?
            .warn(decoded.warnings))
    }

    async fn patch(&self, part: Part) -> Result<Answer> {
        let (options, validation) = self.write_options("PatchOptions")?;
        let (body, mut warnings) = self.patch_body(validation)?;
        let written = self
            .registry
            .patch(self.target(part), &body, validation, &options)
            .await?;
        warnings.extend(written.warnings);
        Ok(self
            .one(if written.created { 201 } else { 200 }, &written.entry)?
            .warn(warnings))
    }

    fn patch_body(&self, validation: FieldValidation) -> Result<(PatchBody, Vec<String>)> {
        let parsed = || -> Result<Value> {
            json::read(self.body)
                .map_err(|error| ApiError::bad_request(format!("error decoding patch: {error}")))
        };
        let object = || -> Result<Value> {
            match parsed()? {
                patch @ Value::Object(_) => Ok(patch),
                _ => Err(ApiError::bad_request(
                    "error decoding patch: the patch must be a JSON object",
                )),
            }
        };
        let twice = || decode::patch_duplicates(self.body, validation);
        match decode::media_type(self.content_type) {
            "application/json-patch+json" => Ok((PatchBody::Json(parsed()?), twice()?)),
            "application/merge-patch+json" => Ok((PatchBody::Merge(object()?), twice()?)),
            "application/strategic-merge-patch+json" => {
                // Here a null is a patch that changes nothing.
                let mut patch = if self.body.trim_ascii() == b"null" {
                    json!({})
                } else {
                    object()?
                };
                json::whole_numbers(&mut patch);
                Ok((PatchBody::Strategic(patch), twice()?))
            }
            "application/apply-patch+yaml"
            | "application/apply-patch+json"
            | "application/apply-patch+cbor" => self.apply_body(validation),
            _ => Err(ApiError::new(
                415,
                "UnsupportedMediaType",
                "the body of the request was in an unknown format - accepted media types include: \
                 application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml, \
                 application/strategic-merge-patch+json",
            )),
        }
    }

    fn apply_body(&self, validation: FieldValidation) -> Result<(PatchBody, Vec<String>)> {
        let (mut value, duplicates) = decode::yaml(self.body)
            .map_err(|error| ApiError::bad_request(format!("error decoding YAML: {error}")))?;
        json::whole_numbers(&mut value);
        let (kind, version) = (
            object::text(&value, "kind"),
            object::text(&value, "apiVersion"),
        );
        if kind.is_empty() || version.is_empty() {
            return Err(ApiError::bad_request(format!(
                "invalid object type: {version}, Kind={kind}"
            )));
        }
        if !object::items(&value, "metadata.managedFields").is_empty() {
            return Err(ApiError::bad_request("metadata.managedFields must be nil"));
        }
        self.applied(value, &duplicates, validation)
    }

    fn applied(
        &self,
        value: Value,
        duplicates: &[String],
        validation: FieldValidation,
    ) -> Result<(PatchBody, Vec<String>)> {
        let info = self.kind.info();
        let api_version = info.api_version();
        let expected = Expected {
            api_version: &api_version,
            kind: info.kind,
            schema: info.schema,
        };
        // Ownership needs what was really said, so the body goes on as it was sent once it is known
        // to be sound.
        let mut object = value;
        let warnings = decode::applied(expected, object.clone(), duplicates, validation)?.warnings;
        self.settle_namespace(&mut object)?;
        Ok((
            PatchBody::Apply {
                object,
                force: self.query.flag("force"),
            },
            warnings,
        ))
    }

    async fn delete(&self) -> Result<Answer> {
        let options = self.delete_options()?;
        let kind = self.kind.as_ref();
        match self
            .registry
            .delete(kind, &self.path.namespace, &self.path.name, &options)
            .await?
        {
            Deleted::Marked(entry) => self.one(200, &entry),
            Deleted::Gone(entry) if kind.info().delete_returns_object => self.one(200, &entry),
            Deleted::Gone(entry) => {
                let info = kind.info();
                let object = portico_api::codec::stored::load(&entry.value, entry.modified)
                    .map_err(ApiError::internal)?;
                let uid = object::text(&object, "metadata.uid");
                let mut details = json!({"name": self.path.name, "kind": info.plural, "uid": uid});
                if !info.group.is_empty() {
                    details["group"] = info.group.into();
                }
                let status = json!({
                    "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details,
                });
                let accept = Accept {
                    form: Form::Object,
                    ..self.accept
                };
                let body = render::written("Status", status, accept)?;
                Ok(Answer::bytes(200, accept.wire.content_type(), body))
            }
        }
    }

    async fn delete_collection(&self) -> Result<Answer> {
        let options = self.delete_options()?;
        let kind = self.kind.as_ref();
        let entries = self
            .registry
            .delete_collection(kind, &self.list_options().await?, &options)
            .await?;
        let list = crate::registry::List {
            entries,
            revision: self.registry.store.revision(),
            ..Default::default()
        };
        let body = render::list(self.registry, kind, &list, self.accept)?;
        Ok(Answer::bytes(200, self.accept.wire.content_type(), body))
    }

    fn delete_options(&self) -> Result<DeleteOptions> {
        let options = crate::delete_options::parse(self.content_type, self.body, self.query)?;
        Ok(DeleteOptions {
            guard: self.guard.clone(),
            ..options
        })
    }

    /// The options of a write; `kind` is what an error calls them.
    fn write_options(&self, kind: &str) -> Result<(WriteOptions, FieldValidation)> {
        let dry_run: Vec<&str> = self.query.all("dryRun").collect();
        let manager = self.query.text("fieldManager");
        let mut errors = managed::manager_problems(&Path::new("fieldManager"), manager);
        errors.extend(decode::dry_run_problems(&dry_run));
        let (validation, problem) = FieldValidation::parse(self.query.text("fieldValidation"));
        errors.extend(problem);
        if kind == "PatchOptions" {
            errors.extend(self.apply_options_problems());
        }
        if !errors.is_empty() {
            return Err(ApiError::invalid("meta.k8s.io", kind, "", &errors));
        }
        let options = WriteOptions {
            manager: managed::manager_name(manager, self.user_agent),
            dry_run: !dry_run.is_empty(),
            trusted: false,
            guard: self.guard.clone(),
            may_not_create: self.may_not_create.clone(),
        };
        Ok((options, validation))
    }

    /// An apply must name its field manager; only an apply can be forced.
    fn apply_options_problems(&self) -> Option<field::Error> {
        let apply = decode::media_type(self.content_type).starts_with("application/apply-patch+");
        if apply && self.query.text("fieldManager").is_empty() {
            return Some(field::Error::required(
                &Path::new("fieldManager"),
                "is required for apply patch",
            ));
        }
        if !apply && self.query.get("force").is_some() {
            return Some(field::Error::forbidden(
                &Path::new("force"),
                "may not be specified for non-apply patch",
            ));
        }
        None
    }

    /// An object without a namespace gets that of the path; another one is a mistake.
    fn settle_namespace(&self, object: &mut Value) -> Result<()> {
        let info = self.kind.info();
        let found = object::namespace(object);
        if !info.namespaced {
            if !found.is_empty() {
                object::child(object, "metadata").remove("namespace");
            }
            return Ok(());
        }
        if found.is_empty() {
            object::child(object, "metadata")
                .insert("namespace".into(), self.path.namespace.as_str().into());
            return Ok(());
        }
        if found == self.path.namespace {
            return Ok(());
        }
        Err(ApiError::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ))
    }

    fn one(&self, code: u16, entry: &portico_store::Entry) -> Result<Answer> {
        let body = render::one(self.registry, self.kind.as_ref(), entry, self.accept)?;
        Ok(Answer::bytes(code, self.accept.wire.content_type(), body))
    }
}

pub(crate) fn method_not_allowed() -> ApiError {
    ApiError::new(
        405,
        "MethodNotAllowed",
        "the server does not allow this method on the requested resource",
    )
}

/// A `POST` to the object itself: the early designs of Kubernetes wrote that, and no API server
/// ever took it.
pub(crate) fn post_to_an_object(path: &ResourcePath, info: &Info) -> ApiError {
    let place = match path.namespace.as_str() {
        "" => info.plural.to_owned(),
        namespace => format!("namespaces/{namespace}/{}", info.plural),
    };
    let (name, kind) = (&path.name, info.kind);
    let status = if info.status {
        format!("; to write its status, PUT or PATCH {place}/{name}/status")
    } else {
        String::new()
    };
    method_not_allowed().advice(format!(
        "to create the {kind}, POST it to {place} with {name:?} in metadata.name; to replace it, \
         PUT it to {place}/{name}{status}"
    ))
}

/// Where a watch begins.
struct Begin {
    version: Version,
    with_existing: bool,
    send_initial_events: bool,
}

impl Begin {
    fn parse(query: &Query) -> Result<Self> {
        let (version, matching) = (
            query.text("resourceVersion"),
            query.text("resourceVersionMatch"),
        );
        let send = query.optional_flag("sendInitialEvents");
        let errors = Self::problems(send, version, matching, !query.text("continue").is_empty());
        if !errors.is_empty() {
            return Err(ApiError::invalid("meta.k8s.io", "ListOptions", "", &errors));
        }
        let number = version.parse::<u64>().map_err(|_| {
            ApiError::bad_request(format!(
                "resourceVersion: Invalid value: {version:?}: must be a version that the server \
                 gave"
            ))
        });
        let version = match version {
            "" => Version::Newest,
            "0" => Version::Any,
            _ => Version::NotOlderThan(number?),
        };
        let unset = matches!(version, Version::Newest | Version::Any);
        Ok(Self {
            version,
            with_existing: send.unwrap_or(unset),
            send_initial_events: send == Some(true),
        })
    }
    fn problems(
        send: Option<bool>,
        version: &str,
        matching: &str,
        continued: bool,
    ) -> Vec<field::Error> {
        let path = Path::new("resourceVersionMatch");
        let forbidden = |why: &str| field::Error::forbidden(&path, why);
        let mut errors = Vec::new();
        if send.is_some() && matching != "NotOlderThan" {
            errors.push(forbidden(
                "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
            ));
        }
        if send.is_none() && !matching.is_empty() {
            errors.push(forbidden(
                "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
            ));
        }
        if !matches!(matching, "" | "NotOlderThan") {
            errors.push(field::Error::not_supported(
                &path,
                matching,
                &["NotOlderThan"],
            ));
        }
        // A watch from no version in particular sends what there is first, as if it had asked for
        // that.
        let implied = send.is_none() && matches!(version, "" | "0");
        if continued && (implied || !matching.is_empty()) {
            errors.push(forbidden(
                "resourceVersionMatch is forbidden when continue is provided",
            ));
        }
        errors
    }
}
