//! Port partitions: addresses of nodes that have a space of node ports of their own.

use super::{Column, Info, Kind, checks, ranges, table};
use crate::field::{Error, Errors, Path};
use crate::gates::Gates;
use crate::object;
use serde_json::Value;

/// So many networks and ranges in one partition.
const MOST_RANGES: usize = 256;

pub(super) struct PortPartition;

static INFO: Info = Info {
    group: "portico.dev",
    version: "v1",
    kind: "PortPartition",
    plural: "portpartitions",
    singular: "portpartition",
    short_names: &["partition", "partitions"],
    namespaced: false,
    status: false,
    schema: "PortPartition",
    storage: "portpartitions",
    columns: COLUMNS,
    ..Info::USUAL
};

const COLUMNS: &[Column] = &[
    table::NAME,
    table::column(
        "Addresses",
        "The addresses of the partition; all of its nodes where it names none.",
    ),
    table::AGE,
];

impl Kind for PortPartition {
    fn info(&self) -> &'static Info {
        &INFO
    }

    fn validate_create(&self, object: &Value, _gates: &Gates) -> Errors {
        let (spec, path) = (object::at(object, "spec"), Path::new("spec"));
        let selector = object::at(spec, "nodeSelector");
        let mut errors = addresses(object::items(spec, "addresses"), &path.child("addresses"));
        // A partition of everything would leave no address to Services that name no partition.
        if object::items(spec, "addresses").is_empty() && selector.is_null() {
            errors.push(Error::required(
                &path.child("addresses"),
                "give networks or ranges of addresses, a nodeSelector, or both",
            ));
        }
        errors.extend(checks::label_selector(
            selector,
            &path.child("nodeSelector"),
        ));
        errors
    }

    fn row(&self, object: &Value, now: i64) -> Vec<Value> {
        let addresses: Vec<String> = object::items(object, "spec.addresses")
            .iter()
            .filter_map(Value::as_str)
            .map(str::to_owned)
            .collect();
        vec![
            object::name(object).into(),
            table::short_list(&addresses, "all").into(),
            table::age(object, now),
        ]
    }
}

fn addresses(items: &[Value], path: &Path) -> Errors {
    if items.len() > MOST_RANGES {
        return vec![Error::too_many(path, items.len(), MOST_RANGES)];
    }
    let texts = items.iter().map(|item| item.as_str().unwrap_or_default());
    let bad = texts.enumerate().filter_map(|(index, text)| {
        let message = ranges::parse_of_any_size(text).err()?;
        Some(Error::invalid(&path.index(index), text, message))
    });
    bad.collect()
}
