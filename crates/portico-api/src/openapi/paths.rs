//! The paths of a kind and the operations on them.

use super::{Dialect, Served, definitions, group_path};
use crate::kinds::Info;
use crate::schema::Schema;
use serde_json::{Map, Value, json};

/// A query parameter: name, type, description.
type Query = (&'static str, &'static str, &'static str);

const PRETTY: Query = (
    "pretty",
    "string",
    "Indent the answer for people when \"true\".",
);
const DRY_RUN: Query = (
    "dryRun",
    "string",
    "\"All\" goes through every step and stores nothing.",
);
const FIELD_MANAGER: Query = (
    "fieldManager",
    "string",
    "The name under which changed fields are recorded.",
);
const FIELD_VALIDATION: Query = (
    "fieldValidation",
    "string",
    "What to do about unknown and duplicate fields: Ignore, Warn or Strict.",
);
const WRITE: &[Query] = &[DRY_RUN, FIELD_MANAGER, FIELD_VALIDATION];
const PATCH: &[Query] = &[
    DRY_RUN,
    FIELD_MANAGER,
    FIELD_VALIDATION,
    (
        "force",
        "boolean",
        "In a server-side apply, take over fields that others manage.",
    ),
];
const DELETE: &[Query] = &[
    DRY_RUN,
    (
        "gracePeriodSeconds",
        "integer",
        "Seconds until the object goes; 0 is at once.",
    ),
    (
        "orphanDependents",
        "boolean",
        "Deprecated, use propagationPolicy.",
    ),
    (
        "propagationPolicy",
        "string",
        "What happens to objects that this one owns: Orphan, Background or Foreground.",
    ),
];
const LIST: &[Query] = &[
    (
        "allowWatchBookmarks",
        "boolean",
        "In a watch, send bookmarks now and then.",
    ),
    (
        "continue",
        "string",
        "The next page, as the page before named it.",
    ),
    (
        "fieldSelector",
        "string",
        "Only objects with these field values.",
    ),
    ("labelSelector", "string", "Only objects with these labels."),
    ("limit", "integer", "The most objects in one page."),
    (
        "resourceVersion",
        "string",
        "The revision to read or to watch from.",
    ),
    (
        "resourceVersionMatch",
        "string",
        "How resourceVersion is meant: Exact or NotOlderThan.",
    ),
    (
        "sendInitialEvents",
        "boolean",
        "Start a watch with the objects that are there.",
    ),
    (
        "timeoutSeconds",
        "integer",
        "End the request after this time.",
    ),
    (
        "watch",
        "boolean",
        "Send changes as they happen instead of a list.",
    ),
];

const PATCH_TYPES: [&str; 4] = [
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
];
const MEDIA_TYPES: [&str; 3] = [
    "application/json",
    "application/yaml",
    "application/vnd.kubernetes.protobuf",
];

/// One operation.
struct Operation {
    /// The verb that must be served.
    verb: &'static str,
    method: &'static str,
    /// `x-kubernetes-action`.
    action: &'static str,
    query: &'static [Query],
    /// The start of the operation's name.
    name: &'static str,
}

const fn operation(
    verb: &'static str,
    method: &'static str,
    action: &'static str,
    name: &'static str,
    query: &'static [Query],
) -> Operation {
    Operation {
        verb,
        method,
        action,
        query,
        name,
    }
}

const ON_ALL: [Operation; 3] = [
    operation("list", "get", "list", "list", LIST),
    operation("create", "post", "post", "create", WRITE),
    operation(
        "deletecollection",
        "delete",
        "deletecollection",
        "deleteCollection",
        DELETE,
    ),
];
const ON_ONE: [Operation; 4] = [
    operation("get", "get", "get", "read", &[]),
    operation("update", "put", "put", "replace", WRITE),
    operation("patch", "patch", "patch", "patch", PATCH),
    operation("delete", "delete", "delete", "delete", DELETE),
];

/// Where an operation stands and what it works on.
struct Place<'a> {
    info: &'a Info,
    schema: &'a Schema,
    dialect: Dialect,
    /// The end of operation names: `NamespacedService`, `ServiceForAllNamespaces`.
    suffix: String,
}

pub(super) fn add(
    served: &Served<'_>,
    dialect: Dialect,
    schema: &Schema,
    paths: &mut Map<String, Value>,
) {
    let info = served.info;
    let base = format!("/{}", group_path(info));
    let space = if info.namespaced {
        "/namespaces/{namespace}"
    } else {
        ""
    };
    let scope = if info.namespaced { "Namespaced" } else { "" };
    let main = format!("{base}{space}/{}", info.plural);
    let has = |operation: &&Operation| served.verbs.contains(&operation.verb);
    let place = |suffix: String| Place {
        info,
        schema,
        dialect,
        suffix,
    };
    let mut put = |path: String, operations: Vec<&Operation>, place: Place<'_>| {
        if !operations.is_empty() {
            paths.insert(path.clone(), path_item(&path, &operations, &place));
        }
    };
    put(
        main.clone(),
        ON_ALL.iter().filter(has).collect(),
        place(format!("{scope}{}", info.kind)),
    );
    if info.namespaced {
        let everywhere = ON_ALL
            .iter()
            .filter(|operation| operation.verb == "list")
            .filter(has)
            .collect();
        put(
            format!("{base}/{}", info.plural),
            everywhere,
            place(format!("{}ForAllNamespaces", info.kind)),
        );
    }
    put(
        format!("{main}/{{name}}"),
        ON_ONE.iter().filter(has).collect(),
        place(format!("{scope}{}", info.kind)),
    );
    if info.status {
        let operations = ON_ONE
            .iter()
            .filter(|operation| operation.verb != "delete")
            .filter(has)
            .collect();
        put(
            format!("{main}/{{name}}/status"),
            operations,
            place(format!("{scope}{}Status", info.kind)),
        );
    }
}

fn path_item(path: &str, operations: &[&Operation], place: &Place<'_>) -> Value {
    let mut item: Map<String, Value> = operations
        .iter()
        .map(|operation| (operation.method.to_owned(), describe(operation, place)))
        .collect();
    let mut parameters = Vec::new();
    for (name, what) in [
        ("name", "The name of the object."),
        ("namespace", "The namespace of the object."),
    ] {
        if path.contains(&format!("{{{name}}}")) {
            let mut parameter =
                json!({"name": name, "in": "path", "required": true, "description": what});
            set_type(&mut parameter, "string", place.dialect);
            parameters.push(parameter);
        }
    }
    parameters.push(query(&PRETTY, place.dialect));
    item.insert("parameters".into(), parameters.into());
    Value::Object(item)
}

fn query((name, ty, description): &Query, dialect: Dialect) -> Value {
    let mut parameter = json!({"name": name, "in": "query", "description": description});
    set_type(&mut parameter, ty, dialect);
    parameter
}

fn set_type(parameter: &mut Value, ty: &str, dialect: Dialect) {
    match dialect {
        Dialect::V2 => {
            parameter["type"] = ty.into();
            parameter["uniqueItems"] = true.into();
        }
        Dialect::V3 => parameter["schema"] = json!({"type": ty, "uniqueItems": true}),
    }
}

fn describe(operation: &Operation, place: &Place<'_>) -> Value {
    let Place {
        info,
        dialect,
        suffix,
        ..
    } = place;
    let group = group_name(info.group);
    let id = match operation.action {
        "deletecollection" => format!("delete{group}{}Collection{suffix}", capital(info.version)),
        _ => format!("{}{group}{}{suffix}", operation.name, capital(info.version)),
    };
    let mut parameters: Vec<Value> = operation
        .query
        .iter()
        .map(|one| query(one, *dialect))
        .collect();
    let mut described = json!({
        "operationId": id,
        "tags": [format!("{}_{}", lower(&group), info.version)],
        "description": format!("{} {}.", capital(operation.verb), info.kind),
        "x-kubernetes-action": operation.action,
        "x-kubernetes-group-version-kind": {"group": info.group, "version": info.version, "kind": info.kind},
        "responses": responses(operation, place),
    });
    let consumes: &[&str] = if operation.action == "patch" {
        &PATCH_TYPES
    } else {
        &MEDIA_TYPES
    };
    match (body(operation, place), dialect) {
        (Some(schema), Dialect::V2) => {
            let required = operation.method != "delete";
            parameters.insert(
                0,
                json!({"name": "body", "in": "body", "required": required, "schema": schema}),
            );
        }
        (Some(schema), Dialect::V3) => {
            described["requestBody"] = json!({"content": content(consumes, &schema)})
        }
        (None, _) => {}
    }
    if *dialect == Dialect::V2 {
        described["consumes"] = json!(consumes);
        described["produces"] = json!(MEDIA_TYPES);
        described["schemes"] = json!(["https"]);
    }
    described["parameters"] = parameters.into();
    described
}

/// A reference to the definition of a type in the schema.
fn reference(type_name: &str, place: &Place<'_>) -> Value {
    let name = place
        .schema
        .get(type_name)
        .map(definitions::name)
        .unwrap_or_default();
    json!({"$ref": place.dialect.reference(&name)})
}

fn body(operation: &Operation, place: &Place<'_>) -> Option<Value> {
    match operation.method {
        "get" => None,
        "delete" => Some(reference("DeleteOptions", place)),
        "patch" => Some(json!({"$ref": place.dialect.reference(&definitions::patch_name())})),
        _ => Some(reference(place.info.schema, place)),
    }
}

fn responses(operation: &Operation, place: &Place<'_>) -> Value {
    let (schema, codes): (Value, &[(&str, &str)]) = match operation.action {
        "list" => (
            reference(&format!("{}List", place.info.schema), place),
            &[("200", "OK")],
        ),
        "get" => (reference(place.info.schema, place), &[("200", "OK")]),
        "delete" => (
            reference("Status", place),
            &[("200", "OK"), ("202", "Accepted")],
        ),
        "deletecollection" => (reference("Status", place), &[("200", "OK")]),
        "post" => (
            reference(place.info.schema, place),
            &[("200", "OK"), ("201", "Created"), ("202", "Accepted")],
        ),
        _ => (
            reference(place.info.schema, place),
            &[("200", "OK"), ("201", "Created")],
        ),
    };
    let mut responses = Map::new();
    for (code, description) in codes {
        let mut response = json!({"description": description});
        match place.dialect {
            Dialect::V2 => response["schema"] = schema.clone(),
            Dialect::V3 => response["content"] = content(&MEDIA_TYPES, &schema),
        }
        responses.insert((*code).to_owned(), response);
    }
    responses.insert("401".into(), json!({"description": "Unauthorized"}));
    Value::Object(responses)
}

fn content(media_types: &[&str], schema: &Value) -> Value {
    media_types
        .iter()
        .map(|media_type| ((*media_type).to_owned(), json!({"schema": schema})))
        .collect()
}

/// `RbacAuthorization` of `rbac.authorization.k8s.io`, `Core` of the empty group.
fn group_name(group: &str) -> String {
    if group.is_empty() {
        return "Core".into();
    }
    group
        .trim_end_matches(".k8s.io")
        .split('.')
        .map(capital)
        .collect()
}

fn capital(word: &str) -> String {
    let mut letters = word.chars();
    letters
        .next()
        .map(|first| first.to_ascii_uppercase())
        .into_iter()
        .chain(letters)
        .collect()
}

fn lower(word: &str) -> String {
    let mut letters = word.chars();
    letters
        .next()
        .map(|first| first.to_ascii_lowercase())
        .into_iter()
        .chain(letters)
        .collect()
}
