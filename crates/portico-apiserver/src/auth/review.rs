//! Answers to questions about rights: the review kinds of `authorization.k8s.io` and
//! `authentication.k8s.io`.
//!
//! Each takes the body of a create request and gives back the same object with its status, so that
//! `kubectl auth can-i` and `kubectl auth whoami` work. Nothing is stored.

use super::authenticate::Authenticator;
use super::rbac::{Action, Rbac, Request, Rule};
use super::user::{self, User};
use jiff::Timestamp;
use portico_api::field::{self, Path};
use portico_api::object;
use portico_api::status::{ApiError, Result};
use serde_json::{Map, Value, json};

const AUTHORIZATION: &str = "authorization.k8s.io";

/// SelfSubjectAccessReview: may I?
pub(crate) fn self_subject_access(rbac: &Rbac, user: &User, body: &Value) -> Result<Value> {
    check(body, "SelfSubjectAccessReview", attribute_errors(body))?;
    Ok(decided(rbac, user, body))
}

/// SubjectAccessReview: may that user?
pub(crate) fn subject_access(rbac: &Rbac, body: &Value) -> Result<Value> {
    check(body, "SubjectAccessReview", subject_errors(body))?;
    Ok(decided(
        rbac,
        &User::from_review(object::at(body, "spec")),
        body,
    ))
}

/// LocalSubjectAccessReview: may that user, in this namespace?
pub(crate) fn local_subject_access(rbac: &Rbac, namespace: &str, body: &Value) -> Result<Value> {
    let mut errors = subject_errors(body);
    let attributes = Path::new("spec").child("resourceAttributes");
    let asked = object::text(body, "spec.resourceAttributes.namespace");
    if object::at(body, "spec.resourceAttributes").is_object() && asked != namespace {
        errors.push(field::Error::invalid(
            &attributes.child("namespace"),
            asked,
            "must match metadata.namespace",
        ));
    }
    let paths = object::at(body, "spec.nonResourceAttributes");
    if paths.is_object() {
        let path = Path::new("spec").child("nonResourceAttributes");
        errors.push(field::Error::invalid(
            &path,
            paths.clone(),
            "disallowed on this kind of request",
        ));
    }
    check(body, "LocalSubjectAccessReview", errors)?;
    Ok(decided(
        rbac,
        &User::from_review(object::at(body, "spec")),
        body,
    ))
}

/// SelfSubjectRulesReview: what may I do in this namespace?
pub(crate) fn self_subject_rules(rbac: &Rbac, user: &User, body: &Value) -> Result<Value> {
    let namespace = object::text(body, "spec.namespace");
    if namespace.is_empty() {
        return Err(ApiError::bad_request("no namespace on request"));
    }
    let rules = rbac.rules_for(user, namespace);
    let listed = |wanted: fn(&Rule) -> bool, shown: fn(&Rule) -> Rule| -> Vec<Value> {
        rules
            .iter()
            .filter(|rule| wanted(rule))
            .map(|rule| shown(rule).to_value())
            .collect()
    };
    let resources = listed(
        |rule| !rule.resources.is_empty(),
        |rule| Rule {
            urls: vec![],
            ..rule.clone()
        },
    );
    let paths = listed(
        |rule| !rule.urls.is_empty(),
        |rule| Rule {
            verbs: rule.verbs.clone(),
            urls: rule.urls.clone(),
            ..Rule::default()
        },
    );
    let status =
        json!({"resourceRules": resources, "nonResourceRules": paths, "incomplete": false});
    Ok(with_status(body, status))
}

/// SelfSubjectReview: the user that the server takes the client for.
pub(crate) fn self_subject(user: &User, body: &Value, now: Timestamp) -> Value {
    let mut answer = with_status(body, json!({"userInfo": user.info()}));
    object::child(&mut answer, "metadata")
        .insert("creationTimestamp".into(), format!("{now:.0}").into());
    answer
}

/// TokenReview: whose token is this? The token itself is echoed, as the caller sent it.
pub(crate) fn token(authenticator: &Authenticator, body: &Value, now: Timestamp) -> Result<Value> {
    let token = object::text(body, "spec.token");
    if token.is_empty() {
        return Err(ApiError::bad_request(
            "token is required for TokenReview in authentication",
        ));
    }
    let audiences = user::texts(object::at(body, "spec.audiences"));
    let status = match authenticator.token(token, &audiences, now) {
        Ok(found) => {
            json!({"authenticated": true, "user": found.user.info(), "audiences": found.audiences})
        }
        Err(error) => json!({"user": {}, "error": error}),
    };
    Ok(with_status(body, status))
}

fn decided(rbac: &Rbac, user: &User, body: &Value) -> Value {
    let decision = rbac.decide(user, &action(object::at(body, "spec")));
    let mut status = Map::from_iter([("allowed".to_owned(), decision.allowed.into())]);
    if !decision.reason.is_empty() {
        status.insert("reason".into(), decision.reason.into());
    }
    with_status(body, Value::Object(status))
}

fn action(spec: &Value) -> Action<'_> {
    let attributes = object::at(spec, "resourceAttributes");
    if attributes.is_object() {
        return Action::Resource(Request {
            verb: object::text(attributes, "verb"),
            group: object::text(attributes, "group"),
            resource: object::text(attributes, "resource"),
            subresource: object::text(attributes, "subresource"),
            name: object::text(attributes, "name"),
            namespace: object::text(attributes, "namespace"),
        });
    }
    let attributes = object::at(spec, "nonResourceAttributes");
    Action::NonResource {
        verb: object::text(attributes, "verb"),
        path: object::text(attributes, "path"),
    }
}

fn with_status(body: &Value, status: Value) -> Value {
    let mut answer = body.clone();
    object::map(&mut answer).insert("status".into(), status);
    answer
}

/// Exactly one of the two kinds of attributes.
fn attribute_errors(body: &Value) -> field::Errors {
    let spec = Path::new("spec");
    let (resource, path) = (
        object::at(body, "spec.resourceAttributes"),
        object::at(body, "spec.nonResourceAttributes"),
    );
    match (resource.is_object(), path.is_object()) {
        (true, true) => vec![field::Error::invalid(
            &spec.child("nonResourceAttributes"),
            path.clone(),
            "cannot be specified in combination with resourceAttributes",
        )],
        (false, false) => vec![field::Error::invalid(
            &spec.child("resourceAttributes"),
            Value::Null,
            "exactly one of nonResourceAttributes or resourceAttributes must be specified",
        )],
        _ => vec![],
    }
}

fn subject_errors(body: &Value) -> field::Errors {
    let mut errors = attribute_errors(body);
    if object::text(body, "spec.user").is_empty() && object::items(body, "spec.groups").is_empty() {
        let path = Path::new("spec").child("user");
        errors.push(field::Error::invalid(
            &path,
            "",
            "at least one of user or group must be specified",
        ));
    }
    errors
}

/// A review has no name; its metadata may hold nothing but what the server puts there.
fn check(body: &Value, kind: &str, mut errors: field::Errors) -> Result<()> {
    let local = kind == "LocalSubjectAccessReview";
    let allowed = |key: &str| {
        matches!(key, "creationTimestamp" | "managedFields") || (local && key == "namespace")
    };
    let metadata = object::at(body, "metadata");
    if metadata
        .as_object()
        .is_some_and(|metadata| metadata.keys().any(|key| !allowed(key)))
    {
        let text = if local {
            "must be empty except for namespace"
        } else {
            "must be empty"
        };
        errors.push(field::Error::invalid(
            &Path::new("metadata"),
            metadata.clone(),
            text,
        ));
    }
    if errors.is_empty() {
        Ok(())
    } else {
        Err(ApiError::invalid(AUTHORIZATION, kind, "", &errors))
    }
}

#[cfg(test)]
mod tests;
