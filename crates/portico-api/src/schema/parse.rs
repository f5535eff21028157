//! The line format of the `*.schema` files.
//!
//! ```text
//! # a comment
//! package io.k8s.api.core.v1          the OpenAPI package of what follows
//! group v1                            its group and version, `discovery.k8s.io/v1`
//!
//! kind Service list                   a kind; `list` makes the type ServiceList too
//!   | What it is.                     documents the line above
//!   metadata 1 ObjectMeta always      field, protobuf number (0: none), type, flags
//!     | What it is for.
//! type ServicePort                    a struct that is no kind
//! ```
//!
//! Names of types are unique over all files; `as=Event` gives the name in the API where that
//! differs. `atomic` after the name makes server-side apply treat the struct as one value.
//!
//! Field types are `string`, `bool`, `int32`, `int64`, `double`, `bytes`, `intorstring`,
//! `quantity`, `time`, `microtime`, `any`, a struct, `[]T` and `map[T]` (keys are text). Field
//! flags:
//!
//! | flag | meaning |
//! |---|---|
//! | (none) | left out when it has its zero value |
//! | `optional` | a pointer: absent is not the same as zero |
//! | `always` | always written |
//! | `required` | clients must give it; always written unless `optional` |
//! | `inline` | the fields of the struct stand in the parent |
//! | `list=set`, `list=map:key,key` | how server-side apply tells items apart; atomic otherwise |
//! | `atomic` | server-side apply treats the map or struct as one value |
//! | `patch=merge`, `patch=merge:key` | a strategic merge patch merges the list, by value or by key |
//! | `retainkeys` | a strategic merge patch may say which keys of an item stay |
//! | `words=A,B` | the permitted words |
//! | `default=JSON` | what an absent field means; no spaces |
//! | `spelling` | another word for a field of the same type: read, never shown |

use super::{Field, ListKind, PatchStrategy, Presence, Schema, Type, TypeDef};

const FILES: &[(&str, &str)] = &[
    ("meta", include_str!("meta.schema")),
    ("core", include_str!("core.schema")),
    ("pod", include_str!("pod.schema")),
    ("discovery", include_str!("discovery.schema")),
    ("coordination", include_str!("coordination.schema")),
    ("networking", include_str!("networking.schema")),
    ("events", include_str!("events.schema")),
    ("rbac", include_str!("rbac.schema")),
    ("authentication", include_str!("authentication.schema")),
    ("authorization", include_str!("authorization.schema")),
    ("portico", include_str!("portico.schema")),
];

/// The schema of the files above. A test proves that they parse; should one not, what it says
/// before the mistake holds.
pub(super) fn built_in() -> Schema {
    let mut schema = Schema::default();
    for (_, text) in FILES {
        let (types, _) = parse(text);
        schema
            .types
            .extend(types.into_iter().map(|ty| (ty.name.clone(), ty)));
    }
    schema
}

/// The types of one file, and the first mistake with its line number.
fn parse(text: &str) -> (Vec<TypeDef>, Option<String>) {
    let mut file = File::default();
    for (index, line) in text.lines().enumerate() {
        if let Err(problem) = file.line(line) {
            return (
                file.finish(),
                Some(format!("line {}: {problem}", index + 1)),
            );
        }
    }
    (file.finish(), None)
}

#[derive(Default)]
struct File {
    package: String,
    group: String,
    version: String,
    types: Vec<TypeDef>,
    /// Which of the types have a list.
    listed: Vec<usize>,
}

impl File {
    fn line(&mut self, line: &str) -> Result<(), String> {
        let text = line.trim();
        if text.is_empty() || text.starts_with('#') {
            return Ok(());
        }
        if let Some(doc) = text.strip_prefix('|') {
            return self.doc(doc.trim());
        }
        if line.starts_with(' ') {
            let field = field(text)?;
            self.types
                .last_mut()
                .ok_or("a field outside a type")?
                .fields
                .push(field);
            return Ok(());
        }
        match text.split_once(' ') {
            Some(("package", name)) => name.clone_into(&mut self.package),
            Some(("group", name)) => {
                let (group, version) = name.split_once('/').unwrap_or(("", name));
                group.clone_into(&mut self.group);
                version.clone_into(&mut self.version);
            }
            Some((word @ ("type" | "kind"), rest)) => self.start(rest, word == "kind")?,
            _ => return Err(format!("cannot read {text:?}")),
        }
        Ok(())
    }

    fn start(&mut self, text: &str, is_kind: bool) -> Result<(), String> {
        let mut words = text.split_whitespace();
        let name = words.next().ok_or("no name")?;
        let mut ty = TypeDef {
            name: name.to_owned(),
            local: name.to_owned(),
            package: self.package.clone(),
            ..TypeDef::default()
        };
        for word in words {
            match word.split_once('=') {
                Some(("as", local)) => local.clone_into(&mut ty.local),
                None if word == "atomic" => ty.atomic = true,
                None if word == "list" && is_kind => self.listed.push(self.types.len()),
                _ => return Err(format!("unknown flag {word:?}")),
            }
        }
        if is_kind {
            ty.kind = Some((self.group.clone(), self.version.clone(), ty.local.clone()));
        }
        self.types.push(ty);
        Ok(())
    }

    fn doc(&mut self, line: &str) -> Result<(), String> {
        let ty = self.types.last_mut().ok_or("documentation of nothing")?;
        let doc = ty
            .fields
            .last_mut()
            .map_or(&mut ty.doc, |field| &mut field.doc);
        if !doc.is_empty() {
            doc.push(' ');
        }
        doc.push_str(line);
        Ok(())
    }

    fn finish(mut self) -> Vec<TypeDef> {
        let lists: Vec<TypeDef> = self
            .listed
            .iter()
            .filter_map(|&index| self.types.get(index))
            .map(list_of)
            .collect();
        self.types.extend(lists);
        self.types
    }
}

/// `ServiceList` for `Service`.
fn list_of(item: &TypeDef) -> TypeDef {
    let field = |name: &str, number, ty, doc: &str| Field {
        number,
        presence: Presence::Always,
        doc: doc.to_owned(),
        ..Field::new(name, ty)
    };
    let mut type_meta = Field::new("typeMeta", Type::Object("TypeMeta".into()));
    type_meta.inline = true;
    let metadata = field(
        "metadata",
        1,
        Type::Object("ListMeta".into()),
        "The revision of the list, and where the next page starts.",
    );
    let mut items = field(
        "items",
        2,
        Type::List(Box::new(Type::Object(item.name.clone()))),
        "The objects.",
    );
    items.required = true;
    TypeDef {
        name: format!("{}List", item.name),
        local: format!("{}List", item.local),
        package: item.package.clone(),
        doc: format!("A list of {} objects.", item.local),
        fields: vec![type_meta, metadata, items],
        atomic: false,
        kind: item
            .kind
            .clone()
            .map(|(group, version, kind)| (group, version, format!("{kind}List"))),
    }
}

fn field(text: &str) -> Result<Field, String> {
    let mut words = text.split_whitespace();
    let mut word = || {
        words
            .next()
            .ok_or_else(|| format!("a field needs name, number and type: {text:?}"))
    };
    let (name, number, ty) = (word()?, word()?, word()?);
    let mut field = Field::new(name, parse_type(ty)?);
    field.number = number
        .parse()
        .map_err(|_| format!("{number:?} is no number"))?;
    let mut flags: Vec<&str> = words.collect();
    flags.sort_by_key(|flag| *flag == "required"); // last: it depends on `optional`
    flags
        .into_iter()
        .try_for_each(|word| flag(&mut field, word))?;
    Ok(field)
}

fn flag(field: &mut Field, word: &str) -> Result<(), String> {
    match word.split_once('=').unwrap_or((word, "")) {
        ("optional", "") => field.presence = Presence::Optional,
        ("always", "") => field.presence = Presence::Always,
        ("required", "") => {
            field.required = true;
            if field.presence == Presence::OmitZero {
                field.presence = Presence::Always;
            }
        }
        ("inline", "") => field.inline = true,
        ("atomic", "") => field.atomic_map = true,
        ("spelling", "") => field.spelling = true,
        ("list", "set") => field.list = ListKind::Set,
        ("list", kind) => {
            let keys = kind
                .strip_prefix("map:")
                .ok_or_else(|| format!("unknown list {kind:?}"))?;
            field.list = ListKind::Map(keys.split(',').map(str::to_owned).collect());
        }
        ("patch", strategy) => {
            let key = strategy
                .strip_prefix("merge")
                .ok_or_else(|| format!("unknown patch {strategy:?}"))?;
            let key = key.strip_prefix(':').map(str::to_owned);
            field.patch = Some(PatchStrategy {
                key,
                retain_keys: false,
            });
        }
        ("retainkeys", "") => {
            field
                .patch
                .as_mut()
                .ok_or("retainkeys stands after patch")?
                .retain_keys = true
        }
        ("words", words) => field.words = words.split(',').map(str::to_owned).collect(),
        ("default", json) => {
            field.default = Some(serde_json::from_str(json).map_err(|e| e.to_string())?)
        }
        _ => return Err(format!("unknown flag {word:?}")),
    }
    Ok(())
}

fn parse_type(text: &str) -> Result<Type, String> {
    if let Some(item) = text.strip_prefix("[]") {
        return Ok(Type::List(Box::new(parse_type(item)?)));
    }
    if let Some(value) = text
        .strip_prefix("map[")
        .and_then(|rest| rest.strip_suffix(']'))
    {
        return Ok(Type::Map(Box::new(parse_type(value)?)));
    }
    Ok(match text {
        "string" => Type::String,
        "bool" => Type::Bool,
        "int32" => Type::Int32,
        "int64" => Type::Int64,
        "double" => Type::Double,
        "bytes" => Type::Bytes,
        "intorstring" => Type::IntOrString,
        "quantity" => Type::Quantity,
        "time" => Type::Time,
        "microtime" => Type::MicroTime,
        "any" => Type::Any,
        name if name.starts_with(|c: char| c.is_ascii_uppercase()) => Type::Object(name.to_owned()),
        other => return Err(format!("unknown type {other:?}")),
    })
}

#[cfg(test)]
mod tests;
