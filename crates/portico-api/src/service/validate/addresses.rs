//! Cluster IPs, their families, and external IPs.

use super::spec;
use crate::field::{Error, Errors, Path};
use crate::kinds::checks::{self, given_word};
use crate::names;
use crate::service::ranges::family_of;
use crate::service::types::*;
use std::collections::{BTreeSet, HashSet};

/// An address. One that is already there is not judged again: it may be from a time with other
/// rules.
pub(super) fn address(text: &str, existing: &HashSet<&str>, path: &Path) -> Option<Error> {
    if existing.contains(text) {
        return None;
    }
    names::address(text)
        .err()
        .map(|detail| Error::invalid(path, text, detail))
}

/// The addresses that are there, to look many others up in.
pub(super) fn known(existing: &[String]) -> HashSet<&str> {
    existing.iter().map(String::as_str).collect()
}

pub(super) fn external_ips(new: &ServiceSpec, old: Option<&ServiceSpec>) -> Errors {
    let existing = old.map_or_else(HashSet::new, |old| known(&old.external_ips));
    let mut errors = Errors::new();
    for (index, text) in new.external_ips.iter().enumerate() {
        let path = spec("externalIPs").index(index);
        // One from a time with other rules may stay, but must still be one that can lead to a
        // Service.
        if names::address(text).is_ok() || address(text, &existing, &path).is_some() {
            errors.extend(checks::endpoint_address(text, &path));
        }
    }
    errors
}

/// `clusterIP`, `clusterIPs`, `ipFamilies` and `ipFamilyPolicy` among each other.
pub(crate) fn cluster_ips(new: &ServiceSpec, old: Option<&ServiceSpec>) -> Errors {
    if new.is_external_name() {
        return Errors::new();
    }
    let mut errors = singular_and_plural(new);
    errors.extend(families(new));
    let (bad, all_good) = each_cluster_ip(new, old);
    errors.extend(bad);
    let path = spec("clusterIPs");
    if new.cluster_ips.len() > 2 {
        errors.push(Error::invalid(
            &path,
            new.cluster_ips.clone(),
            "may only hold up to 2 values",
        ));
    }
    if !all_good {
        return errors;
    }
    let found: Vec<_> = new
        .cluster_ips
        .iter()
        .map(|text| names::address(text).map(family_of).ok())
        .collect();
    if found.len() > 1 && found.iter().collect::<BTreeSet<_>>().len() != 2 {
        let detail = "may specify no more than one IP for each IP family";
        errors.push(Error::invalid(&path, new.cluster_ips.clone(), detail));
    }
    for (index, (family, wanted)) in found.iter().zip(&new.ip_families).enumerate() {
        if family.is_some_and(|family| family != wanted) && [IPV4, IPV6].contains(&wanted.as_str())
        {
            let detail =
                format!("expected an {wanted} value as indicated by `ipFamilies[{index}]`");
            errors.push(Error::invalid(
                &path.index(index),
                new.cluster_ips.get(index).cloned(),
                detail,
            ));
        }
    }
    errors
}

fn singular_and_plural(new: &ServiceSpec) -> Errors {
    let path = spec("clusterIPs");
    let detail = match (new.cluster_ip.as_str(), new.cluster_ips.first()) {
        ("", None) => return Errors::new(),
        ("", Some(_)) => "must be empty when `clusterIP` is not specified",
        (_, None) => return vec![Error::required(&path, "")],
        (one, Some(first)) if one == first => return Errors::new(),
        _ => "first value must match `clusterIP`",
    };
    vec![Error::invalid(&path, new.cluster_ips.clone(), detail)]
}

fn families(new: &ServiceSpec) -> Errors {
    let mut errors = Errors::new();
    let mut seen = BTreeSet::new();
    for (index, family) in new.ip_families.iter().enumerate() {
        let path = spec("ipFamilies").index(index);
        errors.extend(given_word(family, &path, &[IPV4, IPV6]));
        if !seen.insert(family) {
            errors.push(Error::duplicate(&path, family.as_str()));
        }
    }
    if let Some(policy) = &new.ip_family_policy {
        errors.extend(given_word(
            policy,
            &spec("ipFamilyPolicy"),
            &[SINGLE_STACK, PREFER_DUAL_STACK, REQUIRE_DUAL_STACK],
        ));
    }
    errors
}

/// Each cluster IP by itself, and whether all were good enough to be compared with the families.
fn each_cluster_ip(new: &ServiceSpec, old: Option<&ServiceSpec>) -> (Errors, bool) {
    let path = spec("clusterIPs");
    let existing = old.map_or_else(HashSet::new, |old| known(&old.cluster_ips));
    let mut errors = Errors::new();
    for (index, text) in new.cluster_ips.iter().enumerate() {
        if index > 0 || text != NONE {
            errors.extend(address(text, &existing, &path.index(index)));
        } else if new.cluster_ips.len() > 1 {
            errors.push(Error::invalid(
                &path,
                new.cluster_ips.clone(),
                "'None' must be the first and only value",
            ));
        }
    }
    let all_good = errors.is_empty();
    (errors, all_good)
}

/// A second address or family may come and go; the first, and one that stays, may not change.
pub(super) fn changes(new: &ServiceSpec, old: &ServiceSpec) -> Errors {
    if new.is_external_name() || old.is_external_name() || new.is_headless() && old.is_headless() {
        return Errors::new();
    }
    let mut errors = changed(
        "clusterIPs",
        &new.cluster_ips,
        &old.cluster_ips,
        new.policy(),
    );
    if new.is_headless() == old.is_headless() {
        let families = changed(
            "ipFamilies",
            &new.ip_families,
            &old.ip_families,
            new.policy(),
        );
        // A change of any family is reported at the first one.
        errors.extend(families.into_iter().map(|mut error| {
            if error.field == "spec.ipFamilies[1]" {
                error.field = "spec.ipFamilies[0]".to_owned();
            }
            error
        }));
    }
    errors
}

fn changed(field: &str, new: &[String], old: &[String], policy: &str) -> Errors {
    let at = |index| spec(field).index(index);
    let wrong = |index, detail| Error::invalid(&at(index), new.to_vec(), detail);
    if new.is_empty() && !old.is_empty() {
        return vec![wrong(0, "the primary one can not be unset")];
    }
    let compared = if new.len() == old.len() { old.len() } else { 1 };
    let pairs = old.iter().zip(new).take(compared).enumerate();
    let mut errors: Errors = pairs
        .filter(|(_, (old, new))| old != new)
        .map(|(index, _)| wrong(index, "may not change once set"))
        .collect();
    if new.len() == 1 && old.len() > 1 && policy != SINGLE_STACK {
        let detail =
            format!("must be set to 'SingleStack' when releasing the second of spec.{field}");
        errors.push(Error::invalid(&spec("ipFamilyPolicy"), policy, detail));
    }
    errors
}
