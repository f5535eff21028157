//! The line format of the `*.schema` files.

use super::Schema;

pub(super) fn built_in() -> Schema {
    Schema::default()
}
