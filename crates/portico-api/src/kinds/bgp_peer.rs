//! BGP peers: routers that nodes announce addresses to.

use super::{Column, Info, Kind, checks, table};
use crate::field::{Error, Errors, Path};
use crate::gates::Gates;
use crate::{names, object};
use serde_json::Value;
use std::net::{IpAddr, Ipv4Addr};

pub(super) struct BgpPeer;

static INFO: Info = Info {
    group: "portico.dev",
    version: "v1",
    kind: "BgpPeer",
    plural: "bgppeers",
    singular: "bgppeer",
    short_names: &["peer", "peers"],
    namespaced: false,
    status: false,
    schema: "BgpPeer",
    storage: "bgppeers",
    columns: COLUMNS,
    ..Info::USUAL
};

const COLUMNS: &[Column] = &[
    table::NAME,
    table::column("ASN", "The number of the router's autonomous system."),
    table::column("Address", "The address of the router."),
    table::wide("My-ASN", "The number of the own autonomous system."),
    table::AGE,
];

impl Kind for BgpPeer {
    fn info(&self) -> &'static Info {
        &INFO
    }

    fn default(&self, object: &mut Value, _gates: &Gates) {
        let spec = object::child(object, "spec");
        checks::fill(spec, "peerPort", 179);
        checks::fill(spec, "holdTime", "90s");
        checks::fill(spec, "connectTime", "10s");
        checks::fill(spec, "restartTime", "120s");
        checks::fill_absent(spec, "gracefulRestart", true);
        if let Some(secret) = spec
            .get_mut("passwordSecret")
            .filter(|secret| secret.is_object())
        {
            checks::fill(object::map(secret), "namespace", "kube-system");
            checks::fill(object::map(secret), "key", "password");
        }
    }

    fn validate_create(&self, object: &Value, _gates: &Gates) -> Errors {
        let (spec, path) = (object::at(object, "spec"), Path::new("spec"));
        let mut errors = Errors::new();
        for key in ["myASN", "peerASN"] {
            errors.extend(as_number(
                object::at(spec, key).as_i64().unwrap_or_default(),
                &path.child(key),
            ));
        }
        errors.extend(addresses(spec, &path));
        let port = object::at(spec, "peerPort").as_i64().unwrap_or_default();
        let problems = names::port_number(port).into_iter();
        errors
            .extend(problems.map(|message| Error::invalid(&path.child("peerPort"), port, message)));
        errors.extend(times(spec, &path));
        errors.extend(secret(
            object::at(spec, "passwordSecret"),
            &path.child("passwordSecret"),
        ));
        errors.extend(multi_hop(spec, &path));
        errors.extend(checks::label_selector(
            object::at(spec, "nodeSelector"),
            &path.child("nodeSelector"),
        ));
        errors
    }

    fn row(&self, object: &Value, now: i64) -> Vec<Value> {
        let number = |path: &str| {
            object::at(object, path)
                .as_i64()
                .unwrap_or_default()
                .to_string()
        };
        vec![
            object::name(object).into(),
            number("spec.peerASN").into(),
            object::text(object, "spec.peerAddress").into(),
            number("spec.myASN").into(),
            table::age(object, now),
        ]
    }
}

fn as_number(number: i64, path: &Path) -> Errors {
    match u32::try_from(number) {
        Ok(0) | Err(_) => {
            vec![Error::invalid(
                path,
                number,
                "must be the number of an autonomous system: 1 to 4294967295",
            )]
        }
        Ok(_) => Errors::new(),
    }
}

fn addresses(spec: &Value, path: &Path) -> Errors {
    let (peer, source, id) = (
        object::text(spec, "peerAddress"),
        object::text(spec, "sourceAddress"),
        object::text(spec, "routerID"),
    );
    let mut errors = match peer {
        "" => vec![Error::required(
            &path.child("peerAddress"),
            "the address of the router",
        )],
        given => checks::address(given, &path.child("peerAddress")),
    };
    if !source.is_empty() {
        errors.extend(checks::address(source, &path.child("sourceAddress")));
        let families = (names::address(peer), names::address(source));
        if matches!(families, (Ok(peer), Ok(source)) if peer.is_ipv4() != source.is_ipv4()) {
            let message = "must be of the family of peerAddress";
            errors.push(Error::invalid(
                &path.child("sourceAddress"),
                source,
                message,
            ));
        }
    }
    let good_id =
        matches!(names::address(id), Ok(IpAddr::V4(address)) if address != Ipv4Addr::UNSPECIFIED);
    if !id.is_empty() && !good_id {
        let message = "must be written like an IPv4 address other than 0.0.0.0";
        errors.push(Error::invalid(&path.child("routerID"), id, message));
    }
    errors
}

fn times(spec: &Value, path: &Path) -> Errors {
    let mut errors = Errors::new();
    let mut check = |key: &str, good: &dyn Fn(u64) -> bool, message: &str| {
        let text = object::text(spec, key);
        let seconds = whole_seconds(text);
        if !text.is_empty() && !seconds.is_some_and(good) {
            errors.push(Error::invalid(&path.child(key), text, message));
        }
    };
    let hold = whole_seconds(object::text(spec, "holdTime")).unwrap_or(u64::MAX);
    check(
        "holdTime",
        &|time| time == 0 || (3..=65535).contains(&time),
        "must be 0s (no limit) or 3s to 65535s, in whole seconds such as 90s or 1m30s",
    );
    check(
        "keepaliveTime",
        &|time| time >= 1 && (hold == 0 || time < hold),
        "must be whole seconds, at least 1s and less than holdTime; a third of it is usual",
    );
    check(
        "connectTime",
        &|time| (1..=65535).contains(&time),
        "must be 1s to 65535s, in whole seconds",
    );
    check(
        "restartTime",
        &|time| time <= 4095,
        "must be whole seconds, at most 4095s",
    );
    errors
}

/// `90s`, `1m30s`, `2h`: the part of Go's durations that are whole seconds.
fn whole_seconds(text: &str) -> Option<u64> {
    let mut rest = text;
    let mut seconds = 0_u64;
    while !rest.is_empty() {
        let digits = rest
            .find(|c: char| !c.is_ascii_digit())
            .filter(|digits| *digits > 0)?;
        let (number, after) = rest.split_at_checked(digits)?;
        let unit = after.chars().next()?;
        let factor = match unit {
            's' => 1,
            'm' => 60,
            'h' => 3600,
            _ => return None,
        };
        seconds = seconds.checked_add(number.parse::<u64>().ok()?.checked_mul(factor)?)?;
        rest = after.get(1..)?;
    }
    (!text.is_empty()).then_some(seconds)
}

fn secret(secret: &Value, path: &Path) -> Errors {
    if !secret.is_object() {
        return Errors::new();
    }
    let mut errors = checks::dns_label(secret, "namespace", path);
    match object::text(secret, "name") {
        "" => errors.push(Error::required(
            &path.child("name"),
            "the name of the Secret with the password",
        )),
        name => errors.extend(checks::invalid_all(
            &path.child("name"),
            name,
            names::dns_subdomain(name, false),
        )),
    }
    let key = object::text(secret, "key");
    errors.extend(checks::invalid_all(
        &path.child("key"),
        key,
        checks::data_key(key),
    ));
    errors
}

fn multi_hop(spec: &Value, path: &Path) -> Errors {
    let internal = object::at(spec, "myASN") == object::at(spec, "peerASN");
    match object::at(spec, "ebgpMultiHop").as_bool() {
        Some(true) if internal => {
            let message = "only between different autonomous systems: internal sessions may have any \
                           number of hops";
            vec![Error::forbidden(&path.child("ebgpMultiHop"), message)]
        }
        _ => Errors::new(),
    }
}
