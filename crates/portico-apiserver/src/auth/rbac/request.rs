//! What a user wants to do, and the answer when they may not.

use super::Decision;
use crate::auth::User;
use portico_api::status::{ApiError, Subject};

/// A request for a resource. `group` is "" for the core group, `namespace` and `name` are "" where
/// there is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Request<'a> {
    pub verb: &'a str,
    pub group: &'a str,
    pub resource: &'a str,
    pub subresource: &'a str,
    pub name: &'a str,
    pub namespace: &'a str,
}

/// Anything that can be asked of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action<'a> {
    Resource(Request<'a>),
    /// `verb` is the HTTP method in lower case.
    NonResource {
        verb: &'a str,
        path: &'a str,
    },
}

impl<'a> From<Request<'a>> for Action<'a> {
    fn from(request: Request<'a>) -> Self {
        Self::Resource(request)
    }
}

impl Action<'_> {
    pub(crate) fn namespace(&self) -> &str {
        match self {
            Self::Resource(request) => request.namespace,
            Self::NonResource { .. } => "",
        }
    }

    /// The 403 for a decision that did not allow this.
    pub(crate) fn forbidden(&self, user: &User, decision: &Decision) -> ApiError {
        let mut why = escape(&self.refusal(&user.name));
        if !decision.reason.is_empty() {
            why = format!("{why}: {}", decision.reason);
        }
        match self {
            Self::Resource(Request {
                group,
                resource,
                name,
                ..
            }) => ApiError::forbidden(Subject { group, resource }, name, why),
            Self::NonResource { .. } => {
                ApiError::new(403, "Forbidden", format!("forbidden: {why}"))
            }
        }
    }

    fn refusal(&self, user: &str) -> String {
        match self {
            Self::NonResource { verb, path } => {
                format!("User {user:?} cannot {verb} path {path:?}")
            }
            Self::Resource(Request {
                verb,
                group,
                resource,
                subresource,
                namespace,
                ..
            }) => {
                let slash = if subresource.is_empty() { "" } else { "/" };
                let place = match *namespace {
                    "" => "at the cluster scope".to_owned(),
                    namespace => format!("in the namespace {namespace:?}"),
                };
                let what = format!("{resource}{slash}{subresource}");
                format!(
                    "User {user:?} cannot {verb} resource {what:?} in API group {group:?} {place}"
                )
            }
        }
    }
}

/// Names come from the request, and a browser that shows the answer must not take them for HTML.
fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}
