use super::*;

const VIP: &str = "
apiVersion: v1
kind: Service
metadata: {name: vip}
spec:
  externalIPs: [192.0.2.100]
  ports: [{name: https, port: 6443}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: vip-1, labels: {kubernetes.io/service-name: vip}}
addressType: IPv4
ports: [{name: https, port: 6443}]
endpoints: [{addresses: [192.0.2.1]}]
";

fn names(objects: &[Object]) -> Vec<(Kind, String, String)> {
    objects
        .iter()
        .map(Object::name)
        .map(|name| (name.kind, name.namespace, name.name))
        .collect()
}

#[test]
fn documents_and_lists_in_yaml_and_json() {
    let documents = parse("vip.yaml", VIP).unwrap();
    let namespace = "static:vip.yaml/default".to_owned();
    assert_eq!(
        names(&documents),
        [
            (Kind::Service, namespace.clone(), "vip".to_owned()),
            (Kind::Slice, namespace, "vip-1".to_owned())
        ]
    );
    let items: Vec<Value> = serde_saphyr::from_multiple(VIP).unwrap();
    let list = serde_json::json!({"apiVersion": "v1", "kind": "List", "items": items});
    assert_eq!(parse("vip.yaml", &list.to_string()).unwrap(), documents);
    assert_eq!(
        parse("vip.yaml", &serde_saphyr::to_string(&list).unwrap()).unwrap(),
        documents
    );
    assert_eq!(parse("empty.yaml", "# nothing\n"), Ok(vec![]));
    assert_eq!(parse("empty.yaml", "---\n---\n"), Ok(vec![]));
}

/// A file with `default/kubernetes` means another one.
#[test]
fn names_are_nobody_elses() {
    let text = VIP.replace("{name: vip}", "{name: kubernetes, namespace: kube-system}");
    let Object::Service(service) = &parse("a.yaml", &text).unwrap()[0] else {
        panic!()
    };
    assert_eq!(service.metadata.namespace, "static:a.yaml/kube-system");
    assert!(static_services::is_static(&service.metadata.namespace));
    assert_eq!(
        service.metadata.creation_timestamp.as_deref(),
        Some("0001-01-01T00:00:00Z")
    );
    assert!(!static_services::is_static("static"));
}

#[test]
fn what_is_wrong_is_said_with_its_field() {
    let cases = [
        (
            "port: 6443}]\n---",
            "port: 70000}]\n---",
            "Service \"vip\": spec.ports[0].port: 70000 is not a port",
        ),
        (
            "[{name: https, port: 6443}]\n---",
            "6443\n---",
            "Service \"vip\": spec.ports: 6443 is not a list",
        ),
        (
            "ports: [{name: https, port: 6443}]\n---",
            "ports: []\n---",
            "Service \"vip\": spec.ports: must have a port",
        ),
        (
            "[192.0.2.100]",
            "[192.0.2]",
            "Service \"vip\": spec.externalIPs[0]: \"192.0.2\" is not an IP address",
        ),
        (
            "  externalIPs: [192.0.2.100]\n",
            "",
            "spec.externalIPs: it answers nowhere without an address",
        ),
        (
            "metadata: {name: vip}",
            "metadata: {}",
            "Service: metadata.name: is missing",
        ),
        (
            "kind: Service",
            "kind: Pod",
            "\"v1\" \"Pod\" is not known here",
        ),
        (
            "apiVersion: v1",
            "apiVersion: v2",
            "\"v2\" \"Service\" is not known here",
        ),
        (
            "addressType: IPv4\n",
            "",
            "EndpointSlice \"vip-1\": addressType: is missing",
        ),
        (
            "addressType: IPv4",
            "addressType: FQDN",
            "addressType: \"FQDN\" is not one of IPv4, IPv6",
        ),
        (
            ", labels: {kubernetes.io/service-name: vip}",
            "",
            "metadata.labels[kubernetes.io/service-name]",
        ),
        (
            "[{addresses: [192.0.2.1]}]",
            "[{addresses: [x]}]",
            "endpoints[0].addresses[0]: \"x\" is not an IP address",
        ),
        (
            "[{addresses: [192.0.2.1]}]",
            "[5]",
            "endpoints[0].addresses: 5 has no fields",
        ),
        (
            "metadata: {name: vip-1",
            "metadata: {name: 7",
            "metadata.name: 7 is not a name",
        ),
        ("spec:", "spec: [", "line"),
    ];
    for (good, bad, expected) in cases {
        assert!(VIP.contains(good), "{good}");
        let problem = parse("vip.yaml", &VIP.replacen(good, bad, 1)).unwrap_err();
        assert!(problem.contains(expected), "{problem} / {expected}");
    }
    let twice = format!("{VIP}---{VIP}");
    assert_eq!(
        parse("vip.yaml", &twice).unwrap_err(),
        "Service \"vip\" is there twice"
    );
}
