//! Bytes to objects and back: JSON with duplicate detection, protobuf, the stored form, and the one
//! function that makes any decoded value look the way its type says (`conform`).
//!
//! YAML is turned into a value by the server and goes through `conform` like everything else.

mod conform;
pub mod json;
pub mod proto;
mod quantity;
mod scalar;
pub mod stored;
pub(crate) mod time;

pub use conform::{TypeError, conform};

/// Kubernetes reports no more than this many mistakes of a strict kind.
const MOST_PROBLEMS: usize = 100;
/// Nor more than these bytes: each begins with its path, in which a name can be as long as a body.
const MOST_PROBLEM_BYTES: usize = 64 * 1024;

/// Whether enough mistakes are known to stop telling them.
pub(crate) fn is_enough(problems: &[String]) -> bool {
    problems.len() >= MOST_PROBLEMS
        || problems.iter().map(String::len).sum::<usize>() >= MOST_PROBLEM_BYTES
}

/// What strict decoding has to say: `unknown field "spec.nodeport"`, `duplicate field "spec.type"`.
/// In Warn mode each is the text of a warning.
pub fn strict_problems(unknown: &[String], duplicate: &[String]) -> Vec<String> {
    let unknown = unknown.iter().map(|path| format!("unknown field {path:?}"));
    let duplicate = duplicate
        .iter()
        .map(|path| format!("duplicate field {path:?}"));
    unknown.chain(duplicate).take(MOST_PROBLEMS).collect()
}

/// The error text of Strict mode, or nothing when there is no problem.
pub fn strict_error(problems: &[String]) -> Option<String> {
    (!problems.is_empty()).then(|| format!("strict decoding error: {}", problems.join(", ")))
}

#[cfg(test)]
mod tests;
