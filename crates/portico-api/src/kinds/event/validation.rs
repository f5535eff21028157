//! What is wrong with an event, in its stored spelling.

use crate::field::{Error, Errors, Path};
use crate::kinds::checks::{immutable, invalid_all};
use crate::{names, object};
use serde_json::Value;

/// What holds in both spellings. Events with an `eventTime` are of the newer sort and must say more
/// about themselves.
pub(super) fn any(object: &Value, strict: bool) -> Errors {
    let namespace = object::namespace(object);
    let about = object::text(object, "involvedObject.namespace");
    let newer = object::at(object, "eventTime").is_string();
    let fits = match (newer, about) {
        (false, "") => ["", "default"].contains(&namespace),
        (false, about) => about == namespace,
        (true, "") => ["default", "kube-system"].contains(&namespace),
        (true, _) => true,
    };
    let mut errors = Errors::new();
    if !fits {
        let path = Path::new("involvedObject").child("namespace");
        errors.push(Error::invalid(
            &path,
            about,
            "does not match event.namespace",
        ));
    }
    if newer {
        errors.extend(newer_fields(object, strict));
    }
    errors.extend(invalid_all(
        &Path::new("namespace"),
        namespace,
        names::dns_subdomain(namespace, false),
    ));
    errors
}

fn newer_fields(object: &Value, strict: bool) -> Errors {
    let controller = object::text(object, "reportingComponent");
    let path = Path::new(if strict {
        "reportingController"
    } else {
        "reportingComponent"
    });
    let mut errors = Errors::new();
    if controller.is_empty() {
        errors.push(Error::required(&path, ""));
    }
    errors.extend(invalid_all(
        &path,
        controller,
        names::qualified_name(controller),
    ));
    for (key, most) in [
        ("reportingInstance", 128),
        ("action", 128),
        ("reason", 128),
        ("message", 1024),
    ] {
        let length = object::text(object, key).len();
        if length == 0 && key != "message" {
            errors.push(Error::required(&Path::new(key), ""));
        }
        if length > most {
            errors.push(Error::invalid(
                &Path::new(key),
                "",
                format!("can have at most {most} characters"),
            ));
        }
    }
    errors
}

fn series(object: &Value) -> Errors {
    let Some(series) = object.get("series").filter(|series| !series.is_null()) else {
        return Errors::new();
    };
    let mut errors = Errors::new();
    if object::at(series, "count").as_i64().unwrap_or_default() < 2 {
        errors.push(Error::invalid(
            &Path::new("series.count"),
            "",
            "should be at least 2",
        ));
    }
    if !object::at(series, "lastObservedTime").is_string() {
        errors.push(Error::required(&Path::new("series.lastObservedTime"), ""));
    }
    errors
}

/// What a create in the newer spelling must have, and must not have any more.
pub(super) fn strict_create(object: &Value) -> Errors {
    let mut errors = series(object);
    if !object::at(object, "eventTime").is_string() {
        errors.push(Error::required(&Path::new("eventTime"), ""));
    }
    let kind = object::text(object, "type");
    if !["Normal", "Warning"].contains(&kind) {
        errors.push(Error::invalid(
            &Path::new("type"),
            "",
            format!("has invalid value: {kind}"),
        ));
    }
    let component = !object::text(object, "source.component").is_empty()
        || !object::text(object, "source.host").is_empty();
    for (key, set) in [
        (
            "firstTimestamp",
            object::at(object, "firstTimestamp").is_string(),
        ),
        (
            "lastTimestamp",
            object::at(object, "lastTimestamp").is_string(),
        ),
        (
            "count",
            object::at(object, "count").as_i64().unwrap_or_default() != 0,
        ),
        ("source", component),
    ] {
        if set {
            errors.push(Error::invalid(&Path::new(key), "", "needs to be unset"));
        }
    }
    errors
}

/// What is wrong with an update in `events.k8s.io`, where only the series may change.
pub(super) fn strict_update(new: &Value, old: &Value) -> Errors {
    let mut errors = Errors::new();
    if object::at(new, "series") != object::at(old, "series") {
        errors.extend(series(new));
    }
    for (key, named) in [
        ("involvedObject", "involvedObject"),
        ("reason", "reason"),
        ("message", "message"),
        ("source", "source"),
        ("firstTimestamp", "firstTimestamp"),
        ("lastTimestamp", "lastTimestamp"),
        ("count", "count"),
        ("type", "type"),
        ("eventTime", "eventTime"),
        ("action", "action"),
        ("related", "related"),
        ("reportingComponent", "reportingController"),
        ("reportingInstance", "reportingInstance"),
    ] {
        errors.extend(immutable(
            object::at(new, key),
            object::at(old, key),
            &Path::new(named),
        ));
    }
    errors
}
