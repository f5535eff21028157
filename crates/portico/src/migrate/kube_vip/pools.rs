//! The ConfigMap `kubevip` of kube-vip's cloud provider has the addresses of load balancers: pools.
//! Pure.

use super::super::report::{Document, File, Remark, object_name};
use serde_json::{Value, json};

/// What may have addresses or settings, each for one namespace or `global`.
const KINDS: &[&str] = &[
    "cidr",
    "range",
    "interface",
    "allow-share",
    "skip-end-ips-in-cidr",
    "search-order",
    "loadbalancerClass",
];

pub(super) fn translate(config_map: &Value, file: &mut File) {
    let data = config_map
        .get("data")
        .and_then(Value::as_object)
        .into_iter()
        .flatten();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let settings: Vec<(String, String)> = data
        .map(|(key, value)| (key.clone(), text(value)))
        .collect();
    let mut owners: Vec<&str> = Vec::new();
    for (key, value) in &settings {
        match split(key) {
            Some(("cidr" | "range", owner)) => owners.push(owner),
            Some(_) => {}
            None => file.warn(format!("ConfigMap: {key}: {value:?} has no equivalent")),
        }
    }
    owners.sort();
    owners.dedup();
    for owner in owners {
        let of_owner = settings
            .iter()
            .filter_map(|(key, value)| Some((split(key)?, value.as_str())));
        let of_owner: Vec<(&str, &str)> = of_owner
            .filter(|((_, other), _)| *other == owner)
            .map(|((kind, _), value)| (kind, value))
            .collect();
        file.documents.push(pool(owner, &of_owner));
    }
}

/// `range-global` is `range` of `global`.
fn split(key: &str) -> Option<(&'static str, &str)> {
    KINDS
        .iter()
        .find_map(|kind| Some((*kind, key.strip_prefix(kind)?.strip_prefix('-')?)))
}

fn pool(owner: &str, settings: &[(&str, &str)]) -> Document {
    let mut remarks = Vec::new();
    let mut spec = json!({"addresses": []});
    let mut addresses: Vec<String> = Vec::new();
    for (kind, value) in settings {
        match *kind {
            "cidr" | "range" => addresses.extend(
                value
                    .split(',')
                    .map(|one| one.trim().to_owned())
                    .filter(|one| !one.is_empty()),
            ),
            "interface" => spec["interfaces"] = json!([value]),
            "skip-end-ips-in-cidr" => {
                spec["avoidBuggyIPs"] = (*value == "true").into();
                remarks.push(Remark::Note(
                    "skip-end-ips-in-cidr leaves out the first and the last address of a network; \
                     avoidBuggyIPs leaves out .0 and .255"
                        .to_owned(),
                ));
            }
            "allow-share" => remarks.push(Remark::Note(
                "allow-share: Services share an address where they ask for it with the annotation \
                 portico.dev/allow-shared-ip"
                    .to_owned(),
            )),
            _ => remarks.push(Remark::Warning(format!(
                "{kind}-{owner}: {value:?} has no equivalent"
            ))),
        }
    }
    spec["addresses"] = addresses.into();
    if owner != "global" {
        spec["namespaces"] = json!([owner]);
    }
    let name = object_name(&format!("kube-vip-{owner}"));
    let content = json!({"apiVersion": "portico.dev/v1", "kind": "AddressPool", "metadata": {"name": name}, "spec": spec});
    Document { remarks, content }
}

/// How the pools are announced.
pub(super) fn announce(file: &mut File, ways: &[&str], links: Option<&str>) {
    let mut pools = 0;
    for document in file
        .documents
        .iter_mut()
        .filter(|document| document.content["kind"] == "AddressPool")
    {
        pools += 1;
        document.content["spec"]["announce"] = json!(ways);
        if let Some(link) = links.filter(|_| document.content["spec"].get("interfaces").is_none()) {
            document.content["spec"]["interfaces"] = json!([link]);
        }
    }
    if pools == 0 {
        let on = links
            .map(|link| format!(", with interfaces: [{link}]"))
            .unwrap_or_default();
        file.warn(format!(
            "no ConfigMap `kubevip` was given, so it is not known which addresses load \
             balancers have: make an AddressPool (docs/metal.md){on}"
        ));
    }
}
