//! One policy rule: what it allows, and whether it covers another rule.

use super::{Action, Request};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::fmt;

/// A rule of a Role or ClusterRole. `*` stands for everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Rule {
    pub verbs: Vec<String>,
    pub groups: Vec<String>,
    /// `services`, `services/status`, `*/status` (that subresource of everything), `services/*`
    /// (every subresource).
    pub resources: Vec<String>,
    /// Empty means every name.
    pub names: Vec<String>,
    /// Paths; a `*` at the end matches the rest.
    pub urls: Vec<String>,
}

impl Rule {
    /// `None` if the value is no rule: a list that cannot be read must not be taken for an empty
    /// one, since no names means all names.
    pub(crate) fn parse(value: &Value) -> Option<Self> {
        Some(Self {
            verbs: strings(value, "verbs")?,
            groups: strings(value, "apiGroups")?,
            resources: strings(value, "resources")?,
            names: strings(value, "resourceNames")?,
            urls: strings(value, "nonResourceURLs")?,
        })
    }

    pub(crate) fn parse_all(rules: &Value) -> Vec<Self> {
        rules
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Self::parse)
            .collect()
    }

    /// All verbs on all resources and all paths.
    pub(crate) fn everything() -> [Self; 2] {
        let all = || vec!["*".to_owned()];
        [
            Self {
                verbs: all(),
                groups: all(),
                resources: all(),
                ..Self::default()
            },
            Self {
                verbs: all(),
                urls: all(),
                ..Self::default()
            },
        ]
    }

    pub(crate) fn to_value(&self) -> Value {
        let lists = [
            ("verbs", &self.verbs),
            ("apiGroups", &self.groups),
            ("resources", &self.resources),
            ("resourceNames", &self.names),
            ("nonResourceURLs", &self.urls),
        ];
        let mut rule = Map::new();
        for (key, list) in lists
            .into_iter()
            .filter(|(key, list)| *key == "verbs" || !list.is_empty())
        {
            rule.insert(key.into(), list.clone().into());
        }
        Value::Object(rule)
    }

    pub(crate) fn allows(&self, action: &Action<'_>) -> bool {
        match action {
            Action::Resource(request) => self.allows_request(request),
            Action::NonResource { verb, path } => {
                has(&self.verbs, verb) && self.urls.iter().any(|url| url_covers(url, path))
            }
        }
    }

    fn allows_request(&self, request: &Request<'_>) -> bool {
        has(&self.verbs, request.verb)
            && has(&self.groups, request.group)
            && self
                .resources
                .iter()
                .any(|own| resource_covers(own, request.resource, request.subresource))
            && (self.names.is_empty() || self.names.iter().any(|name| name == request.name))
    }

    /// The same permissions as rules with one verb and one resource, name or path each.
    fn atoms(&self) -> Vec<Self> {
        let names: Vec<Vec<String>> = if self.names.is_empty() {
            vec![vec![]]
        } else {
            self.names.iter().map(|name| vec![name.clone()]).collect()
        };
        let mut atoms = Vec::new();
        for verb in &self.verbs {
            let verbs = vec![verb.clone()];
            for (group, resource) in self
                .groups
                .iter()
                .flat_map(|g| self.resources.iter().map(move |r| (g, r)))
            {
                atoms.extend(names.iter().map(|names| Self {
                    verbs: verbs.clone(),
                    groups: vec![group.clone()],
                    resources: vec![resource.clone()],
                    names: names.clone(),
                    urls: vec![],
                }));
            }
            atoms.extend(self.urls.iter().map(|url| Self {
                verbs: verbs.clone(),
                urls: vec![url.clone()],
                ..Self::default()
            }));
        }
        atoms
    }

    /// Does this rule allow all that `atom` allows?
    fn covers(&self, atom: &Self) -> bool {
        let resource = |wanted: &String| {
            let (resource, subresource) = wanted.split_once('/').unwrap_or((wanted, ""));
            self.resources
                .iter()
                .any(|own| own == wanted || resource_covers(own, resource, subresource))
        };
        atom.verbs.iter().all(|verb| has(&self.verbs, verb))
            && atom.groups.iter().all(|group| has(&self.groups, group))
            && atom.resources.iter().all(resource)
            && atom
                .urls
                .iter()
                .all(|wanted| self.urls.iter().any(|own| url_covers(own, wanted)))
            && (self.names.is_empty()
                || (!atom.names.is_empty() && atom.names.iter().all(|n| self.names.contains(n))))
    }
}

/// What `wanted` allows and `own` does not, as rules that are easy to read.
pub(crate) fn uncovered(own: &[Rule], wanted: &[Rule]) -> Vec<Rule> {
    let missing = wanted
        .iter()
        .flat_map(Rule::atoms)
        .filter(|atom| !own.iter().any(|rule| rule.covers(atom)));
    let mut by_target: BTreeMap<Rule, Vec<String>> = BTreeMap::new();
    for mut atom in missing {
        let verbs = std::mem::take(&mut atom.verbs);
        let all = by_target.entry(atom).or_default();
        all.extend(
            verbs
                .into_iter()
                .filter(|verb| !all.contains(verb))
                .collect::<Vec<_>>(),
        );
    }
    by_target
        .into_iter()
        .map(|(target, verbs)| Rule { verbs, ..target })
        .collect()
}

fn has(list: &[String], wanted: &str) -> bool {
    list.iter().any(|own| own == "*" || own == wanted)
}

fn resource_covers(own: &str, resource: &str, subresource: &str) -> bool {
    match own.split_once('/') {
        None => own == "*" || (own == resource && subresource.is_empty()),
        Some((own, sub)) => {
            !subresource.is_empty()
                && (own == "*" || own == resource)
                && (sub == "*" || sub == subresource)
        }
    }
}

fn url_covers(own: &str, path: &str) -> bool {
    own == path || (own.ends_with('*') && path.starts_with(own.trim_end_matches('*')))
}

fn strings(value: &Value, key: &str) -> Option<Vec<String>> {
    match value.get(key) {
        None | Some(Value::Null) => Some(Vec::new()),
        Some(list) => list
            .as_array()?
            .iter()
            .map(|item| item.as_str().map(str::to_owned))
            .collect(),
    }
}

/// `{APIGroups:[""], Resources:["services"], Verbs:["get" "list"]}`
impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lists = [
            ("APIGroups", &self.groups),
            ("Resources", &self.resources),
            ("NonResourceURLs", &self.urls),
            ("ResourceNames", &self.names),
            ("Verbs", &self.verbs),
        ];
        let shown: Vec<String> = lists
            .into_iter()
            .filter(|(_, list)| !list.is_empty())
            .map(|(name, list)| format!("{name}:{}", quoted(list)))
            .collect();
        write!(f, "{{{}}}", shown.join(", "))
    }
}

/// `["a" "b"]`
pub(super) fn quoted(list: &[String]) -> String {
    let items: Vec<String> = list.iter().map(|item| format!("{item:?}")).collect();
    format!("[{}]", items.join(" "))
}
