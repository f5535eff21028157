//! What was measured, printed side by side.
#![allow(dead_code, reason = "each benchmark uses its own part of this module")]

pub(crate) struct Report {
    name: &'static str,
    rows: Vec<Row>,
}

struct Row {
    what: String,
    value: f64,
    unit: &'static str,
    more_is_better: bool,
}

impl Report {
    pub(crate) fn new(name: &'static str) -> Self {
        Self { name, rows: vec![] }
    }

    pub(crate) fn add(&mut self, what: &str, value: f64, unit: &'static str, more_is_better: bool) {
        println!("{}: {what}: {} {unit}", self.name, short(value));
        self.rows.push(Row {
            what: what.to_owned(),
            value,
            unit,
            more_is_better,
        });
    }

    fn value(&self, what: &str) -> Option<f64> {
        self.rows
            .iter()
            .find(|row| row.what == what)
            .map(|row| row.value)
    }
}

/// A table of all reports; the last column says how many times better the first is than the last.
pub(crate) fn print(reports: &[Report]) {
    let (Some(first), Some(last)) = (reports.first(), reports.last()) else {
        return;
    };
    print!("\n{:44}", "");
    reports
        .iter()
        .for_each(|report| print!("{:>22}", report.name));
    println!(
        "{}",
        if reports.len() > 1 {
            "  times better"
        } else {
            ""
        }
    );
    for row in &last.rows {
        print!("{:44}", format!("{} ({})", row.what, row.unit));
        for report in reports {
            print!(
                "{:>22}",
                report.value(&row.what).map_or("-".to_owned(), short)
            );
        }
        match first.value(&row.what) {
            Some(value) if reports.len() > 1 => {
                let ratio = if row.more_is_better {
                    value / row.value
                } else {
                    row.value / value
                };
                println!("{:>14}", short(ratio));
            }
            _ => println!(),
        }
    }
}

fn short(value: f64) -> String {
    if value >= 100.0 {
        format!("{value:.0}")
    } else {
        format!("{value:.2}")
    }
}

pub(crate) fn percentile(values: &mut [f64], percent: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    values[((values.len() - 1) as f64 * percent / 100.0).round() as usize]
}
