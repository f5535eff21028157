//! Resources that are asked and answered, never stored: access reviews, token reviews, token
//! requests. And the rule that a user hands out only permissions that they have.

use crate::answer::Answer;
use crate::app::App;
use crate::auth::rbac::check_node;
use crate::auth::service_account::Objects;
use crate::auth::{Rbac, Request, User, join, node_restriction, review};
use crate::decode::{self, Expected, FieldValidation};
use crate::registry::{Guard, Registry, key};
use crate::request::ResourcePath;
use crate::resource::{Verb, method_not_allowed};
use jiff::Timestamp;
use portico_api::codec::stored;
use portico_api::object;
use portico_api::status::{ApiError, Result, Subject};
use serde_json::Value;
use std::sync::{Arc, RwLock};

const AUTHENTICATION: &str = "authentication.k8s.io";
const AUTHORIZATION: &str = "authorization.k8s.io";
const RBAC: &str = "rbac.authorization.k8s.io";

/// The answer, if the path is one of these.
pub(crate) fn answer(
    app: &App,
    user: &User,
    path: &ResourcePath,
    verb: Option<Verb>,
    content_type: &str,
    body: &[u8],
) -> Result<Option<Answer>> {
    let kind = match (
        path.group.as_str(),
        path.version.as_str(),
        path.resource.as_str(),
        path.subresource.as_str(),
    ) {
        (AUTHENTICATION, "v1", "tokenreviews", "") => "TokenReview",
        (AUTHENTICATION, "v1", "selfsubjectreviews", "") => "SelfSubjectReview",
        (AUTHORIZATION, "v1", "localsubjectaccessreviews", "") => "LocalSubjectAccessReview",
        (AUTHORIZATION, "v1", "selfsubjectaccessreviews", "") => "SelfSubjectAccessReview",
        (AUTHORIZATION, "v1", "selfsubjectrulesreviews", "") => "SelfSubjectRulesReview",
        (AUTHORIZATION, "v1", "subjectaccessreviews", "") => "SubjectAccessReview",
        ("", "v1", "serviceaccounts", "token") => "TokenRequest",
        _ => return Ok(None),
    };
    if verb != Some(Verb::Create) {
        return Err(method_not_allowed());
    }
    let group = if kind == "TokenRequest" {
        AUTHENTICATION
    } else {
        &path.group
    };
    let api_version = format!("{group}/v1");
    let expected = Expected {
        api_version: &api_version,
        kind,
        schema: kind,
    };
    let asked = decode::typed(expected, content_type, body, FieldValidation::Ignore)?.object;
    let rbac = read(&app.rbac)?;
    let mut answered = match kind {
        "TokenReview" => review::token(&app.authenticator, &asked, Timestamp::now())?,
        "SelfSubjectReview" => review::self_subject(user, &asked, Timestamp::now()),
        "LocalSubjectAccessReview" => review::local_subject_access(&rbac, &path.namespace, &asked)?,
        "SelfSubjectAccessReview" => review::self_subject_access(&rbac, user, &asked)?,
        "SelfSubjectRulesReview" => review::self_subject_rules(&rbac, user, &asked)?,
        "SubjectAccessReview" => review::subject_access(&rbac, &asked)?,
        _ => token_request(app, &rbac, user, path, &asked)?,
    };
    answered["kind"] = kind.into();
    answered["apiVersion"] = api_version.into();
    Ok(Some(Answer::json(201, &answered)))
}

fn read(rbac: &RwLock<Rbac>) -> Result<std::sync::RwLockReadGuard<'_, Rbac>> {
    rbac.read()
        .map_err(|_| ApiError::internal("the access rules are not readable"))
}

fn token_request(
    app: &App,
    rbac: &Rbac,
    user: &User,
    path: &ResourcePath,
    asked: &Value,
) -> Result<Value> {
    let tokens = app
        .authenticator
        .tokens
        .as_ref()
        .ok_or_else(|| ApiError::internal("tokens are off"))?;
    let objects = StoredAccounts(Arc::clone(&app.registry));
    let account = objects
        .get("ServiceAccount", &path.namespace, &path.name)
        .ok_or_else(|| {
            ApiError::not_found(
                Subject {
                    group: "",
                    resource: "serviceaccounts",
                },
                &path.name,
            )
        })?;
    let request = Request {
        verb: Verb::Create.name(),
        group: &path.group,
        resource: &path.resource,
        subresource: &path.subresource,
        name: &path.name,
        namespace: &path.namespace,
    };
    let may = |request: &Request<'_>| rbac.decide(user, &(*request).into()).allowed;
    join::check_request(user, &request, asked, &objects, &may)?;
    tokens.answer(asked, &account, &objects, Timestamp::now())
}

/// Where others find the key of this server's tokens.
pub(crate) fn issuer_document(app: &App, path: &str) -> Result<Answer> {
    let tokens = app
        .authenticator
        .tokens
        .as_ref()
        .ok_or_else(ApiError::no_such_path)?;
    match path {
        "/openid/v1/jwks" => Ok(Answer::bytes(
            200,
            "application/jwk-set+json",
            tokens.key_set().to_string(),
        )),
        _ => Ok(Answer::json(
            200,
            &tokens.discovery(&format!("https://{}/openid/v1/jwks", app.address)),
        )),
    }
}

/// What a write must pass once it is known what would be stored: no role with more rights than its
/// author has, and no node writes what is another node's.
pub(crate) fn guard(app: &App, user: &User, path: &ResourcePath, verb: Verb) -> Option<Guard> {
    let roles = path.group == RBAC && verb.writes();
    let node = verb.writes() && node_restriction::concerns(user, &path.group, &path.resource);
    if !roles && !node {
        return None;
    }
    let objects = StoredAccounts(Arc::clone(&app.registry));
    let (rbac, user, path) = (Arc::clone(&app.rbac), user.clone(), path.clone());
    Some(Arc::new(move |new: Option<&Value>, old: Option<&Value>| {
        let request = Request {
            verb: verb.name(),
            group: &path.group,
            resource: &path.resource,
            subresource: &path.subresource,
            name: &path.name,
            namespace: &path.namespace,
        };
        let rbac = read(&rbac)?;
        if node {
            let request = Request {
                name: object::name(new.or(old).unwrap_or(&Value::Null)),
                ..request
            };
            check_node(&user, &request)?;
            let update = Request {
                verb: Verb::Update.name(),
                subresource: "",
                ..request
            };
            let write = node_restriction::Write {
                user: &user,
                request,
                new,
                old,
                may_update_main: rbac.decide(&user, &update.into()).allowed,
            };
            return node_restriction::check(&write, &objects);
        }
        match (path.resource.as_str(), new) {
            // Deleting a role hands out nothing.
            (_, None) => Ok(()),
            ("roles" | "clusterroles", Some(new)) => rbac.check_role(&user, &request, new, old),
            (_, Some(new)) => rbac.check_binding(&user, &request, new, old),
        }
    }))
}

/// The objects that tokens speak of, from the store.
pub(crate) struct StoredAccounts(pub Arc<Registry>);

impl Objects for StoredAccounts {
    fn get(&self, kind: &str, namespace: &str, name: &str) -> Option<Arc<Value>> {
        let plural = match kind {
            "ServiceAccount" => "serviceaccounts",
            "Pod" => "pods",
            "Secret" => "secrets",
            "Node" => "nodes",
            _ => return None,
        };
        let kind = self.0.core_kind(plural).ok()?;
        let entry = self.0.store.get(&key(kind.as_ref(), namespace, name))?;
        stored::load(&entry.value, entry.modified)
            .ok()
            .map(Arc::new)
    }
}
