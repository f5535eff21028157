//! How many connections each endpoint has, by the connection tracker. It is read when the metrics
//! are scraped.

use portico_dataplane::conntrack::Conntrack;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;
use std::fmt;

#[derive(Debug)]
pub(super) struct Connections;

impl Collector for Connections {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        let counted = Conntrack::open().and_then(|mut tracker| tracker.translated());
        let counted =
            counted.inspect_err(|error| tracing::warn!(%error, "cannot count connections"));
        let help = "Connections that the node sends to an endpoint, by the connection tracker";
        let mut family = encoder.encode_descriptor(
            "portico_endpoint_connections",
            help,
            None,
            MetricType::Gauge,
        )?;
        for ((protocol, endpoint), count) in counted.unwrap_or_default() {
            let labels = [
                ("endpoint", endpoint.to_string()),
                ("protocol", protocol.lower().to_owned()),
            ];
            ConstGauge::new(i64::try_from(count).unwrap_or(i64::MAX))
                .encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }
}
