//! `portico explain`: where a packet would go, and why, by the table that a node would make from what the API server knows.

mod ends;

use crate::client;
use anyhow::Context;
use clap::Args;
use ends::{Cluster, From, To};
use ipnet::IpNet;
use kube::Client;
use portico_model::explain::explain;
use portico_model::index::{DetectLocal, Index, NodePortSetting, Settings};
use portico_model::objects::{EndpointSlice, Node, Service, ServiceCidr};
use serde::Deserialize;
use serde::de::DeserializeOwned;
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
        let text = answer(&client, &arguments).await?;
        crate::print(&text);
        Ok(())
    })
}

async fn answer(client: &Client, arguments: &Arguments) -> anyhow::Result<String> {
    let cluster = Cluster {
        nodes: list(client, "/api/v1/nodes").await?,
        pods: list(client, "/api/v1/pods").await?,
        services: list(client, "/api/v1/services").await?,
    };
    let (node, packet) = cluster.packet(&arguments.from, &arguments.to, arguments.node.as_deref())?;
    let mut index = Index::new(settings(arguments, &node));
    cluster.services.into_iter().for_each(|service: Service| index.apply_service(service));
    let slices: Vec<EndpointSlice> = list(client, "/apis/discovery.k8s.io/v1/endpointslices").await?;
    slices.into_iter().for_each(|slice| index.apply_slice(slice));
    let cidrs: Vec<ServiceCidr> = list(client, "/apis/networking.k8s.io/v1/servicecidrs").await.unwrap_or_default();
    cidrs.into_iter().for_each(|cidr| index.apply_service_cidr(cidr));
    cluster.nodes.into_iter().for_each(|node: Node| index.apply_node(node));
    index.set_addresses(packet.local.to_vec());
    index.take();
    Ok(format!("on {node}: {}", explain(index.table(), &packet)))
}

fn settings(arguments: &Arguments, node: &str) -> Settings {
    let detect_local = match arguments.cluster_cidr.as_slice() {
        [] => DetectLocal::NodeCidr,
        networks => DetectLocal::ClusterCidr(networks.to_vec()),
    };
    Settings {
        node_name: node.into(),
        detect_local,
        node_ports: NodePortSetting::Primary,
        masquerade_all: arguments.masquerade_all,
        masquerade_mark: 0,
    }
}

#[derive(Deserialize)]
struct List<T> {
    items: Vec<T>,
}

async fn list<T: DeserializeOwned>(client: &Client, path: &str) -> anyhow::Result<Vec<T>> {
    let request = http::Request::get(path).body(Vec::new())?;
    let list: List<T> = client.request(request).await.with_context(|| format!("cannot list {path}"))?;
    Ok(list.items)
}
