//! The index of roles and bindings, and the decision.

use super::rule::{Rule, quoted};
use super::stored::{Binding, Key, Role, Subject, key};
use super::{Action, Decision, node};
use crate::auth::user::{self, User};
use portico_api::object;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

/// Roles and bindings, found by subject.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rbac {
    /// By namespace, "" for ClusterRoles, then by name.
    roles: BTreeMap<String, BTreeMap<String, Role>>,
    bindings: HashMap<Key, Arc<Binding>>,
    users: Subjects,
    groups: Subjects,
    /// Names of the ClusterRoles that gather the rules of others.
    aggregated: BTreeSet<String>,
}

/// Subject → namespace → bindings by name, each with the place of the subject in it.
type Subjects = HashMap<String, HashMap<String, BTreeMap<String, (Arc<Binding>, usize)>>>;

impl Rbac {
    /// Take in an object as it is now. Objects of other kinds are ignored.
    pub(crate) fn apply(&mut self, object: &Value) {
        if !is_placed(object) {
            return;
        }
        match object::text(object, "kind") {
            "Role" => {
                let (namespace, name) = key(object);
                self.roles
                    .entry(namespace)
                    .or_default()
                    .insert(name, Role::parse(object));
            }
            "ClusterRole" => self.set_cluster_role(object::name(object), Some(Role::parse(object))),
            "RoleBinding" | "ClusterRoleBinding" => {
                self.set_binding(key(object), Some(Binding::parse(object)))
            }
            _ => {}
        }
    }

    /// Forget an object.
    pub(crate) fn delete(&mut self, object: &Value) {
        if !is_placed(object) {
            return;
        }
        match object::text(object, "kind") {
            "Role" => self.remove_role(&key(object)),
            "ClusterRole" => self.set_cluster_role(object::name(object), None),
            "RoleBinding" | "ClusterRoleBinding" => self.set_binding(key(object), None),
            _ => {}
        }
    }

    /// May `user` do this?
    pub(crate) fn decide(&self, user: &User, action: &Action<'_>) -> Decision {
        if user.is_in(user::MASTERS) {
            return Decision::allow(String::new());
        }
        if let Action::Resource(request) = action
            && let Some(reason) = node::not_its_own(user, request)
        {
            return Decision::deny(reason);
        }
        let mut missing = BTreeSet::new();
        for (binding, subject) in self.bindings_of(user, action.namespace()) {
            match self.rules_of(binding) {
                Ok(rules) if rules.iter().any(|rule| rule.allows(action)) => {
                    return Decision::allow(format!(
                        "RBAC: allowed by {}",
                        binding.describe(subject)
                    ));
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
    pub(crate) fn rules_for(&self, user: &User, namespace: &str) -> Vec<Rule> {
        let mut rules = if user.is_in(user::MASTERS) {
            Rule::everything().to_vec()
        } else {
            Vec::new()
        };
        for (binding, _) in self.bindings_of(user, namespace) {
            rules.extend_from_slice(self.rules_of(binding).unwrap_or_default());
        }
        rules
    }

    /// The rules a role reference gives, or that there is no such role.
    pub(crate) fn referenced(
        &self,
        kind: &str,
        name: &str,
        namespace: &str,
    ) -> Result<&[Rule], String> {
        let (namespace, word) = match kind {
            "ClusterRole" => ("", "clusterrole"),
            // What has no namespace are the ClusterRoles, which a reference to a Role must not
            // reach.
            "Role" if !namespace.is_empty() => (namespace, "role"),
            "Role" => return Err(format!("role.rbac.authorization.k8s.io {name:?} not found")),
            _ => return Err(format!("unsupported role reference kind: {kind:?}")),
        };
        match self.roles.get(namespace).and_then(|roles| roles.get(name)) {
            Some(role) => Ok(&role.rules),
            None => Err(format!(
                "{word}.rbac.authorization.k8s.io {name:?} not found"
            )),
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
        let scopes = ["", namespace]
            .into_iter()
            .take(if namespace.is_empty() { 1 } else { 2 });
        scopes.flat_map(move |scope| {
            let groups = user.groups.iter().map(|group| (&self.groups, group));
            [(&self.users, &user.name)]
                .into_iter()
                .chain(groups)
                .flat_map(move |(index, name)| {
                    let bindings = index
                        .get(name)
                        .and_then(|by_namespace| by_namespace.get(scope));
                    let bindings = bindings.into_iter().flat_map(BTreeMap::values);
                    bindings.filter_map(|(binding, at)| {
                        Some((binding.as_ref(), binding.subjects.get(*at)?))
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
        let Some(binding) = binding.map(Arc::new) else {
            return;
        };
        for (at, subject) in binding.subjects.iter().enumerate() {
            let by_namespace = self
                .subjects(subject.is_group)
                .entry(subject.name.clone())
                .or_default();
            by_namespace
                .entry(key.0.clone())
                .or_default()
                .entry(key.1.clone())
                .or_insert((binding.clone(), at));
        }
        self.bindings.insert(key, binding);
    }

    fn remove_role(&mut self, (namespace, name): &Key) {
        let Some(roles) = self.roles.get_mut(namespace) else {
            return;
        };
        roles.remove(name);
        if roles.is_empty() {
            self.roles.remove(namespace);
        }
    }

    fn subjects(&mut self, is_group: bool) -> &mut Subjects {
        if is_group {
            &mut self.groups
        } else {
            &mut self.users
        }
    }

    fn set_cluster_role(&mut self, name: &str, role: Option<Role>) {
        let labels = role.as_ref().map(|role| role.labels.clone());
        let gathers = role.as_ref().is_some_and(|role| !role.selectors.is_empty());
        let old = match role {
            Some(role) => self
                .roles
                .entry(String::new())
                .or_default()
                .insert(name.to_owned(), role),
            None => self.roles.get_mut("").and_then(|roles| roles.remove(name)),
        };
        if gathers {
            self.aggregated.insert(name.to_owned())
        } else {
            self.aggregated.remove(name)
        };
        let seen: Vec<Value> = labels
            .into_iter()
            .chain(old.map(|old| old.labels))
            .collect();
        if gathers
            || self
                .gathering()
                .any(|(_, role)| seen.iter().any(|labels| role.chooses(labels)))
        {
            self.gather();
        }
    }

    fn gathering(&self) -> impl Iterator<Item = (&String, &Role)> {
        self.aggregated
            .iter()
            .filter_map(|name| Some((name, self.cluster_role(name)?)))
    }

    fn cluster_role(&self, name: &str) -> Option<&Role> {
        self.roles.get("")?.get(name)
    }

    /// Work out the rules of all aggregated ClusterRoles again.
    fn gather(&mut self) {
        let gathered: Vec<(String, Vec<Rule>)> = self
            .gathering()
            .map(|(name, _)| (name.clone(), self.gathered_by(name)))
            .collect();
        for (name, rules) in gathered {
            if let Some(role) = self
                .roles
                .get_mut("")
                .and_then(|roles| roles.get_mut(&name))
            {
                role.rules = rules;
            }
        }
    }

    /// The rules of every ClusterRole that `name` chooses, directly or through another aggregated
    /// one.
    fn gathered_by(&self, name: &str) -> Vec<Rule> {
        let mut seen = BTreeSet::from([name]);
        let mut to_visit = vec![name];
        let mut rules: Vec<Rule> = Vec::new();
        while let Some(role) = to_visit.pop().and_then(|name| self.cluster_role(name)) {
            let all = self.roles.get("").into_iter().flatten();
            for (name, chosen) in all.filter(|(_, other)| role.chooses(&other.labels)) {
                if !seen.insert(name) {
                    continue;
                }
                if chosen.selectors.is_empty() {
                    rules.extend(
                        chosen
                            .rules
                            .iter()
                            .filter(|rule| !rules.contains(rule))
                            .cloned()
                            .collect::<Vec<_>>(),
                    );
                } else {
                    to_visit.push(name);
                }
            }
        }
        rules
    }
}

/// A Role or RoleBinding without a namespace is none, and must not pass for one of the whole
/// cluster.
fn is_placed(object: &Value) -> bool {
    let namespaced = matches!(object::text(object, "kind"), "Role" | "RoleBinding");
    !namespaced || !object::namespace(object).is_empty()
}

fn unresolved(errors: BTreeSet<String>) -> String {
    let errors: Vec<String> = errors.into_iter().collect();
    match errors.as_slice() {
        [] => String::new(),
        [one] => format!("RBAC: {one}"),
        many => format!("RBAC: [{}]", many.join(", ")),
    }
}

fn remove(index: &mut Subjects, subject: &str, key: &Key) {
    let Some(by_namespace) = index.get_mut(subject) else {
        return;
    };
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

/// `user "x" (groups=["a" "b"])`, as the escalation check has it.
pub(super) fn describe_user(user: &User) -> String {
    format!("user {:?} (groups={})", user.name, quoted(&user.groups))
}
