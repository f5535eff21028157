//! Facts become findings: what it means, how bad it is, and the command that mends it. Pure.

mod cluster;
mod kernel;
mod machine;
#[cfg(test)]
mod tests;
mod vip;

use super::facts::Facts;
use serde::Serialize;
use std::fmt;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Severity {
    /// Traffic is lost, or will be.
    Broken,
    /// It works, until something happens.
    Warning,
    /// Good to know.
    Note,
    Good,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Broken => "BROKEN",
            Self::Warning => "warning",
            Self::Note => "note",
            Self::Good => "good",
        })
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Finding {
    pub severity: Severity,
    pub check: String,
    pub found: String,
    /// A command.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fix: Option<String>,
}

impl Finding {
    fn new(severity: Severity, check: &str, found: impl Into<String>, fix: &str) -> Self {
        let fix = Some(fix.to_owned()).filter(|fix| !fix.is_empty());
        Self {
            severity,
            check: check.to_owned(),
            found: found.into(),
            fix,
        }
    }

    fn good(check: &str, found: impl Into<String>) -> Self {
        Self::new(Severity::Good, check, found, "")
    }

    fn broken(check: &str, found: impl Into<String>, fix: &str) -> Self {
        Self::new(Severity::Broken, check, found, fix)
    }

    fn warning(check: &str, found: impl Into<String>, fix: &str) -> Self {
        Self::new(Severity::Warning, check, found, fix)
    }

    fn note(check: &str, found: impl Into<String>, fix: &str) -> Self {
        Self::new(Severity::Note, check, found, fix)
    }
}

/// Everything that was found, the worst first.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Diagnosis {
    pub findings: Vec<Finding>,
}

impl Diagnosis {
    pub(super) fn of(facts: &Facts) -> Self {
        let mut findings = Vec::new();
        if let Some(machine) = &facts.machine {
            findings.extend(kernel::judge(machine, facts.mode));
            findings.extend(machine::judge(machine, facts));
        }
        findings.extend(facts.vip.iter().flat_map(vip::judge));
        if let Some(cluster) = &facts.cluster {
            findings.extend(cluster::judge(cluster));
        }
        findings.sort_by_key(|finding| finding.severity);
        Self { findings }
    }

    pub(super) fn is_broken(&self) -> bool {
        self.findings
            .iter()
            .any(|finding| finding.severity == Severity::Broken)
    }

    fn count(&self, severity: Severity) -> usize {
        self.findings
            .iter()
            .filter(|finding| finding.severity == severity)
            .count()
    }
}

impl fmt::Display for Diagnosis {
    /// Below each finding stands what mends it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self
            .findings
            .iter()
            .map(|finding| finding.check.chars().count())
            .max()
            .unwrap_or_default();
        for finding in &self.findings {
            // Padding is for texts alone.
            let severity = finding.severity.to_string();
            writeln!(
                f,
                "{severity:<9}{:<width$}   {}",
                finding.check, finding.found
            )?;
            if let Some(fix) = &finding.fix {
                writeln!(f, "{:<9}{:<width$}   # {fix}", "", "")?;
            }
        }
        let [broken, warnings, good] =
            [Severity::Broken, Severity::Warning, Severity::Good].map(|s| self.count(s));
        writeln!(f, "\n{broken} broken, {warnings} to look at, {good} good")
    }
}
