//! Which address families a Service has: its policy and families are settled here, from what it
//! asks for, what it had and what the cluster offers. Runs before addresses are assigned, so that
//! the assignment can trust what it finds.

use super::ranges::{Ranges, family_of, other_family};
use super::types::*;
use super::validate::cluster_ips;
use crate::field::{Error, Errors, Path};
use crate::names;

/// Fill in the policy and the families, or say why they cannot be had.
pub(super) fn settle(
    new: &mut ServiceSpec,
    old: Option<&ServiceSpec>,
    ranges: &Ranges,
) -> Result<(), Errors> {
    if !new.has_cluster_ip() || old.is_some_and(|old| prefers_dual_stack_as_before(new, old)) {
        return Ok(());
    }
    if new.ip_family_policy.is_none() {
        new.ip_family_policy = Some(inferred_policy(new, old));
    }
    or_errors(cluster_ips(new, old))?;
    let mut errors = old.map_or_else(Errors::new, |old| reduce(new, old));
    errors.extend(too_many_for_single_stack(new));
    errors.extend(infer_families(new, ranges));
    or_errors(errors)?;
    let selectorless = new.cluster_ip == NONE && new.selector.is_empty();
    if !selectorless {
        or_errors(not_configured(new, ranges))?;
    }
    if new.ip_families.is_empty() {
        new.ip_families = vec![ranges.primary_family().to_owned()];
    }
    // Without a selector the endpoints are unknown, so the cluster need not have both families.
    if let [only] = new.ip_families.as_slice()
        && new.policy() != SINGLE_STACK
        && (selectorless || ranges.is_dual_stack())
    {
        let other = other_family(only).to_owned();
        new.ip_families.push(other);
    }
    Ok(())
}

fn or_errors(errors: Errors) -> Result<(), Errors> {
    if errors.is_empty() {
        Ok(())
    } else {
        Err(errors)
    }
}

/// A Service that takes what it can get does not change because the cluster did.
pub(super) fn prefers_dual_stack_as_before(new: &ServiceSpec, old: &ServiceSpec) -> bool {
    new.type_ == old.type_
        && (new.has_node_ports() || new.type_ == CLUSTER_IP)
        && new.policy() == PREFER_DUAL_STACK
        && old
            .ip_family_policy
            .as_deref()
            .is_none_or(|policy| policy == PREFER_DUAL_STACK)
        && new.cluster_ips == old.cluster_ips
        && new.ip_families == old.ip_families
}

fn inferred_policy(new: &ServiceSpec, old: Option<&ServiceSpec>) -> String {
    if let Some(policy) = old.and_then(|old| old.ip_family_policy.clone()) {
        return policy;
    }
    let selectorless = new.cluster_ip == NONE && new.selector.is_empty();
    if selectorless {
        REQUIRE_DUAL_STACK
    } else {
        SINGLE_STACK
    }
    .to_owned()
}

fn wrong_policy(spec: &ServiceSpec, detail: &str) -> Error {
    Error::invalid(
        &Path::new("spec").child("ipFamilyPolicy"),
        spec.policy(),
        detail,
    )
}

/// Going to one family: giving up the second one takes the policy SingleStack, and that policy
/// alone says enough.
fn reduce(new: &mut ServiceSpec, old: &ServiceSpec) -> Errors {
    if new.policy() == SINGLE_STACK {
        if new.cluster_ips == old.cluster_ips {
            new.cluster_ips.truncate(1);
        }
        if new.ip_families == old.ip_families {
            new.ip_families.truncate(1);
        }
        return Errors::new();
    }
    let fewer = |new: &[String], old: &[String]| !new.is_empty() && new.len() < old.len();
    let mut errors = Errors::new();
    if fewer(&new.cluster_ips, &old.cluster_ips) {
        errors.push(wrong_policy(
            new,
            "must be 'SingleStack' to release the secondary cluster IP",
        ));
    }
    if fewer(&new.ip_families, &old.ip_families) {
        errors.push(wrong_policy(
            new,
            "must be 'SingleStack' to release the secondary IP family",
        ));
    }
    errors
}

fn too_many_for_single_stack(spec: &ServiceSpec) -> Errors {
    let mut errors = Errors::new();
    for (what, count) in [
        ("cluster IPs", spec.cluster_ips.len()),
        ("IP families", spec.ip_families.len()),
    ] {
        if spec.policy() == SINGLE_STACK && count == 2 {
            let detail = format!(
                "must be 'RequireDualStack' or 'PreferDualStack' when multiple {what} are specified"
            );
            errors.push(wrong_policy(spec, &detail));
        }
    }
    errors
}

/// An address that was asked for tells its family.
fn infer_families(spec: &mut ServiceSpec, ranges: &Ranges) -> Errors {
    let mut errors = Errors::new();
    for (index, text) in spec
        .cluster_ips
        .iter()
        .enumerate()
        .take_while(|(_, text)| *text != NONE)
    {
        let Ok(address) = names::address(text) else {
            continue;
        };
        let family = family_of(address);
        if index < spec.ip_families.len() {
            continue;
        }
        if ranges.of_family(family).is_some() {
            spec.ip_families.push(family.to_owned());
        } else {
            let path = Path::new("spec").child("clusterIPs").index(index);
            errors.push(Error::invalid(
                &path,
                spec.cluster_ips.clone(),
                format!("{family} is not configured on this cluster"),
            ));
        }
    }
    errors
}

fn not_configured(spec: &ServiceSpec, ranges: &Ranges) -> Errors {
    let mut errors = Errors::new();
    if spec.policy() == REQUIRE_DUAL_STACK && !ranges.is_dual_stack() {
        errors.push(wrong_policy(
            spec,
            "this cluster is not configured for dual-stack services",
        ));
    }
    for (index, family) in spec.ip_families.iter().enumerate() {
        if ranges.of_family(family).is_none() {
            let path = Path::new("spec").child("ipFamilies").index(index);
            errors.push(Error::invalid(
                &path,
                family.as_str(),
                "not configured on this cluster",
            ));
        }
    }
    errors
}
