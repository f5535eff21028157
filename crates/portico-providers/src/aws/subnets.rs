//! In which subnets a balancer is. Pure.

use std::collections::BTreeMap;

/// Prefix of the tags that say of which cluster something is.
pub(super) const CLUSTER_TAG: &str = "kubernetes.io/cluster/";

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Subnet {
    pub id: String,
    pub zone: String,
    pub tags: BTreeMap<String, String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RouteTable {
    /// For subnets that no table names.
    pub main: bool,
    pub subnets: Vec<String>,
    /// It has a route to the internet.
    pub internet: bool,
}

/// What a balancer needs of its subnets.
pub(super) struct Desired<'a> {
    pub region: &'a str,
    pub cluster: &'a str,
    pub internal: bool,
    /// Ids or names that the Service asks for.
    pub named: &'a [String],
    /// Where the controller runs, if that is known.
    pub own: Option<&'a str>,
}

/// Chooses one subnet of each zone, by zone.
pub(super) fn choose(
    desired: &Desired<'_>,
    subnets: &[Subnet],
    tables: &[RouteTable],
) -> Result<Vec<String>, String> {
    if !desired.named.is_empty() {
        return desired
            .named
            .iter()
            .map(|name| named(name, subnets))
            .collect();
    }
    let usable = |subnet: &&Subnet| {
        is_ordinary(&subnet.zone, desired.region) && (desired.internal || is_public(subnet, tables))
    };
    let mut best: BTreeMap<&str, &Subnet> = BTreeMap::new();
    let candidates = subnets
        .iter()
        .filter(|subnet| is_for(subnet, desired.cluster));
    for subnet in candidates.filter(usable) {
        let entry = best.entry(&subnet.zone).or_insert(subnet);
        if rank(subnet, desired) < rank(entry, desired) {
            *entry = subnet;
        }
    }
    let chosen: Vec<String> = best.into_values().map(|subnet| subnet.id.clone()).collect();
    match (chosen.is_empty(), desired.own) {
        (false, _) => Ok(chosen),
        (true, Some(own)) => Ok(vec![own.to_owned()]),
        (true, None) => {
            let kind = if desired.internal {
                ""
            } else {
                " with a route to an internet gateway"
            };
            Err(format!(
                "no subnet{kind} is tagged {CLUSTER_TAG}{} or not tagged for any cluster",
                desired.cluster
            ))
        }
    }
}

fn named(name: &str, subnets: &[Subnet]) -> Result<String, String> {
    let is = |subnet: &&Subnet| {
        subnet.id == name || subnet.tags.get("Name").is_some_and(|tag| tag == name)
    };
    let found = subnets.iter().find(is);
    found
        .map(|subnet| subnet.id.clone())
        .ok_or_else(|| format!("there is no subnet {name}"))
}

fn is_for(subnet: &Subnet, cluster: &str) -> bool {
    has_tag(subnet, &format!("{CLUSTER_TAG}{cluster}"))
        || !subnet.tags.keys().any(|key| key.starts_with(CLUSTER_TAG))
}

fn has_tag(subnet: &Subnet, key: &str) -> bool {
    subnet.tags.contains_key(key)
}

/// Neither a local nor a wavelength zone: the region and one letter.
fn is_ordinary(zone: &str, region: &str) -> bool {
    zone.strip_prefix(region)
        .is_some_and(|rest| rest.len() == 1)
}

fn is_public(subnet: &Subnet, tables: &[RouteTable]) -> bool {
    let explicit = tables
        .iter()
        .find(|table| table.subnets.contains(&subnet.id));
    explicit
        .or_else(|| tables.iter().find(|table| table.main))
        .is_some_and(|table| table.internet)
}

/// The least is the best.
fn rank<'a>(subnet: &'a Subnet, desired: &Desired<'_>) -> (bool, bool, &'a str) {
    let role = if desired.internal {
        "kubernetes.io/role/internal-elb"
    } else {
        "kubernetes.io/role/elb"
    };
    (
        !has_tag(subnet, role),
        !has_tag(subnet, &format!("{CLUSTER_TAG}{}", desired.cluster)),
        &subnet.id,
    )
}

#[cfg(test)]
mod tests;
