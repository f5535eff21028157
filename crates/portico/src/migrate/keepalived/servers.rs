//! A `virtual_server` becomes a Service with its EndpointSlice, or the API servers of
//! `portico vip`. Pure.

use super::super::report::{Document, Remark};
use super::lost;
use super::syntax::Statement;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

/// The port of API servers.
const API_PORT: u16 = 6443;

pub(super) struct VirtualServer {
    address: IpAddr,
    pub port: u16,
    protocol: String,
    affinity: Option<u64>,
    real: Vec<RealServer>,
    remarks: Vec<Remark>,
}

struct RealServer {
    at: SocketAddr,
    /// As the flag of `portico expose` has it.
    check: Option<String>,
}

impl VirtualServer {
    pub(super) fn read(statement: &Statement) -> Result<Self, String> {
        let address = match statement.word(1) {
            "fwmark" | "group" => {
                return Err(
                    "servers by firewall mark or group have no equivalent; write one \
                     virtual_server for each address"
                        .to_owned(),
                );
            }
            text => text
                .parse()
                .map_err(|_| format!("{text:?} is no address"))?,
        };
        let port = statement
            .word(2)
            .parse()
            .map_err(|_| format!("{:?} is no port", statement.word(2)))?;
        let mut server = Self {
            address,
            port,
            protocol: "TCP".to_owned(),
            affinity: None,
            real: Vec::new(),
            remarks: Vec::new(),
        };
        for inner in statement.block() {
            server.setting(inner)?;
        }
        Ok(server)
    }

    fn setting(&mut self, statement: &Statement) -> Result<(), String> {
        let value = statement.word(1);
        let at = format!("line {}: {}", statement.line, statement.text());
        match statement.keyword() {
            "protocol" => self.protocol = value.to_ascii_uppercase(),
            "persistence_timeout" => self.affinity = value.parse().ok(),
            "lb_algo" | "lvs_sched" if matches!(value, "rr" | "wrr") => {}
            "lb_algo" | "lvs_sched" => {
                self.remarks.push(Remark::Note(format!(
                    "{at}: endpoints are chosen at random; `portico node --proxy-mode ipvs \
                     --ipvs-scheduler {value}` chooses so for all Services"
                )));
            }
            "lb_kind" | "lvs_method" if value == "NAT" => {}
            "lb_kind" | "lvs_method" => {
                self.remarks.push(Remark::Warning(format!(
                    "{at}: packets are translated (NAT), and answers come back through the node"
                )));
            }
            "delay_loop" => self.remarks.push(Remark::Note(format!(
                "{at}: `portico expose --interval {value}s` checks so often"
            ))),
            "real_server" => self.real_server(statement)?,
            _ => self.remarks.push(Remark::Warning(lost(statement))),
        }
        Ok(())
    }

    fn real_server(&mut self, statement: &Statement) -> Result<(), String> {
        let address: IpAddr = statement
            .word(1)
            .parse()
            .map_err(|_| format!("{:?} is no address", statement.word(1)))?;
        let port = match statement.word(2) {
            "" => self.port,
            text => text.parse().map_err(|_| format!("{text:?} is no port"))?,
        };
        let mut real = RealServer {
            at: SocketAddr::new(address, port),
            check: None,
        };
        for inner in statement.block() {
            match inner.keyword() {
                "TCP_CHECK" => real.check = Some("tcp".to_owned()),
                "HTTP_GET" => real.check = Some(format!("http:{}", path(inner))),
                "SSL_GET" => real.check = Some(format!("https:{}", path(inner))),
                "weight" if inner.word(1) == "1" => {}
                "weight" => self.remarks.push(Remark::Warning(format!(
                    "line {}: {}: all endpoints are alike",
                    inner.line,
                    inner.text()
                ))),
                _ => self.remarks.push(Remark::Warning(lost(inner))),
            }
        }
        self.real.push(real);
        Ok(())
    }

    pub(super) fn address(&self) -> IpAddr {
        self.address
    }

    pub(super) fn targets(&self) -> Vec<SocketAddr> {
        self.real.iter().map(|real| real.at).collect()
    }

    /// Balances API servers on one of these addresses.
    pub(super) fn is_api(&self, addresses: &[IpAddr]) -> bool {
        let usual =
            self.port == API_PORT || self.real.iter().any(|real| real.at.port() == API_PORT);
        addresses.contains(&self.address) && self.protocol == "TCP" && usual
    }

    pub(super) fn remarks_for_vip(mut self) -> Vec<Remark> {
        let at = format!("virtual_server {} {}", self.address, self.port);
        self.remarks.push(Remark::Note(format!(
            "{at}: its real servers are apiServers, and are asked for /readyz over TLS. With \
             `kubeconfig` instead they are found by themselves"
        )));
        if let Some(seconds) = self.affinity {
            self.remarks.push(Remark::Warning(format!(
                "{at}: persistence_timeout {seconds} has no equivalent for API servers"
            )));
        }
        self.remarks
    }

    /// The Service, and where its traffic goes. Nodes attract the traffic to addresses that are
    /// `announced`; others they have already.
    pub(super) fn finish(mut self, announced: &BTreeSet<IpAddr>) -> Vec<Document> {
        let protocol = self.protocol.clone();
        let name = super::super::report::object_name(
            &format!("vs-{}-{}-{protocol}", self.address, self.port).replace([':', '.'], "-"),
        );
        let mut metadata = json!({"name": name});
        let mut spec = json!({
            "ports": [{"name": "main", "port": self.port, "protocol": protocol}],
        });
        if announced.contains(&self.address) {
            let address = self.address.to_string();
            // Virtual servers on other ports have the same address.
            metadata["annotations"] = json!({
                "portico.dev/addresses": address,
                "portico.dev/allow-shared-ip": address,
            });
            spec["type"] = "LoadBalancer".into();
        } else {
            spec["externalIPs"] = json!([self.address]);
        }
        if let Some(seconds) = self.affinity.map(|seconds| seconds.clamp(1, 86400)) {
            spec["sessionAffinity"] = "ClientIP".into();
            spec["sessionAffinityConfig"] = json!({"clientIP": {"timeoutSeconds": seconds}});
        }
        self.remarks.extend(self.health(&name));
        let service =
            json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec});
        let mut out = vec![Document {
            remarks: std::mem::take(&mut self.remarks),
            content: service,
        }];
        for (number, (v4, port)) in self.groups().into_iter().enumerate() {
            let here = self
                .real
                .iter()
                .filter(|real| real.at.is_ipv4() == v4 && real.at.port() == port);
            let endpoints: Vec<Value> = here
                .map(|real| json!({"addresses": [real.at.ip()]}))
                .collect();
            let slice = json!({
                "apiVersion": "discovery.k8s.io/v1",
                "kind": "EndpointSlice",
                "metadata": {"name": format!("{name}-{}", number + 1), "labels": {"kubernetes.io/service-name": name}},
                "addressType": if v4 { "IPv4" } else { "IPv6" },
                "ports": [{"name": "main", "port": port, "protocol": protocol}],
                "endpoints": endpoints,
            });
            out.push(Document {
                remarks: Vec::new(),
                content: slice,
            });
        }
        out
    }

    /// Endpoints of one slice have one family and one port.
    fn groups(&self) -> Vec<(bool, u16)> {
        let mut groups: Vec<(bool, u16)> = self
            .real
            .iter()
            .map(|real| (real.at.is_ipv4(), real.at.port()))
            .collect();
        groups.sort();
        groups.dedup();
        groups
    }

    /// The remark that says what replaces the health checks of this virtual server.
    fn health(&self, name: &str) -> Option<Remark> {
        let check = self.real.iter().find_map(|real| real.check.as_deref())?;
        let targets: Vec<String> = self.real.iter().map(|real| real.at.to_string()).collect();
        Some(Remark::Warning(format!(
            "health checks are no part of a Service: with an API server `portico expose {name} \
             --port {} --to {} --health {check}` makes this Service and checks it",
            self.port,
            targets.join(",")
        )))
    }
}

/// The path that a check asks for.
fn path(check: &Statement) -> &str {
    let urls = check
        .block()
        .iter()
        .filter(|inner| inner.keyword() == "url");
    let mut paths = urls
        .flat_map(Statement::block)
        .filter(|inner| inner.keyword() == "path");
    paths.next().map_or("/", |path| path.word(1))
}
