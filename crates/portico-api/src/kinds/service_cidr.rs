//! Service CIDRs: the ranges that cluster IPs come from. Ranges never change, but a second family
//! may be added.

use super::{Column, Info, Kind, checks, metadata, table};
use crate::field::{Error, Errors, Path};
use crate::gates::Gates;
use crate::object;
use serde_json::{Value, json};
use std::net::IpAddr;

const IMMUTABLE: &str = "field is immutable";

pub(super) struct ServiceCidr;

static INFO: Info = Info {
    group: "networking.k8s.io",
    version: "v1",
    kind: "ServiceCIDR",
    plural: "servicecidrs",
    singular: "servicecidr",
    namespaced: false,
    status: true,
    schema: "ServiceCIDR",
    storage: "servicecidrs",
    columns: COLUMNS,
    ..Info::USUAL
};

const COLUMNS: &[Column] = &[
    table::NAME,
    table::column("CIDRs", "The ranges that cluster IPs come from."),
    table::AGE,
];

impl Kind for ServiceCidr {
    fn info(&self) -> &'static Info {
        &INFO
    }

    fn validate_create(&self, object: &Value, _gates: &Gates) -> Errors {
        let (items, path) = (object::items(object, "spec.cidrs"), path());
        match items {
            [] => return vec![Error::required(&path, "at least one CIDR required")],
            [_] | [_, _] => {}
            // The whole spec, as Kubernetes shows it.
            _ => {
                return vec![Error::invalid(
                    &path,
                    json!({ "CIDRs": items }),
                    "may only hold up to 2 values",
                )];
            }
        }
        let ranges: Vec<Result<IpAddr, String>> = items.iter().map(range).collect();
        let mut errors = Errors::new();
        for (index, (item, range)) in items.iter().zip(&ranges).enumerate() {
            if let Err(message) = range {
                errors.push(Error::invalid(
                    &path.index(index),
                    item.clone(),
                    message.clone(),
                ));
            }
        }
        let families: Vec<bool> = items.iter().filter_map(family).collect();
        if matches!(families[..], [first, second] if first == second) {
            let message = "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and \
                           2001:db8::/64";
            errors.push(Error::invalid(&path, items.to_vec(), message));
        }
        errors
    }

    fn validate_update(&self, new: &Value, old: &Value, gates: &Gates) -> Errors {
        let (items, before) = (
            object::items(new, "spec.cidrs"),
            object::items(old, "spec.cidrs"),
        );
        let grows = before.len() == 1 && items.len() == 2;
        if items.len() != before.len() && !grows {
            return vec![Error::invalid(&path(), items.to_vec(), IMMUTABLE)];
        }
        let changed = items
            .iter()
            .zip(before)
            .enumerate()
            .filter(|(_, (new, old))| new != old);
        let mut errors: Errors = changed
            .map(|(index, (new, _))| Error::invalid(&path().index(index), new.clone(), IMMUTABLE))
            .collect();
        if grows {
            errors.extend(self.validate_create(new, gates));
        }
        errors
    }

    /// The status is all that may change here; not even labels.
    fn prepare_status_update(&self, new: &mut Value, old: &Value, _gates: &Gates) {
        object::copy_key(old, new, "spec");
        metadata::keep_chosen(new, old);
    }

    fn row(&self, object: &Value, now: i64) -> Vec<Value> {
        let cidrs: Vec<&str> = object::items(object, "spec.cidrs")
            .iter()
            .filter_map(Value::as_str)
            .collect();
        vec![
            object::name(object).into(),
            cidrs.join(",").into(),
            table::age(object, now),
        ]
    }
}

fn path() -> Path {
    Path::new("spec").child("cidrs")
}

fn range(item: &Value) -> Result<IpAddr, String> {
    let text = item.as_str().unwrap_or_default();
    let address = checks::cidr(text)?;
    let length = text.rsplit('/').next().unwrap_or_default();
    match format!("{address}/{length}") {
        canonical if canonical == text => Ok(address),
        canonical => Err(format!("must be in canonical form ({canonical:?})")),
    }
}

/// Whether it is IPv4, of anything that can be read as a range at all.
fn family(item: &Value) -> Option<bool> {
    let (address, _) = item.as_str()?.split_once('/')?;
    address
        .parse()
        .ok()
        .map(|address: IpAddr| address.is_ipv4())
}
