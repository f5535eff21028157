//! The user of a request, and the names that have a meaning.

use portico_api::object;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

pub(crate) const ANONYMOUS: &str = "system:anonymous";
pub(crate) const UNAUTHENTICATED: &str = "system:unauthenticated";
pub(crate) const AUTHENTICATED: &str = "system:authenticated";
/// Members may do everything, whatever the roles say.
pub(crate) const MASTERS: &str = "system:masters";
pub(crate) const NODES: &str = "system:nodes";
pub(crate) const NODE_PREFIX: &str = "system:node:";
pub(crate) const SERVICE_ACCOUNTS: &str = "system:serviceaccounts";
pub(crate) const SERVICE_ACCOUNT_PREFIX: &str = "system:serviceaccount:";
/// Key in `extra` for what identifies the credential that was used, without being one.
pub(crate) const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";

/// A user as authorization and audit see it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct User {
    pub name: String,
    pub uid: String,
    pub groups: Vec<String>,
    pub extra: BTreeMap<String, Vec<String>>,
}

impl User {
    pub(crate) fn new(name: &str, groups: &[&str]) -> Self {
        let groups = groups.iter().map(|group| (*group).to_owned()).collect();
        Self {
            name: name.to_owned(),
            groups,
            ..Self::default()
        }
    }

    pub(crate) fn anonymous() -> Self {
        Self::new(ANONYMOUS, &[UNAUTHENTICATED])
    }

    pub(crate) fn service_account(namespace: &str, name: &str) -> Self {
        let groups = [
            SERVICE_ACCOUNTS.to_owned(),
            format!("{SERVICE_ACCOUNTS}:{namespace}"),
        ];
        Self {
            name: service_account_name(namespace, name),
            groups: groups.into(),
            ..Self::default()
        }
    }

    pub(crate) fn is_in(&self, group: &str) -> bool {
        self.groups.iter().any(|own| own == group)
    }

    /// Add `system:authenticated`, unless the groups already say which of the two it is.
    #[must_use]
    pub(crate) fn authenticated(mut self) -> Self {
        if self.name != ANONYMOUS && !self.is_in(AUTHENTICATED) && !self.is_in(UNAUTHENTICATED) {
            self.groups.push(AUTHENTICATED.to_owned());
        }
        self
    }

    /// The node's name, if this is a node.
    pub(crate) fn node(&self) -> Option<&str> {
        self.name
            .strip_prefix(NODE_PREFIX)
            .filter(|name| !name.is_empty() && self.is_in(NODES))
    }

    /// The user as `UserInfo` of the authentication API.
    pub(crate) fn info(&self) -> Value {
        let mut info = Map::new();
        if !self.name.is_empty() {
            info.insert("username".into(), self.name.clone().into());
        }
        if !self.uid.is_empty() {
            info.insert("uid".into(), self.uid.clone().into());
        }
        if !self.groups.is_empty() {
            info.insert("groups".into(), self.groups.clone().into());
        }
        if !self.extra.is_empty() {
            info.insert("extra".into(), json!(self.extra));
        }
        Value::Object(info)
    }

    /// Reads the fields of `SubjectAccessReview.spec`.
    pub(crate) fn from_review(spec: &Value) -> Self {
        let extra = object::at(spec, "extra").as_object().into_iter().flatten();
        Self {
            name: object::text(spec, "user").to_owned(),
            uid: object::text(spec, "uid").to_owned(),
            groups: texts(object::at(spec, "groups")),
            extra: extra
                .map(|(key, values)| (key.clone(), texts(values)))
                .collect(),
        }
    }
}

/// `system:serviceaccount:NAMESPACE:NAME`
pub(crate) fn service_account_name(namespace: &str, name: &str) -> String {
    format!("{SERVICE_ACCOUNT_PREFIX}{namespace}:{name}")
}

/// Namespace and name, where a user's name is that of a service account.
pub(crate) fn split_service_account(user: &str) -> Option<(&str, &str)> {
    let (namespace, name) = user.strip_prefix(SERVICE_ACCOUNT_PREFIX)?.split_once(':')?;
    let good = portico_api::names::dns_label(namespace, false).is_empty()
        && portico_api::names::dns_subdomain(name, false).is_empty();
    good.then_some((namespace, name))
}

/// The strings of a list.
pub(super) fn texts(list: &Value) -> Vec<String> {
    list.as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .map(str::to_owned)
        .collect()
}
