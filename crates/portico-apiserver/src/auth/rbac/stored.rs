//! Roles and bindings as the index holds them.

use super::rule::Rule;
use super::selector::selects;
use crate::auth::user;
use portico_api::object;
use serde_json::Value;

/// Namespace and name; the namespace is "" for ClusterRole and ClusterRoleBinding.
pub(super) type Key = (String, String);

#[derive(Clone, Debug)]
pub(super) struct Role {
    pub rules: Vec<Rule>,
    pub labels: Value,
    /// `aggregationRule.clusterRoleSelectors`, if the role has any.
    pub selectors: Vec<Value>,
}

#[derive(Debug)]
pub(super) struct Binding {
    pub namespace: String,
    pub name: String,
    pub role_kind: String,
    pub role_name: String,
    pub subjects: Vec<Subject>,
}

#[derive(Debug)]
pub(super) struct Subject {
    pub is_group: bool,
    /// The user or group it stands for.
    pub name: String,
    /// As reasons show it: `Group "system:nodes"`.
    shown: String,
}

impl Role {
    pub(super) fn parse(object: &Value) -> Self {
        let selectors = object::items(object, "aggregationRule.clusterRoleSelectors").to_vec();
        // Rules written into an aggregated role do not count: the gathered ones take their place.
        let rules = if selectors.is_empty() {
            Rule::parse_all(object::at(object, "rules"))
        } else {
            Vec::new()
        };
        Self {
            rules,
            labels: object::at(object, "metadata.labels").clone(),
            selectors,
        }
    }

    pub(super) fn chooses(&self, labels: &Value) -> bool {
        self.selectors
            .iter()
            .any(|selector| selects(selector, labels))
    }
}

impl Binding {
    pub(super) fn parse(object: &Value) -> Self {
        let (namespace, name) = key(object);
        let subjects = object::items(object, "subjects")
            .iter()
            .filter_map(|subject| Subject::parse(subject, &namespace))
            .collect();
        Self {
            namespace,
            name,
            role_kind: object::text(object, "roleRef.kind").to_owned(),
            role_name: object::text(object, "roleRef.name").to_owned(),
            subjects,
        }
    }

    pub(super) fn describe(&self, subject: &Subject) -> String {
        let Self {
            namespace,
            name,
            role_kind,
            role_name,
            ..
        } = self;
        let binding = match namespace.as_str() {
            "" => format!("ClusterRoleBinding {name:?}"),
            namespace => format!("RoleBinding {:?}", format!("{name}/{namespace}")),
        };
        format!(
            "{binding} of {role_kind} {role_name:?} to {}",
            subject.shown
        )
    }
}

impl Subject {
    /// A service account without a namespace is one of the binding's namespace.
    pub(super) fn parse(subject: &Value, binding_namespace: &str) -> Option<Self> {
        let (kind, name) = (object::text(subject, "kind"), object::text(subject, "name"));
        let plain = |is_group| Self {
            is_group,
            name: name.to_owned(),
            shown: format!("{kind} {name:?}"),
        };
        match kind {
            "User" => Some(plain(false)),
            "Group" => Some(plain(true)),
            "ServiceAccount" => {
                let own = object::text(subject, "namespace");
                let namespace = if own.is_empty() {
                    binding_namespace
                } else {
                    own
                };
                let shown = format!("ServiceAccount {:?}", format!("{name}/{namespace}"));
                let name = user::service_account_name(namespace, name);
                (!namespace.is_empty()).then_some(Self {
                    is_group: false,
                    name,
                    shown,
                })
            }
            _ => None,
        }
    }
}

/// Cluster-scoped kinds have no namespace, whatever the object says.
pub(super) fn key(object: &Value) -> Key {
    let namespaced = matches!(object::text(object, "kind"), "Role" | "RoleBinding");
    let namespace = if namespaced {
        object::namespace(object)
    } else {
        ""
    };
    (namespace.to_owned(), object::name(object).to_owned())
}
