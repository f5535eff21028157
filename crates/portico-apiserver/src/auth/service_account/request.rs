//! The `serviceaccounts/NAME/token` subresource: a TokenRequest in, the same with a token out.

use super::{Grant, Objects, Tokens};
use crate::auth::user;
use jiff::Timestamp;
use portico_api::field::{self, Path};
use portico_api::object;
use portico_api::status::{ApiError, Result, Subject};
use serde_json::{Value, json};

const GROUP: &str = "authentication.k8s.io";
const DEFAULT_SECONDS: i64 = 3600;
const LEAST_SECONDS: i64 = 600;
const MOST_SECONDS: i64 = 1 << 32;

impl Tokens {
    /// Answer a TokenRequest for an existing ServiceAccount.
    pub(crate) fn answer(
        &self,
        request: &Value,
        account: &Value,
        objects: &dyn Objects,
        now: Timestamp,
    ) -> Result<Value> {
        let (namespace, name) = (object::namespace(account), object::name(account));
        let uid = object::text(account, "metadata.uid");
        check_metadata(request, account)?;
        let seconds = object::at(request, "spec.expirationSeconds")
            .as_i64()
            .unwrap_or(DEFAULT_SECONDS);
        check_seconds(seconds)?;
        let mut audiences = user::texts(object::at(request, "spec.audiences"));
        if audiences.is_empty() {
            audiences.clone_from(&self.audiences);
        }
        let reference = object::at(request, "spec.boundObjectRef");
        let bound_uid = bound_uid(reference, namespace, name, objects)?;
        let (kind, bound_name) = (
            object::text(reference, "kind"),
            object::text(reference, "name"),
        );
        let bound = bound_uid.as_deref().map(|uid| (kind, bound_name, uid));
        let grant = Grant {
            namespace,
            name,
            uid,
            audiences: &audiences,
            seconds,
            bound,
        };
        let token = self
            .mint(&grant, now)
            .map_err(|_| ApiError::internal("cannot sign a token"))?;
        let end = Timestamp::from_second(now.as_second() + seconds).unwrap_or(Timestamp::MAX);
        let mut answer = request.clone();
        let metadata = object::child(&mut answer, "metadata");
        for (key, text) in [("name", name), ("namespace", namespace), ("uid", uid)] {
            metadata.insert(key.into(), text.into());
        }
        metadata.insert("creationTimestamp".into(), format!("{now:.0}").into());
        let spec = object::child(&mut answer, "spec");
        spec.insert("audiences".into(), audiences.into());
        spec.insert("expirationSeconds".into(), seconds.into());
        object::map(&mut answer).insert(
            "status".into(),
            json!({"token": token, "expirationTimestamp": format!("{end:.0}")}),
        );
        Ok(answer)
    }
}

/// Name, namespace and uid may be left out; where they are given they must be those of the account.
fn check_metadata(request: &Value, account: &Value) -> Result<()> {
    let metadata = Path::new("metadata");
    for (key, what) in [
        ("name", "service account name"),
        ("namespace", "service account namespace"),
    ] {
        let path = format!("metadata.{key}");
        let given = object::text(request, &path);
        if !given.is_empty() && given != object::text(account, &path) {
            let detail = format!("must match the {what} if specified");
            let error = field::Error::invalid(&metadata.child(key), given, detail);
            return Err(ApiError::invalid(
                GROUP,
                "TokenRequest",
                object::name(account),
                &[error],
            ));
        }
    }
    let (given, uid) = (
        object::text(request, "metadata.uid"),
        object::text(account, "metadata.uid"),
    );
    if given.is_empty() || given == uid {
        return Ok(());
    }
    let why = format!(
        "the UID in the token request ({given}) does not match the UID of the service account \
         ({uid})"
    );
    Err(ApiError::conflict(
        Subject {
            group: GROUP,
            resource: "TokenRequest",
        },
        object::name(account),
        why,
    ))
}

fn check_seconds(seconds: i64) -> Result<()> {
    let detail = if seconds < LEAST_SECONDS {
        "may not specify a duration less than 10 minutes"
    } else if seconds > MOST_SECONDS {
        "may not specify a duration larger than 2^32 seconds"
    } else {
        return Ok(());
    };
    let path = Path::new("spec").child("expirationSeconds");
    Err(ApiError::invalid(
        GROUP,
        "TokenRequest",
        "",
        &[field::Error::invalid(&path, seconds, detail)],
    ))
}

/// The uid of the object the token shall be bound to, if any.
fn bound_uid(
    reference: &Value,
    namespace: &str,
    account: &str,
    objects: &dyn Objects,
) -> Result<Option<String>> {
    if !reference.is_object() {
        return Ok(None);
    }
    let (kind, name) = (
        object::text(reference, "kind"),
        object::text(reference, "name"),
    );
    let (resource, namespace) = match (object::text(reference, "apiVersion"), kind) {
        ("v1", "Pod") => ("pods", namespace),
        ("v1", "Secret") => ("secrets", namespace),
        ("v1", "Node") => ("nodes", ""),
        (version, kind) => {
            let message = format!("cannot bind token to object of type {version}, Kind={kind}");
            return Err(ApiError::bad_request(message));
        }
    };
    let found = objects.get(kind, namespace, name).ok_or_else(|| {
        ApiError::not_found(
            Subject {
                group: "",
                resource,
            },
            name,
        )
    })?;
    if kind == "Pod" && object::text(&found, "spec.serviceAccountName") != account {
        let message = format!(
            "cannot bind token for serviceaccount {account:?} to pod running with different \
             serviceaccount name."
        );
        return Err(ApiError::bad_request(message));
    }
    let (given, uid) = (
        object::text(reference, "uid"),
        object::text(&found, "metadata.uid"),
    );
    if given.is_empty() || given == uid {
        return Ok(Some(uid.to_owned()));
    }
    let why = format!(
        "the UID in the bound object reference ({given}) does not match the UID in record. The \
         object might have been deleted and then recreated"
    );
    Err(ApiError::conflict(
        Subject {
            group: "",
            resource: kind,
        },
        name,
        why,
    ))
}
