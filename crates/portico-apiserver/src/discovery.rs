//! Discovery: which groups, versions and resources this server has, in the plain and in the
//! aggregated form.

use crate::negotiate;
use portico_api::kinds::{Info, Kind};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The verbs of a kind's main resource. A namespace goes alone: all of them together would be too
/// easy a mistake.
pub(crate) fn verbs(info: &Info) -> &'static [&'static str] {
    match info.plural {
        "namespaces" => &[
            "create", "delete", "get", "list", "patch", "update", "watch",
        ],
        _ => &[
            "create",
            "delete",
            "deletecollection",
            "get",
            "list",
            "patch",
            "update",
            "watch",
        ],
    }
}

/// One line of discovery: a resource or a subresource.
struct Line {
    group: String,
    version: String,
    /// `services` or `services/status`.
    name: String,
    singular: String,
    namespaced: bool,
    kind: String,
    /// Where the kind is of another group than the resource.
    kind_group: Option<(&'static str, &'static str)>,
    verbs: Vec<&'static str>,
    short_names: Vec<&'static str>,
    categories: Vec<&'static str>,
}

/// Resources that are asked and answered, never stored.
const REVIEWS: &[(&str, &str, &str, bool)] = &[
    (
        "authentication.k8s.io",
        "tokenreviews",
        "TokenReview",
        false,
    ),
    (
        "authentication.k8s.io",
        "selfsubjectreviews",
        "SelfSubjectReview",
        false,
    ),
    (
        "authorization.k8s.io",
        "localsubjectaccessreviews",
        "LocalSubjectAccessReview",
        true,
    ),
    (
        "authorization.k8s.io",
        "selfsubjectaccessreviews",
        "SelfSubjectAccessReview",
        false,
    ),
    (
        "authorization.k8s.io",
        "selfsubjectrulesreviews",
        "SelfSubjectRulesReview",
        false,
    ),
    (
        "authorization.k8s.io",
        "subjectaccessreviews",
        "SubjectAccessReview",
        false,
    ),
];

/// The discovery documents, made once.
pub(crate) struct Discovery {
    /// (group, version) -> lines; the core group is "".
    groups: BTreeMap<String, BTreeMap<String, Vec<Line>>>,
}

impl Discovery {
    pub(crate) fn new(kinds: &[Arc<dyn Kind>]) -> Self {
        let mut groups: BTreeMap<String, BTreeMap<String, Vec<Line>>> = BTreeMap::new();
        let lines = kinds
            .iter()
            .flat_map(|kind| of_kind(kind.as_ref()))
            .chain(REVIEWS.iter().map(of_review));
        for line in lines {
            groups
                .entry(line.group.clone())
                .or_default()
                .entry(line.version.clone())
                .or_default()
                .push(line);
        }
        groups
            .values_mut()
            .flat_map(BTreeMap::values_mut)
            .for_each(|lines| lines.sort_by(|a, b| a.name.cmp(&b.name)));
        Self { groups }
    }

    /// The document at a path, if it is one of discovery, and its media type.
    pub(crate) fn answer(
        &self,
        path: &str,
        accept: &str,
        address: &str,
    ) -> Option<(Value, String)> {
        let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
        let plain = |document: Value| Some((document, "application/json".to_owned()));
        match parts.as_slice() {
            [root @ ("api" | "apis")] => match aggregated_version(accept) {
                Some(version) => Some((
                    self.aggregated(*root == "api", version),
                    format!(
                        "application/json;g=apidiscovery.k8s.io;v={version};as=APIGroupDiscoveryList"
                    ),
                )),
                None if *root == "api" => plain(json!({
                    "kind": "APIVersions", "versions": ["v1"],
                    "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}],
                })),
                None => plain(json!({
                    "kind": "APIGroupList", "apiVersion": "v1",
                    "groups": self.named_groups().map(|(name, versions)| group(name, versions)).collect::<Vec<_>>(),
                })),
            },
            ["api", version] => plain(self.resources("", version)?),
            ["apis", name] => {
                let mut document =
                    group(name, self.groups.get(*name).filter(|_| !name.is_empty())?);
                document["kind"] = "APIGroup".into();
                document["apiVersion"] = "v1".into();
                plain(document)
            }
            ["apis", group, version] => plain(self.resources(group, version)?),
            _ => None,
        }
    }

    fn named_groups(&self) -> impl Iterator<Item = (&String, &BTreeMap<String, Vec<Line>>)> {
        self.groups.iter().filter(|(name, _)| !name.is_empty())
    }

    fn resources(&self, group: &str, version: &str) -> Option<Value> {
        let lines = self.groups.get(group)?.get(version)?;
        let resources: Vec<Value> = lines.iter().map(Line::plain).collect();
        Some(json!({
            "kind": "APIResourceList", "apiVersion": "v1",
            "groupVersion": joined(group, version), "resources": resources,
        }))
    }

    fn aggregated(&self, core: bool, version: &str) -> Value {
        let items: Vec<Value> = self
            .groups
            .iter()
            .filter(|(name, _)| name.is_empty() == core)
            .map(|(name, versions)| {
                let versions: Vec<Value> = versions
                    .iter()
                    .map(|(version, lines)| json!({"version": version, "freshness": "Current", "resources": aggregate(lines)}))
                    .collect();
                let metadata = if name.is_empty() { json!({}) } else { json!({"name": name}) };
                json!({"metadata": metadata, "versions": versions})
            })
            .collect();
        let api_version = format!("apidiscovery.k8s.io/{version}");
        json!({"kind": "APIGroupDiscoveryList", "apiVersion": api_version, "metadata": {}, "items": items})
    }
}

/// Does the client take aggregated discovery, and in which version?
fn aggregated_version(accept: &str) -> Option<&'static str> {
    negotiate::clauses(accept).find_map(|clause| {
        let wanted =
            clause.parameter("as") == "APIGroupDiscoveryList" && clause.media == "application/json";
        match clause.parameter("v") {
            "v2" if wanted => Some("v2"),
            "v2beta1" if wanted => Some("v2beta1"),
            _ => None,
        }
    })
}

fn of_kind(kind: &dyn Kind) -> Vec<Line> {
    let info = kind.info();
    let line = |name: String, verbs: &[&'static str]| Line {
        group: info.group.to_owned(),
        version: info.version.to_owned(),
        singular: if name.contains('/') {
            String::new()
        } else {
            info.singular.to_owned()
        },
        name,
        namespaced: info.namespaced,
        kind: info.kind.to_owned(),
        kind_group: None,
        verbs: verbs.to_vec(),
        short_names: Vec::new(),
        categories: Vec::new(),
    };
    let mut lines = vec![Line {
        short_names: info.short_names.to_vec(),
        categories: info.categories.to_vec(),
        ..line(info.plural.to_owned(), verbs(info))
    }];
    if info.status {
        lines.push(line(
            format!("{}/status", info.plural),
            &["get", "patch", "update"],
        ));
    }
    match (info.group, info.plural) {
        ("", "namespaces") => lines.push(line("namespaces/finalize".into(), &["update"])),
        ("", "serviceaccounts") => lines.push(Line {
            kind: "TokenRequest".to_owned(),
            kind_group: Some(("authentication.k8s.io", "v1")),
            ..line("serviceaccounts/token".into(), &["create"])
        }),
        _ => {}
    }
    lines
}

fn of_review(review: &(&'static str, &'static str, &'static str, bool)) -> Line {
    let (group, plural, kind, namespaced) = *review;
    Line {
        group: group.to_owned(),
        version: "v1".to_owned(),
        name: plural.to_owned(),
        singular: kind.to_lowercase(),
        namespaced,
        kind: kind.to_owned(),
        kind_group: None,
        verbs: vec!["create"],
        short_names: Vec::new(),
        categories: Vec::new(),
    }
}

impl Line {
    fn plain(&self) -> Value {
        let mut line = json!({
            "name": self.name, "singularName": self.singular, "namespaced": self.namespaced,
            "kind": self.kind, "verbs": self.verbs,
        });
        if let Some((group, version)) = self.kind_group {
            line["group"] = group.into();
            line["version"] = version.into();
        }
        if !self.short_names.is_empty() {
            line["shortNames"] = json!(self.short_names);
        }
        if !self.categories.is_empty() {
            line["categories"] = json!(self.categories);
        }
        line
    }

    fn response_kind(&self) -> Value {
        let (group, version) = self.kind_group.unwrap_or((&self.group, &self.version));
        json!({"group": group, "version": version, "kind": self.kind})
    }
}

/// Resources with their subresources inside.
fn aggregate(lines: &[Line]) -> Vec<Value> {
    let mut resources: Vec<Value> = Vec::new();
    for line in lines.iter().filter(|line| !line.name.contains('/')) {
        let mut resource = json!({
            "resource": line.name, "responseKind": line.response_kind(),
            "scope": if line.namespaced { "Namespaced" } else { "Cluster" },
            "singularResource": line.singular, "verbs": line.verbs,
        });
        if !line.short_names.is_empty() {
            resource["shortNames"] = json!(line.short_names);
        }
        if !line.categories.is_empty() {
            resource["categories"] = json!(line.categories);
        }
        let below: Vec<Value> = lines
            .iter()
            .filter_map(|other| Some((other, other.name.strip_prefix(&line.name)?.strip_prefix('/')?)))
            .map(|(other, name)| json!({"subresource": name, "responseKind": other.response_kind(), "verbs": other.verbs}))
            .collect();
        if !below.is_empty() {
            resource["subresources"] = below.into();
        }
        resources.push(resource);
    }
    resources
}

fn group(name: &str, versions: &BTreeMap<String, Vec<Line>>) -> Value {
    let versions: Vec<Value> = versions
        .keys()
        .map(|version| json!({"groupVersion": joined(name, version), "version": version}))
        .collect();
    json!({"name": name, "versions": versions, "preferredVersion": versions.first()})
}

fn joined(group: &str, version: &str) -> String {
    if group.is_empty() {
        version.to_owned()
    } else {
        format!("{group}/{version}")
    }
}
