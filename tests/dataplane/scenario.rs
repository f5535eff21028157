//! Scenarios as they are on disk: steps of actions and probes, with what was recorded.

use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::{Map, Value};

#[derive(Deserialize)]
struct File {
    scenarios: Vec<Scenario>,
}

#[derive(Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Scenario {
    pub name: String,
    #[serde(default)]
    pub about: String,
    /// What differs from the usual configuration of the nodes.
    #[serde(default)]
    pub proxy_config: Map<String, Value>,
    pub steps: Vec<Step>,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Step {
    #[serde(default, rename = "do")]
    pub actions: Vec<Value>,
    /// Wait until all nodes have followed.
    #[serde(default = "yes")]
    pub sync: bool,
    #[serde(default)]
    pub probes: Vec<Probe>,
}

fn yes() -> bool {
    true
}

/// One question about the cluster. Which fields matter depends on the kind.
#[derive(Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Probe {
    pub kind: String,
    pub title: Option<String>,
    #[serde(default)]
    pub from: String,
    #[serde(default)]
    pub to: String,
    #[serde(default)]
    pub url: String,
    /// Of a sysctl.
    #[serde(default)]
    pub name: String,
    /// Of a flow that is kept.
    #[serde(default)]
    pub id: String,
    pub proto: Option<String>,
    /// The node through which a client sends.
    pub via: Option<String>,
    pub src: Option<String>,
    pub sport: Option<u16>,
    /// The endpoint that is to answer.
    pub backend: Option<String>,
    /// How often.
    pub n: Option<usize>,
    /// How many client addresses.
    pub sources: Option<usize>,
    /// Any of these is as good as another.
    pub among: Option<Vec<String>>,
    pub min_share: Option<f64>,
    pub save: Option<String>,
    pub compare: Option<String>,
    #[serde(default)]
    pub keepfailed: bool,
    #[serde(default)]
    pub noheaders: bool,
    #[serde(default)]
    pub nobody: bool,
    /// Not again if it fails.
    #[serde(default)]
    pub once: bool,
    /// Not beside others.
    #[serde(default)]
    pub serial: bool,
    pub expect: Value,
    /// What is right in other modes, by mode.
    #[serde(default)]
    pub differs: Map<String, Value>,
}

impl Probe {
    /// What was recorded in this mode.
    pub(crate) fn recorded(&self, mode: &str) -> &Value {
        self.differs.get(mode).unwrap_or(&self.expect)
    }

    /// Everything that is right.
    pub(crate) fn acceptable(&self) -> impl Iterator<Item = &Value> {
        [&self.expect].into_iter().chain(self.differs.values())
    }

    /// It neither depends on another probe nor disturbs one.
    pub(crate) fn beside_others(&self) -> bool {
        matches!(self.kind.as_str(), "connect" | "http") && !self.serial
    }

    pub(crate) fn describe(&self) -> String {
        let Self { kind, from, to, .. } = self;
        match kind.as_str() {
            _ if self.title.is_some() => format!(
                "{kind} {from} {to}: {}",
                self.title.as_deref().unwrap_or_default()
            ),
            "http" => format!("http {from} -> {}", self.url),
            "sysctl" => format!("sysctl {from} {}", self.name),
            _ if to.is_empty() => format!("{kind} {}", self.id),
            _ => {
                let protocol = self.proto.as_deref().unwrap_or("tcp");
                let via = self
                    .via
                    .as_ref()
                    .map(|via| format!(" via {via}"))
                    .unwrap_or_default();
                format!("{kind} {from} -> {to}/{protocol}{via}")
            }
        }
    }
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/dataplane/scenarios")
}

/// What the files with scenarios are called.
pub(crate) fn files() -> Vec<String> {
    let paths = fs::read_dir(folder())
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let mut names: Vec<_> = paths
        .map(|path| path.file_stem().unwrap().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

/// All scenarios of these files, or those of them whose name has one of the texts in
/// `PORTICO_SCENARIO=text,…` or whose file is called so; those with the same configuration
/// together, the usual configuration first.
pub(crate) fn load(files: &[&str]) -> Vec<Scenario> {
    let wanted = std::env::var("PORTICO_SCENARIO").unwrap_or_default();
    let wanted: Vec<_> = wanted.split(',').collect();
    let mut all = Vec::new();
    for name in files {
        let path = folder().join(format!("{name}.json"));
        let file: File = serde_json::from_slice(&fs::read(&path).unwrap())
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let named = |scenario: &Scenario| wanted.iter().any(|text| scenario.name.contains(text));
        let whole = wanted.contains(name);
        all.extend(
            file.scenarios
                .into_iter()
                .filter(|scenario| whole || named(scenario)),
        );
    }
    all.sort_by_key(|scenario| match scenario.proxy_config.is_empty() {
        true => String::new(),
        false => Value::from(scenario.proxy_config.clone()).to_string(),
    });
    all
}
