//! A load balancer in nftables: a table for each Service, which is replaced as a whole. All that is
//! known is in the kernel, so there is nothing to lose.

use futures_util::FutureExt;
use portico_providers::conformance::{Can, Support};
use portico_providers::{
    Abilities, Answer, Balancer, Family, Host, Ingress, IpMode, Node, Port, Protocol, Provider,
    ProviderError, Request,
};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::process::Stdio;
use tokio::io::AsyncWriteExt;
use tokio::process::Command;
use tokio::sync::Mutex;

const PREFIX: &str = "lb-";

/// Gives addresses from 198.51.100.1 and 2001:db8:100::1 on, and forwards what comes for them to
/// nodes.
#[derive(Default)]
pub(crate) struct Nft {
    /// To choose a free address is to look and to write, with nobody in between.
    choosing: Mutex<()>,
}

impl Nft {
    pub(crate) fn can() -> Can {
        // Whether a node is fit is not asked for, but policy Local keeps the address of clients.
        Can {
            local: Support::Full,
            ..Can::everything()
        }
    }

    async fn make(&self, request: &Request) -> Result<Balancer, ProviderError> {
        let _chosen = self.choosing.lock().await;
        let mut addresses = addresses(&list(&["table", "inet", &table(request)]).await?);
        for family in request.families.iter().copied() {
            if !addresses
                .iter()
                .any(|address| Family::of(*address) == family)
            {
                addresses.push(free(family, request).await?);
            }
        }
        addresses.retain(|address| request.families.contains(&Family::of(*address)));
        addresses.sort();
        nft(&["-f", "-"], &render(request, &addresses)).await?;
        Ok(balancer(&addresses))
    }

    async fn look(&self, request: &Request) -> Result<Option<Balancer>, ProviderError> {
        let found = addresses(&list(&["table", "inet", &table(request)]).await?);
        Ok((!found.is_empty()).then(|| balancer(&found)))
    }

    async fn destroy(&self, request: &Request) -> Result<(), ProviderError> {
        let table = table(request);
        // To add it first makes it an error no more that there is none.
        nft(
            &["-f", "-"],
            &format!("add table inet {table}\ndelete table inet {table}\n"),
        )
        .await
        .map(drop)
    }
}

impl Provider for Nft {
    fn name(&self) -> &str {
        "nft"
    }

    fn abilities(&self) -> Abilities {
        Abilities {
            uses_nodes: true,
            ..Abilities::default()
        }
    }

    fn describe<'a>(&'a self, request: &'a Request) -> Answer<'a, Option<Balancer>> {
        self.look(request).boxed()
    }

    fn ensure<'a>(&'a self, request: &'a Request) -> Answer<'a, Balancer> {
        self.make(request).boxed()
    }

    fn update_nodes<'a>(&'a self, request: &'a Request) -> Answer<'a, ()> {
        self.make(request).map(|made| made.map(drop)).boxed()
    }

    fn delete<'a>(&'a self, request: &'a Request) -> Answer<'a, ()> {
        self.destroy(request).boxed()
    }
}

fn table(request: &Request) -> String {
    format!("{PREFIX}{}", request.balancer_name)
}

fn balancer(addresses: &[IpAddr]) -> Balancer {
    let ingress = addresses.iter().map(|address| Ingress {
        host: Host::Ip(*address),
        mode: IpMode::Proxy,
    });
    Balancer {
        ingress: ingress.collect(),
        pending: None,
    }
}

/// The table as nft reads it.
fn render(request: &Request, addresses: &[IpAddr]) -> String {
    let (table, mut rules, mut sources) = (table(request), String::new(), String::new());
    let mut sets = String::new();
    for address in addresses {
        let (ip, family) = if address.is_ipv4() {
            ("ip", "ipv4")
        } else {
            ("ip6", "ipv6")
        };
        _ = writeln!(
            sets,
            "  set of-{ip} {{ type {family}_addr; elements = {{ {address} }} }}"
        );
        if !request.local {
            _ = writeln!(
                sources,
                "    ct status dnat ct original {ip} daddr @of-{ip} masquerade"
            );
        }
        for port in &request.ports {
            _ = writeln!(
                rules,
                "{}",
                rule(request, port, *address, ip).unwrap_or_default()
            );
        }
    }
    format!(
        "add table inet {table}\ndelete table inet {table}\ntable inet {table} {{\n{sets}\
         chain prerouting {{\n    type nat hook prerouting priority dstnat;\n{rules}  }}\n\
         chain postrouting {{\n    type nat hook postrouting priority srcnat;\n{sources}  }}\n}}\n"
    )
}

/// Nothing if there is no node to send to.
fn rule(request: &Request, port: &Port, address: IpAddr, ip: &str) -> Option<String> {
    let same = |other: &IpAddr| other.is_ipv4() == address.is_ipv4();
    let target = |node: &Node| node.addresses.iter().copied().find(same);
    let targets: Vec<IpAddr> = request.nodes.iter().filter_map(target).collect();
    let protocol = match port.protocol {
        Protocol::Tcp => "tcp",
        Protocol::Udp => "udp",
        Protocol::Sctp => "sctp",
    };
    let ranges: Vec<String> = request
        .source_ranges
        .iter()
        .map(ToString::to_string)
        .collect();
    let ranges: Vec<String> = ranges
        .into_iter()
        .filter(|range| range.contains(':') == address.is_ipv6())
        .collect();
    let from = match request.source_ranges.is_empty() {
        true => String::new(),
        false if ranges.is_empty() => return None,
        false => format!("{ip} saddr {{ {} }} ", ranges.join(", ")),
    };
    // A client that is to stay at its node is told by its address.
    let by = if request.affinity.is_some() {
        format!("jhash {ip} saddr")
    } else {
        "numgen random".to_owned()
    };
    let map: Vec<String> = targets
        .iter()
        .enumerate()
        .map(|(number, target)| format!("{number} : {target}"))
        .collect();
    let (count, map) = (targets.len(), map.join(", "));
    (count > 0).then(|| {
        format!(
            "    {ip} daddr @of-{ip} {protocol} dport {} {from}dnat {ip} to {by} mod {count} map \
             {{ {map} }}:{}",
            port.port, port.node_port
        )
    })
}

/// The first address that no table has; rather the one that the Service is known by, if the tables
/// were lost.
async fn free(family: Family, request: &Request) -> Result<IpAddr, ProviderError> {
    let taken: BTreeSet<IpAddr> = addresses(&list(&["ruleset", "inet"]).await?)
        .into_iter()
        .collect();
    let candidate = |number: u8| match family {
        Family::V4 => IpAddr::V4(Ipv4Addr::new(198, 51, 100, number)),
        Family::V6 => IpAddr::V6(Ipv6Addr::new(
            0x2001,
            0xdb8,
            0x100,
            0,
            0,
            0,
            0,
            number.into(),
        )),
    };
    let none = || ProviderError::Refused {
        reason: "NoAddress",
        message: format!("no {family:?} address is free"),
    };
    let known = request
        .ingress
        .iter()
        .filter_map(|ingress| match ingress.host {
            Host::Ip(address) if Family::of(address) == family => Some(address),
            _ => None,
        });
    known
        .chain((1..255).map(candidate))
        .find(|address| !taken.contains(address))
        .ok_or_else(none)
}

/// The elements of the sets of our tables, as `nft -j` prints them.
fn addresses(listed: &Value) -> Vec<IpAddr> {
    let objects = listed["nftables"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|object| &object["set"]);
    let ours = objects.filter(|set| {
        set["table"]
            .as_str()
            .is_some_and(|table| table.starts_with(PREFIX))
    });
    let elements = ours.flat_map(|set| set["elem"].as_array().into_iter().flatten());
    let mut found: Vec<IpAddr> = elements
        .filter_map(|element| element.as_str()?.parse().ok())
        .collect();
    found.sort();
    found
}

/// What is not there is empty.
async fn list(what: &[&str]) -> Result<Value, ProviderError> {
    match nft(&[&["-j", "list"], what].concat(), "").await {
        Ok(text) => serde_json::from_str(&text)
            .map_err(|error| ProviderError::Failed(format!("nft: {error}"))),
        Err(ProviderError::Failed(said)) if said.contains("No such file or directory") => {
            Ok(Value::Null)
        }
        Err(error) => Err(error),
    }
}

async fn nft(arguments: &[&str], input: &str) -> Result<String, ProviderError> {
    let failed = |error: std::io::Error| ProviderError::Failed(format!("cannot run nft: {error}"));
    let mut command = Command::new("nft");
    command
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    let mut child = command.spawn().map_err(failed)?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(input.as_bytes()).await.map_err(failed)?;
    }
    let output = child.wait_with_output().await.map_err(failed)?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(ProviderError::Failed(format!(
            "nft: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        ))),
    }
}
