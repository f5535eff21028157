//! Types of the schema as OpenAPI definitions.

use super::{Dialect, Served};
use crate::schema::{Field, ListKind, Schema, Type, TypeDef};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1";

/// What every operation may need besides its own kind.
const COMMON: [&str; 2] = ["Status", "DeleteOptions"];

/// The name of a type's definition.
pub(super) fn name(ty: &TypeDef) -> String {
    format!("{}.{}", ty.package, ty.local)
}

/// The body of any patch.
pub(super) fn patch_name() -> String {
    format!("{META}.Patch")
}

/// The definitions of the served kinds, of their lists and of all they refer to.
pub(super) fn all(schema: &Schema, served: &[Served<'_>], dialect: Dialect) -> Value {
    let mut reached = BTreeSet::new();
    for one in served {
        reach(schema, one.info.schema, &mut reached);
        reach(schema, &format!("{}List", one.info.schema), &mut reached);
    }
    COMMON
        .iter()
        .for_each(|name| reach(schema, name, &mut reached));
    let types = reached.iter().filter_map(|name| schema.get(name));
    let mut all: Map<String, Value> = types
        .map(|ty| (name(ty), definition(schema, ty, dialect)))
        .collect();
    all.extend(special_types(dialect));
    Value::Object(all)
}

fn reach(schema: &Schema, name: &str, reached: &mut BTreeSet<String>) {
    let Some(ty) = schema.get(name) else { return };
    if reached.insert(name.to_owned()) {
        for field in &ty.fields {
            let mut inner = &field.ty;
            while let Type::List(next) | Type::Map(next) = inner {
                inner = next;
            }
            if let Type::Object(inner) = inner {
                reach(schema, inner, reached);
            }
        }
    }
}

/// Types that are no structs but have a definition of their own.
fn special_types(dialect: Dialect) -> Vec<(String, Value)> {
    let either = |types: [&str; 2]| match dialect {
        Dialect::V2 => json!({"type": "string"}),
        Dialect::V3 => json!({"oneOf": types.map(|ty| json!({"type": ty}))}),
    };
    let mut int_or_string = either(["integer", "string"]);
    int_or_string["format"] = "int-or-string".into();
    int_or_string["x-kubernetes-int-or-string"] = true.into();
    int_or_string["description"] = "A number or a name.".into();
    let mut quantity = either(["string", "number"]);
    quantity["description"] =
        "An amount with an optional suffix: decimal (m, k, M, G, ...), binary (Ki, Mi, Gi, ...) \
         or an exponent (e3)."
            .into();
    let time =
        |digits: &str| json!({"type": "string", "format": "date-time", "description": digits});
    vec![
        (reference_name(&Type::IntOrString), int_or_string),
        (reference_name(&Type::Quantity), quantity),
        (
            reference_name(&Type::Time),
            time("A time in RFC 3339, to the second."),
        ),
        (
            reference_name(&Type::MicroTime),
            time("A time in RFC 3339, with six fractional digits."),
        ),
        (
            reference_name(&Type::Any),
            json!({"type": "object", "description": "A set of fields, as nested objects."}),
        ),
        (
            patch_name(),
            json!({"type": "object", "description": "A patch in the form that the content type names."}),
        ),
    ]
}

fn reference_name(ty: &Type) -> String {
    match ty {
        Type::IntOrString => "io.k8s.apimachinery.pkg.util.intstr.IntOrString".into(),
        Type::Quantity => "io.k8s.apimachinery.pkg.api.resource.Quantity".into(),
        Type::Time => format!("{META}.Time"),
        Type::MicroTime => format!("{META}.MicroTime"),
        _ => format!("{META}.FieldsV1"),
    }
}

fn definition(schema: &Schema, ty: &TypeDef, dialect: Dialect) -> Value {
    let mut properties = Map::new();
    let mut required = Vec::new();
    add_properties(schema, ty, dialect, &mut properties, &mut required);
    let mut definition = json!({"type": "object", "properties": properties});
    if !ty.doc.is_empty() {
        definition["description"] = ty.doc.as_str().into();
    }
    if !required.is_empty() {
        definition["required"] = required.into();
    }
    if ty.atomic {
        definition["x-kubernetes-map-type"] = "atomic".into();
    }
    if let Some((group, version, kind)) = &ty.kind {
        definition["x-kubernetes-group-version-kind"] =
            json!([{"group": group, "version": version, "kind": kind}]);
    }
    definition
}

/// The properties of a type, with those of inlined structs, without other words for the same thing.
fn add_properties(
    schema: &Schema,
    ty: &TypeDef,
    dialect: Dialect,
    properties: &mut Map<String, Value>,
    required: &mut Vec<Value>,
) {
    for field in ty.fields.iter().filter(|field| !field.spelling) {
        match (&field.ty, field.inline) {
            (Type::Object(inner), true) => {
                if let Some(inner) = schema.get(inner) {
                    add_properties(schema, inner, dialect, properties, required);
                }
            }
            _ => {
                properties.insert(field.name.clone(), property(schema, field, dialect));
                if field.required {
                    required.push(field.name.as_str().into());
                }
            }
        }
    }
}

fn property(schema: &Schema, field: &Field, dialect: Dialect) -> Value {
    let mut notes = annotations(field);
    if !field.doc.is_empty() {
        notes.insert("description".into(), field.doc.as_str().into());
    }
    if !field.words.is_empty() {
        notes.insert("enum".into(), field.words.clone().into());
    }
    if let Some(default) = &field.default {
        notes.insert("default".into(), default.clone());
    }
    let mut property = type_schema(schema, &field.ty, dialect);
    if dialect == Dialect::V3 && property.contains_key("$ref") && !notes.is_empty() {
        // Version 3 ignores everything beside a reference.
        property = Map::from_iter([("allOf".to_owned(), json!([property]))]);
    }
    property.append(&mut notes);
    Value::Object(property)
}

/// How server-side apply and strategic merge patches treat the field.
fn annotations(field: &Field) -> Map<String, Value> {
    let mut notes = Map::new();
    let mut note = |key: &str, value: Value| notes.insert(format!("x-kubernetes-{key}"), value);
    if matches!(field.ty, Type::List(_)) {
        match &field.list {
            ListKind::Atomic => note("list-type", "atomic".into()),
            ListKind::Set => note("list-type", "set".into()),
            ListKind::Map(keys) => {
                note("list-map-keys", keys.clone().into());
                note("list-type", "map".into())
            }
        };
    }
    if field.atomic_map {
        note("map-type", "atomic".into());
    }
    if let Some(patch) = &field.patch {
        note(
            "patch-strategy",
            if patch.retain_keys {
                "merge,retainKeys"
            } else {
                "merge"
            }
            .into(),
        );
        if let Some(key) = &patch.key {
            note("patch-merge-key", key.as_str().into());
        }
    }
    notes
}

fn type_schema(schema: &Schema, ty: &Type, dialect: Dialect) -> Map<String, Value> {
    let plain = |ty: &str, format: &str| {
        let mut plain = Map::from_iter([("type".to_owned(), Value::from(ty))]);
        if !format.is_empty() {
            plain.insert("format".into(), format.into());
        }
        plain
    };
    let reference =
        |name: &str| Map::from_iter([("$ref".to_owned(), Value::from(dialect.reference(name)))]);
    let nested = |outer: &str, key: &str, inner: &Type| {
        let mut nested = plain(outer, "");
        nested.insert(
            key.into(),
            Value::Object(type_schema(schema, inner, dialect)),
        );
        nested
    };
    match ty {
        Type::String => plain("string", ""),
        Type::Bool => plain("boolean", ""),
        Type::Int32 => plain("integer", "int32"),
        Type::Int64 => plain("integer", "int64"),
        Type::Double => plain("number", "double"),
        Type::Bytes => plain("string", "byte"),
        Type::List(item) => nested("array", "items", item),
        Type::Map(item) => nested("object", "additionalProperties", item),
        Type::Object(inner) => reference(&schema.get(inner).map(name).unwrap_or_default()),
        Type::IntOrString | Type::Quantity | Type::Time | Type::MicroTime | Type::Any => {
            reference(&reference_name(ty))
        }
    }
}
