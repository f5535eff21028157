//! Events, in two spellings of one stored object: `v1` as stored, and `events.k8s.io/v1`, which is
//! stricter.

mod validation;

use super::{Column, Info, Kind, table};
use crate::field::Errors;
use crate::gates::Gates;
use crate::{names, object};
use serde_json::Value;

pub(super) struct Event {
    info: &'static Info,
    strict: bool,
}

pub(super) const CORE: Event = Event {
    info: &CORE_INFO,
    strict: false,
};
pub(super) const EVENTS: Event = Event {
    info: &EVENTS_INFO,
    strict: true,
};

const CORE_INFO: Info = Info {
    group: "",
    version: "v1",
    kind: "Event",
    plural: "events",
    singular: "event",
    short_names: &["ev"],
    schema: "Event",
    storage: "events",
    cached: false,
    has_dependents: false,
    known_finalizers: false,
    create_on_update: true,
    selectable_fields: &[
        "involvedObject.kind",
        "involvedObject.namespace",
        "involvedObject.name",
        "involvedObject.uid",
        "involvedObject.apiVersion",
        "involvedObject.resourceVersion",
        "involvedObject.fieldPath",
        "reason",
        "reportingComponent",
        "source",
        "type",
    ],
    columns: COLUMNS,
    ..Info::USUAL
};

static EVENTS_INFO: Info = Info {
    group: "events.k8s.io",
    schema: "EventsEvent",
    known_finalizers: true,
    selectable_fields: &[
        "regarding.kind",
        "regarding.namespace",
        "regarding.name",
        "regarding.uid",
        "regarding.apiVersion",
        "regarding.resourceVersion",
        "regarding.fieldPath",
        "reason",
        "reportingController",
        "type",
    ],
    ..CORE_INFO
};

const COLUMNS: &[Column] = &[
    table::column("Last Seen", "How long ago it happened last."),
    table::column("Type", "Normal or Warning."),
    table::column("Reason", "A word for why it happened."),
    table::column("Object", "What it happened to."),
    table::wide("Subobject", "The part of the object."),
    table::wide("Source", "Who reported it."),
    table::column("Message", "What happened."),
    table::wide("First Seen", "How long ago it happened first."),
    table::wide("Count", "How often it happened."),
    Column {
        priority: 1,
        ..table::NAME
    },
];

/// Fields by their stored name and their name in `events.k8s.io/v1`.
const SPELLINGS: &[(&str, &str)] = &[
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
];

/// `v1` always shows these, `events.k8s.io/v1` not when they are empty.
const SHOWN_EMPTY: [&str; 2] = ["reportingComponent", "reportingInstance"];

impl Kind for Event {
    fn info(&self) -> &'static Info {
        self.info
    }

    fn stored_info(&self) -> &'static Info {
        &CORE_INFO
    }

    fn to_stored(&self, object: &mut Value, _old: Option<&Value>, _patched: bool) -> Errors {
        if self.strict {
            let map = object::map(object);
            map.insert("apiVersion".to_owned(), "v1".into());
            for (stored, spelled) in SPELLINGS {
                if let Some(value) = map.remove(*spelled) {
                    map.insert((*stored).to_owned(), value);
                }
            }
            for key in SHOWN_EMPTY {
                map.entry(key).or_insert_with(|| "".into());
            }
        }
        Errors::new()
    }

    fn from_stored(&self, mut object: Value) -> Value {
        if self.strict {
            let map = object::map(&mut object);
            map.insert("apiVersion".to_owned(), "events.k8s.io/v1".into());
            for key in SHOWN_EMPTY {
                if map.get(key).and_then(Value::as_str) == Some("") {
                    map.remove(key);
                }
            }
            for (stored, spelled) in SPELLINGS {
                if let Some(value) = map.remove(*stored) {
                    map.insert((*spelled).to_owned(), value);
                }
            }
        }
        object
    }

    fn validate_create(&self, object: &Value, _gates: &Gates) -> Errors {
        let mut errors = validation::any(object, self.strict);
        if self.strict {
            errors.extend(validation::strict_create(object));
        }
        errors
    }

    fn validate_update(&self, new: &Value, old: &Value, _gates: &Gates) -> Errors {
        let mut errors = validation::any(new, self.strict);
        if self.strict {
            errors.extend(validation::strict_update(new, old));
        }
        errors
    }

    fn name_problems(&self, name: &str, prefix: bool) -> Vec<String> {
        if self.strict {
            names::dns_subdomain(name, prefix)
        } else {
            names::path_segment(name, prefix)
        }
    }

    fn selectable_field(&self, object: &Value, field: &str) -> String {
        match (field, field.strip_prefix("regarding.")) {
            (_, Some(rest)) => object::text(object::at(object, "involvedObject"), rest),
            ("source", _) => source_component(object),
            ("reportingController", _) => object::text(object, "reportingComponent"),
            (field, _) => object::text(object, field),
        }
        .to_owned()
    }

    fn row(&self, object: &Value, now: i64) -> Vec<Value> {
        let set = |path: &str| Some(object::at(object, path)).filter(|value| value.is_string());
        let first = table::since(
            set("firstTimestamp").unwrap_or(object::at(object, "eventTime")),
            now,
        );
        let last =
            set("lastTimestamp").map_or_else(|| first.clone(), |time| table::since(time, now));
        let (last, count) = match object::at(object, "series") {
            Value::Object(_) => (
                table::since(object::at(object, "series.lastObservedTime"), now),
                object::at(object, "series.count")
                    .as_i64()
                    .unwrap_or_default(),
            ),
            _ => (
                last,
                object::at(object, "count")
                    .as_i64()
                    .filter(|count| *count != 0)
                    .unwrap_or(1),
            ),
        };
        let kind = object::text(object, "involvedObject.kind").to_lowercase();
        let target = match object::text(object, "involvedObject.name") {
            "" => kind,
            name => format!("{kind}/{name}"),
        };
        vec![
            last.into(),
            object::text(object, "type").into(),
            object::text(object, "reason").into(),
            target.into(),
            object::text(object, "involvedObject.fieldPath").into(),
            source(object).into(),
            object::text(object, "message").trim().into(),
            first.into(),
            count.into(),
            object::name(object).into(),
        ]
    }
}

fn source_component(object: &Value) -> &str {
    table::or(
        object::text(object, "source.component"),
        object::text(object, "reportingComponent"),
    )
}

fn source(object: &Value) -> String {
    let component = source_component(object);
    match table::or(
        object::text(object, "source.host"),
        object::text(object, "reportingInstance"),
    ) {
        "" => component.to_owned(),
        instance => format!("{component}, {instance}"),
    }
}
