//! `portico explain`: where a packet would go, and why, by the table that a node would make from
//! what the API server knows; and whether the node's kernel has what the table says.

mod answer;
mod ends;
mod kernel;

use crate::client::{Access, Reader};
use crate::output::Output;
pub(crate) use answer::Answered;
use answer::{Kernel, Seen};
use clap::Args;
use ends::Cluster;
pub(crate) use ends::{From, To};
use ipnet::IpNet;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kernel::Place;
use portico_model::edge::Surroundings;
use portico_model::explain::{Explanation, Packet, explain};
use portico_model::index::{self, DetectLocal, Index, NodePortSetting};
use portico_model::objects::{EndpointSlice, Node, ServiceCidr};
use portico_model::partitions::PortPartition;
use portico_model::pools::AddressRange;
use portico_model::report::{self, NodeReport};
use portico_model::table::{Family, PerFamily};
use portico_node::inspect::FoundEdge;
use portico_view::Owners;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

/// A daemon that runs has what changed just now in the kernel a moment later: so often it is looked
/// again, so long apart.
const LOOKS: usize = 4;
const A_MOMENT: Duration = Duration::from_millis(500);

#[derive(Args)]
#[command(rename_all = "kebab-case")]
pub(crate) struct Arguments {
    #[command(flatten)]
    access: Access,
    #[command(flatten)]
    question: Question,
    #[command(flatten)]
    settings: Settings,
    /// The lab that the node is in, if it is in one: `demo` is that of `portico up --demo`.
    #[arg(long, value_name = "NAME")]
    lab: Option<String>,
    /// Say only what the table says, without a look at the kernel.
    #[arg(long)]
    no_kernel: bool,
    #[command(flatten)]
    output: Output,
}

/// What is asked.
#[derive(Args, Clone)]
#[group(id = "question")]
pub(crate) struct Question {
    /// Who sends it: an address, pod/NAMESPACE/NAME or node/NAME.
    #[arg(long, value_name = "WHO")]
    pub from: From,
    /// Where to: ADDRESS:PORT[/tcp|udp|sctp], or service/NAMESPACE/NAME:PORT.
    #[arg(long, value_name = "WHERE")]
    pub to: To,
    /// The port that it comes from, which decides about the node that serves it at the edge.
    #[arg(long, value_name = "PORT")]
    pub source_port: Option<u16>,
    /// The node that it reaches [default: the one that it comes from or is for, or that answers for
    /// the address, or the first].
    #[arg(long, value_name = "NAME")]
    pub node: Option<String>,
}

/// How the nodes were started, which the API server does not know; a daemon that runs where this
/// does is asked instead.
#[derive(Args, Clone)]
#[command(rename_all = "kebab-case")]
#[group(id = "settings")]
pub(crate) struct Settings {
    /// The addresses of pods, as the nodes were told with the flag of this name [default: each
    /// node's own pod CIDRs].
    #[arg(long, value_name = "CIDR[,CIDR]", value_delimiter = ',')]
    cluster_cidr: Vec<IpNet>,
    /// Whether the nodes were told so.
    #[arg(long)]
    masquerade_all: bool,
}

pub(crate) fn run(arguments: Arguments) -> anyhow::Result<()> {
    let told = crate::runtime()?.block_on(async {
        let reader = arguments.access.reader().await?;
        match arguments.no_kernel {
            true => answer(&reader, &arguments.settings, &arguments.question).await,
            false => answer_with_kernel(&reader, &arguments).await,
        }
    })?;
    arguments.output.print(&told)
}

/// The way of a packet as the table of a node has it.
pub(crate) async fn answer(
    reader: &Reader,
    settings: &Settings,
    question: &Question,
) -> anyhow::Result<Answered> {
    let known = Known::read(reader).await?;
    let (node, packet) =
        known
            .cluster
            .packet(&question.from, &question.to, question.node.as_deref())?;
    let packet = question.with_source_port(packet);
    let index = known.index(settings.of(&node), packet.local.to_vec(), None);
    Ok(Answered {
        explanation: explain(index.table(), &packet),
        node,
        homes: known.homes(),
        kernel: None,
    })
}

/// The same, and whether the node's kernel has it. Where a daemon runs there, by its own settings.
async fn answer_with_kernel(reader: &Reader, arguments: &Arguments) -> anyhow::Result<Answered> {
    let Arguments {
        question, settings, ..
    } = arguments;
    let mut looks = 1;
    loop {
        let known = Known::read(reader).await?;
        let (node, packet) =
            known
                .cluster
                .packet(&question.from, &question.to, question.node.as_deref())?;
        let packet = question.with_source_port(packet);
        let (explanation, kernel) =
            match Place::find(&node, &packet.local, arguments.lab.as_deref()) {
                Err(why) => {
                    let index = known.index(settings.of(&node), packet.local.to_vec(), None);
                    (explain(index.table(), &packet), Kernel::NotSeen(why))
                }
                Ok(place) => look(&place, &known, settings, (&node, packet)),
            };
        let behind = matches!(&kernel, Kernel::Seen(seen) if seen.daemon && !seen.agrees());
        if !behind || looks == LOOKS {
            let report = if behind {
                node_report(reader, &node).await
            } else {
                None
            };
            let kernel = Some(kernel.with_report(report.as_ref()));
            return Ok(Answered {
                explanation,
                node,
                homes: known.homes(),
                kernel,
            });
        }
        looks += 1;
        tokio::time::sleep(A_MOMENT).await;
    }
}

/// Everything there is to see on the node.
fn look(
    place: &Place,
    known: &Known,
    settings: &Settings,
    (node, packet): (&str, Packet),
) -> (Explanation, Kernel) {
    let packet = Packet {
        local: place.addresses().into(),
        ..packet
    };
    let config = match place.config(node, settings) {
        Ok(Some(config)) => config,
        nothing => {
            let index = known.index(settings.of(node), packet.local.to_vec(), None);
            let why = nothing
                .err()
                .unwrap_or_else(|| kernel::nothing_installed(node));
            return (explain(index.table(), &packet), Kernel::NotSeen(why));
        }
    };
    // What cannot be read now cannot be compared either.
    let edge = place.edge(&config).ok().flatten();
    let surroundings = edge.map(|edge| known.surroundings(&edge));
    let index = known.index(config.settings.clone(), packet.local.to_vec(), surroundings);
    let explanation = explain(index.table(), &packet);
    let kernel = match place.compare(&config, index.table(), &answer::frontend_key(&explanation)) {
        Err(why) => Kernel::NotSeen(why),
        Ok((differences, in_the_way)) => {
            let (mode, daemon) = (config.mode.name(), place.daemon_runs());
            Kernel::Seen(Seen {
                mode,
                daemon,
                differences,
                in_the_way,
                reported: String::new(),
            })
        }
    };
    (explanation, kernel)
}

/// Who has announced addresses. Where reports cannot be read, nobody is known to.
async fn owners(reader: &Reader) -> Owners {
    let path = format!(
        "/apis/coordination.k8s.io/v1/namespaces/{}/leases?labelSelector={}",
        report::NAMESPACE,
        report::LABEL
    );
    let leases: Vec<Lease> = reader.list(&path).await.unwrap_or_default();
    Owners::of_leases(&leases, Timestamp::now())
}

/// What the node tells of itself.
async fn node_report(reader: &Reader, node: &str) -> Option<NodeReport> {
    use portico_model::report::{ANNOTATION, NAMESPACE, lease_name};
    let path = format!(
        "/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/{}",
        lease_name(node)
    );
    let lease: serde_json::Value = reader.find(&path).await.ok()??;
    let text = lease
        .get("metadata")?
        .get("annotations")?
        .get(ANNOTATION)?
        .as_str()?;
    serde_json::from_str(text).ok()
}

/// The objects of the API server by which traffic is forwarded.
struct Known {
    cluster: Cluster,
    slices: Vec<EndpointSlice>,
    cidrs: Vec<ServiceCidr>,
    partitions: Vec<PortPartition>,
}

impl Known {
    async fn read(reader: &Reader) -> anyhow::Result<Self> {
        let cluster = Cluster {
            nodes: reader.list("/api/v1/nodes").await?,
            pods: reader.list("/api/v1/pods").await?,
            services: reader.list("/api/v1/services").await?,
            owners: owners(reader).await,
        };
        let slices = reader
            .list("/apis/discovery.k8s.io/v1/endpointslices")
            .await?;
        // Not every API server has them.
        let cidrs = reader
            .list("/apis/networking.k8s.io/v1/servicecidrs")
            .await
            .unwrap_or_default();
        let partitions = reader
            .list_if_known("/apis/portico.dev/v1/portpartitions")
            .await?;
        Ok(Self {
            cluster,
            slices,
            cidrs,
            partitions,
        })
    }

    /// On which node each endpoint is.
    fn homes(&self) -> BTreeMap<IpAddr, String> {
        let endpoints = self
            .slices
            .iter()
            .filter_map(|slice| slice.endpoints.as_ref())
            .flatten();
        let placed =
            endpoints.filter_map(|endpoint| Some((endpoint, endpoint.node_name.as_ref()?)));
        let each = placed.flat_map(|(endpoint, node)| {
            endpoint
                .addresses
                .iter()
                .map(move |address| (address, node))
        });
        each.filter_map(|(address, node)| Some((address.parse().ok()?, node.to_string())))
            .collect()
    }

    /// What the node has to know of others for an edge as it is in its kernel.
    fn surroundings(&self, edge: &FoundEdge) -> Surroundings {
        let nodes = self.cluster.nodes.iter();
        let neighbour = |node: &Node| {
            let mut near = PerFamily::default();
            let known = ends::addresses(node).into_iter();
            for address in known.filter(|address| edge.nodes.contains(address)) {
                *near.get_mut(Family::of(address)) = Some(address);
            }
            (node.metadata.name.as_str().into(), near)
        };
        let only = |address: &IpAddr| AddressRange::new(*address, *address);
        Surroundings {
            announced: edge.addresses.iter().filter_map(only).collect(),
            neighbours: nodes.map(neighbour).collect(),
        }
    }

    /// With the table of a node.
    fn index(
        &self,
        settings: index::Settings,
        addresses: Vec<IpAddr>,
        surroundings: Option<Surroundings>,
    ) -> Index {
        let mut index = Index::new(settings).with_announcing();
        index.set_surroundings(surroundings);
        self.cluster
            .services
            .iter()
            .for_each(|service| index.apply_service(service));
        self.slices
            .iter()
            .for_each(|slice| index.apply_slice(slice));
        self.cidrs
            .iter()
            .for_each(|cidr| index.apply_service_cidr(cidr));
        self.partitions
            .iter()
            .for_each(|partition| index.apply_port_partition(partition));
        self.cluster
            .nodes
            .iter()
            .for_each(|node| index.apply_node(node));
        self.cluster
            .pods
            .iter()
            .for_each(|pod| index.apply_pod(pod));
        index.set_addresses(addresses);
        index.take();
        index
    }
}

impl Question {
    fn with_source_port(&self, packet: Packet) -> Packet {
        Packet {
            source_port: self.source_port,
            ..packet
        }
    }
}

impl Settings {
    pub(crate) fn of(&self, node: &str) -> index::Settings {
        let detect_local = match self.cluster_cidr.as_slice() {
            [] => DetectLocal::NodeCidr,
            networks => DetectLocal::ClusterCidr(networks.to_vec()),
        };
        index::Settings {
            node_name: node.into(),
            own_address: None,
            detect_local,
            node_ports: NodePortSetting::Node,
            masquerade_all: self.masquerade_all,
            masquerade_mark: 0,
            external_ips: true,
            load_balancer_ip_mode: true,
        }
    }
}
