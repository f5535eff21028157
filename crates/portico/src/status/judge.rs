//! What is well and what is not.

use crate::fleet::{Fleet, LeaderView, NodeView, SILENT, ServiceView};
use crate::output::few;
use jiff::Timestamp;
use serde::Serialize;
use std::fmt;

/// So many names in a line, and so many troubles on a screen.
const FEW: usize = 5;
const SCREEN: usize = 20;

#[derive(Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    pub well: bool,
    pub api_server: String,
    pub nodes: Nodes,
    pub leaders: Vec<LeaderView>,
    pub services: usize,
    pub trouble: Vec<Trouble>,
}

#[derive(Debug, Default, PartialEq, Serialize)]
pub struct Nodes {
    pub total: usize,
    pub reporting: Vec<String>,
    pub lagging: Vec<String>,
    pub unhealthy: Vec<String>,
    pub draining: Vec<String>,
}

#[derive(Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Trouble {
    /// `service/shop/web`, `node/n2`, `lease/portico-controller`
    pub of: String,
    pub what: String,
    pub way_out: String,
}

impl Status {
    pub fn of(version: &str, fleet: &Fleet, now: Timestamp) -> Status {
        let (nodes, services, leaders) =
            (fleet.nodes(now), fleet.services(now), fleet.leaders(now));
        let mut trouble = of_nodes(&nodes);
        trouble.extend(leaders.iter().filter_map(of_leader));
        trouble.extend(
            services
                .iter()
                .flat_map(|service| of_service(service, &leaders)),
        );
        Status {
            well: trouble.is_empty(),
            api_server: version.to_owned(),
            nodes: Nodes::of(&nodes),
            leaders,
            services: services.len(),
            trouble,
        }
    }

    /// Something may only need a moment.
    pub fn lags(&self) -> bool {
        !self.nodes.lagging.is_empty()
    }
}

impl Nodes {
    fn of(nodes: &[NodeView]) -> Nodes {
        let names = |is: &dyn Fn(&NodeView) -> bool| -> Vec<String> {
            nodes
                .iter()
                .filter(|node| is(node))
                .map(|node| node.name.clone())
                .collect()
        };
        Nodes {
            total: nodes.len(),
            reporting: names(&NodeView::reports),
            lagging: names(&|node| node.report.as_ref().is_some_and(|report| report.lags)),
            unhealthy: names(&|node| !node.trouble().is_empty()),
            draining: names(&|node| node.draining.is_some()),
        }
    }
}

fn of_nodes(nodes: &[NodeView]) -> Vec<Trouble> {
    let mut all: Vec<Trouble> = Vec::new();
    for node in nodes {
        let of = format!("node/{}", node.name);
        all.extend(node.trouble().into_iter().map(|(what, way_out)| Trouble {
            of: of.clone(),
            what,
            way_out,
        }));
        // Where no node does, none of them forwards by Portico.
        if node.report.is_none() && nodes.iter().any(|other| other.report.is_some()) {
            let way_out = "start `portico node` there".to_owned();
            all.push(Trouble {
                of,
                what: "has never reported, and others do".to_owned(),
                way_out,
            });
        }
    }
    all
}

fn of_leader(leader: &LeaderView) -> Option<Trouble> {
    (!leader.leads).then(|| Trouble {
        of: format!("lease/{}", leader.lease),
        what: format!(
            "nobody leads since {}",
            crate::fleet::age(leader.renewed_seconds_ago)
        ),
        way_out: "look whether `portico controller` runs; kubectl delete the Lease in kube-system \
                  if it shall not"
            .to_owned(),
    })
}

fn of_service(service: &ServiceView, leaders: &[LeaderView]) -> Vec<Trouble> {
    let of = format!("service/{}/{}", service.namespace, service.name);
    let mut all = Vec::new();
    for held in service
        .conditions
        .iter()
        .filter(|held| held.status == "False")
    {
        let what = format!(
            "{} is False ({}): {}",
            held.type_, held.reason, held.message
        );
        all.push(Trouble {
            of: of.clone(),
            what,
            way_out: way_out(&held.type_, service),
        });
    }
    let told = |aspect: &str| {
        service
            .condition(aspect)
            .is_some_and(|held| held.status == "False")
    };
    // A node that is silent is told once, and not for every Service.
    let known = service
        .live
        .iter()
        .flat_map(|live| &live.missing)
        .filter(|why| !why.ends_with(SILENT));
    let missing: Vec<&String> = known.collect();
    if let Some(live) = service
        .live
        .as_ref()
        .filter(|_| !missing.is_empty() && !told("Programmed"))
    {
        let what = format!(
            "live on {} of {} nodes; not on {}",
            live.on,
            live.of,
            few(&missing, FEW)
        );
        all.push(Trouble {
            of: of.clone(),
            what,
            way_out: way_out("Programmed", service),
        });
    }
    let is_served =
        service.type_ == "ExternalName" || service.ports.is_empty() || service.endpoints.ready > 0;
    if !is_served && !told("Reachable") {
        let failing = match service.endpoints.failing.as_slice() {
            [] => String::new(),
            failing => format!(": {}", few(failing, FEW)),
        };
        let what = format!(
            "none of {} endpoints is ready{failing}",
            service.endpoints.total
        );
        all.push(Trouble {
            of: of.clone(),
            what,
            way_out: way_out("Reachable", service),
        });
    }
    if service.is_balancer() && service.conditions.is_empty() && !service.balanced {
        let leads = leaders
            .iter()
            .any(|leader| leader.lease == "portico-controller" && leader.leads);
        let way_out = match leads {
            true => {
                "see its class: portico get balancers; the controller serves those of its own and \
                 without one"
            }
            false => "start `portico controller --cloud-provider ...`",
        };
        let what = "waits for a load balancer, and no controller has taken it up".to_owned();
        all.push(Trouble {
            of,
            what,
            way_out: way_out.to_owned(),
        });
    }
    all
}

/// What to do first.
fn way_out(aspect: &str, service: &ServiceView) -> String {
    let ServiceView {
        namespace,
        name,
        selector,
        ..
    } = service;
    match aspect {
        "Allocated" => "portico get pools".to_owned(),
        "Programmed" | "Announced" => "portico get nodes".to_owned(),
        _ if selector.is_empty() => format!("portico get endpoints {name} -n {namespace}"),
        _ => format!("kubectl get pods -n {namespace} -l {selector}"),
    }
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
        writeln!(f, "Services     {}", self.services)?;
        if self.well {
            return writeln!(f, "\nAll is well.");
        }
        writeln!(f, "\nTrouble ({}):", self.trouble.len())?;
        for trouble in self.trouble.iter().take(SCREEN) {
            writeln!(
                f,
                "  {}: {}\n    → {}",
                trouble.of, trouble.what, trouble.way_out
            )?;
        }
        match self.trouble.len().saturating_sub(SCREEN) {
            0 => Ok(()),
            more => writeln!(f, "  and {more} more: portico status --output json"),
        }
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
    use crate::fleet::tests::{NOW, fleet, lease, node, report, service, slice};
    use serde_json::json;

    fn judged(change: impl FnOnce(&mut Fleet)) -> Status {
        let mut fleet = fleet();
        change(&mut fleet);
        Status::of("v1.36.4", &fleet, NOW.parse().unwrap())
    }

    fn only(status: &Status) -> (&str, &str, &str) {
        assert_eq!(status.trouble.len(), 1, "{status}");
        let Trouble { of, what, way_out } = &status.trouble[0];
        (of, what, way_out)
    }

    #[test]
    fn all_is_well() {
        let status = judged(|_| {});
        assert!(status.well, "{status}");
        assert_eq!(
            status.to_string(),
            "API server   answers, v1.36.4\nNodes        2: 2 report\nLeaders      portico-controller: host_1, renewed 2s ago\n\
             Services     1\n\nAll is well.\n"
        );
    }

    #[test]
    fn a_service_without_endpoints_tells_where_to_look() {
        let status = judged(|fleet| fleet.slices.clear());
        assert_eq!(
            only(&status),
            (
                "service/shop/web",
                "none of 0 endpoints is ready",
                "kubectl get pods -n shop -l app=web"
            )
        );
        let status = judged(|fleet| {
            fleet.slices = vec![slice(
                "web",
                json!([{"addresses": ["10.0.0.5"], "conditions": {"ready": false}}]),
            )];
            fleet.services[0].spec.as_mut().unwrap().selector = None;
        });
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
        let status = judged(|fleet| {
            fleet.leases[0] = report("n1", 90, "2026-01-01T00:00:00.000000Z", json!([]))
        });
        assert!(status.lags());
        let told: Vec<&str> = status
            .trouble
            .iter()
            .map(|trouble| trouble.what.as_str())
            .collect();
        assert_eq!(
            told,
            [
                "lags: it has installed Services up to version 90",
                "live on 1 of 2 nodes; not on n1: lags"
            ]
        );
        let status = judged(|fleet| {
            fleet.leases[0] = report("n1", 100, "2025-12-31T23:00:00.000000Z", json!([]))
        });
        assert_eq!(only(&status).1, "has not reported for 60m");
        let status = judged(|fleet| drop(fleet.leases.remove(0)));
        assert_eq!(only(&status).1, "has never reported, and others do");
    }

    #[test]
    fn a_false_condition_is_told_once_with_its_message() {
        let conditions = json!([
            {"type": "Allocated", "status": "False", "reason": "PoolExhausted", "message": "no address is left",
                "lastTransitionTime": "2026-01-01T00:00:00Z"},
            {"type": "Reachable", "status": "Unknown", "reason": "Waits", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]);
        let status = judged(|fleet| fleet.services = vec![service("LoadBalancer", conditions)]);
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
    fn a_balancer_that_nobody_serves_and_a_lease_that_nobody_holds() {
        let status = judged(|fleet| fleet.services = vec![service("LoadBalancer", json!([]))]);
        assert!(only(&status).2.contains("see its class"), "{status}");
        let status = judged(|fleet| {
            fleet.services = vec![service("LoadBalancer", json!([]))];
            fleet.leases[2] = lease("portico-controller", "", "2025-12-31T00:00:00.000000Z");
        });
        assert_eq!(status.trouble[0].of, "lease/portico-controller");
        assert!(
            status.trouble[1]
                .way_out
                .contains("start `portico controller"),
            "{status}"
        );
    }

    #[test]
    fn a_node_that_drains_is_shown_and_no_trouble() {
        let status = judged(|fleet| fleet.nodes[1] = node("n2", json!({"unschedulable": true})));
        assert!(status.well && status.nodes.draining == ["n2"]);
        let behind = json!([{"service": "shop/other", "reason": "its address is taken"}]);
        let status = judged(|fleet| {
            fleet.leases[0] = report("n1", 100, "2026-01-01T00:00:00.000000Z", behind)
        });
        assert_eq!(
            only(&status).1,
            "does not forward shop/other: its address is taken"
        );
    }
}
