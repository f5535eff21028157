//! What was measured, and how it is shown. Pure.

use crate::output::Table;
use serde::Serialize;
use std::fmt;
use std::time::Duration;

/// One line: how long it took, and what of it is the kernel's.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Figure {
    pub what: String,
    pub median_seconds: f64,
    pub p99_seconds: f64,
    /// The part that no faster program would save, or the same without a Service in between.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel_seconds: Option<f64>,
}

impl Figure {
    pub(super) fn new(what: &str, times: &[Duration], kernel: Option<Duration>) -> Self {
        let mut seconds: Vec<f64> = times.iter().map(Duration::as_secs_f64).collect();
        seconds.sort_by(f64::total_cmp);
        Self {
            what: what.to_owned(),
            median_seconds: percentile(&seconds, 50),
            p99_seconds: percentile(&seconds, 99),
            kernel_seconds: kernel.map(|kernel| kernel.as_secs_f64()),
        }
    }
}

/// A percentile of sorted numbers; 0 where there are none.
fn percentile(sorted: &[f64], percent: usize) -> f64 {
    let at = (sorted.len() * percent).div_ceil(100).saturating_sub(1);
    sorted.get(at).copied().unwrap_or_default()
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Figures {
    pub services: usize,
    /// Without optimisation the figures say little.
    pub optimised: bool,
    pub figures: Vec<Figure>,
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "With {} Services, on this machine, in nftables mode:\n",
            self.services
        )?;
        let mut table = Table::new(["", "median", "99%", "the kernel's own"]);
        for figure in &self.figures {
            let kernel = figure.kernel_seconds.map(shown).unwrap_or_default();
            table.row([
                figure.what.clone(),
                shown(figure.median_seconds),
                shown(figure.p99_seconds),
                kernel,
            ]);
        }
        write!(f, "{table}")?;
        if !self.optimised {
            write!(
                f,
                "\nThis program was built without optimisation: `cargo build --release` is some \
                 times faster."
            )?;
        }
        Ok(())
    }
}

fn shown(seconds: f64) -> String {
    match seconds {
        1.0.. => format!("{seconds:.2} s"),
        0.001.. => format!("{:.2} ms", seconds * 1e3),
        _ => format!("{:.1} µs", seconds * 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_medians_and_shown_in_their_unit() {
        let times: Vec<Duration> = (1..=100).rev().map(Duration::from_millis).collect();
        let figure = Figure::new("new Service live", &times, Some(Duration::from_micros(90)));
        assert_eq!((figure.median_seconds, figure.p99_seconds), (0.05, 0.099));
        let text = Figures {
            services: 1000,
            optimised: false,
            figures: vec![figure],
        }
        .to_string();
        assert!(
            text.contains("new Service live   50.00 ms   99.00 ms   90.0 µs"),
            "{text}"
        );
        assert!(text.contains("without optimisation"));
        assert_eq!(Figure::new("nothing", &[], None).median_seconds, 0.0);
    }
}
