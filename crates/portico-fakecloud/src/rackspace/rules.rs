//! What the cloud does with a request that is well formed.

use serde_json::{Value, json};

use super::store::Store;
use super::{Rackspace, Refusal, refuse};
use crate::discovery::Matched;

const ACCOUNT: &str = "110011";
const MOST_ITEMS: usize = 100;
const MOST_NODES: usize = 25;
/// The most load balancers that one call deletes.
const MOST_IDS: usize = 10;
/// Ids of IPv6 addresses begin here.
const FIRST_IPV6: u64 = 9_000_000;
/// In lists.
const SHORT: [&str; 11] = [
    "name",
    "id",
    "protocol",
    "port",
    "algorithm",
    "status",
    "timeout",
    "created",
    "virtualIps",
    "updated",
    "nodeCount",
];

type Answer = Result<(u16, Value), Refusal>;

pub(super) fn perform(store: &mut Store, matched: &Matched, body: Value, token: &str) -> Answer {
    store.tick();
    let parameter = |name: &str| {
        matched
            .parameters
            .get(name)
            .map(String::as_str)
            .unwrap_or_default()
    };
    if matched.id == "tokens.create" {
        return log_in(store, &body["auth"]["RAX-KSKEY:apiKeyCredentials"]);
    }
    if token != format!("token-{}", store.token) || parameter("account") != ACCOUNT {
        return refuse(401, "unauthorized");
    }
    let ids: Vec<u64> = parameter("id")
        .split(',')
        .filter_map(|id| id.parse().ok())
        .collect();
    if ids.len() > MOST_IDS {
        return refuse(
            400,
            format!("the limit of accepted parameters is: {MOST_IDS}"),
        );
    }
    match matched.id.as_str() {
        "loadBalancers.list" => {
            return Ok((200, list(store, parameter("limit"), parameter("marker"))));
        }
        "loadBalancers.create" => {
            let id = insert(store, body["loadBalancer"].clone())?;
            return Ok((202, json!({"loadBalancer": store.balancers[&id].value})));
        }
        "loadBalancers.deleteAll" => return delete(store, &ids),
        _ => {}
    }
    let id = parameter("loadBalancerId").parse().unwrap_or(0);
    let Some(stored) = store.balancers.get(&id) else {
        return refuse(404, "Load balancer not found");
    };
    let mut value = stored.value.clone();
    match matched.id.as_str() {
        "loadBalancers.get" => return Ok((200, json!({ "loadBalancer": value }))),
        "nodes.list" => return Ok((200, json!({"nodes": items(&value, "nodes")}))),
        "loadBalancers.delete" => return delete(store, &[id]),
        _ => {}
    }
    if value["status"] != "ACTIVE" {
        let status = value["status"].as_str().unwrap_or_default();
        let message =
            format!("Load Balancer '{id}' has a status of '{status}' and is considered immutable.");
        return refuse(422, message);
    }
    let answer = change(store, &matched.id, &mut value, &body, &ids)?;
    store.start(id, value, "PENDING_UPDATE", "ACTIVE");
    Ok((202, answer))
}

fn log_in(store: &Store, credentials: &Value) -> Answer {
    if credentials["username"] != Rackspace::USER || credentials["apiKey"] != Rackspace::KEY {
        return refuse(401, "Username or api key is invalid.");
    }
    let endpoint = |region: &str| {
        let url = format!(
            "https://{}.loadbalancers.test/v1.0/{ACCOUNT}",
            region.to_lowercase()
        );
        json!({"region": region, "tenantId": ACCOUNT, "publicURL": url})
    };
    let catalog = json!([
        {"name": "cloudDNS", "type": "rax:dns", "endpoints": [{"publicURL": "https://dns.test/v1.0", "tenantId": ACCOUNT}]},
        {"name": "cloudLoadBalancers", "type": "rax:load-balancer", "endpoints": [endpoint("DFW"), endpoint("ORD")]},
    ]);
    let token =
        json!({"id": format!("token-{}", store.token), "expires": "2126-11-24T22:05:39.115Z"});
    Ok((
        200,
        json!({"access": {"token": token, "serviceCatalog": catalog}}),
    ))
}

fn list(store: &Store, limit: &str, marker: &str) -> Value {
    let limit = limit.parse().unwrap_or(MOST_ITEMS).min(MOST_ITEMS);
    let short = |value: &Value| {
        let mut short: Value = SHORT
            .iter()
            .map(|name| ((*name).to_owned(), value[*name].clone()))
            .collect();
        short["nodeCount"] = items(value, "nodes").len().into();
        short
    };
    let from = store.balancers.range(marker.parse().unwrap_or(0)..);
    let page: Vec<Value> = from
        .take(limit)
        .map(|(_, stored)| short(&stored.value))
        .collect();
    json!({ "loadBalancers": page })
}

fn delete(store: &mut Store, ids: &[u64]) -> Answer {
    let named = |ids: Vec<&u64>| {
        ids.into_iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join(",")
    };
    let absent: Vec<&u64> = ids
        .iter()
        .filter(|id| !store.balancers.contains_key(*id))
        .collect();
    if !absent.is_empty() {
        return refuse(
            400,
            format!(
                "Must provide valid load balancers: {}  could not be found.",
                named(absent)
            ),
        );
    }
    let can_go = |id: &u64| {
        ["ACTIVE", "ERROR"]
            .iter()
            .any(|status| store.balancers[id].value["status"] == *status)
    };
    let busy: Vec<&u64> = ids.iter().filter(|id| !can_go(id)).collect();
    if !busy.is_empty() {
        let message = "are immutable and could not be processed.";
        return refuse(
            400,
            format!(
                "Must provide valid load balancers: {}  {message}",
                named(busy)
            ),
        );
    }
    for id in ids {
        let value = store.balancers[id].value.clone();
        store.start(*id, value, "PENDING_DELETE", "DELETED");
    }
    Ok((202, Value::Null))
}

/// A new one. Its id.
pub(super) fn insert(store: &mut Store, mut value: Value) -> Result<u64, Refusal> {
    if store.balancers.len() >= store.quota {
        return refuse(413, "Load balancer limit reached.");
    }
    let udp = value["protocol"]
        .as_str()
        .is_some_and(|protocol| protocol.contains("UDP"));
    if udp && !value["healthMonitor"].is_null() {
        return refuse(
            400,
            "Protocol UDP, UDP_STREAM and DNS_UDP are not allowed with health monitors.",
        );
    }
    value["virtualIps"] = addresses(store, &value)?.into();
    let nodes = std::mem::take(&mut value["nodes"]);
    let items = std::mem::take(&mut value["accessList"]);
    _ = add(store, &mut value, "nodes", &nodes)?;
    _ = add(store, &mut value, "accessList", &items)?;
    let id = store.number();
    value["id"] = id.into();
    value["created"] = json!({"time": "2026-11-30T03:23:42Z"});
    for (field, default) in [
        ("algorithm", json!("RANDOM")),
        ("timeout", json!(30)),
        ("halfClosed", json!(false)),
    ] {
        if value[field].is_null() {
            value[field] = default;
        }
    }
    for meta in value
        .get_mut("metadata")
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
    {
        meta["id"] = store.number().into();
    }
    let then = if store.broken { "ERROR" } else { "ACTIVE" };
    store.start(id, value, "BUILD", then);
    Ok(id)
}

/// The addresses of a new load balancer: new ones, or those that it shares with others.
fn addresses(store: &mut Store, value: &Value) -> Result<Vec<Value>, Refusal> {
    let wishes = items(value, "virtualIps");
    if let [wish] = &wishes[..]
        && wish["id"].is_null()
    {
        let (kind, version) = (&wish["type"], wish["ipVersion"].as_str());
        let mut made = Vec::new();
        if version != Some("IPV6") {
            let id = store.number();
            let network = if kind == "PUBLIC" {
                "203.0.113"
            } else {
                "10.191.0"
            };
            made.push(
                json!({"id": id, "address": format!("{network}.{}", id % 250 + 1), "type": kind, "ipVersion": "IPV4"}),
            );
        }
        if version == Some("IPV6") || version.is_none() && kind == "PUBLIC" {
            let id = store.number();
            let address = format!("2001:0db8:0000:0000:0000:0000:0000:{id:04x}");
            made.push(json!({"id": FIRST_IPV6 + id, "address": address, "type": "PUBLIC", "ipVersion": "IPV6"}));
        }
        return Ok(made);
    }
    wishes
        .iter()
        .map(|wish| shared(store, wish, value))
        .collect()
}

fn shared(store: &Store, wish: &Value, value: &Value) -> Result<Value, Refusal> {
    if !wish["type"].is_null() || !wish["ipVersion"].is_null() {
        return refuse(400, "If sharing a virtual ip please only specify the id.");
    }
    let mut found = None;
    for other in store.balancers.values().map(|stored| &stored.value) {
        let Some(vip) = items(other, "virtualIps")
            .into_iter()
            .find(|vip| vip["id"] == wish["id"])
        else {
            continue;
        };
        if other["port"] == value["port"] && other["protocol"] == value["protocol"] {
            return refuse(
                400,
                "Another load balancer is currently using the requested port with the shared \
                 virtual ip.",
            );
        }
        found = Some(vip);
    }
    found
        .ok_or(())
        .or_else(|()| refuse(400, "Shared virtual ip could not be found."))
}

fn change(
    store: &mut Store,
    method: &str,
    value: &mut Value,
    body: &Value,
    ids: &[u64],
) -> Result<Value, Refusal> {
    match method {
        "loadBalancers.update" => {
            for (name, field) in body["loadBalancer"].as_object().into_iter().flatten() {
                value[name] = field.clone();
            }
        }
        "healthMonitor.set" => value["healthMonitor"] = body["healthMonitor"].clone(),
        "sessionPersistence.set" => {
            value["sessionPersistence"] = body["sessionPersistence"].clone()
        }
        "sessionPersistence.delete" if value["sessionPersistence"].is_null() => {
            return refuse(422, "Session persistence is already deleted.");
        }
        "healthMonitor.delete" => forget(value, "healthMonitor"),
        "sessionPersistence.delete" => forget(value, "sessionPersistence"),
        "nodes.create" => return Ok(json!({"nodes": add(store, value, "nodes", &body["nodes"])?})),
        "accessList.create" => _ = add(store, value, "accessList", &body["accessList"])?,
        "nodes.deleteAll" => take(value, "nodes", ids)?,
        "accessList.delete" if ids.is_empty() => match value["accessList"].is_null() {
            true => return refuse(422, "No access list found to delete"),
            false => forget(value, "accessList"),
        },
        "accessList.delete" => take(value, "accessList", ids)?,
        _ => return refuse(405, "not allowed"),
    }
    Ok(Value::Null)
}

fn forget(value: &mut Value, field: &str) {
    _ = value
        .as_object_mut()
        .and_then(|fields| fields.remove(field));
}

fn items(value: &Value, field: &str) -> Vec<Value> {
    value[field].as_array().cloned().unwrap_or_default()
}

/// Nodes or network items, as they are then.
fn add(
    store: &mut Store,
    value: &mut Value,
    field: &str,
    new: &Value,
) -> Result<Vec<Value>, Refusal> {
    let (mut all, mut added) = (items(value, field), Vec::new());
    for mut item in new.as_array().cloned().unwrap_or_default() {
        if all
            .iter()
            .any(|other| other["address"] == item["address"] && other["port"] == item["port"])
        {
            return refuse(
                422,
                "Duplicate nodes detected. One or more nodes already configured on load balancer.",
            );
        }
        item["id"] = store.number().into();
        if field == "nodes" {
            (item["status"], item["weight"], item["type"]) =
                ("ONLINE".into(), 1.into(), "PRIMARY".into());
        }
        all.push(item.clone());
        added.push(item);
    }
    if field == "nodes" && all.len() > MOST_NODES {
        return refuse(
            413,
            format!("Nodes must not exceed {MOST_NODES} per load balancer."),
        );
    }
    if all.len() > MOST_ITEMS {
        return refuse(
            400,
            format!("Access list size must not exceed {MOST_ITEMS} items."),
        );
    }
    put(value, field, all);
    Ok(added)
}

/// No list in place of an empty one.
fn put(value: &mut Value, field: &str, all: Vec<Value>) {
    match all.is_empty() {
        true => forget(value, field),
        false => value[field] = all.into(),
    }
}

fn take(value: &mut Value, field: &str, ids: &[u64]) -> Result<(), Refusal> {
    let mut all = items(value, field);
    let is_there = |id: &&u64| all.iter().any(|item| item["id"] == **id);
    if let Some(id) = ids.iter().find(|id| !is_there(id)) {
        return refuse(
            400,
            format!("Node ids {id} are not a part of your loadbalancer"),
        );
    }
    all.retain(|item| !ids.iter().any(|id| item["id"] == *id));
    put(value, field, all);
    Ok(())
}
