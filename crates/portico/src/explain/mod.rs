//! `portico explain`: where a packet would go, and why, by the table that a node would make from what the API server knows.

mod ends;

use crate::client::{self, Reader};
use clap::Args;
use ends::Cluster;
pub use ends::{From, To};
use ipnet::IpNet;
use portico_model::explain::explain;
use portico_model::index::{self, DetectLocal, Index, NodePortSetting};
use portico_model::objects::{EndpointSlice, Node, Service, ServiceCidr};
use std::path::PathBuf;

#[derive(Args)]
#[command(rename_all = "kebab-case")]
pub struct Arguments {
    /// How to reach the API server [default: $KUBECONFIG, ~/.kube/config or the pod's own].
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Who sends it: an address, pod/NAMESPACE/NAME or node/NAME.
    #[arg(long, value_name = "WHO")]
    from: From,
    /// Where to: ADDRESS:PORT[/tcp|udp|sctp], or service/NAMESPACE/NAME:PORT.
    #[arg(long, value_name = "WHERE")]
    to: To,
    /// The node that it reaches [default: the one that it comes from or is for, or the first].
    #[arg(long, value_name = "NAME")]
    node: Option<String>,
    #[command(flatten)]
    settings: Settings,
}

/// How the nodes were started, which the API server does not know.
#[derive(Args, Clone)]
#[command(rename_all = "kebab-case")]
#[group(id = "settings")]
pub struct Settings {
    /// The addresses of pods, as the nodes were told with the flag of this name [default: each node's own pod CIDRs].
    #[arg(long, value_name = "CIDR[,CIDR]", value_delimiter = ',')]
    cluster_cidr: Vec<IpNet>,
    /// Whether the nodes were told so.
    #[arg(long)]
    masquerade_all: bool,
}

pub fn run(arguments: Arguments) -> anyhow::Result<()> {
    crate::runtime()?.block_on(async {
        let client = client::from_kubeconfig(arguments.kubeconfig.clone()).await?;
        let reader = Reader { client, authorization: None };
        let Arguments { settings, from, to, node, .. } = &arguments;
        crate::print(&answer(&reader, settings, from, to, node.as_deref()).await?);
        Ok(())
    })
}

/// The way of a packet, for people.
pub async fn answer(
    reader: &Reader,
    settings: &Settings,
    from: &From,
    to: &To,
    node: Option<&str>,
) -> anyhow::Result<String> {
    let cluster = Cluster {
        nodes: reader.list("/api/v1/nodes").await?,
        pods: reader.list("/api/v1/pods").await?,
        services: reader.list("/api/v1/services").await?,
    };
    let (node, packet) = cluster.packet(from, to, node)?;
    let mut index = Index::new(settings.of(&node));
    cluster.services.into_iter().for_each(|service: Service| index.apply_service(service));
    let slices: Vec<EndpointSlice> = reader.list("/apis/discovery.k8s.io/v1/endpointslices").await?;
    slices.into_iter().for_each(|slice| index.apply_slice(slice));
    // Not every API server has them.
    let cidrs: Vec<ServiceCidr> = reader.list("/apis/networking.k8s.io/v1/servicecidrs").await.unwrap_or_default();
    cidrs.into_iter().for_each(|cidr| index.apply_service_cidr(cidr));
    cluster.nodes.into_iter().for_each(|node: Node| index.apply_node(node));
    index.set_addresses(packet.local.to_vec());
    index.take();
    Ok(format!("on {node}: {}", explain(index.table(), &packet)))
}

impl Settings {
    pub fn of(&self, node: &str) -> index::Settings {
        let detect_local = match self.cluster_cidr.as_slice() {
            [] => DetectLocal::NodeCidr,
            networks => DetectLocal::ClusterCidr(networks.to_vec()),
        };
        index::Settings {
            node_name: node.into(),
            detect_local,
            node_ports: NodePortSetting::Primary,
            masquerade_all: self.masquerade_all,
            masquerade_mark: 0,
        }
    }
}
