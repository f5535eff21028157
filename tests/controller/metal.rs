//! Addresses from pools, from `kubectl apply` to conditions.

use crate::common::client::MERGE;
use crate::common::{at, eventually, items, text};
use crate::pools::{BLOCKS, control_with};
use crate::rig::{Rig, condition, options, path};
use portico_controller::balancers::Options;
use serde_json::{Value, json};
use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Duration;

const MANIFEST: &str = "
apiVersion: portico.dev/v1
kind: AddressPool
metadata: {name: public}
spec:
  addresses: [192.0.2.0/30]
  avoidBuggyIPs: true
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  type: LoadBalancer
  selector: {app: web}
  ports: [{port: 80}]
";

fn kubectl(rig: &Rig, arguments: &[&str], input: &str) -> String {
    let mut kubectl = Command::new("kubectl");
    kubectl
        .arg("--kubeconfig")
        .arg(rig.server.kubeconfig())
        .args(arguments);
    kubectl
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = kubectl.spawn().unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(input.as_bytes())
        .unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(
        output.status.success(),
        "{arguments:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn from_kubectl_apply_to_an_address() {
    let rig = Rig::start().await;
    let _running = rig.metal().await;
    kubectl(&rig, &["apply", "-f", "-"], MANIFEST);
    assert_eq!(
        rig.address("web").await,
        "192.0.2.1",
        "192.0.2.0 is left out"
    );
    let service = rig.get("web").await.unwrap();
    assert_eq!(
        text(&service, "status.loadBalancer.ingress.0.ipMode"),
        "VIP"
    );
    let allocated = condition(&service, "Allocated").unwrap();
    assert_eq!(
        (text(&allocated, "status"), text(&allocated, "message")),
        ("True", "192.0.2.1 from metal")
    );
    assert!(!text(&allocated, "lastTransitionTime").is_empty());
    rig.condition("web", "Programmed", "NotReported").await;
    rig.condition("web", "Announced", "NotReported").await;
    rig.condition("web", "Reachable", "NoEndpoints").await;
    eventually("the pool counts", || async {
        (rig.pool_status("public").await["ipv4"]
            == json!({"capacity": 3, "assigned": 1, "available": 2}))
        .then_some(())
    })
    .await;
    assert_eq!(
        rig.pool_status("public").await["conditions"][0]["reason"],
        "Usable"
    );
    let table = kubectl(&rig, &["get", "addresspools"], "");
    let words: Vec<&str> = table.lines().nth(1).unwrap().split_whitespace().collect();
    // A real cluster shows lists as JSON, and nothing where there is no number.
    assert_eq!(
        (words[0], words[2], words[3], words[4]),
        ("public", "true", "1", "2"),
        "{table}"
    );
    kubectl(&rig, &["delete", "service", "web"], "");
    rig.books_balance().await;
    eventually("an empty block is no block", || async {
        items(&rig.api.get(BLOCKS).await.expect(200))
            .is_empty()
            .then_some(())
    })
    .await;
}

#[tokio::test]
async fn an_address_that_is_asked_for() {
    let rig = Rig::start().await;
    rig.pool(
        "public",
        json!({"addresses": ["192.0.2.0/24"], "avoidBuggyIPs": true}),
    )
    .await;
    rig.pool(
        "reserved",
        json!({"addresses": ["198.51.100.0/28"], "autoAssign": false}),
    )
    .await;
    let _running = rig.metal().await;
    rig.create_with("field", json!({"loadBalancerIP": "192.0.2.77"}))
        .await;
    assert_eq!(rig.address("field").await, "192.0.2.77");
    rig.annotated("noted", json!({"portico.dev/addresses": "192.0.2.78"}))
        .await;
    assert_eq!(rig.address("noted").await, "192.0.2.78");
    rig.annotated("pooled", json!({"portico.dev/address-pool": "reserved"}))
        .await;
    assert_eq!(rig.address("pooled").await, "198.51.100.0");
    for (name, annotations, reason) in [
        (
            "taken",
            json!({"portico.dev/addresses": "192.0.2.77"}),
            "AddressInUse",
        ),
        (
            "nowhere",
            json!({"portico.dev/addresses": "203.0.113.1"}),
            "AddressNotInPool",
        ),
        (
            "avoided",
            json!({"portico.dev/addresses": "192.0.2.255"}),
            "AddressNotPermitted",
        ),
        (
            "nonsense",
            json!({"portico.dev/addresses": "192.0.2"}),
            "InvalidAddressRequest",
        ),
        (
            "unknown",
            json!({"portico.dev/address-pool": "secret"}),
            "UnknownPool",
        ),
    ] {
        rig.annotated(name, annotations).await;
        let refused = rig.condition(name, "Allocated", reason).await;
        assert_eq!(refused["status"], "False", "{refused}");
        assert!(rig.addresses(name).await.is_empty());
    }
    // Who asks for another address moves; who asks for one that others have keeps what it has, and
    // is told.
    rig.change("field", json!({"spec": {"loadBalancerIP": "192.0.2.80"}}))
        .await;
    eventually("it has moved", || async {
        (rig.addresses("field").await == ["192.0.2.80"]).then_some(())
    })
    .await;
    eventually("the next one has it", || async {
        (rig.addresses("taken").await == ["192.0.2.77"]).then_some(())
    })
    .await;
    rig.change("field", json!({"spec": {"loadBalancerIP": "192.0.2.78"}}))
        .await;
    rig.condition("field", "Allocated", "AddressInUse").await;
    assert_eq!(rig.addresses("field").await, ["192.0.2.80"]);
    rig.books_balance().await;
}

#[tokio::test]
async fn an_address_that_is_shared() {
    let rig = Rig::start().await;
    rig.pool("public", json!({"addresses": ["192.0.2.0/24"]}))
        .await;
    let _running = rig.metal().await;
    let key = json!({"portico.dev/allow-shared-ip": "dns"});
    rig.annotated("udp", key.clone()).await;
    let first = rig.address("udp").await;
    let port = |port: u16| json!({"spec": {"ports": [{"name": "other", "port": port}]}});
    rig.annotated_with("tcp", key.clone(), port(81)["spec"].clone())
        .await;
    assert_eq!(rig.address("tcp").await, first);
    rig.annotated("same-port", key.clone()).await;
    assert_ne!(rig.address("same-port").await, first);
    rig.annotated("stranger", json!({"portico.dev/addresses": first}))
        .await;
    rig.condition("stranger", "Allocated", "AddressInUse").await;
    // The port of the other is taken, as long as it is there.
    rig.change("tcp", port(80)).await;
    eventually("it has left", || async {
        (rig.addresses("tcp").await != [first.clone()]).then_some(())
    })
    .await;
    rig.books_balance().await;
    rig.delete("udp").await;
    eventually("the last one is gone", || async {
        (rig.addresses("stranger").await == [first.clone()]).then_some(())
    })
    .await;
    rig.books_balance().await;
}

#[tokio::test]
async fn both_families_or_what_there_is() {
    let rig = Rig::start().await;
    rig.pool("public", json!({"addresses": ["192.0.2.0/24"]}))
        .await;
    let _running = rig.metal().await;
    rig.create_with("prefer", json!({"ipFamilyPolicy": "PreferDualStack"}))
        .await;
    rig.create_with("require", json!({"ipFamilyPolicy": "RequireDualStack"}))
        .await;
    assert_eq!(rig.address("prefer").await, "192.0.2.0");
    let refused = rig.condition("require", "Allocated", "FamilyMissing").await;
    assert!(text(&refused, "message").contains("IPv6"), "{refused}");
    rig.change_pool(
        "public",
        json!({"addresses": ["192.0.2.0/24", "2001:db8::/120"]}),
    )
    .await;
    for name in ["prefer", "require"] {
        let both = async || rig.addresses(name).await.len() == 2;
        eventually(&format!("{name} has both"), || async {
            both().await.then_some(())
        })
        .await;
        let addresses = rig.addresses(name).await;
        assert!(
            addresses[0].starts_with("192.0.2.") && addresses[1].starts_with("2001:db8::"),
            "{addresses:?}"
        );
    }
    assert_eq!(
        rig.addresses("prefer").await[0],
        "192.0.2.0",
        "it has kept what it had"
    );
    rig.change(
        "prefer",
        json!({"spec": {"ipFamilyPolicy": "SingleStack", "ipFamilies": ["IPv4"]}}),
    )
    .await;
    eventually("one is given back", || async {
        (rig.addresses("prefer").await == ["192.0.2.0"]).then_some(())
    })
    .await;
    rig.books_balance().await;
}

#[tokio::test]
async fn a_pool_that_is_full_says_so_and_goes_on() {
    let rig = Rig::start().await;
    rig.pool("public", json!({"addresses": ["192.0.2.10-192.0.2.11"]}))
        .await;
    let _running = rig.metal().await;
    for name in ["a", "b"] {
        rig.create(name).await;
        rig.address(name).await;
    }
    rig.create("c").await;
    let full = rig.condition("c", "Allocated", "PoolExhausted").await;
    assert_eq!(text(&full, "status"), "False");
    assert!(
        text(&full, "message")
            .starts_with("all 2 IPv4 addresses that the Service may have are in use (pool public)"),
        "{full}"
    );
    rig.condition("c", "Programmed", "WaitingForAddress").await;
    let told = |event: &Value| {
        text(event, "involvedObject.name") == "c"
            && text(event, "reason") == "SyncLoadBalancerFailed"
    };
    eventually("an Event tells it", || async {
        let events = rig
            .api
            .get("/api/v1/namespaces/default/events")
            .await
            .expect(200);
        items(&events).iter().any(told).then_some(())
    })
    .await;
    let freed = rig.address("a").await;
    rig.delete("a").await;
    assert_eq!(rig.address("c").await, freed);
    rig.condition("c", "Allocated", "Allocated").await;
    rig.create("d").await;
    rig.condition("d", "Allocated", "PoolExhausted").await;
    rig.change_pool("public", json!({"addresses": ["192.0.2.10-192.0.2.12"]}))
        .await;
    assert_eq!(rig.address("d").await, "192.0.2.12");
    rig.books_balance().await;
}

#[tokio::test]
async fn who_may_have_what() {
    let rig = Rig::start().await;
    let _running = rig.metal().await;
    rig.create("early").await;
    rig.condition("early", "Allocated", "NoAddressPool").await;
    rig.pool("gold", json!({"addresses": ["192.0.2.0/28"], "serviceSelector": {"matchLabels": {"tier": "gold"}}}))
        .await;
    rig.condition("early", "Allocated", "NoPermittedPool").await;
    rig.pool("low", json!({"addresses": ["192.0.2.16/28"]}))
        .await;
    rig.pool(
        "high",
        json!({"addresses": ["192.0.2.32/28"], "priority": 10}),
    )
    .await;
    rig.pool(
        "staff",
        json!({"addresses": ["192.0.2.48/28"], "namespaces": ["staff"]}),
    )
    .await;
    eventually("early has one", || async {
        (!rig.addresses("early").await.is_empty()).then_some(())
    })
    .await;
    rig.create("plain").await;
    assert_eq!(
        rig.address("plain").await,
        "192.0.2.32",
        "the higher priority first"
    );
    let gold = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "gold", "labels": {"tier": "gold"}},
        "spec": {"type": "LoadBalancer", "ports": [{"port": 80}]}});
    rig.api.post(crate::SERVICES, &gold).await.expect(201);
    assert_eq!(
        rig.address("gold").await,
        "192.0.2.0",
        "what is kept for some comes first"
    );
    rig.annotated("thief", json!({"portico.dev/addresses": "192.0.2.48"}))
        .await;
    rig.condition("thief", "Allocated", "AddressNotPermitted")
        .await;
    // Who loses the label loses the address, and is told which it has instead.
    rig.change("gold", json!({"metadata": {"labels": {"tier": "lead"}}}))
        .await;
    eventually("it has moved", || async {
        (rig.addresses("gold").await == ["192.0.2.33"]).then_some(())
    })
    .await;
    rig.books_balance().await;
}

#[tokio::test]
async fn what_statuses_show_is_adopted_where_the_blocks_are_lost() {
    let rig = Rig::start().await;
    rig.pool("public", json!({"addresses": ["192.0.2.0/24"]}))
        .await;
    let running = rig.metal().await;
    for name in ["a", "b", "c"] {
        rig.create(name).await;
        rig.address(name).await;
    }
    let before = rig.claims().await;
    running.stop().await;
    rig.api.delete(BLOCKS).await.expect(200);
    assert!(rig.claims().await.is_empty());
    rig.create("d").await;
    let running = rig.metal().await;
    let fourth = rig.address("d").await;
    assert!(!before.contains_key(&fourth), "{fourth} is somebody's");
    rig.books_balance().await;
    for (address, owners) in &before {
        assert_eq!(rig.claims().await.get(address), Some(owners));
    }
    // The same while it runs.
    rig.api.delete(BLOCKS).await.expect(200);
    rig.create("e").await;
    rig.address("e").await;
    rig.books_balance().await;
    for (address, owners) in &before {
        assert_eq!(rig.claims().await.get(address), Some(owners));
    }
    running.stop().await;
}

#[tokio::test]
async fn the_key_of_the_nodes_is_made_once() {
    let rig = Rig::start().await;
    let secret = "/api/v1/namespaces/kube-system/secrets/portico-announce";
    let running = rig.metal().await;
    let made = eventually("there is a key", || async {
        let answer = rig.api.get(secret).await;
        (answer.status == 200).then(|| answer.json())
    })
    .await;
    assert_eq!(text(&made, "data.key").len(), 44, "32 bytes");
    running.stop().await;
    rig.pool("public", json!({"addresses": ["192.0.2.0/24"]}))
        .await;
    rig.create("web").await;
    let _running = rig.metal().await;
    rig.address("web").await;
    assert_eq!(
        at(&rig.api.get(secret).await.expect(200), "data"),
        at(&made, "data")
    );
}

impl Rig {
    async fn annotated(&self, name: &str, annotations: Value) {
        self.annotated_with(name, annotations, json!({})).await;
    }

    /// Annotations have to be there from the start: a Service is served as it is.
    async fn annotated_with(&self, name: &str, annotations: Value, more: Value) {
        let mut spec = json!({"type": "LoadBalancer", "ports": [{"name": "http", "port": 80}]});
        spec.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "annotations": annotations}, "spec": spec});
        self.api.post(crate::SERVICES, &service).await.expect(201);
    }
}

/// A Service that another program wrote a wrong address to is put right, and nobody loses one by
/// it.
#[tokio::test]
async fn an_address_of_another_in_a_status_is_not_believed() {
    let rig = Rig::start().await;
    rig.pool("public", json!({"addresses": ["192.0.2.0/24"]}))
        .await;
    let _running = rig.metal().await;
    rig.create("a").await;
    rig.create("b").await;
    let (a, b) = (rig.address("a").await, rig.address("b").await);
    let wrong = json!({"status": {"loadBalancer": {"ingress": [{"ip": a}]}}});
    rig.api
        .patch(&format!("{}/status", path("b")), MERGE, &wrong)
        .await
        .expect(200);
    eventually("it is put right", || async {
        (rig.addresses("b").await == [b.clone()]).then_some(())
    })
    .await;
    assert_eq!(rig.addresses("a").await, [a]);
    rig.books_balance().await;
}

/// Portico leaves the cluster: nothing of it may keep a Service from being deleted, or an address.
#[tokio::test(flavor = "multi_thread")]
async fn everything_is_taken_back_before_portico_goes() {
    let rig = Rig::start().await;
    let running = rig.metal().await;
    rig.pool("public", json!({"addresses": ["192.0.2.0/28"]}))
        .await;
    for name in ["one", "two"] {
        rig.create(name).await;
        rig.address(name).await;
    }
    rig.annotated_with(
        "theirs",
        json!({}),
        json!({"loadBalancerClass": "example.com/x"}),
    )
    .await;
    running.stop().await;
    let (_still, stop) = tokio::sync::watch::channel(false);
    let leaving = Options {
        release: true,
        ..options()
    };
    // It ends by itself, though nobody tells it to.
    tokio::time::timeout(
        Duration::from_secs(20),
        control_with(rig.kube().await, leaving, stop),
    )
    .await
    .expect("it ends");
    for name in ["one", "two"] {
        let service = rig.get(name).await.unwrap();
        assert_eq!(at(&service, "metadata.finalizers"), &Value::Null, "{name}");
        assert_eq!(at(&service, "status.loadBalancer"), &json!({}), "{name}");
        assert!(condition(&service, "Allocated").is_none(), "{name}");
    }
    assert!(items(&rig.api.get(BLOCKS).await.expect(200)).is_empty());
}
