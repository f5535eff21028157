//! Which way fits the node, and why.

use super::Wanted;
use super::kube_proxy::{self, service_chain};
use clap::ValueEnum;
use portico_dataplane::iptables::Programs;
use portico_model::table::Family;
use serde::{Deserialize, Serialize};

/// How to forward.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// By what is on the node.
    #[default]
    Auto,
    /// Portico's node daemon does it.
    Portico,
    /// Beside kube-proxy in iptables mode.
    Iptables,
    /// Beside kube-proxy in IPVS mode.
    Ipvs,
    /// Straight to the servers, by nftables.
    Direct,
    /// Through HAProxy on this node.
    Haproxy,
}

impl Mode {
    /// All that forward.
    pub(super) const WAYS: [Mode; 3] = [Mode::Iptables, Mode::Ipvs, Mode::Direct];
}

/// A way and why it fits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    pub mode: Mode,
    pub why: String,
}

/// The link that holds cluster IPs where IPVS serves them.
const IPVS_LINK: &str = "kube-ipvs0";

/// What is on the node, as far as it matters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Surroundings {
    /// Which `iptables` has kube-proxy's chain of the API server.
    pub kube_proxy_chain: Option<String>,
    pub ipvs_link: bool,
}

impl Surroundings {
    pub fn look(wanted: &Wanted, programs: &[Programs]) -> Surroundings {
        let families: Vec<Family> = wanted.routes().map(|route| route.family).collect();
        let serving = |programs: &&Programs| families.iter().any(|family| kube_proxy::serves(programs, *family));
        Surroundings {
            kube_proxy_chain: programs.iter().find(serving).map(|programs| programs.name(Family::V4, "")),
            ipvs_link: has_link(IPVS_LINK),
        }
    }
}

fn has_link(name: &str) -> bool {
    let links = std::fs::read_to_string("/proc/thread-self/net/dev").unwrap_or_default();
    links.lines().any(|line| line.trim_start().strip_prefix(name).is_some_and(|rest| rest.starts_with(':')))
}

/// The best first. The last one needs nobody.
pub fn choices(found: &Surroundings) -> Vec<Choice> {
    let mut choices = Vec::new();
    let mut fits = |mode, why: String| choices.push(Choice { mode, why });
    if let Some(program) = &found.kube_proxy_chain {
        fits(Mode::Iptables, format!("kube-proxy's chain {} is in {program}", service_chain(Family::V4)));
    }
    if found.ipvs_link {
        fits(Mode::Ipvs, format!("there is a link {IPVS_LINK}, where IPVS serves cluster IPs"));
    }
    fits(Mode::Direct, "no proxy was found on this node".to_owned());
    choices
}
