//! What commands show: a table for people, JSON or YAML for programs. One place, so that all of
//! them look alike.

use clap::{Args, ValueEnum};
use serde::Serialize;
use std::fmt;

/// Between two columns.
const GAP: &str = "   ";

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    #[default]
    #[value(alias = "text")]
    Table,
    Wide,
    Json,
    Yaml,
}

/// For `#[command(flatten)]`.
#[derive(Args, Clone, Copy, Debug)]
#[group(id = "output-format")]
pub(crate) struct Output {
    /// For people, or for programs.
    #[arg(long, short, value_enum, value_name = "FORMAT", default_value_t)]
    pub output: Format,
}

impl Output {
    /// The value as it is asked for; people see it as it displays itself. Ends with a line's end.
    pub(crate) fn render<T: Serialize + fmt::Display>(self, value: &T) -> anyhow::Result<String> {
        let text = match self.output {
            Format::Table | Format::Wide => value.to_string(),
            Format::Json => serde_json::to_string_pretty(value)?,
            Format::Yaml => serde_saphyr::to_string(value)?,
        };
        Ok(format!("{}\n", text.trim_end()))
    }

    /// Onto the standard output.
    pub(crate) fn print<T: Serialize + fmt::Display>(self, value: &T) -> anyhow::Result<()> {
        crate::print(&self.render(value)?);
        Ok(())
    }
}

/// Columns as wide as they need to be. Cells that are empty are shown as `-`, so that every row has
/// all of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Table {
    head: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new<'a>(head: impl IntoIterator<Item = &'a str>) -> Self {
        Self {
            head: head.into_iter().map(str::to_uppercase).collect(),
            rows: Vec::new(),
        }
    }

    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(
            cells
                .into_iter()
                .map(|cell| {
                    if cell.trim().is_empty() {
                        "-".to_owned()
                    } else {
                        cell
                    }
                })
                .collect(),
        );
    }

    fn width(&self, column: usize) -> usize {
        let lines = std::iter::once(&self.head).chain(&self.rows);
        lines
            .filter_map(|line| line.get(column))
            .map(|cell| cell.chars().count())
            .max()
            .unwrap_or_default()
    }
}

impl fmt::Display for Table {
    /// Nothing after the last column, not even blanks.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in std::iter::once(&self.head).chain(&self.rows) {
            let cells = line
                .iter()
                .enumerate()
                .map(|(column, cell)| format!("{cell:<0$}", self.width(column)));
            writeln!(f, "{}", cells.collect::<Vec<_>>().join(GAP).trim_end())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Serialize)]
    struct Both {
        nodes: u8,
    }

    impl fmt::Display for Both {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "{} nodes\n\n", self.nodes)
        }
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let mut table = Table::new(["name", "ports"]);
        table.row(["größer".into(), "80".into()]);
        table.row(["b".into(), "  ".into()]);
        assert_eq!(
            table.to_string(),
            "NAME     PORTS\ngrößer   80\nb        -\n"
        );
    }

    #[test]
    fn each_format_ends_with_one_line_end() {
        for (output, expected) in [
            (Format::Table, "3 nodes\n"),
            (Format::Json, "{\n  \"nodes\": 3\n}\n"),
            (Format::Yaml, "nodes: 3\n"),
        ] {
            assert_eq!(
                Output { output }.render(&Both { nodes: 3 }).unwrap(),
                expected
            );
        }
    }
}
