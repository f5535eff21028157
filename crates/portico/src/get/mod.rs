//! `portico get`: Services, nodes, endpoints, pools, port partitions and balancers with what only Portico knows of
//! them.

mod tables;

use crate::client::Access;
use crate::fleet::{self, Scope};
use crate::output::{Format, Output};
use anyhow::bail;
use clap::{Args, ValueEnum};
use jiff::Timestamp;
use portico_model::partitions::PortPartition;
use portico_view::{PartitionView, PoolView};
use serde::Serialize;
use std::fmt;

#[derive(Args)]
#[command(rename_all = "kebab-case")]
pub(crate) struct Arguments {
    #[arg(value_enum, default_value = "services")]
    what: What,
    /// Only this one; of endpoints, only those of this Service.
    name: Option<String>,
    /// Of this namespace.
    #[arg(long, short, value_name = "NAME", default_value = "default")]
    namespace: String,
    /// Of all namespaces.
    #[arg(long, short = 'A', conflicts_with = "namespace")]
    all_namespaces: bool,
    #[command(flatten)]
    access: Access,
    #[command(flatten)]
    output: Output,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum What {
    /// Where they answer, who serves them, on how many nodes they are live.
    #[value(aliases = ["service", "svc"])]
    Services,
    /// How far each is, and how it does.
    #[value(aliases = ["node", "no"])]
    Nodes,
    /// Who serves, and who does not and why.
    #[value(aliases = ["endpoint", "ep"])]
    Endpoints,
    /// Addresses for load balancers, and how many are left.
    #[value(aliases = ["pool"])]
    Pools,
    /// Addresses of nodes with a space of node ports of their own.
    #[value(aliases = ["partition"])]
    Partitions,
    /// Services with a load balancer, with their conditions.
    #[value(aliases = ["balancer", "lb"])]
    Balancers,
}

/// What is shown: as a table, or as it is.
#[derive(Serialize)]
#[serde(transparent)]
struct Shown<T> {
    items: Vec<T>,
    /// Several namespaces are shown, so each name has its own.
    #[serde(skip)]
    with_namespace: bool,
    /// More is shown of each: `-o wide`.
    #[serde(skip)]
    is_wide: bool,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    crate::runtime()?.block_on(get(arguments))
}

async fn get(arguments: &Arguments) -> anyhow::Result<()> {
    let reader = arguments.access.reader().await?;
    // How far a node is shows by all Services.
    let everything = arguments.all_namespaces || arguments.what == What::Nodes;
    let scope: Scope<'_> = (!everything).then_some(arguments.namespace.as_str());
    let fleet = fleet::read_beyond_doubt(&reader, scope);
    match arguments.what {
        What::Services => arguments.show(fleet.await?.services(Timestamp::now()), |service| {
            &service.name
        }),
        What::Nodes => arguments.show(fleet.await?.nodes(Timestamp::now()), |node| &node.name),
        What::Endpoints => arguments.show(fleet.await?.endpoints(), |endpoint| &endpoint.service),
        What::Balancers => {
            let balancers = fleet
                .await?
                .services(Timestamp::now())
                .into_iter()
                .filter(|service| service.is_balancer());
            let balancers: Vec<tables::Balancer> = balancers.map(tables::Balancer).collect();
            arguments.show(balancers, |balancer| &balancer.0.name)
        }
        What::Partitions => {
            let partitions: Vec<PortPartition> = reader
                .list_if_known("/apis/portico.dev/v1/portpartitions")
                .await?;
            let nodes = fleet.await?.nodes(Timestamp::now());
            let views = PartitionView::all(&partitions, &nodes);
            arguments.show(views, |partition| &partition.name)
        }
        What::Pools => {
            let pools: Vec<_> = reader
                .list_if_known("/apis/portico.dev/v1/addresspools")
                .await?;
            arguments.show(pools.iter().map(PoolView::of).collect(), |pool| &pool.name)
        }
    }
}

impl Arguments {
    fn show<T>(&self, items: Vec<T>, name: impl Fn(&T) -> &String) -> anyhow::Result<()>
    where
        T: Serialize,
        Shown<T>: fmt::Display,
    {
        let items: Vec<T> = match &self.name {
            None => items,
            Some(wanted) => items
                .into_iter()
                .filter(|item| name(item) == wanted)
                .collect(),
        };
        if let (true, Some(name)) = (items.is_empty(), &self.name) {
            bail!("{}", self.not_there(name));
        }
        self.output.print(&Shown {
            items,
            with_namespace: self.all_namespaces,
            is_wide: self.output.output == Format::Wide,
        })
    }

    fn not_there(&self, name: &str) -> String {
        let place = match self.what {
            What::Nodes | What::Pools | What::Partitions => String::new(),
            _ if self.all_namespaces => " in any namespace".to_owned(),
            _ => format!(
                " in namespace {}: name another with --namespace",
                self.namespace
            ),
        };
        match self.what {
            What::Services => format!("there is no Service {name}{place}"),
            What::Nodes => format!("there is no node {name}"),
            What::Endpoints => format!("no Service {name} has endpoints{place}"),
            What::Pools => format!("there is no pool {name}"),
            What::Partitions => format!("there is no port partition {name}"),
            What::Balancers => format!("there is no Service {name} with a load balancer{place}"),
        }
    }
}
