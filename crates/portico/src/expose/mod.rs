//! `portico expose`: servers at given addresses as a Service, with health checks; for those without
//! Pods, or without Kubernetes.

mod objects;

use crate::client::{Access, Reader};
use crate::fleet::path;
use crate::output::{Output, Table};
use anyhow::{Context, bail};
use clap::Args;
use objects::{Exposed, Front, MANAGED_BY, MANAGER, Visibility};
use portico_controller::health::{Check, How};
use portico_model::objects::SERVICE_NAME;
use serde::Serialize;
use serde_json::Value;
use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

pub(crate) use objects::made_here;

#[derive(Args)]
#[command(rename_all = "kebab-case")]
pub(crate) struct Arguments {
    /// What the Service is called.
    name: String,
    /// Where it answers: PORT, PORT/udp or PORT/sctp.
    #[arg(long, value_name = "PORT", required_unless_present = "delete")]
    port: Option<Front>,
    /// Who serves it: ADDRESS:PORT, or [ADDRESS]:PORT for IPv6.
    #[arg(long, value_name = "ADDRESS:PORT,...", value_delimiter = ',', required_unless_present = "delete", value_parser = target)]
    to: Vec<SocketAddr>,
    /// How to find out whether one is fit: tcp, http:/path or https:/path [default: they are taken
    /// for fit].
    #[arg(long, value_name = "CHECK")]
    health: Option<How>,
    /// How often.
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = crate::controller::parse_duration)]
    interval: Duration,
    /// How long an answer may take.
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = crate::controller::parse_duration)]
    timeout: Duration,
    /// Good answers in a row until one is used again.
    #[arg(long, value_name = "COUNT", default_value_t = 2)]
    rise: u32,
    /// Bad answers in a row until one is no longer used.
    #[arg(long, value_name = "COUNT", default_value_t = 3)]
    fall: u32,
    /// On a port of every node as well (type NodePort).
    #[arg(long, conflicts_with = "load_balancer")]
    public: bool,
    /// On an address of its own as well (type LoadBalancer).
    #[arg(long)]
    load_balancer: bool,
    /// Take it away again.
    #[arg(long, conflicts_with_all = ["port", "to", "health", "public", "load_balancer"])]
    delete: bool,
    /// Where the Service is.
    #[arg(long, short, value_name = "NAME", default_value = "default")]
    namespace: String,
    #[command(flatten)]
    access: Access,
    #[command(flatten)]
    output: Output,
}

fn target(text: &str) -> Result<SocketAddr, String> {
    let address: SocketAddr = text.parse().map_err(|_| {
        "write ADDRESS:PORT such as 10.0.0.5:8080 or [2001:db8::5]:8080, not a name".to_owned()
    })?;
    match address.ip() {
        _ if address.port() == 0 => Err("0 is no port".to_owned()),
        ip if ip.is_loopback() || ip.is_unspecified() || ip.is_multicast() => Err(format!(
            "nodes cannot send packets to {ip}: name an address that every node reaches"
        )),
        _ => Ok(address),
    }
}

/// What there is now.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Shown {
    service: Value,
    endpoint_slices: Vec<Value>,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    crate::runtime()?.block_on(async {
        let reader = arguments.access.reader().await?;
        let place = Place {
            reader: &reader,
            namespace: &arguments.namespace,
            name: &arguments.name,
        };
        match arguments.wanted()? {
            Some(wanted) => arguments.output.print(&place.make(&wanted).await?),
            None => place.delete().await,
        }
    })
}

impl Arguments {
    /// `None` where it shall go.
    fn wanted(&self) -> anyhow::Result<Option<Exposed>> {
        let Some(front) = self.port.filter(|_| !self.delete) else {
            return Ok(None);
        };
        let check = self.health.clone().map(|how| Check {
            how,
            interval: self.interval,
            timeout: self.timeout,
            rise: self.rise,
            fall: self.fall,
        });
        // As the controller will read it, so that what is wrong is told here.
        let check = check
            .map(|check| check.to_string().parse::<Check>())
            .transpose()
            .context("--health")?;
        let visibility = match (self.public, self.load_balancer) {
            (true, _) => Visibility::NodePort,
            (_, true) => Visibility::LoadBalancer,
            _ => Visibility::ClusterIp,
        };
        let (namespace, name) = (self.namespace.clone(), self.name.clone());
        Ok(Some(Exposed {
            namespace,
            name,
            front,
            targets: self.to.clone(),
            check,
            visibility,
        }))
    }
}

struct Place<'a> {
    reader: &'a Reader,
    namespace: &'a str,
    name: &'a str,
}

impl Place<'_> {
    fn service(&self) -> String {
        format!(
            "{}/{}",
            path("/api/v1", Some(self.namespace), "services"),
            self.name
        )
    }

    fn slices(&self) -> String {
        path(
            "/apis/discovery.k8s.io/v1",
            Some(self.namespace),
            "endpointslices",
        )
    }

    /// Slices come first, so that the Service is never without endpoints; those that it no longer
    /// needs go last.
    async fn make(&self, wanted: &Exposed) -> anyhow::Result<Shown> {
        self.check_owner().await?;
        let before = self.own_slices().await?;
        let mut endpoint_slices = Vec::new();
        for slice in wanted.slices(&before) {
            let path = format!("{}/{}", self.slices(), objects::name(&slice));
            endpoint_slices.push(self.reader.apply(&path, MANAGER, "", &slice).await?);
        }
        let service = self
            .reader
            .apply(&self.service(), MANAGER, "", &wanted.service())
            .await?;
        for old in before.iter().map(objects::name) {
            if !endpoint_slices
                .iter()
                .any(|slice| objects::name(slice) == old)
            {
                self.reader
                    .delete(&format!("{}/{old}", self.slices()))
                    .await?;
            }
        }
        Ok(Shown {
            service,
            endpoint_slices,
        })
    }

    async fn delete(&self) -> anyhow::Result<()> {
        let is_there = self.check_owner().await?;
        self.reader.delete(&self.service()).await?;
        for slice in self.own_slices().await? {
            self.reader
                .delete(&format!("{}/{}", self.slices(), objects::name(&slice)))
                .await?;
        }
        match is_there {
            true => crate::print(&format!("{}/{} is gone\n", self.namespace, self.name)),
            false => crate::print(&format!("{}/{} is not there\n", self.namespace, self.name)),
        }
        Ok(())
    }

    /// What others made is left alone. Whether there is one.
    async fn check_owner(&self) -> anyhow::Result<bool> {
        let Some(service) = self.reader.find::<Value>(&self.service()).await? else {
            return Ok(false);
        };
        let (label, value) = made_here();
        if service["metadata"]["labels"][label] != *value {
            bail!(
                "Service {}/{} was not made by portico expose: choose another name, or change it \
                 by kubectl",
                self.namespace,
                self.name
            );
        }
        Ok(true)
    }

    async fn own_slices(&self) -> anyhow::Result<Vec<Value>> {
        let path = format!(
            "{}?labelSelector={MANAGED_BY}%3D{MANAGER},{SERVICE_NAME}%3D{}",
            self.slices(),
            self.name
        );
        self.reader.list(&path).await
    }
}

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (spec, metadata) = (&self.service["spec"], &self.service["metadata"]);
        let mut table = Table::new([
            "service",
            "type",
            "address",
            "port",
            "node port",
            "endpoint",
            "state",
        ]);
        for endpoint in objects::endpoints(&self.endpoint_slices) {
            let number = |field: &str| {
                spec["ports"][0][field]
                    .as_u64()
                    .map(|port| port.to_string())
                    .unwrap_or_default()
            };
            table.row([
                format!(
                    "{}/{}",
                    text(&metadata["namespace"]),
                    text(&metadata["name"])
                ),
                text(&spec["type"]),
                text(&spec["clusterIP"]),
                number("port"),
                number("nodePort"),
                endpoint.0,
                if endpoint.1 { "ready" } else { "to be checked" }.to_owned(),
            ]);
        }
        write!(f, "{table}")
    }
}
