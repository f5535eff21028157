//! Load balancers from other programs: a plugin in Python and one in Rust keep the contract, one
//! with a flaw is found out, and a controller works with one that is killed.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test may panic and print"
)]

mod common;
#[path = "plugin/example.rs"]
mod example;
#[path = "../examples/plugin/nft.rs"]
mod nft;
#[path = "plugin/program.rs"]
mod program;

use common::{Server, Store, at, eventually, text};
use program::{Plugin, check, portico};
use serde_json::{Value, json};

const SERVICES: &str = "/api/v1/namespaces/default/services";

#[test]
fn a_plugin_in_python_passes() {
    let plugin = Plugin::python("");
    let (passed, report) = check(&plugin);
    println!("{report}");
    assert!(passed, "{report}");
    assert_eq!(
        report
            .lines()
            .filter(|line| line.starts_with("ok "))
            .count(),
        18,
        "{report}"
    );
    assert_eq!(report.lines().count(), 18, "{report}");
}

#[test]
fn a_plugin_in_python_with_a_flaw_fails() {
    for (flaw, line) in [
        (
            "delete-once",
            "failed   delete what is not there: delete: the plugin: Exception calling application",
        ),
        ("new-address", "failed   ensure: a second ensure says"),
        (
            "by-name",
            "failed   a Service is deleted and created again: to delete the old one took \
             something from the new one",
        ),
        ("leak", "failed   delete: there is still Balancer"),
    ] {
        let (passed, report) = check(&Plugin::python(flaw));
        let first = report
            .lines()
            .find(|line| line.starts_with("failed"))
            .unwrap_or_default();
        assert!(!passed && first.starts_with(line), "{flaw}: {report}");
    }
}

/// What Python makes of plugin.proto is what was said: every field has a number that both know.
#[tokio::test]
async fn both_read_the_same_from_the_contract() {
    use portico_providers::plugin::{Patience, Plugin as Client};
    use portico_providers::{Provider, Request};
    let plugin = Plugin::python("");
    let (_stop, stopped) = tokio::sync::watch::channel(false);
    let client = Client::start(&plugin.socket, Patience::default(), stopped)
        .await
        .unwrap();
    assert_eq!((client.name(), client.version()), ("plugin:folder", "0.1"));
    let request: Request = program::full_request();
    let made = client.ensure(&request).await.unwrap();
    assert_eq!(made.ingress.len(), 2);
    let heard = plugin.calls().pop().unwrap();
    assert_eq!(
        heard,
        json!({"call": "ensure", "request": program::full_request_as_json()})
    );
}

#[test]
fn trouble_is_told_with_the_way_out() {
    let output = portico(&[
        "controller",
        "check-plugin",
        "--socket",
        "/nowhere/plugin.sock",
        "--patience",
        "10ms",
    ]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    assert!(
        said.contains("no plugin answers at /nowhere/plugin.sock (No such file or directory"),
        "{said}"
    );
}

#[tokio::test]
async fn a_service_gets_its_balancer_from_a_plugin_that_is_killed_in_between() {
    let server = Server::start(Store::Embedded, &[]).await;
    let api = server.admin();
    let mut plugin = Plugin::python("");
    let _controller = program::controller(&server, &plugin);
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a"},
        "status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.1"}]}});
    api.post("/api/v1/nodes", &node).await.expect(201);
    let address = |name: &'static str| {
        let api = api.clone();
        async move {
            eventually(&format!("{name} has an address"), || async {
                let service = api.get(&format!("{SERVICES}/{name}")).await.expect(200);
                Some(text(&service, "status.loadBalancer.ingress.0.ip").to_owned())
                    .filter(|ip| !ip.is_empty())
            })
            .await
        }
    };
    let balanced = json!({"type": "LoadBalancer", "ports": [{"name": "http", "port": 80}]});
    api.create_service("first", balanced.clone())
        .await
        .expect(201);
    assert_eq!(address("first").await, "198.51.100.1");
    let first = api.get(&format!("{SERVICES}/first")).await.expect(200);
    assert_eq!(
        text(&first, "status.loadBalancer.ingress.0.ipMode"),
        "Proxy"
    );

    // Nobody is there while the second is made and the first is changed and deleted.
    plugin.kill();
    api.create_service("second", balanced).await.expect(201);
    api.delete(&format!("{SERVICES}/first")).await;
    eventually("the second is taken on", || async {
        let service = api.get(&format!("{SERVICES}/second")).await.expect(200);
        at(&service, "metadata.finalizers").is_array().then_some(())
    })
    .await;
    plugin.start();
    assert!(address("second").await.starts_with("198.51.100."));
    eventually("the first is gone", || async {
        (api.get(&format!("{SERVICES}/first")).await.status == 404).then_some(())
    })
    .await;
    let kept: Vec<Value> = plugin.balancers();
    assert_eq!(kept.len(), 1, "{kept:?}");
    assert_eq!(kept[0]["nodes"], json!(["10.0.0.1"]));

    // One that comes back empty is filled again without being asked.
    plugin.kill();
    plugin.forget();
    plugin.start();
    eventually("it is made again", || async {
        (plugin.balancers() == kept).then_some(())
    })
    .await;
}
