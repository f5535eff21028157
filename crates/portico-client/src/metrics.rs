//! How every daemon tells what it counts: in the text format of Prometheus, with every metric named
//! and explained before there is anything to count.

use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{EncodeLabelSet, EncodeMetric, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Metric, Registry};
use std::fmt;

/// The type of what [`text`] makes.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Registration of metrics that are shown from the start.
pub trait Show {
    /// Registers a metric so that a family without values shows its name, type and meaning already.
    fn show<M: Metric>(&mut self, name: impl Into<String>, help: &str, metric: M);
}

impl Show for Registry {
    fn show<M: Metric>(&mut self, name: impl Into<String>, help: &str, metric: M) {
        self.register(name, help, Shown(metric));
    }
}

/// A feature gate of a daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Feature {
    /// The name of the feature.
    pub name: &'static str,
    /// `ALPHA` or `BETA`, and nothing once it is generally available, as Kubernetes writes it.
    pub stage: &'static str,
    /// Whether it is turned on.
    pub enabled: bool,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct FeatureLabels {
    name: &'static str,
    stage: &'static str,
}

/// The gates of a daemon, under the name that Kubernetes' own programs have for them.
pub fn show_features(registry: &mut Registry, features: &[Feature]) {
    let gates: Family<FeatureLabels, Gauge> = Family::default();
    for feature in features {
        let labels = FeatureLabels {
            name: feature.name,
            stage: feature.stage,
        };
        gates.get_or_create(&labels).set(feature.enabled.into());
    }
    registry.show(
        "kubernetes_feature_enabled",
        "1 for each feature gate that is on, 0 for each that is off",
        gates,
    );
}

/// Never empty, whatever is in it.
#[derive(Debug)]
struct Shown<M>(M);

impl<M: EncodeMetric> EncodeMetric for Shown<M> {
    fn encode(&self, encoder: MetricEncoder) -> fmt::Result {
        self.0.encode(encoder)
    }

    fn metric_type(&self) -> MetricType {
        self.0.metric_type()
    }
}

/// All registered metrics, in the text format of Prometheus.
pub fn text(registry: &Registry) -> String {
    let mut open_metrics = String::new();
    // Writing to a text cannot fail.
    let _ = encode(&mut open_metrics, registry);
    from_open_metrics(&open_metrics)
}

/// The older format has counters under the names of their samples, no units and no end.
fn from_open_metrics(open_metrics: &str) -> String {
    let mut text = String::with_capacity(open_metrics.len());
    let mut lines = open_metrics.lines().peekable();
    while let Some(line) = lines.next() {
        let help = line
            .strip_prefix("# HELP ")
            .and_then(|rest| rest.split_once(' '));
        let kind = lines
            .peek()
            .and_then(|next| next.strip_prefix("# TYPE ")?.split_once(' '));
        match (help, kind) {
            (Some((name, help)), Some((_, "counter"))) => {
                text.push_str(&format!(
                    "# HELP {name}_total {help}\n# TYPE {name}_total counter\n"
                ));
                lines.next();
            }
            _ if line == "# EOF" || line.starts_with("# UNIT ") => {}
            _ => {
                text.push_str(line);
                text.push('\n');
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use prometheus_client::metrics::counter::Counter;

    #[test]
    fn counters_are_named_as_their_samples() {
        let mut registry = Registry::default();
        let (questions, names) = (Counter::<u64>::default(), Gauge::<i64>::default());
        registry.show(
            "questions",
            "Questions that were answered",
            questions.clone(),
        );
        registry.show("names", "Names with records", names.clone());
        questions.inc();
        names.set(3);
        let wanted = "# HELP questions_total Questions that were answered.\n# TYPE questions_total counter\nquestions_total 1\n\
                      # HELP names Names with records.\n# TYPE names gauge\nnames 3\n";
        assert_eq!(text(&registry), wanted);
    }

    #[test]
    fn gates_are_shown_as_kubernetes_shows_them() {
        let mut registry = Registry::default();
        let feature = Feature {
            name: "LoadBalancerIPMode",
            stage: "BETA",
            enabled: true,
        };
        show_features(&mut registry, &[feature]);
        let line = "kubernetes_feature_enabled{name=\"LoadBalancerIPMode\",stage=\"BETA\"} 1\n";
        assert!(text(&registry).ends_with(line), "{}", text(&registry));
    }

    #[test]
    fn a_family_is_explained_before_it_has_anything() {
        let mut registry = Registry::with_prefix("portico");
        let family: Family<Vec<(String, String)>, Counter> = Family::default();
        registry.show("calls", "Calls of the provider", family.clone());
        let head = "# HELP portico_calls_total Calls of the provider.\n# TYPE portico_calls_total \
                    counter\n";
        assert_eq!(text(&registry), head);
        family
            .get_or_create(&vec![("operation".to_owned(), "ensure".to_owned())])
            .inc();
        assert_eq!(
            text(&registry),
            format!("{head}portico_calls_total{{operation=\"ensure\"}} 1\n")
        );
    }
}
