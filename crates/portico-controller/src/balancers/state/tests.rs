//! The way of a Service, step by step, without an API server.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Service;
use portico_model::partitions::{NODE_PORT_ADDRESSES, PORT_PARTITION};
use portico_model::report::{NodeReport, PartitionAddresses};
use serde_json::{Value, json};

use super::*;
use crate::balancers::reports::tests::lease;
use crate::balancers::service::{FINALIZER, Ownership};
use crate::provider::{Balancer, Host, Ingress, IpMode, ProviderError};
use crate::queue::End;

struct World {
    state: State,
    service: Value,
    now: Instant,
    version: u64,
}

fn key() -> ObjectKey {
    ObjectKey::new("shop", "web")
}

fn balancer() -> Balancer {
    let ingress = vec![Ingress {
        host: Host::Ip("192.0.2.1".parse().unwrap()),
        mode: IpMode::Vip,
    }];
    Balancer {
        ingress,
        pending: None,
    }
}

impl World {
    fn new(abilities: Abilities) -> Self {
        let ownership = Ownership::new("metal", None);
        let surroundings = Surroundings {
            cluster: "c".into(),
            node_healthz_port: 10256,
            load_balancer_ip_mode: true,
            ownership,
            release: false,
        };
        let state = State::new(surroundings, "metal", abilities, Duration::from_secs(600));
        let service = json!({"metadata": {"namespace": "shop", "name": "web", "uid": "1", "finalizers": []},
            "spec": {"type": "LoadBalancer"}, "status": {}});
        let mut world = Self {
            state,
            service,
            now: Instant::now(),
            version: 0,
        };
        world.show(|_| {});
        world
    }

    /// A Service that has its load balancer.
    fn settled(abilities: Abilities) -> Self {
        let mut world = Self::new(abilities);
        world.run(|call| match call {
            Call::Ensure => Ok(Some(balancer())),
            _ => panic!("{call:?}"),
        });
        world.state.take_touched();
        world.state.take_notes();
        world
    }

    /// The watch shows a change.
    fn show(&mut self, change: impl FnOnce(&mut Value)) {
        change(&mut self.service);
        self.version += 1;
        self.service["metadata"]["resourceVersion"] = self.version.to_string().into();
        let service: Service = serde_json::from_value(self.service.clone()).unwrap();
        self.state.apply_service(&service, self.now);
    }

    fn node(&mut self, name: &str) {
        self.state
            .apply_node(&serde_json::from_value(json!({"metadata": {"name": name}})).unwrap());
    }

    fn next(&mut self) -> Step {
        self.state.next(&key(), self.now, Timestamp::UNIX_EPOCH)
    }

    /// Does what is to be done, with a provider, until the Service rests. Returns the steps and how
    /// it ended.
    fn run(&mut self, provider: impl Fn(Call) -> Called) -> (Vec<String>, End) {
        self.state.begin(&key());
        let mut steps = Vec::new();
        loop {
            match self.next() {
                Step::Rest(end) => return (steps, end),
                Step::Call(call, _) => {
                    steps.push(format!("{call:?}"));
                    self.state.called(&key(), call, provider(call), self.now);
                }
                Step::Write(write) => {
                    steps.push(write.what.to_owned());
                    self.write(write.what);
                }
            }
            assert!(steps.len() < 20, "{steps:?}");
        }
    }

    /// What the API server makes of a write.
    fn write(&mut self, what: &str) {
        match what {
            "hold" => self.show(|service| {
                service["metadata"]["finalizers"] = json!([FINALIZER, "portico.dev/metal"])
            }),
            "release" => self.show(|service| {
                service["metadata"]["finalizers"] = json!([]);
                service["status"] = json!({});
            }),
            _ => {
                let entry = &self.state.services[&key()];
                let verdicts = self
                    .state
                    .judge(entry, entry.facts.as_ref().unwrap(), self.now)
                    .verdicts;
                let conditions = crate::balancers::conditions::Present::default().patch(
                    &verdicts,
                    None,
                    Timestamp::UNIX_EPOCH,
                );
                let made = entry.memory.made.is_some();
                self.show(|service| {
                    service["status"]["conditions"] = json!(conditions);
                    if made {
                        service["status"]["loadBalancer"] =
                            json!({"ingress": [{"ip": "192.0.2.1", "ipMode": "VIP"}]});
                    }
                });
            }
        }
    }

    fn reasons(&mut self) -> Vec<&'static str> {
        self.state
            .take_notes()
            .iter()
            .map(|note| note.reason)
            .collect()
    }
}

fn never(call: Call) -> Called {
    panic!("{call:?} should not be needed")
}

const NODES: Abilities = Abilities {
    uses_nodes: true,
    uses_endpoints: false,
    announced_by_nodes: false,
    needs_health_check_port: false,
};

#[test]
fn from_nothing_to_an_address() {
    let mut world = World::new(Abilities::default());
    let (steps, end) = world.run(|_| Ok(Some(balancer())));
    assert_eq!(
        (steps, end),
        (
            vec!["hold".into(), "Ensure".into(), "status".into()],
            End::Done
        )
    );
    assert_eq!(
        world.reasons(),
        ["EnsuringLoadBalancer", "EnsuredLoadBalancer"]
    );
    assert_eq!(world.run(never), (vec![], End::Done));
}

#[test]
fn a_start_with_everything_in_place_asks_once_and_tells_nothing() {
    let mut settled = World::settled(Abilities::default());
    let mut world = World::new(Abilities::default());
    world.service = settled.service.take();
    world.version = 100;
    world.show(|_| {});
    assert_eq!(world.run(|_| Ok(Some(balancer()))).0, ["Ensure"]);
    assert_eq!(world.reasons(), [""; 0]);
}

#[test]
fn failures_are_told_and_tried_again() {
    let mut world = World::new(Abilities::default());
    let (steps, end) = world.run(|_| Err(ProviderError::Failed("no route".into())));
    assert_eq!(
        (steps, end),
        (
            vec!["hold".into(), "Ensure".into(), "status".into()],
            End::Failed
        )
    );
    assert_eq!(
        world.reasons(),
        ["EnsuringLoadBalancer", "SyncLoadBalancerFailed"]
    );
    // The own write of the condition is no reason to try again.
    let touched = world.state.take_touched();
    world.show(|_| {});
    assert!(world.state.take_touched().syncs.is_empty(), "{touched:?}");
    let retry = ProviderError::RetryAfter {
        after: Duration::from_secs(15),
        reason: "new".into(),
    };
    assert_eq!(
        world.run(|_| Err(retry.clone())).1,
        End::Again(Duration::from_secs(15))
    );
    assert_eq!(world.run(|_| Ok(Some(balancer()))).1, End::Done);
}

#[test]
fn what_is_pending_is_asked_for_again() {
    let mut world = World::new(Abilities::default());
    let pending = Balancer {
        pending: Some("warming up".into()),
        ..balancer()
    };
    let wait = Duration::from_secs(5);
    assert_eq!(world.run(|_| Ok(Some(pending.clone()))).1, End::Again(wait));
    assert_eq!(world.run(never).1, End::Again(wait), "not before its time");
    world.now += wait;
    assert_eq!(
        world.run(|_| Ok(Some(pending.clone()))),
        (vec!["Ensure".into()], End::Again(wait))
    );
    world.now += wait;
    let (steps, end) = world.run(|_| Ok(Some(balancer())));
    assert_eq!(
        (steps.first().map(String::as_str), end),
        (Some("Ensure"), End::Done)
    );
    assert_eq!(
        world.reasons(),
        ["EnsuringLoadBalancer", "EnsuredLoadBalancer"]
    );
    world.now += wait;
    assert_eq!(world.run(never).1, End::Done);
}

#[test]
fn deletion_asks_the_provider_first_and_lets_go_last() {
    let mut world = World::settled(Abilities::default());
    world.show(|service| service["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into());
    let (steps, end) = world.run(|_| Err(ProviderError::Failed("no route".into())));
    assert_eq!(
        (steps, end),
        (vec!["Delete".into(), "status".into()], End::Failed)
    );
    assert_eq!(world.run(|_| Ok(None)).0, ["Delete", "release"]);
    assert_eq!(world.state.services(), 0);
    assert!(world.state.by_version.is_empty());
}

#[test]
fn another_type_cleans_up_and_back_again_ensures() {
    let mut world = World::settled(Abilities::default());
    world.show(|service| service["spec"]["type"] = "NodePort".into());
    assert_eq!(world.run(|_| Ok(None)).0, ["Delete", "release"]);
    assert_eq!(world.state.services(), 0);
    world.show(|service| service["spec"]["type"] = "LoadBalancer".into());
    assert_eq!(
        world.run(|_| Ok(Some(balancer()))).0,
        ["hold", "Ensure", "status"]
    );
    // Back before the finalizer is gone: what was deleted is made again.
    world.show(|service| service["spec"]["type"] = "NodePort".into());
    world.state.begin(&key());
    assert!(matches!(world.next(), Step::Call(Call::Delete, _)));
    world.show(|service| service["spec"]["type"] = "LoadBalancer".into());
    world
        .state
        .called(&key(), Call::Delete, Ok(None), world.now);
    assert_eq!(world.run(|_| Ok(Some(balancer()))).0, ["Ensure"]);
}

#[test]
fn one_that_was_made_anew_under_its_name_has_a_load_balancer_of_its_own() {
    let mut world = World::settled(Abilities::default());
    world.show(|service| {
        service["metadata"]["uid"] = "2".into();
        service["metadata"]["finalizers"] = json!([]);
        service["status"] = json!({});
    });
    let deleted = |call: Call| match call {
        Call::Ensure => Ok(Some(balancer())),
        _ => Ok(None),
    };
    assert_eq!(
        world.run(deleted).0,
        ["DeleteOrphan", "hold", "Ensure", "status"]
    );
}

#[test]
fn one_that_vanishes_while_it_is_made_is_deleted() {
    let mut world = World::new(Abilities::default());
    world.state.begin(&key());
    world.write("hold");
    assert!(matches!(world.next(), Step::Call(Call::Ensure, _)));
    world.state.delete_service(&key());
    world
        .state
        .called(&key(), Call::Ensure, Ok(Some(balancer())), world.now);
    let Step::Call(Call::DeleteOrphan, request) = world.next() else {
        panic!()
    };
    assert_eq!(request.service.uid, "1");
    world
        .state
        .called(&key(), Call::DeleteOrphan, Ok(None), world.now);
    assert_eq!(world.state.services(), 0);
}

#[test]
fn nodes_count_only_for_who_uses_them_and_only_once_for_many() {
    for (abilities, expected) in [(Abilities::default(), 0), (NODES, 1)] {
        let mut world = World::settled(abilities);
        world.node("a");
        world.node("b");
        world.state.settle_nodes(world.now);
        let touched = world.state.take_touched();
        assert_eq!(touched.syncs.len(), expected);
        let (steps, _) = world.run(|_| Ok(None));
        assert_eq!(steps, ["UpdateNodes"; 1][..expected]);
        world.state.settle_nodes(world.now);
        assert!(
            world.state.take_touched().syncs.is_empty(),
            "nothing changed"
        );
    }
}

#[test]
fn node_ports_of_a_partition_are_balanced_at_its_addresses_alone() {
    let mut world = World::settled(NODES);
    for (node, addresses) in [
        ("a", ["10.0.0.1", "192.0.2.1"]),
        ("b", ["10.0.0.2", "192.0.2.2"]),
        ("c", ["10.0.0.3", "192.0.2.3"]),
    ] {
        let addresses = addresses.map(|ip| json!({"type": "InternalIP", "address": ip}));
        let node = json!({"metadata": {"name": node}, "status": {"addresses": addresses.to_vec()}});
        world
            .state
            .apply_node(&serde_json::from_value(node).unwrap());
    }
    world.state.settle_nodes(world.now);
    let told = |world: &World| -> Vec<String> {
        let facts = world.state.services[&key()].facts.clone().unwrap();
        let nodes = world.state.nodes_of(&facts);
        nodes
            .iter()
            .map(|node| format!("{} {:?}", node.name, node.addresses))
            .collect()
    };
    world.run(|_| Ok(None));
    world.state.take_touched();
    assert_eq!(told(&world).len(), 3);
    // Whoever names no partition loses what a partition takes.
    for (node, address) in [("a", "192.0.2.1/32"), ("b", "192.0.2.2/32")] {
        let report = NodeReport {
            node_ports: Some(vec!["0.0.0.0/0".into()]),
            partitions: vec![PartitionAddresses {
                name: "left".into(),
                addresses: vec![address.into()],
            }],
            ..NodeReport::default()
        };
        let lease = lease(node, "1970-01-01T00:00:00.000000Z", &report);
        world
            .state
            .apply_report(&lease, world.now, Timestamp::UNIX_EPOCH);
    }
    assert_eq!(
        told(&world),
        ["a [10.0.0.1]", "b [10.0.0.2]", "c [10.0.0.3, 192.0.2.3]"]
    );
    assert_eq!(world.state.take_touched().syncs.len(), 1);
    let annotate = |world: &mut World, annotations: Value| {
        world.show(|service| service["metadata"]["annotations"] = annotations);
        assert_eq!(world.state.take_touched().syncs.len(), 1);
    };
    annotate(&mut world, json!({PORT_PARTITION: "left"}));
    assert_eq!(told(&world), ["a [192.0.2.1]", "b [192.0.2.2]"]);
    annotate(
        &mut world,
        json!({PORT_PARTITION: "left", NODE_PORT_ADDRESSES: "192.0.2.2/32"}),
    );
    assert_eq!(told(&world), ["b [192.0.2.2]"]);
    annotate(&mut world, json!({PORT_PARTITION: "right"}));
    assert_eq!(told(&world), [""; 0]);
}

#[test]
fn a_failed_update_of_nodes_becomes_an_ensure() {
    let mut world = World::settled(NODES);
    world.node("a");
    world.state.settle_nodes(world.now);
    assert_eq!(
        world.run(|_| Err(ProviderError::Failed("x".into()))),
        (vec!["UpdateNodes".into(), "status".into()], End::Failed)
    );
    assert_eq!(world.reasons(), ["UpdateLoadBalancerFailed"]);
    assert_eq!(world.run(|_| Ok(Some(balancer()))).0, ["Ensure", "status"]);
}

#[test]
fn local_without_a_health_check_gets_only_nodes_with_endpoints() {
    let mut world = World::new(NODES);
    world.node("a");
    world.node("b");
    world.state.settle_nodes(world.now);
    world.show(|service| service["spec"]["externalTrafficPolicy"] = "Local".into());
    let slice = |node: &str| {
        serde_json::from_value(json!({"metadata": {"namespace": "shop", "name": "s", "labels": {"kubernetes.io/service-name": "web"}},
            "addressType": "IPv4", "endpoints": [{"addresses": ["10.1.0.1"], "nodeName": node}], "ports": [{"port": 80}]}))
        .unwrap()
    };
    world.state.apply_slice(&slice("a"));
    world.state.begin(&key());
    world.write("hold");
    let Step::Call(Call::Ensure, request) = world.next() else {
        panic!()
    };
    assert_eq!(
        request
            .nodes
            .iter()
            .map(|node| node.name.as_str())
            .collect::<Vec<_>>(),
        ["a"]
    );
    world
        .state
        .called(&key(), Call::Ensure, Ok(Some(balancer())), world.now);
    world.run(never);
    world.state.take_touched();
    world.state.apply_slice(&slice("b"));
    assert_eq!(world.state.take_touched().syncs.len(), 1);
    assert_eq!(world.run(|_| Ok(None)).0, ["UpdateNodes"]);
}

#[test]
fn a_provider_that_has_to_ask_nodes_refuses_local_without_a_port() {
    let mut world = World::new(Abilities {
        needs_health_check_port: true,
        ..NODES
    });
    world.show(|service| service["spec"]["externalTrafficPolicy"] = "Local".into());
    assert_eq!(
        world.run(never),
        (vec!["hold".into(), "status".into()], End::Failed)
    );
    assert_eq!(world.reasons(), ["SyncLoadBalancerFailed"]);
}

#[test]
fn every_while_everything_is_looked_at_and_put_right() {
    let mut world = World::settled(Abilities::default());
    let told = world.reasons();
    world.now += Duration::from_secs(901);
    assert_eq!(
        world.run(|_| Ok(Some(balancer()))).0,
        ["Resync"],
        "as it should be"
    );
    assert_eq!(world.reasons(), told, "which is nothing to tell");
    assert_eq!(world.run(never).0, [""; 0], "until the next time");
    world.now += Duration::from_secs(901);
    assert_eq!(
        world.run(|_| Err(ProviderError::Failed("no".to_owned()))).0,
        ["Resync", "status"]
    );
    assert_eq!(world.run(|_| Ok(Some(balancer()))).0, ["Ensure", "status"]);
}

#[test]
fn what_another_program_makes_is_left_to_it() {
    let mut world = World::new(Abilities::default());
    assert_eq!(
        world.run(|_| Err(ProviderError::Elsewhere)),
        (vec!["hold".into(), "Ensure".into()], End::Done)
    );
    assert_eq!(world.run(never).0, [""; 0]);
    let (step, _) = world
        .state
        .next_conditions(&key(), world.now, Timestamp::UNIX_EPOCH);
    assert!(matches!(step, Step::Rest(End::Done)));
    world.show(|service| service["spec"]["loadBalancerIP"] = "192.0.2.9".into());
    assert_eq!(world.run(|_| Ok(Some(balancer()))).0, ["Ensure", "status"]);
}

#[test]
fn news_of_a_provider_try_again_what_they_concern() {
    let mut world = World::new(Abilities::default());
    world.run(|_| {
        Err(ProviderError::Refused {
            reason: "PoolsExhausted",
            message: "full".into(),
        })
    });
    world.state.take_touched();
    world.state.freed();
    assert_eq!(world.state.take_touched().syncs.len(), 1);
    world.run(|_| Ok(Some(balancer())));
    world.state.take_touched();
    world.state.freed();
    assert!(world.state.take_touched().syncs.is_empty());
    world.state.ensure_all();
    assert_eq!(world.run(|_| Ok(Some(balancer()))).0, ["Ensure"]);
}

/// A status can hold no mode for a name, so one that a provider gives is not compared.
#[test]
fn a_mode_of_a_name_is_not_written_again_and_again() {
    let mut world = World::new(Abilities::default());
    let named = Ingress {
        host: Host::Name("lb.example.com".into()),
        mode: IpMode::Proxy,
    };
    let named = Balancer {
        ingress: vec![named],
        pending: None,
    };
    world.state.begin(&key());
    world.write("hold");
    world.next();
    world
        .state
        .called(&key(), Call::Ensure, Ok(Some(named)), world.now);
    assert!(matches!(world.next(), Step::Write(write) if write.what == "status"));
    world.show(|service| {
        service["status"]["loadBalancer"] = json!({"ingress": [{"hostname": "lb.example.com"}]})
    });
    let facts = world.state.services[&key()].facts.clone().unwrap();
    assert_eq!(
        world.state.services[&key()]
            .memory
            .made
            .as_ref()
            .unwrap()
            .balancer
            .ingress,
        facts.ingress
    );
}

fn proxied() -> Balancer {
    let mut balancer = balancer();
    balancer.ingress[0].mode = IpMode::Proxy;
    balancer
}

/// An API server without KEP-1860, or with its gate off: the address comes back without a mode.
#[test]
fn a_mode_that_the_api_server_drops_is_not_written_again_and_again() {
    let mut world = World::new(Abilities::default());
    world.state.begin(&key());
    world.write("hold");
    world.next();
    let called = Ok(Some(proxied()));
    world.state.called(&key(), Call::Ensure, called, world.now);
    let Step::Write(write) = world.next() else {
        panic!("the address is not written")
    };
    let written = &write.patch["status"]["loadBalancer"]["ingress"];
    assert_eq!(*written, json!([{"ip": "192.0.2.1", "ipMode": "Proxy"}]));
    world.show(|service| {
        service["status"]["loadBalancer"] = json!({"ingress": [{"ip": "192.0.2.1"}]});
        service["status"]["conditions"] = write.patch["status"]["conditions"].clone();
    });
    let is_address_written = |world: &mut World| match world.next() {
        Step::Write(write) => write.patch["status"].get("loadBalancer").is_some(),
        _ => false,
    };
    assert!(
        !is_address_written(&mut world),
        "it is as the server can show it"
    );
    // The gate is switched on: the server fills in the default.
    world.show(|service| {
        service["status"]["loadBalancer"]["ingress"][0]["ipMode"] = "VIP".into();
    });
    assert!(is_address_written(&mut world));
}

#[test]
fn without_the_feature_gate_no_mode_is_written() {
    let mut world = World::new(Abilities::default());
    world.state.surroundings.load_balancer_ip_mode = false;
    world.state.begin(&key());
    world.write("hold");
    world.next();
    let called = Ok(Some(proxied()));
    world.state.called(&key(), Call::Ensure, called, world.now);
    let Step::Write(write) = world.next() else {
        panic!("the address is not written")
    };
    let written = &write.patch["status"]["loadBalancer"]["ingress"];
    assert_eq!(*written, json!([{"ip": "192.0.2.1"}]));
    // A server with the gate fills in the default, and that is as good.
    world.write("status");
    assert_eq!(world.run(never), (vec![], End::Done));
}

#[test]
fn a_quarrel_about_the_status_has_an_end() {
    let mut world = World::new(Abilities::default());
    world.state.begin(&key());
    for _ in 0..10 {
        match world.next() {
            Step::Write(_) => world.show(|service| service["metadata"]["finalizers"] = json!([])),
            Step::Rest(end) => return assert!(matches!(end, End::Again(_))),
            Step::Call(..) => panic!(),
        }
    }
    panic!("writes for ever");
}

#[test]
fn reports_touch_only_what_they_concern() {
    let mut world = World::settled(Abilities::default());
    world.node("a");
    world.state.settle_nodes(world.now);
    world.state.take_touched();
    let report = |version: u64| {
        let report = NodeReport {
            services: version.to_string(),
            ..NodeReport::default()
        };
        lease("a", "1970-01-01T00:00:00.000000Z", &report)
    };
    let version = world.state.services[&key()].version;
    let mut heard = |version: u64| {
        world
            .state
            .apply_report(&report(version), world.now, Timestamp::UNIX_EPOCH);
        world.state.take_touched().conditions.len()
    };
    assert_eq!(heard(version - 2), 1, "the first report concerns everybody");
    assert_eq!(heard(version - 1), 0);
    assert_eq!(heard(version), 1, "now it is live");
    assert_eq!(heard(version + 100), 0);
}

#[test]
fn an_address_that_moves_is_told_at_once() {
    use crate::balancers::reports::tests::lease;
    use portico_model::report::{Announcing, Holding, NodeReport};
    let mut world = World::settled(Abilities {
        announced_by_nodes: true,
        ..Abilities::default()
    });
    world.node("a");
    world.node("b");
    let slice = json!({
        "metadata": {"namespace": "shop", "name": "web-1",
            "labels": {"kubernetes.io/service-name": "web"}},
        "addressType": "IPv4", "ports": [],
        "endpoints": [{"addresses": ["10.0.0.1"], "conditions": {"ready": true}}]});
    world
        .state
        .apply_slice(&serde_json::from_value(slice).unwrap());
    world.now += Duration::from_secs(60);
    world.state.settle_nodes(world.now);
    let tell = |world: &mut World, node: &str, members: &[&str], since: Option<&str>| {
        let holding = |since: &str| Holding {
            addresses: vec!["192.0.2.1".parse().unwrap()],
            since: since.to_owned(),
            ..Holding::default()
        };
        let announcing = Announcing {
            members: members.iter().map(|&name| name.to_owned()).collect(),
            holds: Some(since.into_iter().map(holding).collect()),
            ..Announcing::default()
        };
        let report = NodeReport {
            services: u64::MAX.to_string(),
            announcing: Some(announcing),
            ..NodeReport::default()
        };
        let lease = lease(node, "1970-01-01T00:00:00.000000Z", &report);
        world
            .state
            .apply_report(&lease, world.now, Timestamp::UNIX_EPOCH);
    };
    let pass = |world: &mut World| {
        world.state.begin(&key());
        let (step, again) = world
            .state
            .next_conditions(&key(), world.now, Timestamp::UNIX_EPOCH);
        if let Step::Write(write) = &step {
            world.write(write.what);
        }
        (matches!(step, Step::Write(_)), again)
    };
    let announced = |world: &World| world.service["status"]["conditions"][2]["message"].clone();

    tell(&mut world, "a", &["a", "b"], Some("t1"));
    tell(&mut world, "b", &["a", "b"], None);
    assert_eq!(pass(&mut world), (true, None));
    assert_eq!(announced(&world), "a answers for 192.0.2.1 since t1");
    assert_eq!(world.reasons(), Vec::<&str>::new());
    assert_eq!(pass(&mut world), (false, None));

    world.state.take_touched();
    world.now += Duration::from_millis(500);
    tell(&mut world, "b", &["b"], Some("t2"));
    let touched = world.state.take_touched();
    assert!(touched.conditions.contains(&key()));
    assert_eq!(pass(&mut world), (true, None));
    assert_eq!(announced(&world), "b answers for 192.0.2.1 since t2");
    assert_eq!(world.reasons(), [OWNER_CHANGED]);

    // It is handed over, and the one that gets it reports a moment later.
    world.now += Duration::from_millis(100);
    tell(&mut world, "b", &["a", "b"], None);
    tell(&mut world, "a", &["a", "b"], None);
    let (written, again) = pass(&mut world);
    assert!(!written && again.is_some(), "{again:?}");
    tell(&mut world, "a", &["a", "b"], Some("t3"));
    assert_eq!(pass(&mut world), (true, None));
    assert_eq!(announced(&world), "a answers for 192.0.2.1 since t3");
}
