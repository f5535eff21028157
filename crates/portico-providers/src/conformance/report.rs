//! What came of each step, a line each.

use std::fmt;

use super::life::{Stop, Verdict};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    pub steps: Vec<Step>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    pub name: String,
    pub outcome: Outcome,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    Ok,
    /// Why it was not tried.
    Skipped(String),
    /// What is wrong.
    Failed(String),
}

impl Report {
    pub fn passed(&self) -> bool {
        self.failed().next().is_none()
    }

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
