//! The two ends of a packet, as people name them, and which node it reaches.

use anyhow::{Context, bail};
use portico_model::explain::{Origin, Packet};
use portico_model::objects::{Node, Pod, Service};
use portico_model::table::Protocol;
use portico_view::Owners;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;
use std::sync::Arc;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum From {
    Address(IpAddr),
    Pod { namespace: String, name: String },
    Node(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum To {
    Address(SocketAddr, Protocol),
    Service {
        namespace: String,
        name: String,
        port: u16,
    },
}

impl FromStr for From {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(address) = text.parse() {
            return Ok(Self::Address(address));
        }
        match *text.split('/').collect::<Vec<_>>().as_slice() {
            ["pod", namespace, name] => Ok(Self::Pod {
                namespace: namespace.to_owned(),
                name: name.to_owned(),
            }),
            ["node", name] => Ok(Self::Node(name.to_owned())),
            _ => Err("write an address, pod/NAMESPACE/NAME or node/NAME".to_owned()),
        }
    }
}

impl FromStr for To {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong =
            || "write ADDRESS:PORT, ADDRESS:PORT/udp or service/NAMESPACE/NAME:PORT".to_owned();
        if let Some(rest) = text.strip_prefix("service/") {
            let (namespace, rest) = rest.split_once('/').ok_or_else(wrong)?;
            let (name, port) = rest.split_once(':').ok_or_else(wrong)?;
            let port = port.parse().map_err(|_| wrong())?;
            return Ok(Self::Service {
                namespace: namespace.to_owned(),
                name: name.to_owned(),
                port,
            });
        }
        let (address, protocol) = text.split_once('/').unwrap_or((text, "tcp"));
        let protocol = [Protocol::Tcp, Protocol::Udp, Protocol::Sctp]
            .into_iter()
            .find(|known| known.lower() == protocol);
        Ok(Self::Address(
            address.parse().map_err(|_| wrong())?,
            protocol.ok_or_else(wrong)?,
        ))
    }
}

pub(super) struct Cluster {
    pub nodes: Vec<Node>,
    pub pods: Vec<Pod>,
    pub services: Vec<Service>,
    /// Who has announced addresses.
    pub owners: Owners,
}

impl Cluster {
    /// The node that a packet reaches first, and the packet.
    pub(super) fn packet(
        &self,
        from: &From,
        to: &To,
        node: Option<&str>,
    ) -> anyhow::Result<(String, Packet)> {
        let (destination, protocol) = self.destination(to)?;
        let v6 = destination.is_ipv6();
        let (source, home, origin) = match from {
            From::Address(address) => self.source_by_address(*address),
            From::Pod { namespace, name } => self.source_by_pod(namespace, name, v6)?,
            From::Node(name) => (self.address_of(name, v6)?, Some(name.clone()), Origin::Node),
        };
        let for_node = || {
            self.nodes
                .iter()
                .find(|node| addresses(node).contains(&destination.ip()))
        };
        let first = || {
            self.nodes
                .iter()
                .map(|node| node.metadata.name.clone())
                .min()
        };
        let owner = || self.owner(destination.ip());
        let for_node = for_node().map(|node| node.metadata.name.clone());
        let node = match (node, home, for_node.or_else(owner)) {
            (Some(chosen), _, _) => self.node(chosen)?.metadata.name.clone(),
            (None, Some(home), _) => home,
            (None, None, Some(node)) => node,
            (None, None, None) => first().context("the API server knows no nodes")?,
        };
        let local: Arc<[IpAddr]> = addresses(self.node(&node)?).into();
        let packet = Packet {
            origin,
            source,
            source_port: None,
            destination: destination.ip(),
            port: destination.port(),
            protocol,
            local,
        };
        Ok((node, packet))
    }

    /// The node that a packet from outside reaches because it attracts the address's traffic.
    fn owner(&self, address: IpAddr) -> Option<String> {
        let owner = self.owners.of_address(address, &|_| true);
        let named = owner.node.or_else(|| owner.bgp.first().cloned())?;
        self.node(&named).ok().map(|_| named)
    }

    fn destination(&self, to: &To) -> anyhow::Result<(SocketAddr, Protocol)> {
        let (namespace, name, wanted) = match to {
            To::Address(address, protocol) => return Ok((*address, *protocol)),
            To::Service {
                namespace,
                name,
                port,
            } => (namespace, name, *port),
        };
        let found = self
            .services
            .iter()
            .find(|one| one.metadata.namespace == *namespace && one.metadata.name == *name);
        let service = found.with_context(|| format!("there is no Service {namespace}/{name}"))?;
        let port = service.spec.ports.iter().find(|port| port.port == wanted);
        let port = port.with_context(|| format!("{namespace}/{name} has no port {wanted}"))?;
        let address = service.spec.cluster_ip.parse().ok();
        let address = address.with_context(|| {
            format!("{namespace}/{name} has no cluster IP: name an endpoint's address")
        })?;
        let protocol = [Protocol::Tcp, Protocol::Udp, Protocol::Sctp].into_iter();
        let protocol = protocol
            .clone()
            .find(|known| known.lower().eq_ignore_ascii_case(&port.protocol));
        Ok((
            SocketAddr::new(address, wanted),
            protocol.unwrap_or(Protocol::Tcp),
        ))
    }

    fn source_by_address(&self, address: IpAddr) -> (IpAddr, Option<String>, Origin) {
        if let Some(node) = self
            .nodes
            .iter()
            .find(|node| addresses(node).contains(&address))
        {
            return (address, Some(node.metadata.name.clone()), Origin::Node);
        }
        let has = |pod: &&Pod| {
            pod.status
                .pod_ips
                .iter()
                .any(|own| own.ip.parse() == Ok(address))
        };
        let home = self
            .pods
            .iter()
            .find(has)
            .map(|pod| pod.spec.node_name.clone())
            .filter(|home| !home.is_empty());
        (address, home, from_outside())
    }

    fn source_by_pod(
        &self,
        namespace: &str,
        name: &str,
        v6: bool,
    ) -> anyhow::Result<(IpAddr, Option<String>, Origin)> {
        let found = self
            .pods
            .iter()
            .find(|one| one.metadata.namespace == namespace && one.metadata.name == name);
        let pod = found.with_context(|| format!("there is no Pod {namespace}/{name}"))?;
        let own = pod
            .status
            .pod_ips
            .iter()
            .filter_map(|own| own.ip.parse::<IpAddr>().ok())
            .find(|own| own.is_ipv6() == v6);
        let address = own.with_context(|| {
            format!("Pod {namespace}/{name} has no address of the destination's family")
        })?;
        if pod.spec.node_name.is_empty() {
            bail!("Pod {namespace}/{name} is on no node yet");
        }
        let origin = if pod.spec.host_network {
            Origin::Node
        } else {
            from_outside()
        };
        Ok((address, Some(pod.spec.node_name.clone()), origin))
    }

    fn node(&self, name: &str) -> anyhow::Result<&Node> {
        self.nodes
            .iter()
            .find(|node| node.metadata.name == name)
            .with_context(|| {
                let names: Vec<&str> = self
                    .nodes
                    .iter()
                    .map(|node| node.metadata.name.as_str())
                    .collect();
                format!("there is no node {name}: there are {}", names.join(", "))
            })
    }

    fn address_of(&self, node: &str, v6: bool) -> anyhow::Result<IpAddr> {
        let own = addresses(self.node(node)?)
            .into_iter()
            .find(|own| own.is_ipv6() == v6);
        own.with_context(|| format!("node {node} has no address of the destination's family"))
    }
}

/// Through an interface whose name the API server does not know.
fn from_outside() -> Origin {
    Origin::Interface("".into())
}

pub(super) fn addresses(node: &Node) -> Vec<IpAddr> {
    node.status
        .addresses
        .iter()
        .filter_map(|own| own.address.parse().ok())
        .collect()
}

#[cfg(test)]
mod tests;
