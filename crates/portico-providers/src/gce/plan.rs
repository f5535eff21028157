//! What to do next, from what is wanted and what is there. Pure: every state between two steps is
//! one that a pass may begin with, so a pass that died is completed by the next.
//!
//! Steps of one answer do not depend on each other. The order of answers is what keeps it right:
//!
//! 1. the pool is the first of the Service's own that is made, and the last that goes: the call
//!    that can make it knows that nothing is there;
//! 2. a new rule gets its address with it, and the firewall comes when the address is known. While
//!    a rule is exchanged, its address is held, so that it stays;
//! 3. the rule goes before a pool that has to be made anew (only the affinity cannot be changed),
//!    the pool keeps its name;
//! 4. a check is exchanged on the living pool. The shared one is given back *before* the own one is
//!    attached: a pool with its own check needs no look at the shared one any more.

use std::collections::BTreeSet;
use std::time::Duration;

use super::names::Names;
use super::resources::{Address, Firewall, ForwardingRule, HttpHealthCheck, TargetPool, name_of};
use super::wanted::{Check, InstanceRef, Wanted, refused};
use crate::ProviderError;

/// A pool is made with at most so many instances, and takes so many more at a time.
const FIRST_INSTANCES: usize = 200;
const MORE_INSTANCES: usize = 1000;
/// Nodes that come are told of at once.
const NO_NODES: Duration = Duration::from_secs(60);

/// What is there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Observed {
    pub rule: Option<ForwardingRule>,
    pub address: Option<Address>,
    pub firewall: Option<Firewall>,
    pub pool: Option<TargetPool>,
    pub own_check: Option<HttpHealthCheck>,
    pub own_firewall: Option<Firewall>,
    pub shared_check: Option<HttpHealthCheck>,
    pub shared_firewall: Option<Firewall>,
    /// The reserved address with the number that the Service asks for.
    pub reserved: Option<Address>,
}

/// Where links of resources begin, which is not for this file to know.
pub(super) trait Links {
    fn pool(&self, name: &str) -> String;
    fn check(&self, name: &str) -> String;
    fn instance(&self, instance: &InstanceRef) -> String;
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    InsertAddress(Address),
    DeleteAddress,
    InsertFirewall(Firewall),
    PatchFirewall(Firewall),
    DeleteFirewall,
    InsertCheck(HttpHealthCheck),
    UpdateCheck(HttpHealthCheck),
    InsertPool(TargetPool),
    DeletePool,
    AddInstances(Vec<String>),
    RemoveInstances(Vec<String>),
    AttachCheck(String),
    DetachCheck(String),
    InsertRule(ForwardingRule),
    DeleteRule,
    /// The check of a Service that was `Local`, with its firewall.
    DeleteOwnCheck,
    /// The shared check with its firewall, if no other pool uses it.
    ReleaseShared,
}

impl Observed {
    /// Whether the pool has the check of this name.
    pub(super) fn has_check(&self, name: &str) -> bool {
        self.pool
            .iter()
            .flat_map(|pool| &pool.health_checks)
            .any(|link| name_of(link) == name)
    }

    /// A step was done.
    pub(super) fn apply(&mut self, step: &Step, names: &Names) {
        let shared = |name: &str| name == names.shared_check || name == names.shared_firewall;
        match step.clone() {
            Step::InsertAddress(address) => self.address = Some(address),
            Step::DeleteAddress => self.address = None,
            Step::InsertFirewall(firewall) | Step::PatchFirewall(firewall) => {
                match firewall.name.as_str() {
                    name if name == names.firewall => self.firewall = Some(firewall),
                    name if shared(name) => self.shared_firewall = Some(firewall),
                    _ => self.own_firewall = Some(firewall),
                }
            }
            Step::DeleteFirewall => self.firewall = None,
            Step::InsertCheck(check) | Step::UpdateCheck(check) => match shared(&check.name) {
                true => self.shared_check = Some(check),
                false => self.own_check = Some(check),
            },
            Step::InsertPool(pool) => self.pool = Some(pool),
            Step::DeletePool => self.pool = None,
            Step::AddInstances(links) => self.change_pool(|pool| pool.instances.extend(links)),
            Step::RemoveInstances(links) => {
                let gone: BTreeSet<_> = links
                    .iter()
                    .filter_map(|link| InstanceRef::parse(link))
                    .collect();
                let stays = |link: &String| {
                    InstanceRef::parse(link).is_none_or(|instance| !gone.contains(&instance))
                };
                self.change_pool(|pool| pool.instances.retain(stays));
            }
            Step::AttachCheck(link) => self.change_pool(|pool| pool.health_checks.push(link)),
            Step::DetachCheck(link) => {
                self.change_pool(|pool| pool.health_checks.retain(|other| *other != link))
            }
            Step::InsertRule(rule) => self.rule = Some(rule),
            Step::DeleteRule => self.rule = None,
            Step::DeleteOwnCheck => (self.own_check, self.own_firewall) = (None, None),
            // It is another's, or gone: nothing to look at any more.
            Step::ReleaseShared => (self.shared_check, self.shared_firewall) = (None, None),
        }
    }

    fn change_pool(&mut self, change: impl FnOnce(&mut TargetPool)) {
        if let Some(pool) = &mut self.pool {
            change(pool);
        }
    }
}

/// Whether a check is about to be used that others may be about to give back.
pub(super) fn will_share(wanted: &Wanted, observed: &Observed) -> bool {
    matches!(&wanted.check, Check::Shared(check, _) if !observed.has_check(&check.name))
}

/// The next steps of `ensure`; none: it is done.
pub(super) fn next(
    wanted: &Wanted,
    observed: &Observed,
    links: &dyn Links,
) -> Result<Vec<Step>, ProviderError> {
    Plan {
        wanted,
        observed,
        links,
    }
    .next()
}

/// The next steps of `delete`, but for the shared check; none: it is done.
pub(super) fn next_removal(names: &Names, observed: &Observed) -> Vec<Step> {
    let first = [
        observed.rule.as_ref().map(|_| Step::DeleteRule),
        observed.firewall.as_ref().map(|_| Step::DeleteFirewall),
        observed.address.as_ref().map(|_| Step::DeleteAddress),
    ];
    let own = observed
        .pool
        .iter()
        .flat_map(|pool| &pool.health_checks)
        .find(|link| name_of(link) == names.balancer);
    let owns = observed.own_check.is_some() || observed.own_firewall.is_some();
    let stages: [Vec<Step>; 4] = [
        first.into_iter().flatten().collect(),
        own.map(|link| Step::DetachCheck(link.clone()))
            .into_iter()
            .collect(),
        owns.then_some(Step::DeleteOwnCheck).into_iter().collect(),
        observed
            .pool
            .as_ref()
            .map(|_| Step::DeletePool)
            .into_iter()
            .collect(),
    ];
    stages
        .into_iter()
        .find(|steps| !steps.is_empty())
        .unwrap_or_default()
}

struct Plan<'a> {
    wanted: &'a Wanted,
    observed: &'a Observed,
    links: &'a dyn Links,
}

impl Plan<'_> {
    fn next(&self) -> Result<Vec<Step>, ProviderError> {
        self.check_reserved()?;
        self.check_tags()?;
        // The shared check is not the Service's own, and comes before; an own one is attached
        // later.
        if self.observed.pool.is_none()
            && matches!(self.wanted.check, Check::Own(..))
            && self.observed.own_check.is_none()
        {
            return Ok(vec![self.insert_pool()]);
        }
        let mut steps = self.address();
        steps.extend(self.check());
        if !steps.is_empty() {
            return Ok(steps);
        }
        steps.extend(self.firewalls());
        if !steps.is_empty() {
            return Ok(steps);
        }
        let stages: [fn(&Self) -> Vec<Step>; 4] =
            [Self::old_rule, Self::pool, Self::rule, Self::rest];
        Ok(stages
            .iter()
            .map(|stage| stage(self))
            .find(|steps| !steps.is_empty())
            .unwrap_or_default())
    }

    /// An address that is asked for has to be reserved, or be the Service's already.
    fn check_reserved(&self) -> Result<(), ProviderError> {
        let Some(requested) = self.wanted.requested else {
            return Ok(());
        };
        let text = requested.to_string();
        let Some(reserved) = &self.observed.reserved else {
            if self
                .observed
                .rule
                .as_ref()
                .is_some_and(|rule| rule.address == text)
            {
                return Ok(());
            }
            let way = format!("gcloud compute addresses create NAME --addresses {text}");
            let text = format!(
                "loadBalancerIP {text} is not reserved in the region: reserve it ({way}), or \
                 leave it out"
            );
            return Err(refused("AddressNotReserved", text));
        };
        if reserved.network_tier != self.wanted.tier {
            let (has, wants) = (&reserved.network_tier, self.wanted.tier);
            let text = format!(
                "address {text} ({}) is of tier {has}, the Service wants {wants}",
                reserved.name
            );
            return Err(refused("WrongNetworkTier", text));
        }
        let others = |user: &&String| name_of(user) != self.wanted.names.balancer;
        match reserved.users.iter().find(others) {
            Some(user) => Err(refused(
                "AddressInUse",
                format!("address {text} is used by {}", name_of(user)),
            )),
            None => Ok(()),
        }
    }

    /// A firewall without tags would be for every instance of the network.
    fn check_tags(&self) -> Result<(), ProviderError> {
        if self.wanted.firewall.target_tags.is_empty() && self.observed.firewall.is_none() {
            let reason = "there are no nodes yet, and so no tags for the firewall".to_owned();
            return Err(ProviderError::RetryAfter {
                after: NO_NODES,
                reason,
            });
        }
        Ok(())
    }

    /// The address that is to be used, once there is one that will not go away.
    fn held(&self) -> Option<&str> {
        let own = self
            .observed
            .address
            .as_ref()
            .filter(|address| self.fits(address));
        self.observed
            .reserved
            .as_ref()
            .or(own)
            .map(|address| address.address.as_str())
    }

    fn fits(&self, address: &Address) -> bool {
        let requested = self
            .wanted
            .requested
            .is_none_or(|requested| requested.to_string() == address.address);
        address.network_tier == self.wanted.tier && requested
    }

    fn rule_is_right(&self) -> bool {
        let (wanted, Some(rule)) = (self.wanted, &self.observed.rule) else {
            return false;
        };
        let requested = wanted
            .requested
            .is_none_or(|requested| requested.to_string() == rule.address);
        requested
            && rule.network_tier == wanted.tier
            && rule.protocol == wanted.protocol.to_string()
            && rule.port_range == wanted.port_range
            && name_of(&rule.target) == wanted.names.balancer
    }

    fn pool_is_to_go(&self) -> bool {
        self.observed
            .pool
            .as_ref()
            .is_some_and(|pool| pool.session_affinity != self.wanted.affinity)
    }

    fn rule_stays(&self) -> bool {
        self.rule_is_right() && !self.pool_is_to_go()
    }

    fn address(&self) -> Vec<Step> {
        let (wanted, observed) = (self.wanted, self.observed);
        if self.rule_stays() || self.held().is_some() {
            return Vec::new();
        }
        if observed.address.is_some() {
            return vec![Step::DeleteAddress];
        }
        let Some(rule) = &observed.rule else {
            return Vec::new();
        };
        // One of the other tier cannot be kept, and an address cannot be had twice.
        if rule.network_tier != wanted.tier {
            return vec![Step::DeleteRule];
        }
        vec![Step::InsertAddress(Address {
            name: wanted.names.balancer.clone(),
            description: wanted.description.clone(),
            address: rule.address.clone(),
            network_tier: wanted.tier.to_owned(),
            users: Vec::new(),
        })]
    }

    fn check(&self) -> Option<Step> {
        let (wanted, found) = match &self.wanted.check {
            Check::Skip | Check::Without => return None,
            Check::Shared(check, _) => (check, &self.observed.shared_check),
            Check::Own(check, _) => (check, &self.observed.own_check),
        };
        let Some(found) = found else {
            return Some(Step::InsertCheck(wanted.clone()));
        };
        let right = raised(wanted, found);
        (right != *found).then_some(Step::UpdateCheck(right))
    }

    fn firewalls(&self) -> Vec<Step> {
        let rule = self
            .observed
            .rule
            .as_ref()
            .filter(|_| self.rule_is_right())
            .map(|rule| rule.address.as_str());
        let address = self
            .held()
            .or(rule)
            .filter(|_| self.observed.pool.is_some());
        let traffic = address.map(|address| self.wanted.firewall_for(address));
        let mut pairs: Vec<(Firewall, &Option<Firewall>)> = traffic
            .map(|firewall| (firewall, &self.observed.firewall))
            .into_iter()
            .collect();
        match &self.wanted.check {
            Check::Skip | Check::Without => {}
            Check::Shared(_, firewall) => {
                pairs.push((firewall.clone(), &self.observed.shared_firewall))
            }
            Check::Own(_, firewall) => pairs.push((firewall.clone(), &self.observed.own_firewall)),
        }
        let step = |(wanted, found): (Firewall, &Option<Firewall>)| match found {
            None => Some(Step::InsertFirewall(wanted)),
            Some(found) if same(&wanted, found) => None,
            Some(found) => Some(Step::PatchFirewall(with_tags_of(wanted, found))),
        };
        pairs.into_iter().filter_map(step).collect()
    }

    fn old_rule(&self) -> Vec<Step> {
        let old = self.observed.rule.is_some() && !self.rule_stays();
        if old {
            vec![Step::DeleteRule]
        } else {
            Vec::new()
        }
    }

    fn pool(&self) -> Vec<Step> {
        let (wanted, observed) = (self.wanted, self.observed);
        let Some(pool) = &observed.pool else {
            return vec![self.insert_pool()];
        };
        if let Some(link) = pool
            .health_checks
            .iter()
            .find(|link| !self.may_have(name_of(link)))
        {
            return vec![Step::DetachCheck(link.clone())];
        }
        let shared_is_there = observed.shared_check.is_some() || observed.shared_firewall.is_some();
        let gives_back = match wanted.check {
            Check::Own(..) => !self.has_wanted_check(pool),
            Check::Without => true,
            Check::Skip | Check::Shared(..) => false,
        };
        if gives_back && shared_is_there {
            return vec![Step::ReleaseShared];
        }
        if self.pool_is_to_go() {
            return vec![Step::DeletePool];
        }
        match self.wanted_check() {
            Some(name) if !self.has_wanted_check(pool) => {
                vec![Step::AttachCheck(self.links.check(name))]
            }
            _ => self.instances(pool),
        }
    }

    fn insert_pool(&self) -> Step {
        let wanted = self.wanted;
        let is_there = !matches!(wanted.check, Check::Own(..)) || self.observed.own_check.is_some();
        let there = self.wanted_check().filter(|_| is_there);
        Step::InsertPool(TargetPool {
            name: wanted.names.balancer.clone(),
            description: wanted.description.clone(),
            session_affinity: wanted.affinity.to_owned(),
            instances: wanted
                .instances
                .iter()
                .take(FIRST_INSTANCES)
                .map(|it| self.links.instance(it))
                .collect(),
            health_checks: there
                .map(|name| self.links.check(name))
                .into_iter()
                .collect(),
        })
    }

    fn wanted_check(&self) -> Option<&str> {
        match &self.wanted.check {
            Check::Skip | Check::Without => None,
            Check::Shared(check, _) | Check::Own(check, _) => Some(&check.name),
        }
    }

    /// Whether the check may stay attached: it does while a new node has not told its version.
    fn may_have(&self, name: &str) -> bool {
        match &self.wanted.check {
            Check::Skip => name == self.wanted.names.shared_check,
            Check::Without => false,
            Check::Shared(check, _) | Check::Own(check, _) => name == check.name,
        }
    }

    fn has_wanted_check(&self, pool: &TargetPool) -> bool {
        let has = |name: &str| pool.health_checks.iter().any(|link| name_of(link) == name);
        let stray = pool
            .health_checks
            .iter()
            .any(|link| !self.may_have(name_of(link)));
        !stray && self.wanted_check().is_none_or(has)
    }

    /// The next batch of instances: changes of one pool cannot be made together.
    fn instances(&self, pool: &TargetPool) -> Vec<Step> {
        let there: BTreeSet<InstanceRef> = pool
            .instances
            .iter()
            .filter_map(|link| InstanceRef::parse(link))
            .collect();
        let links = |missing: BTreeSet<&InstanceRef>| -> Vec<String> {
            missing
                .into_iter()
                .take(MORE_INSTANCES)
                .map(|instance| self.links.instance(instance))
                .collect()
        };
        let new = links(self.wanted.instances.difference(&there).collect());
        let old = links(there.difference(&self.wanted.instances).collect());
        match (new.is_empty(), old.is_empty()) {
            (false, _) => vec![Step::AddInstances(new)],
            (true, false) => vec![Step::RemoveInstances(old)],
            (true, true) => Vec::new(),
        }
    }

    fn rule(&self) -> Vec<Step> {
        let wanted = self.wanted;
        if self.observed.rule.is_some() {
            return Vec::new();
        }
        vec![Step::InsertRule(ForwardingRule {
            name: wanted.names.balancer.clone(),
            description: wanted.description.clone(),
            address: self.held().unwrap_or_default().to_owned(),
            protocol: wanted.protocol.to_string(),
            port_range: wanted.port_range.clone(),
            load_balancing_scheme: "EXTERNAL".to_owned(),
            network_tier: wanted.tier.to_owned(),
            target: self.links.pool(&wanted.names.balancer),
        })]
    }

    /// The last steps: the rule holds the address now, and a check of the Service's own is not used
    /// any more.
    fn rest(&self) -> Vec<Step> {
        let observed = self.observed;
        let address = observed.address.iter().map(|_| Step::DeleteAddress);
        let own = matches!(self.wanted.check, Check::Own(..));
        let check = observed
            .own_check
            .iter()
            .filter(|_| !own)
            .map(|_| Step::DeleteOwnCheck);
        address.chain(check).collect()
    }
}

/// What people set higher stays.
fn raised(wanted: &HttpHealthCheck, found: &HttpHealthCheck) -> HttpHealthCheck {
    HttpHealthCheck {
        check_interval_sec: wanted.check_interval_sec.max(found.check_interval_sec),
        timeout_sec: wanted.timeout_sec.max(found.timeout_sec),
        healthy_threshold: wanted.healthy_threshold.max(found.healthy_threshold),
        unhealthy_threshold: wanted.unhealthy_threshold.max(found.unhealthy_threshold),
        ..wanted.clone()
    }
}

/// In whatever order, and with a single address as a range or not.
fn same(wanted: &Firewall, found: &Firewall) -> bool {
    let set = |texts: &[String]| {
        texts
            .iter()
            .map(|text| text.trim_end_matches("/32").to_owned())
            .collect::<BTreeSet<_>>()
    };
    let allowed = |firewall: &Firewall| {
        firewall
            .allowed
            .iter()
            .map(|it| (it.protocol.clone(), set(&it.ports)))
            .collect::<BTreeSet<_>>()
    };
    wanted.description == found.description
        && name_of(&wanted.network) == name_of(&found.network)
        && set(&wanted.source_ranges) == set(&found.source_ranges)
        && set(&wanted.destination_ranges) == set(&found.destination_ranges)
        && (wanted.target_tags.is_empty() || set(&wanted.target_tags) == set(&found.target_tags))
        && allowed(wanted) == allowed(found)
}

/// Without nodes the tags are unknown, and those that are there stay: a rule without tags is for
/// every instance of the network.
fn with_tags_of(wanted: Firewall, found: &Firewall) -> Firewall {
    let target_tags = if wanted.target_tags.is_empty() {
        found.target_tags.clone()
    } else {
        wanted.target_tags
    };
    Firewall {
        target_tags,
        ..wanted
    }
}

#[cfg(test)]
mod tests;
