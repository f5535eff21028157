//! The book: links lead somewhere, every page is in its summary, and what is said of commands,
//! gates, conditions and alerts is what the code has.

use super::root;
use portico_api::gates::Gates;
use regex::Regex;
use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// With this set pages are written instead of compared (`make docs`).
const WRITE: &str = "PORTICO_WRITE_DOCS";

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn pages_below(folder: &Path, out: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            pages_below(&path, out);
        } else if path.extension().is_some_and(|extension| extension == "md") {
            out.push(path);
        }
    }
}

/// Pages of the book, decisions, and what stands at the top.
fn pages() -> Vec<PathBuf> {
    let mut pages = Vec::new();
    ["docs", "design"]
        .iter()
        .for_each(|folder| pages_below(&root().join(folder), &mut pages));
    let top = fs::read_dir(root())
        .unwrap()
        .flatten()
        .map(|entry| entry.path());
    pages.extend(top.filter(|path| path.extension().is_some_and(|extension| extension == "md")));
    pages.sort();
    pages
}

/// The targets of links, without what stands in code.
fn links(text: &str) -> Vec<String> {
    let fences = Regex::new(r"(?s)```.*?```").unwrap();
    let code = Regex::new(r"`[^`\n]*`").unwrap();
    let link = Regex::new(r"\]\(([^)\s]+)\)").unwrap();
    let text = fences.replace_all(text, "");
    let text: Vec<String> = text
        .lines()
        .filter(|line| !line.starts_with("    "))
        .map(|line| code.replace_all(line, "x").into_owned())
        .collect();
    text.iter()
        .flat_map(|line| {
            link.captures_iter(line)
                .map(|found| found[1].to_owned())
                .collect::<Vec<_>>()
        })
        .collect()
}

/// As GitHub and mdBook name headings.
fn anchors(text: &str) -> BTreeSet<String> {
    let name = |heading: &str| -> String {
        let kept = heading.trim().to_lowercase();
        kept.chars()
            .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'))
            .collect::<String>()
            .replace(' ', "-")
    };
    let headings = text.lines().filter(|line| line.starts_with('#'));
    headings
        .map(|line| name(line.trim_start_matches('#')))
        .collect()
}

#[test]
fn links_lead_somewhere() {
    let mut problems = Vec::new();
    for page in pages() {
        for link in links(&read(&page))
            .into_iter()
            .filter(|link| !link.contains("://"))
        {
            let (path, anchor) = link.split_once('#').unwrap_or((&link, ""));
            let target = if path.is_empty() {
                page.clone()
            } else {
                page.parent().unwrap().join(path)
            };
            let there =
                target.exists() && (anchor.is_empty() || anchors(&read(&target)).contains(anchor));
            if !there {
                problems.push(format!(
                    "{}: {link} leads nowhere",
                    page.strip_prefix(root()).unwrap().display()
                ));
            }
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn every_page_is_in_the_summary_once() {
    let docs = root().join("docs");
    let summary = docs.join("SUMMARY.md");
    // mdBook takes them for names of files.
    let listed = links(&read(&summary));
    assert!(!listed.iter().any(|link| link.contains('#')), "{listed:?}");
    let once: BTreeSet<&String> = listed.iter().collect();
    assert_eq!(once.len(), listed.len(), "a page is listed twice");
    let mut pages = Vec::new();
    pages_below(&docs, &mut pages);
    let missing: Vec<String> = pages
        .iter()
        .filter(|page| **page != summary)
        .map(|page| page.strip_prefix(&docs).unwrap().display().to_string())
        .filter(|page| !listed.contains(page))
        .collect();
    assert!(missing.is_empty(), "not in docs/SUMMARY.md: {missing:?}");
}

/// Compares a generated page with the one in docs/reference, or writes it.
fn compare(name: &str, wanted: &str) {
    let path = root().join("docs/reference").join(name);
    if std::env::var_os(WRITE).is_some() {
        fs::write(&path, wanted).unwrap();
    }
    assert!(
        fs::read_to_string(&path).unwrap_or_default() == wanted,
        "docs/reference/{name} is old: run `make docs`"
    );
}

/// What a command says about itself, whoever runs it.
fn help(words: &[String]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_portico"))
        .args(words)
        .arg("--help")
        .env_clear()
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "portico {words:?} --help: {output:?}"
    );
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines()
        .map(str::trim_end)
        .collect::<Vec<_>>()
        .join("\n")
        .trim()
        .to_owned()
}

/// The names below `Commands:`.
fn subcommands(help: &str) -> Vec<String> {
    let below = help
        .lines()
        .skip_while(|line| *line != "Commands:")
        .skip(1)
        .take_while(|line| !line.is_empty());
    let names = below.filter_map(|line| {
        line.strip_prefix("  ")
            .filter(|rest| !rest.starts_with(' '))
    });
    names
        .filter_map(|line| line.split(' ').next())
        .filter(|name| *name != "help")
        .map(str::to_owned)
        .collect()
}

fn describe(words: &[String], out: &mut String) {
    let help = help(words);
    let title = [&["portico".to_owned()], words].concat().join(" ");
    let _ = write!(
        out,
        "\n{} {title}\n\n```text\n{help}\n```\n",
        "#".repeat(words.len().min(2) + 1)
    );
    for name in subcommands(&help) {
        describe(&[words, &[name]].concat(), out);
    }
}

#[test]
fn the_commands_are_described_as_they_are() {
    let mut text =
        "# Commands\n\nEverything that can be typed, as `--help` tells it (`make docs` writes \
         this page).\n"
            .to_owned();
    describe(&[], &mut text);
    assert!(text.contains("\n## portico node\n") && text.contains("\n### portico vip status\n"));
    compare(
        "commands.md",
        &text.replacen("\n# portico\n", "\n## portico\n", 1),
    );
}

/// The server tells which gates it knows when it is asked for one that it does not.
#[test]
fn every_feature_gate_is_explained_with_its_default() {
    let told = Gates::parse("Nothing=true").unwrap_err().to_string();
    let names = told
        .split("known are ")
        .nth(1)
        .unwrap()
        .split(", ")
        .filter(|name| !name.starts_with("All"));
    let explained = read(&root().join("docs/apiserver.md"));
    for name in names {
        let default = Gates::parse(&format!("{name}=true")) == Ok(Gates::default());
        let row = format!("| `{name}` | {default} |");
        assert!(
            explained.contains(&row),
            "docs/apiserver.md has no row {row}"
        );
    }
}

/// Reasons of conditions stand in the code as the first argument of what makes one.
#[test]
fn every_reason_of_a_condition_is_explained() {
    let folder = root().join("crates/portico-controller/src/balancers");
    let reason = Regex::new(r#"\b(?:good|bad|unknown)\(\s*"([A-Z][A-Za-z0-9]+)""#).unwrap();
    let explained = read(&root().join("docs/controller.md"));
    let source = read(&folder.join("judge.rs"));
    let reasons: BTreeSet<&str> = reason
        .captures_iter(&source)
        .map(|found| found.extract::<1>().1[0])
        .collect();
    assert!(reasons.len() > 15, "only {reasons:?} were found");
    let missing: Vec<&&str> = reasons
        .iter()
        .filter(|reason| !explained.contains(**reason))
        .collect();
    assert!(
        missing.is_empty(),
        "docs/controller.md does not explain {missing:?}"
    );
}

#[test]
fn every_alert_is_explained() {
    let rules = read(&root().join("deploy/monitoring/alerts.yaml"));
    let explained = read(&root().join("docs/alerts.md"));
    let names: Vec<&str> = rules
        .lines()
        .filter_map(|line| line.trim().strip_prefix("- alert: "))
        .collect();
    assert!(names.len() > 15);
    let missing: Vec<&&str> = names
        .iter()
        .filter(|name| !explained.contains(&format!("| {name} |")))
        .collect();
    assert!(
        missing.is_empty(),
        "docs/alerts.md does not say what to do about {missing:?}"
    );
}

/// Every figure of the README was measured: it stands in docs/benchmarks.md.
#[test]
fn the_readme_has_no_figure_of_its_own() {
    let (readme, measured) = (
        read(&root().join("README.md")),
        read(&root().join("docs/benchmarks.md")),
    );
    let table = readme
        .split("What was measured")
        .nth(1)
        .unwrap()
        .split("\n## ")
        .next()
        .unwrap();
    let rows = table
        .lines()
        .filter(|line| line.starts_with("| ") && !line.starts_with("| |"));
    let number = Regex::new(r"\d[\d,.]*\d|\d").unwrap();
    let cells = rows.flat_map(|row| row.split('|').skip(2).collect::<Vec<_>>());
    let figures: Vec<&str> = cells
        .flat_map(|cell| number.find_iter(cell).map(|found| found.as_str()))
        .collect();
    assert!(figures.len() > 15, "{figures:?}");
    let invented: Vec<&&str> = figures
        .iter()
        .filter(|figure| !measured.contains(**figure))
        .collect();
    assert!(
        invented.is_empty(),
        "not in docs/benchmarks.md: {invented:?}"
    );
}
