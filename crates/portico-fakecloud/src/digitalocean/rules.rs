//! What the cloud does with a request that is well formed.

use std::collections::BTreeSet;

use ipnet::IpNet;
use serde_json::{Map, Value, json};

use super::{DigitalOcean, Refusal, State};
use crate::discovery::Matched;

/// What a load balancer has that does not say otherwise.
const DEFAULTS: &str = r#"{
    "name": "", "size_unit": 1, "algorithm": "round_robin", "redirect_http_to_https": false, "enable_proxy_protocol": false,
    "enable_backend_keepalive": false, "http_idle_timeout_seconds": 60, "disable_lets_encrypt_dns_records": false,
    "project_id": "4de7ac8b-495b-4884-9a69-1050c6793cd6", "vpc_uuid": "c33931f2-a26a-4e61-b85c-4e95a2ec431b",
    "network": "EXTERNAL", "network_stack": "IPV4", "type": "REGIONAL", "tls_cipher_policy": "DEFAULT", "tag": "",
    "droplet_ids": [], "firewall": {"allow": [], "deny": []}, "sticky_sessions": {"type": "none"},
    "health_check": {"protocol": "http", "port": 80, "path": "/", "check_interval_seconds": 10,
        "response_timeout_seconds": 5, "healthy_threshold": 3, "unhealthy_threshold": 5}
}"#;
/// Said once, when it is made.
const FIXED: [&str; 4] = ["network", "network_stack", "type", "vpc_uuid"];
const BOUNDS: [(&str, u64, u64); 4] = [
    ("check_interval_seconds", 3, 300),
    ("response_timeout_seconds", 3, 300),
    ("unhealthy_threshold", 2, 10),
    ("healthy_threshold", 2, 10),
];

type Answer = Result<(u16, Value), Refusal>;

pub(super) fn perform(state: &mut State, matched: &Matched, body: Value) -> Answer {
    let id = matched.parameters.get("lb_id").cloned().unwrap_or_default();
    match matched.id.as_str() {
        "loadBalancers_list" => Ok(page(
            "load_balancers",
            state.balancers.values().cloned().collect(),
            matched,
        )),
        "loadBalancers_create" => create(state, body),
        "loadBalancers_get" => Ok((200, json!({"load_balancer": known(state, &id)?}))),
        "loadBalancers_update" => update(state, &id, body),
        "loadBalancers_delete" => {
            known(state, &id)?;
            state.balancers.remove(&id);
            state.waits.remove(&id);
            Ok((204, Value::Null))
        }
        "certificates_list" => {
            let certificate = |(name, id): &(String, String)| json!({"id": id, "name": name, "state": "verified"});
            Ok(page(
                "certificates",
                state.certificates.iter().map(certificate).collect(),
                matched,
            ))
        }
        other => refuse(format!("{other} is not done here")),
    }
}

fn refuse<T>(message: impl Into<String>) -> Result<T, Refusal> {
    Err(Refusal {
        status: 422,
        id: "unprocessable_entity",
        message: message.into(),
    })
}

fn known(state: &State, id: &str) -> Result<Value, Refusal> {
    let message = "The resource you requested could not be found.".to_owned();
    state.balancers.get(id).cloned().ok_or(Refusal {
        status: 404,
        id: "not_found",
        message,
    })
}

fn page(name: &str, all: Vec<Value>, matched: &Matched) -> (u16, Value) {
    let number = |name: &str| {
        matched
            .parameters
            .get(name)
            .and_then(|text| text.parse::<usize>().ok())
    };
    let (total, at, size) = (
        all.len(),
        number("page").unwrap_or(1),
        number("per_page").unwrap_or(20),
    );
    let items: Vec<Value> = all.into_iter().skip((at - 1) * size).take(size).collect();
    let mut links = json!({});
    if at * size < total {
        let next = format!(
            "https://api.digitalocean.com/v2/{name}?page={}&per_page={size}",
            at + 1
        );
        links = json!({"pages": {"next": next}});
    }
    (
        200,
        json!({name: items, "links": links, "meta": {"total": total}}),
    )
}

fn create(state: &mut State, body: Value) -> Answer {
    let made = make(state, body)?;
    let id = made["id"].as_str().unwrap_or_default().to_owned();
    let looks = state.looks;
    state.waits.insert(id.clone(), looks);
    state.balancers.insert(id, made.clone());
    Ok((202, json!({"load_balancer": made})))
}

/// A new one, with an id.
fn make(state: &mut State, body: Value) -> Result<Value, Refusal> {
    let mut made = complete(&body)?;
    check(state, &made)?;
    let number = state.number();
    made["id"] = format!("{number:08x}-0000-4000-8000-{number:012x}").into();
    made["created_at"] =
        format!("2026-01-01T00:{:02}:{:02}Z", number / 60 % 60, number % 60).into();
    (made["status"], made["ip"]) = ("new".into(), "".into());
    Ok(made)
}

/// Every field is as the request says, or has its default.
fn update(state: &mut State, id: &str, body: Value) -> Answer {
    let (old, mut made) = (known(state, id)?, complete(&body)?);
    for name in FIXED {
        if body.get(name).is_some_and(|value| *value != old[name]) {
            return refuse(format!("{name} cannot be changed"));
        }
    }
    check(state, &made)?;
    for name in FIXED
        .into_iter()
        .chain(["id", "created_at", "status", "ip", "ipv6"])
    {
        if let Some(value) = old.get(name) {
            made[name] = value.clone();
        }
    }
    state.balancers.insert(id.to_owned(), made.clone());
    Ok((200, json!({"load_balancer": made})))
}

fn complete(body: &Value) -> Result<Value, Refusal> {
    let defaults: Map<String, Value> = serde_json::from_str(DEFAULTS).unwrap_or_default();
    let mut made = Value::Object(defaults);
    for (name, value) in body.as_object().into_iter().flatten() {
        match (
            made.get_mut(name).and_then(Value::as_object_mut),
            value.as_object(),
        ) {
            (Some(old), Some(new)) => old.extend(new.clone()),
            _ => made[name] = value.clone(),
        }
    }
    for rule in made["forwarding_rules"]
        .as_array_mut()
        .into_iter()
        .flatten()
    {
        let said = rule.take();
        *rule = json!({"certificate_id": "", "tls_passthrough": false});
        rule.as_object_mut()
            .into_iter()
            .for_each(|rule| rule.extend(said.as_object().cloned().unwrap_or_default()));
    }
    if made["region"] != DigitalOcean::REGION {
        return refuse(format!("region {} is not available", made["region"]));
    }
    made["region"] = json!({"slug": DigitalOcean::REGION, "name": "Frankfurt 1", "available": true, "sizes": [],
        "features": ["private_networking", "ipv6"]});
    Ok(made)
}

fn check(state: &State, made: &Value) -> Result<(), Refusal> {
    if !made["name"].as_str().is_some_and(is_name) {
        return refuse(format!(
            "Name can only contain alphanumeric characters, dashes, and periods: {}",
            made["name"]
        ));
    }
    for id in items(&made["droplet_ids"]) {
        if !id.as_u64().is_some_and(|id| state.droplets.contains(&id)) {
            return refuse(format!("Droplet {id} was not found"));
        }
    }
    for rule in items(&made["firewall"]["allow"]).chain(items(&made["firewall"]["deny"])) {
        let text = rule.as_str().unwrap_or_default();
        let address = text
            .strip_prefix("ip:")
            .is_some_and(|ip| ip.parse::<std::net::IpAddr>().is_ok());
        let range = text
            .strip_prefix("cidr:")
            .is_some_and(|range| range.parse::<IpNet>().is_ok());
        if !address && !range {
            return refuse(format!("firewall rule {rule} is invalid"));
        }
    }
    for (name, least, most) in BOUNDS {
        if !made["health_check"][name]
            .as_u64()
            .is_some_and(|number| (least..=most).contains(&number))
        {
            return refuse(format!(
                "health_check.{name} has to be from {least} to {most}"
            ));
        }
    }
    let sticky = &made["sticky_sessions"];
    if sticky["type"] == "cookies"
        && (sticky["cookie_name"].is_null() || sticky["cookie_ttl_seconds"].is_null())
    {
        return refuse("sticky_sessions need a cookie_name and cookie_ttl_seconds");
    }
    if made["network"] == "INTERNAL" && made["network_stack"] == "DUALSTACK" {
        return refuse("an internal load balancer has no IPv6");
    }
    check_rules(state, made)
}

fn check_rules(state: &State, made: &Value) -> Result<(), Refusal> {
    let mut taken = BTreeSet::new();
    for rule in items(&made["forwarding_rules"]) {
        let word = |name: &str| rule[name].as_str().unwrap_or_default();
        let (entry, target, certificate) = (
            word("entry_protocol"),
            word("target_protocol"),
            word("certificate_id"),
        );
        let is_udp = ["udp", "http3"].contains(&entry);
        if !taken.insert((is_udp, rule["entry_port"].as_u64())) {
            return refuse(format!("entry port {} is there twice", rule["entry_port"]));
        }
        if (entry == "udp") != (target == "udp") {
            return refuse("entry_protocol and target_protocol have to be udp both");
        }
        let (has_certificate, passes) = (!certificate.is_empty(), rule["tls_passthrough"] == true);
        let is_secure = ["https", "http2", "http3"].contains(&entry);
        if is_secure != (has_certificate != passes) {
            return refuse(format!(
                "{entry} needs a certificate or tls_passthrough, others do not"
            ));
        }
        if has_certificate && !state.certificates.iter().any(|(_, id)| id == certificate) {
            return refuse(format!("certificate {certificate} was not found"));
        }
        let passes_packets = made["type"] == "REGIONAL_NETWORK";
        if passes_packets
            && (!["tcp", "udp"].contains(&entry) || made["enable_proxy_protocol"] == true)
        {
            return refuse("a network load balancer has TCP and UDP only");
        }
        if passes_packets && rule["entry_port"] != rule["target_port"] {
            return refuse("a network load balancer does not translate ports");
        }
    }
    Ok(())
}

/// Makes a new load balancer active, or errored.
pub(super) fn finish(balancer: &mut Value, number: u64, fails: bool) {
    if fails {
        balancer["status"] = "errored".into();
        return;
    }
    balancer["status"] = "active".into();
    let network = if balancer["network"] == "INTERNAL" {
        "10.116.0"
    } else {
        "203.0.113"
    };
    balancer["ip"] = format!("{network}.{}", number % 256).into();
    if balancer["network_stack"] == "DUALSTACK" {
        balancer["ipv6"] = format!("2001:db8::{number:x}").into();
    }
}

/// A load balancer of another user.
pub(super) fn of_others(state: &mut State, name: &str) -> Value {
    let rule = json!({"entry_protocol": "tcp", "entry_port": 1, "target_protocol": "tcp", "target_port": 2});
    let body = json!({"name": name, "region": DigitalOcean::REGION, "droplet_ids": [], "forwarding_rules": [rule]});
    let Ok(mut made) = make(state, body) else {
        return Value::Null;
    };
    finish(&mut made, 1, false);
    made
}

fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

fn is_name(name: &str) -> bool {
    let letter = |letter: char| letter.is_ascii_alphanumeric() || ".-".contains(letter);
    name.starts_with(|first: char| first.is_ascii_alphanumeric())
        && name.chars().all(letter)
        && !name.ends_with('-')
        && name.len() <= 255
}
