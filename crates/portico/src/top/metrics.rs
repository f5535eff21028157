//! What a node's metrics tell of its connections and of how long changes take. Pure.

use std::collections::BTreeMap;
use std::net::SocketAddr;

const PROGRAMMING: &str = "portico_service_programming_duration_seconds_bucket";
const CONNECTIONS: &str = "portico_endpoint_connections";

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Measured {
    /// Changes that took at most so many seconds, by that time.
    buckets: Vec<(f64, u64)>,
    /// By endpoint; nothing where the node does not count them.
    pub connections: BTreeMap<SocketAddr, u64>,
}

impl Measured {
    /// From the text that Prometheus reads.
    pub(super) fn parse(text: &str) -> Self {
        let mut measured = Self::default();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let Some((name, value)) = line.rsplit_once(' ') else {
                continue;
            };
            let (name, labels) = name.split_once('{').unwrap_or((name, ""));
            match name {
                PROGRAMMING => {
                    let bound = label(labels, "le")
                        .and_then(|bound| bound.replace("+Inf", "inf").parse().ok());
                    measured.buckets.extend(bound.zip(value.parse().ok()));
                }
                CONNECTIONS => {
                    let endpoint =
                        label(labels, "endpoint").and_then(|endpoint| endpoint.parse().ok());
                    if let (Some(endpoint), Ok(count)) = (endpoint, value.parse::<u64>()) {
                        *measured.connections.entry(endpoint).or_default() += count;
                    }
                }
                _ => {}
            }
        }
        measured
    }

    /// The time within which this share of changes was installed: the end of its bucket.
    pub(super) fn programmed_within(&self, share: f64) -> Option<f64> {
        let all = self.buckets.last()?.1;
        let (bound, _) = self
            .buckets
            .iter()
            .find(|(_, count)| all > 0 && *count as f64 >= share * all as f64)?;
        Some(*bound)
    }
}

/// `a="x",b="y"}`
fn label<'a>(labels: &'a str, name: &str) -> Option<&'a str> {
    labels.split(',').find_map(|label| {
        label
            .strip_prefix(name)?
            .strip_prefix("=\"")?
            .split('"')
            .next()
    })
}

/// A time in the unit that suits it.
pub(super) fn seconds(time: f64) -> String {
    match time {
        _ if time.is_infinite() => ">26s".to_owned(),
        1.0.. => format!("{time:.1}s"),
        0.001.. => format!("{:.1}ms", time * 1e3),
        _ => format!("{:.0}µs", time * 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_connections_are_read() {
        let text = "# TYPE x histogram\n\
                    portico_service_programming_duration_seconds_bucket{le=\"0.001\"} 5\n\
                    portico_service_programming_duration_seconds_bucket{le=\"0.004\"} 9\n\
                    portico_service_programming_duration_seconds_bucket{le=\"+Inf\"} 10\n\
                    portico_endpoint_connections{endpoint=\"10.0.0.1:80\",protocol=\"tcp\"} 3\n\
                    portico_endpoint_connections{endpoint=\"[fd00::1]:80\",protocol=\"udp\"} 4\n\
                    other 7\nbroken\n";
        let measured = Measured::parse(text);
        assert_eq!(measured.programmed_within(0.5), Some(0.001));
        assert_eq!(measured.programmed_within(0.9), Some(0.004));
        assert_eq!(measured.programmed_within(0.99), Some(f64::INFINITY));
        assert_eq!(measured.connections.values().sum::<u64>(), 7);
        assert_eq!(Measured::parse("").programmed_within(0.5), None);
    }

    #[test]
    fn times_have_a_fitting_unit() {
        let shown: Vec<String> = [0.0004, 0.0032, 1.6, f64::INFINITY]
            .into_iter()
            .map(seconds)
            .collect();
        assert_eq!(shown, ["400µs", "3.2ms", "1.6s", ">26s"]);
    }
}
