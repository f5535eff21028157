//! The index of roles and bindings, and the decision.

use super::rule::{Rule, quoted};
use super::selector::selects;
use super::{Action, Decision};
use crate::auth::user::{self, User};
use portico_api::object;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

/// Namespace and name; the namespace is "" for ClusterRole and ClusterRoleBinding.
type Key = (String, String);

/// Roles and bindings, found by subject.
#[derive(Clone, Debug, Default)]
pub struct Rbac {
    roles: BTreeMap<Key, Role>,
    bindings: HashMap<Key, Arc<Binding>>,
    users: Subjects,
    groups: Subjects,
    /// Names of the ClusterRoles that gather the rules of others.
    aggregated: BTreeSet<String>,
}

/// Subject → namespace → bindings by name.
type Subjects = HashMap<String, HashMap<String, BTreeMap<String, Arc<Binding>>>>;

#[derive(Clone, Debug)]
struct Role {
    rules: Vec<Rule>,
    labels: Value,
    /// `aggregationRule.clusterRoleSelectors`, if the role has any.
    selectors: Vec<Value>,
}

#[derive(Debug)]
struct Binding {
    namespace: String,
    name: String,
    role_kind: String,
    role_name: String,
    subjects: Vec<Subject>,
}

#[derive(Debug)]
struct Subject {
    is_group: bool,
    /// The user or group it stands for.
    name: String,
    /// As reasons show it: `Group "system:nodes"`.
    shown: String,
}

impl Rbac {
    /// Take in an object as it is now. Objects of other kinds are ignored.
    pub fn apply(&mut self, object: &Value) {
        match object::text(object, "kind") {
            "Role" => {
                self.roles.insert(key(object), Role::parse(object));
            }
            "ClusterRole" => self.set_cluster_role(object::name(object), Some(Role::parse(object))),
            "RoleBinding" | "ClusterRoleBinding" => self.set_binding(key(object), Some(Binding::parse(object))),
            _ => {}
        }
    }

    /// Forget an object.
    pub fn delete(&mut self, object: &Value) {
        match object::text(object, "kind") {
            "Role" => {
                self.roles.remove(&key(object));
            }
            "ClusterRole" => self.set_cluster_role(object::name(object), None),
            "RoleBinding" | "ClusterRoleBinding" => self.set_binding(key(object), None),
            _ => {}
        }
    }

    /// May `user` do this?
    pub fn decide(&self, user: &User, action: &Action<'_>) -> Decision {
        if user.is_in(user::MASTERS) {
            return Decision::allow(String::new());
        }
        if let Some(reason) = foreign_node(user, action) {
            return Decision::deny(reason);
        }
        let mut missing = BTreeSet::new();
        for (binding, subject) in self.bindings_of(user, action.namespace()) {
            match self.rules_of(binding) {
                Ok(rules) if rules.iter().any(|rule| rule.allows(action)) => {
                    return Decision::allow(format!("RBAC: allowed by {}", binding.describe(subject)));
                }
                Ok(_) => {}
                Err(error) => {
                    missing.insert(error);
                }
            }
        }
        Decision::deny(unresolved(missing))
    }

    /// All rules the user has in a namespace, or only those for the whole cluster if it is "".
    pub fn rules_for(&self, user: &User, namespace: &str) -> Vec<Rule> {
        let mut rules = if user.is_in(user::MASTERS) { Rule::everything().to_vec() } else { Vec::new() };
        for (binding, _) in self.bindings_of(user, namespace) {
            rules.extend_from_slice(self.rules_of(binding).unwrap_or_default());
        }
        rules
    }

    /// The rules a role reference gives, or that there is no such role.
    pub fn referenced(&self, kind: &str, name: &str, namespace: &str) -> Result<&[Rule], String> {
        let (namespace, word) = match kind {
            "ClusterRole" => ("", "clusterrole"),
            "Role" => (namespace, "role"),
            _ => return Err(format!("unsupported role reference kind: {kind:?}")),
        };
        match self.roles.get(&(namespace.to_owned(), name.to_owned())) {
            Some(role) => Ok(&role.rules),
            None => Err(format!("{word}.rbac.authorization.k8s.io {name:?} not found")),
        }
    }

    /// Fill in the rules of a ClusterRole that gathers them from others, before it is shown.
    pub fn show(&self, cluster_role: &mut Value) {
        let name = object::name(cluster_role).to_owned();
        if self.aggregated.contains(&name)
            && let Ok(rules) = self.referenced("ClusterRole", &name, "")
        {
            let rules: Vec<Value> = rules.iter().map(Rule::to_value).collect();
            object::map(cluster_role).insert("rules".into(), rules.into());
        }
    }

    fn rules_of(&self, binding: &Binding) -> Result<&[Rule], String> {
        self.referenced(&binding.role_kind, &binding.role_name, &binding.namespace)
    }

    /// Every binding that speaks of the user, cluster-wide ones first, with the subject that does.
    fn bindings_of<'a>(
        &'a self,
        user: &'a User,
        namespace: &'a str,
    ) -> impl Iterator<Item = (&'a Binding, &'a Subject)> {
        let scopes = ["", namespace].into_iter().take(if namespace.is_empty() { 1 } else { 2 });
        scopes.flat_map(move |scope| {
            let own = [(&self.users, false, &user.name)];
            let groups = user.groups.iter().map(|group| (&self.groups, true, group));
            own.into_iter().chain(groups).flat_map(move |(index, is_group, name)| {
                let bindings = index.get(name).and_then(|by_namespace| by_namespace.get(scope));
                bindings.into_iter().flat_map(BTreeMap::values).filter_map(move |binding| {
                    let speaks = |subject: &&Subject| subject.is_group == is_group && subject.name == *name;
                    Some((binding.as_ref(), binding.subjects.iter().find(speaks)?))
                })
            })
        })
    }

    fn set_binding(&mut self, key: Key, binding: Option<Binding>) {
        if let Some(old) = self.bindings.remove(&key) {
            for subject in &old.subjects {
                remove(self.subjects(subject.is_group), &subject.name, &key);
            }
        }
        let Some(binding) = binding.map(Arc::new) else { return };
        for subject in &binding.subjects {
            let by_namespace = self.subjects(subject.is_group).entry(subject.name.clone()).or_default();
            by_namespace.entry(key.0.clone()).or_default().insert(key.1.clone(), binding.clone());
        }
        self.bindings.insert(key, binding);
    }

    fn subjects(&mut self, is_group: bool) -> &mut Subjects {
        if is_group { &mut self.groups } else { &mut self.users }
    }

    fn set_cluster_role(&mut self, name: &str, role: Option<Role>) {
        let key = (String::new(), name.to_owned());
        let labels = role.as_ref().map(|role| role.labels.clone());
        let gathers = role.as_ref().is_some_and(|role| !role.selectors.is_empty());
        let old = match role {
            Some(role) => self.roles.insert(key, role),
            None => self.roles.remove(&key),
        };
        if gathers {
            self.aggregated.insert(name.to_owned())
        } else {
            self.aggregated.remove(name)
        };
        let seen: Vec<Value> = labels.into_iter().chain(old.map(|old| old.labels)).collect();
        if gathers || self.gathering().any(|(_, role)| seen.iter().any(|labels| role.chooses(labels))) {
            self.gather();
        }
    }

    fn gathering(&self) -> impl Iterator<Item = (&String, &Role)> {
        self.aggregated.iter().filter_map(|name| Some((name, self.cluster_role(name)?)))
    }

    fn cluster_role(&self, name: &str) -> Option<&Role> {
        self.roles.get(&(String::new(), name.to_owned()))
    }

    /// Work out the rules of all aggregated ClusterRoles again.
    fn gather(&mut self) {
        let gathered: Vec<(String, Vec<Rule>)> =
            self.gathering().map(|(name, _)| (name.clone(), self.gathered_by(name))).collect();
        for (name, rules) in gathered {
            if let Some(role) = self.roles.get_mut(&(String::new(), name)) {
                role.rules = rules;
            }
        }
    }

    /// The rules of every ClusterRole that `name` chooses, directly or through another aggregated one.
    fn gathered_by(&self, name: &str) -> Vec<Rule> {
        let mut seen = BTreeSet::from([name]);
        let mut to_visit = vec![name];
        let mut rules: Vec<Rule> = Vec::new();
        while let Some(role) = to_visit.pop().and_then(|name| self.cluster_role(name)) {
            for (key, chosen) in self.roles.range(cluster_roles()).filter(|(_, other)| role.chooses(&other.labels)) {
                if !seen.insert(&key.1) {
                    continue;
                }
                if chosen.selectors.is_empty() {
                    rules.extend(chosen.rules.iter().filter(|rule| !rules.contains(rule)).cloned().collect::<Vec<_>>());
                } else {
                    to_visit.push(&key.1);
                }
            }
        }
        rules
    }
}

impl Role {
    fn parse(object: &Value) -> Self {
        let selectors = object::items(object, "aggregationRule.clusterRoleSelectors").to_vec();
        // Rules written into an aggregated role do not count: the gathered ones take their place.
        let rules = if selectors.is_empty() { Rule::parse_all(object::at(object, "rules")) } else { Vec::new() };
        Self { rules, labels: object::at(object, "metadata.labels").clone(), selectors }
    }

    fn chooses(&self, labels: &Value) -> bool {
        self.selectors.iter().any(|selector| selects(selector, labels))
    }
}

impl Binding {
    fn parse(object: &Value) -> Self {
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

    fn describe(&self, subject: &Subject) -> String {
        let Self { namespace, name, role_kind, role_name, .. } = self;
        let binding = match namespace.as_str() {
            "" => format!("ClusterRoleBinding {name:?}"),
            namespace => format!("RoleBinding {:?}", format!("{name}/{namespace}")),
        };
        format!("{binding} of {role_kind} {role_name:?} to {}", subject.shown)
    }
}

impl Subject {
    /// A service account without a namespace is one of the binding's namespace.
    fn parse(subject: &Value, binding_namespace: &str) -> Option<Self> {
        let (kind, name) = (object::text(subject, "kind"), object::text(subject, "name"));
        let plain = |is_group| Self { is_group, name: name.to_owned(), shown: format!("{kind} {name:?}") };
        match kind {
            "User" => Some(plain(false)),
            "Group" => Some(plain(true)),
            "ServiceAccount" => {
                let own = object::text(subject, "namespace");
                let namespace = if own.is_empty() { binding_namespace } else { own };
                let shown = format!("ServiceAccount {:?}", format!("{name}/{namespace}"));
                let name = user::service_account_name(namespace, name);
                (!namespace.is_empty()).then_some(Self { is_group: false, name, shown })
            }
            _ => None,
        }
    }
}

/// A node's rules speak of nodes in general; what it writes must be its own.
fn foreign_node(user: &User, action: &Action<'_>) -> Option<String> {
    let (node, Action::Resource(request)) = (user.node()?, action) else { return None };
    let writes = matches!(request.verb, "create" | "update" | "patch" | "delete" | "deletecollection");
    let own_only = match (request.group, request.resource) {
        ("", "nodes") => true,
        ("coordination.k8s.io", "leases") => request.namespace == NODE_LEASES,
        _ => false,
    };
    // The name of something to be created is in the body; it is not known here.
    let unnamed = request.verb == "create" && request.name.is_empty();
    (own_only && writes && !unnamed && request.name != node)
        .then(|| format!("node {node:?} may only write its own {}", request.resource))
}

/// The namespace with one lease per node.
pub(super) const NODE_LEASES: &str = "kube-node-lease";

fn unresolved(errors: BTreeSet<String>) -> String {
    let errors: Vec<String> = errors.into_iter().collect();
    match errors.as_slice() {
        [] => String::new(),
        [one] => format!("RBAC: {one}"),
        many => format!("RBAC: [{}]", many.join(", ")),
    }
}

fn remove(index: &mut Subjects, subject: &str, key: &Key) {
    let Some(by_namespace) = index.get_mut(subject) else { return };
    if let Some(bindings) = by_namespace.get_mut(&key.0) {
        bindings.remove(&key.1);
        if bindings.is_empty() {
            by_namespace.remove(&key.0);
        }
    }
    if by_namespace.is_empty() {
        index.remove(subject);
    }
}

/// Cluster-scoped kinds have no namespace, whatever the object says.
fn key(object: &Value) -> Key {
    let namespaced = matches!(object::text(object, "kind"), "Role" | "RoleBinding");
    let namespace = if namespaced { object::namespace(object) } else { "" };
    (namespace.to_owned(), object::name(object).to_owned())
}

/// The range of keys without a namespace.
fn cluster_roles() -> std::ops::Range<Key> {
    (String::new(), String::new())..("\0".to_owned(), String::new())
}

/// `user "x" (groups=["a" "b"])`, as the escalation check has it.
pub(super) fn describe_user(user: &User) -> String {
    format!("user {:?} (groups={})", user.name, quoted(&user.groups))
}
