//! Network Load Balancers: what there is, and the steps from there to what is wanted. Pure.
//!
//! A listener sends to the target group of its node port. Target groups are found by their names,
//! which begin alike for one Service, as those that nothing uses belong to no balancer.

pub(super) mod act;

use std::collections::BTreeSet;

use super::api::ec2::Tags;
use super::groups::{GroupStep, Groups, missing_tags};
use super::settings::{self, tags_at_first};
use super::wanted::{Check, Listener, Wanted, refused};
use crate::ProviderError;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Balancer {
    pub arn: String,
    pub host: String,
    pub internal: bool,
    /// In the vendor's words: `provisioning`, `active`, `active_impaired`, `failed`.
    pub state: String,
    pub groups: Vec<String>,
    pub tags: Tags,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SeenListener {
    pub arn: String,
    pub port: u16,
    pub protocol: String,
    /// Its ARN.
    pub target_group: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TargetGroup {
    pub arn: String,
    pub name: String,
    pub check: Check,
    pub tags: Tags,
    /// Instances, without those that are leaving.
    pub targets: BTreeSet<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Observed {
    pub groups: Groups,
    pub balancer: Option<Balancer>,
    pub listeners: Vec<SeenListener>,
    pub targets: Vec<TargetGroup>,
    /// For a balancer that has to be made.
    pub subnets: Vec<String>,
}

/// Target groups are meant by name, as some have no ARN yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Group(GroupStep),
    /// Subnets with an elastic address, or without.
    CreateBalancer {
        name: String,
        internal: bool,
        subnets: Vec<(String, Option<String>)>,
        tags: Tags,
    },
    UseGroup,
    Tag(Tagged, Tags),
    SetAttributes(Tagged, Tags),
    CreateTargets {
        listener: Listener,
        check: Check,
        tags: Tags,
    },
    SetCheck(String, Check),
    Register(String, Vec<String>),
    Deregister(String, Vec<String>),
    DeleteTargets(String),
    CreateListener(Listener, Tags),
    /// The ARN of a listener, and the target group that it shall use.
    Redirect(String, String),
    DeleteListener(String),
    DeleteBalancer,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Tagged {
    Balancer,
    Targets(String),
}

/// What a step made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Made {
    Nothing,
    Balancer(Balancer),
    /// Its ARN.
    Targets(String),
    Listener(SeenListener),
}

impl Observed {
    /// A step was done. Those of security groups are noted where they are done.
    pub(super) fn done(&mut self, step: &Step, made: Made) {
        match (step, made) {
            (Step::CreateBalancer { tags, .. }, Made::Balancer(balancer)) => {
                let groups = vec![self.groups.own_id()];
                self.balancer = Some(Balancer {
                    tags: tags.clone(),
                    groups,
                    ..balancer
                });
                self.subnets.clear();
            }
            (
                Step::CreateTargets {
                    listener,
                    check,
                    tags,
                },
                Made::Targets(arn),
            ) => {
                let (name, check, tags) =
                    (listener.target_group.clone(), check.clone(), tags.clone());
                self.targets.push(TargetGroup {
                    arn,
                    name,
                    check,
                    tags,
                    ..TargetGroup::default()
                });
            }
            (Step::CreateListener(..), Made::Listener(listener)) => self.listeners.push(listener),
            (Step::UseGroup, _) => {
                let groups = vec![self.groups.own_id()];
                self.balancer
                    .iter_mut()
                    .for_each(|balancer| balancer.groups.clone_from(&groups));
            }
            (Step::Tag(Tagged::Balancer, tags), _) => {
                self.balancer
                    .iter_mut()
                    .for_each(|balancer| balancer.tags.extend(tags.clone()));
            }
            (Step::Tag(Tagged::Targets(name), tags), _) => {
                self.change(name, |it| it.tags.extend(tags.clone()))
            }
            (Step::SetCheck(name, check), _) => self.change(name, |it| it.check.clone_from(check)),
            (Step::Register(name, ids), _) => {
                self.change(name, |it| it.targets.extend(ids.iter().cloned()))
            }
            (Step::Deregister(name, ids), _) => {
                self.change(name, |it| it.targets.retain(|id| !ids.contains(id)))
            }
            (Step::DeleteTargets(name), _) => self.targets.retain(|group| group.name != *name),
            (Step::Redirect(arn, name), _) => {
                let target = self
                    .targets
                    .iter()
                    .find(|group| group.name == *name)
                    .map(|group| group.arn.clone());
                let listeners = self
                    .listeners
                    .iter_mut()
                    .filter(|listener| listener.arn == *arn);
                listeners.for_each(|listener| {
                    listener.target_group = target.clone().unwrap_or_default()
                });
            }
            (Step::DeleteListener(arn), _) => {
                self.listeners.retain(|listener| listener.arn != *arn)
            }
            (Step::DeleteBalancer, _) => {
                self.balancer = None;
                self.listeners.clear();
            }
            // Their results are noted elsewhere, or cannot be known without a read.
            (Step::Group(_) | Step::SetAttributes(..), _) => {}
            (
                Step::CreateBalancer { .. } | Step::CreateTargets { .. } | Step::CreateListener(..),
                _,
            ) => {}
        }
    }

    fn change(&mut self, targets: &str, change: impl Fn(&mut TargetGroup)) {
        self.targets
            .iter_mut()
            .filter(|group| group.name == targets)
            .for_each(change);
    }
}

const BALANCER_DEFAULTS: &[(&str, &str)] = &[(super::annotations::CROSS_ZONE, "false")];
const TARGET_DEFAULTS: &[(&str, &str)] = &[
    ("proxy_protocol_v2.enabled", "false"),
    ("stickiness.enabled", "false"),
];

/// What is wanted is there before what is not wanted goes.
pub(super) fn plan(wanted: &Wanted, seen: &Observed) -> Result<Vec<Step>, ProviderError> {
    let mut steps: Vec<Step> = seen
        .groups
        .open(&wanted.groups)
        .into_iter()
        .map(Step::Group)
        .collect();
    balancer(wanted, seen, &mut steps)?;
    wanted
        .listeners
        .iter()
        .for_each(|listener| targets(wanted, listener, seen, &mut steps));
    listeners(wanted, seen, &mut steps);
    let is_wanted = |group: &&TargetGroup| {
        wanted
            .listeners
            .iter()
            .any(|it| it.target_group == group.name)
    };
    let surplus = seen.targets.iter().filter(|group| !is_wanted(group));
    steps.extend(surplus.map(|group| Step::DeleteTargets(group.name.clone())));
    steps.extend(
        seen.groups
            .close(&wanted.groups)
            .into_iter()
            .map(Step::Group),
    );
    Ok(steps)
}

/// Groups that a balancer uses cannot be deleted, neither of targets nor of rules.
pub(super) fn removal(seen: &Observed) -> Vec<Step> {
    let balancer = seen.balancer.iter().map(|_| Step::DeleteBalancer);
    let targets = seen
        .targets
        .iter()
        .map(|group| Step::DeleteTargets(group.name.clone()));
    balancer
        .chain(targets)
        .chain(seen.groups.remove().into_iter().map(Step::Group))
        .collect()
}

fn balancer(wanted: &Wanted, seen: &Observed, steps: &mut Vec<Step>) -> Result<(), ProviderError> {
    let Some(balancer) = &seen.balancer else {
        let subnets = with_addresses(&seen.subnets, &wanted.addresses)?;
        let tags = tags_at_first(wanted.tags.clone(), &wanted.settings);
        let (name, internal) = (wanted.name.clone(), wanted.internal);
        steps.push(Step::CreateBalancer {
            name,
            internal,
            subnets,
            tags: tags.clone(),
        });
        set(
            Tagged::Balancer,
            &tags,
            &wanted.settings,
            BALANCER_DEFAULTS,
            steps,
        );
        return Ok(());
    };
    if balancer.internal != wanted.internal {
        return refused(
            "SchemeChanged",
            "a load balancer cannot become internal or public: create the Service anew",
        );
    }
    if balancer.groups.is_empty() {
        let message = "the load balancer was made without a security group and can get none: create the \
                       Service anew";
        return refused("NoSecurityGroup", message);
    }
    let own = seen.groups.own.as_ref().map(|own| &own.id);
    if balancer.groups.iter().ne(own) {
        steps.push(Step::UseGroup);
    }
    steps.extend(
        missing_tags(&balancer.tags, &wanted.tags).map(|tags| Step::Tag(Tagged::Balancer, tags)),
    );
    set(
        Tagged::Balancer,
        &balancer.tags,
        &wanted.settings,
        BALANCER_DEFAULTS,
        steps,
    );
    Ok(())
}

fn with_addresses(
    subnets: &[String],
    addresses: &[String],
) -> Result<Vec<(String, Option<String>)>, ProviderError> {
    if !addresses.is_empty() && addresses.len() != subnets.len() {
        let message = format!(
            "{} elastic addresses for {} subnets: one for each is needed",
            addresses.len(),
            subnets.len()
        );
        return refused("BadAnnotation", message);
    }
    let addresses = addresses
        .iter()
        .cloned()
        .map(Some)
        .chain(std::iter::repeat(None));
    Ok(subnets.iter().cloned().zip(addresses).collect())
}

fn set(what: Tagged, tags: &Tags, wanted: &Tags, defaults: &[(&str, &str)], steps: &mut Vec<Step>) {
    if let Some(change) = settings::change(tags, wanted, defaults) {
        steps.extend(change.before.map(|tags| Step::Tag(what.clone(), tags)));
        steps.push(Step::SetAttributes(what.clone(), change.attributes));
        steps.push(Step::Tag(what, change.after));
    }
}

/// Attributes are set before the group is used.
fn targets(wanted: &Wanted, listener: &Listener, seen: &Observed, steps: &mut Vec<Step>) {
    let name = &listener.target_group;
    let what = || Tagged::Targets(name.clone());
    let nothing = BTreeSet::new();
    let found = seen.targets.iter().find(|group| group.name == *name);
    match found {
        None => {
            let tags = tags_at_first(wanted.tags.clone(), &wanted.target_settings);
            let (listener, check) = (listener.clone(), wanted.check.clone());
            steps.push(Step::CreateTargets {
                listener,
                check,
                tags: tags.clone(),
            });
            set(
                what(),
                &tags,
                &wanted.target_settings,
                TARGET_DEFAULTS,
                steps,
            );
        }
        Some(group) => {
            steps.extend(
                missing_tags(&group.tags, &wanted.tags).map(|tags| Step::Tag(what(), tags)),
            );
            if group.check != wanted.check {
                steps.push(Step::SetCheck(name.clone(), wanted.check.clone()));
            }
            set(
                what(),
                &group.tags,
                &wanted.target_settings,
                TARGET_DEFAULTS,
                steps,
            );
        }
    }
    let have = found.map_or(&nothing, |group| &group.targets);
    let (gone, new) = changes(have, &wanted.instances);
    steps.extend(gone.map(|ids| Step::Deregister(name.clone(), ids)));
    steps.extend(new.map(|ids| Step::Register(name.clone(), ids)));
}

/// What is only in one of two: too much, and missing.
pub(super) fn changes(
    have: &BTreeSet<String>,
    wanted: &BTreeSet<String>,
) -> (Option<Vec<String>>, Option<Vec<String>>) {
    let only = |these: &BTreeSet<String>, those: &BTreeSet<String>| {
        let ids: Vec<String> = these.difference(those).cloned().collect();
        (!ids.is_empty()).then_some(ids)
    };
    (only(have, wanted), only(wanted, have))
}

/// Another protocol on the same port needs another listener, and there is room for one only.
fn listeners(wanted: &Wanted, seen: &Observed, steps: &mut Vec<Step>) {
    let target = |arn: &str| {
        seen.targets
            .iter()
            .find(|group| group.arn == arn)
            .map(|group| group.name.as_str())
    };
    let mut kept = BTreeSet::new();
    let mut later = Vec::new();
    for listener in &wanted.listeners {
        let fits =
            |it: &&SeenListener| it.port == listener.port && it.protocol == listener.protocol;
        match seen.listeners.iter().find(fits) {
            None => later.push(Step::CreateListener(listener.clone(), wanted.tags.clone())),
            Some(found) => {
                kept.insert(found.arn.as_str());
                if target(&found.target_group) != Some(listener.target_group.as_str()) {
                    later.push(Step::Redirect(
                        found.arn.clone(),
                        listener.target_group.clone(),
                    ));
                }
            }
        }
    }
    let surplus = seen
        .listeners
        .iter()
        .filter(|it| !kept.contains(it.arn.as_str()));
    steps.extend(surplus.map(|it| Step::DeleteListener(it.arn.clone())));
    steps.extend(later);
}

#[cfg(test)]
mod tests;
