//! Roles and their bindings, each in a namespace or cluster-wide.

use super::checks::{self, fill, invalid_all, items_mut};
use super::{Column, Info, Kind, table};
use crate::field::{Error, Errors, Path};
use crate::gates::Gates;
use crate::{names, object};
use serde_json::Value;

const GROUP: &str = "rbac.authorization.k8s.io";

pub(super) struct Role(&'static Info);

pub(super) struct Binding(&'static Info);

pub(super) const ROLE: Role = Role(&ROLE_INFO);
pub(super) const CLUSTER_ROLE: Role = Role(&CLUSTER_ROLE_INFO);
pub(super) const ROLE_BINDING: Binding = Binding(&ROLE_BINDING_INFO);
pub(super) const CLUSTER_ROLE_BINDING: Binding = Binding(&CLUSTER_ROLE_BINDING_INFO);

static ROLE_INFO: Info = Info {
    columns: ROLE_COLUMNS,
    ..info("Role", "roles", "role")
};
static CLUSTER_ROLE_INFO: Info = Info {
    namespaced: false,
    columns: ROLE_COLUMNS,
    ..info("ClusterRole", "clusterroles", "clusterrole")
};
static ROLE_BINDING_INFO: Info = Info {
    columns: BINDING_COLUMNS,
    ..info("RoleBinding", "rolebindings", "rolebinding")
};
static CLUSTER_ROLE_BINDING_INFO: Info = Info {
    namespaced: false,
    columns: BINDING_COLUMNS,
    ..info(
        "ClusterRoleBinding",
        "clusterrolebindings",
        "clusterrolebinding",
    )
};

const fn info(kind: &'static str, plural: &'static str, singular: &'static str) -> Info {
    Info {
        group: GROUP,
        kind,
        plural,
        singular,
        schema: kind,
        storage: plural,
        create_on_update: true,
        ..Info::USUAL
    }
}

const ROLE_COLUMNS: &[Column] = &[
    table::NAME,
    Column {
        kind: "date",
        ..table::column("Created At", "When the object was created.")
    },
];

const BINDING_COLUMNS: &[Column] = &[
    table::NAME,
    table::column("Role", "The role that is granted."),
    table::AGE,
    table::wide("Users", "The users it is granted to."),
    table::wide("Groups", "The groups it is granted to."),
    table::wide("ServiceAccounts", "The service accounts it is granted to."),
];

impl Kind for Role {
    fn info(&self) -> &'static Info {
        self.0
    }

    fn validate_create(&self, object: &Value, _gates: &Gates) -> Errors {
        let path = Path::new("rules");
        let rules = object::items(object, "rules").iter().enumerate();
        let mut errors: Errors = rules
            .flat_map(|(index, one)| rule(one, self.0.namespaced, &path.index(index)))
            .collect();
        if let Some(aggregation) = object.get("aggregationRule").filter(|rule| !rule.is_null()) {
            errors.extend(selectors(aggregation));
        }
        errors
    }

    fn name_problems(&self, name: &str, _prefix: bool) -> Vec<String> {
        names::path_segment(name, false)
    }

    fn row(&self, object: &Value, _now: i64) -> Vec<Value> {
        vec![
            object::name(object).into(),
            object::text(object, "metadata.creationTimestamp").into(),
        ]
    }
}

impl Kind for Binding {
    fn info(&self) -> &'static Info {
        self.0
    }

    fn default(&self, object: &mut Value, _gates: &Gates) {
        fill(object::child(object, "roleRef"), "apiGroup", GROUP);
        for subject in items_mut(object, "subjects") {
            if ["User", "Group"].contains(&object::text(subject, "kind")) {
                fill(object::map(subject), "apiGroup", GROUP);
            }
        }
    }

    fn validate_create(&self, object: &Value, _gates: &Gates) -> Errors {
        let mut errors = role_reference(object, self.0.namespaced);
        let path = Path::new("subjects");
        for (index, one) in object::items(object, "subjects").iter().enumerate() {
            errors.extend(subject(one, self.0.namespaced, &path.index(index)));
        }
        errors
    }

    fn validate_update(&self, new: &Value, old: &Value, gates: &Gates) -> Errors {
        let mut errors = self.validate_create(new, gates);
        if new.get("roleRef") != old.get("roleRef") {
            let reference = object::at(new, "roleRef").clone();
            errors.push(Error::invalid(
                &Path::new("roleRef"),
                reference,
                "cannot change roleRef",
            ));
        }
        errors
    }

    fn name_problems(&self, name: &str, _prefix: bool) -> Vec<String> {
        names::path_segment(name, false)
    }

    fn row(&self, object: &Value, now: i64) -> Vec<Value> {
        let reference = object::at(object, "roleRef");
        vec![
            object::name(object).into(),
            format!(
                "{}/{}",
                object::text(reference, "kind"),
                object::text(reference, "name")
            )
            .into(),
            table::age(object, now),
            subjects(object, "User").into(),
            subjects(object, "Group").into(),
            subjects(object, "ServiceAccount").into(),
        ]
    }
}

fn rule(rule: &Value, namespaced: bool, path: &Path) -> Errors {
    let has = |key: &str| !object::items(rule, key).is_empty();
    let mut errors = Errors::new();
    if !has("verbs") {
        errors.push(Error::required(
            &path.child("verbs"),
            "verbs must contain at least one value",
        ));
    }
    if has("nonResourceURLs") {
        let urls = object::at(rule, "nonResourceURLs");
        let refuse = |why: &str| Error::invalid(&path.child("nonResourceURLs"), urls.clone(), why);
        if namespaced {
            errors.push(refuse("namespaced rules cannot apply to non-resource URLs"));
        }
        if has("apiGroups") || has("resources") || has("resourceNames") {
            errors.push(refuse(
                "rules cannot apply to both regular resources and non-resource URLs",
            ));
        }
        return errors;
    }
    if !has("apiGroups") {
        errors.push(Error::required(
            &path.child("apiGroups"),
            "resource rules must supply at least one api group",
        ));
    }
    if !has("resources") {
        errors.push(Error::required(
            &path.child("resources"),
            "resource rules must supply at least one resource",
        ));
    }
    errors
}

fn selectors(aggregation: &Value) -> Errors {
    let path = Path::new("aggregationRule").child("clusterRoleSelectors");
    let selectors = object::items(aggregation, "clusterRoleSelectors");
    if selectors.is_empty() {
        let message = "at least one clusterRoleSelector required if aggregationRule is non-nil";
        return vec![Error::required(&path, message)];
    }
    let mut errors = Errors::new();
    for (index, selector) in selectors.iter().enumerate() {
        let path = path.index(index);
        let found = checks::label_selector(selector, &path);
        if !found.is_empty() {
            errors.push(Error::invalid(
                &path,
                selector.clone(),
                "invalid label selector.",
            ));
        }
        errors.extend(found);
    }
    errors
}

fn role_reference(object: &Value, namespaced: bool) -> Errors {
    let path = Path::new("roleRef");
    let reference = object::at(object, "roleRef");
    let (group, kind, name) = (
        object::text(reference, "apiGroup"),
        object::text(reference, "kind"),
        object::text(reference, "name"),
    );
    let kinds: &[&str] = if namespaced {
        &["Role", "ClusterRole"]
    } else {
        &["ClusterRole"]
    };
    let mut errors = Errors::new();
    if group != GROUP {
        errors.push(Error::not_supported(
            &path.child("apiGroup"),
            group,
            &[GROUP],
        ));
    }
    if !kinds.contains(&kind) {
        errors.push(Error::not_supported(&path.child("kind"), kind, kinds));
    }
    match name {
        "" => errors.push(Error::required(&path.child("name"), "")),
        name => errors.extend(invalid_all(
            &path.child("name"),
            name,
            names::path_segment(name, false),
        )),
    }
    errors
}

fn subject(subject: &Value, namespaced: bool, path: &Path) -> Errors {
    let (group, kind, name) = (
        object::text(subject, "apiGroup"),
        object::text(subject, "kind"),
        object::text(subject, "name"),
    );
    let wanted_group = if kind == "ServiceAccount" { "" } else { GROUP };
    let mut errors = Errors::new();
    if name.is_empty() {
        errors.push(Error::required(&path.child("name"), ""));
    }
    if !["ServiceAccount", "User", "Group"].contains(&kind) {
        errors.push(Error::not_supported(
            &path.child("kind"),
            kind,
            &["ServiceAccount", "User", "Group"],
        ));
        return errors;
    }
    if group != wanted_group {
        errors.push(Error::not_supported(
            &path.child("apiGroup"),
            group,
            &[wanted_group],
        ));
    }
    if kind == "ServiceAccount" {
        if !name.is_empty() {
            errors.extend(invalid_all(
                &path.child("name"),
                name,
                names::dns_subdomain(name, false),
            ));
        }
        if !namespaced && object::text(subject, "namespace").is_empty() {
            errors.push(Error::required(&path.child("namespace"), ""));
        }
    }
    errors
}

fn subjects(object: &Value, kind: &str) -> String {
    let of_kind = object::items(object, "subjects")
        .iter()
        .filter(|one| object::text(one, "kind") == kind);
    let name = |subject: &Value| match kind {
        "ServiceAccount" => format!(
            "{}/{}",
            object::text(subject, "namespace"),
            object::text(subject, "name")
        ),
        _ => object::text(subject, "name").to_owned(),
    };
    of_kind.map(name).collect::<Vec<_>>().join(", ")
}
