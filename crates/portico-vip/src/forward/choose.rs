//! Which way fits the node, and why.

use super::{ForwardSettings, Wanted};
use clap::ValueEnum;
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
    pub(super) const WAYS: [Mode; 1] = [Mode::Direct];
}

/// A way and why it fits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    pub mode: Mode,
    pub why: String,
}

/// What is on the node, as far as it matters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Surroundings {}

impl Surroundings {
    pub fn look(_wanted: &Wanted, _settings: &ForwardSettings) -> Surroundings {
        Surroundings::default()
    }
}

/// The best first. The last one needs nobody.
pub fn choices(_found: &Surroundings) -> Vec<Choice> {
    vec![Choice { mode: Mode::Direct, why: "no proxy was found on this node".to_owned() }]
}
