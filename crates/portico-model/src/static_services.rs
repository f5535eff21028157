//! Static Services: those that programs and people on the node write into files, which the node
//! serves beside those of the API server. What the node and the writers of the files agree on.

use crate::hash;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The default folder of the files.
pub const FOLDER: &str = "/run/portico/services";

/// In the folder: the node's own note of what is in force, an [`Installed`] as JSON. The node that
/// serves the folder has it locked (`flock`), so a note without a lock is of the past.
pub const INSTALLED: &str = ".installed";

/// What is in force.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Installed {
    /// The dataplane of the node.
    pub mode: String,
    /// The [`version`] of each file that the kernel has, by name.
    pub files: BTreeMap<String, String>,
}

/// Tells contents of a file apart.
pub fn version(content: &[u8]) -> String {
    format!("{:016x}", hash::stable(content))
}

/// No namespace of the API can be called so.
const PREFIX: &str = "static:";

/// The namespace under which objects of a file are known, whatever namespace they say: so they
/// never meet objects of the API server.
pub fn namespace(file: &str, namespace: &str) -> String {
    let namespace = if namespace.is_empty() {
        "default"
    } else {
        namespace
    };
    format!("{PREFIX}{file}/{namespace}")
}

/// Whether objects of this namespace come from a file.
pub fn is_static(namespace: &str) -> bool {
    namespace.starts_with(PREFIX)
}
