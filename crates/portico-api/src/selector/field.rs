//! Field selectors: `metadata.name=x,spec.type!=y`.

use crate::kinds::Kind;
use crate::object;
use crate::status::ApiError;
use serde_json::Value;

/// Terms that the fields of an object must meet, all of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSelector {
    terms: Vec<Term>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Term {
    field: String,
    value: String,
    equal: bool,
}

impl FieldSelector {
    /// Parse the `fieldSelector` of a request for this kind. No text selects everything.
    pub fn parse(kind: &dyn Kind, text: &str) -> Result<Self, ApiError> {
        let mut parts = split_terms(text);
        parts.sort_unstable();
        let mut terms = Vec::new();
        for part in parts.into_iter().filter(|part| !part.is_empty()) {
            let (field, equal, value) = split_term(part).ok_or_else(|| {
                ApiError::bad_request(format!(
                    "invalid selector: '{text}'; can't understand '{part}'"
                ))
            })?;
            let value = unescape(value)
                .map_err(|why| ApiError::bad_request(format!("invalid field selector: {why}")))?;
            terms.push(Term {
                field: field.to_owned(),
                value,
                equal,
            });
        }
        match terms.iter().find(|term| !is_supported(kind, &term.field)) {
            Some(term) => Err(unsupported(kind, &term.field)),
            None => Ok(Self { terms }),
        }
    }

    /// Selects everything.
    pub fn is_empty(&self) -> bool {
        self.terms.is_empty()
    }

    /// The one value that this field must have, if the selector says so.
    pub fn exact(&self, field: &str) -> Option<&str> {
        self.terms
            .iter()
            .find(|term| term.equal && term.field == field)
            .map(|term| term.value.as_str())
    }

    /// Does this object match, in its stored spelling?
    pub fn matches(&self, kind: &dyn Kind, object: &Value) -> bool {
        self.terms.iter().all(|term| {
            let same = match term.field.as_str() {
                "metadata.name" => object::name(object) == term.value,
                "metadata.namespace" => object::namespace(object) == term.value,
                field => kind.selectable_field(object, field) == term.value,
            };
            same == term.equal
        })
    }
}

/// The one name that a field selector leaves, whatever the kind: who may read that object alone may
/// ask for it so. Nothing where the text is no selector or the value no name.
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
        "metadata.namespace" => kind.info().namespaced || kind.selectable_fields().is_empty(),
        _ => kind.selectable_fields().contains(&field),
    }
}

fn unsupported(kind: &dyn Kind, field: &str) -> ApiError {
    ApiError::bad_request(match kind.selectable_fields() {
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
