//! Which dataplane a mode has, and what the others leave behind. The only place that names them.

use crate::config::{Config, Mode};
use crate::disturbances::Disturbances;
use crate::sysctl;
use portico_dataplane::early_packets::{EarlyPacketQueue, Queue};
use portico_dataplane::iptables::{self, Iptables, Variant};
use portico_dataplane::ipvs::{self, Ipvs};
use portico_dataplane::nftables::{self, Nftables, Table, remove_kube_proxy_nftables};
use portico_dataplane::{ApplyError, Dataplane, Differences, FoundEdge};
use portico_model::table::{Family, ForwardingTable, FrontendKey};
use std::path::Path;

/// A dataplane, with what the kernel tells of it where it can.
pub(crate) struct Opened {
    pub dataplane: Box<dyn Dataplane>,
    /// Tells when another program changes its rules; `None` where the kernel cannot tell.
    pub disturbances: Option<Disturbances>,
    /// Where packets wait that come before their Service.
    pub early_packets: Option<EarlyPacketQueue>,
    pub others: Others,
}

/// The dataplanes that are not the one that is open.
#[derive(Clone, Copy)]
pub(crate) struct Others {
    mode: Mode,
    /// Which programs of iptables are used, if any.
    variant: Option<Variant>,
}

impl Opened {
    fn only(mode: Mode, dataplane: impl Dataplane + 'static, variant: Option<Variant>) -> Self {
        let others = Others { mode, variant };
        Self {
            dataplane: Box::new(dataplane),
            disturbances: None,
            early_packets: None,
            others,
        }
    }
}

pub(crate) fn open(config: &Config) -> Result<Opened, ApplyError> {
    match config.mode {
        Mode::Nftables => {
            let (early_packets, queue) = open_doorstep().unzip();
            let nftables = Nftables::open(Table {
                early_packets: queue,
                ..Table::NODE
            })?;
            let disturbances = nftables.watch().map(Disturbances::new).transpose();
            let disturbances = disturbances
                .inspect_err(|error| tracing::warn!(%error, "cannot watch who else changes rules"))
                .ok()
                .flatten();
            Ok(Opened {
                disturbances,
                early_packets,
                ..Opened::only(config.mode, nftables, None)
            })
        }
        Mode::Iptables => {
            let iptables = Iptables::new(iptables_options(config))?;
            let variant = iptables.variant();
            tracing::info!(?variant, "using iptables");
            Ok(Opened::only(config.mode, iptables, Some(variant)))
        }
        Mode::Ipvs => {
            let ipvs = Ipvs::open(&ipvs_options(config))?;
            let variant = ipvs.variant();
            Ok(Opened::only(config.mode, ipvs, Some(variant)))
        }
    }
}

/// Without a queue in the kernel, packets that come before their Service are refused or lost, and
/// their clients try again.
fn open_doorstep() -> Option<(EarlyPacketQueue, Queue)> {
    let way = nftables::way_to_wait().ok().flatten()?;
    match EarlyPacketQueue::open() {
        Ok(early_packets) => {
            let queue = Queue {
                number: early_packets.number(),
                way,
            };
            Some((early_packets, queue))
        }
        Err(error) => {
            tracing::info!(%error, "packets that come before their Service cannot wait for it");
            None
        }
    }
}

/// How the kernel differs from a table, as seen by a process that is not the daemon. Changes
/// nothing.
pub(crate) fn compare(
    config: &Config,
    table: &ForwardingTable,
    frontend: &FrontendKey,
) -> Result<Differences, ApplyError> {
    match config.mode {
        Mode::Nftables => Nftables::open(Table::NODE)?.compare(table, frontend),
        Mode::Iptables => Iptables::new(iptables_options(config))?.compare(table, frontend),
        Mode::Ipvs => Ipvs::open_to_look(&ipvs_options(config))?.compare(table, frontend),
    }
}

/// The edge as it is in the kernel, if it is there.
pub(crate) fn edge(config: &Config) -> Result<Option<FoundEdge>, ApplyError> {
    match config.mode {
        Mode::Nftables => Nftables::open(Table::NODE)?.edge(),
        Mode::Iptables | Mode::Ipvs => Ok(None),
    }
}

/// The mode whose rules are in the kernel.
pub(crate) fn installed() -> Result<Option<Mode>, ApplyError> {
    if Nftables::open(Table::NODE)?.is_installed()? {
        return Ok(Some(Mode::Nftables));
    }
    // The rules of ipvs mode look like those of iptables mode.
    Ok(match (ipvs::present(), iptables::present()) {
        (true, _) => Some(Mode::Ipvs),
        (false, true) => Some(Mode::Iptables),
        (false, false) => None,
    })
}

/// What others have in the way of packets, as far as it can be told; what cannot be read is left
/// out.
pub(crate) fn in_the_way(mode: Mode, family: Family) -> Vec<String> {
    let mut words = nftables::in_the_way(family).unwrap_or_default();
    if nftables::has_table(family, "kube-proxy").unwrap_or_default() {
        words.push("kube-proxy's nftables rules are there as well".to_owned());
    }
    if mode == Mode::Nftables && iptables::present() {
        words.push("rules of kube-proxy's iptables mode are there as well".to_owned());
    }
    words
}

fn iptables_options(config: &Config) -> iptables::Options {
    let liberal = config.sysctls.tcp_be_liberal || sysctl::tcp_is_liberal(Path::new("/"));
    iptables::Options {
        variant: None,
        liberal,
    }
}

fn ipvs_options(config: &Config) -> ipvs::Options {
    let ipvs = config.ipvs.clone();
    ipvs::Options {
        scheduler: ipvs.scheduler,
        excluded: ipvs.excluded,
        strict_arp: ipvs.strict_arp,
        tcp_timeout: ipvs.tcp_timeout,
        tcp_fin_timeout: ipvs.tcp_fin_timeout,
        udp_timeout: ipvs.udp_timeout,
        variant: None,
    }
}

/// The link whose addresses are not the node's but those of Services.
pub(crate) const LINK: &str = ipvs::LINK;

impl Others {
    /// Remove what kube-proxy, or we ourselves in another mode, left behind. In iptables mode the
    /// chains are kube-proxy's own. Says whether there was anything.
    pub(crate) fn remove(self) -> Result<bool, ApplyError> {
        let tables = remove_kube_proxy_nftables();
        if let Ok(removed @ 1..) = &tables {
            tracing::info!(tables = removed, "removed kube-proxy's nftables rules");
        }
        let mut others = match self.mode {
            Mode::Nftables => vec![remove_iptables(), remove_ipvs()],
            Mode::Iptables => vec![remove_nftables(), remove_ipvs()],
            Mode::Ipvs => vec![remove_nftables()],
        };
        // What is in our variant went when ours were installed: the chains are the same.
        others.extend(self.variant.map(remove_other_variant));
        let mut found = tables? > 0;
        for other in others {
            found |= other?;
        }
        Ok(found)
    }
}

fn remove_iptables() -> Result<bool, ApplyError> {
    let found = iptables::present();
    if found {
        iptables::remove_all_iptables()?;
        tracing::info!("removed the rules of iptables mode");
    }
    Ok(found)
}

fn remove_other_variant(used: Variant) -> Result<bool, ApplyError> {
    let found = iptables::remove_unused_variant(used)?;
    if found {
        tracing::info!(
            "removed the rules of iptables mode from the variant of iptables that is not used"
        );
    }
    Ok(found)
}

fn remove_ipvs() -> Result<bool, ApplyError> {
    let found = ipvs::present();
    if found {
        ipvs::remove_leftovers()?;
        tracing::info!("removed the virtual servers of ipvs mode");
    }
    Ok(found)
}

fn remove_nftables() -> Result<bool, ApplyError> {
    let mut nftables = Nftables::open(Table::NODE)?;
    let found = nftables.is_installed()?;
    if found {
        nftables.remove()?;
        tracing::info!("removed the rules of nftables mode");
    }
    Ok(found)
}

/// Remove the rules of all modes, kube-proxy's as well. Goes on where one cannot be removed;
/// nothing there is no error.
pub fn remove_all() -> Result<(), ApplyError> {
    let tables = [
        remove_kube_proxy_nftables().map(drop),
        remove_nftables().map(drop),
    ];
    // Sets can be removed when no rule looks into them.
    let rest = [iptables::remove_all_iptables(), remove_ipvs().map(drop)];
    tables.into_iter().chain(rest).fold(Ok(()), Result::and)
}
