//! The words of the design that came before `core/v1`: `visibility`, `hostPort`, `portalIP`.

use serde_json::{Value, json};

use crate::SERVICES;
use crate::common::client::{MERGE, STRATEGIC};
use crate::common::{Server, Store, at, text};

const OWN: &str = "/apis/portico.dev/v1/namespaces/default/services";

fn own(name: &str, spec: Value) -> Value {
    json!({"apiVersion": "portico.dev/v1", "kind": "Service", "metadata": {"name": name}, "spec": spec})
}

#[tokio::test]
async fn either_spelling_makes_the_same_service() {
    let server = Server::start(Store::Embedded, &[]).await;
    let client = server.admin();
    let ports = json!([{"port": 80, "hostPort": 30080}]);
    let through_core = client
        .create_service("core", json!({"visibility": "public", "ports": ports}))
        .await
        .expect(201);
    assert_eq!(at(&through_core, "spec.type"), "NodePort");
    assert_eq!(at(&through_core, "spec.ports.0.nodePort"), 30080);
    assert!(
        at(&through_core, "spec.visibility").is_null(),
        "core answers in its own words: {through_core}"
    );

    let through_own = client
        .post(
            OWN,
            &own(
                "own",
                json!({"visibility": "loadbalancer", "ports": [{"port": 80}]}),
            ),
        )
        .await;
    let through_own = through_own.expect(201);
    assert_eq!(at(&through_own, "apiVersion"), "portico.dev/v1");
    assert_eq!(at(&through_own, "spec.visibility"), "loadbalancer");
    let port = at(&through_own, "spec.ports.0.hostPort").as_u64().unwrap();
    let address = text(&through_own, "spec.portalIP").to_owned();
    let as_core = client.get(&format!("{SERVICES}/own")).await.expect(200);
    assert_eq!(at(&as_core, "spec.type"), "LoadBalancer");
    assert_eq!(at(&as_core, "spec.ports.0.nodePort"), port);
    assert_eq!(at(&as_core, "spec.clusterIP"), address.as_str());
    assert_eq!(
        at(&as_core, "metadata.resourceVersion"),
        at(&through_own, "metadata.resourceVersion")
    );

    let as_own = client.get(&format!("{OWN}/core")).await.expect(200);
    assert_eq!(at(&as_own, "spec.visibility"), "public");
    assert_eq!(at(&as_own, "spec.ports.0.hostPort"), 30080);
    let cluster = client
        .create_service("cluster", json!({"ports": [{"port": 80}]}))
        .await
        .expect(201);
    assert_eq!(at(&cluster, "spec.type"), "ClusterIP");
    assert_eq!(
        at(
            &client.get(&format!("{OWN}/cluster")).await.expect(200),
            "spec.visibility"
        ),
        "cluster"
    );
    let list = client.get(OWN).await.expect(200);
    assert_eq!(crate::common::items(&list).len(), 4, "{list}");
}

#[tokio::test]
async fn a_read_in_one_spelling_can_be_written_back() {
    let server = Server::start(Store::Embedded, &[]).await;
    let client = server.admin();
    client
        .create_service(
            "a",
            json!({"type": "LoadBalancer", "ports": [{"port": 80}]}),
        )
        .await
        .expect(201);
    let before = client.get(&format!("{SERVICES}/a")).await.expect(200);
    let view = client.get(&format!("{OWN}/a")).await.expect(200);
    client.put(&format!("{OWN}/a"), &view).await.expect(200);
    let after = client.get(&format!("{SERVICES}/a")).await.expect(200);
    assert_eq!(before["spec"], after["spec"]);
    assert_eq!(
        at(&before, "metadata.resourceVersion"),
        at(&after, "metadata.resourceVersion"),
        "nothing was written"
    );

    let patch = json!({"spec": {"visibility": "cluster"}});
    let changed = client
        .patch(&format!("{OWN}/a"), MERGE, &patch)
        .await
        .expect(200);
    assert_eq!(at(&changed, "spec.visibility"), "cluster");
    assert_eq!(
        at(
            &client.get(&format!("{SERVICES}/a")).await.expect(200),
            "spec.type"
        ),
        "ClusterIP"
    );
}

#[tokio::test]
async fn what_disagrees_is_refused() {
    let server = Server::start(Store::Embedded, &[]).await;
    let client = server.admin();
    let refused = [
        json!({"type": "NodePort", "visibility": "cluster", "ports": [{"port": 80}]}),
        json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": 30001, "hostPort": 30002}]}),
        json!({"visibility": "cluster", "ports": [{"port": 80, "hostPort": 30080}]}),
        json!({"visibility": "everyone", "ports": [{"port": 80}]}),
        json!({"clusterIP": "10.96.0.20", "portalIP": "10.96.0.21", "ports": [{"port": 80}]}),
        json!({"visibility": "cluster", "createExternalLoadBalancer": true, "ports": [{"port": 80}]}),
    ];
    for spec in refused {
        let answer = client.create_service("a", spec.clone()).await;
        assert!(
            matches!(answer.status, 400 | 422),
            "{spec}: {} {}",
            answer.status,
            answer.text()
        );
    }
    let old = json!({"createExternalLoadBalancer": true, "ports": [{"port": 80}]});
    assert_eq!(
        at(
            &client.create_service("old", old).await.expect(201),
            "spec.type"
        ),
        "LoadBalancer"
    );
}

#[tokio::test]
async fn public_addresses_are_the_status() {
    let server = Server::start(Store::Embedded, &[]).await;
    let client = server.admin();
    client
        .create_service(
            "a",
            json!({"visibility": "loadbalancer", "ports": [{"port": 80}]}),
        )
        .await
        .expect(201);
    let status = json!({"status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}}});
    client
        .patch(&format!("{SERVICES}/a/status"), MERGE, &status)
        .await
        .expect(200);
    let view = client.get(&format!("{OWN}/a")).await.expect(200);
    assert_eq!(at(&view, "status.publicIPs"), &json!(["192.0.2.1"]));
    let status = json!({"status": {"publicIPs": ["192.0.2.2"]}});
    client
        .patch(&format!("{OWN}/a/status"), MERGE, &status)
        .await
        .expect(200);
    let core = client.get(&format!("{SERVICES}/a")).await.expect(200);
    assert_eq!(at(&core, "status.loadBalancer.ingress.0.ip"), "192.0.2.2");
}

#[tokio::test]
async fn a_watch_speaks_the_spelling_of_its_path() {
    let server = Server::start(Store::Embedded, &[]).await;
    let client = server.admin();
    let mut watch = client
        .watch(&format!(
            "{OWN}?watch=1&resourceVersion=0&fieldSelector=metadata.name%3Da"
        ))
        .await;
    client
        .create_service("a", json!({"type": "NodePort", "ports": [{"port": 80}]}))
        .await
        .expect(201);
    let event = watch.next_change().await;
    assert_eq!(at(&event, "object.apiVersion"), "portico.dev/v1");
    assert_eq!(at(&event, "object.spec.visibility"), "public");
}

/// What `kubectl apply` sends when a word is no longer in the file: a null in its place.
#[tokio::test]
async fn public_ips_can_be_removed_from_a_load_balancer_in_both_spellings() {
    let server = Server::start(Store::Embedded, &[]).await;
    let client = server.admin();
    let status = json!({"status": {"loadBalancer": {"ingress": [{"ip": "203.0.113.9"}]}}});
    let remove = json!({"spec": {"publicIPs": null}});
    for (name, form, path) in [
        ("own", MERGE, OWN),
        ("core", MERGE, SERVICES),
        ("strategic", STRATEGIC, SERVICES),
    ] {
        let spec = json!({"visibility": "loadbalancer", "publicIPs": ["192.0.2.7"],
            "ports": [{"port": 80}]});
        client.create_service(name, spec).await.expect(201);
        let status_path = format!("{SERVICES}/{name}/status");
        client.patch(&status_path, MERGE, &status).await.expect(200);
        let core = client.get(&format!("{SERVICES}/{name}")).await.expect(200);
        assert_eq!(at(&core, "spec.externalIPs"), &json!(["192.0.2.7"]));

        let answer = client.patch(&format!("{path}/{name}"), form, &remove).await;
        answer.expect(200);
        let core = client.get(&format!("{SERVICES}/{name}")).await.expect(200);
        assert!(at(&core, "spec.externalIPs").is_null(), "{name}: {core}");
        let ingress = at(&core, "status.loadBalancer.ingress.0.ip");
        assert_eq!(ingress, "203.0.113.9", "{name}");
        // It is gone for good: the same again changes nothing.
        let again = client.patch(&format!("{path}/{name}"), form, &remove).await;
        let again = at(&again.expect(200), "metadata.resourceVersion").clone();
        assert_eq!(again, *at(&core, "metadata.resourceVersion"), "{name}");
    }
}

#[tokio::test]
async fn a_patch_of_something_else_keeps_public_ips() {
    let server = Server::start(Store::Embedded, &[]).await;
    let client = server.admin();
    let spec = json!({"visibility": "loadbalancer", "publicIPs": ["192.0.2.7"],
        "ports": [{"port": 80, "hostPort": 30080}]});
    client.create_service("a", spec).await.expect(201);
    let status = json!({"status": {"loadBalancer": {"ingress": [{"ip": "203.0.113.9"}]}}});
    let path = format!("{SERVICES}/a/status");
    client.patch(&path, MERGE, &status).await.expect(200);
    let label = json!({"metadata": {"labels": {"a": "b"}}});
    for path in [OWN, SERVICES] {
        let path = format!("{path}/a");
        client.patch(&path, MERGE, &label).await.expect(200);
        let core = client.get(&format!("{SERVICES}/a")).await.expect(200);
        assert_eq!(
            at(&core, "spec.externalIPs"),
            &json!(["192.0.2.7"]),
            "{path}"
        );
    }
    // A word that goes takes its core field along, in ports as well.
    let cluster = json!({"spec": {"visibility": null, "ports": [{"port": 80, "hostPort": null}]}});
    let path = format!("{SERVICES}/a");
    let patched = client.patch(&path, STRATEGIC, &cluster).await.expect(200);
    assert_eq!(at(&patched, "spec.type"), "ClusterIP");
    assert!(at(&patched, "spec.ports.0.nodePort").is_null(), "{patched}");
}

#[tokio::test]
async fn errors_about_a_host_port_name_it() {
    let server = Server::start(Store::Embedded, &[]).await;
    let client = server.admin();
    let public = |port: &str, number: u16| {
        let mut ports = json!([{"port": 80}]);
        ports[0][port] = number.into();
        json!({"visibility": "public", "ports": ports})
    };
    let taken = public("hostPort", 30080);
    client.create_service("taken", taken).await.expect(201);
    for (word, number) in [
        ("hostPort", 80),
        ("hostPort", 30080),
        ("nodePort", 80),
        ("nodePort", 30080),
    ] {
        let answer = client.create_service("a", public(word, number)).await;
        let error = answer.expect(422);
        let field = format!("spec.ports[0].{word}");
        assert!(text(&error, "message").contains(&field), "{error}");
        assert_eq!(at(&error, "details.causes.0.field"), field.as_str());
    }
    let out_of_range = json!({"spec": {"ports": [{"port": 80, "hostPort": 80}]}});
    let path = format!("{SERVICES}/taken");
    let error = client.patch(&path, STRATEGIC, &out_of_range).await;
    let error = error.expect(422);
    assert!(
        text(&error, "message").contains("spec.ports[0].hostPort"),
        "{error}"
    );
}

/// The document of public services POSTs to the name of the Service, and the controller its status.
#[tokio::test]
async fn a_post_to_an_object_says_what_to_write() {
    let server = Server::start(Store::Embedded, &[]).await;
    let client = server.admin();
    let service = json!({"apiVersion": "v1", "kind": "Service",
        "spec": {"visibility": "public", "ports": [{"port": 80, "hostPort": 30080}]}});
    let answer = client.post(&format!("{SERVICES}/bar"), &service).await;
    let error = answer.expect(405);
    let advice = "to create the Service, POST it to namespaces/default/services with \"bar\" in \
                  metadata.name; to replace it, PUT it to namespaces/default/services/bar; to \
                  write its status, PUT or PATCH namespaces/default/services/bar/status";
    assert_eq!(at(&error, "details.causes.0.message"), advice);
}

/// No controller runs here: without a word, `kubectl delete` would wait and nobody know for what.
#[tokio::test]
async fn a_service_that_waits_for_its_controller_says_so() {
    let server = Server::start(Store::Embedded, &[]).await;
    let client = server.admin();
    let service = json!({"apiVersion": "v1", "kind": "Service",
        "metadata": {"name": "a",
            "finalizers": ["service.kubernetes.io/load-balancer-cleanup", "portico.dev/metal"]},
        "spec": {"type": "LoadBalancer", "ports": [{"port": 80}]}});
    client.post(SERVICES, &service).await.expect(201);
    let path = format!("{SERVICES}/a");
    client.delete(&path).await.expect(200);
    let waiting = client.get(&path).await.expect(200);
    assert_eq!(at(&waiting, "status.conditions.0.type"), "Deleting");
    let message = text(&waiting, "status.conditions.0.message");
    assert!(message.contains("portico.dev/metal"), "{waiting}");
    let released = json!({"metadata": {"finalizers": []}});
    client.patch(&path, MERGE, &released).await.expect(200);
    client.get(&path).await.expect(404);
}
