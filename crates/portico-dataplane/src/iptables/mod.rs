//! The iptables dataplane, through `iptables-restore`, with kube-proxy's chain names and contents.
//!
//! [`rules`] and [`fixed`] say which chains a table needs, [`read`] what there is, [`compare`] how
//! that differs, [`plan`] and [`repair`] what has to be done, [`run`] starts the programs,
//! [`remove`] takes everything out.

mod compare;
pub(crate) mod fixed;
pub(crate) mod names;
pub(crate) mod plan;
pub(crate) mod read;
mod remove;
pub(crate) mod repair;
pub(crate) mod rules;
pub(crate) mod run;

pub use names::{MARK_MASQ, PortChain, endpoint_chain, port_chain};
pub use read::{meaning, target};
pub use remove::{present, remove_all_iptables, remove_unused_variant};
pub use rules::probability;
pub use run::{Programs, Variant, plain_variant};

use crate::{ApplyError, Dataplane, Differences, Report};
use fixed::Features;
use plan::{Planner, Ports, Run, Sink};
use portico_model::table::{Change, Family, ForwardingTable, FrontendKey, NodeRules, PerFamily};
use std::time::Instant;

/// What the operator may decide.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Instead of finding out which variant the node uses.
    pub variant: Option<Variant>,
    /// conntrack is told to take segments that are out of window (`tcpBeLiberal`), so invalid
    /// packets are not dropped.
    pub liberal: bool,
}

/// The dataplane of iptables mode.
pub struct Iptables {
    programs: Programs,
    features: Features,
    /// What is installed, if it is known.
    installed: Option<Known>,
    /// Families that the node has.
    served: PerFamily<bool>,
}

/// The part of a [`ForwardingTable`] that is translated.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Known {
    rules: NodeRules,
    ports: Ports,
}

impl Iptables {
    /// A dataplane on the programs of this machine. Changes nothing yet.
    pub fn new(options: Options) -> Result<Self, ApplyError> {
        let programs = choose(options.variant)?;
        let features = Features {
            random_fully: programs.random_fully(),
            drop_invalid: !options.liberal,
        };
        Ok(Self {
            programs,
            features,
            installed: None,
            served: PerFamily { v4: true, v6: true },
        })
    }

    /// Which programs of iptables are used.
    pub fn variant(&self) -> Variant {
        self.programs.variant
    }

    /// How the kernel differs from a table. Changes nothing.
    pub fn compare(
        &self,
        table: &ForwardingTable,
        frontend: &FrontendKey,
    ) -> Result<Differences, ApplyError> {
        let installed = self.programs.save(frontend.family)?;
        let planner = Planner {
            rules: &table.rules,
            family: frontend.family,
            features: self.features,
        };
        Ok(compare::differences(planner, installed, table, frontend))
    }

    fn repair(
        &self,
        family: Family,
        wanted: &Known,
        report: &mut Report,
    ) -> Result<(), ApplyError> {
        let start = Instant::now();
        let installed = self.programs.save(family)?;
        report.kernel += start.elapsed();
        let mut send = |run: &Run| send(&self.programs, family, run, report);
        let mut sink = Sink::new(split_after(self.programs.variant), &mut send);
        let planner = Planner {
            rules: &wanted.rules,
            family,
            features: self.features,
        };
        let drift = repair::repair(planner, installed, &wanted.ports, &mut sink)?;
        if self.installed.as_ref() == Some(wanted) {
            report.drift.extend(drift.words());
        }
        Ok(())
    }

    fn change(&self, changes: &[Change], wanted: &Known) -> Result<Report, ApplyError> {
        let mut report = Report::default();
        for family in Family::BOTH {
            let mut send = |run: &Run| send(&self.programs, family, run, &mut report);
            let mut sink = Sink::new(split_after(self.programs.variant), &mut send);
            let planner = Planner {
                rules: &wanted.rules,
                family,
                features: self.features,
            };
            planner.change(changes, &wanted.ports, &mut sink)?;
        }
        Ok(report)
    }

    fn install(&mut self, wanted: Known) -> Result<Report, ApplyError> {
        let mut report = Report::default();
        for family in Family::BOTH {
            let result = self.repair(family, &wanted, &mut report);
            let needed = wanted.ports.keys().any(|key| key.family == family);
            *self.served.get_mut(family) = result.is_ok();
            match result {
                Err(error) if !needed => {
                    tracing::warn!(%error, ?family, "iptables does not work for this address family")
                }
                Err(error) => {
                    self.installed = None;
                    return Err(error);
                }
                Ok(()) => {}
            }
        }
        self.installed = Some(wanted);
        Ok(report)
    }
}

impl Dataplane for Iptables {
    fn name(&self) -> &'static str {
        "iptables"
    }

    fn replace(&mut self, table: &ForwardingTable) -> Result<Report, ApplyError> {
        self.install(Known {
            rules: table.rules.clone(),
            ports: table.ports.to_tree(),
        })
    }

    fn apply(&mut self, rules: &NodeRules, changes: &[Change]) -> Result<Report, ApplyError> {
        let served = changes
            .iter()
            .all(|change| *self.served.get(change.key.family));
        let Some(mut wanted) = self.installed.take() else {
            return Err(ApplyError::Limit(
                "what is installed is not known; it has to be replaced first".to_owned(),
            ));
        };
        let changes = take_over(&mut wanted.ports, changes);
        if !served || wanted.rules != *rules {
            wanted.rules.clone_from(rules);
            return self.install(wanted);
        }
        let report = self.change(&changes, &wanted)?;
        self.installed = Some(wanted);
        Ok(report)
    }

    fn is_installed(&mut self) -> Result<bool, ApplyError> {
        Ok(present())
    }

    fn remove(&mut self) -> Result<(), ApplyError> {
        self.installed = None;
        remove_all_iptables()
    }
}

/// Change what is wanted; `before` becomes what is really installed.
pub(crate) fn take_over(ports: &mut Ports, changes: &[Change]) -> Vec<Change> {
    let change = |change: &Change| {
        let before = match &change.after {
            Some(port) => ports.insert(change.key.clone(), port.clone()),
            None => ports.remove(&change.key),
        };
        Change {
            key: change.key.clone(),
            before,
            after: change.after.clone(),
        }
    };
    changes.iter().map(change).collect()
}

pub(crate) fn send(
    programs: &Programs,
    family: Family,
    run: &Run,
    report: &mut Report,
) -> Result<(), ApplyError> {
    let text = run.to_string();
    report.operations += run.lines();
    report.bytes += text.len();
    let start = Instant::now();
    let result = programs.restore(family, &text);
    report.kernel += start.elapsed();
    result
}

/// How long one input gets. The legacy variant writes the whole table each time, whatever the
/// input, so it is never split.
pub(crate) fn split_after(variant: Variant) -> usize {
    match variant {
        Variant::Nft => 3000,
        Variant::Legacy => usize::MAX,
    }
}

/// The variant that the node uses already: where kubelet left its hint, where our rules or
/// kube-proxy's are, where most rules are; else what the distribution prefers.
pub(crate) fn choose(wanted: Option<Variant>) -> Result<Programs, ApplyError> {
    let missing = || ApplyError::Program {
        program: "iptables-restore".to_owned(),
        problem: "is not installed, or not in this variant; install iptables or use \
                  --proxy-mode=nftables"
            .to_owned(),
    };
    if let Some(variant) = wanted {
        return Programs::find(variant).ok_or_else(missing);
    }
    let (nft, legacy) = match (
        Programs::find(Variant::Nft),
        Programs::find(Variant::Legacy),
    ) {
        (Some(nft), Some(legacy)) => (nft, legacy),
        (Some(only), None) | (None, Some(only)) => return Ok(only),
        (None, None) => return Err(missing()),
    };
    let either = |test: &dyn Fn(&Programs, Family) -> bool| {
        let holds = |programs: &Programs| Family::BOTH.iter().any(|family| test(programs, *family));
        [&nft, &legacy]
            .into_iter()
            .find(|programs| holds(programs))
            .cloned()
    };
    let ours = |programs: &Programs, family| {
        programs.has_table(family, "nat") && programs.has_chain(family, names::SERVICES)
    };
    let count = |programs: &Programs| -> usize {
        let families = Family::BOTH
            .into_iter()
            .filter(|family| programs.has_tables(*family));
        families
            .filter_map(|family| programs.save(family).ok())
            .map(|installed| installed.rules)
            .sum()
    };
    let by_hint = either(&Programs::has_hint).or_else(|| either(&ours));
    Ok(
        by_hint.unwrap_or_else(|| match (count(&nft), count(&legacy)) {
            (nft_rules, legacy_rules) if legacy_rules > nft_rules => legacy,
            (0, 0) if run::plain_variant() == Some(Variant::Legacy) => legacy,
            _ => nft,
        }),
    )
}

#[cfg(test)]
mod tests;
