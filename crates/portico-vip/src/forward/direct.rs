//! No proxy at all: nftables translates the virtual address straight to the servers, in a table of
//! its own.
//!
//! The rules are those of the nftables dataplane, with a table that has one Service: its frontends
//! are the virtual addresses, its endpoints the servers. All clients are masqueraded, so nothing
//! has to be known of the node and its pods.

use super::route::{self, Route};
use super::{ForwardError, Forwarder, Wanted};
use portico_dataplane::Dataplane;
use portico_dataplane::nftables::{Nftables, Table};
use portico_model::key::ObjectKey;
use portico_model::table::{
    Endpoint, Family, ForwardingTable, Frontend, FrontendKind, Masquerade, NodeRules, Outcome,
    PortKey, Protocol, ServicePort,
};
use std::net::SocketAddr;
use std::process::Command;
use std::sync::Arc;

const TABLE: Table = Table::small("portico-vip");

pub(super) struct Direct {
    translation: Translation,
}

impl Direct {
    pub(super) fn open(masquerade_mark: u32) -> Result<Self, ForwardError> {
        Ok(Self {
            translation: Translation::open(TABLE, masquerade_mark)?,
        })
    }
}

impl Forwarder for Direct {
    fn name(&self) -> &'static str {
        "direct"
    }

    fn apply(&mut self, wanted: &Wanted) -> Result<(), ForwardError> {
        let routes: Vec<Route> = wanted.open_routes().collect();
        routes.iter().for_each(route::let_packets_pass);
        self.translation.set(
            routes
                .into_iter()
                .map(|route| (route.family, route.frontends, route.eligible)),
        )
    }

    fn rules(&mut self) -> Result<Vec<String>, ForwardError> {
        Ok(self.translation.rules())
    }

    fn remove(&mut self) -> Result<(), ForwardError> {
        self.translation.remove()
    }
}

/// Addresses that are translated to others, by nftables.
pub(super) struct Translation {
    table: Table,
    nftables: Nftables,
    masquerade_mark: u32,
    installed: ForwardingTable,
}

impl Translation {
    pub(super) fn open(table: Table, masquerade_mark: u32) -> Result<Self, ForwardError> {
        let nftables = Nftables::open(table)?;
        Ok(Self {
            table,
            nftables,
            masquerade_mark,
            installed: ForwardingTable::default(),
        })
    }

    /// Forwards these addresses to those servers, in each family.
    pub(super) fn set(
        &mut self,
        routes: impl IntoIterator<Item = (Family, Vec<SocketAddr>, Vec<SocketAddr>)>,
    ) -> Result<(), ForwardError> {
        let wanted = table(routes, self.masquerade_mark);
        let report = self.nftables.replace(&wanted)?;
        for difference in &report.drift {
            tracing::warn!(difference, "rules were changed by somebody else, repaired");
        }
        self.installed = wanted;
        Ok(())
    }

    /// As `nft` prints them where it is installed; the part that is not always the same.
    pub(super) fn rules(&self) -> Vec<String> {
        let mut rules = Vec::new();
        for (key, port) in self.installed.ports.iter() {
            let (family, table) = (
                if key.family == Family::V4 {
                    "ip"
                } else {
                    "ip6"
                },
                self.table.name,
            );
            let endpoints = port
                .cluster
                .iter()
                .map(|endpoint| SocketAddr::new(endpoint.address, endpoint.port));
            let endpoints = endpoints
                .map(|address| address.to_string())
                .collect::<Vec<_>>()
                .join(", ");
            for frontend in &port.frontends {
                let at = frontend
                    .address
                    .map(|address| SocketAddr::new(address, frontend.port));
                rules.extend(at.map(|at| format!("table {family} {table}: {at} to {endpoints}")));
            }
            rules.extend(
                ["frontends", "endpoints"]
                    .into_iter()
                    .flat_map(|map| listed(family, table, map)),
            );
        }
        rules
    }

    pub(super) fn remove(&mut self) -> Result<(), ForwardError> {
        self.installed = ForwardingTable::default();
        Ok(self.nftables.remove()?)
    }
}

fn listed(family: &str, table: &str, map: &str) -> Vec<String> {
    let printed = Command::new("nft")
        .args(["list", "map", family, table, map])
        .output();
    let text = printed
        .ok()
        .filter(|output| output.status.success())
        .map(|output| output.stdout)
        .unwrap_or_default();
    let text = String::from_utf8_lossy(&text).into_owned();
    let elements = text
        .lines()
        .map(str::trim)
        .skip_while(|line| !line.starts_with("elements"));
    elements
        .take_while(|line| *line != "}")
        .map(|line| format!("map {family} {table} {map}: {line}"))
        .collect()
}

/// One Service: the first are its frontends, the second its endpoints.
fn table(
    routes: impl IntoIterator<Item = (Family, Vec<SocketAddr>, Vec<SocketAddr>)>,
    masquerade_mark: u32,
) -> ForwardingTable {
    let ports = routes.into_iter().map(|(family, frontends, endpoints)| {
        let service = ObjectKey::new("portico", "vip");
        let key = PortKey {
            service,
            port: Arc::default(),
            protocol: Protocol::Tcp,
            family,
        };
        let mut cluster: Vec<Endpoint> = endpoints.iter().map(endpoint).collect();
        cluster.sort_unstable();
        let frontends = frontends.iter().map(frontend).collect();
        (
            key,
            Arc::new(ServicePort {
                frontends,
                cluster: cluster.into(),
                ..ServicePort::default()
            }),
        )
    });
    ForwardingTable::new(
        NodeRules {
            masquerade_mark,
            ..NodeRules::default()
        },
        ports.collect(),
    )
}

fn frontend(at: &SocketAddr) -> Frontend {
    Frontend {
        kind: FrontendKind::ExternalIp,
        address: Some(at.ip()),
        port: at.port(),
        inside: Outcome::Cluster,
        outside: Outcome::Cluster,
        masquerade: Masquerade::Always,
        sources: None,
    }
}

fn endpoint(at: &SocketAddr) -> Endpoint {
    Endpoint {
        address: at.ip(),
        port: at.port(),
        local: false,
    }
}
