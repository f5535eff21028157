//! A node, and what it tells about itself.

use super::leaders::renewal;
use super::version;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use portico_model::report::{self, NodeReport};
use serde::Serialize;

/// Load balancers send nothing to a node with this label, nor to one with this taint.
const EXCLUDED: &str = "node.kubernetes.io/exclude-from-external-load-balancers";
/// Why a Service is not live on a node that nothing is known of.
pub const SILENT: &str = "does not report";
const TO_BE_DELETED: &str = "ToBeDeletedByClusterAutoscaler";

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeView {
    pub name: String,
    pub addresses: Vec<String>,
    /// As its kubelet says; `None` where nobody does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready: Option<bool>,
    /// Why load balancers shall not use it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub draining: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub report: Option<ReportView>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ReportView {
    pub seconds_ago: i64,
    /// It is renewed in time.
    pub fresh: bool,
    /// Everything of Services up to this version is installed.
    pub revision: u64,
    /// There is a Service that was changed after it.
    pub lags: bool,
    #[serde(flatten)]
    pub content: NodeReport,
}

impl NodeView {
    /// `newest`: what it should have reached.
    pub fn of(node: &Node, leases: &[Lease], newest: u64, now: Timestamp) -> NodeView {
        let name = node.metadata.name.clone().unwrap_or_default();
        let lease_name = report::lease_name(&name);
        let lease = leases
            .iter()
            .find(|lease| lease.metadata.name.as_deref() == Some(&lease_name));
        let status = node.status.as_ref();
        let addresses = status
            .and_then(|status| status.addresses.as_deref())
            .unwrap_or_default();
        let conditions = status
            .and_then(|status| status.conditions.as_deref())
            .unwrap_or_default();
        NodeView {
            addresses: addresses
                .iter()
                .filter(|own| own.type_.ends_with("IP"))
                .map(|own| own.address.clone())
                .collect(),
            ready: conditions
                .iter()
                .find(|held| held.type_ == "Ready")
                .map(|held| held.status == "True"),
            draining: draining(node),
            report: lease.and_then(|lease| ReportView::of(lease, newest, now)),
            name,
        }
    }

    /// It forwards what it should, as far as it is known.
    pub fn reports(&self) -> bool {
        self.report.as_ref().is_some_and(|report| report.fresh)
    }

    /// What is wrong with it, and the way out.
    pub fn trouble(&self) -> Vec<(String, String)> {
        let mut all = Vec::new();
        if self.ready == Some(false) {
            all.push((
                "is not ready".to_owned(),
                format!("kubectl describe node {}", self.name),
            ));
        }
        let Some(report) = &self.report else {
            return all;
        };
        let NodeReport {
            trouble,
            behind,
            more_behind,
            ..
        } = &report.content;
        if !report.fresh {
            let since = super::age(report.seconds_ago);
            let way_out =
                "look whether `portico node` runs there and reaches the API server".to_owned();
            all.push((format!("has not reported for {since}"), way_out));
            return all;
        }
        if !trouble.is_empty() {
            all.push((
                format!("cannot install anything: {trouble}"),
                "portico doctor, on that node".to_owned(),
            ));
        } else if report.lags {
            let way_out = "read the log of `portico node` there".to_owned();
            all.push((
                format!(
                    "lags: it has installed Services up to version {}",
                    report.revision
                ),
                way_out,
            ));
        }
        for one in behind {
            all.push((
                format!("does not forward {}: {}", one.service, one.reason),
                "change that Service".to_owned(),
            ));
        }
        if *more_behind > 0 {
            all.push((
                format!("does not forward {more_behind} more Services"),
                "change those that it names".to_owned(),
            ));
        }
        for session in report
            .content
            .announcing
            .iter()
            .flat_map(|announcing| &announcing.sessions)
        {
            if !session.established {
                let what = format!(
                    "has no BGP session with {}: {}",
                    session.peer, session.trouble
                );
                all.push((
                    what,
                    format!("kubectl get bgppeer {} -o yaml", session.peer),
                ));
            }
        }
        all
    }

    /// In a word.
    pub fn health(&self) -> &'static str {
        match &self.report {
            None => "no report",
            Some(report) if !report.fresh => "silent",
            Some(report) if !report.content.trouble.is_empty() => "trouble",
            Some(report) if report.lags => "lags",
            Some(_) if !self.trouble().is_empty() => "trouble",
            Some(_) if self.draining.is_some() => "draining",
            Some(_) => "good",
        }
    }
}

impl ReportView {
    fn of(lease: &Lease, newest: u64, now: Timestamp) -> Option<ReportView> {
        let text = lease
            .metadata
            .annotations
            .as_ref()?
            .get(report::ANNOTATION)?;
        let content: NodeReport = serde_json::from_str(text).ok()?;
        let revision = version(Some(&content.services));
        let (seconds_ago, fresh) = renewal(lease, now);
        Some(ReportView {
            seconds_ago,
            fresh,
            revision,
            lags: fresh && revision < newest,
            content,
        })
    }

    /// Whether a Service is forwarded there in its present form; why not.
    pub fn misses(&self, service: &str, version: u64) -> Option<String> {
        if !self.fresh {
            return Some(SILENT.to_owned());
        }
        if let Some(behind) = self
            .content
            .behind
            .iter()
            .find(|behind| behind.service == service)
        {
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
            let up = announcing
                .sessions
                .iter()
                .filter(|session| session.established)
                .count();
            ways.push(format!("BGP {up} of {}", announcing.sessions.len()));
        }
        ways.join(", ")
    }
}

fn draining(node: &Node) -> Option<&'static str> {
    let spec = node.spec.as_ref();
    let taints = spec
        .and_then(|spec| spec.taints.as_deref())
        .unwrap_or_default();
    match () {
        () if node.metadata.deletion_timestamp.is_some() => Some("is being deleted"),
        () if node
            .metadata
            .labels
            .as_ref()
            .is_some_and(|labels| labels.contains_key(EXCLUDED)) =>
        {
            Some("is excluded from load balancers")
        }
        () if taints.iter().any(|taint| taint.key == TO_BE_DELETED) => {
            Some("will be deleted by the autoscaler")
        }
        () if spec.and_then(|spec| spec.unschedulable) == Some(true) => Some("is cordoned"),
        () => None,
    }
}
