//! Label and field selectors: parsed once from a request, then matched against many objects.

mod field;
mod label;

pub use field::{FieldSelector, only_name};
pub use label::LabelSelector;

use crate::status::ApiError;

/// The most terms that a selector of a request may have, values in sets included.
pub const MOST_TERMS: usize = 10_000;

fn check_terms(parameter: &str, count: usize) -> Result<(), ApiError> {
    if count <= MOST_TERMS {
        return Ok(());
    }
    Err(ApiError::bad_request(format!(
        "{parameter}: has {count} terms, at most {MOST_TERMS} are allowed: ask for less, or choose \
         by a label that all of the objects have"
    )))
}
