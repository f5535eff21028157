use super::super::parsed;
use super::*;
use serde_json::json;

const CONFIG_MAP: &str = r#"
apiVersion: v1
kind: ConfigMap
metadata: {name: kube-proxy, namespace: kube-system}
data:
  config.conf: |-
    apiVersion: kubeproxy.config.k8s.io/v1alpha1
    kind: KubeProxyConfiguration
    bindAddress: 0.0.0.0
    clientConnection: {acceptContentTypes: "", burst: 10, kubeconfig: /var/lib/kube-proxy/kubeconfig.conf}
    clusterCIDR: 10.244.0.0/16
    configSyncPeriod: 0s
    conntrack: {maxPerCore: null, min: null}
    iptables: {masqueradeAll: true, minSyncPeriod: 5s}
    ipvs: {scheduler: "", strictARP: false}
    mode: ""
    winkernel: {networkName: x}
    surprise: 1
  kubeconfig.conf: x
  other.txt: y
"#;

#[test]
fn what_counts_is_kept_and_the_rest_is_named() {
    let file = translate(&parsed(CONFIG_MAP)).unwrap();
    let content = &file.documents[0].content;
    assert_eq!(
        (&content["mode"], &content["clusterCIDR"]),
        (&json!("iptables"), &json!("10.244.0.0/16"))
    );
    assert_eq!(content["iptables"], json!({"masqueradeAll": true}));
    assert_eq!(
        content["clientConnection"],
        json!({"kubeconfig": "/var/lib/kube-proxy/kubeconfig.conf"})
    );
    assert_eq!(
        (
            content.get("winkernel"),
            content.get("surprise"),
            content.get("conntrack")
        ),
        (None, None, None)
    );
    let text = file.print();
    for told in [
        "clientConnection.burst (there are few requests)",
        "iptables.minSyncPeriod (changes are installed at once)",
        "winkernel (it is for Windows)",
        "surprise: there is no such field",
        "mode was left to kube-proxy, which means iptables",
        "ConfigMap: other.txt is not read",
        "kubeconfig.conf of the ConfigMap is used as it is",
    ] {
        assert!(text.contains(told), "{told} is not in\n{text}");
    }
    // It is read again without a word.
    let again = translate(std::slice::from_ref(content)).unwrap();
    assert_eq!(
        (&again.documents[0].content, again.warnings()),
        (content, 0),
        "{}",
        again.print()
    );
}

#[test]
fn what_is_wrong_is_told() {
    let wrong = json!({"apiVersion": "kubeproxy.config.k8s.io/v1alpha1", "kind": "KubeProxyConfiguration", "mode": "userspace"});
    assert!(
        translate(&[wrong])
            .unwrap_err()
            .contains("use nftables, iptables or ipvs")
    );
    assert!(
        translate(&parsed("kind: Pod"))
            .unwrap_err()
            .contains("there is no KubeProxyConfiguration")
    );
}
