//! How field ownership sees the schema: what is one value, what has parts, and what the parts are
//! called.

use super::fieldset::Element;
use crate::codec;
use crate::schema::{Field, ListKind, Presence, Schema, Type, TypeDef};
use serde_json::Value;
use std::borrow::Cow;

/// What a value is made of.
#[derive(Clone, Copy)]
pub(super) enum Shape<'a> {
    /// One value, owned as a whole: a scalar, or something atomic.
    Leaf,
    Struct(&'a TypeDef),
    /// A map with free keys.
    Map(&'a Type),
    List(Items<'a>),
}

/// The items of a list that are told apart by key or by value.
#[derive(Clone, Copy)]
pub(super) struct Items<'a> {
    ty: &'a Type,
    kind: &'a ListKind,
}

impl<'a> Shape<'a> {
    pub(super) fn of_type(schema: &'a Schema, ty: &'a Type) -> Self {
        match ty {
            Type::Object(name) => schema
                .get(name)
                .filter(|ty| !ty.atomic)
                .map_or(Self::Leaf, Self::Struct),
            Type::Map(item) => Self::Map(item),
            _ => Self::Leaf,
        }
    }

    pub(super) fn of_field(schema: &'a Schema, field: &'a Field) -> Self {
        match &field.ty {
            Type::List(ty) if field.list != ListKind::Atomic => Self::List(Items {
                ty,
                kind: &field.list,
            }),
            _ if field.atomic_map => Self::Leaf,
            ty => Self::of_type(schema, ty),
        }
    }

    /// The shape of what stands under a name. `declared` is false for the keys of a map, which own
    /// themselves.
    pub(super) fn member(self, schema: &'a Schema, name: &str) -> Member<'a> {
        match self {
            Self::Struct(ty) => match ty.field(schema, name) {
                Some(field) => Member {
                    shape: Self::of_field(schema, field),
                    declared: true,
                },
                None => Member {
                    shape: Self::Leaf,
                    declared: false,
                },
            },
            Self::Map(ty) => Member {
                shape: Self::of_type(schema, ty),
                declared: false,
            },
            Self::Leaf | Self::List(_) => Member {
                shape: Self::Leaf,
                declared: false,
            },
        }
    }

    /// managedFields tell of all other fields and are no field themselves.
    pub(super) fn skips(self, name: &str) -> bool {
        name == "managedFields" && matches!(self, Self::Struct(ty) if ty.name == "ObjectMeta")
    }
}

pub(super) struct Member<'a> {
    pub shape: Shape<'a>,
    pub declared: bool,
}

impl<'a> Items<'a> {
    pub(super) fn shape(self, schema: &'a Schema) -> Shape<'a> {
        Shape::of_type(schema, self.ty)
    }

    /// What an item is called, or what is wrong with it.
    pub(super) fn element(
        self,
        schema: &'a Schema,
        item: &'a Value,
    ) -> Result<Element<'a>, String> {
        match self.kind {
            ListKind::Map(keys) => self.keyed(schema, keys, item),
            ListKind::Set | ListKind::Atomic => match item {
                Value::Object(_) => {
                    Err("associative list without keys has an element that's a map type".into())
                }
                Value::Array(_) => {
                    Err("not supported: associative list with lists as elements".into())
                }
                Value::Null => Err(
                    "associative list without keys has an element that's an explicit null".into(),
                ),
                scalar => Ok(Element::Value(Cow::Borrowed(scalar))),
            },
        }
    }

    fn keyed(
        self,
        schema: &'a Schema,
        names: &'a [String],
        item: &'a Value,
    ) -> Result<Element<'a>, String> {
        let Value::Object(map) = item else {
            return Err("associative list with keys may not have non-map elements".into());
        };
        let mut keys: Vec<_> = names
            .iter()
            .filter_map(|name| {
                let value = map
                    .get(name)
                    .map(Cow::Borrowed)
                    .or_else(|| self.key_default(schema, name))?;
                Some((Cow::Borrowed(name.as_str()), value))
            })
            .collect();
        if keys.is_empty() {
            return Err(format!(
                "associative list with keys has an element that omits all key fields {names:?}"
            ));
        }
        keys.sort_by(|a, b| a.0.cmp(&b.0));
        Ok(Element::Key(keys))
    }

    /// What an absent key means: its default, or zero where it would always be written.
    fn key_default(self, schema: &'a Schema, name: &str) -> Option<Cow<'a, Value>> {
        let Type::Object(ty) = self.ty else {
            return None;
        };
        let field = schema.get(ty)?.field(schema, name)?;
        match (&field.default, field.presence) {
            (Some(default), _) => Some(Cow::Borrowed(default)),
            (None, Presence::Always) => zero(&field.ty).map(Cow::Owned),
            _ => None,
        }
    }
}

/// An object of a type with nothing in it: what a new object is compared with.
pub(super) fn empty(schema: &Schema, ty: &TypeDef) -> Value {
    codec::conform(schema, &ty.name, Value::Null)
        .map(|(empty, _)| empty)
        .unwrap_or_default()
}

fn zero(ty: &Type) -> Option<Value> {
    match ty {
        Type::String => Some("".into()),
        Type::Bool => Some(false.into()),
        Type::Int32 | Type::Int64 => Some(0.into()),
        _ => None,
    }
}
