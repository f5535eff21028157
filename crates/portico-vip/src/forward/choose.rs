//! Which way fits the node, and why.

use super::Wanted;
use super::kube_proxy::{self, service_chain};
use super::node;
use clap::ValueEnum;
use portico_dataplane::iptables::Programs;
use portico_dataplane::nftables;
use portico_model::table::Family;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// How to forward.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ValueEnum,
)]
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
    pub(super) const WAYS: [Self; 5] = [
        Self::Portico,
        Self::Iptables,
        Self::Ipvs,
        Self::Direct,
        Self::Haproxy,
    ];
}

/// A way and why it fits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Choice {
    pub mode: Mode,
    pub why: String,
}

/// The link that holds cluster IPs where IPVS serves them.
const IPVS_LINK: &str = "kube-ipvs0";
/// What kube-proxy calls its nftables table.
const KUBE_PROXY_TABLE: &str = "kube-proxy";

/// What is on the node, as far as it matters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Surroundings {
    /// The mode of Portico's node daemon, where it serves static Services.
    pub node_daemon: Option<String>,
    /// Which `iptables` has kube-proxy's chain of the API server.
    pub kube_proxy_chain: Option<String>,
    pub ipvs_link: bool,
    /// kube-proxy's own table, in nftables mode.
    pub kube_proxy_table: bool,
}

impl Surroundings {
    pub(super) fn look(wanted: &Wanted, programs: &[Programs], static_services: &Path) -> Self {
        let families: Vec<Family> = wanted.routes().map(|route| route.family).collect();
        let serving = |programs: &&Programs| {
            families
                .iter()
                .any(|family| kube_proxy::serves(programs, *family))
        };
        Self {
            node_daemon: node::daemon(static_services).map(|installed| installed.mode),
            kube_proxy_chain: programs
                .iter()
                .find(serving)
                .map(|programs| programs.name(Family::V4, "")),
            ipvs_link: has_link(IPVS_LINK),
            kube_proxy_table: families
                .iter()
                .any(|family| nftables::has_table(*family, KUBE_PROXY_TABLE).unwrap_or_default()),
        }
    }
}

fn has_link(name: &str) -> bool {
    let links = std::fs::read_to_string("/proc/thread-self/net/dev").unwrap_or_default();
    links.lines().any(|line| {
        line.trim_start()
            .strip_prefix(name)
            .is_some_and(|rest| rest.starts_with(':'))
    })
}

/// The best first. The last one needs no other program.
pub(super) fn choices(found: &Surroundings) -> Vec<Choice> {
    let mut choices = Vec::new();
    let mut fits = |mode, why: String| choices.push(Choice { mode, why });
    // In IPVS mode an address that is served is on a link of every node, so the owner would not be
    // the only node with it.
    if let Some(mode) = found.node_daemon.as_ref().filter(|mode| *mode != "ipvs") {
        fits(
            Mode::Portico,
            format!("Portico's node daemon ({mode}) serves static Services"),
        );
    }
    if let Some(program) = &found.kube_proxy_chain {
        fits(
            Mode::Iptables,
            format!(
                "kube-proxy's chain {} is in {program}",
                service_chain(Family::V4)
            ),
        );
    }
    if found.ipvs_link {
        fits(
            Mode::Ipvs,
            format!("there is a link {IPVS_LINK}, where IPVS serves cluster IPs"),
        );
    }
    let why = match found.kube_proxy_table {
        // Its chains can be reached from its own table alone.
        true => {
            "kube-proxy is in nftables mode, where nothing can lead to its rules, so the servers \
             are reached without it"
        }
        false => "no proxy was found on this node",
    };
    fits(Mode::Direct, why.to_owned());
    choices
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_decides() {
        let found = |node: &str, chain: bool, ipvs_link| Surroundings {
            node_daemon: Some(node)
                .filter(|node| !node.is_empty())
                .map(str::to_owned),
            kube_proxy_chain: chain.then(|| "iptables-nft".to_owned()),
            ipvs_link,
            kube_proxy_table: false,
        };
        use Mode::{Direct, Iptables, Ipvs, Portico};
        for (surroundings, expected) in [
            (found("", false, false), vec![Direct]),
            (found("nftables", false, false), vec![Portico, Direct]),
            (
                found("iptables", true, false),
                vec![Portico, Iptables, Direct],
            ),
            (found("ipvs", false, true), vec![Ipvs, Direct]),
            (found("", true, false), vec![Iptables, Direct]),
            (found("", false, true), vec![Ipvs, Direct]),
        ] {
            let modes: Vec<Mode> = choices(&surroundings)
                .iter()
                .map(|choice| choice.mode)
                .collect();
            assert_eq!(modes, expected, "{surroundings:?}");
        }
        assert_eq!(
            choices(&found("", true, false))[0].why,
            "kube-proxy's chain KUBE-SVC-NPX46M4PTMTKRN6Y is in iptables-nft"
        );
        let beside_nftables = Surroundings {
            kube_proxy_table: true,
            ..Surroundings::default()
        };
        let choices = choices(&beside_nftables);
        assert_eq!((choices.len(), choices[0].mode), (1, Direct));
        assert!(choices[0].why.starts_with("kube-proxy is in nftables mode"));
    }

    #[test]
    fn modes_are_written_in_lower_case() {
        for mode in Mode::value_variants() {
            let name = mode.to_possible_value().unwrap().get_name().to_owned();
            assert_eq!(serde_json::from_value::<Mode>(name.into()).unwrap(), *mode);
        }
    }

    #[test]
    fn links_are_known_by_their_whole_name() {
        assert!(has_link("lo") && !has_link("l") && !has_link("lo2"));
    }
}
