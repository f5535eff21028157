//! What the cloud does with a request that is well formed.

use std::net::Ipv4Addr;

use serde_json::{Value, json};

use super::store::{Effect, Key, Kind, Pending, Store};
use super::{Gce, Refusal, refuse};
use crate::discovery::Matched;

/// As the real one: not the host that clients ask.
const LINKS: &str = "https://www.googleapis.com/compute/v1/projects/";
/// A page has no more than this, whatever is asked for.
const MOST_ITEMS: usize = 100;
/// Instances that a pool is made with, and that it takes at a time.
const FIRST_INSTANCES: usize = 200;
const MORE_INSTANCES: usize = 1000;
/// 203.0.113.0
const FIRST_ADDRESS: u32 = 0xcb00_7100;

pub(super) fn perform(store: &mut Store, matched: &Matched, body: Value) -> Result<Value, Refusal> {
    store.tick();
    let parameter = |name: &str| {
        matched
            .parameters
            .get(name)
            .map(String::as_str)
            .unwrap_or_default()
    };
    if parameter("project") != Gce::PROJECT || !["", Gce::REGION].contains(&parameter("region")) {
        return refuse(404, "notFound", "there is no such project or region");
    }
    let parts: Vec<&str> = matched.id.split('.').collect();
    let [_, collection, verb] = parts[..] else {
        return refuse(404, "notFound", "no method");
    };
    let Some(kind) = Kind::of_collection(collection) else {
        return operation(store, parameter("operation"));
    };
    // The parameter with the name is called as the kind is.
    let singular = collection.trim_end_matches("es").trim_end_matches('s');
    let name = matched
        .parameters
        .iter()
        .find(|(key, _)| key.starts_with(singular))
        .map(|(_, name)| name.as_str());
    let name = name.or(body["name"].as_str()).unwrap_or_default();
    let key = Key::new(kind, parameter("zone"), name);
    match verb {
        "get" => found(store, &key).cloned(),
        "list" => list(store, kind, matched),
        "insert" => insert(store, key, body),
        "delete" => delete(store, key),
        "patch" => {
            let mut merged = found(store, &key)?.clone();
            merge(&mut merged, &body);
            change(store, "patch", key, merged)
        }
        "update" => {
            let mut replaced = body;
            complete(&key, &mut replaced, found(store, &key)?["id"].clone());
            check_health_check(&replaced)?;
            change(store, "update", key, replaced)
        }
        _ => change_pool(store, verb, key, &body),
    }
}

fn operation(store: &mut Store, name: &str) -> Result<Value, Refusal> {
    let number = name.trim_start_matches("operation-").parse().unwrap_or(0);
    match store.operations.get(&number) {
        Some(pending) => Ok(pending.operation.clone()),
        None => refuse(404, "notFound", format!("operation {name} was not found")),
    }
}

fn found<'a>(store: &'a Store, key: &Key) -> Result<&'a Value, Refusal> {
    match store.get(key) {
        Some(value) => Ok(value),
        None => refuse(
            404,
            "notFound",
            format!("The resource '{}' was not found", path(key)),
        ),
    }
}

fn path(key: &Key) -> String {
    let scope = match key.kind {
        Kind::Instance => format!("zones/{}", key.zone),
        kind if kind.is_regional() => format!("regions/{}", Gce::REGION),
        _ => "global".to_owned(),
    };
    format!(
        "projects/{}/{scope}/{}/{}",
        Gce::PROJECT,
        key.kind.collection(),
        key.name
    )
}

fn link(key: &Key) -> String {
    format!("{LINKS}{}", path(key).trim_start_matches("projects/"))
}

/// What a link of whatever host refers to.
fn parse_link(link: &Value) -> Option<Key> {
    let parts: Vec<&str> = link
        .as_str()?
        .split_once("/projects/")?
        .1
        .split('/')
        .collect();
    match parts[..] {
        [_, "zones", zone, "instances", name] => Some(Key::new(Kind::Instance, zone, name)),
        [_, "regions", _, collection, name] | [_, "global", collection, name] => {
            Some(Key::new(Kind::of_collection(collection)?, "", name))
        }
        _ => None,
    }
}

fn list(store: &Store, kind: Kind, matched: &Matched) -> Result<Value, Refusal> {
    let parameter = |name: &str| matched.parameters.get(name).map(String::as_str);
    let filter = parameter("filter")
        .and_then(|filter| filter.strip_prefix("address = \"")?.strip_suffix('"'));
    let fits = |value: &Value| filter.is_none_or(|wanted| value["address"] == wanted);
    let all = store
        .all(kind, parameter("zone").unwrap_or_default())
        .filter(|(_, value)| fits(value));
    let from: usize = parameter("pageToken")
        .and_then(|token| token.parse().ok())
        .unwrap_or(0);
    let most = parameter("maxResults")
        .and_then(|most| most.parse().ok())
        .unwrap_or(MOST_ITEMS)
        .min(MOST_ITEMS);
    let mut items: Vec<Value> = all
        .skip(from)
        .take(most + 1)
        .map(|(_, value)| value.clone())
        .collect();
    let more = items.len() > most;
    items.truncate(most);
    let mut answer = json!({});
    if !items.is_empty() {
        answer["items"] = Value::from(items);
    }
    if more {
        answer["nextPageToken"] = (from + most).to_string().into();
    }
    Ok(answer)
}

fn insert(store: &mut Store, key: Key, mut body: Value) -> Result<Value, Refusal> {
    if store.get(&key).is_some() || store.is_pending(&key) {
        return refuse(
            409,
            "alreadyExists",
            format!("The resource '{}' already exists", path(&key)),
        );
    }
    match key.kind {
        Kind::Address => prepare_address(store, &mut body)?,
        Kind::ForwardingRule => prepare_rule(store, &mut body)?,
        Kind::TargetPool => prepare_pool(store, &mut body)?,
        Kind::HttpHealthCheck => check_health_check(&body)?,
        Kind::Firewall
            if body["network"].is_null()
                || body["allowed"].as_array().is_none_or(Vec::is_empty) =>
        {
            return refuse(
                400,
                "required",
                "a firewall has a network, and allows something",
            );
        }
        Kind::Firewall | Kind::Instance => {}
    }
    let id = store.number().to_string();
    complete(&key, &mut body, id.into());
    change(store, "insert", key, body)
}

/// What the server adds.
fn complete(key: &Key, body: &mut Value, id: Value) {
    body["selfLink"] = link(key).into();
    body["id"] = id;
    if key.kind.is_regional() {
        body["region"] = format!("{LINKS}{}/regions/{}", Gce::PROJECT, Gce::REGION).into();
    }
}

fn prepare_address(store: &mut Store, body: &mut Value) -> Result<(), Refusal> {
    let number = body["address"].as_str().unwrap_or_default().to_owned();
    if number.is_empty() {
        body["address"] = free_address(store).into();
        body["status"] = "RESERVED".into();
        return Ok(());
    }
    if store
        .all(Kind::Address, "")
        .any(|(_, address)| address["address"] == number)
    {
        return refuse(
            400,
            "invalid",
            format!("IP address '{number}' is already reserved"),
        );
    }
    // Only what is in use can be made to stay.
    let Some((rule, _)) = store
        .all(Kind::ForwardingRule, "")
        .find(|(_, rule)| rule["IPAddress"] == number)
    else {
        return refuse(
            400,
            "invalid",
            format!("IP address '{number}' is not yours"),
        );
    };
    body["users"] = json!([link(&Key::new(Kind::ForwardingRule, "", rule))]);
    body["status"] = "IN_USE".into();
    Ok(())
}

fn free_address(store: &mut Store) -> String {
    let number = u32::try_from(store.number()).unwrap_or_default();
    Ipv4Addr::from(FIRST_ADDRESS + number).to_string()
}

fn prepare_rule(store: &mut Store, body: &mut Value) -> Result<(), Refusal> {
    let Some(pool) = parse_link(&body["target"]) else {
        return refuse(400, "invalid", "a rule has a target");
    };
    found(store, &pool)?;
    if body["IPAddress"].is_null() {
        // One that goes with the rule.
        body["IPAddress"] = free_address(store).into();
        return Ok(());
    }
    let address = body["IPAddress"].clone();
    let Some((_, reserved)) = store
        .all(Kind::Address, "")
        .find(|(_, reserved)| reserved["address"] == address)
    else {
        return refuse(400, "invalid", format!("address {address} is not reserved"));
    };
    if reserved["networkTier"] != body["networkTier"] {
        return refuse(400, "invalid", "the address is of another network tier");
    }
    let overlaps = |rule: &Value| {
        let range = |rule: &Value| ports(rule["portRange"].as_str().unwrap_or_default());
        let ((first, last), (other_first, other_last)) = (range(body), range(rule));
        let same = rule["IPAddress"] == address && rule["IPProtocol"] == body["IPProtocol"];
        same && first <= other_last && other_first <= last
    };
    match store
        .all(Kind::ForwardingRule, "")
        .any(|(_, rule)| overlaps(rule))
    {
        true => refuse(400, "invalid", "a rule has this address and port already"),
        false => Ok(()),
    }
}

fn ports(range: &str) -> (u16, u16) {
    let (first, last) = range.split_once('-').unwrap_or((range, range));
    (first.parse().unwrap_or(0), last.parse().unwrap_or(0))
}

fn prepare_pool(store: &Store, body: &mut Value) -> Result<(), Refusal> {
    let links = |field: &str| body[field].as_array().cloned().unwrap_or_default();
    let (instances, checks) = (links("instances"), links("healthChecks"));
    if instances.len() > FIRST_INSTANCES || checks.len() > 1 {
        return refuse(400, "invalid", "too many instances or health checks");
    }
    body["instances"] = normal(store, &instances)?.into();
    body["healthChecks"] = normal(store, &checks)?.into();
    Ok(())
}

/// Links to what exists, as the server writes them.
fn normal(store: &Store, links: &[Value]) -> Result<Vec<Value>, Refusal> {
    let one = |value: &Value| {
        let Some(key) = parse_link(value) else {
            return refuse(400, "invalid", format!("{value} is no resource"));
        };
        found(store, &key).map(|_| Value::from(link(&key)))
    };
    links.iter().map(one).collect()
}

fn check_health_check(body: &Value) -> Result<(), Refusal> {
    let number = |field: &str, default: i64| body[field].as_i64().unwrap_or(default);
    let right = number("timeoutSec", 5) <= number("checkIntervalSec", 5)
        && (1..=65535).contains(&number("port", 80))
        && (1..=10).contains(&number("healthyThreshold", 2))
        && (1..=10).contains(&number("unhealthyThreshold", 2));
    if right {
        Ok(())
    } else {
        refuse(400, "invalid", "the health check is out of bounds")
    }
}

fn delete(store: &mut Store, key: Key) -> Result<Value, Refusal> {
    found(store, &key)?;
    let uses = |value: &Value| parse_link(value).as_ref() == Some(&key);
    let user = match key.kind {
        Kind::TargetPool => store
            .all(Kind::ForwardingRule, "")
            .find(|(_, rule)| uses(&rule["target"])),
        Kind::HttpHealthCheck => store.all(Kind::TargetPool, "").find(|(_, pool)| {
            pool["healthChecks"]
                .as_array()
                .is_some_and(|checks| checks.iter().any(uses))
        }),
        _ => None,
    };
    if let Some((user, _)) = user {
        let text = format!(
            "The resource '{}' is already being used by '{user}'",
            path(&key)
        );
        return refuse(400, "resourceInUseByAnotherResource", text);
    }
    begin(store, "delete", &key.clone(), vec![Effect::Remove(key)])
}

fn change(store: &mut Store, verb: &str, key: Key, value: Value) -> Result<Value, Refusal> {
    begin(store, verb, &key.clone(), vec![Effect::Put(key, value)])
}

fn change_pool(store: &mut Store, verb: &str, key: Key, body: &Value) -> Result<Value, Refusal> {
    let mut pool = found(store, &key)?.clone();
    let (field, inner) = match verb {
        "addInstance" | "removeInstance" => ("instances", "instance"),
        _ => ("healthChecks", "healthCheck"),
    };
    let asked: Vec<Value> = body[field]
        .as_array()
        .into_iter()
        .flatten()
        .map(|item| item[inner].clone())
        .collect();
    if asked.is_empty() || asked.len() > MORE_INSTANCES {
        return refuse(400, "invalid", format!("{} {field} at a time", asked.len()));
    }
    let mut links = pool[field].as_array().cloned().unwrap_or_default();
    if verb.starts_with("add") {
        let new = normal(store, &asked)?;
        links.extend(
            new.into_iter()
                .filter(|link| !links.contains(link))
                .collect::<Vec<_>>(),
        );
    } else {
        let gone: Vec<_> = asked.iter().map(parse_link).collect();
        links.retain(|link| !gone.contains(&parse_link(link)));
    }
    if field == "healthChecks" && links.len() > 1 {
        return refuse(400, "invalid", "a pool has one health check at most");
    }
    pool[field] = links.into();
    change(store, verb, key, pool)
}

fn begin(store: &mut Store, verb: &str, key: &Key, effects: Vec<Effect>) -> Result<Value, Refusal> {
    if store.is_pending(key) {
        let text = format!("The resource '{}' is not ready", path(key));
        return refuse(400, "resourceNotReady", text);
    }
    let number = store.number();
    let name = format!("operation-{number}");
    let mut operation = json!({
        "id": number.to_string(), "name": name, "kind": "compute#operation", "operationType": verb, "status": "PENDING",
        "targetLink": link(key), "progress": 0,
    });
    if key.kind.is_regional() {
        operation["region"] = format!("{LINKS}{}/regions/{}", Gce::PROJECT, Gce::REGION).into();
    }
    let looks = store.looks;
    store.operations.insert(
        number,
        Pending {
            operation: operation.clone(),
            effects,
            looks,
        },
    );
    Ok(operation)
}

/// RFC 7396.
fn merge(target: &mut Value, patch: &Value) {
    let Some(patch) = patch.as_object() else {
        return target.clone_from(patch);
    };
    for (name, value) in patch {
        match value {
            Value::Null => _ = target.as_object_mut().map(|target| target.remove(name)),
            Value::Object(_) => merge(&mut target[name], value),
            value => target[name] = value.clone(),
        }
    }
}
