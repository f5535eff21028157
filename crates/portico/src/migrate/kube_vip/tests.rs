use super::super::parsed;
use super::*;

const POD: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: kube-vip, namespace: kube-system}
spec:
  containers:
  - name: kube-vip
    args: [manager]
    env:
    - {name: vip_arp, value: "true"}
    - {name: port, value: "6443"}
    - {name: vip_nodename, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}
    - {name: vip_interface, value: ens192}
    - {name: vip_cidr, value: "32"}
    - {name: cp_enable, value: "true"}
    - {name: cp_namespace, value: kube-system}
    - {name: svc_enable, value: "true"}
    - {name: vip_leaderelection, value: "true"}
    - {name: vip_leaseduration, value: "5"}
    - {name: address, value: 192.0.2.40}
    - {name: prometheus_server, value: ":2112"}
    - {name: enable_upnp, value: "true"}
    - {name: bgp_enable, value: "true"}
    - {name: bgp_as, value: "65000"}
    - {name: bgp_routerid, value: 192.0.2.2}
    - {name: bgp_peers, value: "192.0.2.1:65001:secret:true,192.0.2.3:65000::false"}
    volumeMounts: [{name: kubeconfig, mountPath: /etc/kubernetes/admin.conf}]
  volumes:
  - {name: kubeconfig, hostPath: {path: /etc/kubernetes/super-admin.conf}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: kubevip, namespace: kube-system}
data:
  range-global: 192.0.2.200-192.0.2.210,192.0.2.220-192.0.2.221
  cidr-shop: 198.51.100.0/28
  interface-shop: ens224
  search-order-shop: desc
  wish: x
"#;

#[test]
fn the_control_plane() {
    let files = translate(parsed(POD));
    let names: Vec<&str> = files.iter().map(|file| file.name.as_str()).collect();
    assert_eq!(names, ["vip.yaml", "objects.yaml"]);
    assert_eq!(
        files[0].documents[0].content,
        json!({
            "apiVersion": "portico.dev/v1", "kind": "VipConfiguration", "addresses": ["192.0.2.40"], "port": 6443,
            "interface": "ens192", "prefix": 32, "kubeconfig": "/etc/kubernetes/super-admin.conf", "statusAddress": "0.0.0.0:2112",
        })
    );
    let text = files[0].print();
    for told in [
        "# WARNING: enable_upnp: \"true\" has no equivalent",
        "# note: vip_leaseduration: \"5\": three intervals",
        "# note: vip_nodename: \"{\\\"fieldRef",
    ] {
        assert!(text.contains(told), "{told} is not in\n{text}");
    }
    let written = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(written.path(), &text).unwrap();
    let given = portico_vip::config::read_file(written.path()).unwrap();
    assert_eq!(given.interface.as_deref(), Some("ens192"));
}

#[test]
fn services_get_pools_and_routers() {
    let files = translate(parsed(POD));
    let objects = &files[1];
    let of = |name: &str| {
        let document = objects
            .documents
            .iter()
            .find(|document| document.content["metadata"]["name"] == name);
        document
            .map(|document| document.content["spec"].clone())
            .unwrap_or_else(|| panic!("{}", objects.print()))
    };
    assert_eq!(
        of("kube-vip-global"),
        json!({"addresses": ["192.0.2.200-192.0.2.210", "192.0.2.220-192.0.2.221"], "announce": ["Layer2", "BGP"]})
    );
    assert_eq!(
        of("kube-vip-shop"),
        json!({"addresses": ["198.51.100.0/28"], "namespaces": ["shop"], "interfaces": ["ens224"], "announce": ["Layer2", "BGP"]})
    );
    assert_eq!(
        of("router-192-0-2-1"),
        json!({
            "myASN": 65000, "peerASN": 65001, "peerAddress": "192.0.2.1", "routerID": "192.0.2.2", "ebgpMultiHop": true,
            "passwordSecret": {"name": "portico-bgp-router-192-0-2-1"},
        })
    );
    assert_eq!(of("router-192-0-2-3")["peerASN"], 65000);
    let text = objects.print();
    for told in [
        "# WARNING: ConfigMap: wish: \"x\" has no equivalent",
        "# WARNING: search-order-shop: \"desc\" has no equivalent",
    ] {
        assert!(text.contains(told), "{told} is not in\n{text}");
    }
}

#[test]
fn without_a_control_plane_nothing_is_lost() {
    let text = "kind: DaemonSet\nspec: {template: {spec: {containers: [{name: kube-vip, env: [{name: \
                svc_enable, value: 'true'}, {name: vip_wireguard, value: 'true'}]}]}}}";
    let files = translate(parsed(text));
    let [objects] = &files[..] else {
        panic!("{files:?}")
    };
    let text = objects.print();
    assert!(
        text.contains("vip_wireguard: \"true\" has no equivalent")
            && text.contains("make an AddressPool"),
        "{text}"
    );
}
