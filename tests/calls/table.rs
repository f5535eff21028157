//! What was counted, as a table.

use super::story::Told;

const COLUMNS: [&str; 7] = [
    "reads",
    "writes",
    "pages",
    "looks",
    "reads each",
    "writes each",
    "fewest writes",
];

/// Of one cloud. Why there are not fewer writes is in docs/benchmarks.md.
pub(crate) fn print(title: &str, told: &[Told]) {
    println!("\n{title:44}{}", row(&COLUMNS.map(str::to_owned)));
    for Told {
        chapter,
        services,
        cost,
        expected,
    } in told
    {
        let each = |count: usize| {
            let each = count as f64 / (*services).max(1) as f64;
            if each.fract() == 0.0 {
                format!("{each}")
            } else {
                format!("{each:.2}")
            }
        };
        let counts =
            [cost.reads, cost.writes, cost.pages, cost.waits].map(|count| count.to_string());
        let ratios = [cost.reads, cost.writes, expected.1].map(each);
        println!(
            "{:44}{}",
            format!("{chapter} ({services})"),
            row(&[&counts[..], &ratios].concat())
        );
    }
}

fn row(cells: &[String]) -> String {
    cells.iter().map(|cell| format!("{cell:>14}")).collect()
}

/// A line for each chapter that cost something else.
pub(crate) fn surprises(name: &str, told: &[Told]) -> Vec<String> {
    let line = |it: &Told| {
        format!(
            "{name}, {}: {:?}, and not {:?}",
            it.chapter, it.cost, it.expected
        )
    };
    told.iter()
        .filter(|it| !it.is_expected())
        .map(line)
        .collect()
}
