//! Where requests go: every resource and subresource the server says it has.

use serde_json::Value;

use crate::common::random::Random;
use crate::common::{Client, text};

/// A resource or subresource.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    /// `/api/v1` or `/apis/GROUP/VERSION`
    root: String,
    /// `v1` or `GROUP/VERSION`
    pub group_version: String,
    resource: String,
    subresource: Option<String>,
    namespaced: bool,
    pub kind: String,
    /// The methods its verbs stand for.
    methods: Vec<&'static str>,
}

/// Names and namespaces are few, so that requests meet.
pub(crate) const NAMES: [&str; 9] = ["a", "a", "a", "b", "b", "c", "kubernetes", "fuzz", "UPPER"];
const NAMESPACES: [&str; 8] = [
    "default", "default", "default", "fuzz", "fuzz", "a", "b", "missing",
];

/// Reads discovery.
pub(crate) async fn all(client: &Client) -> Vec<Target> {
    let mut roots = vec![("/api/v1".to_owned(), "v1".to_owned())];
    let groups = client.get("/apis").await.expect(200);
    for group in groups["groups"].as_array().into_iter().flatten() {
        for version in group["versions"].as_array().into_iter().flatten() {
            let version = text(version, "groupVersion").to_owned();
            roots.push((format!("/apis/{version}"), version));
        }
    }
    let mut targets = vec![];
    for (root, group_version) in roots {
        let resources = client.get(&root).await.expect(200);
        let resources = resources["resources"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        targets.extend(
            resources
                .iter()
                .map(|resource| target(&root, &group_version, resource)),
        );
    }
    // Services are what this server is about: they get as much attention as all the rest.
    let (services, others): (Vec<_>, Vec<_>) = targets
        .into_iter()
        .partition(|target| target.resource == "services");
    let repeat = others.len() / services.len().max(1);
    let mut all = others;
    for service in &services {
        all.extend((0..repeat.max(1)).map(|_| service.clone()));
    }
    all
}

fn target(root: &str, group_version: &str, resource: &Value) -> Target {
    let name = text(resource, "name");
    let (name, subresource) = match name.split_once('/') {
        Some((name, subresource)) => (name, Some(subresource.to_owned())),
        None => (name, None),
    };
    Target {
        root: root.to_owned(),
        group_version: group_version.to_owned(),
        resource: name.to_owned(),
        subresource,
        namespaced: resource["namespaced"] == true,
        kind: text(resource, "kind").to_owned(),
        methods: resource["verbs"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(method)
            .collect(),
    }
}

/// Writing is where the trouble is: reads come once, though there are three verbs for them.
fn method(verb: &Value) -> Option<&'static str> {
    match verb.as_str()? {
        "create" => Some("POST"),
        "get" => Some("GET"),
        "update" => Some("PUT"),
        "patch" => Some("PATCH"),
        "delete" => Some("DELETE"),
        _ => None,
    }
}

impl Target {
    /// A method, one that it has more often than not.
    pub(crate) fn method(&self, random: &mut Random) -> &'static str {
        let any = ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"];
        let own = !self.methods.is_empty() && !random.one_in(12);
        let methods = if own {
            self.methods.as_slice()
        } else {
            any.as_slice()
        };
        methods[random.below(methods.len())]
    }

    /// A path and query, fitting for the method and the name more often than not.
    pub(crate) fn path(&self, random: &mut Random, method: &str, name: &str) -> String {
        let mut path = self.root.clone();
        if self.namespaced != random.one_in(20) {
            path += &format!("/namespaces/{}", random.pick(&NAMESPACES));
        }
        path += &format!("/{}", self.resource);
        let whole = matches!(method, "POST") && self.subresource.is_none();
        if whole == random.one_in(10) {
            path += &format!(
                "/{}",
                if random.one_in(12) {
                    random.pick(&NAMES)
                } else {
                    name
                }
            );
            if let Some(subresource) = &self.subresource {
                path += &format!("/{subresource}");
            }
        }
        if random.one_in(30) {
            path += *random.pick(&[
                "/",
                "//",
                "/status",
                "/nothing/more",
                "/%2e%2e",
                "/%00",
                "/%ff",
                "/%C3%A4",
                "/a%2Fb",
            ]);
        }
        path + &query(random)
    }
}

/// Query parameters with right and wrong values.
fn query(random: &mut Random) -> String {
    const PARAMETERS: [(&str, &[&str]); 17] = [
        ("dryRun", &["All", "Some", ""]),
        ("fieldManager", &["fuzz", "", "%00", "%ff", "x%0ay"]),
        ("fieldValidation", &["Strict", "Warn", "Ignore", "Nonsense"]),
        ("force", &["true", "false", "maybe"]),
        (
            "labelSelector",
            &[
                "a=b",
                "a in (b,c)",
                "!a",
                "a notin (",
                "%2C%2C",
                "a%3D%3Db",
                "=",
                "a%3E1",
            ],
        ),
        (
            "fieldSelector",
            &[
                "metadata.name=a",
                "metadata.namespace!=b",
                "spec.nothing=1",
                "=",
                "metadata.name",
            ],
        ),
        ("limit", &["1", "0", "-1", "x", "9223372036854775808"]),
        (
            "continue",
            &[
                "x",
                "",
                "e30",
                "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6LTEsInN0YXJ0IjoiLi4vIn0",
            ],
        ),
        (
            "resourceVersion",
            &["0", "1", "-1", "x", "18446744073709551616", ""],
        ),
        (
            "resourceVersionMatch",
            &["Exact", "NotOlderThan", "Nonsense"],
        ),
        (
            "propagationPolicy",
            &["Foreground", "Background", "Orphan", "Nonsense"],
        ),
        ("gracePeriodSeconds", &["0", "-1", "30", "x"]),
        ("sendInitialEvents", &["true", "false", "x"]),
        ("allowWatchBookmarks", &["true", "x"]),
        ("pretty", &["true", "x"]),
        ("watch", &["0", "false"]),
        ("nonsense", &["1", "%", "%zz", "&&", "=="]),
    ];
    let count = if random.one_in(3) {
        1 + random.below(3)
    } else {
        0
    };
    let mut pairs: Vec<_> = (0..count)
        .map(|_| {
            let (name, values) = random.pick(&PARAMETERS);
            format!("{name}={}", random.pick(values).replace(' ', "+"))
        })
        .collect();
    if random.one_in(60) {
        pairs.push(
            (*random.pick(&["watch=1&timeoutSeconds=1", "watch=x&timeoutSeconds=1"])).to_owned(),
        ); // one that does not end holds up a worker
    }
    if pairs.is_empty() {
        String::new()
    } else {
        format!("?{}", pairs.join("&"))
    }
}
