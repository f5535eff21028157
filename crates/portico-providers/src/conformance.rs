//! The contract of providers, as a test: any [`Provider`], in this program or behind a socket, is
//! taken through the life of a few Services, and every step is repeated as the controller would.
//!
//! ```text
//! let case = Case::new(nodes).can(Can { source_ranges: Support::Refused, ..Can::everything() });
//! let report = conformance::run(&provider, Some(&world), &case).await;
//! assert!(report.passed(), "{report}");
//! ```
//!
//! - [`Case`] says what the provider can do, and with which nodes and annotations it is tried.
//! - [`World`] looks behind the provider: what exists for Services, and what is others'. Without
//!   one, only answers are checked.
//! - [`with_faults`] repeats a life with every single call that a provider makes to its server
//!   going wrong in every way. For that, the layer that makes those calls asks [`FaultPlan::next`]
//!   before each one and does what the [`Fault`] says; a [`Lab`] holds both.
//!
//! Nothing here names a provider, and nothing is needed of one beside its contract.

mod faults;
mod life;
mod report;
mod sample;
mod steps;

use std::time::Duration;

use futures_util::future::BoxFuture;

use crate::{Node, Provider, Request};

pub use faults::{Fault, FaultPlan, Lab, with_faults};
pub use report::{Outcome, Report, Step};

/// What a provider is tried with.
#[derive(Clone, Debug)]
pub struct Case {
    /// What all Services begin with: cluster, class, labels, annotations. Names, ports and nodes
    /// come from the test.
    pub template: Request,
    /// Three or more that the provider knows.
    pub nodes: Vec<Node>,
    /// What the provider does about what not every one can do.
    pub can: Can,
    /// How long something may be on its way.
    pub patience: Duration,
    /// The longest pause before it is asked for again, whatever the provider says.
    pub pause: Duration,
}

impl Case {
    /// A case with these nodes, for a provider that can do everything.
    pub fn new(nodes: Vec<Node>) -> Self {
        Self {
            template: Request {
                cluster: "conformance".to_owned(),
                ..Request::default()
            },
            nodes,
            can: Can::everything(),
            patience: Duration::from_secs(60),
            pause: Duration::from_millis(50),
        }
    }

    /// The same case for a provider that can do this.
    pub fn can(self, can: Can) -> Self {
        Self { can, ..self }
    }
}

/// What a provider does about what not every one can do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Can {
    /// It sends to the ports of nodes; `Ignored` where packets keep the balancer's address and
    /// port.
    pub node_ports: Support,
    /// `externalTrafficPolicy: Local`
    pub local: Support,
    /// `loadBalancerSourceRanges`
    pub source_ranges: Support,
    /// `sessionAffinity: ClientIP`
    pub affinity: Support,
    /// UDP ports.
    pub udp: Support,
    /// TCP and UDP in one Service.
    pub mixed_protocols: Support,
    /// Services of IPv6 alone.
    pub ipv6: Support,
    /// Services of both families.
    pub dual_stack: Support,
}

impl Can {
    /// Everything is done.
    pub fn everything() -> Self {
        Self {
            node_ports: Support::Full,
            local: Support::Full,
            source_ranges: Support::Full,
            affinity: Support::Full,
            udp: Support::Full,
            mixed_protocols: Support::Full,
            ipv6: Support::Full,
            dual_stack: Support::Full,
        }
    }
}

/// What a provider does about something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Support {
    /// It does it, and a [`World`] shows a difference.
    Full,
    /// It takes it and does nothing about it, for instance because nodes do.
    Ignored,
    /// It answers `Refused`, and leaves what there was as it was.
    Refused,
    /// It is not tried, for this reason.
    Untested(String),
}

/// What is behind a provider. Lines begin with a word that says what kind of thing it is
/// (`listener`, `address`), and leave out what changes by itself, such as times.
pub trait World: Send + Sync {
    /// Lists everything that exists for Services of the test, a line each, with all that a provider
    /// decides: ports, ranges, and nodes by name, address or id.
    fn owned(&self) -> BoxFuture<'_, Result<Vec<String>, String>>;

    /// Lists everything else that a provider could reach, and must not touch.
    fn foreign(&self) -> BoxFuture<'_, Result<Vec<String>, String>> {
        Box::pin(async { Ok(Vec::new()) })
    }
}

/// Take a provider through all steps. A step that fails does not keep the others from being tried,
/// but nothing is tried without a load balancer.
pub async fn run(provider: &dyn Provider, world: Option<&dyn World>, case: &Case) -> Report {
    let mut report = Report::default();
    let tester = match life::Tester::new(provider, world, case).await {
        Ok(tester) => tester,
        Err(stop) => {
            report.add("the world can be seen", Err(stop));
            return report;
        }
    };
    let mut reason: Option<String> = None;
    for step in steps::STEPS {
        let outcome = match &reason {
            Some(reason) if !step.always => Err(life::Stop::Skipped(reason.clone())),
            _ => tester.watched((step.work)(&tester)).await,
        };
        if outcome.is_err() && step.vital {
            reason.get_or_insert_with(|| {
                format!("there is nothing to try it on: \"{}\" failed", step.name)
            });
        }
        report.add(step.name, outcome);
    }
    report
}

#[cfg(test)]
pub(crate) mod tests;
