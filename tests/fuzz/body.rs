//! Bodies: an object that could be valid, then changed at random.

use serde_json::{Map, Value, json};

use crate::common::random::Random;
use crate::target::Target;

pub(crate) struct Body;

impl Body {
    /// An object of the target's kind, mutated more or less.
    pub(crate) fn near(random: &mut Random, target: &Target, name: &str) -> Value {
        let kind = if random.one_in(15) {
            "Service"
        } else {
            target.kind.as_str()
        };
        let mut object = sample(random, kind);
        object["apiVersion"] = json!(target.group_version);
        object["kind"] = json!(kind);
        let metadata = &mut object["metadata"];
        metadata["name"] = json!(name);
        match random.below(8) {
            0 => metadata["labels"] = json!({"a": "b", "app": "web"}),
            1 => metadata["finalizers"] = json!(["example.com/hold"]),
            2 => metadata["resourceVersion"] = json!("1"),
            3 => {
                metadata["ownerReferences"] =
                    json!([{"apiVersion": "v1", "kind": "Node", "name": "a", "uid": "x"}])
            }
            4 => {
                metadata["managedFields"] = json!([{"manager": "m", "operation": "Apply", "apiVersion": "v1",
                "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {"k:{\"port\":80}": {".": {}}}}}])
            }
            _ => {}
        }
        for _ in 0..random.below(6).saturating_sub(2) {
            mutate(random, &mut object, 0);
        }
        object
    }

    pub(crate) fn json_patch(random: &mut Random, object: &Value) -> String {
        const OPERATIONS: [&str; 7] = [
            "add", "remove", "replace", "move", "copy", "test", "nonsense",
        ];
        const PATHS: [&str; 14] = [
            "/spec",
            "/spec/ports/0",
            "/spec/ports/-",
            "/spec/ports/99",
            "/metadata/labels/a~1b",
            "",
            "/",
            "no",
            "/spec/ports/0/nodePort",
            "/status",
            "/metadata/finalizers",
            "/spec/type",
            "/metadata/name",
            "/~2",
        ];
        let operations: Vec<_> = (0..random.below(4))
            .map(|_| {
                let values = [object["spec"].clone(), object["metadata"].clone(), json!(1), json!(null), json!([])];
                let value = random.pick(&values);
                json!({"op": random.pick(&OPERATIONS), "path": random.pick(&PATHS), "from": random.pick(&PATHS), "value": value})
            })
            .collect();
        json!(operations).to_string()
    }

    pub(crate) fn delete_options(random: &mut Random) -> String {
        let mut options = json!({"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background",
            "gracePeriodSeconds": 0, "preconditions": {"uid": "x"}, "dryRun": ["All"]});
        for _ in 0..random.below(5) {
            mutate(random, &mut options, 0);
        }
        options.to_string()
    }

    /// Block style YAML.
    pub(crate) fn yaml(value: &Value) -> String {
        let mut text = String::new();
        write_yaml(value, 0, &mut text);
        text
    }
}

fn write_yaml(value: &Value, indent: usize, text: &mut String) {
    let margin = " ".repeat(indent);
    match value {
        Value::Object(map) if !map.is_empty() => {
            for (key, value) in map {
                *text += &format!("\n{margin}{}: ", Value::from(key.as_str()));
                write_yaml(value, indent + 2, text);
            }
        }
        Value::Array(items) if !items.is_empty() => {
            for item in items {
                *text += &format!("\n{margin}- ");
                write_yaml(item, indent + 2, text);
            }
        }
        other => *text += &other.to_string(),
    }
}

/// A plausible object of a kind.
fn sample(random: &mut Random, kind: &str) -> Value {
    match kind {
        "Service" => {
            json!({"metadata": {}, "spec": service_spec(random), "status": status(random)})
        }
        "Endpoints" => {
            json!({"metadata": {}, "subsets": [{"addresses": [{"ip": "10.0.0.1", "targetRef": {"kind": "Pod"}}],
            "notReadyAddresses": [{"ip": "::1"}], "ports": [{"name": "http", "port": 80, "protocol": "TCP"}]}]})
        }
        "EndpointSlice" => json!({"metadata": {"labels": {"kubernetes.io/service-name": "a"}},
            "addressType": random.pick(&["IPv4", "IPv6", "FQDN"]),
            "endpoints": [{"addresses": ["10.0.0.1"], "conditions": {"ready": true}, "nodeName": "a", "zone": "z",
                "hints": {"forZones": [{"name": "z"}]}}],
            "ports": [{"name": "", "port": 80, "protocol": "TCP"}]}),
        "Node" => {
            json!({"metadata": {}, "spec": {"podCIDR": "10.1.0.0/24", "podCIDRs": ["10.1.0.0/24", "fd00::/64"],
            "taints": [{"key": "a", "effect": "NoSchedule"}]},
            "status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
                "conditions": [{"type": "Ready", "status": "True"}], "capacity": {"cpu": "1", "memory": "1Gi"}}})
        }
        "Pod" => json!({"metadata": {"labels": {"app": "web"}},
            "spec": {"nodeName": "a", "containers": [{"name": "c", "image": "i", "ports": [{"containerPort": 80, "name": "http"}]}]},
            "status": {"phase": "Running", "podIP": "10.0.0.2", "podIPs": [{"ip": "10.0.0.2"}],
                "conditions": [{"type": "Ready", "status": "True"}]}}),
        "Lease" => {
            json!({"metadata": {}, "spec": {"holderIdentity": "me", "leaseDurationSeconds": 15,
            "renewTime": "2026-01-01T00:00:00.000000Z", "acquireTime": "2026-01-01T00:00:00.000000Z"}})
        }
        "Event" => {
            json!({"metadata": {}, "involvedObject": {"kind": "Pod", "namespace": "default", "name": "a"},
            "reason": "R", "message": "m", "type": "Normal", "count": 1, "eventTime": "2026-01-01T00:00:00.000000Z",
            "reportingComponent": "c", "reportingInstance": "i", "action": "A", "regarding": {"namespace": "default"}})
        }
        "ClusterRole" | "Role" => {
            json!({"metadata": {}, "rules": [{"apiGroups": ["*"], "resources": ["services"],
            "verbs": ["get"], "resourceNames": ["a"]}, {"nonResourceURLs": ["/healthz"], "verbs": ["get"]}]})
        }
        "ClusterRoleBinding" | "RoleBinding" => json!({"metadata": {},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
            "subjects": [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "x"}]}),
        "TokenRequest" => {
            json!({"metadata": {}, "spec": {"audiences": ["x"], "expirationSeconds": 600,
            "boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": "a"}}})
        }
        "SubjectAccessReview" | "SelfSubjectAccessReview" | "LocalSubjectAccessReview" => {
            json!({"metadata": {},
            "spec": {"user": "x", "groups": ["g"], "resourceAttributes": {"verb": "get", "resource": "services"}}})
        }
        "TokenReview" => json!({"metadata": {}, "spec": {"token": "x.y.z", "audiences": ["a"]}}),
        "ServiceCIDR" => json!({"metadata": {}, "spec": {"cidrs": ["10.97.0.0/16"]}}),
        "IPAddress" => {
            json!({"metadata": {}, "spec": {"parentRef": {"resource": "services", "name": "a"}}})
        }
        _ => json!({"metadata": {}, "spec": {}, "data": {"k": "v"}, "status": {}}),
    }
}

fn service_spec(random: &mut Random) -> Value {
    let mut port = json!({"name": "p", "port": 80, "targetPort": *random.pick(&[80, 8080]), "protocol": "TCP"});
    if random.one_in(3) {
        port["nodePort"] = json!(30000 + random.below(70));
    }
    let mut other = json!({"name": "q", "port": 53, "protocol": "UDP"});
    if random.one_in(3) {
        other["nodePort"] = json!(30000 + random.below(70));
    }
    let mut spec = json!({
        "type": random.pick(&["ClusterIP", "NodePort", "LoadBalancer", "ExternalName"]),
        "selector": {"app": "web"}, "ports": [port, other],
    });
    let extras = [
        ("clusterIP", json!("None")),
        ("clusterIP", json!(format!("10.96.0.{}", random.below(256)))),
        ("clusterIPs", json!(["10.96.0.77", "fd00:10:96::77"])),
        ("ipFamilyPolicy", json!("RequireDualStack")),
        ("ipFamilies", json!(["IPv6", "IPv4"])),
        ("externalTrafficPolicy", json!("Local")),
        ("healthCheckNodePort", json!(30000 + random.below(70))),
        ("allocateLoadBalancerNodePorts", json!(false)),
        ("allocateLoadBalancerHCNodePort", json!(false)),
        ("externalName", json!("example.com")),
        ("sessionAffinity", json!("ClientIP")),
        (
            "sessionAffinityConfig",
            json!({"clientIP": {"timeoutSeconds": 5}}),
        ),
        ("loadBalancerSourceRanges", json!(["10.0.0.0/8", "::/0"])),
        ("loadBalancerClass", json!("example.com/class")),
        ("externalIPs", json!(["192.0.2.1"])),
        ("visibility", json!("public")),
        ("portalIP", json!("10.96.0.9")),
        ("publicIPs", json!(["192.0.2.9"])),
        ("createExternalLoadBalancer", json!(true)),
        ("trafficDistribution", json!("PreferClose")),
    ];
    for _ in 0..random.below(4) {
        let (name, value) = random.pick(&extras);
        spec[name] = value.clone();
    }
    spec
}

fn status(random: &mut Random) -> Value {
    let port = json!({"port": 80, "protocol": "TCP", "error": "x"});
    let ip = *random.pick(&["192.0.2.1", "::1", "x"]);
    json!({"loadBalancer": {"ingress": [{"ip": ip, "ipMode": random.pick(&["VIP", "Proxy", "?"]), "ports": [port]}]}})
}

/// Changes one place at random.
fn mutate(random: &mut Random, value: &mut Value, depth: usize) {
    let here = depth > 0 && random.one_in(4);
    match value {
        Value::Object(map) if !here && !map.is_empty() => {
            let keys: Vec<_> = map.keys().cloned().collect();
            let key = random.pick(&keys).clone();
            match random.below(8) {
                0 => drop(map.remove(&key)),
                1 => drop(map.insert(interesting_text(random), interesting(random))),
                _ => mutate(random, map.get_mut(&key).unwrap(), depth + 1),
            }
        }
        Value::Array(items) if !here && !items.is_empty() => {
            let index = random.below(items.len());
            match random.below(8) {
                0 => drop(items.remove(index)),
                1 => items.push(items[index].clone()),
                2 => items.push(interesting(random)),
                _ => mutate(random, &mut items[index], depth + 1),
            }
        }
        other => *other = interesting(random),
    }
}

fn interesting(random: &mut Random) -> Value {
    match random.below(14) {
        0 => Value::Null,
        1 => json!(true),
        2 => json!(*random.pick(&[
            0i64,
            -1,
            1,
            65535,
            65536,
            30000,
            i64::MAX,
            i64::MIN,
            2147483648
        ])),
        3 => json!(*random.pick(&[0.5, 1e300, -0.0, 80.0])),
        4 => json!(u64::MAX),
        5 => json!([]),
        6 => json!({}),
        7 => json!([null, 1, "x", {}]),
        8 => nested(random.below(200)),
        9 => Value::Object(Map::from_iter([(
            interesting_text(random),
            json!({"$patch": "delete"}),
        )])),
        10 => {
            json!({"$patch": random.pick(&["replace", "merge", "delete", "x"]), "$setElementOrder/ports": [{"port": 80}],
            "$retainKeys": ["type"], "$deleteFromPrimitiveList/finalizers": ["a"]})
        }
        _ => json!(interesting_text(random)),
    }
}

/// Deep, but not deeper than a parser should survive.
fn nested(depth: usize) -> Value {
    (0..depth).fold(json!(1), |inner, level| {
        if level % 2 == 0 {
            json!([inner])
        } else {
            json!({"a": inner})
        }
    })
}

fn interesting_text(random: &mut Random) -> String {
    const TEXTS: [&str; 24] = [
        "",
        " ",
        "a",
        "A",
        "a.b",
        "-",
        "a-",
        "a/b",
        "a/b/c",
        "\0",
        "\u{202e}",
        "é",
        "😀",
        "0",
        "10.96.0.1",
        "010.0.0.1",
        "::",
        "::ffff:1.2.3.4",
        "10.0.0.1/33",
        "None",
        "true",
        "2026-13-01T00:00:00Z",
        "$patch",
        "${x}",
    ];
    match random.below(12) {
        0 => "x".repeat(random.below(300)),
        1 => "x".repeat(random.below(70_000)),
        _ => (*random.pick(&TEXTS)).to_owned(),
    }
}

/// Bytes with some of them changed, dropped or repeated.
pub(crate) fn damaged(random: &mut Random, mut bytes: Vec<u8>) -> Vec<u8> {
    for _ in 0..=random.below(4) {
        if bytes.is_empty() {
            return bytes;
        }
        let at = random.below(bytes.len());
        match random.below(4) {
            0 => bytes[at] = random.next() as u8,
            1 => drop(bytes.remove(at)),
            2 => bytes.truncate(at),
            _ => {
                let end = (at + random.below(20)).min(bytes.len());
                let part = bytes[at..end].to_vec();
                bytes.splice(at..at, part);
            }
        }
    }
    bytes
}
