//! Feature gates: `--feature-gates=Name=bool,...`.

use std::fmt;
use thiserror::Error;

/// Which features are on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gates {
    /// KEP-4144: `spec.allocateLoadBalancerHCNodePort`.
    pub service_lb_health_check_node_port_control: bool,
    /// KEP-1860: `status.loadBalancer.ingress[].ipMode`.
    pub load_balancer_ip_mode: bool,
}

impl Default for Gates {
    fn default() -> Self {
        Self {
            service_lb_health_check_node_port_control: true,
            load_balancer_ip_mode: true,
        }
    }
}

/// How ripe a feature is; `AllAlpha` and `AllBeta` speak of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Alpha,
    Beta,
}

/// A gate: its name, its stage, where its value is.
struct Gate(&'static str, Stage, fn(&mut Gates) -> &mut bool);

const KNOWN: [Gate; 2] = [
    Gate("LoadBalancerIPMode", Stage::Beta, |gates| {
        &mut gates.load_balancer_ip_mode
    }),
    Gate(
        "ServiceLBHealthCheckNodePortControl",
        Stage::Alpha,
        |gates| &mut gates.service_lb_health_check_node_port_control,
    ),
];

/// Why a list of gates cannot be read.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[expect(missing_docs, reason = "each message says what its variant means")]
pub enum GateError {
    #[error("feature gate {0:?}: write it as Name=true or Name=false")]
    Malformed(String),
    #[error("unknown feature gate {0:?}; known are {known}", known = Gates::names())]
    Unknown(String),
}

impl Gates {
    /// Read `Name=bool,...` on top of the defaults. `AllAlpha` and `AllBeta` set a whole stage; a
    /// gate that is named itself wins over them, wherever it stands in the list.
    pub fn parse(text: &str) -> Result<Self, GateError> {
        let mut wanted = Vec::new();
        for part in text
            .split(',')
            .map(str::trim)
            .filter(|part| !part.is_empty())
        {
            wanted.push(setting(part)?);
        }
        let mut gates = Self::default();
        for (name, value) in &wanted {
            let stage = match *name {
                "AllAlpha" => Stage::Alpha,
                "AllBeta" => Stage::Beta,
                _ => continue,
            };
            for Gate(_, _, at) in KNOWN.iter().filter(|gate| gate.1 == stage) {
                *at(&mut gates) = *value;
            }
        }
        for (name, value) in wanted
            .into_iter()
            .filter(|(name, _)| !matches!(*name, "AllAlpha" | "AllBeta"))
        {
            let Gate(_, _, at) = KNOWN
                .iter()
                .find(|gate| gate.0 == name)
                .ok_or_else(|| GateError::Unknown(name.to_owned()))?;
            *at(&mut gates) = value;
        }
        Ok(gates)
    }

    /// Each gate with its name, its stage as metrics write it, and its value.
    pub fn all(&self) -> Vec<(&'static str, &'static str, bool)> {
        let mut gates = *self;
        let read = |Gate(name, stage, at): &Gate| {
            let stage = match stage {
                Stage::Alpha => "ALPHA",
                Stage::Beta => "BETA",
            };
            (*name, stage, *at(&mut gates))
        };
        KNOWN.iter().map(read).collect()
    }

    fn names() -> String {
        let mut names: Vec<&str> = KNOWN
            .iter()
            .map(|gate| gate.0)
            .chain(["AllAlpha", "AllBeta"])
            .collect();
        names.sort_unstable();
        names.join(", ")
    }
}

fn setting(part: &str) -> Result<(&str, bool), GateError> {
    let malformed = || GateError::Malformed(part.to_owned());
    let (name, value) = part.split_once('=').ok_or_else(malformed)?;
    let value = match value.trim() {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => true,
        "0" | "f" | "F" | "false" | "FALSE" | "False" => false,
        _ => return Err(malformed()),
    };
    Ok((name.trim(), value))
}

impl fmt::Display for Gates {
    /// Writes the form that `parse` reads.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let gates = self.all().into_iter();
        let texts: Vec<String> = gates
            .map(|(name, _, value)| format!("{name}={value}"))
            .collect();
        f.write_str(&texts.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gates(health: bool, ip_mode: bool) -> Gates {
        Gates {
            service_lb_health_check_node_port_control: health,
            load_balancer_ip_mode: ip_mode,
        }
    }

    #[test]
    fn lists_are_read_on_top_of_the_defaults() {
        for (text, want) in [
            ("", gates(true, true)),
            ("LoadBalancerIPMode=false", gates(true, false)),
            (
                " LoadBalancerIPMode = false , ServiceLBHealthCheckNodePortControl=0,",
                gates(false, false),
            ),
            ("AllAlpha=false", gates(false, true)),
            ("AllBeta=false", gates(true, false)),
            ("LoadBalancerIPMode=true,AllBeta=false", gates(true, true)),
            ("AllBeta=false,LoadBalancerIPMode=true", gates(true, true)),
        ] {
            assert_eq!(Gates::parse(text), Ok(want), "{text}");
            assert_eq!(Gates::parse(&want.to_string()), Ok(want), "{want}");
        }
    }

    #[test]
    fn mistakes_are_explained() {
        let error = Gates::parse("Frobnicate=true").unwrap_err().to_string();
        assert_eq!(
            error,
            "unknown feature gate \"Frobnicate\"; known are AllAlpha, AllBeta, LoadBalancerIPMode, \
             ServiceLBHealthCheckNodePortControl"
        );
        for text in ["LoadBalancerIPMode", "LoadBalancerIPMode=maybe", "=true,x"] {
            assert!(Gates::parse(text).is_err(), "{text}");
        }
    }
}
