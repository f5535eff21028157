use super::super::parsed;
use super::*;

const RESOURCES: &str = r#"
apiVersion: metallb.io/v1beta1
kind: IPAddressPool
metadata: {name: gold, namespace: metallb-system, labels: {zone: east}, annotations: {owner: net}}
spec:
  addresses: [192.0.2.7/26, 198.51.100.1-198.51.100.9, "2001:db8::/120"]
  autoAssign: false
  avoidBuggyIPs: true
  serviceAllocation:
    priority: 50
    namespaces: [shop]
    namespaceSelectors: [{matchLabels: {team: a}}, {matchLabels: {team: b}}]
    serviceSelectors: [{matchLabels: {tier: front}}]
---
apiVersion: metallb.io/v1beta1
kind: IPAddressPool
metadata: {name: silver}
spec: {addresses: [203.0.113.0/28], serviceAllocation: {priority: 20}, somethingNew: {a: 1}}
---
apiVersion: metallb.io/v1beta1
kind: IPAddressPool
metadata: {name: hidden}
spec: {addresses: [203.0.113.16/28]}
---
apiVersion: metallb.io/v1beta1
kind: L2Advertisement
metadata: {name: east}
spec:
  ipAddressPoolSelectors: [{matchLabels: {zone: east}}]
  ipAddressPools: [missing]
  nodeSelectors: [{matchLabels: {kubernetes.io/hostname: n1}}, {matchLabels: {kubernetes.io/hostname: n2}}]
  interfaces: [eth0]
---
apiVersion: metallb.io/v1beta1
kind: BGPAdvertisement
metadata: {name: silver}
spec:
  ipAddressPools: [silver]
  communities: [vpn-only, "large:64512:1:2", "65535:65282"]
  localPref: 100
  aggregationLength: 28
  peers: [tor-a]
---
apiVersion: metallb.io/v1beta1
kind: BGPAdvertisement
metadata: {name: silver-local}
spec: {ipAddressPools: [silver], aggregationLength: 32}
---
apiVersion: metallb.io/v1beta1
kind: Community
metadata: {name: names}
spec: {communities: [{name: vpn-only, value: "64512:1234"}]}
---
apiVersion: metallb.io/v1beta1
kind: BFDProfile
metadata: {name: fast}
spec: {receiveInterval: 100}
---
apiVersion: metallb.io/v1beta2
kind: BGPPeer
metadata: {name: tor-a, namespace: lb}
spec:
  myASN: 64512
  peerASN: 64513
  peerAddress: 192.0.2.1
  holdTime: 1m30s
  ebgpMultiHop: true
  bfdProfile: fast
  vrf: blue
  passwordSecret: {name: tor}
  disableMP: false
---
apiVersion: metallb.io/v1beta2
kind: BGPPeer
metadata: {name: plain}
spec: {myASN: 64512, dynamicASN: internal, peerAddress: "2001:db8::1", ebgpMultiHop: true, password: secret, enableGracefulRestart: false}
---
apiVersion: metallb.io/v1beta2
kind: BGPPeer
metadata: {name: unnumbered}
spec: {myASN: 64512, peerASN: 64513, interface: eth1}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: speaker}
"#;

fn object<'a>(file: &'a File, kind: &str, name: &str) -> &'a Document {
    let is = |document: &&Document| {
        document.content["kind"] == kind && document.content["metadata"]["name"] == name
    };
    file.documents
        .iter()
        .find(is)
        .unwrap_or_else(|| panic!("no {kind} {name}: {}", file.print()))
}

fn remarks(document: &Document) -> String {
    format!("{:?}", document.remarks)
}

#[test]
fn pools_say_how_they_are_announced() {
    let file = translate(parsed(RESOURCES));
    let gold = object(&file, "AddressPool", "gold");
    assert_eq!(
        gold.content["spec"],
        json!({
            "addresses": ["192.0.2.0/26", "198.51.100.1-198.51.100.9", "2001:db8::/120"],
            "autoAssign": false,
            "avoidBuggyIPs": true,
            "priority": 1,
            "namespaces": ["shop"],
            "namespaceSelector": {"matchExpressions": [{"key": "team", "operator": "In", "values": ["a", "b"]}]},
            "serviceSelector": {"matchLabels": {"tier": "front"}},
            "announce": ["Layer2"],
            "nodeSelector": {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["n1", "n2"]}]},
            "interfaces": ["eth0"],
        })
    );
    assert_eq!(gold.content["metadata"]["labels"], json!({"zone": "east"}));
    assert!(remarks(gold).contains("192.0.2.7/26 is the network 192.0.2.0/26"));
    assert!(remarks(gold).contains("annotation owner is left out"));
    let silver = object(&file, "AddressPool", "silver");
    assert_eq!(
        silver.content["spec"]["priority"], 31,
        "of MetalLB's the lower number is first"
    );
    assert_eq!(
        silver.content["spec"]["bgp"],
        json!({"communities": ["64512:1234", "64512:1:2", "65535:65282"], "localPreference": 100, "aggregationLength": 28, "peers": ["tor-a"]})
    );
    assert!(remarks(silver).contains("BGPAdvertisement silver-local is left out"));
    assert!(remarks(silver).contains("somethingNew.a: 1 has no equivalent"));
    let hidden = object(&file, "AddressPool", "hidden");
    assert_eq!(
        hidden.content["spec"]["nodeSelector"],
        json!({"matchLabels": {NOWHERE: "true"}})
    );
}

#[test]
fn peers_keep_what_they_can() {
    let file = translate(parsed(RESOURCES));
    let tor = object(&file, "BgpPeer", "tor-a");
    assert_eq!(
        tor.content["spec"],
        json!({
            "myASN": 64512, "peerASN": 64513, "peerAddress": "192.0.2.1", "holdTime": "1m30s", "ebgpMultiHop": true,
            "passwordSecret": {"name": "tor", "namespace": "lb", "key": "password"},
        })
    );
    for lost in [
        "bfdProfile: fast has no equivalent",
        "vrf: blue has no equivalent",
        "disableMP: false is left out",
    ] {
        assert!(remarks(tor).contains(lost), "{lost}");
    }
    let plain = object(&file, "BgpPeer", "plain");
    assert_eq!(
        (
            &plain.content["spec"]["peerASN"],
            &plain.content["spec"]["gracefulRestart"]
        ),
        (&json!(64512), &json!(false))
    );
    assert_eq!(plain.content["spec"].get("ebgpMultiHop"), None);
    assert_eq!(
        object(&file, "Secret", "portico-bgp-plain").content["stringData"]["password"],
        "secret"
    );
    let about = format!("{:?}", file.remarks);
    for told in [
        "BGPPeer unnumbered is not translated: interface: eth1",
        "BFDProfile fast has no equivalent",
        "DaemonSet speaker is not read",
        "L2Advertisement east: there is no IPAddressPool missing",
    ] {
        assert!(about.contains(told), "{told}: {about}");
    }
}

#[test]
fn the_old_config_map_is_understood() {
    let config = r#"
kind: ConfigMap
metadata: {name: config}
data:
  config: |
    peers:
    - {peer-address: 10.0.0.1, peer-asn: 64501, my-asn: 64500, node-selectors: [{match-labels: {rack: a}}], odd: 1}
    bgp-communities: {no-x: "65535:65281"}
    address-pools:
    - name: default
      protocol: bgp
      addresses: [198.51.100.0/24]
      avoid-buggy-ips: true
      auto-assign: false
      bgp-advertisements:
      - {aggregation-length: 32, localpref: 100, communities: [no-x]}
    - {name: near, protocol: layer2, addresses: [192.0.2.8/29]}
    wishes: [x]
"#;
    let file = translate(parsed(config));
    let spec = &object(&file, "AddressPool", "default").content["spec"];
    assert_eq!(
        spec,
        &json!({
            "addresses": ["198.51.100.0/24"], "autoAssign": false, "avoidBuggyIPs": true, "announce": ["BGP"],
            "bgp": {"communities": ["65535:65281"], "localPreference": 100, "aggregationLength": 32},
        })
    );
    assert_eq!(
        object(&file, "AddressPool", "near").content["spec"]["announce"],
        json!(["Layer2"])
    );
    let peer = object(&file, "BgpPeer", "peer-1");
    assert_eq!(
        peer.content["spec"]["nodeSelector"],
        json!({"matchLabels": {"rack": "a"}})
    );
    assert!(remarks(peer).contains("odd: 1 has no equivalent"));
    assert!(format!("{:?}", file.remarks).contains("config: wishes has no equivalent"));
}

#[test]
fn what_the_api_would_refuse_is_told() {
    let file = translate(parsed(
        "kind: IPAddressPool\nmetadata: {name: p}\nspec: {addresses: [192.0.2.9-192.0.2.1]}",
    ));
    assert!(
        remarks(&file.documents[0]).contains("the API server will refuse this: spec.addresses[0]"),
        "{}",
        file.print()
    );
}
