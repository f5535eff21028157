//! Errors of the API as Kubernetes `Status` objects: code, reason, message, details.

use crate::field;
use serde_json::{Map, Value, json};
use std::fmt;

/// A request that failed, ready to be answered.
#[derive(Clone, Debug, PartialEq)]
pub struct ApiError {
    /// The HTTP status code.
    pub code: u16,
    /// The reason of the Status, such as `NotFound`.
    pub reason: &'static str,
    /// The text for people.
    pub message: String,
    /// `details` of the Status: name, group, kind, uid, causes, retryAfterSeconds.
    pub details: Map<String, Value>,
    /// `metadata` of the Status: a continue token after an expired one.
    pub list_metadata: Option<Value>,
}

/// The result of a request.
pub type Result<T> = std::result::Result<T, ApiError>;

/// The resource an error speaks of: its plural and its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subject<'a> {
    /// The API group; empty for the core group.
    pub group: &'a str,
    /// The resource, such as `services`.
    pub resource: &'a str,
}

impl Subject<'_> {
    /// `services` or `endpointslices.discovery.k8s.io`.
    pub fn qualified(&self) -> String {
        if self.group.is_empty() {
            self.resource.to_owned()
        } else {
            format!("{}.{}", self.resource, self.group)
        }
    }
}

impl ApiError {
    /// An error with this code and reason.
    pub fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            code,
            reason,
            message: message.into(),
            details: Map::new(),
            list_metadata: None,
        }
    }

    fn about(mut self, subject: Subject<'_>, name: &str) -> Self {
        for (key, text) in [
            ("name", name),
            ("group", subject.group),
            ("kind", subject.resource),
        ] {
            if !text.is_empty() {
                self.details.insert(key.into(), text.into());
            }
        }
        self
    }

    /// 400: the request cannot be understood.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    /// 401: the credentials are missing or wrong.
    pub fn unauthorized() -> Self {
        Self::new(401, "Unauthorized", "Unauthorized")
    }

    /// 403: the user may not do this.
    pub fn forbidden(subject: Subject<'_>, name: &str, why: impl fmt::Display) -> Self {
        let message = if name.is_empty() {
            format!("{} is forbidden: {why}", subject.qualified())
        } else {
            format!("{} {name:?} is forbidden: {why}", subject.qualified())
        };
        Self::new(403, "Forbidden", message).about(subject, name)
    }

    /// 404: there is no such object.
    pub fn not_found(subject: Subject<'_>, name: &str) -> Self {
        Self::new(
            404,
            "NotFound",
            format!("{} {name:?} not found", subject.qualified()),
        )
        .about(subject, name)
    }

    /// The path itself leads nowhere.
    pub fn no_such_path() -> Self {
        Self::new(
            404,
            "NotFound",
            "the server could not find the requested resource",
        )
    }

    /// 405: the resource does not have the verb.
    pub fn method_not_allowed(subject: Subject<'_>, verb: &str) -> Self {
        let message = format!(
            "{verb} is not supported on resources of kind {:?}",
            subject.qualified()
        );
        Self::new(405, "MethodNotAllowed", message).about(subject, "")
    }

    /// 409: there is an object with that name.
    pub fn already_exists(subject: Subject<'_>, name: &str) -> Self {
        Self::new(
            409,
            "AlreadyExists",
            format!("{} {name:?} already exists", subject.qualified()),
        )
        .about(subject, name)
    }

    /// 409: the object has changed meanwhile.
    pub fn conflict(subject: Subject<'_>, name: &str, why: impl fmt::Display) -> Self {
        let message = format!(
            "Operation cannot be fulfilled on {} {name:?}: {why}",
            subject.qualified()
        );
        Self::new(409, "Conflict", message).about(subject, name)
    }

    /// The stored object is newer than the one the caller worked on.
    pub fn modified(subject: Subject<'_>, name: &str) -> Self {
        let why = "the object has been modified; please apply your changes to the latest version \
                   and try again";
        Self::conflict(subject, name, why)
    }

    /// `kind` is the Kind (not the plural), as Kubernetes has it in this one error.
    pub fn invalid(group: &str, kind: &str, name: &str, errors: &[field::Error]) -> Self {
        let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
        let what = match texts.as_slice() {
            [one] => one.clone(),
            many => format!("[{}]", many.join(", ")),
        };
        let qualified = Subject {
            group,
            resource: kind,
        }
        .qualified();
        let mut error = Self::new(
            422,
            "Invalid",
            format!("{qualified} {name:?} is invalid: {what}"),
        )
        .about(
            Subject {
                group,
                resource: kind,
            },
            name,
        );
        let causes: Vec<Value> = errors
            .iter()
            .map(|e| json!({"reason": e.problem.reason(), "message": e.message, "field": e.field}))
            .collect();
        error.details.insert("causes".into(), causes.into());
        error
    }

    /// The same error with parts of field names replaced, by those that the client knows.
    pub fn in_words(mut self, words: &[(&str, &str)]) -> Self {
        let reword = |text: &str| {
            let replace = |text: String, (from, to): &(&str, &str)| text.replace(from, to);
            words.iter().fold(text.to_owned(), replace)
        };
        self.message = reword(&self.message);
        let causes = self.details.get_mut("causes").and_then(Value::as_array_mut);
        for cause in causes.into_iter().flatten() {
            if let Some(Value::String(field)) = cause.get_mut("field") {
                *field = reword(field);
            }
        }
        self
    }

    /// What to do instead, beside a message whose words clients know.
    pub fn advice(mut self, advice: impl Into<String>) -> Self {
        let cause = json!({"reason": "Advice", "message": advice.into()});
        self.details.insert("causes".into(), json!([cause]));
        self
    }

    /// 410: the revision is no longer kept.
    pub fn expired(message: impl Into<String>) -> Self {
        Self::new(410, "Expired", message)
    }

    /// 413: the request is larger than the server takes.
    pub fn too_large(message: impl Into<String>) -> Self {
        Self::new(413, "RequestEntityTooLarge", message)
    }

    /// 429: the server has no room now; the client is told when to try again.
    pub fn too_many_requests(message: impl Into<String>, retry_after_seconds: u64) -> Self {
        let mut error = Self::new(429, "TooManyRequests", message);
        error
            .details
            .insert("retryAfterSeconds".into(), retry_after_seconds.into());
        error
    }

    /// 500: something went wrong in the server.
    pub fn internal(message: impl fmt::Display) -> Self {
        Self::new(
            500,
            "InternalError",
            format!("Internal error occurred: {message}"),
        )
    }

    /// 503: the server cannot answer now.
    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::new(503, "ServiceUnavailable", message)
    }

    /// The `Status` object.
    pub fn status(&self) -> Value {
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "reason": self.reason, "code": self.code,
        });
        if let Some(metadata) = &self.list_metadata {
            status["metadata"] = metadata.clone();
        }
        if !self.details.is_empty() {
            status["details"] = Value::Object(self.details.clone());
        }
        status
    }
}

impl fmt::Display for ApiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for ApiError {}
