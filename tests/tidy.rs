//! The rules of the house, checked: who may depend on whom, what pure crates may not do, what every
//! file has, and that the docs are true.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "tidy/docs.rs"]
mod docs;
#[path = "tidy/documents.rs"]
mod documents;

use std::fs;
use std::path::{Path, PathBuf};

/// Crates that decide and touch nothing.
const PURE: &[&str] = &[
    "portico-api",
    "portico-bgp",
    "portico-l2",
    "portico-model",
    "portico-view",
    "portico-vrrp",
];
/// Crates that tests need and releases do not.
const FOR_TESTS: &[&str] = &["portico-fakecloud", "portico-testbed"];
/// Longer files are hard to find one's way in.
const MOST_LINES: usize = 1000;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()
        .expect("the workspace is there")
}

fn sources(below: &Path, out: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(below).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() && !path.ends_with("target") {
            sources(&path, out);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            out.push(path);
        }
    }
}

fn all_sources() -> Vec<(PathBuf, String)> {
    let (root, mut paths) = (root(), Vec::new());
    for folder in ["crates", "tests", "benches"] {
        sources(&root.join(folder), &mut paths);
    }
    paths.sort();
    let read = |path: PathBuf| {
        let text = fs::read_to_string(&path).expect("a source file is text");
        (
            path.strip_prefix(&root).map(Path::to_owned).unwrap_or(path),
            text,
        )
    };
    paths.into_iter().map(read).collect()
}

#[test]
fn files_say_what_they_own_and_are_not_too_long() {
    let mut problems = Vec::new();
    for (path, text) in all_sources() {
        // A `tests.rs` belongs to the file whose tests it has.
        let is_tests = path
            .components()
            .any(|part| part.as_os_str() == "tests" || part.as_os_str() == "tests.rs");
        if !is_tests && !text.starts_with("//!") {
            problems.push(format!(
                "{} does not begin with what it owns (`//! ...`)",
                path.display()
            ));
        }
        if text.lines().count() > MOST_LINES {
            problems.push(format!(
                "{} has more than {MOST_LINES} lines",
                path.display()
            ));
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn pure_crates_touch_nothing() {
    const FORBIDDEN: &[&str] = &[
        "std::fs",
        "std::process",
        "std::thread",
        "std::time::SystemTime",
        "SystemTime::now",
        "Instant::now",
        "Timestamp::now",
        "TcpStream",
        "UdpSocket",
        "async fn",
        "tokio::",
    ];
    let mut problems = Vec::new();
    for (path, text) in all_sources() {
        let pure = PURE
            .iter()
            .any(|name| path.starts_with(Path::new("crates").join(name)));
        let code = text
            .lines()
            .filter(|line| !line.trim_start().starts_with("//"))
            .collect::<Vec<_>>()
            .join("\n");
        for word in FORBIDDEN
            .iter()
            .filter(|word| pure && code.contains(**word))
        {
            problems.push(format!("{} uses {word}", path.display()));
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn make_quick_runs_the_tests_of_all_pure_crates() {
    let makefile = fs::read_to_string(root().join("Makefile")).expect("there is a Makefile");
    let line = format!("PURE := {}", PURE.join(" "));
    assert!(
        makefile.lines().any(|found| found == line),
        "Makefile has no line {line}"
    );
}

/// What clippy forbids them is in one file.
#[test]
fn clippy_knows_which_crates_are_pure() {
    let rules = root().join("clippy-pure.toml");
    for name in PURE {
        let found = root().join("crates").join(name).join("clippy.toml");
        let target = found
            .canonicalize()
            .expect("a pure crate has a clippy.toml");
        assert_eq!(target, rules, "{name}: clippy.toml is no link to the rules");
    }
}

/// The names in `[dependencies]` of a crate.
fn dependencies(name: &str) -> Vec<String> {
    let manifest = root().join("crates").join(name).join("Cargo.toml");
    let text = fs::read_to_string(&manifest).expect("every crate has a manifest");
    let section = text.split("[dependencies]").nth(1).unwrap_or_default();
    let lines = section.lines().take_while(|line| !line.starts_with('['));
    lines
        .filter_map(|line| line.split(['.', ' ', '=']).next())
        .filter(|name| !name.is_empty())
        .map(str::to_owned)
        .collect()
}

#[test]
fn nothing_in_a_release_needs_a_test_crate() {
    let crates = fs::read_dir(root().join("crates")).expect("the workspace has crates");
    for entry in crates.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let wrong: Vec<String> = dependencies(&name)
            .into_iter()
            .filter(|dependency| FOR_TESTS.contains(&dependency.as_str()))
            .collect();
        assert!(wrong.is_empty(), "{name} depends on {wrong:?}");
    }
}

#[test]
fn dependencies_point_one_way() {
    let allowed: &[(&str, &[&str])] = &[
        ("portico-api", &[]),
        ("portico-store", &[]),
        (
            "portico-apiserver",
            &["portico-api", "portico-client", "portico-store"],
        ),
        (
            "portico-controller",
            &[
                "portico-api",
                "portico-client",
                "portico-model",
                "portico-view",
            ],
        ),
        ("portico-client", &["portico-model", "portico-view"]),
        ("portico-model", &[]),
        ("portico-dataplane", &["portico-model"]),
        ("portico-bgp", &[]),
        ("portico-l2", &[]),
        (
            "portico-dns",
            &["portico-client", "portico-model", "portico-view"],
        ),
        ("portico-view", &["portico-l2", "portico-model"]),
        ("portico-fakecloud", &[]),
        (
            "portico-providers",
            &["portico-controller", "portico-client", "portico-model"],
        ),
        (
            "portico-node",
            &[
                "portico-client",
                "portico-model",
                "portico-dataplane",
                "portico-bgp",
                "portico-l2",
                "portico-view",
            ],
        ),
        ("portico-netns", &[]),
        ("portico-testbed", &["portico-netns"]),
        ("portico-vrrp", &[]),
        (
            "portico-vip",
            &[
                "portico-client",
                "portico-model",
                "portico-dataplane",
                "portico-l2",
                "portico-vrrp",
            ],
        ),
    ];
    for (name, ours) in allowed {
        let wrong: Vec<String> = dependencies(name)
            .into_iter()
            .filter(|dependency| {
                dependency.starts_with("portico") && !ours.contains(&dependency.as_str())
            })
            .collect();
        assert!(wrong.is_empty(), "{name} depends on {wrong:?}");
    }
    for name in PURE {
        let heavy = ["tokio", "hyper", "kube", "redb", "rustls", "jiff", "ring"];
        let wrong: Vec<String> = dependencies(name)
            .into_iter()
            .filter(|dependency| heavy.contains(&dependency.as_str()))
            .collect();
        assert!(wrong.is_empty(), "{name} is pure and depends on {wrong:?}");
    }
}
