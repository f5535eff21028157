//! What every served type looks like: one table that drives decoding (JSON and protobuf),
//! strictness, patches, server-side apply and OpenAPI.
//!
//! The table is written in `*.schema` files, one per API group, in a small line format described in
//! `parse.rs`.

mod parse;

use std::collections::BTreeMap;
use std::sync::LazyLock;

/// All types, by name.
#[derive(Debug, Default)]
pub struct Schema {
    types: BTreeMap<String, TypeDef>,
}

/// A struct of the API.
#[derive(Debug, Default)]
pub struct TypeDef {
    /// `ServiceSpec`; unique over all groups.
    pub name: String,
    /// The name in its own group, where `EventsEvent` is `Event`.
    pub local: String,
    /// The OpenAPI package: `io.k8s.api.core.v1`.
    pub package: String,
    /// The description, in the words of the schema file.
    pub doc: String,
    /// The fields, in the order of the schema file.
    pub fields: Vec<Field>,
    /// Server-side apply treats the whole struct as one value.
    pub atomic: bool,
    /// `(group, version, kind)` when this is a kind of its own.
    pub kind: Option<(String, String, String)>,
}

/// A field of a type.
#[derive(Debug)]
pub struct Field {
    /// The name in JSON.
    pub name: String,
    /// The protobuf field number; 0 where Kubernetes has none.
    pub number: u32,
    /// The type of the value.
    pub ty: Type,
    /// When the field is written.
    pub presence: Presence,
    /// The JSON fields of the struct stand directly in the parent (in protobuf it is a message of
    /// its own).
    pub inline: bool,
    /// Whether OpenAPI says that it has to be set.
    pub required: bool,
    /// How server-side apply treats a list.
    pub list: ListKind,
    /// Server-side apply treats the map as one value.
    pub atomic_map: bool,
    /// How a strategic merge patch treats a list or struct; `None` replaces a list, merges a
    /// struct.
    pub patch: Option<PatchStrategy>,
    /// The permitted words, for the documentation alone.
    pub words: Vec<String>,
    /// Defaults that server-side apply needs to compute the keys of list items (`protocol` is TCP).
    pub default: Option<serde_json::Value>,
    /// Another word for a field of the same type: understood in requests, never stored or
    /// documented.
    pub spelling: bool,
    /// The description, in the words of the schema file.
    pub doc: String,
}

/// The type of a value.
#[derive(Clone, Debug, PartialEq)]
pub enum Type {
    /// A string.
    String,
    /// A boolean.
    Bool,
    /// A number of 32 bits.
    Int32,
    /// A number of 64 bits.
    Int64,
    /// A number with a fraction.
    Double,
    /// Base64 in JSON.
    Bytes,
    /// A number, or a string.
    IntOrString,
    /// A quantity of Kubernetes, such as `100m`.
    Quantity,
    /// A time in whole seconds (RFC 3339).
    Time,
    /// A time in microseconds (RFC 3339).
    MicroTime,
    /// Any JSON, kept as it is.
    Any,
    /// A list of values.
    List(Box<Self>),
    /// A map with strings as keys.
    Map(Box<Self>),
    /// A struct by the name of its `TypeDef`.
    Object(String),
}

/// When a field is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// Left out when it has its zero value (`""`, 0, false, empty list or map).
    OmitZero,
    /// A pointer: zero values are kept, absent stays absent.
    Optional,
    /// Always written, with its zero value if need be.
    Always,
}

/// How server-side apply treats a list.
#[derive(Clone, Debug, PartialEq)]
pub enum ListKind {
    /// As one value.
    Atomic,
    /// As a set of plain values.
    Set,
    /// Items are known by these keys.
    Map(Vec<String>),
}

/// How a strategic merge patch treats a list or struct.
#[derive(Clone, Debug, PartialEq)]
pub struct PatchStrategy {
    /// The merge key of a list of objects; `None` for a list of plain values.
    pub key: Option<String>,
    /// Whether fields that the patch does not name are removed (`retainKeys`).
    pub retain_keys: bool,
}

static SCHEMA: LazyLock<Schema> = LazyLock::new(parse::built_in);

/// The built-in schema.
pub fn schema() -> &'static Schema {
    &SCHEMA
}

impl Schema {
    /// The type with this name.
    pub fn get(&self, name: &str) -> Option<&TypeDef> {
        self.types.get(name)
    }

    /// The type of a kind.
    pub fn of_kind(&self, group: &str, version: &str, kind: &str) -> Option<&TypeDef> {
        let wanted = (group, version, kind);
        self.types.values().find(|ty| {
            ty.kind
                .as_ref()
                .is_some_and(|(g, v, k)| (g.as_str(), v.as_str(), k.as_str()) == wanted)
        })
    }

    /// All types, sorted by name.
    pub fn types(&self) -> Vec<&TypeDef> {
        self.types.values().collect()
    }
}

impl Field {
    /// A plain field: left out when zero, no flags.
    fn new(name: &str, ty: Type) -> Self {
        Self {
            name: name.to_owned(),
            number: 0,
            ty,
            presence: Presence::OmitZero,
            inline: false,
            required: false,
            list: ListKind::Atomic,
            atomic_map: false,
            patch: None,
            words: Vec::new(),
            default: None,
            spelling: false,
            doc: String::new(),
        }
    }
}

impl TypeDef {
    /// The field of that JSON name, also inside inlined structs.
    pub fn field<'a>(&'a self, schema: &'a Schema, name: &str) -> Option<&'a Field> {
        self.fields
            .iter()
            .find_map(|field| match (&field.ty, field.inline) {
                (Type::Object(inner), true) => {
                    schema.get(inner).and_then(|ty| ty.field(schema, name))
                }
                _ => (field.name == name).then_some(field),
            })
    }
}
