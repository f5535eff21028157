use std::fmt::Write as _;
use std::{env, fs};

use super::*;
use crate::DESCRIPTIONS;

#[test]
fn the_page_is_what_the_code_says() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/providers.md");
    let text = render(DESCRIPTIONS);
    if env::var_os("PORTICO_WRITE_DOCS").is_some() {
        fs::write(path, &text).unwrap();
    }
    let page = fs::read_to_string(path).unwrap_or_default();
    assert!(
        page == text,
        "docs/providers.md is old: PORTICO_WRITE_DOCS=1 cargo test -p portico-providers --lib \
         description"
    );
}

#[test]
fn descriptions_fit_into_a_table() {
    for it in DESCRIPTIONS {
        let cells = [
            it.balancers,
            it.protocols,
            it.families,
            it.local,
            it.source_ranges,
            it.affinity,
            it.status,
        ];
        for cell in cells {
            assert!(
                !cell.is_empty() && cell.len() < 80 && !cell.contains(['|', '\n']),
                "{}: {cell:?}",
                it.name
            );
        }
        let sentences = it
            .annotations
            .iter()
            .map(|(_, meaning)| *meaning)
            .chain(it.limits.iter().copied());
        for sentence in sentences.chain([it.summary]) {
            assert!(
                sentence.ends_with('.') && !sentence.contains(['|', '\n']),
                "{}: {sentence:?}",
                it.name
            );
        }
        let page =
            |page| fs::exists(format!("{}/../../docs/{page}", env!("CARGO_MANIFEST_DIR"))).unwrap();
        assert!(
            it.page.is_none_or(page),
            "{}: there is no docs/{:?}",
            it.name,
            it.page
        );
    }
}

const INTRODUCTION: &str = "# Providers

Where load balancers come from is chosen by `portico controller --cloud-provider NAME`. All of them are made, watched and removed
by the same controller (docs/controller.md); this is what differs. The page is made from the code.

";

/// All of docs/providers.md.
fn render(descriptions: &[&Description]) -> String {
    let mut text = INTRODUCTION.to_owned();
    text.push_str(
        "| | load balancers | protocols | addresses | `Local` | source ranges | affinity | \
         status |\n",
    );
    text.push_str("|---|---|---|---|---|---|---|---|\n");
    for it in descriptions {
        let cells = [
            it.balancers,
            it.protocols,
            it.families,
            it.local,
            it.source_ranges,
            it.affinity,
            it.status,
        ]
        .join(" | ");
        _ = writeln!(text, "| [`{}`](#{}) | {cells} |", it.name, anchor(it.name));
    }
    descriptions.iter().for_each(|it| section(&mut text, it));
    text
}

fn section(text: &mut String, it: &Description) {
    _ = write!(text, "\n## {}\n\n{}", it.name, it.summary);
    if let Some(page) = it.page {
        _ = write!(text, " See [{page}]({page}).");
    }
    text.push('\n');
    if !it.annotations.is_empty() {
        text.push_str("\n| annotation | meaning |\n|---|---|\n");
        for (name, meaning) in it.annotations {
            _ = writeln!(text, "| `{name}` | {meaning} |");
        }
    }
    if !it.limits.is_empty() {
        text.push('\n');
        it.limits
            .iter()
            .for_each(|limit| _ = writeln!(text, "- {limit}"));
    }
}

/// As GitHub makes it of a heading.
fn anchor(name: &str) -> String {
    let kept = name
        .chars()
        .filter(|letter| letter.is_alphanumeric() || *letter == '-');
    kept.collect::<String>().to_lowercase()
}
