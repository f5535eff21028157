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
        "docs/providers.md is old: PORTICO_WRITE_DOCS=1 cargo test -p portico-controller --lib \
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
