//! A Service: where it answers, which endpoints serve it, on which nodes it is live, and in what
//! state that leaves it.

use crate::endpoint::EndpointView;
use crate::frontend::{self, Frontend};
use crate::node::{NodeView, Problem, SILENT, version};
use crate::owner::{Owner, Owners};
use crate::text::few;
use k8s_openapi::api::core::v1::{Service, ServiceSpec};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use portico_model::objects::VISIBILITY;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// The conditions that Portico writes, in the order in which they come true.
pub const CONDITIONS: [&str; 4] = ["Allocated", "Programmed", "Announced", "Reachable"];
/// What is wrong with a Service that no controller has written about.
pub(crate) const NO_CONTROLLER: &str =
    "waits for a load balancer, and no controller has taken it up";
/// So many nodes, or endpoints, are named in one line.
const FEW: usize = 5;

/// Whether clients are served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum ServiceState {
    /// Every condition is True, and an endpoint is ready.
    Well,
    /// It has no endpoint at all: nobody has scaled its Pods up, or given it endpoints.
    Idle,
    /// Something that takes its time is not known yet, or not everywhere yet.
    Waits,
    /// Something is wrong: a condition is False, or no endpoint is ready.
    Broken,
}

impl fmt::Display for ServiceState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Well => "well",
            Self::Idle => "idle",
            Self::Waits => "waits",
            Self::Broken => "broken",
        })
    }
}

/// A Service with its endpoints, its conditions and what is wrong with it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ServiceView {
    /// The namespace of the Service.
    pub namespace: String,
    /// The name of the Service.
    pub name: String,
    /// The type of the Service, such as `LoadBalancer`.
    #[serde(rename = "type")]
    pub type_: String,
    /// Where it is narrower than the type says.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub visibility: String,
    /// `spec.loadBalancerClass`, empty without one.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub class: String,
    /// Whether its clients are served.
    pub state: ServiceState,
    /// What is wrong, the worst first.
    pub problems: Vec<Problem>,
    /// Those for the outside first.
    pub addresses: Vec<String>,
    /// The addresses on which it answers, with their kinds and ports.
    pub frontends: Vec<Frontend>,
    /// Its load balancer has an address.
    #[serde(skip)]
    pub has_balancer: bool,
    /// `80/tcp`, or `80:30080/tcp` with the node port.
    pub ports: Vec<String>,
    /// How many endpoints it has.
    pub endpoints: Endpoints,
    /// On which nodes its present form is in force; `None` where no node reports.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub live: Option<Live>,
    /// The conditions of its status.
    pub conditions: Vec<Condition>,
    /// Who has each address of its load balancer, where nodes announce it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub owners: Vec<Owner>,
    /// Which Pods serve it; empty where its endpoints do not come from Pods.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub selector: String,
    /// `Cluster` or `Local`; empty where the type has none.
    pub external_traffic_policy: String,
    /// `None` or `ClientIP`.
    pub session_affinity: String,
}

/// Endpoints, counted by address: one that serves several ports counts once.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Endpoints {
    /// Endpoints that get connections.
    pub ready: usize,
    /// All endpoints.
    pub total: usize,
    /// Those that fail their check, with the reason.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub failing: Vec<String>,
}

/// On how many of the nodes that report a Service is in force.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Live {
    /// Nodes that have installed its present version.
    pub on: usize,
    /// Nodes that report.
    pub of: usize,
    /// `node: why`
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<String>,
}

/// A condition of a Service, as its status has it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// The name of the condition.
    #[serde(rename = "type")]
    pub type_: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// The reason in one word, for programs.
    pub reason: String,
    /// The reason, for people.
    pub message: String,
    /// When the status last changed (RFC 3339); empty where that is not known.
    pub since: String,
}

impl ServiceView {
    /// `slices` are those of this Service.
    pub(crate) fn of<'a>(
        service: &Service,
        slices: impl Iterator<Item = &'a EndpointSlice>,
        liveness: &Liveness,
        owners: &Owners,
    ) -> Self {
        let (spec, metadata) = (service.spec.clone().unwrap_or_default(), &service.metadata);
        let annotations = metadata.annotations.as_ref();
        let namespace = metadata.namespace.clone().unwrap_or_default();
        let name = metadata.name.clone().unwrap_or_default();
        let wanted = version(metadata.resource_version.as_deref());
        let live = frontend::is_forwarded(&spec)
            .then(|| liveness.live(&format!("{namespace}/{name}"), wanted))
            .flatten();
        let endpoints: Vec<EndpointView> = slices.flat_map(EndpointView::of).collect();
        let mut view = Self {
            state: ServiceState::Well,
            problems: Vec::new(),
            addresses: frontend::addresses(service, &spec),
            frontends: Frontend::all(service, &liveness.partitions),
            has_balancer: !frontend::ingress(service).is_empty(),
            ports: spec
                .ports
                .iter()
                .flatten()
                .map(frontend::port_with_node_port)
                .collect(),
            endpoints: Endpoints::of(&endpoints),
            owners: find_owners(service, &spec, &endpoints, owners),
            live,
            conditions: conditions(service),
            selector: selector(&spec),
            class: spec.load_balancer_class.unwrap_or_default(),
            type_: spec.type_.unwrap_or_default(),
            visibility: annotations
                .and_then(|all| all.get(VISIBILITY))
                .cloned()
                .unwrap_or_default(),
            external_traffic_policy: spec.external_traffic_policy.unwrap_or_default(),
            session_affinity: spec.session_affinity.unwrap_or_default(),
            namespace,
            name,
        };
        view.problems = view.find_problems();
        let partition = frontend::port_partition(service);
        view.problems
            .extend(partition.and_then(|partition| liveness.lacks_partition(partition)));
        view.state = view.find_state();
        view
    }

    /// Whether its type is `LoadBalancer`.
    pub fn is_balancer(&self) -> bool {
        self.type_ == "LoadBalancer"
    }

    /// The condition of this name, if there is one.
    pub fn condition(&self, type_: &str) -> Option<&Condition> {
        self.conditions.iter().find(|held| held.type_ == type_)
    }

    /// It asks for a load balancer, and no controller has written about it yet.
    pub fn waits_for_controller(&self) -> bool {
        self.is_balancer() && self.conditions.is_empty() && !self.has_balancer
    }

    /// Its conditions that are not true, in a few words; `ok` where all are.
    pub fn conditions_in_words(&self) -> String {
        let bad = self.conditions.iter().filter(|held| held.status != "True");
        let words: Vec<String> = bad
            .map(|held| format!("{} {}: {}", held.type_, held.status, held.reason))
            .collect();
        match (self.conditions.is_empty(), words.is_empty()) {
            (true, _) => String::new(),
            (false, true) => "ok".to_owned(),
            (false, false) => words.join(", "),
        }
    }

    /// `2 of 3` nodes.
    pub fn live_in_words(&self) -> String {
        self.live
            .as_ref()
            .map_or(String::new(), |live| format!("{} of {}", live.on, live.of))
    }

    fn find_state(&self) -> ServiceState {
        let is_unknown = |held: &Condition| held.status == "Unknown" && !self.is_idle_because(held);
        let lags = self.live.as_ref().is_some_and(|live| live.on < live.of);
        let is_bad = |held: &Condition| !self.is_idle_because(held);
        let broken = self.bad_conditions().any(is_bad)
            || self.not_announced().next().is_some()
            || !self.is_served() && !self.is_idle();
        match () {
            () if broken => ServiceState::Broken,
            () if lags || self.waits_for_controller() || self.conditions.iter().any(is_unknown) => {
                ServiceState::Waits
            }
            () if self.is_idle() => ServiceState::Idle,
            () => ServiceState::Well,
        }
    }

    fn is_served(&self) -> bool {
        self.type_ == "ExternalName" || self.ports.is_empty() || self.endpoints.ready > 0
    }

    /// It has no endpoint, ready or not: nobody wants it to be served now.
    pub fn is_idle(&self) -> bool {
        self.endpoints.total == 0 && !self.is_served()
    }

    /// A condition that says of an idle Service only that it is idle.
    fn is_idle_because(&self, held: &Condition) -> bool {
        self.is_idle() && matches!(held.reason.as_str(), "NoEndpoints" | "NotAnnounced")
    }

    fn bad_conditions(&self) -> impl Iterator<Item = &Condition> {
        self.conditions.iter().filter(|held| held.status == "False")
    }

    fn find_problems(&self) -> Vec<Problem> {
        let mut all = self.false_conditions();
        all.extend(self.not_live().filter(|_| !self.is_false("Programmed")));
        if !self.is_false("Announced") {
            all.extend(self.not_announced());
        }
        let is_told = self.is_false("Reachable") || self.is_idle();
        all.extend(self.not_served().filter(|_| !is_told));
        if self.waits_for_controller() {
            all.push(Problem::new(
                NO_CONTROLLER,
                "see its class: portico get balancers; the controller serves those of its own and \
                 without one",
            ));
        }
        all
    }

    fn is_false(&self, condition: &str) -> bool {
        self.condition(condition)
            .is_some_and(|held| held.status == "False")
    }

    fn false_conditions(&self) -> Vec<Problem> {
        let bad = self
            .bad_conditions()
            .filter(|held| !self.is_idle_because(held));
        bad.map(|held| {
            let what = format!(
                "{} is False ({}): {}",
                held.type_, held.reason, held.message
            );
            Problem::new(what, self.way_out(&held.type_))
        })
        .collect()
    }

    /// A node that is silent is told once, as a problem of that node, and not for every Service.
    fn not_live(&self) -> Option<Problem> {
        let live = self.live.as_ref()?;
        let missing: Vec<&String> = live
            .missing
            .iter()
            .filter(|why| !why.ends_with(SILENT))
            .collect();
        let what = format!(
            "live on {} of {} nodes; not on {}",
            live.on,
            live.of,
            few(&missing, FEW)
        );
        (!missing.is_empty()).then(|| Problem::new(what, self.way_out("Programmed")))
    }

    /// Addresses whose owner is gone, also where no controller is there to say so.
    fn not_announced(&self) -> impl Iterator<Item = Problem> {
        let lost = self.owners.iter().filter(|owner| !owner.is_announced());
        lost.map(|owner| Problem::new(owner.to_string(), self.way_out("Announced")))
    }

    fn not_served(&self) -> Option<Problem> {
        if self.is_served() {
            return None;
        }
        let failing = match self.endpoints.failing.as_slice() {
            [] => String::new(),
            failing => format!(": {}", few(failing, FEW)),
        };
        let what = format!(
            "none of {} endpoints is ready{failing}",
            self.endpoints.total
        );
        Some(Problem::new(what, self.way_out("Reachable")))
    }

    /// What to look at first when this condition is not true.
    fn way_out(&self, condition: &str) -> String {
        let (namespace, name) = (&self.namespace, &self.name);
        match condition {
            "Allocated" => "portico get pools".to_owned(),
            "Programmed" | "Announced" => "portico get nodes".to_owned(),
            _ if self.selector.is_empty() => {
                format!("portico get endpoints {name} -n {namespace}")
            }
            _ => format!("kubectl get pods -n {namespace} -l {}", self.selector),
        }
    }
}

impl Endpoints {
    fn of(all: &[EndpointView]) -> Self {
        let failing: BTreeSet<String> = all
            .iter()
            .filter(|one| !one.trouble.is_empty())
            .map(|one| format!("{}: {}", one.address, one.trouble))
            .collect();
        let hosts: BTreeSet<&str> = all.iter().map(EndpointView::host).collect();
        let ready: BTreeSet<&str> = all
            .iter()
            .filter(|one| one.is_ready())
            .map(EndpointView::host)
            .collect();
        Self {
            ready: ready.len(),
            total: hosts.len(),
            failing: failing.into_iter().collect(),
        }
    }
}

/// How far all nodes are, put together once, so that a Service among thousands is looked up in it
/// instead of asking every node.
#[derive(Default)]
pub(crate) struct Liveness {
    reporting: usize,
    /// `node: does not report`, for nodes whose report is too old.
    silent: Vec<String>,
    /// The nodes by what they have installed, those that are furthest behind first.
    installed: Vec<(u64, String, String)>,
    /// For a Service that some nodes cannot install: those nodes, and why.
    behind: BTreeMap<String, Vec<(String, String)>>,
    /// The addresses of nodes in port partitions.
    partitions: BTreeMap<String, Vec<String>>,
}

impl Liveness {
    pub(crate) fn of(nodes: &[NodeView]) -> Self {
        let mut liveness = Self::default();
        for node in nodes {
            let Some(report) = &node.report else { continue };
            liveness.reporting += 1;
            if !report.fresh {
                liveness.silent.push(format!("{}: {SILENT}", node.name));
                continue;
            }
            let why = match report.content.trouble.as_str() {
                "" => "lags",
                trouble => trouble,
            };
            liveness
                .installed
                .push((report.revision, node.name.clone(), why.to_owned()));
            for partition in &report.content.partitions {
                let addresses = liveness
                    .partitions
                    .entry(partition.name.clone())
                    .or_default();
                addresses.extend(partition.addresses.iter().cloned());
            }
            for behind in &report.content.behind {
                let of_service = liveness.behind.entry(behind.service.clone()).or_default();
                of_service.push((node.name.clone(), behind.reason.clone()));
            }
        }
        liveness.installed.sort();
        liveness
    }

    /// Where nodes report, and none of them has an address of this port partition.
    fn lacks_partition(&self, partition: &str) -> Option<Problem> {
        let lacks = !self.installed.is_empty() && !self.partitions.contains_key(partition);
        lacks.then(|| {
            Problem::new(
                format!(
                    "its node ports answer nowhere: no node has an address in port partition \
                     {partition}"
                ),
                "portico get partitions; or name another in the annotation \
                 portico.dev/port-partition",
            )
        })
    }

    /// `None` where no node reports.
    fn live(&self, service: &str, version: u64) -> Option<Live> {
        if self.reporting == 0 {
            return None;
        }
        let behind = self.behind.get(service).map_or(&[][..], Vec::as_slice);
        let is_behind = |node: &str| behind.iter().any(|(name, _)| name == node);
        let late = self.installed.iter().take_while(|(at, ..)| *at < version);
        let late = late.filter(|(_, node, _)| !is_behind(node));
        let mut missing = self.silent.clone();
        missing.extend(behind.iter().map(|(node, why)| format!("{node}: {why}")));
        missing.extend(late.map(|(_, node, why)| format!("{node}: {why}")));
        missing.sort();
        Some(Live {
            on: self.reporting - missing.len(),
            of: self.reporting,
            missing,
        })
    }
}

/// Of the addresses of its load balancer, those of which nodes say something.
fn find_owners(
    service: &Service,
    spec: &ServiceSpec,
    endpoints: &[EndpointView],
    owners: &Owners,
) -> Vec<Owner> {
    let local = spec.external_traffic_policy.as_deref() == Some("Local");
    let homes: BTreeSet<&str> = endpoints
        .iter()
        .filter(|endpoint| endpoint.is_ready())
        .map(|endpoint| endpoint.node.as_str())
        .collect();
    let may_serve = |node: &str| !local || homes.contains(node);
    let addresses = frontend::ingress(service).iter();
    addresses
        .filter_map(|ingress| ingress.ip.as_deref()?.parse().ok())
        .map(|address| owners.of_address(address, &may_serve))
        .filter(|owner| !owner.is_unknown())
        .collect()
}

fn selector(spec: &ServiceSpec) -> String {
    let pairs = spec.selector.iter().flatten();
    let pairs: Vec<String> = pairs.map(|(key, value)| format!("{key}={value}")).collect();
    pairs.join(",")
}

fn conditions(service: &Service) -> Vec<Condition> {
    let all = service
        .status
        .as_ref()
        .and_then(|status| status.conditions.as_deref())
        .unwrap_or_default();
    let ours = CONDITIONS
        .iter()
        .filter_map(|name| all.iter().find(|held| held.type_ == *name));
    ours.map(|held| Condition {
        type_: held.type_.clone(),
        status: held.status.clone(),
        reason: held.reason.clone(),
        message: held.message.clone(),
        since: held.last_transition_time.0.to_string(),
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Fleet;
    use crate::samples::{self, NOW, THEN, report, service, slice};
    use portico_model::partitions::PORT_PARTITION;
    use portico_model::report::ANNOTATION;
    use serde_json::{Value, json};

    fn view(fleet: &Fleet) -> ServiceView {
        fleet.services(NOW.parse().unwrap()).remove(0)
    }

    #[test]
    fn a_service_and_where_it_is_live() {
        let mut fleet = samples::fleet();
        let shown = view(&fleet);
        assert_eq!(shown.ports, ["80:30080/tcp", "53/udp"]);
        assert_eq!(
            (
                shown.endpoints.ready,
                shown.endpoints.total,
                shown.live_in_words()
            ),
            (1, 1, "2 of 2".to_owned())
        );
        assert_eq!(shown.addresses, ["10.96.0.1"]);
        assert_eq!(shown.conditions_in_words(), "");
        for node in ["n1", "n2"] {
            let lease = report(node, 0, THEN, json!([]));
            fleet.delete(&lease.into());
        }
        assert_eq!(view(&fleet).live, None, "no node reports");
    }

    #[test]
    fn a_narrow_visibility_is_shown() {
        let mut fleet = samples::fleet();
        assert_eq!(view(&fleet).visibility, "");
        let mut narrow = service("ClusterIP", json!([]));
        let annotations = narrow.metadata.annotations.get_or_insert_default();
        annotations.insert(VISIBILITY.to_owned(), "namespace".to_owned());
        fleet.apply(narrow.into(), NOW.parse().unwrap());
        assert_eq!(view(&fleet).visibility, "namespace");
    }

    #[test]
    fn node_ports_in_a_port_partition() {
        let mut fleet = samples::fleet();
        let mut object = service("NodePort", json!([]));
        object.metadata.annotations = Some([(PORT_PARTITION.to_owned(), "left".to_owned())].into());
        fleet.apply(object.into(), NOW.parse().unwrap());
        let node_port = |view: &ServiceView| {
            let found = view.frontends.iter().find(|one| one.kind == "node port");
            found.unwrap().address.clone()
        };
        let nowhere = view(&fleet);
        assert_eq!(node_port(&nowhere), "no node (port partition left)");
        let problem = &nowhere.problems[0];
        assert!(
            problem.what.starts_with("its node ports answer nowhere"),
            "{problem:?}"
        );
        let mut lease = report("n1", 100, THEN, json!([]));
        let told = json!({"services": "100", "slices": "1", "nodePorts": ["0.0.0.0/0"],
            "partitions": [{"name": "left", "addresses": ["192.0.2.7/32"]}]});
        lease.metadata.annotations = Some([(ANNOTATION.to_owned(), told.to_string())].into());
        fleet.apply(lease.into(), NOW.parse().unwrap());
        let there = view(&fleet);
        assert_eq!(node_port(&there), "192.0.2.7/32 (port partition left)");
        assert_eq!(there.problems, []);
    }

    #[test]
    fn each_node_that_misses_a_service_is_counted_once() {
        let behind = json!([{"service": "shop/web", "reason": "taken"}]);
        let mut fleet = samples::fleet();
        fleet.apply(report("n1", 90, THEN, behind).into(), NOW.parse().unwrap());
        let live = view(&fleet).live.unwrap();
        assert_eq!((live.on, live.of), (1, 2));
        assert_eq!(live.missing, ["n1: taken"]);
    }

    #[test]
    fn the_state_of_a_service() {
        use ServiceState::{Broken, Idle, Waits, Well};
        let condition = |type_: &str, status: &str| -> Value {
            json!([{"type": type_, "status": status, "reason": "R", "message": "m",
                "lastTransitionTime": "2026-01-01T00:00:00Z"}])
        };
        let endpoints = json!([{"addresses": ["10.0.0.5"]}]);
        let not_ready = json!([{"addresses": ["10.0.0.5"], "conditions": {"ready": false}}]);
        let none = json!([]);
        let no_endpoints = json!([{"type": "Reachable", "status": "False", "reason": "NoEndpoints",
            "message": "m", "lastTransitionTime": "2026-01-01T00:00:00Z"}]);
        let table = [
            ("ClusterIP", json!([]), &endpoints, Well),
            ("ClusterIP", json!([]), &not_ready, Broken),
            ("ClusterIP", json!([]), &none, Idle),
            ("LoadBalancer", no_endpoints, &none, Idle),
            (
                "LoadBalancer",
                condition("Allocated", "False"),
                &none,
                Broken,
            ),
            (
                "LoadBalancer",
                condition("Announced", "True"),
                &endpoints,
                Well,
            ),
            (
                "LoadBalancer",
                condition("Announced", "Unknown"),
                &endpoints,
                Waits,
            ),
            (
                "LoadBalancer",
                condition("Announced", "False"),
                &endpoints,
                Broken,
            ),
            ("LoadBalancer", json!([]), &endpoints, Waits),
        ];
        for (type_, conditions, endpoints, expected) in table {
            let mut fleet = samples::fleet();
            let now = NOW.parse().unwrap();
            fleet.apply(service(type_, conditions.clone()).into(), now);
            fleet.apply(slice("web", endpoints.clone()).into(), now);
            let shown = view(&fleet);
            assert_eq!(shown.state, expected, "{type_} {conditions} {endpoints}");
            assert_eq!(
                shown.problems.is_empty(),
                matches!(expected, Well | Idle)
                    || type_ == "LoadBalancer"
                        && expected == Waits
                        && !conditions.as_array().unwrap().is_empty(),
                "{shown:?}"
            );
        }
    }
}
