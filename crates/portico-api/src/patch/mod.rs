//! Changing an object by a patch, and remembering which manager set which field.
//!
//! Pure functions on JSON values. They produce the object that a client asked for and no more:
//! decoding by the schema, defaults, validation and storage are for the caller, who treats the
//! result like the body of a PUT.

pub mod json;
pub mod managed;
pub mod merge;
pub mod strategic;

use crate::bounds::TooMuch;
use crate::status::ApiError;

/// The answer to a patch that was understood and does not fit the object: 422 with no causes, and a
/// message that says no more than Kubernetes does.
fn does_not_apply() -> ApiError {
    ApiError::new(
        422,
        "Invalid",
        "the server rejected our request due to an error in our request",
    )
}

/// The answer to a patch that would make more than the bounds allow.
pub fn too_much(error: TooMuch) -> ApiError {
    ApiError::new(422, "Invalid", error.to_string())
}
