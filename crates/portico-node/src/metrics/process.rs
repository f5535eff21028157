//! What the process itself costs, under the names that Prometheus' own clients have.

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use std::fmt;
use std::fs;

/// Clock ticks a second and bytes a page: what the kernel shows to programs on every machine that
/// matters.
const TICKS: f64 = 100.0;
const PAGE: u64 = 4096;

#[derive(Debug)]
pub(super) struct Process;

impl Collector for Process {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        let stat = read("/proc/self/stat");
        // The name in parentheses may contain anything; what follows has the state as its first
        // field.
        let fields: Vec<&str> = stat
            .rsplit(')')
            .next()
            .unwrap_or_default()
            .split_whitespace()
            .collect();
        let field = |index: usize| number(fields.get(index).copied());
        let (user, system, started, bytes, pages) =
            (field(11), field(12), field(19), field(20), field(21));
        let booted = number(after(&read("/proc/stat"), "btime "));
        let files = fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
        let most_files = number(after(&read("/proc/self/limits"), "Max open files"));
        let cpu = ConstCounter::new((user + system) as f64 / TICKS);
        cpu.encode(encoder.encode_descriptor(
            "process_cpu_seconds",
            "CPU time used",
            None,
            cpu.metric_type(),
        )?)?;
        for (name, help, value) in [
            (
                "process_resident_memory_bytes",
                "Memory in use",
                (pages * PAGE) as f64,
            ),
            (
                "process_virtual_memory_bytes",
                "Addresses in use",
                bytes as f64,
            ),
            (
                "process_start_time_seconds",
                "When it was started",
                booted as f64 + started as f64 / TICKS,
            ),
            ("process_open_fds", "Files that are open", files as f64),
            (
                "process_max_fds",
                "Files that may be open",
                most_files as f64,
            ),
        ] {
            let gauge = ConstGauge::new(value);
            gauge.encode(encoder.encode_descriptor(name, help, None, gauge.metric_type())?)?;
        }
        Ok(())
    }
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// The first word after one that begins a line.
fn after<'a>(text: &'a str, start: &str) -> Option<&'a str> {
    text.lines()
        .find_map(|line| line.strip_prefix(start))?
        .split_whitespace()
        .next()
}

fn number(text: Option<&str>) -> u64 {
    text.and_then(|text| text.parse().ok()).unwrap_or_default()
}
