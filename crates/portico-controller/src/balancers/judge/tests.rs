//! Every reason of every condition.

use std::collections::BTreeSet;

use jiff::Timestamp;
use portico_model::report::{Announcing, Behind, Holding, NodeReport, Session};
use serde_json::{Value, json};

use super::*;
use crate::balancers::memory::{Made, Trouble};
use crate::balancers::reports::tests::lease;
use crate::balancers::service::Ownership;
use crate::balancers::service::Surroundings;
use crate::provider::{Balancer, IpMode, ProviderError};

/// A Service at version 10 with an address, and three nodes that have it and answer at layer 2.
struct World {
    service: Value,
    memory: Memory,
    abilities: Abilities,
    served: Served,
    nodes: Nodes,
    reports: Vec<(&'static str, NodeReport)>,
    /// Since the version was known.
    age: Duration,
}

fn ingress() -> Vec<Ingress> {
    vec![Ingress {
        host: Host::Ip("192.0.2.1".parse().unwrap()),
        mode: IpMode::Vip,
    }]
}

fn report(version: u64) -> NodeReport {
    let announcing = Announcing {
        members: ["a", "b", "c"].map(str::to_owned).into(),
        holds: Some(Vec::new()),
        routes: Some(Vec::new()),
        ..Announcing::default()
    };
    NodeReport {
        services: version.to_string(),
        announcing: Some(announcing),
        ..NodeReport::default()
    }
}

/// The report of the node that answers for the address.
fn owner(version: u64) -> NodeReport {
    let mut report = report(version);
    if let Some(announcing) = &mut report.announcing {
        announcing.holds = Some(vec![Holding {
            addresses: vec!["192.0.2.1".parse().unwrap()],
            since: "2026-01-01T00:00:00Z".into(),
            why: "c is gone".into(),
            before: "c".into(),
        }]);
    }
    report
}

impl World {
    fn new() -> Self {
        let service = json!({
            "metadata": {"namespace": "shop", "name": "web", "uid": "1", "resourceVersion": "10"},
            "spec": {"type": "LoadBalancer"},
            "status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1", "ipMode": "VIP"}]}},
        });
        let mut nodes = Nodes::default();
        for name in ["a", "b", "c"] {
            nodes.apply(&serde_json::from_value(json!({"metadata": {"name": name}})).unwrap());
        }
        let mut world = Self {
            service,
            memory: Memory::default(),
            abilities: Abilities {
                announced_by_nodes: true,
                ..Abilities::default()
            },
            served: Served {
                ready: 2,
                ending: 0,
                nodes: BTreeSet::from(["a".into(), "b".into()]),
            },
            nodes,
            reports: vec![("a", owner(10)), ("b", report(10)), ("c", report(10))],
            age: Duration::from_secs(60),
        };
        world.make(Balancer {
            ingress: ingress(),
            pending: None,
        });
        world
    }

    fn make(&mut self, balancer: Balancer) {
        let facts = self.facts();
        self.memory.made = Some(Made {
            request: facts.request,
            nodes: [].into(),
            endpoints: [].into(),
            balancer,
        });
    }

    fn fail(&mut self, error: ProviderError) {
        self.memory.trouble = Trouble::of(&error, None);
    }

    fn facts(&self) -> Facts {
        let ownership = Ownership::new("metal", None);
        let surroundings = Surroundings {
            cluster: String::new(),
            node_healthz_port: 1,
            load_balancer_ip_mode: true,
            ownership,
            release: false,
        };
        Facts::of(
            &serde_json::from_value(self.service.clone()).unwrap(),
            &surroundings,
        )
    }

    fn judge(&self) -> Judgement {
        let facts = self.facts();
        let began = Instant::now();
        let mut reports = Reports::default();
        for (name, report) in &self.reports {
            reports.apply(
                &lease(name, "1970-01-01T00:00:00.000000Z", report),
                began,
                Timestamp::UNIX_EPOCH,
            );
        }
        let now = began + Duration::from_secs(20);
        judge(&View {
            facts: &facts,
            memory: &self.memory,
            provider: "metal",
            abilities: self.abilities,
            served: self.served.clone(),
            nodes: &self.nodes,
            reports: &reports,
            version: facts.version,
            since: now - self.age,
            now,
        })
    }

    /// The reasons in order.
    fn reasons(&self) -> [String; 4] {
        self.judge()
            .verdicts
            .map(|verdict| format!("{}={}", verdict.reason, verdict.status))
    }
}

#[test]
fn all_is_well() {
    let judgement = World::new().judge();
    assert_eq!(
        World::new().reasons(),
        [
            "Allocated=True",
            "Programmed=True",
            "Layer2=True",
            "EndpointsReady=True"
        ]
    );
    assert_eq!(judgement.wait, None);
    assert_eq!(judgement.verdicts[0].message, "192.0.2.1 from metal");
    assert_eq!(judgement.verdicts[1].message, "live on 3 of 3 nodes");
    assert_eq!(
        judgement.verdicts[2].message,
        "a answers for 192.0.2.1 since 2026-01-01T00:00:00Z (c is gone; before: c)"
    );
}

type Make = fn(&mut World);

#[test]
fn every_reason() {
    const WAITS: &str = "WaitingForAddress=Unknown";
    const UNSEEN: &str = "NotAnnounced=Unknown";
    const WELL: [&str; 4] = [
        "Allocated=True",
        "Programmed=True",
        "Layer2=True",
        "EndpointsReady=True",
    ];
    let cases: [(&str, Make, [&str; 4]); 22] = [
        (
            "new",
            |w| {
                w.memory.made = None;
                w.service["status"] = json!({});
            },
            ["Ensuring=Unknown", WAITS, WAITS, UNSEEN],
        ),
        (
            "refused",
            |w| {
                (w.memory.made, w.service["status"]) = (None, json!({}));
                w.fail(ProviderError::Refused {
                    reason: "PoolsExhausted",
                    message: "no address is left".into(),
                });
            },
            ["PoolsExhausted=False", WAITS, WAITS, UNSEEN],
        ),
        (
            "failed",
            |w| {
                (w.memory.made, w.service["status"]) = (None, json!({}));
                w.fail(ProviderError::Failed("no route".into()));
            },
            ["EnsureFailed=False", WAITS, WAITS, UNSEEN],
        ),
        (
            "on its way",
            |w| {
                (w.memory.made, w.service["status"]) = (None, json!({}));
                w.fail(ProviderError::RetryAfter {
                    after: Duration::from_secs(15),
                    reason: "is being made".into(),
                });
            },
            ["Pending=Unknown", WAITS, WAITS, UNSEEN],
        ),
        (
            "without an address",
            |w| {
                w.service["status"] = json!({});
                w.make(Balancer::default());
            },
            ["NoAddress=False", WAITS, WAITS, UNSEEN],
        ),
        (
            "a change failed",
            |w| w.fail(ProviderError::Failed("no route".into())),
            [WELL[0], "ProviderFailed=False", WELL[2], WELL[3]],
        ),
        (
            "pending",
            |w| {
                w.make(Balancer {
                    ingress: ingress(),
                    pending: Some("draining".into()),
                })
            },
            [WELL[0], "ProviderPending=False", WELL[2], WELL[3]],
        ),
        (
            "another proxy",
            |w| {
                w.service["metadata"]["labels"] =
                    json!({"service.kubernetes.io/service-proxy-name": "x"})
            },
            [WELL[0], "OtherProxy=Unknown", WELL[2], WELL[3]],
        ),
        (
            "nobody reports",
            |w| w.reports.clear(),
            [
                WELL[0],
                "NotReported=Unknown",
                "NotReported=Unknown",
                UNSEEN,
            ],
        ),
        (
            "reports of nodes that are no more",
            |w| w.nodes = Nodes::default(),
            [
                WELL[0],
                "NotReported=Unknown",
                "NotReported=Unknown",
                UNSEEN,
            ],
        ),
        (
            "the address is not written yet",
            |w| w.service["status"] = json!({}),
            [
                WELL[0],
                "WaitingForNodes=Unknown",
                "WaitingForNodes=Unknown",
                UNSEEN,
            ],
        ),
        (
            "one is behind",
            |w| w.reports[1].1 = report(9),
            [WELL[0], "NodesBehind=False", WELL[2], WELL[3]],
        ),
        (
            "all are behind",
            |w| w.reports.iter_mut().for_each(|(_, node)| *node = report(9)),
            [
                WELL[0],
                "NodesBehind=False",
                "WaitingForNodes=Unknown",
                UNSEEN,
            ],
        ),
        (
            "nobody announces",
            |w| {
                w.reports
                    .iter_mut()
                    .for_each(|(_, node)| node.announcing = None)
            },
            [WELL[0], WELL[1], "NobodyAnnounces=False", UNSEEN],
        ),
        (
            "nobody answers",
            |w| w.reports[0].1 = report(10),
            [WELL[0], WELL[1], "NobodyAnswers=False", UNSEEN],
        ),
        (
            "programs before 0.2 do not say who answers",
            |w| {
                w.reports.iter_mut().for_each(|(_, node)| {
                    node.announcing.as_mut().unwrap().holds = None;
                })
            },
            WELL,
        ),
        (
            "by BGP",
            |w| {
                w.reports.iter_mut().for_each(|(_, node)| {
                    let session = Session {
                        peer: "tor".into(),
                        established: true,
                        ..Session::default()
                    };
                    node.announcing = Some(Announcing {
                        sessions: vec![session],
                        ..Announcing::default()
                    });
                })
            },
            [WELL[0], WELL[1], "BGP=True", WELL[3]],
        ),
        (
            "by the provider",
            |w| w.abilities.announced_by_nodes = false,
            [WELL[0], WELL[1], "ByProvider=True", WELL[3]],
        ),
        (
            "no endpoints",
            |w| w.served = Served::default(),
            [WELL[0], WELL[1], "NoEndpoints=False", "NoEndpoints=False"],
        ),
        (
            "ending endpoints",
            |w| (w.served.ready, w.served.ending) = (0, 1),
            [WELL[0], WELL[1], WELL[2], "EndpointsEnding=True"],
        ),
        (
            "Local, with endpoints elsewhere",
            |w| {
                w.service["spec"]["externalTrafficPolicy"] = "Local".into();
                w.served.nodes = BTreeSet::from(["d".into()]);
            },
            [
                WELL[0],
                WELL[1],
                "NoLocalEndpoints=False",
                "NoLocalEndpoints=False",
            ],
        ),
        (
            "Local, with endpoints here",
            |w| w.service["spec"]["externalTrafficPolicy"] = "Local".into(),
            WELL,
        ),
    ];
    for (name, change, expected) in cases {
        let mut world = World::new();
        change(&mut world);
        if name == "Local, with endpoints here"
            || name == "another proxy"
            || name == "Local, with endpoints elsewhere"
        {
            world.make(Balancer {
                ingress: ingress(),
                pending: None,
            });
        }
        assert_eq!(world.reasons(), expected, "{name}");
    }
}

#[test]
fn the_laggards_are_named_with_their_reason() {
    let mut world = World::new();
    world.reports[0].1 = report(9);
    world.reports[1].1.behind = vec![Behind {
        service: "shop/web".into(),
        reason: "192.0.2.1:80 is taken".into(),
    }];
    let message = &world.judge().verdicts[1].message;
    assert!(
        message.starts_with(
            "live on 1 of 3 nodes; behind: a (has installed version 9 and not yet 10), b \
             (192.0.2.1:80 is taken)"
        ),
        "{message}"
    );
}

#[test]
fn nodes_get_a_moment_before_they_are_called_late() {
    let mut world = World::new();
    world.reports[1].1 = report(9);
    world.age = Duration::from_millis(100);
    world.service["status"]["conditions"] = json!([{"type": "Programmed", "status": "True", "reason": "Programmed",
        "message": "live on 3 of 3 nodes", "lastTransitionTime": "2026-01-01T00:00:00Z"}]);
    let judgement = world.judge();
    assert!(judgement.wait.is_some());
    assert_eq!(
        judgement.verdicts[1].message, "live on 3 of 3 nodes",
        "what it says stays until then"
    );
    world.age = Duration::from_secs(2);
    assert_eq!(world.judge().wait, None);
    assert_eq!(world.judge().verdicts[1].reason, "NodesBehind");
}

#[test]
fn a_try_that_fails_says_which_it_was() {
    let mut world = World::new();
    world.fail(ProviderError::Failed("no route".into()));
    world.memory.trouble = Trouble::of(
        &ProviderError::Failed("no route".into()),
        world.memory.trouble.as_ref(),
    );
    assert_eq!(world.judge().verdicts[1].message, "no route (attempt 2)");
}

/// A condition never names a node that has lost the address.
#[test]
fn the_one_owner_is_named() {
    let mut world = World::new();
    world.reports[1].1 = owner(10);
    let newer = |report: &mut NodeReport| {
        let announcing = report.announcing.as_mut().unwrap();
        announcing.members = vec!["b".into(), "c".into()];
        let holding = &mut announcing.holds.as_mut().unwrap()[0];
        holding.before = "a".into();
        holding.why = "a is gone".into();
    };
    newer(&mut world.reports[1].1);
    let announced = &world.judge().verdicts[2];
    assert_eq!(announced.status, Status::True);
    assert_eq!(
        announced.message,
        "b answers for 192.0.2.1 since 2026-01-01T00:00:00Z (a is gone; before: a)"
    );
}
