//! What came of each step, a line each.

use std::fmt;

use super::life::{Stop, Verdict};

/// What came of all steps.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The steps in the order in which they were made.
    pub steps: Vec<Step>,
}

/// One step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// What was tried.
    pub name: String,
    /// What came of it.
    pub outcome: Outcome,
}

/// What came of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It went as it has to.
    Ok,
    /// Why it was not tried.
    Skipped(String),
    /// What is wrong.
    Failed(String),
}

impl Report {
    /// Whether no step failed.
    pub fn passed(&self) -> bool {
        self.failed().next().is_none()
    }

    /// The steps that failed.
    pub fn failed(&self) -> impl Iterator<Item = &Step> {
        self.steps
            .iter()
            .filter(|step| matches!(step.outcome, Outcome::Failed(_)))
    }

    pub(super) fn add(&mut self, name: impl Into<String>, verdict: Verdict) {
        let outcome = match verdict {
            Ok(()) => Outcome::Ok,
            Err(Stop::Skipped(reason)) => Outcome::Skipped(reason),
            Err(Stop::Failed(reason)) => Outcome::Failed(reason),
        };
        self.steps.push(Step {
            name: name.into(),
            outcome,
        });
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.steps.iter().try_for_each(|step| writeln!(f, "{step}"))
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.outcome {
            Outcome::Ok => write!(f, "ok       {}", self.name),
            Outcome::Skipped(reason) => write!(f, "skipped  {}: {reason}", self.name),
            Outcome::Failed(reason) => write!(f, "failed   {}: {reason}", self.name),
        }
    }
}
