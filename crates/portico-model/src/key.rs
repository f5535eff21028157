//! What an object of a known kind is called.

use std::fmt;
use std::sync::Arc;

/// Namespace and name of an object; cheap to clone. The namespace is empty for kinds without one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey {
    /// Where it is.
    pub namespace: Arc<str>,
    /// What it is called there.
    pub name: Arc<str>,
}

impl ObjectKey {
    /// The key of the object with this namespace and name.
    pub fn new(namespace: &str, name: &str) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
        }
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}
