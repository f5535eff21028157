//! What MetalLB was configured with before it had resources: a ConfigMap, and the AddressPool. Both
//! are turned into the resources of today. Pure.

use serde_json::{Map, Value, json};

/// Names of the ConfigMap, and of the resources.
const NAMES: &[(&str, &str)] = &[
    ("aggregation-length", "aggregationLength"),
    ("aggregation-length-v6", "aggregationLengthV6"),
    ("auto-assign", "autoAssign"),
    ("avoid-buggy-ips", "avoidBuggyIPs"),
    ("bfd-profile", "bfdProfile"),
    ("bgp-advertisements", "bgpAdvertisements"),
    ("ebgp-multihop", "ebgpMultiHop"),
    ("hold-time", "holdTime"),
    ("keepalive-time", "keepaliveTime"),
    ("localpref", "localPref"),
    ("match-expressions", "matchExpressions"),
    ("match-labels", "matchLabels"),
    ("my-asn", "myASN"),
    ("node-selectors", "nodeSelectors"),
    ("peer-address", "peerAddress"),
    ("peer-asn", "peerASN"),
    ("peer-port", "peerPort"),
    ("router-id", "routerID"),
    ("source-address", "sourceAddress"),
];

/// The resources that a ConfigMap's `config` stands for.
pub(super) fn config_map(text: &str) -> Result<Vec<Value>, String> {
    let tree: Value = serde_saphyr::from_str(text).map_err(|error| error.to_string())?;
    let Value::Object(mut sections) = renamed(tree) else {
        return Err("it is no map of settings".to_owned());
    };
    let mut out = Vec::new();
    let communities = sections.remove("bgp-communities");
    for (name, value) in communities
        .as_ref()
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
    {
        out.push(resource(
            "Community",
            name,
            json!({"communities": [{"name": name, "value": value}]}),
        ));
    }
    for pool in items(sections.remove("address-pools")) {
        let name = pool
            .get("name")
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned();
        out.extend(address_pool(&name, Value::Null, without(pool, "name")));
    }
    for (index, peer) in items(sections.remove("peers")).into_iter().enumerate() {
        out.push(resource("BGPPeer", &format!("peer-{}", index + 1), peer));
    }
    for profile in items(sections.remove("bfd-profiles")) {
        let name = profile
            .get("name")
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned();
        out.push(resource("BFDProfile", &name, without(profile, "name")));
    }
    // Whatever else there is must not get lost on the way.
    out.extend(
        sections
            .into_iter()
            .map(|(name, value)| resource("ConfigMap", &name, value)),
    );
    Ok(out)
}

/// A pool and its advertisements.
pub(super) fn address_pool(name: &str, labels: Value, mut spec: Value) -> Vec<Value> {
    let mut take = |key: &str| spec.as_object_mut().and_then(|map| map.remove(key));
    let protocol = take("protocol")
        .and_then(|value| value.as_str().map(str::to_owned))
        .unwrap_or_default();
    let mut advertisements = items(take("bgpAdvertisements"));
    let mut pool = resource("IPAddressPool", name, spec);
    pool["metadata"]["labels"] = labels;
    let mut out = vec![pool];
    let announced = |kind: &str, name: &str, mut spec: Value, pool: &str| {
        spec["ipAddressPools"] = json!([pool]);
        resource(kind, name, spec)
    };
    match protocol.as_str() {
        "bgp" => {
            if advertisements.is_empty() {
                advertisements.push(json!({}));
            }
            let named = advertisements.into_iter().enumerate();
            out.extend(named.map(|(n, spec)| {
                announced("BGPAdvertisement", &format!("{name}-{}", n + 1), spec, name)
            }));
        }
        _ => out.push(announced("L2Advertisement", name, json!({}), name)),
    }
    out
}

fn resource(kind: &str, name: &str, spec: Value) -> Value {
    json!({"kind": kind, "metadata": {"name": name}, "spec": spec})
}

fn items(value: Option<Value>) -> Vec<Value> {
    match value {
        Some(Value::Array(items)) => items,
        _ => Vec::new(),
    }
}

fn without(mut value: Value, key: &str) -> Value {
    value.as_object_mut().and_then(|map| map.remove(key));
    value
}

fn renamed(value: Value) -> Value {
    match value {
        Value::Array(items) => items.into_iter().map(renamed).collect(),
        Value::Object(map) => {
            let today = |key: String| {
                NAMES
                    .iter()
                    .find(|(old, _)| *old == key)
                    .map_or(key, |(_, new)| (*new).to_owned())
            };
            Value::Object(
                map.into_iter()
                    .map(|(key, value)| (today(key), renamed(value)))
                    .collect::<Map<_, _>>(),
            )
        }
        other => other,
    }
}
