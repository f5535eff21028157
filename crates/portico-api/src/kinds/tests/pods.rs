use super::*;

fn pod() -> Value {
    json!({"spec": {"containers": [{"name": "c", "image": "web", "ports": [{"containerPort": 80}]}]}})
}

#[test]
fn a_new_pod() {
    let pod = create(
        "pods",
        with(
            &pod(),
            &[
                ("status", json!({"phase": "Running"})),
                ("spec.serviceAccount", json!("s")),
            ],
        ),
    )
    .unwrap();
    for (path, value) in [
        ("metadata.generation", json!(1)),
        (
            "status",
            json!({"phase": "Pending", "qosClass": "BestEffort"}),
        ),
        ("spec.restartPolicy", json!("Always")),
        ("spec.dnsPolicy", json!("ClusterFirst")),
        ("spec.terminationGracePeriodSeconds", json!(30)),
        ("spec.schedulerName", json!("default-scheduler")),
        ("spec.enableServiceLinks", json!(true)),
        ("spec.securityContext", json!({})),
        ("spec.serviceAccountName", json!("s")),
    ] {
        assert_eq!(*object::at(&pod, path), value, "{path}");
    }
    let wanted = json!([{
        "name": "c", "image": "web", "imagePullPolicy": "Always", "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File", "ports": [{"containerPort": 80, "protocol": "TCP"}], "resources": {},
    }]);
    assert_eq!(pod["spec"]["containers"], wanted);
}

#[test]
fn defaults_below_containers() {
    let container = json!({
        "name": "c", "image": "r:5000/web", "readinessProbe": {"httpGet": {"port": 80}}, "ports": [{"containerPort": 80}],
        "env": [{"name": "E", "valueFrom": {"fieldRef": {"fieldPath": "x"}}}], "resources": {"limits": {"cpu": "1", "memory": "1Gi"}},
        "volumeMounts": [{"name": "v", "mountPath": "/v"}],
    });
    let pod = create("pods", json!({"spec": {"hostNetwork": true, "containers": [container], "volumes": [{"name": "v"}, {"name": "w", "secret": {"secretName": "s"}}]}})).unwrap();
    let container = &pod["spec"]["containers"][0];
    assert_eq!(container["imagePullPolicy"], "Always");
    assert_eq!(container["ports"][0]["hostPort"], 80);
    assert_eq!(
        container["readinessProbe"],
        json!({"httpGet": {"path": "/", "port": 80, "scheme": "HTTP"}, "timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3})
    );
    assert_eq!(
        container["resources"]["requests"],
        json!({"cpu": "1", "memory": "1Gi"})
    );
    assert_eq!(
        container["env"][0]["valueFrom"]["fieldRef"]["apiVersion"],
        "v1"
    );
    assert_eq!(
        pod["spec"]["volumes"],
        json!([{"name": "v", "emptyDir": {}}, {"name": "w", "secret": {"secretName": "s", "defaultMode": 420}}])
    );
    assert_eq!(pod["status"]["qosClass"], "Guaranteed");
}

#[test]
fn pull_policies_and_classes() {
    for (image, policy) in [
        ("web:1", "IfNotPresent"),
        ("web:latest", "Always"),
        ("web@sha256:0", "IfNotPresent"),
        ("a/b:1@sha256:0", "IfNotPresent"),
    ] {
        let pod = create(
            "pods",
            with(&pod(), &[("spec.containers.0.image", json!(image))]),
        )
        .unwrap();
        assert_eq!(
            pod["spec"]["containers"][0]["imagePullPolicy"], policy,
            "{image}"
        );
    }
    for (resources, class) in [
        (json!({"requests": {"cpu": "0"}}), "BestEffort"),
        (json!({"requests": {"cpu": "100m"}}), "Burstable"),
        (json!({"limits": {"cpu": "1"}}), "Burstable"),
        (
            json!({"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "1000m", "memory": "1Gi"}}),
            "Guaranteed",
        ),
    ] {
        let pod = create(
            "pods",
            with(
                &pod(),
                &[("spec.containers.0.resources", resources.clone())],
            ),
        )
        .unwrap();
        assert_eq!(pod["status"]["qosClass"], class, "{resources}");
    }
}

#[test]
fn refused() {
    let c = "spec.containers.0";
    let path = |rest: &str| format!("{c}.{rest}");
    let (image, ports, env, mounts) = (
        path("image"),
        path("ports"),
        path("env"),
        path("volumeMounts"),
    );
    let (name, pull, resources) = (path("name"), path("imagePullPolicy"), path("resources"));
    let twice = json!([{"name": "c", "image": "a"}, {"name": "c", "image": "b"}]);
    let container = |rest: &str| format!("spec.containers[0].{rest}");
    refuses(
        "pods",
        &pod(),
        &[
            ("spec.containers", json!([]), "spec.containers", REQUIRED),
            (
                "spec.containers",
                twice,
                "spec.containers[1].name",
                DUPLICATE,
            ),
            (
                "spec.initContainers",
                json!([{"name": "c", "image": "a"}]),
                "spec.initContainers[0].name",
                DUPLICATE,
            ),
            (
                "spec.initContainers",
                json!([{"name": "i", "image": "a", "lifecycle": {}}]),
                "spec.initContainers[0].lifecycle",
                FORBIDDEN,
            ),
            (
                "spec.ephemeralContainers",
                json!([{"name": "e", "image": "a"}]),
                "spec.ephemeralContainers",
                FORBIDDEN,
            ),
            (&name, json!(""), &container("name"), REQUIRED),
            (&name, json!("A"), &container("name"), INVALID),
            (&image, json!(""), &container("image"), REQUIRED),
            (&image, json!(" a"), &container("image"), INVALID),
            (
                &pull,
                json!("x"),
                &container("imagePullPolicy"),
                UNSUPPORTED,
            ),
            (
                &ports,
                json!([{"containerPort": 0}]),
                &container("ports[0].containerPort"),
                REQUIRED,
            ),
            (
                &ports,
                json!([{"containerPort": 70000}]),
                &container("ports[0].containerPort"),
                INVALID,
            ),
            (
                &ports,
                json!([{"containerPort": 1, "name": "a--b"}]),
                &container("ports[0].name"),
                INVALID,
            ),
            (
                &ports,
                json!([{"containerPort": 1, "protocol": "x"}]),
                &container("ports[0].protocol"),
                UNSUPPORTED,
            ),
            (
                &ports,
                json!([{"containerPort": 1, "name": "a"}, {"containerPort": 2, "name": "a"}]),
                &container("ports[1].name"),
                DUPLICATE,
            ),
            (
                &ports,
                json!([{"containerPort": 1, "hostPort": 5}, {"containerPort": 2, "hostPort": 5}]),
                &container("ports[1].hostPort"),
                DUPLICATE,
            ),
            (
                &env,
                json!([{"name": ""}]),
                &container("env[0].name"),
                REQUIRED,
            ),
            (
                &mounts,
                json!([{"name": "v", "mountPath": "/v"}]),
                &container("volumeMounts[0].name"),
                "FieldValueNotFound",
            ),
            (
                &resources,
                json!({"limits": {"cpu": "1"}, "requests": {"cpu": "2"}}),
                &container("resources.requests"),
                INVALID,
            ),
            (
                "spec.restartPolicy",
                json!("x"),
                "spec.restartPolicy",
                UNSUPPORTED,
            ),
            ("spec.dnsPolicy", json!("x"), "spec.dnsPolicy", UNSUPPORTED),
            ("spec.nodeName", json!("N"), "spec.nodeName", INVALID),
            (
                "spec.nodeSelector",
                json!({"a": "-"}),
                "spec.nodeSelector",
                INVALID,
            ),
            ("spec.hostname", json!("a.b"), "spec.hostname", INVALID),
            (
                "spec.activeDeadlineSeconds",
                json!(0),
                "spec.activeDeadlineSeconds",
                INVALID,
            ),
            (
                "spec.tolerations",
                json!([{"operator": "Equal"}]),
                "spec.tolerations[0].operator",
                INVALID,
            ),
            (
                "spec.tolerations",
                json!([{"key": "a", "effect": "x"}]),
                "spec.tolerations[0].effect",
                UNSUPPORTED,
            ),
            (
                "spec.volumes",
                json!([{"name": "v"}, {"name": "v"}]),
                "spec.volumes[1].name",
                DUPLICATE,
            ),
        ],
    );
}

#[test]
fn what_changes() {
    let toleration = json!({"key": "a", "operator": "Exists", "effect": "NoExecute"});
    let old = create(
        "pods",
        with(
            &pod(),
            &[
                ("spec.tolerations", json!([toleration])),
                ("spec.activeDeadlineSeconds", json!(9)),
            ],
        ),
    )
    .unwrap();
    let slower = with(&toleration, &[("tolerationSeconds", json!(5))]);
    for (path, value, cause) in [
        ("metadata.labels", json!({"a": "b"}), None),
        ("spec.containers.0.image", json!("web:2"), None),
        ("spec.activeDeadlineSeconds", json!(8), None),
        (
            "spec.activeDeadlineSeconds",
            json!(10),
            Some(("spec.activeDeadlineSeconds", INVALID)),
        ),
        (
            "spec.activeDeadlineSeconds",
            Value::Null,
            Some(("spec.activeDeadlineSeconds", INVALID)),
        ),
        (
            "spec.tolerations",
            json!([slower, {"operator": "Exists"}]),
            None,
        ),
        (
            "spec.tolerations",
            json!([]),
            Some(("spec.tolerations", FORBIDDEN)),
        ),
        ("spec.nodeName", json!("n"), Some(("spec", FORBIDDEN))),
        (
            "spec.containers.0.command",
            json!(["x"]),
            Some(("spec", FORBIDDEN)),
        ),
        (
            "spec.containers",
            json!([{"name": "c", "image": "web"}, {"name": "d", "image": "web"}]),
            Some(("spec.containers", FORBIDDEN)),
        ),
        (
            "spec.schedulingGates",
            json!([{"name": "g"}]),
            Some(("spec.schedulingGates[0].name", FORBIDDEN)),
        ),
    ] {
        let found = update("pods", with(&old, &[(path, value.clone())]), &old);
        assert_eq!(
            found.err(),
            cause.map(|(field, reason)| vec![(field.to_owned(), reason)]),
            "{path} {value}"
        );
    }
    let new = update(
        "pods",
        with(
            &old,
            &[
                ("spec.containers.0.image", json!("web:2")),
                ("status", json!({})),
            ],
        ),
        &old,
    )
    .unwrap();
    assert_eq!(
        (&new["metadata"]["generation"], &new["status"]),
        (&json!(2), &old["status"])
    );
    let new = update(
        "pods",
        with(&old, &[("metadata.labels", json!({"a": "b"}))]),
        &old,
    )
    .unwrap();
    assert_eq!(new["metadata"]["generation"], 1);
}

#[test]
fn status() {
    let old = create(
        "pods",
        with(&pod(), &[("spec.restartPolicy", json!("Never"))]),
    )
    .unwrap();
    let ended = json!([{"name": "c", "state": {"terminated": {"exitCode": 0}}}]);
    let changed = with(
        &old,
        &[
            (
                "status",
                json!({"phase": "Running", "podIP": "10.1.0.1", "containerStatuses": ended}),
            ),
            ("spec.nodeName", json!("x")),
        ],
    );
    let new = update_status("pods", changed, &old).unwrap();
    assert_eq!(
        (&new["spec"], &new["status"]["podIPs"]),
        (&old["spec"], &json!([{"ip": "10.1.0.1"}]))
    );
    assert_eq!(new["status"]["qosClass"], "BestEffort");
    for (path, value, field, reason) in [
        ("status.podIP", json!("x"), "status.podIPs[0]", INVALID),
        (
            "status.podIPs",
            json!([{"ip": "10.1.0.1"}, {"ip": "10.1.0.2"}]),
            "status.podIPs",
            INVALID,
        ),
        (
            "status.qosClass",
            json!("Burstable"),
            "status.qosClass",
            INVALID,
        ),
        (
            "status.conditions",
            json!([{"type": "a b", "status": "True"}]),
            "status.conditions[0].Type",
            INVALID,
        ),
        (
            "status.containerStatuses.0.state",
            json!({"running": {}}),
            "status.containerStatuses[0].state",
            FORBIDDEN,
        ),
    ] {
        let found = update_status("pods", with(&new, &[(path, value)]), &new);
        assert_eq!(found, Err(vec![(field.to_owned(), reason)]), "{path}");
    }
}

#[test]
fn rows() {
    let status =
        |state: Value| json!([{"name": "c", "ready": true, "restartCount": 0, "state": state}]);
    let restarted = json!([{"name": "c", "ready": false, "restartCount": 3, "state": {"waiting": {"reason": "CrashLoopBackOff"}},
        "lastState": {"terminated": {"finishedAt": "2024-01-02T03:12:05Z"}}}]);
    for (changes, wanted) in [
        (vec![], ["0/1", "Pending", "0"]),
        (
            vec![
                ("status.phase", json!("Running")),
                ("status.containerStatuses", status(json!({"running": {}}))),
            ],
            ["1/1", "Running", "0"],
        ),
        (
            vec![("status.containerStatuses", restarted)],
            ["0/1", "CrashLoopBackOff", "3 (2m ago)"],
        ),
        (
            vec![(
                "status.containerStatuses",
                status(json!({"terminated": {"exitCode": 2}})),
            )],
            ["0/1", "ExitCode:2", "0"],
        ),
        (
            vec![("status.reason", json!("Evicted"))],
            ["0/1", "Evicted", "0"],
        ),
        (
            vec![("metadata.deletionTimestamp", json!("2024-01-02T03:04:05Z"))],
            ["0/1", "Terminating", "0"],
        ),
        (
            vec![
                ("spec.initContainers", json!([{"name": "i"}, {"name": "j"}])),
                (
                    "status.initContainerStatuses",
                    json!([{"name": "i", "state": {"running": {}}}]),
                ),
            ],
            ["0/1", "Init:0/2", "0"],
        ),
    ] {
        let pod = with(&create("pods", pod()).unwrap(), &changes);
        assert_eq!(cells("pods", &pod)[1..4], wanted, "{changes:?}");
    }
    let pod = with(
        &create("pods", pod()).unwrap(),
        &[
            ("status.podIP", json!("10.1.0.1")),
            ("spec.nodeName", json!("x")),
        ],
    );
    assert_eq!(
        cells("pods", &pod)[4..],
        ["10m", "10.1.0.1", "x", "<none>", "<none>"]
    );
}
