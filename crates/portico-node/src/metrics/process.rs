//! What the process itself costs.

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use std::fmt;
use std::fs;

/// Clock ticks a second and bytes a page: what the kernel shows to programs on every machine that matters.
const TICKS: f64 = 100.0;
const PAGE: u64 = 4096;

#[derive(Debug)]
pub struct Process;

impl Collector for Process {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
        // The name in parentheses may contain anything; what follows has the state as its first field.
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        let field = |index: usize| fields.get(index).and_then(|text| text.parse::<u64>().ok()).unwrap_or_default();
        let (user, system, pages) = (field(11), field(12), field(21));
        let cpu = ConstCounter::new((user + system) as f64 / TICKS);
        let memory = ConstGauge::new(i64::try_from(pages * PAGE).unwrap_or(i64::MAX));
        let counter = encoder.encode_descriptor("process_cpu_seconds", "CPU time used", None, cpu.metric_type())?;
        cpu.encode(counter)?;
        let gauge =
            encoder.encode_descriptor("process_resident_memory_bytes", "Memory in use", None, memory.metric_type())?;
        memory.encode(gauge)
    }
}
