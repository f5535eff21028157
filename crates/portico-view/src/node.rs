//! A node: what it reports about itself, and in what state it is.

use crate::fitness::{self, Unfit};
use crate::life::{self, WatchedLease};
use crate::text::age;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, NodeStatus};
use k8s_openapi::jiff::Timestamp;
use portico_model::report::{self, NodeReport};
use serde::Serialize;
use std::fmt;

/// Why a Service is not live on a node whose report is too old.
pub(crate) const SILENT: &str = "does not report";

/// The state of a node in one word: the first of these that applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum NodeState {
    /// Its kubelet says that it is not ready, or nothing is heard of its kubelet.
    NotReady,
    /// It has never reported: another proxy may forward there, or none.
    NoReport,
    /// Its last report is too old.
    Silent,
    /// It cannot install something.
    Trouble,
    /// A Service was changed after the version that it has installed.
    Lags,
    /// It forwards, and load balancers are not to use it.
    Draining,
    /// It forwards everything, and nothing is wrong.
    Good,
}

impl fmt::Display for NodeState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotReady => "not ready",
            Self::NoReport => "no report",
            Self::Silent => "silent",
            Self::Trouble => "trouble",
            Self::Lags => "lags",
            Self::Draining => "draining",
            Self::Good => "good",
        })
    }
}

/// Something that is wrong, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Problem {
    /// What is wrong, as a sentence.
    pub what: String,
    /// What an operator can do about it.
    pub way_out: String,
}

impl Problem {
    pub(crate) fn new(what: impl Into<String>, way_out: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            way_out: way_out.into(),
        }
    }
}

/// A node with its report and what follows from both.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeView {
    /// The name of the Node.
    pub name: String,
    /// Internal ones first.
    pub addresses: Vec<String>,
    /// What its kubelet says; `None` where there is no kubelet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready: Option<bool>,
    /// The one word for how it is.
    pub state: NodeState,
    /// Why load balancers are not to use it, or new pods not to start there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub draining: Option<String>,
    /// What is wrong with it, the worst first.
    pub problems: Vec<Problem>,
    /// What it reports; `None` where it never has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub report: Option<ReportView>,
}

/// The report of a node, and how far it is.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ReportView {
    /// How long ago it was renewed, in seconds.
    pub seconds_ago: i64,
    /// It was renewed in time.
    pub fresh: bool,
    /// Everything of Services up to this version is installed.
    pub revision: u64,
    /// A Service was changed after that version.
    pub lags: bool,
    /// What the node wrote.
    #[serde(flatten)]
    pub content: NodeReport,
}

impl NodeView {
    /// `lease` has the node's report; `newest` is the version that the node should have reached.
    pub fn of(node: &Node, lease: Option<&WatchedLease>, newest: u64, clock: Timestamp) -> Self {
        let name = node.metadata.name.clone().unwrap_or_default();
        let report = lease.and_then(|watched| {
            ReportView::of(&watched.lease, watched.is_alive(clock), newest, clock)
        });
        let ready = ready(node.status.as_ref());
        let draining = draining(node);
        let problems = problems(&name, ready, report.as_ref());
        let state = state(
            ready,
            report.as_ref(),
            !problems.is_empty(),
            draining.is_some(),
        );
        Self {
            addresses: addresses(node.status.as_ref()),
            ready,
            state,
            draining,
            problems,
            report,
            name,
        }
    }

    /// Whether it has a report that was renewed in time.
    pub fn reports(&self) -> bool {
        self.report.as_ref().is_some_and(|report| report.fresh)
    }
}

impl ReportView {
    /// `None` where the Lease has no report, or one that cannot be read.
    pub fn of(lease: &Lease, fresh: bool, newest: u64, clock: Timestamp) -> Option<Self> {
        let annotations = lease.metadata.annotations.as_ref()?;
        let content: NodeReport =
            serde_json::from_str(annotations.get(report::ANNOTATION)?).ok()?;
        let revision = version(Some(&content.services));
        Some(Self {
            seconds_ago: life::renewed_ago(lease, clock).unwrap_or_default(),
            fresh,
            revision,
            lags: fresh && revision < newest,
            content,
        })
    }

    /// Why a Service is not forwarded there in its present form; `None` where it is.
    pub fn misses(&self, service: &str, version: u64) -> Option<String> {
        if !self.fresh {
            return Some(SILENT.to_owned());
        }
        let behind = &self.content.behind;
        if let Some(behind) = behind.iter().find(|behind| behind.service == service) {
            return Some(behind.reason.clone());
        }
        (self.revision < version).then(|| match self.content.trouble.as_str() {
            "" => "lags".to_owned(),
            trouble => trouble.to_owned(),
        })
    }

    /// In which ways it announces addresses.
    pub fn announces(&self) -> String {
        let Some(announcing) = &self.content.announcing else {
            return String::new();
        };
        let mut ways = Vec::new();
        if !announcing.members.is_empty() {
            ways.push(format!("layer 2 of {}", announcing.members.len()));
        }
        if !announcing.sessions.is_empty() {
            let sessions = announcing.sessions.iter();
            let up = sessions.filter(|session| session.established).count();
            ways.push(format!("BGP {up} of {}", announcing.sessions.len()));
        }
        ways.join(", ")
    }
}

/// Versions are compared as numbers: design/0015.
pub(crate) fn version(text: Option<&str>) -> u64 {
    text.and_then(|text| text.parse().ok()).unwrap_or(0)
}

fn state(
    ready: Option<bool>,
    report: Option<&ReportView>,
    has_problems: bool,
    drains: bool,
) -> NodeState {
    match report {
        _ if ready == Some(false) => NodeState::NotReady,
        None => NodeState::NoReport,
        Some(report) if !report.fresh => NodeState::Silent,
        Some(report) if report.lags && report.content.trouble.is_empty() => NodeState::Lags,
        Some(_) if has_problems => NodeState::Trouble,
        Some(_) if drains => NodeState::Draining,
        Some(_) => NodeState::Good,
    }
}

fn ready(status: Option<&NodeStatus>) -> Option<bool> {
    let conditions = status?.conditions.as_deref()?;
    let ready = conditions.iter().find(|held| held.type_ == "Ready")?;
    Some(ready.status == "True")
}

fn addresses(status: Option<&NodeStatus>) -> Vec<String> {
    let all = status
        .and_then(|status| status.addresses.as_deref())
        .unwrap_or_default();
    let of_type = |wanted: &'static str| {
        let matching = all.iter().filter(move |own| own.type_ == wanted);
        matching.map(|own| own.address.clone())
    };
    of_type("InternalIP").chain(of_type("ExternalIP")).collect()
}

fn draining(node: &Node) -> Option<String> {
    let spec = node.spec.as_ref();
    let cordoned = spec.and_then(|spec| spec.unschedulable) == Some(true);
    match fitness::unfit(node) {
        Some(Unfit::Excluded) => Some("is excluded from load balancers".to_owned()),
        Some(other) => Some(other.to_string()),
        None => cordoned.then(|| "is cordoned".to_owned()),
    }
}

fn problems(name: &str, ready: Option<bool>, report: Option<&ReportView>) -> Vec<Problem> {
    let mut all = Vec::new();
    if ready == Some(false) {
        let way_out = format!("kubectl describe node {name}");
        all.push(Problem::new("is not ready", way_out));
    }
    let Some(report) = report else {
        return all;
    };
    if !report.fresh {
        let what = format!("has not reported for {}", age(report.seconds_ago));
        let way_out = "look whether `portico node` runs there and reaches the API server";
        all.push(Problem::new(what, way_out));
        return all;
    }
    all.extend(not_installed(report));
    all.extend(sessions_down(&report.content));
    all
}

fn not_installed(report: &ReportView) -> Vec<Problem> {
    let mut all = Vec::new();
    let NodeReport {
        trouble,
        behind,
        more_behind,
        ..
    } = &report.content;
    if !trouble.is_empty() {
        let what = format!("cannot install anything: {trouble}");
        all.push(Problem::new(what, "portico doctor, on that node"));
    } else if report.lags {
        let what = format!(
            "lags: it has installed Services up to version {}",
            report.revision
        );
        all.push(Problem::new(what, "read the log of `portico node` there"));
    }
    for one in behind {
        let what = format!("does not forward {}: {}", one.service, one.reason);
        all.push(Problem::new(what, "change that Service"));
    }
    if *more_behind > 0 {
        let what = format!("does not forward {more_behind} more Services");
        all.push(Problem::new(what, "change those that it names"));
    }
    all
}

fn sessions_down(report: &NodeReport) -> Vec<Problem> {
    let sessions = report
        .announcing
        .iter()
        .flat_map(|announcing| &announcing.sessions);
    let down = sessions.filter(|session| !session.established);
    let problem = |session: &report::Session| {
        let what = format!(
            "has no BGP session with {}: {}",
            session.peer, session.trouble
        );
        Problem::new(
            what,
            format!("kubectl get bgppeer {} -o yaml", session.peer),
        )
    };
    down.map(problem).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fitness::EXCLUDE_LABEL;
    use crate::samples::{NOW, THEN, node, report};
    use serde_json::{Value, json};

    fn viewed(change: impl FnOnce(&mut Node), lease: Option<&Lease>) -> NodeView {
        let mut sample = node("n1", json!({}));
        change(&mut sample);
        let now = NOW.parse().unwrap();
        let lease = lease.map(|lease| WatchedLease::new(lease.clone(), None, now));
        NodeView::of(&sample, lease.as_ref(), 100, now)
    }

    #[test]
    fn the_state_of_a_node() {
        let none: fn(&mut Node) = |_| {};
        let good = report("n1", 100, THEN, json!([]));
        let late = report("n1", 90, THEN, json!([]));
        let old = report("n1", 100, "2025-12-31T23:00:00.000000Z", json!([]));
        let behind = report(
            "n1",
            100,
            THEN,
            json!([{"service": "a/b", "reason": "taken"}]),
        );
        for (lease, expected) in [
            (None, NodeState::NoReport),
            (Some(&good), NodeState::Good),
            (Some(&late), NodeState::Lags),
            (Some(&old), NodeState::Silent),
            (Some(&behind), NodeState::Trouble),
        ] {
            let view = viewed(none, lease);
            assert_eq!(view.state, expected);
            assert_eq!(
                view.problems.is_empty(),
                matches!(expected, NodeState::Good | NodeState::NoReport),
                "{view:?}"
            );
        }
        let not_ready = |node: &mut Node| {
            let status: Value = json!({"conditions": [{"type": "Ready", "status": "Unknown"}]});
            node.status = serde_json::from_value(status).unwrap();
        };
        assert_eq!(viewed(not_ready, Some(&good)).state, NodeState::NotReady);
    }

    #[test]
    fn a_label_that_means_false_drains_nothing() {
        let good = report("n1", 100, THEN, json!([]));
        let labelled = |value: &'static str| {
            move |node: &mut Node| {
                node.metadata.labels = Some([(EXCLUDE_LABEL.to_owned(), value.to_owned())].into());
            }
        };
        assert_eq!(viewed(labelled(""), Some(&good)).state, NodeState::Draining);
        assert_eq!(
            viewed(labelled("false"), Some(&good)).state,
            NodeState::Good
        );
    }
}
