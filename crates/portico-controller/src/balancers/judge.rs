//! What the conditions of a Service should say, from all that is known.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use super::conditions::{Aspect, Status, Verdict, Verdicts};
use super::memory::Memory;
use super::nodes::Nodes;
use super::reports::{Reporter, Reports};
use super::service::{Claim, Facts};
use super::slices::Served;
use crate::provider::{Abilities, Host, Ingress};
use portico_view::text::few;
use portico_view::{Owner, OwnerScope};

/// The time limit for nodes to report a change before they are called late: they tell twice a
/// second.
const SETTLE: Duration = Duration::from_secs(1);
/// A node that gets ahead is waited for longer than one that stands still.
const MOST: Duration = Duration::from_secs(10);
/// The time limit for a node that starts to report to catch up.
const JOIN: Duration = Duration::from_secs(5);
/// So many nodes are named.
const MOST_NAMED: usize = 5;
const BY_BGP: &str = "by BGP from ";

pub(super) struct View<'a> {
    pub facts: &'a Facts,
    pub memory: &'a Memory,
    pub provider: &'a str,
    pub abilities: Abilities,
    pub served: Served,
    pub nodes: &'a Nodes,
    pub reports: &'a Reports,
    /// The resource version with which what nodes forward last changed, and when this was heard.
    pub version: u64,
    pub since: Instant,
    pub now: Instant,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Judgement {
    pub verdicts: Verdicts,
    /// It is too early to say; at this time it is not.
    pub wait: Option<Instant>,
}

/// A verdict, or from when on there is one.
type Maybe = Result<Verdict, Instant>;

pub(super) fn judge(view: &View<'_>) -> Judgement {
    let [programmed, announced] = [view.programmed(), view.announced()];
    let wait = [&programmed, &announced]
        .into_iter()
        .filter_map(|maybe| maybe.as_ref().err().copied())
        .min();
    let now = |aspect: Aspect, maybe: Maybe| maybe.unwrap_or_else(|_| view.still(aspect));
    let announced = now(Aspect::Announced, announced);
    let reachable = view.reachable(&announced);
    let verdicts = [
        view.allocated(),
        now(Aspect::Programmed, programmed),
        announced,
        reachable,
    ];
    Judgement { verdicts, wait }
}

fn good(reason: &str, message: impl Into<String>) -> Verdict {
    Verdict::new(Status::True, reason, message)
}

fn bad(reason: &str, message: impl Into<String>) -> Verdict {
    Verdict::new(Status::False, reason, message)
}

fn unknown(reason: &str, message: impl Into<String>) -> Verdict {
    Verdict::new(Status::Unknown, reason, message)
}

impl View<'_> {
    /// The load balancer as it should be in the status.
    fn ingress(&self) -> &[Ingress] {
        self.memory
            .made
            .as_ref()
            .map_or(&self.facts.ingress, |made| &made.balancer.ingress)
    }

    fn pending(&self) -> Option<&str> {
        let pending = self
            .memory
            .made
            .as_ref()
            .and_then(|made| made.balancer.pending.as_deref());
        let waiting = self
            .memory
            .trouble
            .as_ref()
            .filter(|trouble| trouble.is_waiting());
        waiting.map(|trouble| trouble.message.as_str()).or(pending)
    }

    fn allocated(&self) -> Verdict {
        let provider = self.provider;
        if let Some(trouble) = &self.memory.trouble {
            let text = trouble.told();
            match () {
                () if self.facts.claim != Claim::Wanted => return unknown("DeleteFailed", text),
                () if trouble.is_refused() => return bad(&trouble.reason, text),
                () if !trouble.is_waiting() && self.ingress().is_empty() => {
                    return bad("EnsureFailed", text);
                }
                () => {}
            }
        }
        match (self.ingress(), self.pending()) {
            ([], Some(pending)) => unknown(
                "Pending",
                format!("{provider}: {pending}; nothing to do but wait"),
            ),
            ([], None) if self.memory.made.is_some() => bad(
                "NoAddress",
                format!("{provider} made a load balancer without an address: see its log"),
            ),
            ([], None) => unknown(
                "Ensuring",
                format!("{provider} is asked for a load balancer"),
            ),
            (ingress, _) => {
                let hosts: Vec<String> =
                    ingress.iter().map(|ingress| host(&ingress.host)).collect();
                good("Allocated", format!("{} from {provider}", hosts.join(", ")))
            }
        }
    }

    fn programmed(&self) -> Maybe {
        if self.ingress().is_empty() {
            return Ok(waiting_for_address());
        }
        match &self.memory.trouble {
            Some(trouble) if !trouble.is_waiting() => {
                return Ok(bad("ProviderFailed", trouble.told()));
            }
            _ => {}
        }
        if let Some(pending) = self.pending() {
            return Ok(bad(
                "ProviderPending",
                format!("{}: {pending}; nothing to do but wait", self.provider),
            ));
        }
        if self.facts.other_proxy {
            let text = "the label service.kubernetes.io/service-proxy-name gives this Service to \
                        another proxy, which does not report";
            return Ok(unknown("OtherProxy", text));
        }
        let reporters: Vec<_> = self.reporters().collect();
        if reporters.is_empty() {
            return Ok(not_reported());
        }
        if !self.is_written() {
            return Ok(waiting_for_nodes());
        }
        let behind: Vec<_> = reporters
            .iter()
            .filter(|(_, node)| !self.is_live(node))
            .collect();
        let patience = behind.iter().map(|(_, node)| self.patience(node)).min();
        match patience {
            Some(until) if until > self.now => Err(until),
            Some(_) => Ok(self.behind(&behind, reporters.len())),
            None => Ok(good(
                "Programmed",
                format!(
                    "live on {0} of {0} nodes{1}",
                    reporters.len(),
                    self.silent()
                ),
            )),
        }
    }

    fn behind(&self, behind: &[&(&str, &Reporter)], all: usize) -> Verdict {
        let why = |(name, node): &(&str, &Reporter)| {
            let own = node
                .trouble_with(&self.facts.key.to_string())
                .unwrap_or(&node.report.trouble);
            let far = format!(
                "has installed version {} and not yet {}",
                node.report.services, self.version
            );
            format!(
                "{name} ({})",
                if own.is_empty() { far } else { own.to_owned() }
            )
        };
        let named: Vec<String> = behind
            .iter()
            .take(MOST_NAMED)
            .map(|node| why(node))
            .collect();
        let more = match behind.len().saturating_sub(MOST_NAMED) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let text = format!(
            "live on {} of {all} nodes; behind: {}{more}{}; see the log of portico node there",
            all - behind.len(),
            named.join(", "),
            self.silent()
        );
        bad("NodesBehind", text)
    }

    /// Nodes that have reported and do so no more.
    fn silent(&self) -> String {
        let dead = self
            .reports
            .silent(self.now)
            .filter(|name| self.nodes.exists(name));
        let names: Vec<&str> = dead.take(MOST_NAMED).collect();
        match names.as_slice() {
            [] => String::new(),
            names => format!("; not reporting: {}", names.join(", ")),
        }
    }

    fn announced(&self) -> Maybe {
        if self.ingress().is_empty() {
            return Ok(waiting_for_address());
        }
        if !self.abilities.announced_by_nodes {
            return Ok(match self.pending() {
                Some(pending) => bad(
                    "ProviderPending",
                    format!("{}: {pending}; nothing to do but wait", self.provider),
                ),
                None => good(
                    "ByProvider",
                    format!("{} attracts the traffic", self.provider),
                ),
            });
        }
        let mut reporters = self.reporters().peekable();
        if reporters.peek().is_none() {
            return Ok(not_reported());
        }
        let mut announcers: Vec<_> = reporters
            .filter(|(_, node)| node.answers() || node.peers())
            .collect();
        if announcers.is_empty() {
            return Ok(bad(
                "NobodyAnnounces",
                format!("no node announces addresses{}", self.sessions_down()),
            ));
        }
        if self.served.ready + self.served.ending == 0 {
            return Ok(bad(
                "NoEndpoints",
                "an address without endpoints is not announced: see Reachable",
            ));
        }
        if self.facts.request.local {
            announcers.retain(|(name, _)| self.served.nodes.contains(*name));
            if announcers.is_empty() {
                let text =
                    "externalTrafficPolicy is Local, and no node that announces has an endpoint";
                return Ok(bad("NoLocalEndpoints", text));
            }
        }
        if !self.is_written() {
            return Ok(waiting_for_nodes());
        }
        if !announcers.iter().any(|(_, node)| self.is_live(node)) {
            let patience = announcers.iter().map(|(_, node)| self.patience(node)).min();
            return patience
                .filter(|until| *until > self.now)
                .map_or_else(|| Ok(waiting_for_nodes()), Err);
        }
        let owners = self.owners();
        let missing = owners.iter().find(|owner| !owner.is_announced());
        let moved = self
            .reports
            .alive(self.now)
            .filter_map(|(_, node)| node.moved);
        match (missing, moved.max().map(|moved| moved + SETTLE)) {
            (None, _) => Ok(by_nodes(&owners)),
            // An address that changes hands is nobody's for a moment.
            (Some(_), Some(until)) if until > self.now => Err(until),
            (Some(owner), _) => Ok(bad("NobodyAnswers", format!("{owner}; see portico status"))),
        }
    }

    /// Who has each of its addresses.
    pub(super) fn owners(&self) -> Vec<Owner> {
        let is_alive =
            |node: &str| self.reports.is_alive(node, self.now) && self.nodes.exists(node);
        let may_serve = |node: &str| !self.facts.request.local || self.served.nodes.contains(node);
        let scope = OwnerScope {
            is_alive: &is_alive,
            may_serve: &may_serve,
        };
        let addresses = self
            .ingress()
            .iter()
            .filter_map(|ingress| match &ingress.host {
                Host::Ip(address) => Some(*address),
                Host::Name(_) => None,
            });
        addresses
            .map(|address: IpAddr| self.reports.owners().owner(address, &scope))
            .collect()
    }

    /// Nodes that serve are not enough: a node has to attract the traffic.
    fn reachable(&self, announced: &Verdict) -> Verdict {
        let (key, served) = (&self.facts.key, &self.served);
        if served.ready + served.ending == 0 {
            let text = format!(
                "no endpoint is ready: see kubectl -n {} get endpointslices -l kubernetes.io/service-name={}, and the Pods \
                 that the selector finds",
                key.namespace, key.name
            );
            return bad("NoEndpoints", text);
        }
        if self.facts.request.local && !served.nodes.iter().any(|name| self.nodes.is_fit(name)) {
            let text = "externalTrafficPolicy is Local, and no node that may get traffic of load balancers has a ready \
                        endpoint: move Pods there, or use Cluster";
            return bad("NoLocalEndpoints", text);
        }
        if announced.status != Status::True {
            return unknown(
                "NotAnnounced",
                "there are endpoints, but the address is not known to be announced: see Announced",
            );
        }
        match served.ready {
            0 => good(
                "EndpointsEnding",
                "the only endpoints are ending, and still serve",
            ),
            _ => good("EndpointsReady", "there are ready endpoints"),
        }
    }

    /// Nodes that should have every Service.
    fn reporters(&self) -> impl Iterator<Item = (&str, &Reporter)> {
        self.reports
            .alive(self.now)
            .filter(|(name, _)| self.nodes.exists(name))
    }

    /// Nodes can know the load balancer.
    fn is_written(&self) -> bool {
        self.facts.shows(self.ingress())
    }

    fn is_live(&self, node: &Reporter) -> bool {
        node.installed >= self.version && node.trouble_with(&self.facts.key.to_string()).is_none()
    }

    /// The time until which a node that is behind is waited for.
    fn patience(&self, node: &Reporter) -> Instant {
        let moving = (node.advanced + SETTLE).min(self.since + MOST);
        (self.since + SETTLE).max(node.since + JOIN).max(moving)
    }

    /// What the condition says now, or that nothing is known.
    fn still(&self, aspect: Aspect) -> Verdict {
        self.facts
            .conditions
            .verdict(aspect)
            .cloned()
            .unwrap_or_else(waiting_for_nodes)
    }

    fn sessions_down(&self) -> String {
        let sessions = self.reporters().flat_map(|(name, node)| {
            let sessions = node
                .report
                .announcing
                .iter()
                .flat_map(|announcing| &announcing.sessions);
            sessions
                .filter(|session| !session.established)
                .map(move |session| (name, session))
        });
        let down: Vec<String> = sessions
            .take(MOST_NAMED)
            .map(|(name, session)| format!("{} on {name}: {}", session.peer, session.trouble))
            .collect();
        match down.as_slice() {
            [] => ": is the address in an AddressPool, and do the nodes run portico node with \
                   announcing?"
                .to_owned(),
            down => format!("; BGP sessions are down: {}", down.join(", ")),
        }
    }
}

/// Each address with the one node that answers for it; those that announce it by BGP.
fn by_nodes(owners: &[Owner]) -> Verdict {
    let layer2 = owners.iter().filter(|owner| owner.node.is_some());
    let mut told: Vec<String> = layer2.map(Owner::to_string).collect();
    let reason = match (
        told.is_empty(),
        owners.iter().all(|owner| owner.bgp.is_empty()),
    ) {
        (true, _) => "BGP",
        (false, true) => "Layer2",
        (false, false) => "Layer2AndBGP",
    };
    let speakers: BTreeSet<&String> = owners.iter().flat_map(|owner| &owner.bgp).collect();
    if !speakers.is_empty() {
        let speakers: Vec<&String> = speakers.into_iter().collect();
        told.push(format!("{BY_BGP}{}", few(&speakers, MOST_NAMED)));
    }
    good(reason, told.join("; "))
}

/// What a message says of owners at layer 2.
pub(super) fn layer2_part(message: &str) -> &str {
    message.split(BY_BGP).next().unwrap_or_default()
}

fn waiting_for_address() -> Verdict {
    unknown(
        "WaitingForAddress",
        "there is no address yet: see Allocated",
    )
}

fn waiting_for_nodes() -> Verdict {
    unknown(
        "WaitingForNodes",
        "the nodes have not reported yet that they serve it",
    )
}

fn not_reported() -> Verdict {
    let text = "no node reports what it serves: nodes with portico node do, those with another proxy \
                never will";
    unknown("NotReported", text)
}

fn host(host: &Host) -> String {
    match host {
        Host::Ip(address) => address.to_string(),
        Host::Name(name) => name.clone(),
    }
}

#[cfg(test)]
mod tests;
