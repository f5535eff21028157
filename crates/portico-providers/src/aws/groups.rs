//! Security groups: the one of a balancer, which lets clients in, and those of the nodes, which let
//! only the balancer reach node ports. What of a node's group comes from the balancer's group is
//! ours, the rest is not looked at. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use ipnet::Ipv4Net;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Rule {
    pub protocol: Traffic,
    /// Ports; of ICMP its type and code. -1 is all of them.
    pub from: i32,
    pub to: i32,
    pub source: Origin,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Traffic {
    Tcp,
    Udp,
    Icmp,
    /// None that Portico allows.
    Other(String),
}

impl Traffic {
    pub(crate) fn parse(text: &str) -> Self {
        match text {
            "tcp" => Self::Tcp,
            "udp" => Self::Udp,
            "icmp" => Self::Icmp,
            other => Self::Other(other.to_owned()),
        }
    }
}

impl fmt::Display for Traffic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
            Self::Icmp => "icmp",
            Self::Other(text) => text,
        })
    }
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Origin {
    Range(Ipv4Net),
    /// What is in the balancer's group.
    Balancer,
    /// What is in another group, or something else that Portico does not allow, by the vendor's
    /// name.
    Other {
        field: &'static str,
        value: String,
    },
}

/// A group as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Group {
    pub id: String,
    pub tags: BTreeMap<String, String>,
    pub rules: BTreeSet<Rule>,
}

/// The security group that rules belong to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum On {
    Balancer,
    /// A group of nodes, by its id.
    Nodes(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum GroupStep {
    Create {
        name: String,
        tags: BTreeMap<String, String>,
    },
    Tag(BTreeMap<String, String>),
    Allow(On, Vec<Rule>),
    Revoke(On, Vec<Rule>),
    Delete,
}

/// What is wanted of groups.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct WantedGroups {
    pub name: String,
    pub tags: BTreeMap<String, String>,
    pub inbound: BTreeSet<Rule>,
    /// In each group of nodes.
    pub on_nodes: BTreeSet<Rule>,
}

/// Groups as they are: the balancer's, and those of nodes with only the rules that come from it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Groups {
    pub own: Option<Group>,
    pub nodes: Vec<Group>,
}

impl Groups {
    /// The steps before the balancer is changed, so that nothing that it will do is kept out.
    pub(super) fn open(&self, wanted: &WantedGroups) -> Vec<GroupStep> {
        let mut steps = Vec::new();
        let nothing = BTreeSet::new();
        match &self.own {
            None => steps.push(GroupStep::Create {
                name: wanted.name.clone(),
                tags: wanted.tags.clone(),
            }),
            Some(own) => steps.extend(missing_tags(&own.tags, &wanted.tags).map(GroupStep::Tag)),
        }
        let have = self.own.as_ref().map_or(&nothing, |own| &own.rules);
        steps.extend(
            only_in(&wanted.inbound, have).map(|rules| GroupStep::Allow(On::Balancer, rules)),
        );
        for node in &self.nodes {
            let on = || On::Nodes(node.id.clone());
            steps.extend(
                only_in(&wanted.on_nodes, &node.rules).map(|rules| GroupStep::Allow(on(), rules)),
            );
        }
        steps
    }

    /// The steps after it was changed, so that what it does no more is kept out.
    pub(super) fn close(&self, wanted: &WantedGroups) -> Vec<GroupStep> {
        let mut steps = Vec::new();
        if let Some(own) = &self.own {
            steps.extend(
                only_in(&own.rules, &wanted.inbound)
                    .map(|rules| GroupStep::Revoke(On::Balancer, rules)),
            );
        }
        for node in &self.nodes {
            let on = || On::Nodes(node.id.clone());
            steps.extend(
                only_in(&node.rules, &wanted.on_nodes).map(|rules| GroupStep::Revoke(on(), rules)),
            );
        }
        steps
    }

    /// A step was done; `created` is the id of a group that it made.
    pub(super) fn done(&mut self, step: &GroupStep, created: Option<String>) {
        match step {
            GroupStep::Create { tags, .. } => {
                let (id, tags) = (created.unwrap_or_default(), tags.clone());
                self.own = Some(Group {
                    id,
                    tags,
                    rules: BTreeSet::new(),
                });
            }
            GroupStep::Tag(tags) => self
                .own
                .iter_mut()
                .for_each(|own| own.tags.extend(tags.clone())),
            GroupStep::Allow(on, rules) => {
                self.rules(on, |have| have.extend(rules.iter().cloned()))
            }
            GroupStep::Revoke(on, rules) => {
                self.rules(on, |have| have.retain(|rule| !rules.contains(rule)))
            }
            GroupStep::Delete => self.own = None,
        }
    }

    fn rules(&mut self, on: &On, change: impl Fn(&mut BTreeSet<Rule>)) {
        let group = match on {
            On::Balancer => self.own.as_mut(),
            On::Nodes(id) => self.nodes.iter_mut().find(|group| group.id == *id),
        };
        group.into_iter().for_each(|group| change(&mut group.rules));
    }

    /// The id of the balancer's.
    pub(super) fn own_id(&self) -> String {
        self.own
            .as_ref()
            .map(|own| own.id.clone())
            .unwrap_or_default()
    }

    /// The steps after the balancer is gone. A group that others name cannot be deleted.
    pub(super) fn remove(&self) -> Vec<GroupStep> {
        let mut steps = self.close(&WantedGroups::default());
        steps.retain(|step| !matches!(step, GroupStep::Revoke(On::Balancer, _)));
        steps.extend(self.own.as_ref().map(|_| GroupStep::Delete));
        steps
    }
}

/// Tags to set, if any: those that others put there stay.
pub(super) fn missing_tags(
    have: &BTreeMap<String, String>,
    wanted: &BTreeMap<String, String>,
) -> Option<BTreeMap<String, String>> {
    let missing = wanted
        .iter()
        .filter(|(key, value)| have.get(*key) != Some(value));
    let missing: BTreeMap<_, _> = missing
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    (!missing.is_empty()).then_some(missing)
}

fn only_in(these: &BTreeSet<Rule>, those: &BTreeSet<Rule>) -> Option<Vec<Rule>> {
    let rules: Vec<Rule> = these.difference(those).cloned().collect();
    (!rules.is_empty()).then_some(rules)
}
