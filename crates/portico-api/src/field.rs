//! Where in an object something is wrong, and what: field paths and field errors.
//!
//! The words are those of Kubernetes, because people search for them and programs match them.

use serde_json::Value;
use std::fmt;

/// A path such as `spec.ports[0].nodePort`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Path(String);

impl Path {
    /// The path of a field at the top.
    pub fn new(root: &str) -> Self {
        Self(root.to_owned())
    }

    /// The path of a field of this one.
    pub fn child(&self, name: &str) -> Self {
        if self.0.is_empty() {
            Self::new(name)
        } else {
            Self(format!("{}.{name}", self.0))
        }
    }

    /// The path of an item of this list.
    pub fn index(&self, index: usize) -> Self {
        Self(format!("{}[{index}]", self.0))
    }

    /// The path of an entry of this map.
    pub fn key(&self, key: &str) -> Self {
        Self(format!("{}[{key}]", self.0))
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What kind of mistake it is; `reason` gives the word that a `Status` cause carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Problem {
    /// It names something that is not there.
    NotFound,
    /// It is not set.
    Required,
    /// Another item has the same value.
    Duplicate,
    /// Its value cannot be used.
    Invalid,
    /// Its value is not one of those that are allowed.
    NotSupported,
    /// It may not be set here.
    Forbidden,
    /// Its text is too long.
    TooLong,
    /// It has too many items.
    TooMany,
    /// The server could not check it.
    Internal,
    /// Its value is of another type.
    TypeInvalid,
}

impl Problem {
    /// The reason in the causes of a Status.
    pub fn reason(self) -> &'static str {
        match self {
            Self::NotFound => "FieldValueNotFound",
            Self::Required => "FieldValueRequired",
            Self::Duplicate => "FieldValueDuplicate",
            Self::Invalid => "FieldValueInvalid",
            Self::NotSupported => "FieldValueNotSupported",
            Self::Forbidden => "FieldValueForbidden",
            Self::TooLong => "FieldValueTooLong",
            Self::TooMany => "FieldValueTooMany",
            Self::Internal => "InternalError",
            Self::TypeInvalid => "FieldValueTypeInvalid",
        }
    }

    fn text(self) -> &'static str {
        match self {
            Self::NotFound => "Not found",
            Self::Required => "Required value",
            Self::Duplicate => "Duplicate value",
            Self::Invalid | Self::TypeInvalid => "Invalid value",
            Self::NotSupported => "Unsupported value",
            Self::Forbidden => "Forbidden",
            Self::TooLong => "Too long",
            Self::TooMany => "Too many",
            Self::Internal => "Internal error",
        }
    }
}

/// One mistake in one field.
#[derive(Clone, Debug, PartialEq)]
pub struct Error {
    /// What is wrong.
    pub problem: Problem,
    /// The path of the field.
    pub field: String,
    /// The message without the field: `Invalid value: 0: must be between 1 and 65535, inclusive`.
    pub message: String,
}

/// All that is wrong with an object; empty if it is valid.
pub type Errors = Vec<Error>;

impl Error {
    fn new(problem: Problem, path: &Path, value: Option<String>, detail: &str) -> Self {
        let mut message = problem.text().to_owned();
        for part in value
            .as_deref()
            .into_iter()
            .chain((!detail.is_empty()).then_some(detail))
        {
            message.push_str(": ");
            message.push_str(part);
        }
        Self {
            problem,
            field: path.to_string(),
            message,
        }
    }

    /// The field has to be set.
    pub fn required(path: &Path, detail: &str) -> Self {
        Self::new(Problem::Required, path, None, detail)
    }

    /// The value cannot be used, for the reason in `detail`.
    pub fn invalid(path: &Path, value: impl Into<Value>, detail: impl AsRef<str>) -> Self {
        Self::new(
            Problem::Invalid,
            path,
            Some(value.into().to_string()),
            detail.as_ref(),
        )
    }

    /// The value is of another type.
    pub fn type_invalid(path: &Path, value: impl Into<Value>, detail: impl AsRef<str>) -> Self {
        Self::new(
            Problem::TypeInvalid,
            path,
            Some(value.into().to_string()),
            detail.as_ref(),
        )
    }

    /// The value is not one of `supported`.
    pub fn not_supported(path: &Path, value: impl Into<Value>, supported: &[&str]) -> Self {
        let mut supported: Vec<String> = supported.iter().map(|s| format!("{s:?}")).collect();
        supported.sort();
        let detail = format!("supported values: {}", supported.join(", "));
        Self::new(
            Problem::NotSupported,
            path,
            Some(value.into().to_string()),
            &detail,
        )
    }

    /// Another item has the value.
    pub fn duplicate(path: &Path, value: impl Into<Value>) -> Self {
        Self::new(Problem::Duplicate, path, Some(value.into().to_string()), "")
    }

    /// The value names something that is not there.
    pub fn not_found(path: &Path, value: impl Into<Value>) -> Self {
        Self::new(Problem::NotFound, path, Some(value.into().to_string()), "")
    }

    /// The field may not be set here, for the reason in `detail`.
    pub fn forbidden(path: &Path, detail: impl AsRef<str>) -> Self {
        Self::new(Problem::Forbidden, path, None, detail.as_ref())
    }

    /// The text has more than `most` bytes.
    pub fn too_long(path: &Path, most: usize) -> Self {
        Self::new(
            Problem::TooLong,
            path,
            None,
            &format!("may not be more than {most} bytes"),
        )
    }

    /// The list has `count` items where `most` are allowed.
    pub fn too_many(path: &Path, count: usize, most: usize) -> Self {
        Self::new(
            Problem::TooMany,
            path,
            Some(count.to_string()),
            &format!("must have at most {most} items"),
        )
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_read_as_kubernetes_writes_them() {
        let path = Path::new("spec").child("ports").index(1).child("port");
        assert_eq!(
            Error::invalid(&path, 0, "must be between 1 and 65535, inclusive").to_string(),
            "spec.ports[1].port: Invalid value: 0: must be between 1 and 65535, inclusive"
        );
        assert_eq!(
            Error::required(&path, "").to_string(),
            "spec.ports[1].port: Required value"
        );
        assert_eq!(
            Error::not_supported(&path, "x", &["b", "a"]).to_string(),
            "spec.ports[1].port: Unsupported value: \"x\": supported values: \"a\", \"b\""
        );
    }
}
