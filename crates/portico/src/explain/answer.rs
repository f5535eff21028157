//! An answer of `portico explain`, for people and for programs.

use portico_model::explain::{Candidate, Explanation, Verdict};
use portico_model::report::NodeReport;
use portico_model::table::{Family, FrontendKey};
use portico_node::inspect::Differences;
use serde::ser::{Serialize, Serializer};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};

pub(crate) struct Answered {
    pub node: String,
    pub explanation: Explanation,
    /// The nodes of endpoints, as far as the API server knows them: the next hops.
    pub homes: BTreeMap<IpAddr, String>,
    /// What the node's kernel has; `None` where the kernel was not read.
    pub kernel: Option<Kernel>,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Kernel {
    /// Why not, and what to do.
    NotSeen(String),
    Seen(Seen),
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    pub mode: &'static str,
    /// It answers.
    pub daemon: bool,
    pub differences: Differences,
    pub in_the_way: Vec<String>,
    /// What the node says of why it is behind.
    pub reported: String,
}

impl Seen {
    /// For this packet.
    pub(crate) fn agrees(&self) -> bool {
        self.differences.of_frontend.is_empty() && self.differences.of_all.is_empty()
    }

    /// Why it may differ, and what to do.
    fn advice(&self, node: &str) -> String {
        match (self.daemon, self.reported.is_empty()) {
            (false, _) => format!(
                "portico node does not answer on {node}: start it, and it puts this right (if the flags say how it was \
                 started: --cluster-cidr, --masquerade-all)"
            ),
            (true, false) => format!("portico node on {node} is behind: {}", self.reported),
            (true, true) => format!("portico node on {node} runs and is behind: see its log"),
        }
    }
}

impl Kernel {
    pub(crate) fn with_report(mut self, report: Option<&NodeReport>) -> Self {
        if let (Self::Seen(seen), Some(report)) = (&mut self, report) {
            let behind = report
                .behind
                .iter()
                .map(|behind| format!("{}: {}", behind.service, behind.reason));
            let trouble = Some(report.trouble.clone()).filter(|text| !text.is_empty());
            seen.reported = trouble
                .into_iter()
                .chain(behind)
                .collect::<Vec<_>>()
                .join("; ");
        }
        self
    }

    fn lines(&self, node: &str) -> Vec<String> {
        let seen = match self {
            Self::NotSeen(why) => return vec![format!("the kernel was not looked at: {why}")],
            Self::Seen(seen) => seen,
        };
        let Differences {
            of_frontend,
            of_all,
            of_others,
        } = &seen.differences;
        let mut lines = match seen.agrees() {
            true => vec![format!("the kernel agrees ({})", seen.mode)],
            false => vec![format!(
                "the kernel differs from the table ({}):",
                seen.mode
            )],
        };
        lines.extend(
            of_frontend
                .iter()
                .chain(of_all)
                .map(|words| format!("  {words}")),
        );
        if !seen.agrees() {
            lines.push(format!("  {}", seen.advice(node)));
        } else if !seen.daemon {
            lines.push(format!(
                "  portico node does not answer on {node}: its rules stay, but nobody changes them"
            ));
        }
        if *of_others > 0 {
            lines.push(format!(
                "  {of_others} more differences are in what serves other packets"
            ));
        }
        lines.extend(
            seen.in_the_way
                .iter()
                .map(|words| format!("  in the way may be: {words}")),
        );
        lines
    }

    fn tree(&self) -> Value {
        match self {
            Self::NotSeen(why) => json!({"looked": false, "why": why}),
            Self::Seen(seen) => json!({
                "looked": true, "mode": seen.mode, "daemonAnswers": seen.daemon, "agrees": seen.agrees(),
                "differences": seen.differences.of_frontend, "differencesForAll": seen.differences.of_all,
                "differencesElsewhere": seen.differences.of_others, "inTheWay": seen.in_the_way,
                "reported": seen.reported,
            }),
        }
    }
}

/// Where the kernel has what the packet meets.
pub(super) fn frontend_key(explanation: &Explanation) -> FrontendKey {
    let packet = &explanation.packet;
    match &explanation.frontend {
        Some((key, frontend)) => FrontendKey::of(frontend, key),
        None => FrontendKey {
            family: Family::of(packet.destination),
            address: Some(packet.destination),
            port: packet.port,
            protocol: packet.protocol,
        },
    }
}

impl Answered {
    /// Where the packet goes from here: each other node, with the endpoints that are there.
    fn hops(&self) -> Vec<(Vec<String>, &str)> {
        let Verdict::Forward { candidates, .. } = &self.explanation.verdict else {
            return Vec::new();
        };
        let mut hops: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for Candidate { endpoint, .. } in candidates
            .iter()
            .filter(|candidate| !candidate.endpoint.local)
        {
            if let Some(home) = self.homes.get(&endpoint.address) {
                hops.entry(home)
                    .or_default()
                    .push(SocketAddr::new(endpoint.address, endpoint.port).to_string());
            }
        }
        hops.into_iter().map(|(home, to)| (to, home)).collect()
    }

    fn candidate_tree(&self, candidate: &Candidate) -> Value {
        let Candidate {
            endpoint,
            masquerade,
        } = candidate;
        let at = SocketAddr::new(endpoint.address, endpoint.port);
        let home = self.homes.get(&endpoint.address);
        json!({"endpoint": at, "node": home, "onThisNode": endpoint.local, "masquerade": masquerade})
    }

    fn verdict_tree(&self) -> Value {
        match &self.explanation.verdict {
            Verdict::Forward {
                candidates,
                affinity,
            } => {
                let candidates: Vec<Value> = candidates
                    .iter()
                    .map(|one| self.candidate_tree(one))
                    .collect();
                json!({"kind": "forward", "candidates": candidates, "affinitySeconds": affinity})
            }
            Verdict::Node { name, address } => {
                json!({"kind": "node", "node": &**name, "address": address})
            }
            Verdict::Reject => json!({"kind": "reject"}),
            Verdict::Drop => json!({"kind": "drop"}),
            Verdict::NotOurs { why } => json!({"kind": "notOurs", "why": why}),
        }
    }
}

impl fmt::Display for Answered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "on {}: {}", self.node, self.explanation)?;
        self.hops()
            .into_iter()
            .try_for_each(|(to, home)| writeln!(f, "then to {home} for {}", to.join(", ")))?;
        let lines = self
            .kernel
            .iter()
            .flat_map(|kernel| kernel.lines(&self.node));
        lines.into_iter().try_for_each(|line| writeln!(f, "{line}"))
    }
}

impl Serialize for Answered {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Explanation {
            packet,
            frontend,
            steps,
            ..
        } = &self.explanation;
        let destination = SocketAddr::new(packet.destination, packet.port);
        let mut tree = json!({
            "node": self.node,
            "packet": {"source": packet.source, "destination": destination, "protocol": packet.protocol.lower()},
            "steps": steps,
            "verdict": self.verdict_tree(),
        });
        if let Some((port, found)) = frontend {
            tree["frontend"] = json!({
                "service": port.service.to_string(), "port": &*port.port,
                "at": FrontendKey::of(found, port).to_string(),
            });
        }
        if let Some(kernel) = &self.kernel {
            tree["kernel"] = kernel.tree();
        }
        tree.serialize(serializer)
    }
}

#[cfg(test)]
mod tests;
