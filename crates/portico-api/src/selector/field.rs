//! Field selectors: `metadata.name=x,spec.type!=y`.

use crate::kinds::Kind;
use crate::object;
use crate::status::ApiError;
use memchr::memmem;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// What the fields of an object must be, all of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSelector {
    fields: BTreeMap<String, Wanted>,
}

/// What one field must be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Wanted {
    /// It must equal all of these: with more than one, nothing does.
    equal: BTreeSet<String>,
    /// It must equal none of these.
    different: BTreeSet<String>,
}

impl Wanted {
    fn allows(&self, value: &str) -> bool {
        self.equal.iter().all(|wanted| wanted == value) && !self.different.contains(value)
    }
}

impl FieldSelector {
    /// Parse the `fieldSelector` of a request for this kind. No text selects everything.
    pub fn parse(kind: &dyn Kind, text: &str) -> Result<Self, ApiError> {
        let mut parts = split_terms(text);
        super::check_terms("fieldSelector", parts.len())?;
        parts.sort_unstable();
        let mut fields: BTreeMap<String, Wanted> = BTreeMap::new();
        for part in parts.into_iter().filter(|part| !part.is_empty()) {
            let (field, equal, value) = split_term(part).ok_or_else(|| {
                ApiError::bad_request(format!(
                    "invalid selector: '{text}'; can't understand '{part}'"
                ))
            })?;
            let value = unescape(value)
                .map_err(|why| ApiError::bad_request(format!("invalid field selector: {why}")))?;
            let wanted = fields.entry(field.to_owned()).or_default();
            match equal {
                true => wanted.equal.insert(value),
                false => wanted.different.insert(value),
            };
        }
        match fields.keys().find(|field| !is_supported(kind, field)) {
            Some(field) => Err(unsupported(kind, field)),
            None => Ok(Self { fields }),
        }
    }

    /// Selects everything.
    pub fn is_empty(&self) -> bool {
        self.fields.is_empty()
    }

    /// The one value that this field must have, if the selector says so.
    pub fn exact(&self, field: &str) -> Option<&str> {
        let wanted = self.fields.get(field)?;
        wanted.equal.first().map(String::as_str)
    }

    /// The bytes of a stored object already say that it does not match.
    pub fn rules_out(&self, kind: &dyn Kind, stored: &[u8]) -> bool {
        let mut known = self
            .fields
            .iter()
            .filter(|(field, _)| kind.is_stored_as_selected(field));
        known.any(|(_, wanted)| {
            // What JSON does not escape is there as it is.
            let mut plain = wanted.equal.iter().filter(|value| {
                let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
                value.bytes().all(is_plain)
            });
            plain.any(|value| memmem::find(stored, value.as_bytes()).is_none())
        })
    }

    /// Does this object match, in its stored spelling?
    pub fn matches(&self, kind: &dyn Kind, object: &Value) -> bool {
        self.fields
            .iter()
            .all(|(field, wanted)| match field.as_str() {
                "metadata.name" => wanted.allows(object::name(object)),
                "metadata.namespace" => wanted.allows(object::namespace(object)),
                field => wanted.allows(&kind.selectable_field(object, field)),
            })
    }
}

/// The one name that a field selector leaves, whatever the kind: a user who may read only that
/// object may list it this way. `None` where the text is no selector or the value no name.
pub fn only_name(text: &str) -> Option<String> {
    let name = split_terms(text)
        .into_iter()
        .filter_map(split_term)
        .find_map(|(field, equal, value)| {
            (equal && field == "metadata.name").then(|| unescape(value))
        })?
        .ok()?;
    let good = !matches!(name.as_str(), "" | "." | "..") && !name.contains(['/', '%']);
    good.then_some(name)
}

fn is_supported(kind: &dyn Kind, field: &str) -> bool {
    match field {
        "metadata.name" => true,
        // Kinds with a list of their own leave the namespace out where there is none.
        "metadata.namespace" => kind.info().namespaced || kind.info().selectable_fields.is_empty(),
        _ => kind.info().selectable_fields.contains(&field),
    }
}

fn unsupported(kind: &dyn Kind, field: &str) -> ApiError {
    ApiError::bad_request(match kind.info().selectable_fields {
        [] => format!(
            "{field:?} is not a known field selector: only \"metadata.name\", \
             \"metadata.namespace\""
        ),
        _ => format!("field label not supported: {field}"),
    })
}

/// Split at commas that no backslash escapes.
fn split_terms(text: &str) -> Vec<&str> {
    let mut escaped = false;
    text.split(|c| {
        let splits = c == ',' && !escaped;
        escaped = c == '\\' && !escaped;
        splits
    })
    .collect()
}

/// Split at the first operator.
fn split_term(term: &str) -> Option<(&str, bool, &str)> {
    term.char_indices().find_map(|(at, _)| {
        let (field, rest) = term.split_at_checked(at)?;
        [("!=", false), ("==", true), ("=", true)]
            .into_iter()
            .find_map(|(operator, equal)| Some((field, equal, rest.strip_prefix(operator)?)))
    })
}

fn unescape(text: &str) -> Result<String, String> {
    let mut value = String::with_capacity(text.len());
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        match character {
            '\\' => match characters.next() {
                Some(next @ ('\\' | ',' | '=')) => value.push(next),
                next => {
                    return Err(format!(
                        "invalid escape sequence: \\{}",
                        next.map(String::from).unwrap_or_default()
                    ));
                }
            },
            ',' | '=' => return Err(format!("unescaped character in value: {character}")),
            _ => value.push(character),
        }
    }
    Ok(value)
}

#[cfg(test)]
mod tests;
