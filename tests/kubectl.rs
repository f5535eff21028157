//! A real kubectl does its work: from `$KUBECTL`, or the one on PATH.
//!
//! What an old kubectl cannot do is skipped, and the output says so.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test may panic and print"
)]

mod common;
#[path = "kubectl/runner.rs"]
mod runner;

use std::fs;

use common::{at, eventually, text};
use runner::cluster;
use serde_json::{Value, json};

const WEB: &str = "\
apiVersion: v1
kind: Service
metadata:
  name: web
  labels: {tier: front}
spec:
  selector: {app: web}
  ports:
  - {name: http, port: 80, targetPort: 8080}
";

/// What `kubectl create service` sends is protobuf.
#[tokio::test]
async fn create_service_of_every_type() {
    let cluster = cluster().await;
    let kubectl = &cluster.kubectl;
    let clusterip = kubectl.ok(&[
        "create",
        "service",
        "clusterip",
        "c",
        "--tcp=80:8080",
        "--tcp=443:8443",
    ]);
    assert_eq!(clusterip.trim(), "service/c created");
    kubectl.ok(&["create", "service", "clusterip", "h", "--clusterip=None"]);
    kubectl.ok(&[
        "create",
        "service",
        "nodeport",
        "n",
        "--tcp=80",
        "--node-port=30080",
    ]);
    kubectl.ok(&["create", "service", "loadbalancer", "l", "--tcp=53:5353"]);
    kubectl.ok(&[
        "create",
        "service",
        "externalname",
        "e",
        "--external-name=example.com",
    ]);

    let c = kubectl.json(&["get", "service", "c"]);
    assert_eq!(at(&c, "spec.type"), "ClusterIP");
    assert_eq!(at(&c, "spec.selector"), &json!({"app": "c"}));
    assert_eq!(
        at(&c, "spec.ports"),
        &json!([
            {"name": "80-8080", "port": 80, "protocol": "TCP", "targetPort": 8080},
            {"name": "443-8443", "port": 443, "protocol": "TCP", "targetPort": 8443},
        ])
    );
    assert!(text(&c, "spec.clusterIP").starts_with("10.96."), "{c}");
    assert_eq!(
        at(&kubectl.json(&["get", "service", "h"]), "spec.clusterIP"),
        "None"
    );
    let n = kubectl.json(&["get", "service", "n"]);
    assert_eq!(at(&n, "spec.ports.0.nodePort"), 30080);
    let l = kubectl.json(&["get", "service", "l"]);
    assert!(
        at(&l, "spec.ports.0.nodePort").as_u64().unwrap() >= 30000,
        "{l}"
    );
    assert_eq!(at(&l, "spec.allocateLoadBalancerNodePorts"), true);
    assert_eq!(
        at(&kubectl.json(&["get", "service", "e"]), "spec.externalName"),
        "example.com"
    );

    let taken = kubectl.fails(&[
        "create",
        "service",
        "nodeport",
        "m",
        "--tcp=80",
        "--node-port=30080",
    ]);
    assert!(
        taken.contains("provided port is already allocated"),
        "{taken}"
    );
    let exists = kubectl.fails(&["create", "service", "clusterip", "c", "--tcp=80"]);
    assert!(
        exists.contains(r#"services "c" already exists"#),
        "{exists}"
    );
    kubectl.ok(&["create", "namespace", "team"]);
    assert_eq!(
        kubectl
            .ok(&["get", "namespace", "team", "-o", "name"])
            .trim(),
        "namespace/team"
    );
}

#[tokio::test]
async fn get_in_every_format() {
    let cluster = cluster().await;
    let kubectl = &cluster.kubectl;
    kubectl.input(&["create", "-f", "-"], WEB);
    let plain = kubectl.ok(&["get", "services"]);
    assert_columns(&plain, "NAME TYPE CLUSTER-IP EXTERNAL-IP PORT(S) AGE");
    assert!(
        plain
            .lines()
            .any(|line| line.starts_with("web ") && line.contains("80/TCP")),
        "{plain}"
    );
    let wide = kubectl.ok(&["get", "svc", "web", "-o", "wide"]);
    assert_columns(
        &wide,
        "NAME TYPE CLUSTER-IP EXTERNAL-IP PORT(S) AGE SELECTOR",
    );
    assert!(wide.contains("app=web"), "{wide}");
    assert_eq!(
        kubectl.ok(&["get", "service/web", "-o", "name"]).trim(),
        "service/web"
    );
    let yaml = kubectl.ok(&["get", "service", "web", "-o", "yaml"]);
    assert!(
        yaml.starts_with("apiVersion: v1\nkind: Service\n") && yaml.contains("targetPort: 8080"),
        "{yaml}"
    );
    let json = kubectl.json(&["get", "service", "web"]);
    assert_eq!(at(&json, "metadata.labels.tier"), "front");
    assert_eq!(
        kubectl.ok(&[
            "get",
            "svc",
            "web",
            "-o",
            "jsonpath={.spec.ports[0].targetPort}"
        ]),
        "8080"
    );
    let list = kubectl.json(&["get", "services", "-A"]);
    assert_eq!(list["kind"], "List");
    let names: Vec<_> = common::items(&list)
        .iter()
        .map(|item| text(item, "metadata.name"))
        .collect();
    assert_eq!(names, ["kubernetes", "web"]);
    assert_eq!(
        kubectl
            .ok(&["get", "svc", "-l", "tier=front", "-o", "name"])
            .trim(),
        "service/web"
    );
    assert_eq!(
        kubectl
            .ok(&["get", "svc", "-l", "tier!=front,!nothing", "-o", "name"])
            .trim(),
        "service/kubernetes"
    );
    assert_eq!(
        kubectl
            .ok(&[
                "get",
                "svc",
                "--field-selector=metadata.name=web",
                "-o",
                "name"
            ])
            .trim(),
        "service/web"
    );
    assert_eq!(
        kubectl
            .ok(&["get", "svc", "--chunk-size=1", "-o", "name"])
            .lines()
            .count(),
        2
    );
    let sorted = kubectl.ok(&["get", "svc", "--sort-by=.metadata.name", "--no-headers"]);
    assert!(sorted.starts_with("kubernetes"), "{sorted}");
    let columns = kubectl.ok(&[
        "get",
        "svc",
        "web",
        "-o",
        "custom-columns=N:.metadata.name,T:.spec.type",
    ]);
    assert_columns(&columns, "N T");
    assert!(
        kubectl
            .fails(&["get", "svc", "nothing"])
            .contains(r#"services "nothing" not found"#)
    );
    assert!(
        kubectl
            .fails(&["get", "nonsense"])
            .contains("doesn't have a resource type")
    );
    kubectl.ok(&[
        "get",
        "all,nodes,namespaces,endpoints,endpointslices,leases,events",
        "-A",
    ]);
}

fn assert_columns(table: &str, columns: &str) {
    let header: Vec<_> = table
        .lines()
        .next()
        .unwrap_or_default()
        .split_whitespace()
        .collect();
    assert_eq!(header.join(" "), columns, "{table}");
}

#[tokio::test]
async fn apply_on_the_client_side() {
    let cluster = cluster().await;
    let kubectl = &cluster.kubectl;
    assert!(
        kubectl
            .input(&["apply", "-f", "-"], WEB)
            .contains("service/web created")
    );
    assert!(
        kubectl
            .input(&["apply", "-f", "-"], WEB)
            .contains("service/web unchanged")
    );
    let address = text(&kubectl.json(&["get", "svc", "web"]), "spec.clusterIP").to_owned();

    let changed = WEB.replace("port: 80,", "port: 81,") + "  sessionAffinity: ClientIP\n";
    assert!(
        kubectl
            .input(&["apply", "-f", "-"], &changed)
            .contains("service/web configured")
    );
    let web = kubectl.json(&["get", "svc", "web"]);
    assert_eq!(
        at(&web, "spec.ports"),
        &json!([{"name": "http", "port": 81, "protocol": "TCP", "targetPort": 8080}])
    );
    assert_eq!(
        at(&web, "spec.sessionAffinityConfig.clientIP.timeoutSeconds"),
        10800
    );
    assert_eq!(text(&web, "spec.clusterIP"), address);

    // What was applied once and is left out now goes away; what others added stays.
    kubectl.ok(&["label", "svc", "web", "other=mine"]);
    let pruned = WEB.replace("{tier: front}", "{app: web}");
    assert!(
        kubectl
            .input(&["apply", "-f", "-"], &pruned)
            .contains("configured")
    );
    let web = kubectl.json(&["get", "svc", "web"]);
    assert_eq!(
        at(&web, "metadata.labels"),
        &json!({"app": "web", "other": "mine"})
    );
    assert_eq!(at(&web, "spec.sessionAffinity"), "None");
    assert!(
        kubectl
            .ok(&["apply", "view-last-applied", "svc", "web"])
            .contains("targetPort: 8080")
    );

    let two = format!("{WEB}---\n{}", WEB.replace("name: web", "name: shop"));
    let output = kubectl.input(&["apply", "-f", "-"], &two);
    assert!(
        output.contains("service/web configured") && output.contains("service/shop created"),
        "{output}"
    );
    let only = if kubectl.minor < 26 {
        "--prune-whitelist=core/v1/Service"
    } else {
        "--prune-allowlist=core/v1/Service"
    };
    let output = kubectl.input(
        &[
            "apply",
            "--prune",
            only,
            "-l",
            "tier=front",
            "-n",
            "default",
            "-f",
            "-",
        ],
        WEB,
    );
    assert!(output.contains("service/shop pruned"), "{output}");
}

/// What was applied in one spelling is read, and applied again as it was read, in the other.
#[tokio::test]
async fn apply_what_get_shows_in_the_other_spelling() {
    let cluster = cluster().await;
    let kubectl = &cluster.kubectl;
    for (name, more) in [
        ("narrow", "visibility: namespace"),
        ("open", "visibility: public"),
        (
            "balanced",
            "visibility: loadbalancer, publicIPs: [198.51.100.60]",
        ),
    ] {
        let file = format!(
            "apiVersion: portico.dev/v1\nkind: Service\nmetadata: {{name: {name}}}\n\
             spec: {{{more}, selector: {{app: web}}, ports: [{{port: 80, targetPort: 8080}}]}}\n"
        );
        kubectl.input(&["apply", "-f", "-"], &file);
        let get = ["get", "service", name, "-o", "yaml"];
        let before = kubectl.json(&["get", "service", name]);
        kubectl.input(&["apply", "-f", "-"], &kubectl.ok(&get));
        let after = kubectl.json(&["get", "service", name]);
        assert_eq!(at(&after, "spec"), at(&before, "spec"), "{name}");
        let word = |service: &Value| {
            let annotations = at(service, "metadata.annotations");
            annotations.get("portico.dev/visibility").cloned()
        };
        assert_eq!(word(&after), word(&before), "{name}");
    }
}

#[tokio::test]
async fn apply_on_the_server_side() {
    let cluster = cluster().await;
    let kubectl = &cluster.kubectl;
    if kubectl.older_than(20, "apply --server-side of Services is sound") {
        return;
    }
    let apply = ["apply", "--server-side", "-f", "-"];
    assert!(kubectl.input(&apply, WEB).contains("serverside-applied"));
    let web = kubectl
        .json(&["get", "svc", "web", "--show-managed-fields"].map(|word| kubectl.known_flag(word)));
    assert_eq!(at(&web, "metadata.managedFields.0.manager"), "kubectl");
    assert_eq!(at(&web, "metadata.managedFields.0.operation"), "Apply");
    assert!(
        at(&web, "metadata.annotations").is_null(),
        "no last-applied annotation: {web}"
    );
    kubectl.input(&apply, WEB);

    let other = WEB.replace("targetPort: 8080", "targetPort: 9090");
    let conflict = kubectl.input_fails(
        &["apply", "--server-side", "--field-manager=other", "-f", "-"],
        &other,
    );
    assert!(
        conflict.contains("conflict with \"kubectl\"") && conflict.contains("targetPort"),
        "{conflict}"
    );
    let force = [
        "apply",
        "--server-side",
        "--field-manager=other",
        "--force-conflicts",
        "-f",
        "-",
    ];
    kubectl.input(&force, &other);
    assert_eq!(
        at(
            &kubectl.json(&["get", "svc", "web"]),
            "spec.ports.0.targetPort"
        ),
        9090
    );

    // The first manager gave up the label by no longer applying it; the other still owns it.
    kubectl.input(&force, &other.replace("  labels: {tier: front}\n", ""));
    assert_eq!(
        at(
            &kubectl.json(&["get", "svc", "web"]),
            "metadata.labels.tier"
        ),
        "front"
    );
    let mine = other.replace("  labels: {tier: front}\n", "");
    kubectl.input(
        &["apply", "--server-side", "--force-conflicts", "-f", "-"],
        &mine,
    );
    assert!(at(&kubectl.json(&["get", "svc", "web"]), "metadata.labels").is_null());
}

#[tokio::test]
async fn edit_patch_and_replace() {
    let cluster = cluster().await;
    let kubectl = &cluster.kubectl;
    kubectl.input(&["create", "-f", "-"], WEB);
    let editor = cluster.script(
        "editor",
        "sed -i 's/targetPort: 8080/targetPort: 8081/' \"$1\"",
    );
    assert!(
        kubectl
            .env("KUBE_EDITOR", &editor)
            .ok(&["edit", "service", "web"])
            .contains("service/web edited")
    );
    let target = [
        "get",
        "svc",
        "web",
        "-o",
        "jsonpath={.spec.ports[0].targetPort}",
    ];
    assert_eq!(kubectl.ok(&target), "8081");

    let patches = [
        (
            "strategic",
            r#"{"spec":{"ports":[{"port":80,"targetPort":8082}]}}"#,
            "8082",
        ),
        (
            "merge",
            r#"{"spec":{"ports":[{"name":"http","port":80,"targetPort":8083}]}}"#,
            "8083",
        ),
        (
            "json",
            r#"[{"op":"test","path":"/spec/ports/0/port","value":80},{"op":"replace","path":"/spec/ports/0/targetPort","value":8084}]"#,
            "8084",
        ),
    ];
    for (kind, patch, expected) in patches {
        let output = kubectl.ok(&["patch", "svc", "web", "--type", kind, "-p", patch]);
        assert_eq!(output.trim(), "service/web patched");
        assert_eq!(kubectl.ok(&target), expected, "{kind}");
    }
    assert!(
        kubectl
            .ok(&["patch", "svc", "web", "-p", "{}"])
            .contains("patched (no change)")
    );
    let invalid = kubectl.fails(&[
        "patch",
        "svc",
        "web",
        "-p",
        r#"{"spec":{"ports":[{"port":80,"targetPort":70000}]}}"#,
    ]);
    assert!(invalid.contains("spec.ports[0].targetPort"), "{invalid}");
    let failing = r#"[{"op":"test","path":"/spec/type","value":"NodePort"}]"#;
    kubectl.fails(&["patch", "svc", "web", "--type=json", "-p", failing]);
    if !kubectl.older_than(24, "patch --subresource") {
        let status = r#"{"status":{"loadBalancer":{"ingress":[{"ip":"192.0.2.1"}]}}}"#;
        kubectl.ok(&[
            "patch",
            "svc",
            "web",
            "--type=merge",
            "-p",
            r#"{"spec":{"type":"LoadBalancer"}}"#,
        ]);
        kubectl.ok(&[
            "patch",
            "svc",
            "web",
            "--subresource=status",
            "--type=merge",
            "-p",
            status,
        ]);
        let table = kubectl.ok(&["get", "svc", "web"]);
        assert!(table.contains("192.0.2.1"), "{table}");
    }

    let mut web = kubectl.json(&["get", "svc", "web"]);
    web["spec"]["selector"] = json!({"app": "replaced"});
    assert!(
        kubectl
            .input(&["replace", "-f", "-"], &web.to_string())
            .contains("service/web replaced")
    );
    let stale = kubectl.input_fails(&["replace", "-f", "-"], &web.to_string());
    assert!(stale.contains("the object has been modified"), "{stale}");
    assert!(
        kubectl
            .input(&["replace", "--force", "-f", "-"], WEB)
            .contains("service/web replaced")
    );
    assert_eq!(
        at(&kubectl.json(&["get", "svc", "web"]), "spec.selector.app"),
        "web"
    );
}

#[tokio::test]
async fn label_annotate_diff_and_dry_run() {
    let cluster = cluster().await;
    let kubectl = &cluster.kubectl;
    kubectl.input(&["apply", "-f", "-"], WEB);
    assert!(
        kubectl
            .ok(&["label", "svc", "web", "a=b"])
            .contains("service/web labeled")
    );
    let refused = kubectl.fails(&["label", "svc", "web", "a=c"]);
    assert!(refused.contains("already has a value"), "{refused}");
    kubectl.ok(&["label", "svc", "web", "a=c", "--overwrite"]);
    kubectl.ok(&["annotate", "svc", "web", "note=some text"]);
    let web = kubectl.json(&["get", "svc", "web"]);
    assert_eq!(
        at(&web, "metadata.labels"),
        &json!({"tier": "front", "a": "c"})
    );
    assert_eq!(at(&web, "metadata.annotations.note"), "some text");
    kubectl.ok(&["label", "svc", "web", "a-"]);
    kubectl.ok(&["annotate", "svc", "web", "note-"]);
    assert!(at(&kubectl.json(&["get", "svc", "web"]), "metadata.labels.a").is_null());

    let (code, same, _) = kubectl.run(&["diff", "-f", "-"], Some(WEB));
    assert_eq!((code, same.as_str()), (0, ""));
    let (code, diff, errors) =
        kubectl.run(&["diff", "-f", "-"], Some(&WEB.replace("8080", "8085")));
    assert_eq!(code, 1, "{errors}");
    assert!(
        diff.contains("-    targetPort: 8080") && diff.contains("+    targetPort: 8085"),
        "{diff}"
    );

    let dry = WEB.replace("name: web", "name: dry");
    assert!(
        kubectl
            .input(&["create", "--dry-run=server", "-f", "-"], &dry)
            .contains("(server dry run)")
    );
    assert!(kubectl.fails(&["get", "svc", "dry"]).contains("not found"));
    kubectl.ok(&["delete", "svc", "web", "--dry-run=server"]);
    kubectl.ok(&["get", "svc", "web"]);

    if !kubectl.older_than(25, "--validate=strict") {
        let wrong = WEB.replace("  selector:", "  selectors: {}\n  selector:");
        let strict = kubectl.input_fails(&["apply", "--validate=strict", "-f", "-"], &wrong);
        assert!(
            strict.contains("unknown field \"spec.selectors\""),
            "{strict}"
        );
        let (code, _, warning) =
            kubectl.run(&["apply", "--validate=warn", "-f", "-"], Some(&wrong));
        assert_eq!(code, 0, "{warning}");
        assert!(
            warning.contains("unknown field \"spec.selectors\""),
            "{warning}"
        );
    }
    let invalid = kubectl.input_fails(
        &["create", "-f", "-"],
        &WEB.replace("port: 80,", "port: 70000,"),
    );
    assert!(invalid.contains("spec.ports[0].port"), "{invalid}");
}

#[tokio::test]
async fn describe() {
    let cluster = cluster().await;
    let (kubectl, admin) = (&cluster.kubectl, cluster.server.admin());
    kubectl.input(&["create", "-f", "-"], WEB);
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-a"}});
    admin.post("/api/v1/nodes", &node).await.expect(201);
    let slice = json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {"name": "web-1", "labels": {"kubernetes.io/service-name": "web"}},
        "endpoints": [{"addresses": ["10.1.2.3"], "conditions": {"ready": true}, "nodeName": "node-a"}],
        "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
    });
    admin
        .post(
            "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices",
            &slice,
        )
        .await
        .expect(201);
    kubectl.ok(&["run", "one", "--image=web", "--labels=app=other"]);

    let service = kubectl.ok(&["describe", "service", "web"]);
    for expected in [
        "Name:",
        "tier=front",
        "app=web",
        "ClusterIP",
        "80/TCP",
        "8080/TCP",
    ] {
        assert!(service.contains(expected), "{expected} in {service}");
    }
    if !kubectl.older_than(31, "describe service reads EndpointSlices") {
        assert!(service.contains("10.1.2.3:8080"), "{service}");
    }
    let node = kubectl.ok(&["describe", "node", "node-a"]);
    assert!(
        node.contains("Name:               node-a") && node.contains("Non-terminated Pods:"),
        "{node}"
    );
    let pod = kubectl.ok(&["describe", "pod", "one"]);
    assert!(pod.contains("app=other") && pod.contains("Image:"), "{pod}");
    if !kubectl.older_than(21, "describe endpointslice of v1") {
        let slice = kubectl.ok(&["describe", "endpointslice", "web-1"]);
        assert!(
            slice.contains("AddressType:  IPv4") && slice.contains("10.1.2.3"),
            "{slice}"
        );
    }
    kubectl.ok(&["describe", "namespace", "default"]);
}

#[tokio::test]
async fn explain() {
    let cluster = cluster().await;
    let kubectl = &cluster.kubectl;
    let service = kubectl.ok(&["explain", "service"]);
    assert!(
        service.contains("KIND:") && service.contains("Service") && service.contains("spec"),
        "{service}"
    );
    let ports = kubectl.ok(&["explain", "service.spec.ports"]);
    assert!(
        ports.contains("nodePort") && ports.contains("targetPort"),
        "{ports}"
    );
    let recursive = kubectl.ok(&["explain", "services", "--recursive"]);
    for field in [
        "allocateLoadBalancerNodePorts",
        "clientIP",
        "timeoutSeconds",
        "ipMode",
    ] {
        assert!(recursive.contains(field), "{field} in {recursive}");
    }
    let slice = kubectl.ok(&["explain", "endpointslices.endpoints"]);
    assert!(
        slice.contains("conditions") && slice.contains("zone"),
        "{slice}"
    );
    kubectl.ok(&["explain", "node.status.addresses"]);
    kubectl.ok(&["explain", "lease.spec"]);
    assert!(
        kubectl
            .fails(&["explain", "service.spec.nothing"])
            .contains("does not exist")
    );
}

#[tokio::test]
async fn delete_and_wait() {
    let cluster = cluster().await;
    let kubectl = &cluster.kubectl;
    kubectl.ok(&["create", "namespace", "team"]);
    let kubectl = &kubectl.in_namespace("team");
    for name in ["a", "b", "c", "d"] {
        kubectl.ok(&["create", "service", "clusterip", name, "--tcp=80"]);
    }
    assert_eq!(
        kubectl
            .ok(&["delete", "svc", "a"])
            .trim()
            .split(" from ")
            .next(),
        Some("service \"a\" deleted")
    );
    assert!(
        kubectl
            .ok(&["delete", "svc", "-l", "app=b"])
            .contains("service \"b\" deleted")
    );
    let all = kubectl.ok(&["delete", "svc", "--all"]);
    assert!(
        all.contains("\"c\" deleted") && all.contains("\"d\" deleted"),
        "{all}"
    );
    assert!(kubectl.ok(&["get", "svc", "-o", "name"]).is_empty());
    assert!(kubectl.fails(&["delete", "svc", "a"]).contains("not found"));
    kubectl.ok(&["delete", "svc", "a", "--ignore-not-found"]);

    kubectl.input(&["create", "-f", "-"], WEB);
    let patch = r#"{"metadata":{"finalizers":["example.com/hold"]}}"#;
    kubectl.ok(&["patch", "svc", "web", "--type=merge", "-p", patch]);
    kubectl.ok(&["delete", "svc", "web", "--wait=false"]);
    assert!(
        !at(
            &kubectl.json(&["get", "svc", "web"]),
            "metadata.deletionTimestamp"
        )
        .is_null()
    );
    let waiting = kubectl.start(&["wait", "--for=delete", "svc/web", "--timeout=30s"]);
    kubectl.ok(&[
        "patch",
        "svc",
        "web",
        "--type=merge",
        "-p",
        r#"{"metadata":{"finalizers":null}}"#,
    ]);
    let output = waiting.wait_with_output().unwrap();
    let was_gone = String::from_utf8_lossy(&output.stderr).contains("not found"); // before an old kubectl looked
    assert!(output.status.success() || was_gone, "{output:?}");

    if !kubectl.older_than(23, "wait --for=jsonpath") {
        kubectl.ok(&["create", "service", "loadbalancer", "l", "--tcp=80"]);
        let condition = "--for=jsonpath={.status.loadBalancer.ingress[0].ip}=192.0.2.7";
        let waiting = kubectl.start(&["wait", condition, "svc/l", "--timeout=30s"]);
        let status = json!({"status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.7"}]}}});
        let path = "/api/v1/namespaces/team/services/l/status";
        cluster
            .server
            .admin()
            .patch(path, common::client::MERGE, &status)
            .await
            .expect(200);
        let output = waiting.wait_with_output().unwrap();
        assert!(
            String::from_utf8_lossy(&output.stdout).contains("condition met"),
            "{output:?}"
        );
    }
    if !cluster.server.is_rival() {
        kubectl.ok(&["delete", "namespace", "team", "--timeout=30s"]);
        assert!(
            kubectl
                .fails(&["get", "namespace", "team"])
                .contains("not found")
        );
    }
}

#[tokio::test]
async fn watch() {
    let cluster = cluster().await;
    let kubectl = &cluster.kubectl;
    let file = cluster.server.dir().join("watched");
    let mut watching = kubectl.start_into(&["get", "svc", "-w", "-o", "name"], &file);
    let seen = |expected: &'static str| {
        let file = file.clone();
        eventually(expected, move || {
            let seen = fs::read_to_string(&file).unwrap_or_default();
            async move { seen.contains(expected).then_some(()) }
        })
    };
    seen("service/kubernetes").await;
    kubectl.input(&["create", "-f", "-"], WEB);
    seen("service/web").await;
    watching.kill().unwrap();
    watching.wait().unwrap();
}

#[tokio::test]
async fn discovery_and_raw() {
    let cluster = cluster().await;
    let kubectl = &cluster.kubectl;
    let resources = kubectl.ok(&["api-resources"]);
    for line in [
        "services svc v1 true Service",
        "nodes no v1 false Node",
        "endpoints ep v1 true Endpoints",
    ] {
        let found = resources
            .lines()
            .any(|row| row.split_whitespace().collect::<Vec<_>>().join(" ") == line);
        assert!(found || kubectl.minor < 20, "{line} in {resources}");
    }
    assert!(
        resources.contains("endpointslices") && resources.contains("leases"),
        "{resources}"
    );
    let verbs = kubectl.ok(&[
        "api-resources",
        "--namespaced=true",
        "--verbs=list,watch,patch",
        "-o",
        "name",
    ]);
    assert!(
        verbs
            .lines()
            .any(|line| line == "endpointslices.discovery.k8s.io"),
        "{verbs}"
    );
    let versions = kubectl.ok(&["api-versions"]);
    for version in ["v1", "discovery.k8s.io/v1", "coordination.k8s.io/v1"] {
        assert!(
            versions.lines().any(|line| line == version),
            "{version} in {versions}"
        );
    }
    assert!(
        kubectl
            .ok(&["cluster-info"])
            .contains(&format!("https://127.0.0.1:{}", cluster.server.port))
    );
    assert_eq!(kubectl.ok(&["get", "--raw", "/readyz"]).trim(), "ok");
    let raw: Value =
        serde_json::from_str(&kubectl.ok(&["get", "--raw", "/api/v1/namespaces/default/services"]))
            .unwrap();
    assert_eq!(raw["kind"], "ServiceList");
    let (_, version, _) = kubectl.run(&["version", "-o", "json"], None); // fails only about the skew of versions
    let version: Value = serde_json::from_str(&version).unwrap();
    assert_eq!(at(&version, "serverVersion.major"), "1");
    assert!(
        kubectl
            .ok(&["config", "view", "--minify"])
            .contains("server: https://127.0.0.1")
    );
    assert!(!kubectl.ok(&["config", "current-context"]).trim().is_empty());
}

#[tokio::test]
async fn who_may_do_what() {
    let cluster = cluster().await;
    let kubectl = &cluster.kubectl;
    assert_eq!(
        kubectl.ok(&["auth", "can-i", "create", "services"]).trim(),
        "yes"
    );
    assert_eq!(
        kubectl
            .ok(&["auth", "can-i", "*", "*", "--all-namespaces"])
            .trim(),
        "yes"
    );
    let (code, answer, _) = kubectl.run(
        &["auth", "can-i", "create", "services", "--as=nobody"],
        None,
    );
    assert_eq!((code, answer.lines().next()), (1, Some("no")));
    let forbidden = kubectl.fails(&["get", "services", "--as=nobody"]);
    let expected = r#"services is forbidden: User "nobody" cannot list resource "services" in API group "" in the namespace "default""#;
    assert!(forbidden.contains(expected), "{forbidden}");
    kubectl.ok(&[
        "get",
        "services",
        "--as=nobody",
        "--as-group=system:masters",
    ]);
    assert!(kubectl.ok(&["auth", "can-i", "--list"]).contains("*.*"));

    kubectl.ok(&["create", "serviceaccount", "robot"]);
    if !kubectl.older_than(24, "create token") {
        let token = kubectl.ok(&["create", "token", "robot", "--duration=1h"]);
        assert_eq!(token.trim().split('.').count(), 3, "a JWT: {token}");
        let bearer = format!("--token={}", token.trim());
        let robot = kubectl.fails(&[
            "get",
            "services",
            &bearer,
            "--kubeconfig",
            &cluster.anonymous(),
        ]);
        assert!(
            robot.contains(r#"User "system:serviceaccount:default:robot" cannot list"#),
            "{robot}"
        );
    }
    if !kubectl.older_than(28, "auth whoami is stable") {
        let me = kubectl.ok(&["auth", "whoami", "-o", "jsonpath={.status.userInfo.groups}"]);
        assert!(me.contains("system:masters"), "{me}");
    }
}

#[tokio::test]
async fn pods_and_events() {
    let cluster = cluster().await;
    let kubectl = &cluster.kubectl;
    assert_eq!(
        kubectl
            .ok(&[
                "run",
                "one",
                "--image=web",
                "--port=8080",
                "--labels=app=web"
            ])
            .trim(),
        "pod/one created"
    );
    let pods = kubectl.ok(&["get", "pods"]);
    assert_columns(&pods, "NAME READY STATUS RESTARTS AGE");
    assert!(pods.contains("Pending"), "{pods}");
    assert_eq!(
        kubectl
            .ok(&["get", "pod", "-l", "app=web", "-o", "name"])
            .trim(),
        "pod/one"
    );
    let uid = kubectl.ok(&["get", "pod", "one", "-o", "jsonpath={.metadata.uid}"]);
    let event = json!({
        "apiVersion": "v1", "kind": "Event", "metadata": {"name": "one.1", "namespace": "default"},
        "involvedObject": {"kind": "Pod", "name": "one", "namespace": "default", "apiVersion": "v1", "uid": uid},
        "reason": "Tested", "message": "it was tested", "type": "Normal", "count": 1,
        "source": {"component": "test"}, "firstTimestamp": "2026-01-01T00:00:00Z", "lastTimestamp": "2026-01-01T00:00:00Z",
    });
    cluster
        .server
        .admin()
        .post("/api/v1/namespaces/default/events", &event)
        .await
        .expect(201);
    assert!(kubectl.ok(&["get", "events"]).contains("it was tested"));
    if !kubectl.older_than(24, "kubectl events") {
        assert!(
            kubectl
                .ok(&["events", "--for", "pod/one"])
                .contains("it was tested")
        );
    }
    assert!(
        kubectl
            .ok(&["describe", "pod", "one"])
            .contains("it was tested")
    );
    kubectl.ok(&[
        "delete",
        "pod",
        "one",
        "--timeout=20s",
        "--grace-period=0",
        "--force",
    ]);
}
