//! What nodes report: how far each has installed Services, and which of them still report.
//!
//! Clocks of two machines are compared only at first sight, when there is nothing else: later a
//! report is alive for as long as its Lease promises since this controller saw it renewed. Where
//! all nodes fall silent at once it is the API server that does not pass on what they report, so
//! for a while no node counts as dead.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use portico_model::report::{self, NodePortReach, NodeReport};
use portico_view::{Owners, life};

/// Nodes that all fall silent at once are dead after this time.
const LONGEST_SILENCE: Duration = Duration::from_secs(75);

#[derive(Debug, Default)]
pub(super) struct Reports {
    nodes: BTreeMap<String, Reporter>,
    /// Who has announced addresses, by what the nodes report.
    owners: Owners,
    /// When a node was last seen to report.
    heard: Option<Instant>,
}

/// What is new by a report.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Changed {
    /// The Services whose trouble on this node is new or over.
    pub services: Vec<String>,
    /// The addresses that it announces in another way.
    pub addresses: BTreeSet<IpAddr>,
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
    /// When it last said of an address that it has it, or no longer has it.
    pub moved: Option<Instant>,
    renewed: Option<MicroTime>,
    lasts: Duration,
    expires: Instant,
}

impl Reporter {
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
    pub(super) fn owners(&self) -> &Owners {
        &self.owners
    }

    /// Those whose reports are alive.
    pub(super) fn alive(&self, now: Instant) -> impl Iterator<Item = (&str, &Reporter)> {
        let at = self.judged_at(now);
        let alive = self.nodes.iter().filter(move |(_, node)| at < node.expires);
        alive.map(|(name, node)| (name.as_str(), node))
    }

    /// Those that have reported, and do so no more.
    pub(super) fn silent(&self, now: Instant) -> impl Iterator<Item = &str> {
        let at = self.judged_at(now);
        let silent = self
            .nodes
            .iter()
            .filter(move |(_, node)| node.expires <= at);
        silent.map(|(name, _)| name.as_str())
    }

    pub(super) fn is_alive(&self, node: &str, now: Instant) -> bool {
        let at = self.judged_at(now);
        self.nodes.get(node).is_some_and(|node| at < node.expires)
    }

    /// The moment as of which reports are judged: now, or soon after any node was last heard.
    fn judged_at(&self, now: Instant) -> Instant {
        let Some(heard) = self.heard else { return now };
        if heard + LONGEST_SILENCE <= now {
            return now;
        }
        // Half of the time that a report lasts: one that is due comes within it.
        let lasts = self.nodes.values().map(|node| node.lasts).min();
        now.min(heard + lasts.unwrap_or_default() / 2)
    }

    /// After a silence of all nodes each gets the time to be heard again.
    fn hear(&mut self, now: Instant) {
        let before = self.judged_at(now);
        if before < now {
            for node in self.nodes.values_mut() {
                if before < node.expires {
                    node.expires = node.expires.max(now + node.lasts);
                }
            }
        }
        self.heard = Some(now);
    }

    /// A Lease is there, or was renewed.
    pub(super) fn apply(&mut self, lease: &Lease, now: Instant, clock: Timestamp) -> Changed {
        let name = lease.metadata.name.as_deref().unwrap_or_default();
        let Some(node) = report::node_of_lease(name) else {
            return Changed::default();
        };
        let renew_time = lease.spec.as_ref().and_then(|spec| spec.renew_time.clone());
        let is_renewed = |known: &Reporter| known.renewed != renew_time;
        if self.nodes.get(node).is_none_or(is_renewed) {
            self.hear(now);
        }
        let was_alive = self.is_alive(node, now);
        let annotation = lease
            .metadata
            .annotations
            .as_ref()
            .and_then(|annotations| annotations.get(report::ANNOTATION));
        let report: NodeReport = annotation
            .and_then(|text| serde_json::from_str(text).ok())
            .unwrap_or_default();
        let lasts = life::lasts(lease);
        let installed = report.services.parse().unwrap_or(0);
        let before = self.nodes.remove(node);
        let services = changed_troubles(before.as_ref().map(|before| &before.report), &report);
        let addresses = self.owners.set(node, report.announcing.as_ref());
        let moved = match addresses.is_empty() {
            true => before.as_ref().and_then(|before| before.moved),
            false => Some(now),
        };
        let reporter = match before {
            Some(before) => {
                let renewed = before.renewed != renew_time;
                let broken = renewed && !was_alive;
                Reporter {
                    reach: NodePortReach::from(&report),
                    since: if broken { now } else { before.since },
                    advanced: if installed > before.installed {
                        now
                    } else {
                        before.advanced
                    },
                    expires: if renewed { now + lasts } else { before.expires },
                    renewed: renew_time,
                    installed,
                    moved,
                    lasts,
                    report,
                }
            }
            None => {
                let expires = now + life::life(lease, clock).holds().unwrap_or_default();
                Reporter {
                    reach: NodePortReach::from(&report),
                    report,
                    installed,
                    since: now,
                    advanced: now,
                    renewed: renew_time,
                    moved,
                    lasts,
                    expires,
                }
            }
        };
        self.nodes.insert(node.to_owned(), reporter);
        Changed {
            services,
            addresses,
        }
    }

    pub(super) fn delete(&mut self, lease: &str) -> Changed {
        let Some(node) = report::node_of_lease(lease) else {
            return Changed::default();
        };
        let Some(reporter) = self.nodes.remove(node) else {
            return Changed::default();
        };
        Changed {
            services: changed_troubles(Some(&reporter.report), &NodeReport::default()),
            addresses: self.owners.set(node, None),
        }
    }

    /// The Leases that a list did not have.
    pub(super) fn missing(&self, listed: impl Fn(&str) -> bool) -> Vec<String> {
        let leases = self.nodes.keys().map(|node| report::lease_name(node));
        leases.filter(|lease| !listed(lease)).collect()
    }

    pub(super) fn reach(&self, node: &str) -> Option<&NodePortReach> {
        self.nodes.get(node).map(|reporter| &reporter.reach)
    }

    /// Of the nodes that have addresses in port partitions.
    pub(super) fn divided(&self) -> BTreeMap<String, NodePortReach> {
        let divided = self
            .nodes
            .iter()
            .filter(|(_, reporter)| reporter.reach.partitions().next().is_some());
        divided
            .map(|(node, reporter)| (node.clone(), reporter.reach.clone()))
            .collect()
    }

    /// When somebody falls silent, if nothing comes in.
    pub(super) fn next_deadline(&self, now: Instant) -> Option<Instant> {
        let at = self.judged_at(now);
        let alive = self.nodes.values().filter(|node| at < node.expires);
        let ends = alive.map(|node| match (node.expires > now, self.heard) {
            (false, Some(heard)) => heard + LONGEST_SILENCE,
            _ => node.expires,
        });
        ends.min()
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
            now + Duration::from_secs(after) < reports.nodes["a"].expires
        };
        // It was renewed 10 s before it was first seen.
        assert!(alive(&reports, 19) && !alive(&reports, 20));
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
            now + Duration::from_secs(200),
            clock,
        );
        assert!(alive(&reports, 229));
        assert_eq!(
            reports.nodes["a"].since,
            now + Duration::from_secs(200),
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
        assert!(!reports.is_alive("a", now));
        reports.apply(
            &lease("a", "2026-01-01T00:00:00.500000Z", &at(7)),
            now,
            clock,
        );
        assert!(reports.is_alive("a", now));
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
            reports
                .apply(&lease("a", time, &with(&["x/a", "x/b"])), now, clock)
                .services,
            ["x/a", "x/b"]
        );
        assert_eq!(
            reports
                .apply(&lease("a", time, &with(&["x/b", "x/c"])), now, clock)
                .services,
            ["x/a", "x/c"]
        );
        assert_eq!(reports.nodes["a"].trouble_with("x/b"), Some("taken"));
        assert_eq!(reports.delete("portico-node-a").services, ["x/b", "x/c"]);
    }

    #[test]
    fn a_node_that_falls_silent_alone_is_dead_and_all_at_once_are_not() {
        let (began, clock) = (Instant::now(), Timestamp::UNIX_EPOCH);
        let at = |seconds: u64| began + Duration::from_secs(seconds);
        let mut reports = Reports::default();
        let tell = |reports: &mut Reports, node: &str, second: u64| {
            let mut lease = lease(
                node,
                &format!("1970-01-01T00:{second:02}:00.000000Z"),
                &at_7(),
            );
            lease.spec.as_mut().unwrap().lease_duration_seconds = Some(3);
            reports.apply(&lease, at(second), clock);
        };
        let alive = |reports: &Reports, second: u64| -> Vec<String> {
            let alive = reports.alive(at(second));
            alive.map(|(name, _)| name.to_owned()).collect()
        };
        for second in 0..5 {
            tell(&mut reports, "a", second);
            if second < 2 {
                tell(&mut reports, "b", second);
            }
        }
        assert_eq!(alive(&reports, 4), ["a"], "b was last heard at 1");
        assert_eq!(reports.silent(at(4)).collect::<Vec<_>>(), ["b"]);
        tell(&mut reports, "b", 5);
        // The API server is away.
        assert_eq!(alive(&reports, 60), ["a", "b"]);
        assert_eq!(reports.next_deadline(at(60)), Some(at(5) + LONGEST_SILENCE));
        assert_eq!(alive(&reports, 81), Vec::<String>::new());
        // It is back, and the nodes report one after another.
        tell(&mut reports, "a", 50);
        assert_eq!(alive(&reports, 52), ["a", "b"]);
        assert_eq!(alive(&reports, 53), ["a", "b"], "a is silent too");
        for second in 51..54 {
            tell(&mut reports, "a", second);
        }
        assert_eq!(alive(&reports, 53), ["a"]);
    }

    fn at_7() -> NodeReport {
        at(7)
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
