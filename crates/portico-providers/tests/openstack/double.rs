//! Every call goes wrong in every way, on the cloud in memory; and states that the real one cannot
//! be brought into at will.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use portico_providers::cloud::faults::{Faulty, no_waits};
use portico_providers::cloud::{CallMetrics, Poll};
use portico_providers::conformance::{self, Can, Case, FaultPlan, Lab, Support, World};
use portico_providers::openstack::{Config, OpenStack, Parts};
use portico_providers::{Provider, ProviderError, Request};
use serde_json::{Value, json};

use super::memory::{self, Memory, ROOT, URL};
use super::raw::{Raw, settle_others};
use super::sample::{node, service};

struct Double {
    memory: Arc<Memory>,
    raw: Raw,
    plan: Arc<FaultPlan>,
}

impl Double {
    async fn new() -> Self {
        let memory = Arc::new(Memory::default());
        let urls = [
            format!("{URL}/v3"),
            format!("{URL}/v2.0"),
            format!("{URL}/v2.0/lbaas"),
        ];
        let raw = Raw::new(memory::transport(&memory), Some(ROOT.to_owned()), urls);
        settle_others(&raw, "sub", "world").await;
        Self {
            memory,
            raw,
            plan: Arc::default(),
        }
    }

    fn provider(&self, more: &str) -> OpenStack {
        let text = format!(
            "[Global]\nauth-url={URL}\nusername=u\npassword=p\n[LoadBalancer]\nsubnet-id=sub\nfloating-network-id=world\n{more}"
        );
        let (pace, poll) = no_waits();
        let poll = Poll {
            first: Duration::ZERO,
            last: Duration::ZERO,
            ..poll
        };
        let transport = Arc::new(Faulty::over(
            memory::transport(&self.memory),
            Arc::clone(&self.plan),
        ));
        let parts = Parts {
            transport,
            pace,
            poll,
            metrics: CallMetrics::default(),
        };
        OpenStack::new(Config::parse(&text).unwrap(), parts)
    }

    async fn balancers(&self) -> usize {
        self.raw.load_balancers().await.unwrap().len() - 1
    }
}

impl World for Double {
    fn owned(&self) -> BoxFuture<'_, Result<Vec<String>, String>> {
        Box::pin(async { Ok(self.memory.lines(true)) })
    }

    fn foreign(&self) -> BoxFuture<'_, Result<Vec<String>, String>> {
        Box::pin(async { Ok(self.memory.lines(false)) })
    }
}

impl Lab for Double {
    fn start(&self) -> BoxFuture<'_, Arc<dyn Provider>> {
        Box::pin(async { Arc::new(self.provider("")) as Arc<dyn Provider> })
    }

    fn plan(&self) -> &FaultPlan {
        &self.plan
    }
}

fn case() -> Case {
    let untested = || Support::Untested("addresses in memory are all of IPv4".to_owned());
    let can = Can {
        ipv6: untested(),
        dual_stack: untested(),
        ..Can::everything()
    };
    let case = Case::new((1..=3).map(node).collect()).can(can);
    Case {
        patience: Duration::from_secs(20),
        pause: Duration::from_micros(100),
        ..case
    }
}

/// So that what is shown on it means something.
#[tokio::test]
async fn the_double_conforms() {
    let double = Double::new().await;
    for more in [
        "",
        "provider-requires-serial-api-calls=true",
        "create-monitor=false",
        "internal-lb=true",
    ] {
        let can = Can {
            local: if more.contains("monitor") {
                Support::Ignored
            } else {
                Support::Full
            },
            ..case().can
        };
        let report =
            conformance::run(&double.provider(more), Some(&double), &case().can(can)).await;
        assert!(report.passed(), "{more}: {report}");
    }
}

#[tokio::test]
async fn every_call_may_fail() {
    let double = Double::new().await;
    let report = conformance::with_faults(&double, &case()).await;
    println!("{} calls, each with every fault", report.steps.len() - 1);
    assert!(report.passed() && report.steps.len() > 30, "{report}");
}

#[tokio::test]
async fn one_that_fails_when_it_is_created_is_deleted_and_made_again() {
    let double = Double::new().await;
    let (provider, request) = (double.provider(""), service("fails", &[]));
    // It is made again at once, and after that by the next try.
    double.memory.fail_next(2);
    let error = provider.ensure(&request).await.unwrap_err();
    assert!(
        matches!(&error, ProviderError::Failed(text) if text.contains("is ERROR: see `openstack")),
        "{error:?}"
    );
    assert_eq!(double.balancers().await, 0);
    provider.ensure(&request).await.unwrap();
    assert_eq!(double.balancers().await, 1);
}

/// It may still carry traffic, and its address is known.
#[tokio::test]
async fn one_that_fails_later_is_left_to_operators() {
    let double = Double::new().await;
    let (provider, request) = (double.provider(""), service("later", &[]));
    let ingress = provider.ensure(&request).await.unwrap().ingress;
    let fail = |status: &'static str| {
        double.memory.change("loadbalancers", move |it| {
            it["provisioning_status"] = status.into()
        })
    };
    fail("ERROR");
    let request = Request {
        ingress: ingress.clone(),
        ..request
    };
    provider.forget(&request);
    assert!(matches!(
        provider.ensure(&request).await,
        Err(ProviderError::Failed(_))
    ));
    assert_eq!(double.balancers().await, 1);
    fail("ACTIVE");
    assert_eq!(provider.ensure(&request).await.unwrap().ingress, ingress);
}

#[tokio::test]
async fn tokens_that_end_early_are_renewed() {
    let double = Double::new().await;
    let (provider, request) = (double.provider(""), service("tokens", &[]));
    provider.ensure(&request).await.unwrap();
    double.memory.expire();
    double.plan.set(None);
    provider.forget(&request);
    provider.ensure(&request).await.unwrap();
    let logins = double
        .plan
        .calls()
        .iter()
        .filter(|call| call.contains("auth/tokens"))
        .count();
    assert_eq!(logins, 1);
}

/// Whatever is changed by hand is found and put back.
#[tokio::test]
async fn drift_is_repaired() {
    let double = Double::new().await;
    let (provider, request) = (double.provider(""), service("drift", &[]));
    provider.ensure(&request).await.unwrap();
    let before = double.owned().await.unwrap();
    let changes: [(&str, &str, Value); 6] = [
        ("listeners", "connection_limit", json!(7)),
        ("listeners", "allowed_cidrs", json!(["192.0.2.0/24"])),
        ("pools", "lb_algorithm", json!("SOURCE_IP")),
        ("members", "monitor_port", json!(1)),
        ("members", "protocol_port", json!(1)),
        ("healthmonitors", "delay", json!(60)),
    ];
    for (collection, field, value) in changes {
        double.memory.change(collection, |it| {
            if it["tags"] == json!(["adrift"])
                || collection == "members" && it["monitor_port"].is_u64()
            {
                it[field] = value.clone();
            }
        });
        assert_ne!(
            double.owned().await.unwrap(),
            before,
            "{collection} {field}"
        );
        provider.forget(&request);
        provider.ensure(&request).await.unwrap();
        assert_eq!(
            double.owned().await.unwrap(),
            before,
            "{collection} {field}"
        );
    }
}

/// A create whose answer came too late may have happened after the next look.
#[tokio::test]
async fn of_two_balancers_the_older_stays() {
    let double = Double::new().await;
    let (provider, request) = (double.provider(""), service("twice", &[]));
    let first = provider.ensure(&request).await.unwrap();
    let twin = json!({"loadbalancer": {"name": "kube_service_conformance_default_twice", "tags": ["atwice"], "vip_subnet_id": "sub"}});
    double
        .raw
        .post(format!("{}/loadbalancers", double.raw.octavia), twin)
        .await;
    assert_eq!(double.balancers().await, 2);
    provider.forget(&request);
    assert_eq!(provider.ensure(&request).await.unwrap(), first);
    assert_eq!(double.balancers().await, 1);
}

/// Reads, writes and looks while waiting, without those for a token.
fn cost(plan: &FaultPlan) -> (usize, usize) {
    let calls = plan.calls();
    plan.set(None);
    let is_wait = |call: &&String| call.starts_with("GET /v2.0/lbaas/loadbalancers/");
    let calls: Vec<_> = calls
        .iter()
        .filter(|call| !call.contains("auth/tokens") && !is_wait(call))
        .collect();
    let reads = calls.iter().filter(|call| call.starts_with("GET")).count();
    (reads, calls.len() - reads)
}

/// The numbers are in docs/benchmarks.md.
#[tokio::test]
async fn calls_are_as_few_as_the_apis_allow() {
    let double = Double::new().await;
    let (provider, mut request) = (double.provider(""), service("counted", &[]));
    request.ports.truncate(1);
    let plan = &double.plan;
    plan.set(None);
    provider.ensure(&request).await.unwrap();
    assert_eq!(cost(plan), (1, 2), "create");
    request
        .annotations
        .insert("example.com/owner".to_owned(), "shop".to_owned());
    provider.ensure(&request).await.unwrap();
    assert_eq!(cost(plan), (0, 0), "nothing to do");
    request.nodes.push(node(3));
    provider.update_nodes(&request).await.unwrap();
    assert_eq!(cost(plan), (0, 1), "a node joins");
    request.nodes.pop();
    provider.update_nodes(&request).await.unwrap();
    assert_eq!(cost(plan), (0, 1), "a node leaves");
    request.ports = service("counted", &[]).ports;
    provider.ensure(&request).await.unwrap();
    assert_eq!(cost(plan), (0, 4), "a port more");
    provider.delete(&request).await.unwrap();
    assert_eq!(cost(plan), (1, 2), "delete");
}

/// What is remembered may be wrong: then everything is looked at, and nobody hears of it.
#[tokio::test]
async fn what_is_remembered_and_gone_is_made_again() {
    let double = Double::new().await;
    let (provider, mut request) = (double.provider(""), service("gone", &[]));
    provider.ensure(&request).await.unwrap();
    double.provider("").delete(&request).await.unwrap();
    assert_eq!(double.balancers().await, 0);
    request.nodes.push(node(3));
    provider.update_nodes(&request).await.unwrap();
    assert_eq!(double.balancers().await, 1);
    assert!(provider.describe(&request).await.unwrap().is_some());
    provider.delete(&request).await.unwrap();
    assert_eq!(double.owned().await.unwrap(), Vec::<String>::new());
}
