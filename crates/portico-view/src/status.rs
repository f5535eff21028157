//! Is all well? The troubles of the whole fleet, each with its way out; those that are equal are
//! told once.

use crate::node::Problem;
use crate::service::{NO_CONTROLLER, ServiceState};
use crate::text::{age, few};
use crate::{DaemonView, Fleet, LeaderView, NodeState, NodeView, Owner, ServiceView};
use k8s_openapi::jiff::Timestamp;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;

/// So many names are shown in a line, and so many troubles on a screen.
const FEW: usize = 5;
const SCREEN: usize = 20;

/// The Lease of the controller that serves load balancers.
const BALANCERS: &str = "portico-controller";

/// How all is, in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Verdict {
    /// Nothing has to be done.
    Well,
    /// Traffic flows, and something is wrong or not yet as it is to be.
    Degraded,
    /// The clients of a Service are not served, or no node forwards.
    Broken,
}

/// What `portico status` says.
#[derive(Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    /// How well the fleet is.
    pub verdict: Verdict,
    /// Whether there is no trouble at all.
    pub well: bool,
    /// The version of the API server.
    pub api_server: String,
    /// How many nodes there are, and in what state.
    pub nodes: Nodes,
    /// The elections of Portico's controllers.
    pub leaders: Vec<LeaderView>,
    /// Daemons that are neither nodes nor controllers.
    pub daemons: Vec<DaemonView>,
    /// How many Services there are.
    pub services: usize,
    /// Services without any endpoint, which is no trouble: nobody has scaled them up.
    pub idle: Vec<String>,
    /// Who has each address that nodes announce.
    pub addresses: Vec<Address>,
    /// What is wrong, the worst first.
    pub trouble: Vec<Trouble>,
}

#[derive(Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Address {
    /// `shop/web`
    pub service: String,
    #[serde(flatten)]
    pub owner: Owner,
}

#[derive(Debug, Default, PartialEq, Serialize)]
pub struct Nodes {
    /// All Nodes.
    pub total: usize,
    /// Names of nodes whose report is alive.
    pub reporting: Vec<String>,
    /// Names of nodes that have not installed the newest version.
    pub lagging: Vec<String>,
    /// Names of nodes that are not ready, silent, or report an error.
    pub unhealthy: Vec<String>,
    /// Names of nodes that load balancers are not to use.
    pub draining: Vec<String>,
}

/// Something that is wrong with one object.
#[derive(Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Trouble {
    /// `service/shop/web`, `node/n2`, `lease/portico-controller`
    pub of: String,
    /// What is wrong, as a sentence.
    pub what: String,
    /// What an operator can do about it.
    pub way_out: String,
}

impl Status {
    /// The status of a fleet at this time; `version` is the API server's.
    pub fn of(version: &str, fleet: &Fleet, clock: Timestamp) -> Self {
        let nodes = fleet.nodes(clock);
        let leaders = fleet.leaders(clock);
        let services = fleet.services(clock);
        let mut trouble = of_nodes(&nodes);
        let strays = fleet.nodes_without_object(clock);
        trouble.extend(strays.iter().map(|name| of_stray(name)));
        trouble.extend(nodes.is_empty().then(no_nodes));
        trouble.extend(leaders.iter().filter_map(of_leader));
        let daemons = fleet.daemons(clock);
        trouble.extend(daemons.iter().filter_map(of_daemon));
        let is_led = leaders
            .iter()
            .any(|leader| leader.lease == BALANCERS && leader.leads);
        let of_services = services
            .iter()
            .flat_map(|service| of_service(service, is_led));
        trouble.extend(of_services);
        let is_broken = |service: &ServiceView| service.state == ServiceState::Broken;
        let verdict = match () {
            () if nodes.is_empty() || services.iter().any(is_broken) => Verdict::Broken,
            () if trouble.is_empty() => Verdict::Well,
            () => Verdict::Degraded,
        };
        let idle = services.iter().filter(|service| service.is_idle());
        Self {
            verdict,
            well: verdict == Verdict::Well,
            idle: idle
                .map(|service| format!("{}/{}", service.namespace, service.name))
                .collect(),
            addresses: services.iter().flat_map(addresses).collect(),
            api_server: version.to_owned(),
            nodes: Nodes::of(&nodes),
            leaders,
            daemons,
            services: services.len(),
            trouble,
        }
    }

    /// Some nodes may only need a moment to report what was just changed.
    pub fn lags(&self) -> bool {
        !self.nodes.lagging.is_empty()
    }
}

impl Nodes {
    fn of(nodes: &[NodeView]) -> Self {
        let names = |is: &dyn Fn(&NodeView) -> bool| -> Vec<String> {
            let matching = nodes.iter().filter(|node| is(node));
            matching.map(|node| node.name.clone()).collect()
        };
        Self {
            total: nodes.len(),
            reporting: names(&NodeView::reports),
            lagging: names(&|node| node.state == NodeState::Lags),
            unhealthy: names(&|node| !node.problems.is_empty()),
            draining: names(&|node| node.draining.is_some()),
        }
    }
}

fn of_nodes(nodes: &[NodeView]) -> Vec<Trouble> {
    // Where no node has ever reported, the cluster forwards with another proxy.
    let some_report = nodes.iter().any(|node| node.report.is_some());
    let mut all = Vec::new();
    for node in nodes {
        let of = format!("node/{}", node.name);
        all.extend(node.problems.iter().map(|problem| Trouble {
            of: of.clone(),
            what: problem.what.clone(),
            way_out: problem.way_out.clone(),
        }));
        if node.report.is_none() && some_report {
            all.push(Trouble {
                of,
                what: "has never reported, and others do".to_owned(),
                way_out: "start `portico node` there".to_owned(),
            });
        }
    }
    all
}

fn of_stray(name: &str) -> Trouble {
    Trouble {
        of: format!("node/{name}"),
        what: "reports, and there is no Node of this name: it was removed, or its daemon has \
               another --hostname-override"
            .to_owned(),
        way_out: format!("stop `portico node` there, or join {name} again"),
    }
}

fn no_nodes() -> Trouble {
    Trouble {
        of: "nodes".to_owned(),
        what: "there are no nodes, so nothing is forwarded".to_owned(),
        way_out: "kubectl get nodes; portico join adds one".to_owned(),
    }
}

fn of_leader(leader: &LeaderView) -> Option<Trouble> {
    let way_out = "look whether `portico controller` runs; kubectl delete the Lease in kube-system \
                   if it shall not";
    (!leader.leads).then(|| Trouble {
        of: format!("lease/{}", leader.lease),
        what: format!("none leads since {}", age(leader.renewed_seconds_ago)),
        way_out: way_out.to_owned(),
    })
}

fn of_daemon(daemon: &DaemonView) -> Option<Trouble> {
    let DaemonView {
        command,
        holder,
        lease,
        ..
    } = daemon;
    let ago = age(daemon.renewed_seconds_ago);
    (!daemon.lives).then(|| Trouble {
        of: format!("lease/{lease}"),
        what: format!("`portico {command}` ({holder}) has not told for {ago} that it lives"),
        way_out: format!(
            "look whether it runs there and reaches the API server; kubectl -n kube-system delete \
             lease {lease} if it shall not"
        ),
    })
}

fn addresses(service: &ServiceView) -> impl Iterator<Item = Address> {
    service.owners.iter().map(|owner| Address {
        service: format!("{}/{}", service.namespace, service.name),
        owner: owner.clone(),
    })
}

fn of_service(service: &ServiceView, is_led: bool) -> Vec<Trouble> {
    let of = format!("service/{}/{}", service.namespace, service.name);
    let trouble = |problem: &Problem| Trouble {
        of: of.clone(),
        what: problem.what.clone(),
        way_out: match problem.what == NO_CONTROLLER && !is_led {
            true => "start `portico controller --cloud-provider ...`".to_owned(),
            false => problem.way_out.clone(),
        },
    };
    service.problems.iter().map(trouble).collect()
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "API server   answers, {}", self.api_server)?;
        writeln!(f, "Nodes        {}", self.nodes)?;
        for (at, leader) in self.leaders.iter().enumerate() {
            writeln!(
                f,
                "{}{leader}",
                if at == 0 {
                    "Leaders      "
                } else {
                    "             "
                }
            )?;
        }
        for (at, daemon) in self.daemons.iter().take(FEW).enumerate() {
            writeln!(f, "{:<12} {daemon}", if at == 0 { "Daemons" } else { "" })?;
        }
        write!(f, "Services     {}", self.services)?;
        match self.idle.as_slice() {
            [] => writeln!(f)?,
            idle => writeln!(
                f,
                ", {} of them idle, without any endpoint ({})",
                idle.len(),
                few(idle, FEW)
            )?,
        }
        self.show_addresses(f)?;
        if self.well {
            return writeln!(f, "\nAll is well.");
        }
        let groups = self.grouped();
        writeln!(f, "\nTrouble ({}):", self.trouble.len())?;
        for group in groups.iter().take(SCREEN) {
            let of: Vec<&str> = group.iter().map(|trouble| trouble.of.as_str()).collect();
            let Some(first) = group.first() else { continue };
            writeln!(
                f,
                "  {}: {}\n    → {}",
                few(&of, FEW),
                first.what,
                first.way_out
            )?;
        }
        let more: usize = groups.iter().skip(SCREEN).map(Vec::len).sum();
        match more {
            0 => Ok(()),
            more => writeln!(f, "  and {more} more: portico status --output json"),
        }
    }
}

impl Status {
    fn show_addresses(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, Address { service, owner }) in self.addresses.iter().take(FEW).enumerate() {
            let title = if at == 0 { "Addresses" } else { "" };
            let node = owner.node.as_deref();
            let by = match (node, owner.bgp.as_slice()) {
                (Some(node), _) => node.to_owned(),
                (None, []) => "no node answers".to_owned(),
                (None, bgp) => format!("by BGP from {}", few(bgp, FEW)),
            };
            let since = match owner.since.as_str() {
                "" => String::new(),
                since => format!(" since {since}"),
            };
            let address = owner.address;
            writeln!(f, "{title:<12} {address}   {by}{since}   {service}")?;
        }
        match self.addresses.len().saturating_sub(FEW) {
            0 => Ok(()),
            more => writeln!(
                f,
                "{:<12} and {more} more: portico get services -A -o wide",
                ""
            ),
        }
    }

    /// Troubles that are the same for several objects, in the order of the first of each.
    fn grouped(&self) -> Vec<Vec<&Trouble>> {
        let mut groups: Vec<Vec<&Trouble>> = Vec::new();
        let mut at = BTreeMap::new();
        for trouble in &self.trouble {
            let kind = trouble.of.split('/').next();
            let group = *at.entry((kind, &trouble.what)).or_insert_with(|| {
                groups.push(Vec::new());
                groups.len() - 1
            });
            if let Some(group) = groups.get_mut(group) {
                group.push(trouble);
            }
        }
        groups
    }
}

impl fmt::Display for Nodes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} report", self.total, self.reporting.len())?;
        for (word, names) in [
            ("lag", &self.lagging),
            ("unhealthy", &self.unhealthy),
            ("draining", &self.draining),
        ] {
            if !names.is_empty() {
                write!(f, ", {} {word} ({})", names.len(), few(names, FEW))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Object;
    use crate::samples::{self, NOW, THEN, lease, node, report, service, slice};
    use k8s_openapi::api::coordination::v1::Lease;
    use serde_json::json;

    fn judged(changes: impl IntoIterator<Item = Object>) -> Status {
        let mut fleet = samples::fleet();
        for object in changes {
            // As if it were seen for the first time.
            fleet.delete(&object);
            fleet.apply(object, NOW.parse().unwrap());
        }
        Status::of("v1.36.4", &fleet, NOW.parse().unwrap())
    }

    fn only(status: &Status) -> (&str, &str, &str) {
        assert_eq!(status.trouble.len(), 1, "{status}");
        let Trouble { of, what, way_out } = &status.trouble[0];
        (of, what, way_out)
    }

    fn leased(lease: Lease) -> Object {
        lease.into()
    }

    fn balancer(conditions: serde_json::Value) -> Object {
        service("LoadBalancer", conditions).into()
    }

    #[test]
    fn all_is_well() {
        let status = judged([]);
        assert!(status.well, "{status}");
        assert_eq!(
            status.to_string(),
            "API server   answers, v1.36.4\nNodes        2: 2 report\n\
             Leaders      portico-controller: host_1, renewed 2s ago\n\
             Services     1\n\nAll is well.\n"
        );
    }

    #[test]
    fn a_service_without_endpoints_tells_where_to_look() {
        let not_ready = json!([{"addresses": ["10.0.0.5"], "conditions": {"ready": false}}]);
        let status = judged([slice("web", not_ready.clone()).into()]);
        assert_eq!(
            only(&status),
            (
                "service/shop/web",
                "none of 1 endpoints is ready: 10.0.0.5:8080: connection refused",
                "kubectl get pods -n shop -l app=web"
            )
        );
        assert_eq!(status.verdict, Verdict::Broken);
        let mut without_selector = service("ClusterIP", json!([]));
        without_selector.spec.as_mut().unwrap().selector = None;
        let status = judged([slice("web", not_ready).into(), without_selector.into()]);
        assert_eq!(
            only(&status),
            (
                "service/shop/web",
                "none of 1 endpoints is ready: 10.0.0.5:8080: connection refused",
                "portico get endpoints web -n shop"
            )
        );
    }

    #[test]
    fn laggards_and_silent_nodes_are_named() {
        let status = judged([leased(report("n1", 90, THEN, json!([])))]);
        assert!(status.lags());
        assert_eq!(status.verdict, Verdict::Degraded);
        let told: Vec<&str> = status.trouble.iter().map(|one| one.what.as_str()).collect();
        assert_eq!(
            told,
            [
                "lags: it has installed Services up to version 90",
                "live on 1 of 2 nodes; not on n1: lags"
            ]
        );
        let long_ago = "2025-12-31T23:00:00.000000Z";
        let status = judged([leased(report("n1", 100, long_ago, json!([])))]);
        assert_eq!(only(&status).1, "has not reported for 60m");
        let status = judged([node("n3", json!({})).into()]);
        assert_eq!(only(&status).1, "has never reported, and others do");
        let behind = json!([{"service": "shop/other", "reason": "its address is taken"}]);
        let status = judged([leased(report("n1", 100, THEN, behind))]);
        assert_eq!(
            only(&status).1,
            "does not forward shop/other: its address is taken"
        );
    }

    #[test]
    fn a_false_condition_is_told_once_with_its_message() {
        let condition = |type_: &str, status: &str, reason: &str, message: &str| {
            json!({"type": type_, "status": status, "reason": reason, "message": message,
                "lastTransitionTime": "2026-01-01T00:00:00Z"})
        };
        let conditions = json!([
            condition("Allocated", "False", "PoolExhausted", "no address is left"),
            condition("Reachable", "Unknown", "Waits", "")
        ]);
        let status = judged([balancer(conditions)]);
        assert_eq!(
            only(&status),
            (
                "service/shop/web",
                "Allocated is False (PoolExhausted): no address is left",
                "portico get pools"
            )
        );
    }

    #[test]
    fn a_load_balancer_without_a_controller_says_what_to_start() {
        let status = judged([balancer(json!([]))]);
        assert!(only(&status).2.contains("see its class"), "{status}");
        let lost = lease("portico-controller", "", "2025-12-31T00:00:00.000000Z");
        let status = judged([balancer(json!([])), leased(lost)]);
        assert_eq!(status.trouble[0].of, "lease/portico-controller");
        let way_out = &status.trouble[1].way_out;
        assert!(way_out.contains("start `portico controller"), "{status}");
    }

    #[test]
    fn a_service_without_any_endpoint_is_idle_and_no_trouble() {
        let status = judged([slice("web", json!([])).into()]);
        assert!(status.well, "{status}");
        assert!(
            status
                .to_string()
                .contains("Services     1, 1 of them idle, without any endpoint (shop/web)\n"),
            "{status}"
        );
    }

    #[test]
    fn equal_troubles_are_told_once() {
        let renamed = |name: &str| -> Object {
            let mut other = service("ClusterIP", json!([]));
            other.metadata.name = Some(name.to_owned());
            other.into()
        };
        let status = judged([
            leased(report("n1", 90, THEN, json!([]))),
            renamed("web"),
            renamed("db"),
        ]);
        assert_eq!(status.trouble.len(), 3);
        let told = status.to_string();
        assert!(
            told.contains("service/shop/db, service/shop/web: live on 1 of 2 nodes; not on n1"),
            "{told}"
        );
    }

    #[test]
    fn nodes_that_are_missing_are_told() {
        let mut fleet = samples::fleet();
        let now = NOW.parse().unwrap();
        fleet.delete(&node("n2", json!({})).into());
        let status = Status::of("v1", &fleet, now);
        assert_eq!(only(&status).0, "node/n2");
        assert!(only(&status).1.contains("there is no Node of this name"));
        fleet.delete(&node("n1", json!({})).into());
        let status = Status::of("v1", &fleet, now);
        assert_eq!(status.verdict, Verdict::Broken);
        let of: Vec<&str> = status.trouble.iter().map(|one| one.of.as_str()).collect();
        assert_eq!(of, ["node/n1", "node/n2", "nodes"]);
    }

    #[test]
    fn a_node_that_drains_is_shown_and_no_trouble() {
        let cordoned = node("n2", json!({"unschedulable": true}));
        let status = judged([cordoned.into()]);
        assert!(status.well && status.nodes.draining == ["n2"]);
    }
}
