//! The table of flows as it is on disk: groups of objects, and what becomes of packets there.

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use portico_model::index::Index;
use portico_model::table::Protocol;
use portico_testbed::cluster::Addresses;
use serde::Deserialize;
use serde_json::Value;

use crate::world::{Choices, Fate, NODE, Question, Sight, apply};

/// Objects on one node and packets to it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Group {
    pub about: String,
    #[serde(default)]
    pub settings: Choices,
    pub objects: Vec<Value>,
    flows: Vec<Row>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    /// A host, or several.
    from: String,
    /// `10.96.0.1:80`, `node1/alt:30080` or `[fd00::1]:80/udp`, or several.
    to: String,
    /// `pod1-1 pod2-1:53`; port 8080 is left out.
    reach: Option<String>,
    /// Whose address they see: `own` (also where it is left out), `node`, or each its own.
    source: Option<Source>,
    #[serde(default)]
    sticky: bool,
    /// `refused`, `timeout` or `passes`, where nobody is reached.
    fate: Option<String>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Source {
    All(Sight),
    Each(BTreeMap<String, Sight>),
}

impl Group {
    pub(crate) fn index(&self, addresses: &Addresses) -> Index {
        let mut index = self.settings.index(addresses);
        self.objects
            .iter()
            .for_each(|object| apply(&mut index, addresses, object));
        let problems = index.take().problems;
        assert!(problems.is_empty(), "{}: {problems:?}", self.about);
        index
    }

    pub(crate) fn flows(&self, addresses: &Addresses) -> Vec<(Question, Fate)> {
        self.flows
            .iter()
            .flat_map(|row| row.expand(addresses))
            .collect()
    }
}

impl Row {
    fn expand(&self, addresses: &Addresses) -> Vec<(Question, Fate)> {
        let pairs = self
            .from
            .split_whitespace()
            .flat_map(|from| self.to.split_whitespace().map(move |to| (from, to)));
        pairs
            .map(|(from, to)| (question(addresses, from, to), self.fate(from)))
            .collect()
    }

    fn fate(&self, from: &str) -> Fate {
        match (&self.reach, self.fate.as_deref()) {
            (Some(names), None) => {
                let endpoints = names
                    .split_whitespace()
                    .map(|name| (full(name), self.sight(from, name)))
                    .collect();
                Fate::Reach {
                    endpoints,
                    sticky: self.sticky,
                }
            }
            (None, Some("refused")) => Fate::Refused,
            (None, Some("timeout")) => Fate::Timeout,
            (None, Some("passes")) => Fate::Passes,
            _ => panic!("a flow to {} neither reaches nor fails", self.to),
        }
    }

    fn sight(&self, from: &str, name: &str) -> Sight {
        match &self.source {
            _ if from == NODE => Sight::Node,
            Some(Source::All(sight)) => *sight,
            Some(Source::Each(each)) => *each.get(name).unwrap_or(&Sight::Own),
            None => Sight::Own,
        }
    }
}

fn full(name: &str) -> String {
    if name.contains(':') {
        name.to_owned()
    } else {
        format!("{name}:8080")
    }
}

pub(crate) fn question(addresses: &Addresses, from: &str, to: &str) -> Question {
    let (target, protocol) = match to.rsplit_once('/') {
        Some((target, "udp")) => (target, Protocol::Udp),
        Some((target, "sctp")) => (target, Protocol::Sctp),
        Some((target, "tcp")) => (target, Protocol::Tcp),
        _ => (to, Protocol::Tcp),
    };
    let (name, port) = target
        .rsplit_once(':')
        .unwrap_or_else(|| panic!("no port in {to}"));
    let (name, which) = name.split_once('/').unwrap_or((name, "ip"));
    let address = match addresses.of(name, which) {
        Some(address) => SocketAddr::new(address, port.parse().unwrap()),
        None => target
            .parse()
            .unwrap_or_else(|_| panic!("no host or address {to}")),
    };
    Question {
        from: from.to_owned(),
        to: address,
        protocol,
    }
}

/// All groups with the name of their file, or those whose file or words have the text in
/// `PORTICO_FLOWS`.
pub(crate) fn load() -> Vec<Group> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/flows");
    let wanted = std::env::var("PORTICO_FLOWS").unwrap_or_default();
    let mut files: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.retain(|path| {
        path.extension()
            .is_some_and(|extension| extension == "yaml")
    });
    files.sort();
    let mut all = Vec::new();
    for path in files {
        let stem = path.file_stem().unwrap().to_string_lossy().into_owned();
        let text = fs::read_to_string(&path).unwrap();
        let groups: Vec<Group> = serde_saphyr::from_str(&text)
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let named = groups.into_iter().map(|group| Group {
            about: format!("{stem}: {}", group.about),
            ..group
        });
        all.extend(named.filter(|group| group.about.contains(&wanted)));
    }
    all
}
