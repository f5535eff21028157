//! The chart, rendered by the real Helm for clusters of several kinds: every object is of its kind
//! and fits the others, Portico's own API server takes those it knows, and the program takes the
//! arguments. The plain manifests are what the chart renders.

use crate::common::{Server, Store, at, text};
use crate::objects::{collection, documents, title};
use crate::{deploy, kinds, objects};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// With this set what is generated is written instead of compared.
const WRITE: &str = "PORTICO_WRITE_DOCS";
const NAMESPACE: &str = "kube-system";
/// The label that tells parts of Portico apart.
const NAME: &str = "app.kubernetes.io/name";

/// In the environment that `make deps` makes.
fn helm(namespace: &str, arguments: &[&str]) -> Output {
    let target = Path::new(env!("CARGO_BIN_EXE_portico"))
        .ancestors()
        .nth(2)
        .unwrap();
    let helm = target.join("python/bin/helm");
    assert!(
        helm.exists(),
        "{} is missing: run `make deps`",
        helm.display()
    );
    let home = tempfile::tempdir().unwrap();
    let mut command = Command::new(helm);
    // It asks no cluster, and leaves nothing in anybody's home.
    command
        .env("HOME", home.path())
        .env_remove("KUBECONFIG")
        .args(arguments)
        .args(["--namespace", namespace]);
    command.output().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout)
}

/// What the chart makes of a file of values.
fn render(values: &Path) -> String {
    let chart = deploy().join("chart");
    let (chart, values_file) = (chart.to_str().unwrap(), values.to_str().unwrap());
    let output = helm(
        NAMESPACE,
        &[
            "template",
            "portico",
            chart,
            "--include-crds",
            "--values",
            values_file,
        ],
    );
    assert!(
        output.status.success(),
        "{}: {}",
        values.display(),
        said(&output)
    );
    String::from_utf8(output.stdout).unwrap()
}

/// Files of values, for clusters of several kinds.
fn cases() -> Vec<PathBuf> {
    let files = fs::read_dir(deploy().join("chart/ci"))
        .unwrap()
        .map(|file| file.unwrap().path());
    let mut files: Vec<PathBuf> = files
        .chain([deploy().join("manifests/values.yaml")])
        .collect();
    files.sort();
    files
}

fn case(name: &str) -> Vec<Value> {
    documents(&render(
        &deploy().join(format!("chart/ci/{name}-values.yaml")),
    ))
}

fn find<'a>(objects: &'a [Value], kind: &str, name: &str) -> &'a Value {
    let found = objects
        .iter()
        .find(|object| text(object, "kind") == kind && text(object, "metadata.name") == name);
    found.unwrap_or_else(|| panic!("there is no {kind} {name}"))
}

fn list<'a>(value: &'a Value, path: &str) -> &'a [Value] {
    at(value, path).as_array().map_or(&[], Vec::as_slice)
}

/// The pods that an object makes.
fn pod(object: &Value) -> Option<&Value> {
    let pod = at(object, "spec.template");
    (!pod.is_null()).then_some(pod)
}

#[test]
fn helm_finds_nothing_to_criticise() {
    for values in cases() {
        let chart = deploy().join("chart");
        let output = helm(
            NAMESPACE,
            &[
                "lint",
                "--strict",
                chart.to_str().unwrap(),
                "--values",
                values.to_str().unwrap(),
            ],
        );
        assert!(
            output.status.success(),
            "{}: {}",
            values.display(),
            said(&output)
        );
    }
}

#[test]
fn mistakes_are_refused_with_the_way_out() {
    let chart = deploy().join("chart").display().to_string();
    let least = "--set=apiServer.host=192.0.2.5";
    for (namespace, flags, expected) in [
        (NAMESPACE, &[][..], "apiServer.host is needed"),
        (
            NAMESPACE,
            &[least, "--set=node.proxyMode=userspace"],
            "node.proxyMode must be one of",
        ),
        (
            NAMESPACE,
            &[least, "--set=nodes.enabled=false"],
            "Additional property nodes is not allowed",
        ),
        (
            NAMESPACE,
            &[least, "--set=dns.enabled=true"],
            "dns.nameservers is needed",
        ),
        (
            NAMESPACE,
            &[least, "--set=cleanup.enabled=true"],
            "cleanup.enabled needs node.enabled=false",
        ),
        ("portico", &[least], "install with --namespace kube-system"),
    ] {
        let output = helm(
            namespace,
            &[&["template", "portico", &chart], flags].concat(),
        );
        assert!(!output.status.success(), "{flags:?} was taken");
        assert!(
            said(&output).contains(expected),
            "{flags:?}: {}",
            said(&output)
        );
    }
}

#[test]
fn every_object_is_of_its_kind() {
    let mut seen = BTreeSet::new();
    for values in cases() {
        let objects = documents(&render(&values));
        assert!(
            objects.len() > 5,
            "{} renders {} objects",
            values.display(),
            objects.len()
        );
        let problems: Vec<String> = objects.iter().filter_map(kinds::problem).collect();
        assert!(
            problems.is_empty(),
            "{}: {}",
            values.display(),
            problems.join("\n")
        );
        let titles: Vec<String> = objects.iter().map(title).collect();
        let once: BTreeSet<&String> = titles.iter().collect();
        assert_eq!(
            once.len(),
            titles.len(),
            "{}: something is there twice: {titles:?}",
            values.display()
        );
        seen.extend(objects.iter().map(|object| text(object, "kind").to_owned()));
    }
    for kind in [
        "DaemonSet",
        "Deployment",
        "PodDisruptionBudget",
        "PodMonitor",
        "PrometheusRule",
        "ConfigMap",
        "Service",
    ] {
        assert!(seen.contains(kind), "no file of values makes a {kind}");
    }
}

/// Names that point to something in the same pod or the same chart do.
#[test]
fn objects_fit_each_other() {
    for values in cases() {
        let objects = documents(&render(&values));
        let mut problems = Vec::new();
        for (object, pod) in objects
            .iter()
            .filter_map(|object| Some((object, pod(object)?)))
        {
            problems.extend(
                misfits(pod)
                    .into_iter()
                    .map(|problem| format!("{}: {problem}", title(object))),
            );
            let labels = at(pod, "metadata.labels");
            let selected = at(object, "spec.selector.matchLabels").as_object();
            // A Job makes its own selector.
            for (key, value) in selected
                .into_iter()
                .flatten()
                .filter(|(key, value)| labels[key.as_str()] != **value)
            {
                problems.push(format!(
                    "{} selects {key}={value}, which its pods have not",
                    title(object)
                ));
            }
            // A pod that asks the API server nothing has no token, so no account of its own.
            if at(pod, "spec.automountServiceAccountToken") == &json!(false) {
                continue;
            }
            let account = text(pod, "spec.serviceAccountName");
            find(&objects, "ServiceAccount", account);
            // What a visitor sees is asked with the visitor's token.
            if account == "portico-dashboard" {
                continue;
            }
            let bound = |object: &Value| {
                list(object, "subjects")
                    .iter()
                    .any(|subject| text(subject, "name") == account)
            };
            assert!(objects.iter().any(bound), "{account} has no rights");
        }
        for monitor in objects
            .iter()
            .filter(|object| text(object, "kind") == "PodMonitor")
        {
            let name = &at(monitor, "spec.selector.matchLabels")[NAME];
            let scraped = |object: &Value| {
                pod(object).is_some_and(|pod| at(pod, "metadata.labels")[NAME] == *name)
            };
            assert!(
                name == "portico-vip" || objects.iter().any(scraped),
                "{name} is nobody"
            );
        }
        assert!(
            problems.is_empty(),
            "{}: {}",
            values.display(),
            problems.join("\n")
        );
    }
}

fn misfits(pod: &Value) -> Vec<String> {
    let names = |items: &[Value], key: &str| -> BTreeSet<String> {
        items
            .iter()
            .map(|item| text(item, key).to_owned())
            .collect()
    };
    let mut problems = Vec::new();
    let volumes = names(list(pod, "spec.volumes"), "name");
    let mut mounted = BTreeSet::new();
    for container in list(pod, "spec.containers")
        .iter()
        .chain(list(pod, "spec.initContainers"))
    {
        mounted.extend(names(list(container, "volumeMounts"), "name"));
        let ports = names(list(container, "ports"), "name");
        for probe in ["livenessProbe", "readinessProbe"] {
            let port = text(container, &format!("{probe}.httpGet.port"));
            if !port.is_empty() && !ports.contains(port) {
                problems.push(format!(
                    "the {probe} asks the port {port}, which is not there"
                ));
            }
        }
        if at(container, "securityContext.readOnlyRootFilesystem") != &json!(true) {
            problems.push(format!(
                "{} may write to its image",
                text(container, "name")
            ));
        }
    }
    if mounted != volumes {
        problems.push(format!("volumes are {volumes:?}, and {mounted:?} are used"));
    }
    problems
}

#[test]
fn nobody_has_more_privileges_than_needed() {
    let objects = case("least");
    let node = find(&objects, "DaemonSet", "portico-node");
    assert_eq!(
        at(
            node,
            "spec.template.spec.containers.0.securityContext.capabilities.add"
        ),
        &json!(["NET_ADMIN", "NET_RAW", "SYS_NICE"])
    );
    assert_eq!(
        at(
            node,
            "spec.template.spec.containers.0.securityContext.privileged"
        ),
        &Value::Null
    );
    let controller = find(&objects, "Deployment", "portico-controller");
    assert_eq!(at(controller, "spec.replicas"), &json!(2));
    assert_eq!(
        at(
            controller,
            "spec.template.spec.securityContext.runAsNonRoot"
        ),
        &json!(true)
    );
    assert_eq!(
        at(
            controller,
            "spec.template.spec.containers.0.securityContext.capabilities.drop"
        ),
        &json!(["ALL"])
    );
    let ipvs = case("ipvs");
    let node = find(&ipvs, "DaemonSet", "portico-node");
    assert_eq!(
        at(
            node,
            "spec.template.spec.containers.0.securityContext.privileged"
        ),
        &json!(true)
    );
    assert_eq!(at(node, "spec.template.spec.initContainers"), &Value::Null);

    // Rights: a cloud's controller has nothing to do with pools, and no controller changes the spec
    // of anything.
    let rules = |objects: &[Value], role: &str| -> String {
        let of = |object: &&Value| {
            text(object, "metadata.name") == role && text(object, "kind").ends_with("Role")
        };
        objects
            .iter()
            .filter(of)
            .map(|role| role["rules"].to_string())
            .collect()
    };
    assert!(rules(&objects, "portico-controller").contains("addressblocks"));
    let cloud = rules(&case("cloud"), "portico-controller");
    for word in [
        "portico.dev",
        "namespaces",
        "secrets",
        "addresspools",
        "\"*\"",
    ] {
        assert!(!cloud.contains(word), "{word} in {cloud}");
    }
    assert!(cloud.contains("services/status") && cloud.contains("leases"));
    assert!(rules(&case("gce"), "portico-controller-gce").contains("ingress-uid"));
}

#[tokio::test]
async fn porticos_own_api_server_takes_what_it_knows() {
    for values in cases() {
        let server = Server::start(Store::Embedded, &[]).await;
        let (mut taken, rendered) = (Vec::new(), documents(&render(&values)));
        let known = [
            "ClusterRole",
            "ClusterRoleBinding",
            "ConfigMap",
            "Role",
            "RoleBinding",
            "Service",
            "ServiceAccount",
        ];
        for object in rendered
            .iter()
            .filter(|object| known.contains(&text(object, "kind")))
        {
            let answer = server.admin().post(&collection(object), object).await;
            assert_eq!(answer.status, 201, "{}: {}", title(object), answer.text());
            taken.push(text(object, "kind").to_owned());
        }
        assert!(taken.len() >= 5, "{}: only {taken:?}", values.display());
    }
    let server = Server::start(Store::Embedded, &[]).await;
    let pod = fs::read_to_string(deploy().join("manifests/static-pods/vip.yaml")).unwrap();
    for object in documents(&pod) {
        assert_eq!(kinds::problem(&object), None);
        server
            .admin()
            .post(&collection(&object), &object)
            .await
            .expect(201);
    }
}

/// The arguments of a container, taken by the program as far as that it would start.
#[test]
fn the_program_takes_the_arguments() {
    let folder = tempfile::tempdir().unwrap();
    let mut programs = BTreeSet::new();
    for values in cases() {
        for pod in documents(&render(&values)).iter().filter_map(pod) {
            for container in list(pod, "spec.containers")
                .iter()
                .chain(list(pod, "spec.initContainers"))
            {
                assert_eq!(container["command"], json!(["portico"]));
                let arguments: Vec<&str> = list(container, "args")
                    .iter()
                    .map(|word| word.as_str().unwrap())
                    .collect();
                programs.insert(arguments[0].to_owned());
                let mut command = Command::new(env!("CARGO_BIN_EXE_portico"));
                command.args(&arguments);
                // The node reads everything before it does what it is asked for; the others have
                // read all flags when they come to the last.
                match arguments[0] {
                    "node" => command
                        .arg("--write-config-to")
                        .arg(folder.path().join("config")),
                    _ => command.arg("--help"),
                };
                let output = command.output().unwrap();
                assert!(
                    output.status.success(),
                    "{}: {arguments:?}: {}",
                    values.display(),
                    said(&output)
                );
            }
        }
    }
    assert_eq!(
        programs,
        BTreeSet::from(["cleanup", "controller", "dashboard", "dns", "node"].map(str::to_owned))
    );
}

/// The manifests beside the chart, by file.
fn manifests() -> BTreeMap<String, String> {
    let head = "# From deploy/chart and values.yaml beside this file, by `make manifests`.\n";
    let mut files: BTreeMap<String, String> = BTreeMap::new();
    for part in render(&deploy().join("manifests/values.yaml"))
        .split("---\n# Source: portico/")
        .skip(1)
    {
        let (source, object) = part.split_once('\n').unwrap();
        let Some(name) = source.strip_prefix("templates/") else {
            continue;
        };
        let object = object
            .lines()
            .filter(|line| !line.contains("managed-by: Helm"))
            .collect::<Vec<_>>()
            .join("\n");
        let file = files
            .entry(name.to_owned())
            .or_insert_with(|| head.to_owned());
        file.push_str(&format!("---\n{}\n", object.trim_end()));
    }
    let pod = [
        "vip",
        "manifest",
        "--kind=static-pod",
        "--address=192.0.2.5",
        "--kubeconfig=/etc/kubernetes/admin.conf",
    ];
    let output = Command::new(env!("CARGO_BIN_EXE_portico"))
        .args(pod)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", said(&output));
    let head = format!(
        "# For /etc/kubernetes/manifests of each control-plane node, from `portico {}`.\n",
        pod.join(" ")
    );
    files.insert(
        "static-pods/vip.yaml".to_owned(),
        head + &String::from_utf8(output.stdout).unwrap(),
    );
    files
}

#[test]
fn the_manifests_are_what_the_chart_renders() {
    let folder = deploy().join("manifests");
    let wanted = manifests();
    assert_eq!(
        wanted.keys().collect::<Vec<_>>(),
        [
            "controller.yaml",
            "monitoring.yaml",
            "node.yaml",
            "static-pods/vip.yaml"
        ]
    );
    for (name, wanted) in &wanted {
        if std::env::var_os(WRITE).is_some() {
            fs::create_dir_all(folder.join(name).parent().unwrap()).unwrap();
            fs::write(folder.join(name), wanted).unwrap();
        }
        let stored = fs::read_to_string(folder.join(name)).unwrap_or_default();
        assert!(
            &stored == wanted,
            "deploy/manifests/{name} is out of date: run `make manifests`"
        );
        assert!(!objects::documents(&stored).is_empty());
    }
}
