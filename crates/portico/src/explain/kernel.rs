//! The kernel of the node that is asked about: where it can be read, which program forwards there,
//! and how its rules differ from the table.

use super::Settings;
use crate::lab::control::{self, Order};
use portico_model::table::{ForwardingTable, FrontendKey};
use portico_node::config::Config;
use portico_node::inspect::{self, Differences, FoundEdge, Known};
use std::net::IpAddr;
use std::path::PathBuf;

/// Where the node is, as seen from this process.
pub(super) struct Place {
    /// None: this process is on the node.
    namespace: Option<PathBuf>,
    addresses: Vec<IpAddr>,
    /// The configuration of the daemon, if one answers.
    daemon: Option<Config>,
}

impl Place {
    /// On this machine, or in a lab. Otherwise says why not, and what to do.
    pub(super) fn find(node: &str, wanted: &[IpAddr], lab: Option<&str>) -> Result<Self, String> {
        let is_it = |addresses: &[IpAddr]| wanted.iter().any(|own| addresses.contains(own));
        let here = Self::open(None)?;
        if lab.is_none() && is_it(&here.addresses) {
            return Ok(here);
        }
        // A demo that happens to run has nodes of the same names and addresses as other clusters.
        let Some(lab) = lab else {
            return Err(format!("this is not {node}: {}", advice(node)));
        };
        let path = control::socket(lab)
            .and_then(|socket| control::ask(&socket, &Order::Namespace(node.to_owned())))
            .map_err(|error| format!("{error:#}"))?;
        let place = Self::open(Some(path.trim().into()))?;
        match is_it(&place.addresses) {
            true => Ok(place),
            false => Err(format!(
                "the lab's {node} is another node: {}",
                advice(node)
            )),
        }
    }

    fn open(namespace: Option<PathBuf>) -> Result<Self, String> {
        let mut place = Self {
            namespace,
            addresses: Vec::new(),
            daemon: None,
        };
        let (addresses, daemon) = place.on_node(|| (inspect::addresses(), inspect::daemon()))?;
        place.addresses =
            addresses.map_err(|error| format!("cannot list the addresses of the node: {error}"))?;
        place.daemon = daemon;
        Ok(place)
    }

    pub(super) fn addresses(&self) -> Vec<IpAddr> {
        self.addresses.clone()
    }

    pub(super) fn daemon_runs(&self) -> bool {
        self.daemon.is_some()
    }

    /// The configuration of the daemon; where none runs, what its rules and the flags say. `None`:
    /// there are no rules either.
    pub(super) fn config(&self, node: &str, settings: &Settings) -> Result<Option<Config>, String> {
        if let Some(config) = &self.daemon {
            return Ok(Some(config.clone()));
        }
        let Some(mode) = self.on_node(inspect::installed)?.map_err(explained)? else {
            return Ok(None);
        };
        let Settings {
            cluster_cidr,
            masquerade_all,
        } = settings;
        let known = Known {
            node,
            mode,
            cluster_cidr,
            masquerade_all: *masquerade_all,
        };
        inspect::assumed(&known)
            .map(Some)
            .map_err(|error| error.to_string())
    }

    /// What differs, and what others have in the way.
    pub(super) fn compare(
        &self,
        config: &Config,
        table: &ForwardingTable,
        frontend: &FrontendKey,
    ) -> Result<(Differences, Vec<String>), String> {
        let look = || {
            (
                inspect::compare(config, table, frontend),
                inspect::in_the_way(config.mode, frontend.family),
            )
        };
        let (differences, in_the_way) = self.on_node(look)?;
        Ok((differences.map_err(explained)?, in_the_way))
    }

    /// Of which addresses connections are shared out among nodes there.
    pub(super) fn edge(&self, config: &Config) -> Result<Option<FoundEdge>, String> {
        self.on_node(|| inspect::edge(config))?.map_err(explained)
    }

    fn on_node<T: Send>(&self, job: impl FnOnce() -> T + Send) -> Result<T, String> {
        match &self.namespace {
            None => Ok(job()),
            Some(path) => portico_netns::inside(path, job).map_err(|error| {
                format!(
                    "cannot enter the node's network ({}): {error}; use sudo",
                    path.display()
                )
            }),
        }
    }
}

fn advice(node: &str) -> String {
    format!("run this on {node} as root, or in a lab with --lab NAME")
}

pub(super) fn nothing_installed(node: &str) -> String {
    format!(
        "there is nothing of Portico in it, and portico node does not answer: start portico node \
         on {node}"
    )
}

fn explained(error: impl std::fmt::Display) -> String {
    let text = error.to_string();
    match text.contains("Operation not permitted") || text.contains("os error 1)") {
        true => format!("{text}: only root may look, use sudo"),
        false => text,
    }
}
