//! What the project comes from: design/0035 names a test for every sentence of the five documents
//! that asks for behaviour, and each of them exists.

use super::{all_sources, root};
use regex::Regex;
use std::collections::BTreeSet;
use std::fs;

const TABLE: &str = "design/0035-the-five-documents.md";
/// Of visibility, addresses, port spaces and firewalls.
const MOST_NOT_YET: usize = 5;

/// The functions that are tests, wherever they are.
fn tests() -> BTreeSet<String> {
    let test = Regex::new(r"#\[(?:tokio::)?test[^\]]*\]\s*(?:#\[[^\]]*\]\s*)*(?:async )?fn (\w+)");
    let test = test.expect("this is a pattern");
    let of_source = |text: &str| -> Vec<String> {
        test.captures_iter(text)
            .map(|found| found[1].to_owned())
            .collect()
    };
    all_sources()
        .iter()
        .flat_map(|(_, text)| of_source(text))
        .collect()
}

#[test]
fn every_sentence_of_the_documents_has_a_test() {
    let (text, tests) = (fs::read_to_string(root().join(TABLE)).unwrap(), tests());
    let rows = text.lines().filter(|line| line.starts_with("| "));
    let rows: Vec<&str> = rows.filter(|row| !row.contains("| test |")).collect();
    let (mut problems, mut not_yet) = (Vec::new(), 0);
    for row in &rows {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let [_, shown] = cells.as_slice() else {
            problems.push(format!("{row}: has not two cells"));
            continue;
        };
        match shown.strip_prefix("not yet: ") {
            Some(reason) if !reason.is_empty() => not_yet += 1,
            _ if tests.contains(shown.trim_matches('`')) => {}
            _ => problems.push(format!("{row}: there is no such test")),
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    assert!(not_yet <= MOST_NOT_YET, "{not_yet} sentences have no test");
    let documents = text.matches("\n## 00").count();
    assert_eq!(documents, 5);
    assert!(rows.len() > 60, "{} rows", rows.len());
}
