//! What of what was found goes, and what stays and why. Pure.

use crate::output::Table;
use serde::Serialize;
use std::fmt;
use std::path::PathBuf;

/// Something that bears Portico's names and was left on the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Thing {
    /// The tables of `portico node`.
    NodeTables,
    /// Chains of iptables mode, and the fixed rules of IPVS mode: kube-proxy's look the same.
    ProxyChains,
    /// The link, virtual servers and sets of IPVS mode: kube-proxy's look the same.
    ProxyServers,
    /// Tables and chains of `portico vip`.
    VipRules,
    /// Its file for the node's daemon.
    VipFile(PathBuf),
    /// A link with the hardware address of a virtual router.
    VirtualLink(String),
    /// The socket of a lab, and whether a process listens on it.
    LabSocket(PathBuf, bool),
    /// The folder of a demo, and whether a process uses it.
    DemoFolder(PathBuf, bool),
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Running {
    pub node: Option<u32>,
    pub vip: Option<u32>,
    pub kube_proxy: Option<u32>,
    /// The process of a demo that runs on this machine.
    pub up: Option<u32>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Item {
    pub thing: Thing,
    /// Why it stays.
    pub keep: Option<String>,
}

pub(super) fn plan(found: Vec<Thing>, running: Running) -> Vec<Item> {
    found
        .into_iter()
        .map(|thing| Item {
            keep: keep(&thing, running),
            thing,
        })
        .collect()
}

fn keep(thing: &Thing, running: Running) -> Option<String> {
    let runs = |who: Option<u32>, name: &str| {
        who.map(|process| format!("{name} runs (process {process}): stop it first"))
    };
    match thing {
        Thing::NodeTables => runs(running.node, "portico node"),
        Thing::ProxyChains | Thing::ProxyServers => {
            let kube_proxy = running
                .kube_proxy
                .map(|process| format!("they are kube-proxy's, which runs (process {process})"));
            kube_proxy.or_else(|| runs(running.node, "portico node"))
        }
        Thing::VipRules | Thing::VipFile(_) => runs(running.vip, "portico vip"),
        Thing::VirtualLink(name) => Some(format!(
            "keepalived makes such links too; if it is nobody's: ip link delete {name}"
        )),
        Thing::LabSocket(_, listening) => {
            listening.then(|| "a demo runs: end it with Ctrl-C".to_owned())
        }
        Thing::DemoFolder(_, used) => used
            .then(|| "a process uses it".to_owned())
            .or_else(|| runs(running.up, "portico up")),
    }
}

impl fmt::Display for Thing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NodeTables => write!(f, "nftables tables ip portico, ip6 portico"),
            Self::ProxyChains => {
                write!(f, "iptables chains KUBE-SERVICES, KUBE-SVC-…, KUBE-SEP-…")
            }
            Self::ProxyServers => write!(f, "IPVS: link kube-ipvs0, its virtual servers and sets"),
            Self::VipRules => write!(
                f,
                "rules of portico vip (tables portico-vip…, chains PORTICO-VIP-…)"
            ),
            Self::VipFile(path) | Self::LabSocket(path, _) => write!(f, "{}", path.display()),
            Self::VirtualLink(name) => write!(f, "link {name}"),
            Self::DemoFolder(path, _) => write!(f, "{}/", path.display()),
        }
    }
}

/// What became of one thing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Line {
    pub what: String,
    pub outcome: Outcome,
    /// Why it stays, or what went wrong.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub why: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Outcome {
    Removed,
    WouldBeRemoved,
    Kept,
    Failed,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct Account {
    pub things: Vec<Line>,
}

impl Account {
    pub(super) fn failed(&self) -> bool {
        self.things
            .iter()
            .any(|line| line.outcome == Outcome::Failed)
    }
}

impl fmt::Display for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.things.is_empty() {
            return writeln!(f, "Portico left nothing here.");
        }
        let mut table = Table::new(["what", "", "why"]);
        for line in &self.things {
            let outcome = match line.outcome {
                Outcome::Removed => "removed",
                Outcome::WouldBeRemoved => "would be removed",
                Outcome::Kept => "stays",
                Outcome::Failed => "FAILED",
            };
            table.row([line.what.clone(), outcome.to_owned(), line.why.clone()]);
        }
        table.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn everything() -> Vec<Thing> {
        vec![
            Thing::NodeTables,
            Thing::ProxyChains,
            Thing::ProxyServers,
            Thing::VipRules,
            Thing::VipFile("/run/portico/services/portico-vip.json".into()),
            Thing::VirtualLink("vrrp.51".into()),
            Thing::LabSocket("/run/portico/demo.sock".into(), false),
            Thing::DemoFolder("/tmp/portico-demo-x".into(), false),
        ]
    }

    fn kept(running: Running) -> Vec<bool> {
        plan(everything(), running)
            .iter()
            .map(|item| item.keep.is_some())
            .collect()
    }

    #[test]
    fn what_somebody_uses_stays() {
        let (none, one) = (Running::default(), Some(7));
        assert_eq!(
            kept(none),
            [false, false, false, false, false, true, false, false]
        );
        assert_eq!(
            kept(Running { node: one, ..none }),
            [true, true, true, false, false, true, false, false]
        );
        assert_eq!(
            kept(Running {
                kube_proxy: one,
                ..none
            }),
            [false, true, true, false, false, true, false, false]
        );
        assert_eq!(
            kept(Running { vip: one, ..none }),
            [false, false, false, true, true, true, false, false]
        );
        assert_eq!(
            kept(Running { up: one, ..none }),
            [false, false, false, false, false, true, false, true]
        );
        let busy = vec![
            Thing::LabSocket("/a".into(), true),
            Thing::DemoFolder("/b".into(), true),
        ];
        assert!(plan(busy, none).iter().all(|item| item.keep.is_some()));
        let items = plan(
            vec![Thing::ProxyChains],
            Running {
                kube_proxy: one,
                node: one,
                ..none
            },
        );
        assert!(
            items[0]
                .keep
                .as_ref()
                .unwrap()
                .contains("kube-proxy's, which runs (process 7)")
        );
    }
}
