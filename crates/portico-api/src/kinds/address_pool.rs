//! Address pools: addresses for load balancers, which Services may have them, and how they are
//! announced.

use super::{Column, Info, Kind, checks, metadata, ranges, table};
use crate::field::{Error, Errors, Path};
use crate::gates::Gates;
use crate::{names, object};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// So many networks and ranges in one pool.
const MOST_RANGES: usize = 256;
const WAYS: &[&str] = &["Layer2", "BGP"];
const KNOWN_COMMUNITIES: &[&str] = &["no-export", "no-advertise", "no-export-subconfed"];

pub(super) struct AddressPool;

static INFO: Info = Info {
    group: "portico.dev",
    version: "v1",
    kind: "AddressPool",
    plural: "addresspools",
    singular: "addresspool",
    short_names: &["pool", "pools"],
    namespaced: false,
    status: true,
    schema: "AddressPool",
    storage: "addresspools",
    columns: COLUMNS,
    ..Info::USUAL
};

const COLUMNS: &[Column] = &[
    table::NAME,
    table::column("Addresses", "The addresses of the pool."),
    table::column(
        "Auto",
        "Whether Services that ask for nothing get an address of the pool.",
    ),
    table::column("Assigned", "How many addresses Services have."),
    table::column("Free-IPv4", "How many IPv4 addresses are left."),
    table::column("Free-IPv6", "How many IPv6 addresses are left."),
    table::wide(
        "Announce",
        "How the network learns where the addresses are.",
    ),
    table::AGE,
];

impl Kind for AddressPool {
    fn info(&self) -> &'static Info {
        &INFO
    }

    fn default(&self, object: &mut Value, _gates: &Gates) {
        let spec = object::child(object, "spec");
        checks::fill_absent(spec, "autoAssign", true);
        if spec
            .get("announce")
            .and_then(Value::as_array)
            .is_none_or(Vec::is_empty)
        {
            spec.insert("announce".to_owned(), json!(WAYS));
        }
        if let Some(bgp) = spec.get_mut("bgp").filter(|bgp| bgp.is_object()) {
            checks::fill(object::map(bgp), "aggregationLength", 32);
            checks::fill(object::map(bgp), "aggregationLengthV6", 128);
        }
    }

    fn validate_create(&self, object: &Value, _gates: &Gates) -> Errors {
        let (spec, path) = (object::at(object, "spec"), Path::new("spec"));
        let mut errors = addresses(object::items(spec, "addresses"), &path.child("addresses"));
        errors.extend(named(spec, "namespaces", &path, |name| {
            names::dns_label(name, false)
        }));
        for key in ["namespaceSelector", "serviceSelector", "nodeSelector"] {
            errors.extend(checks::label_selector(
                object::at(spec, key),
                &path.child(key),
            ));
        }
        for (index, way) in object::items(spec, "announce").iter().enumerate() {
            let path = path.child("announce").index(index);
            errors.extend(checks::word(way.as_str().unwrap_or_default(), &path, WAYS));
        }
        errors.extend(repeated(spec, "announce", &path));
        errors.extend(named(spec, "interfaces", &path, interface_name));
        errors.extend(bgp(object::at(spec, "bgp"), &path.child("bgp")));
        errors
    }

    /// Does what Kubernetes does for every custom resource.
    fn prepare_status_update(&self, new: &mut Value, old: &Value, _gates: &Gates) {
        object::copy_key(old, new, "spec");
        metadata::keep_chosen(new, old);
    }

    fn row(&self, object: &Value, now: i64) -> Vec<Value> {
        let count = |path: &str| {
            object::at(object, path)
                .as_i64()
                .map(|number| number.to_string())
                .unwrap_or_default()
        };
        let list = |path: &str| {
            object::items(object, path)
                .iter()
                .filter_map(Value::as_str)
                .map(str::to_owned)
        };
        vec![
            object::name(object).into(),
            table::short_list(&list("spec.addresses").collect::<Vec<_>>(), "<none>").into(),
            object::at(object, "spec.autoAssign")
                .as_bool()
                .unwrap_or(true)
                .to_string()
                .into(),
            table::or(&count("status.assigned"), "0").into(),
            table::or(&count("status.ipv4.available"), "-").into(),
            table::or(&count("status.ipv6.available"), "-").into(),
            list("spec.announce").collect::<Vec<_>>().join(",").into(),
            table::age(object, now),
        ]
    }
}

fn addresses(items: &[Value], path: &Path) -> Errors {
    if items.is_empty() {
        return vec![Error::required(
            path,
            "give at least one network (192.0.2.0/24) or range (192.0.2.10-192.0.2.20)",
        )];
    }
    if items.len() > MOST_RANGES {
        return vec![Error::too_many(path, items.len(), MOST_RANGES)];
    }
    let mut errors = Errors::new();
    let mut good: Vec<(ranges::Range, &str)> = Vec::new();
    for (index, text) in items
        .iter()
        .map(|item| item.as_str().unwrap_or_default())
        .enumerate()
    {
        match ranges::parse(text) {
            Err(message) => errors.push(Error::invalid(&path.index(index), text, message)),
            Ok(range) => match good.iter().find(|(other, _)| other.overlaps(&range)) {
                Some((_, other)) => {
                    let message =
                        format!("overlaps {other}: every address may be in one range only");
                    errors.push(Error::invalid(&path.index(index), text, message));
                }
                None => good.push((range, text)),
            },
        }
    }
    errors
}

/// A list of different names.
fn named(spec: &Value, key: &str, path: &Path, problems: impl Fn(&str) -> Vec<String>) -> Errors {
    let mut errors = repeated(spec, key, path);
    for (index, name) in object::items(spec, key)
        .iter()
        .map(|item| item.as_str().unwrap_or_default())
        .enumerate()
    {
        errors.extend(checks::invalid_all(
            &path.child(key).index(index),
            name,
            problems(name),
        ));
    }
    errors
}

fn repeated(spec: &Value, key: &str, path: &Path) -> Errors {
    let mut seen = BTreeSet::new();
    let items = object::items(spec, key).iter().enumerate();
    let twice = items.filter(|(_, item)| !seen.insert(item.as_str().unwrap_or_default()));
    twice
        .map(|(index, item)| Error::duplicate(&path.child(key).index(index), item.clone()))
        .collect()
}

/// What the kernel takes for the name of an interface.
fn interface_name(name: &str) -> Vec<String> {
    let good = (1..=15).contains(&name.len())
        && !matches!(name, "." | "..")
        && !name
            .chars()
            .any(|c| c == '/' || c == ':' || c.is_whitespace());
    let message =
        "must be the name of a network interface: up to 15 characters without spaces, '/' or ':'";
    if good {
        Vec::new()
    } else {
        vec![message.to_owned()]
    }
}

fn bgp(bgp: &Value, path: &Path) -> Errors {
    let mut errors = named(bgp, "communities", path, community);
    errors.extend(named(bgp, "peers", path, |name| {
        names::dns_subdomain(name, false)
    }));
    if let Some(preference) = object::at(bgp, "localPreference")
        .as_i64()
        .filter(|number| u32::try_from(*number).is_err())
    {
        let message = "must be between 0 and 4294967295, inclusive";
        errors.push(Error::invalid(
            &path.child("localPreference"),
            preference,
            message,
        ));
    }
    for (key, most) in [("aggregationLength", 32), ("aggregationLengthV6", 128)] {
        if let Some(length) = object::at(bgp, key)
            .as_i64()
            .filter(|length| !(1..=most).contains(length))
        {
            let message = format!("must be a prefix length between 1 and {most}, inclusive");
            errors.push(Error::invalid(&path.child(key), length, message));
        }
    }
    errors
}

/// `16 bit:16 bit`, or three numbers of 32 bits, or a well-known one.
fn community(text: &str) -> Vec<String> {
    let parts: Vec<&str> = text.split(':').collect();
    let digits = |part: &&str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    let good = match parts[..] {
        [name] => KNOWN_COMMUNITIES.contains(&name),
        [_, _] => parts
            .iter()
            .all(|part| digits(part) && part.parse::<u16>().is_ok()),
        [_, _, _] => parts
            .iter()
            .all(|part| digits(part) && part.parse::<u32>().is_ok()),
        _ => false,
    };
    let message = "must be a community such as 64512:100, a large one such as 64512:1:2, or one of \
                   no-export, no-advertise, no-export-subconfed";
    if good {
        Vec::new()
    } else {
        vec![message.to_owned()]
    }
}
