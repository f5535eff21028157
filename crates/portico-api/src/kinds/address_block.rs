//! Address blocks: which Service has which addresses of one small network. Controllers write them
//! with the version they have read, so that an address is never given twice.

use super::ranges::{self, Range};
use super::{Column, Info, Kind, checks, table};
use crate::field::{Error, Errors, Path};
use crate::gates::Gates;
use crate::{names, object};
use serde_json::Value;
use std::collections::BTreeSet;
use std::net::IpAddr;

pub(super) struct AddressBlock;

static INFO: Info = Info {
    group: "portico.dev",
    version: "v1",
    kind: "AddressBlock",
    plural: "addressblocks",
    singular: "addressblock",
    namespaced: false,
    status: false,
    schema: "AddressBlock",
    storage: "addressblocks",
    // Whoever writes must have seen what stands there.
    unconditional_update: false,
    columns: COLUMNS,
    ..Info::USUAL
};

const COLUMNS: &[Column] = &[
    table::NAME,
    table::column("CIDR", "The network."),
    table::column("Claims", "How many of its addresses Services have."),
    table::AGE,
];

impl Kind for AddressBlock {
    fn info(&self) -> &'static Info {
        &INFO
    }

    fn validate_create(&self, object: &Value, _gates: &Gates) -> Errors {
        let (path, text) = (
            Path::new("spec").child("cidr"),
            object::text(object, "spec.cidr"),
        );
        let range = match block(text) {
            Ok((range, name)) => {
                if name != object::name(object) {
                    let message = format!("must be {name:?}, the name of the block {text}");
                    return vec![Error::invalid(
                        &Path::new("metadata").child("name"),
                        object::name(object),
                        message,
                    )];
                }
                range
            }
            Err(_) if text.is_empty() => return vec![Error::required(&path, "")],
            Err(message) => return vec![Error::invalid(&path, text, message)],
        };
        claims(object::items(object, "spec.claims"), &range, text)
    }

    fn validate_update(&self, new: &Value, old: &Value, gates: &Gates) -> Errors {
        let path = Path::new("spec").child("cidr");
        let mut errors = checks::immutable(
            object::at(new, "spec.cidr"),
            object::at(old, "spec.cidr"),
            &path,
        );
        if errors.is_empty() {
            errors.extend(self.validate_create(new, gates));
        }
        errors
    }

    fn row(&self, object: &Value, now: i64) -> Vec<Value> {
        vec![
            object::name(object).into(),
            object::text(object, "spec.cidr").into(),
            object::items(object, "spec.claims")
                .len()
                .to_string()
                .into(),
            table::age(object, now),
        ]
    }
}

/// The addresses of a block, and what it is called.
fn block(text: &str) -> Result<(Range, String), String> {
    let range = ranges::network(text)?;
    let (address, length) = text.split_once('/').unwrap_or_default();
    match (names::address(address)?, length) {
        (IpAddr::V4(v4), "24") => Ok((range, format!("{v4}-24"))),
        (IpAddr::V6(v6), "120") => {
            let groups: Vec<String> = v6
                .segments()
                .iter()
                .map(|group| format!("{group:x}"))
                .collect();
            Ok((range, format!("{}-120", groups.join("-"))))
        }
        _ => Err("must be a /24 of IPv4 or a /120 of IPv6".to_owned()),
    }
}

fn claims(claims: &[Value], range: &Range, cidr: &str) -> Errors {
    let path = Path::new("spec").child("claims");
    let (mut errors, mut seen) = (Errors::new(), BTreeSet::new());
    for (index, claim) in claims.iter().enumerate() {
        let (path, text) = (path.index(index), object::text(claim, "address"));
        match names::address(text) {
            Err(message) => errors.push(Error::invalid(&path.child("address"), text, message)),
            Ok(address) if !range.contains(address) => {
                errors.push(Error::invalid(
                    &path.child("address"),
                    text,
                    format!("must be an address of {cidr}"),
                ));
            }
            Ok(address) if !seen.insert(address) => {
                errors.push(Error::duplicate(&path.child("address"), text))
            }
            Ok(_) => {}
        }
        errors.extend(services(claim, &path));
    }
    errors
}

fn services(claim: &Value, path: &Path) -> Errors {
    let (services, path) = (object::items(claim, "services"), path.child("services"));
    let (mut errors, mut seen) = (Errors::new(), BTreeSet::new());
    if services.is_empty() {
        errors.push(Error::required(
            &path,
            "an address that no Service has is not claimed",
        ));
    }
    if services.len() > 1 && object::text(claim, "sharingKey").is_empty() {
        errors.push(Error::forbidden(
            &path,
            "only one Service may have an address without a sharing key",
        ));
    }
    for (index, service) in services.iter().enumerate() {
        for key in ["namespace", "name", "uid"] {
            if object::text(service, key).is_empty() {
                errors.push(Error::required(&path.index(index).child(key), ""));
            }
        }
        if !seen.insert(object::text(service, "uid")) {
            errors.push(Error::duplicate(
                &path.index(index).child("uid"),
                object::text(service, "uid"),
            ));
        }
    }
    errors
}
