//! From arguments and a configuration file to a [`Config`], once. After that no code reads flags.
//!
//! [`flags`] has the command line, [`document`] reads values, [`meaning`] knows what they mean.

mod document;
mod flags;
mod meaning;

pub use flags::Arguments;

use crate::sysctl;
use document::Document;
use ipnet::IpNet;
use portico_model::index::{DetectLocal, NodePortSetting, Settings};
use serde_json::Value;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

const API_VERSION: &str = "kubeproxy.config.k8s.io/v1alpha1";
const KIND: &str = "KubeProxyConfiguration";

/// Fields of the file without a flag that mean nothing here.
const NO_EFFECT: &[(&str, &str)] = &[
    ("clientConnection.acceptContentTypes", "JSON is spoken"),
    ("portRange", "there is no proxying in user space"),
    ("windowsRunAsService", "it is for Windows"),
    ("winkernel", "it is for Windows"),
];

/// What the daemon is to do.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The dataplane.
    pub mode: Mode,
    /// What forwarding depends on beside objects.
    pub settings: Settings,
    /// What counts in ipvs mode only.
    pub ipvs: Ipvs,
    /// How the API server is reached.
    pub api: ApiAccess,
    /// Where the node's health is served; `None` for nowhere.
    pub healthz: Option<SocketAddr>,
    /// Where metrics are served; `None` for nowhere.
    pub metrics: Option<SocketAddr>,
    /// A taken port ends the daemon.
    pub bind_hard_fail: bool,
    /// How often the kernel is compared with the table.
    pub sync_period: Duration,
    /// What is set of the kernel's connection tracker.
    pub sysctls: sysctl::Settings,
    /// The value for `/proc/self/oom_score_adj`.
    pub oom_score_adj: i32,
    /// Where the last known objects are kept.
    pub data_dir: DataDir,
    /// The folder of static Services.
    pub static_services: Option<PathBuf>,
    /// Whether and how addresses of load balancers are announced.
    pub announce: Announce,
    /// Connections from outside go to the node that all nodes agree upon, where that is possible.
    pub edge: bool,
    /// Metrics tell how many connections each endpoint has.
    pub count_connections: bool,
    /// How much is logged, and in which form.
    pub logging: Logging,
    /// The configuration file, which ends the daemon when it changes.
    pub file: Option<PathBuf>,
    /// Everything with its defaults, as a `KubeProxyConfiguration`.
    pub resolved: Value,
}

impl Config {
    /// Prints a configuration file, with all defaults.
    pub fn print(&self) -> String {
        // A tree of texts, numbers and lists always serialises.
        serde_saphyr::to_string(&self.resolved).unwrap_or_default()
    }
}

/// The dataplanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Maps and a few chains of nftables.
    Nftables,
    /// Chains of iptables, by `iptables-restore`.
    Iptables,
    /// Virtual servers of IPVS.
    Ipvs,
}

impl Mode {
    /// The name of the mode in flags and reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Nftables => "nftables",
            Self::Iptables => "iptables",
            Self::Ipvs => "ipvs",
        }
    }
}

/// What counts in ipvs mode only.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ipvs {
    /// The scheduler of virtual servers, such as `rr`.
    pub scheduler: String,
    /// Virtual servers on these addresses belong to other programs.
    pub excluded: Vec<IpNet>,
    /// Whether the kernel answers ARP only for addresses of the link that a request came by.
    pub strict_arp: bool,
    /// Zero leaves what the kernel has.
    pub tcp_timeout: Duration,
    /// The same for connections after a FIN.
    pub tcp_fin_timeout: Duration,
    /// The same for UDP.
    pub udp_timeout: Duration,
}

/// How the API server is reached.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ApiAccess {
    /// `None`: the pod's own.
    pub kubeconfig: Option<PathBuf>,
    /// The address of the API server, in place of the kubeconfig's.
    pub server: Option<String>,
}

/// The folder for the last known objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DataDir {
    /// Nothing is remembered.
    None,
    /// Used if it can be.
    Default(PathBuf),
    /// Has to be usable.
    Given(PathBuf),
}

/// Whether and how addresses of load balancers are announced.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Announce {
    /// Where the cluster has AddressPools.
    pub enabled: bool,
    /// The key of heartbeats; `None`: it is in a Secret.
    pub key_file: Option<PathBuf>,
    /// The UDP port of heartbeats.
    pub port: u16,
}

/// How much is logged, and in which form.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Logging {
    /// The number of `--v`.
    pub verbosity: u32,
    /// Whether lines are JSON.
    pub json: bool,
}

/// What the process was started for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Task {
    /// Forward until it is told to stop.
    Run,
    /// Remove all rules, and end.
    Cleanup,
    /// Set what needs privileges, and end.
    InitOnly,
    /// Write the configuration with its defaults to this file, and end.
    WriteConfig(PathBuf),
}

/// What is known of the machine before anything is read.
#[derive(Clone, Debug, Default)]
pub struct Surroundings {
    /// `$NODE_NAME`.
    pub node_name: Option<String>,
    /// The name of the host.
    pub hostname: String,
}

/// A configuration, and what to do with it.
#[derive(Clone, Debug, PartialEq)]
pub struct Loaded {
    /// The configuration with its defaults.
    pub config: Config,
    /// What the process was started for.
    pub task: Task,
    /// What the operator should know, for the log.
    pub warnings: Vec<String>,
}

#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each message says what its variant means")]
pub enum ConfigError {
    #[error("cannot read --config={path}", path = .path.display())]
    Read {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("{path} is not a configuration: {problem}", path = .path.display())]
    Decode { path: PathBuf, problem: String },
    #[error("{}", .0.join("; "))]
    Invalid(Vec<String>),
}

/// Read the file, if there is one, and make sense of it all.
pub fn load(arguments: &Arguments) -> Result<Loaded, ConfigError> {
    let hostname = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let surroundings = Surroundings {
        node_name: std::env::var("NODE_NAME").ok(),
        hostname,
    };
    let file = match arguments.text("config").filter(|path| !path.is_empty()) {
        None => None,
        Some(path) => {
            let path = PathBuf::from(path);
            let text = fs::read_to_string(&path).map_err(|source| ConfigError::Read {
                path: path.clone(),
                source,
            })?;
            Some((path, text))
        }
    };
    interpret(arguments, file, &surroundings)
}

/// The pure part of [`load`].
pub fn interpret(
    arguments: &Arguments,
    file: Option<(PathBuf, String)>,
    surroundings: &Surroundings,
) -> Result<Loaded, ConfigError> {
    let mut warnings = Vec::new();
    let mut document = match &file {
        None => Document::new(arguments.tree(), flags::name_of_field),
        Some((path, text)) => {
            let mut tree = decode(path, text)?;
            arguments.put_over(&mut tree, true);
            let beside: Vec<String> = arguments
                .given()
                .filter(|flag| !flag.always)
                .map(|flag| format!("--{}", flag.name))
                .collect();
            if !beside.is_empty() {
                warnings.push(format!(
                    "beside --config these flags do not count: {}",
                    beside.join(", ")
                ));
            }
            Document::new(tree, str::to_owned)
        }
    };
    if file.is_some() && !document.says("mode") {
        let what = "mode is not set: nftables is used, where kube-proxy would use iptables";
        let rest = if meaning::adopt_iptables(&mut document) {
            "; what is said in iptables counts for it"
        } else {
            ""
        };
        warnings.push(format!("{what}{rest}"));
    }
    let mut config = meaning::read(&mut document, arguments, file.is_some(), surroundings);
    warnings.extend(
        document
            .passed_over()
            .into_iter()
            .map(|problem| format!("of another mode, ignored: {problem}")),
    );
    without_effect(
        &mut document,
        arguments,
        (file.is_some(), config.mode),
        &mut warnings,
    );
    for field in document.unknown() {
        let line = file.as_ref().and_then(|(_, text)| line_of(text, &field));
        let line = line
            .map(|line| format!(" (line {line})"))
            .unwrap_or_default();
        let what = if field.starts_with("featureGates.") {
            "feature gate here"
        } else {
            "field"
        };
        warnings.push(format!(
            "{field}{line}: there is no such {what}; it is ignored"
        ));
    }
    if config.settings.detect_local == DetectLocal::ClusterCidr(Vec::new()) {
        let (mode, networks) = (
            document.name("detectLocalMode"),
            document.name("clusterCIDR"),
        );
        warnings.push(format!(
            "{mode} is ClusterCIDR, but {networks} is not given: pods cannot be told from others"
        ));
    }
    if config.mode != Mode::Iptables && names_loopback(&config.settings.node_ports) {
        let (name, mode) = (document.name("nodePortAddresses"), config.mode.name());
        warnings.push(format!(
            "{name}: in {mode} mode node ports do not answer on loopback addresses"
        ));
    }
    let problems = document.problems();
    if !problems.is_empty() {
        return Err(ConfigError::Invalid(problems));
    }
    config.resolved = document.resolved();
    config.file = file.map(|(path, _)| path);
    Ok(Loaded {
        config,
        task: task(arguments),
        warnings,
    })
}

fn names_loopback(node_ports: &NodePortSetting) -> bool {
    matches!(node_ports, NodePortSetting::Networks { networks, .. } if networks.iter().any(|network| network.addr().is_loopback()))
}

fn decode(path: &Path, text: &str) -> Result<Value, ConfigError> {
    let bad = |problem: String| ConfigError::Decode {
        path: path.to_owned(),
        problem,
    };
    let tree: Value = match text.trim_start().starts_with('{') {
        true => serde_json::from_str(text).map_err(|error| bad(error.to_string()))?,
        false => serde_saphyr::from_str(text).map_err(|error| bad(error.to_string()))?,
    };
    let found = (
        tree.get("apiVersion").and_then(Value::as_str),
        tree.get("kind").and_then(Value::as_str),
    );
    match found {
        (Some(API_VERSION), Some(KIND)) => Ok(tree),
        _ => Err(bad(format!(
            "it must begin with `apiVersion: {API_VERSION}` and `kind: {KIND}`"
        ))),
    }
}

fn task(arguments: &Arguments) -> Task {
    match arguments
        .text("write-config-to")
        .filter(|path| !path.is_empty())
    {
        Some(path) => Task::WriteConfig(path.into()),
        None if arguments.switch("cleanup") => Task::Cleanup,
        None if arguments.switch("init-only") => Task::InitOnly,
        None => Task::Run,
    }
}

/// Say what was set in vain, in one line.
fn without_effect(
    document: &mut Document,
    arguments: &Arguments,
    (file, mode): (bool, Mode),
    warnings: &mut Vec<String>,
) {
    let mut vain = Vec::new();
    for flag in flags::FLAGS.iter().filter(|flag| !flag.effect) {
        let given = arguments.text(flag.name).is_some();
        let mut set = given && flag.fields.is_empty();
        for field in flag.fields {
            set |= document.meaningless(field);
        }
        // The section of another mode in a file is not meant for this one.
        if set
            && (given
                || mode == Mode::Ipvs
                || !flag.fields.iter().all(|field| field.starts_with("ipvs.")))
        {
            let name = match (file && !given, flag.fields.first()) {
                (true, Some(field)) => (*field).to_owned(),
                _ => format!("--{}", flag.name),
            };
            vain.push(format!("{name} ({})", flag.help));
        }
    }
    for (field, why) in NO_EFFECT {
        if document.meaningless(field) {
            vain.push(format!("{field} ({why})"));
        }
    }
    if !vain.is_empty() {
        warnings.push(format!("set without effect: {}", vain.join(", ")));
    }
}

/// Fields of the file that are understood and mean nothing here.
pub fn fields_without_effect() -> impl Iterator<Item = &'static str> {
    let of_flags = flags::FLAGS
        .iter()
        .filter(|flag| !flag.effect)
        .flat_map(|flag| flag.fields.iter().copied());
    of_flags.chain(NO_EFFECT.iter().map(|(field, _)| *field))
}

/// The line of a field, as well as it can be told without a parser that keeps positions.
fn line_of(text: &str, path: &str) -> Option<usize> {
    let mut lines = text.lines().enumerate();
    let mut found = None;
    for key in path.split('.') {
        let here = |line: &str| {
            let line = line
                .trim_start_matches([' ', '\t', '{', ',', '-'])
                .trim_start_matches('"');
            line.strip_prefix(key)
                .is_some_and(|rest| rest.trim_start_matches('"').trim_start().starts_with(':'))
        };
        found = Some(lines.find(|(_, line)| here(line))?.0 + 1);
    }
    found
}

#[cfg(test)]
mod tests;
