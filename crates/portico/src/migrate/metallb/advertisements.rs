//! How pools are announced: L2Advertisements and BGPAdvertisements, and what of several for one
//! pool a pool can say. Pure.

use super::super::report::{File, Remark};
use super::Resource;
use super::selectors::one_of;
use portico_api::selector::LabelSelector;
use serde_json::{Value, json};
use std::collections::BTreeMap;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    Layer2,
    Bgp,
}

pub(super) struct Advertisement {
    pub way: Way,
    pub title: String,
    /// Names of pools, and selectors for them; neither is every pool.
    pub pools: Vec<String>,
    selectors: Vec<LabelSelector>,
    nodes: Vec<Value>,
    pub interfaces: Vec<String>,
    routes: Routes,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Routes {
    communities: Vec<String>,
    local_preference: Option<i64>,
    aggregation: (Option<i64>, Option<i64>),
    /// Empty: all.
    peers: Vec<String>,
}

/// Names of communities, from the resource of that kind.
pub(super) type Communities = BTreeMap<String, String>;

pub(super) fn communities(resources: Vec<Resource>, file: &mut File) -> Communities {
    let mut known = Communities::new();
    for mut resource in resources {
        for item in resource.fields.list("communities") {
            let text = |key: &str| {
                item.get(key)
                    .and_then(Value::as_str)
                    .unwrap_or_default()
                    .to_owned()
            };
            known.insert(text("name"), text("value"));
        }
        file.note(format!(
            "{}: its names are written out where they are used",
            resource.title()
        ));
        file.remarks.extend(resource.left());
    }
    known
}

pub(super) fn read(
    way: Way,
    mut resource: Resource,
    known: &Communities,
    file: &mut File,
) -> Advertisement {
    let (title, fields) = (resource.title(), &mut resource.fields);
    let mut selectors = Vec::new();
    for selector in fields.list("ipAddressPoolSelectors") {
        match LabelSelector::from_object(Some(&selector)) {
            Ok(selector) => selectors.push(selector),
            Err(problem) => file.warn(format!("{title}: ipAddressPoolSelectors: {problem}")),
        }
    }
    let mut community = |text: String| {
        let value = known.get(&text).cloned().unwrap_or(text);
        value
            .strip_prefix("large:")
            .map(str::to_owned)
            .unwrap_or(value)
    };
    let advertisement = Advertisement {
        way,
        pools: fields.texts("ipAddressPools"),
        selectors,
        nodes: fields.list("nodeSelectors"),
        interfaces: if way == Way::Layer2 {
            fields.texts("interfaces")
        } else {
            Vec::new()
        },
        routes: match way {
            Way::Layer2 => Routes::default(),
            Way::Bgp => Routes {
                communities: fields
                    .texts("communities")
                    .into_iter()
                    .map(&mut community)
                    .collect(),
                local_preference: fields.number("localPref"),
                aggregation: (
                    fields.number("aggregationLength"),
                    fields.number("aggregationLengthV6"),
                ),
                peers: fields.texts("peers"),
            },
        },
        title,
    };
    file.remarks.extend(resource.left());
    advertisement
}

impl Advertisement {
    pub(super) fn selects(&self, pool: &Resource) -> bool {
        let all = self.pools.is_empty() && self.selectors.is_empty();
        all || self.pools.contains(&pool.name)
            || self
                .selectors
                .iter()
                .any(|s| s.matches_labels(&pool.labels))
    }
}

/// Which nodes announce a pool with these advertisements.
pub(super) fn nodes(advertisements: &[&Advertisement], remarks: &mut Vec<Remark>) -> Option<Value> {
    let restricted: Vec<&&Advertisement> = advertisements
        .iter()
        .filter(|a| !a.nodes.is_empty())
        .collect();
    let open = advertisements.len() - restricted.len();
    if open > 0 && !restricted.is_empty() {
        let titles: Vec<&str> = restricted.iter().map(|a| a.title.as_str()).collect();
        remarks.push(Remark::Warning(format!(
            "nodeSelectors of {} are left out: another advertisement has the pool announced by \
             every node, and a pool has one nodeSelector",
            titles.join(", ")
        )));
        return None;
    }
    let ways_differ = restricted
        .windows(2)
        .any(|pair| pair[0].way != pair[1].way && pair[0].nodes != pair[1].nodes);
    if ways_differ {
        remarks.push(Remark::Warning(
            "nodeSelectors at layer 2 and by BGP differ, and a pool has one nodeSelector for \
             both: check the one below"
                .to_owned(),
        ));
    }
    one_of(
        "nodeSelectors",
        restricted.iter().flat_map(|a| a.nodes.clone()).collect(),
        remarks,
    )
}

/// How routes to a pool look.
pub(super) fn routes(
    advertisements: &[&Advertisement],
    remarks: &mut Vec<Remark>,
) -> Option<Value> {
    let mut all = advertisements.iter();
    let mut routes = all.next()?.routes.clone();
    for other in all {
        if !routes.join(&other.routes) {
            remarks.push(Remark::Warning(format!(
                "{} is left out: routes to a pool look one way here. Make a pool of its own for \
                 the addresses that need the other",
                other.title
            )));
        }
    }
    (routes != Routes::default()).then(|| routes.print())
}

impl Routes {
    /// Take in others where one section can say both.
    fn join(&mut self, other: &Self) -> bool {
        let alike = self.aggregation == other.aggregation
            && self.local_preference == other.local_preference;
        if !alike || (self.peers != other.peers && self.communities != other.communities) {
            return false;
        }
        add(&mut self.communities, &other.communities);
        match self.peers.is_empty() || other.peers.is_empty() {
            true => self.peers.clear(),
            false => add(&mut self.peers, &other.peers),
        }
        true
    }

    fn print(&self) -> Value {
        let mut out = json!({});
        if !self.communities.is_empty() {
            out["communities"] = json!(self.communities);
        }
        if !self.peers.is_empty() {
            out["peers"] = json!(self.peers);
        }
        let numbers = [
            ("localPreference", self.local_preference),
            ("aggregationLength", self.aggregation.0),
            ("aggregationLengthV6", self.aggregation.1),
        ];
        for (name, number) in numbers
            .into_iter()
            .filter_map(|(name, number)| Some((name, number?)))
        {
            out[name] = number.into();
        }
        out
    }
}

fn add(to: &mut Vec<String>, more: &[String]) {
    for item in more {
        if !to.contains(item) {
            to.push(item.clone());
        }
    }
}
