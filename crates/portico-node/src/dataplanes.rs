//! Which dataplane a mode has, and what the others leave behind. The only place that names them.

use crate::config::{Config, Mode};
use crate::disturbances::Disturbances;
use crate::sysctl;
use portico_dataplane::iptables::{self, Iptables};
use portico_dataplane::nftables::{Nftables, Table, remove_kube_proxy_nftables};
use portico_dataplane::{ApplyError, Dataplane};
use std::path::Path;

/// The dataplane, and who tells when somebody else changes its rules, where that can be told.
pub fn open(config: &Config) -> Result<(Box<dyn Dataplane>, Option<Disturbances>), ApplyError> {
    match config.mode {
        Mode::Nftables => {
            let nftables = Nftables::open(Table::NODE)?;
            let disturbances = nftables.watch().map(Disturbances::new).transpose();
            let disturbances = disturbances
                .inspect_err(|error| tracing::warn!(%error, "cannot watch who else changes rules"))
                .ok()
                .flatten();
            Ok((Box::new(nftables), disturbances))
        }
        Mode::Iptables => {
            let liberal = config.sysctls.tcp_be_liberal || sysctl::tcp_is_liberal(Path::new("/"));
            let iptables = Iptables::new(iptables::Options { variant: None, liberal })?;
            tracing::info!(variant = ?iptables.variant(), "using iptables");
            Ok((Box::new(iptables), None))
        }
    }
}

/// Remove what kube-proxy, or we ourselves in another mode, left behind. In iptables mode the chains are kube-proxy's own.
pub fn remove_others(mode: Mode) -> Result<(), ApplyError> {
    let tables = remove_kube_proxy_nftables();
    if let Ok(removed @ 1..) = &tables {
        tracing::info!(tables = removed, "removed kube-proxy's nftables rules");
    }
    let others = match mode {
        Mode::Nftables if !iptables::present() => Ok(()),
        Mode::Nftables => {
            iptables::remove_all_iptables().inspect(|()| tracing::info!("removed the rules of iptables mode"))
        }
        Mode::Iptables => remove_nftables(),
    };
    tables.map(drop).and(others)
}

fn remove_nftables() -> Result<(), ApplyError> {
    let mut nftables = Nftables::open(Table::NODE)?;
    if nftables.is_installed()? {
        nftables.remove()?;
        tracing::info!("removed the rules of nftables mode");
    }
    Ok(())
}

/// Remove the rules of all modes, kube-proxy's as well. Goes on where one cannot be removed; nothing there is no error.
pub fn remove_all() -> Result<(), ApplyError> {
    let results = [remove_kube_proxy_nftables().map(drop), remove_nftables(), iptables::remove_all_iptables()];
    results.into_iter().fold(Ok(()), Result::and)
}
