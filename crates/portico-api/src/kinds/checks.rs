//! Checks and defaults that several kinds share.

use crate::field::{Error, Errors, Path};
use crate::{names, object};
use serde_json::{Map, Value};
use std::net::IpAddr;

/// Makes an error of each message.
pub(crate) fn invalid_all(path: &Path, value: &str, messages: Vec<String>) -> Errors {
    messages
        .into_iter()
        .map(|message| Error::invalid(path, value, message))
        .collect()
}

/// A map of labels: keys and values.
pub(crate) fn labels(map: &Value, path: &Path) -> Errors {
    let mut errors = Errors::new();
    for (key, value) in map.as_object().into_iter().flatten() {
        let value = value.as_str().unwrap_or_default();
        errors.extend(invalid_all(path, key, names::qualified_name(key)));
        errors.extend(invalid_all(path, value, names::label_value(value)));
    }
    errors
}

/// A selector in its object form: `matchLabels` and `matchExpressions`.
pub(crate) fn label_selector(selector: &Value, path: &Path) -> Errors {
    let mut errors = labels(
        object::at(selector, "matchLabels"),
        &path.child("matchLabels"),
    );
    let expressions = path.child("matchExpressions");
    for (index, expression) in object::items(selector, "matchExpressions")
        .iter()
        .enumerate()
    {
        errors.extend(selector_expression(expression, &expressions.index(index)));
    }
    errors
}

fn selector_expression(expression: &Value, path: &Path) -> Errors {
    let mut errors = Errors::new();
    let values = object::items(expression, "values");
    let values_path = path.child("values");
    match object::text(expression, "operator") {
        "In" | "NotIn" if values.is_empty() => {
            errors.push(Error::required(
                &values_path,
                "must be specified when `operator` is 'In' or 'NotIn'",
            ));
        }
        "In" | "NotIn" => {}
        "Exists" | "DoesNotExist" if !values.is_empty() => errors.push(Error::forbidden(
            &values_path,
            "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
        )),
        "Exists" | "DoesNotExist" => {}
        other => errors.push(Error::invalid(
            &path.child("operator"),
            other,
            "not a valid selector operator",
        )),
    }
    let key = object::text(expression, "key");
    errors.extend(invalid_all(
        &path.child("key"),
        key,
        names::qualified_name(key),
    ));
    for (index, value) in values.iter().filter_map(Value::as_str).enumerate() {
        errors.extend(invalid_all(
            &values_path.index(index),
            value,
            names::label_value(value),
        ));
    }
    errors
}

/// A word of a fixed set, required.
pub(crate) fn word(value: &str, path: &Path, words: &[&str]) -> Errors {
    match value {
        "" => vec![Error::required(path, "")],
        given => given_word(given, path, words),
    }
}

/// A word of a fixed set that need not be given: an empty one was given, and is none of the set.
pub(crate) fn given_word(value: &str, path: &Path, words: &[&str]) -> Errors {
    if words.contains(&value) {
        Errors::new()
    } else {
        vec![Error::not_supported(path, value, words)]
    }
}

pub(crate) fn protocol(value: &str, path: &Path) -> Errors {
    word(value, path, &["TCP", "UDP", "SCTP"])
}

/// An optional application protocol.
pub(crate) fn app_protocol(port: &Value, path: &Path) -> Errors {
    match port.get("appProtocol").and_then(Value::as_str) {
        Some(name) => invalid_all(
            &path.child("appProtocol"),
            name,
            names::qualified_name(name),
        ),
        None => Errors::new(),
    }
}

/// An optional DNS label.
pub(crate) fn dns_label(object: &Value, key: &str, path: &Path) -> Errors {
    match object.get(key).and_then(Value::as_str) {
        Some(name) => invalid_all(&path.child(key), name, names::dns_label(name, false)),
        None => Errors::new(),
    }
}

/// An optional name of a node or another object with a DNS name.
pub(crate) fn dns_subdomain(object: &Value, key: &str, path: &Path) -> Errors {
    match object.get(key).and_then(Value::as_str) {
        Some(name) => invalid_all(&path.child(key), name, names::dns_subdomain(name, false)),
        None => Errors::new(),
    }
}

/// The value must be the one it was.
pub(crate) fn immutable(new: &Value, old: &Value, path: &Path) -> Errors {
    if new == old {
        Errors::new()
    } else {
        vec![Error::invalid(path, new.clone(), "field is immutable")]
    }
}

pub(crate) fn address(text: &str, path: &Path) -> Errors {
    invalid_all(path, text, names::address(text).err().into_iter().collect())
}

/// An address that can serve: not unspecified, loopback or link-local.
pub(crate) fn endpoint_address(text: &str, path: &Path) -> Errors {
    match names::address(text) {
        Err(message) => vec![Error::invalid(path, text, message)],
        Ok(ip) => invalid_all(path, text, unfit(ip)),
    }
}

fn unfit(ip: IpAddr) -> Vec<String> {
    let (local, local_multicast) = match ip {
        IpAddr::V4(v4) => (v4.is_link_local(), v4.octets().starts_with(&[224, 0, 0])),
        IpAddr::V6(v6) => (
            v6.is_unicast_link_local(),
            v6.segments()[0] & 0xff0f == 0xff02,
        ),
    };
    [
        (
            ip.is_unspecified(),
            format!("may not be unspecified ({ip})"),
        ),
        (
            ip.is_loopback(),
            "may not be in the loopback range (127.0.0.0/8, ::1/128)".to_owned(),
        ),
        (
            local,
            "may not be in the link-local range (169.254.0.0/16, fe80::/10)".to_owned(),
        ),
        (
            local_multicast,
            "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)".to_owned(),
        ),
    ]
    .into_iter()
    .filter_map(|(found, message)| found.then_some(message))
    .collect()
}

/// A warning for an IPv6 address that is not written in its canonical form.
pub(crate) fn address_warning(text: &str, path: &Path) -> Option<String> {
    match text.parse::<IpAddr>() {
        Ok(IpAddr::V6(ip)) if ip.to_string() != text => Some(format!(
            "{path}: IPv6 address {text:?} should be in RFC 5952 canonical format (\"{ip}\")"
        )),
        _ => None,
    }
}

/// Addresses of which there may be one per family: `podIPs`, `hostIPs`.
pub(crate) fn one_per_family(items: &[Value], path: &Path) -> Errors {
    let texts: Vec<&str> = items.iter().map(|item| object::text(item, "ip")).collect();
    let mut errors: Errors = texts
        .iter()
        .enumerate()
        .flat_map(|(index, text)| address(text, &path.index(index)))
        .collect();
    let families = texts.iter().filter_map(|text| names::address(text).ok());
    if texts.len() > 1 && !is_pair(families) {
        errors.push(Error::invalid(
            path,
            items.to_vec(),
            "may specify no more than one IP for each IP family",
        ));
    }
    errors
}

/// Exactly one IPv4 and one IPv6 address.
pub(crate) fn is_pair(addresses: impl Iterator<Item = IpAddr>) -> bool {
    let (v4, v6): (Vec<IpAddr>, Vec<IpAddr>) = addresses.partition(IpAddr::is_ipv4);
    v4.len() == 1 && v6.len() == 1
}

/// A network in CIDR notation, strictly: no leading zeros, no host bits.
pub(crate) fn cidr(text: &str) -> Result<IpAddr, &'static str> {
    const WRONG: &str = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)";
    let (ip, length) = text.split_once('/').ok_or(WRONG)?;
    let bits: u32 = match length.bytes().all(|b| b.is_ascii_digit()) {
        true => length.parse().map_err(|_| WRONG)?,
        false => return Err(WRONG),
    };
    let ip = names::address(ip).map_err(|message| match message.as_str() {
        "must not have leading 0s" => "must not have leading 0s in IP or prefix length",
        "must not be an IPv4-mapped IPv6 address" => "must not have an IPv4-mapped IPv6 address",
        _ => WRONG,
    })?;
    let (value, width) = match ip {
        IpAddr::V4(v4) => (u128::from(v4.to_bits()), 32),
        IpAddr::V6(v6) => (v6.to_bits(), 128),
    };
    if bits > width {
        return Err(WRONG);
    }
    if length.len() > 1 && length.starts_with('0') {
        return Err("must not have leading 0s in IP or prefix length");
    }
    let host_bits = 1_u128
        .checked_shl(width - bits)
        .map_or(u128::MAX, |bit| bit - 1);
    if value & host_bits != 0 {
        Err("must not have bits set beyond the prefix length")
    } else {
        Ok(ip)
    }
}

/// A key in the data of a ConfigMap or Secret.
pub(crate) fn data_key(key: &str) -> Vec<String> {
    let good = !key.is_empty()
        && key
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"-._".contains(&b));
    let mut messages = Vec::new();
    if key.len() > 253 {
        messages.push("must be no more than 253 characters".to_owned());
    }
    if !good {
        messages.push(
            "a valid config key must consist of alphanumeric characters, '-', '_' or '.' \
             (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is \
             '[-._a-zA-Z0-9]+')"
                .to_owned(),
        );
    }
    match key {
        "." => messages.push("must not be '.'".to_owned()),
        ".." => messages.push("must not be '..'".to_owned()),
        _ if key.starts_with("..") => messages.push("must not start with '..'".to_owned()),
        _ => {}
    }
    messages
}

/// The value of a quantity such as `100m` or `1Gi`.
pub(crate) fn quantity(value: &Value) -> Option<f64> {
    let number;
    let text = match value {
        Value::String(text) => text.as_str(),
        other => {
            number = other.to_string();
            &number
        }
    };
    let end = text
        .find(|c: char| !(c.is_ascii_digit() || "+-.".contains(c)))
        .unwrap_or(text.len());
    let (digits, suffix) = text.split_at(end);
    let digits: f64 = digits.parse().ok()?;
    let binary = |power: i32| digits * 1024_f64.powi(power);
    Some(match suffix {
        "" => digits,
        "n" => digits / 1e9,
        "u" => digits / 1e6,
        "m" => digits / 1e3,
        "k" => digits * 1e3,
        "M" => digits * 1e6,
        "G" => digits * 1e9,
        "T" => digits * 1e12,
        "P" => digits * 1e15,
        "E" => digits * 1e18,
        "Ki" => binary(1),
        "Mi" => binary(2),
        "Gi" => binary(3),
        "Ti" => binary(4),
        "Pi" => binary(5),
        "Ei" => binary(6),
        _ => digits * 10_f64.powi(suffix.strip_prefix(['e', 'E'])?.parse().ok()?),
    })
}

/// Set a default where the field is absent or has its zero value.
pub(crate) fn fill(map: &mut Map<String, Value>, key: &str, value: impl Into<Value>) {
    if map
        .get(key)
        .is_none_or(|old| old.is_null() || old == "" || old == 0)
    {
        map.insert(key.to_owned(), value.into());
    }
}

/// Set a default where the field is absent: one that tells its zero value from absence.
pub(crate) fn fill_absent(map: &mut Map<String, Value>, key: &str, value: impl Into<Value>) {
    if map.get(key).is_none_or(Value::is_null) {
        map.insert(key.to_owned(), value.into());
    }
}

/// The items of a list, to be changed.
pub(crate) fn items_mut<'a>(
    object: &'a mut Value,
    key: &str,
) -> impl Iterator<Item = &'a mut Value> {
    object
        .get_mut(key)
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
}

/// A plural field and its older singular are kept in step: the singular wins where both are given
/// and differ.
pub(crate) fn in_step(map: &mut Map<String, Value>, single: &str, plural: &str, key: Option<&str>) {
    let first = |item: &Value| key.map_or(Some(item), |key| item.get(key)).cloned();
    let list_first = map
        .get(plural)
        .and_then(Value::as_array)
        .and_then(|items| first(items.first()?));
    match (
        map.get(single).filter(|value| !value.is_null()).cloned(),
        list_first,
    ) {
        (Some(one), listed) if listed.as_ref() != Some(&one) => {
            let item = match key {
                Some(key) => Value::Object(Map::from_iter([(key.to_owned(), one)])),
                None => one,
            };
            map.insert(plural.to_owned(), Value::Array(vec![item]));
        }
        (None, Some(listed)) => {
            map.insert(single.to_owned(), listed);
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests;
