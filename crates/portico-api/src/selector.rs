//! Label and field selectors: parsed once from a request, then matched against many objects.

mod field;
mod label;

pub use field::{FieldSelector, only_name};
pub use label::LabelSelector;
