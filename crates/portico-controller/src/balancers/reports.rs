//! What nodes report: how far each has installed Services, and which of them still report.
//!
//! Clocks of two machines are compared only at first sight, when there is nothing else: later a
//! report is alive for as long as its Lease promises since this controller saw it renewed.

use std::collections::BTreeMap;
use std::time::Instant;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use portico_model::report::{self, NodePortReach, NodeReport};
use portico_view::life::{self, Life};

#[derive(Debug, Default)]
pub(super) struct Reports {
    nodes: BTreeMap<String, Reporter>,
}

#[derive(Debug)]
pub(super) struct Reporter {
    pub report: NodeReport,
    /// Where its node ports answer.
    pub reach: NodePortReach,
    /// Everything of Services up to this resource version is installed.
    pub installed: u64,
    /// Since when it has been reporting without a break.
    pub since: Instant,
    /// When `installed` last grew.
    pub advanced: Instant,
    renewed: Option<MicroTime>,
    expires: Instant,
}

impl Reporter {
    pub(super) fn is_alive(&self, now: Instant) -> bool {
        now < self.expires
    }

    /// Why it has not installed a Service that it knows of.
    pub(super) fn trouble_with(&self, service: &str) -> Option<&str> {
        let behind = self
            .report
            .behind
            .iter()
            .find(|behind| behind.service == service);
        behind.map(|behind| behind.reason.as_str())
    }

    /// Takes part at layer 2.
    pub(super) fn answers(&self) -> bool {
        self.report
            .announcing
            .as_ref()
            .is_some_and(|announcing| !announcing.members.is_empty())
    }

    /// Has a BGP session.
    pub(super) fn peers(&self) -> bool {
        let announcing = self.report.announcing.as_ref();
        announcing.is_some_and(|announcing| {
            announcing
                .sessions
                .iter()
                .any(|session| session.established)
        })
    }
}

impl Reports {
    /// A Lease is there, or was renewed. Returns the Services whose trouble on this node is new or
    /// over.
    pub(super) fn apply(&mut self, lease: &Lease, now: Instant, clock: Timestamp) -> Vec<String> {
        let name = lease.metadata.name.as_deref().unwrap_or_default();
        let Some(node) = report::node_of_lease(name) else {
            return Vec::new();
        };
        let annotation = lease
            .metadata
            .annotations
            .as_ref()
            .and_then(|annotations| annotations.get(report::ANNOTATION));
        let report: NodeReport = annotation
            .and_then(|text| serde_json::from_str(text).ok())
            .unwrap_or_default();
        let spec = lease.spec.clone().unwrap_or_default();
        let lasts = life::lasts(lease);
        let installed = report.services.parse().unwrap_or(0);
        let before = self.nodes.remove(node);
        let changed = changed_troubles(before.as_ref().map(|before| &before.report), &report);
        let reporter = match before {
            Some(before) => {
                let renewed = before.renewed != spec.renew_time;
                let broken = renewed && !before.is_alive(now);
                Reporter {
                    reach: NodePortReach::from(&report),
                    since: if broken { now } else { before.since },
                    advanced: if installed > before.installed {
                        now
                    } else {
                        before.advanced
                    },
                    expires: if renewed { now + lasts } else { before.expires },
                    renewed: spec.renew_time,
                    installed,
                    report,
                }
            }
            None => {
                let expires = match life::life(lease, clock) {
                    Life::Alive { holds } => now + holds,
                    Life::Silent => now,
                };
                Reporter {
                    reach: NodePortReach::from(&report),
                    report,
                    installed,
                    since: now,
                    advanced: now,
                    renewed: spec.renew_time,
                    expires,
                }
            }
        };
        self.nodes.insert(node.to_owned(), reporter);
        changed
    }

    /// Returns the Services that had trouble there.
    pub(super) fn delete(&mut self, lease: &str) -> Vec<String> {
        let removed = report::node_of_lease(lease).and_then(|node| self.nodes.remove(node));
        removed
            .map(|reporter| changed_troubles(Some(&reporter.report), &NodeReport::default()))
            .unwrap_or_default()
    }

    /// Forget those that a list did not have.
    pub(super) fn retain(&mut self, listed: impl Fn(&str) -> bool) {
        self.nodes
            .retain(|node, _| listed(&report::lease_name(node)));
    }

    pub(super) fn all(&self) -> impl Iterator<Item = (&str, &Reporter)> {
        self.nodes
            .iter()
            .map(|(node, reporter)| (node.as_str(), reporter))
    }

    pub fn reach(&self, node: &str) -> Option<&NodePortReach> {
        self.nodes.get(node).map(|reporter| &reporter.reach)
    }

    /// Of the nodes that have addresses in port partitions.
    pub fn divided(&self) -> BTreeMap<String, NodePortReach> {
        let divided = self
            .nodes
            .iter()
            .filter(|(_, reporter)| reporter.reach.partitions().next().is_some());
        divided
            .map(|(node, reporter)| (node.clone(), reporter.reach.clone()))
            .collect()
    }

    /// When somebody falls silent, if nothing comes in.
    pub fn next_deadline(&self, now: Instant) -> Option<Instant> {
        self.nodes
            .values()
            .map(|reporter| reporter.expires)
            .filter(|expires| *expires > now)
            .min()
    }
}

fn changed_troubles(before: Option<&NodeReport>, after: &NodeReport) -> Vec<String> {
    let before = before
        .map(|report| report.behind.as_slice())
        .unwrap_or_default();
    let gone = before
        .iter()
        .filter(|behind| !after.behind.contains(behind));
    let new = after
        .behind
        .iter()
        .filter(|behind| !before.contains(behind));
    gone.chain(new)
        .map(|behind| behind.service.clone())
        .collect()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use serde_json::json;
    use std::time::Duration;

    pub(crate) fn lease(node: &str, renewed: &str, report: &NodeReport) -> Lease {
        let lease = json!({
            "metadata": {"name": report::lease_name(node), "annotations": {report::ANNOTATION: serde_json::to_string(report).unwrap()}},
            "spec": {"leaseDurationSeconds": 30, "renewTime": renewed},
        });
        serde_json::from_value(lease).unwrap()
    }

    fn at(version: u64) -> NodeReport {
        NodeReport {
            services: version.to_string(),
            ..NodeReport::default()
        }
    }

    #[test]
    fn a_report_lives_since_it_was_seen_renewed() {
        let (mut reports, now) = (Reports::default(), Instant::now());
        let clock: Timestamp = "2026-01-01T00:00:10Z".parse().unwrap();
        reports.apply(
            &lease("a", "2026-01-01T00:00:00.000000Z", &at(7)),
            now,
            clock,
        );
        let alive = |reports: &Reports, after: u64| {
            reports.nodes["a"].is_alive(now + Duration::from_secs(after))
        };
        // It was renewed 10 s before it was first seen, by clocks that may differ by 5 s.
        assert!(alive(&reports, 24) && !alive(&reports, 25));
        // Shown again by a list, not renewed: no longer alive for that.
        reports.apply(
            &lease("a", "2026-01-01T00:00:00.000000Z", &at(7)),
            now + Duration::from_secs(20),
            clock,
        );
        assert!(!alive(&reports, 30));
        // A clock that is wrong by years counts nothing after the first sight.
        reports.apply(
            &lease("a", "1999-01-01T00:00:00.000000Z", &at(9)),
            now + Duration::from_secs(40),
            clock,
        );
        assert!(alive(&reports, 69));
        assert_eq!(
            reports.nodes["a"].since,
            now + Duration::from_secs(40),
            "it was silent in between"
        );
        assert_eq!(reports.nodes["a"].installed, 9);
    }

    #[test]
    fn one_that_was_long_dead_at_first_sight_is_not_waited_for() {
        let (mut reports, now) = (Reports::default(), Instant::now());
        let clock: Timestamp = "2026-01-01T01:00:00Z".parse().unwrap();
        reports.apply(
            &lease("a", "2026-01-01T00:00:00.000000Z", &at(7)),
            now,
            clock,
        );
        assert!(!reports.nodes["a"].is_alive(now));
        reports.apply(
            &lease("a", "2026-01-01T00:00:00.500000Z", &at(7)),
            now,
            clock,
        );
        assert!(reports.nodes["a"].is_alive(now));
    }

    #[test]
    fn trouble_that_comes_or_goes_is_told() {
        let (mut reports, now, clock) = (Reports::default(), Instant::now(), Timestamp::UNIX_EPOCH);
        let behind = |service: &str| report::Behind {
            service: service.into(),
            reason: "taken".into(),
        };
        let with = |services: &[&str]| NodeReport {
            behind: services.iter().map(|name| behind(name)).collect(),
            ..at(1)
        };
        let time = "2026-01-01T00:00:00.000000Z";
        assert_eq!(
            reports.apply(&lease("a", time, &with(&["x/a", "x/b"])), now, clock),
            ["x/a", "x/b"]
        );
        assert_eq!(
            reports.apply(&lease("a", time, &with(&["x/b", "x/c"])), now, clock),
            ["x/a", "x/c"]
        );
        assert_eq!(reports.nodes["a"].trouble_with("x/b"), Some("taken"));
        assert_eq!(reports.delete("portico-node-a"), ["x/b", "x/c"]);
    }

    #[test]
    fn nonsense_is_no_report_of_progress() {
        let (mut reports, now, clock) = (Reports::default(), Instant::now(), Timestamp::UNIX_EPOCH);
        let mut bad = lease("a", "2026-01-01T00:00:00.000000Z", &at(7));
        bad.metadata.annotations = Some([(report::ANNOTATION.to_owned(), "{".to_owned())].into());
        reports.apply(&bad, now, clock);
        assert_eq!(reports.nodes["a"].installed, 0);
        let mut other = lease("a", "2026-01-01T00:00:00.000000Z", &at(7));
        other.metadata.name = Some("kube-scheduler".into());
        reports.apply(&other, now, clock);
        assert_eq!(reports.nodes.len(), 1);
    }
}
