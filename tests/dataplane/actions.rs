//! What a scenario does to the cluster, and undoing it.

use std::collections::BTreeSet;
use std::process::Command;
use std::time::Duration;

use portico_testbed::Host;
use serde_json::Value;
use tokio::time::sleep;

use crate::lab::{Lab, WORKERS};
use crate::objects::{expand, node};

/// Rules of somebody else: TCP 31999 is dropped by nftables, 31998 by iptables.
const FOREIGN_RULES: &str = "table inet lab-foreign {
  chain input {
    type filter hook input priority 0;
    tcp dport 31999 drop
  }
}
";

/// What a scenario has to undo.
#[derive(Default)]
pub(crate) struct Traces {
    /// Kind, namespace, name.
    objects: Vec<[String; 3]>,
    nodes: BTreeSet<String>,
    addresses: Vec<(String, String)>,
    foreign: Vec<String>,
    /// Somebody else changed rules of a node, so that packets need not go where its table says.
    pub tampered: bool,
}

impl Traces {
    pub(crate) async fn act(&mut self, lab: &mut Lab, action: &Value) -> Result<(), String> {
        let (name, value) = action
            .as_object()
            .and_then(|fields| {
                fields
                    .iter()
                    .find(|(name, _)| !matches!(name.as_str(), "with" | "namespace"))
            })
            .ok_or_else(|| format!("no action: {action}"))?;
        let namespace = action["namespace"].as_str().unwrap_or("default");
        self.tampered |= matches!(name.as_str(), "flush-rules" | "foreign-rules");
        match name.as_str() {
            "apply" => self.apply(lab, value).await?,
            "patch" => {
                let (kind, name) = self.target(value)?;
                lab.control
                    .patch(&kind, namespace, &name, &action["with"])
                    .await
                    .map_err(|error| error.to_string())?;
            }
            "delete" => {
                for target in list(value) {
                    let (kind, name) = self.target(target)?;
                    lab.control
                        .delete(&kind, namespace, &name)
                        .await
                        .map_err(|error| error.to_string())?;
                }
            }
            "sleep" => sleep(Duration::from_secs_f64(value.as_f64().unwrap_or_default())).await,
            "stop-proxy" => workers(value).for_each(|name| lab.stop_node(name)),
            "start-proxy" => workers(value).for_each(|name| lab.start_node(name)),
            "cleanup-proxy" => workers(value).for_each(|name| lab.clean_up_node(name)),
            "foreign-rules" => {
                workers(value).try_for_each(|name| self.add_foreign_rules(lab, name))?
            }
            "flush-rules" => workers(value).try_for_each(|name| flush_rules(lab.host(name)))?,
            "add-address" => {
                let (Some(host), Some(address)) = (value[0].as_str(), value[1].as_str()) else {
                    return Err(format!("which host and address: {value}"));
                };
                lab.host(host)
                    .address("lo", address)
                    .map_err(|error| error.to_string())?;
                self.addresses.push((host.to_owned(), address.to_owned()));
            }
            name => return Err(format!("unknown action {name}")),
        }
        Ok(())
    }

    async fn apply(&mut self, lab: &Lab, objects: &Value) -> Result<(), String> {
        for object in list(objects).flat_map(|object| expand(&lab.cluster.addresses, object)) {
            let kind = object["kind"].as_str().unwrap_or_default().to_owned();
            let name = object["metadata"]["name"]
                .as_str()
                .unwrap_or_default()
                .to_owned();
            let namespace = object["metadata"]["namespace"]
                .as_str()
                .unwrap_or("default")
                .to_owned();
            let key = [kind, namespace, name];
            match key[0] == "Node" {
                true => drop(self.nodes.insert(key[2].clone())),
                false if self.objects.contains(&key) => {}
                false => self.objects.push(key),
            }
            lab.control
                .apply(&object)
                .await
                .map_err(|error| format!("{}: {error}", object["metadata"]["name"]))?;
        }
        Ok(())
    }

    /// Kind and name of `Kind/name`.
    fn target(&mut self, target: &Value) -> Result<(String, String), String> {
        let (kind, name) = target
            .as_str()
            .and_then(|text| text.split_once('/'))
            .ok_or(format!("target {target}"))?;
        if kind == "Node" {
            self.nodes.insert(name.to_owned());
        }
        Ok((kind.to_owned(), name.to_owned()))
    }

    fn add_foreign_rules(&mut self, lab: &Lab, name: &str) -> Result<(), String> {
        self.foreign.push(name.to_owned());
        let added = lab.host(name).run(nft(&["-f", "-"]), FOREIGN_RULES);
        let added = added.and_then(|_| lab.host(name).run(foreign_iptables("-A"), ""));
        added.map(drop).map_err(|error| error.to_string())
    }

    /// Brings the cluster back to what it was.
    pub(crate) async fn undo(self, lab: &mut Lab) -> Result<(), String> {
        for [kind, namespace, name] in self.objects.iter().rev() {
            lab.control
                .delete(kind, namespace, name)
                .await
                .map_err(|error| error.to_string())?;
        }
        for name in &self.nodes {
            lab.control
                .reset_node(&node(&lab.cluster.addresses, name))
                .await
                .map_err(|error| error.to_string())?;
        }
        for (host, address) in &self.addresses {
            lab.host(host)
                .remove_address("lo", address)
                .map_err(|error| error.to_string())?;
        }
        for name in &self.foreign {
            let _ = lab
                .host(name)
                .run(nft(&["delete", "table", "inet", "lab-foreign"]), "");
            let _ = lab.host(name).run(foreign_iptables("-D"), "");
        }
        lab.start_missing().await;
        WORKERS
            .iter()
            .try_for_each(|name| lab.host(name).forget_connections())
            .map_err(|error| error.to_string())
    }
}

/// One or many.
fn list(value: &Value) -> impl Iterator<Item = &Value> {
    let many = value.as_array().map(Vec::as_slice);
    many.unwrap_or(std::slice::from_ref(value)).iter()
}

fn workers(names: &Value) -> impl Iterator<Item = &'static str> {
    let wanted: Vec<_> = list(names).cloned().collect();
    WORKERS
        .into_iter()
        .filter(move |name| wanted.iter().any(|wanted| wanted == name))
}

/// Removes all rules, whoever made them and in whatever way: which ways there are depends on the
/// kernel.
fn flush_rules(host: &Host) -> Result<(), String> {
    let _ = host.run(nft(&["flush", "ruleset"]), "");
    let mut ipvsadm = Command::new("ipvsadm");
    ipvsadm.arg("--clear");
    let _ = host.run(ipvsadm, "");
    let empty = |program| {
        let mut restore = Command::new(program);
        restore.arg("--wait");
        let emptied = host.run(restore, "*nat\nCOMMIT\n*mangle\nCOMMIT\n*filter\nCOMMIT\n");
        emptied
            .map(drop)
            .map_err(|error| format!("{error}: {}", error.source))
    };
    // Where the node repairs at this very moment what is gone already, the program gives up.
    let insist = |program| {
        empty(program)
            .or_else(|_| empty(program))
            .or_else(|_| empty(program))
    };
    ["iptables-restore", "ip6tables-restore"]
        .into_iter()
        .try_for_each(insist)
}

fn nft(arguments: &[&str]) -> Command {
    let mut command = Command::new("nft");
    command.args(arguments);
    command
}

fn foreign_iptables(add_or_delete: &str) -> Command {
    let mut command = Command::new("iptables");
    command.args([
        "-w",
        add_or_delete,
        "INPUT",
        "-p",
        "tcp",
        "--dport",
        "31998",
        "-j",
        "DROP",
    ]);
    command
}
