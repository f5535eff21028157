//! Subnets, routes and security groups.

use std::collections::{BTreeMap, BTreeSet};

use super::{Answer, Fields, Manners, State, Tags, VPC, element, elements, is_owned, page, refuse};

#[derive(Clone, Debug, Default)]
pub(crate) struct Group {
    pub name: String,
    pub tags: Tags,
    pub rules: BTreeSet<Rule>,
}

/// Protocol, from, to, and the source: a range or a group.
type Rule = (String, String, String, String);

pub(super) fn furnish(state: &mut State) {
    let tags = BTreeMap::from([(
        "kubernetes.io/cluster/conformance".to_owned(),
        "owned".to_owned(),
    )]);
    let ssh = (
        "tcp".to_owned(),
        "22".to_owned(),
        "22".to_owned(),
        "10.0.0.0/8".to_owned(),
    );
    let nodes = Group {
        name: "nodes".to_owned(),
        tags,
        rules: BTreeSet::from([ssh.clone()]),
    };
    state.groups.insert("sg-nodes".to_owned(), nodes);
    let others = Group {
        name: "others".to_owned(),
        rules: BTreeSet::from([ssh]),
        ..Group::default()
    };
    state.groups.insert("sg-others".to_owned(), others);
}

pub(super) fn answer(state: &mut State, action: &str, fields: &Fields) -> Answer {
    match action {
        "DescribeSubnets" => {
            let subnets = [("subnet-1", "us-east-1a"), ("subnet-2", "us-east-1b")];
            let subnets = subnets
                .map(|(id, zone)| element("subnetId", id) + &element("availabilityZone", zone));
            Ok(paged(state.manners, "subnetSet", subnets.to_vec(), fields))
        }
        "DescribeRouteTables" => {
            let association = element("item", element("main", "true"));
            let route = element("item", element("gatewayId", "igw-1"));
            Ok(paged(
                state.manners,
                "routeTableSet",
                vec![element("associationSet", association) + &element("routeSet", route)],
                fields,
            ))
        }
        "DescribeSecurityGroups" => {
            let fit = state
                .groups
                .iter()
                .filter(|(id, group)| fits(id, group, fields));
            Ok(paged(
                state.manners,
                "securityGroupInfo",
                fit.map(|(id, group)| described(id, group)).collect(),
                fields,
            ))
        }
        "CreateSecurityGroup" => {
            let name = fields.get("GroupName").to_owned();
            if state.groups.values().any(|group| group.name == name) {
                return refuse("InvalidGroup.Duplicate", name);
            }
            let tags = fields.pairs("TagSpecification.1.Tag");
            let id = state.id("sg-");
            state.groups.insert(
                id.clone(),
                Group {
                    name,
                    tags,
                    rules: BTreeSet::new(),
                },
            );
            Ok(element("groupId", id))
        }
        "CreateTags" => {
            group(state, fields.get("ResourceId.1"))?
                .tags
                .extend(fields.pairs("Tag"));
            Ok(String::new())
        }
        "AuthorizeSecurityGroupIngress" | "RevokeSecurityGroupIngress" => {
            let (rules, allow) = (rules(fields), action.starts_with("Authorize"));
            let sources: Vec<String> = rules
                .iter()
                .map(|rule| rule.3.clone())
                .filter(|it| it.starts_with("sg-"))
                .collect();
            if let Some(missing) = sources
                .iter()
                .find(|source| !state.groups.contains_key(*source))
            {
                return refuse("InvalidGroup.NotFound", missing);
            }
            let group = group(state, fields.get("GroupId"))?;
            for rule in rules {
                let changed = if allow {
                    group.rules.insert(rule)
                } else {
                    group.rules.remove(&rule)
                };
                if !changed {
                    let code = if allow {
                        "InvalidPermission.Duplicate"
                    } else {
                        "InvalidPermission.NotFound"
                    };
                    return refuse(code, "a rule");
                }
            }
            Ok(element("return", "true"))
        }
        "DeleteSecurityGroup" => delete(state, fields.get("GroupId")),
        _ => refuse("InvalidAction", action),
    }
}

fn group<'a>(state: &'a mut State, id: &str) -> Result<&'a mut Group, (&'static str, String)> {
    state
        .groups
        .get_mut(id)
        .ok_or_else(|| ("InvalidGroup.NotFound", id.to_owned()))
}

fn delete(state: &mut State, id: &str) -> Answer {
    group(state, id)?;
    let used = state
        .balancers
        .values()
        .any(|it| it.groups.iter().any(|group| group == id))
        || state
            .classics
            .values()
            .any(|it| it.groups.iter().any(|group| group == id))
        || state
            .groups
            .iter()
            .any(|(other, it)| other != id && it.rules.iter().any(|rule| rule.3 == id));
    if used {
        return refuse("DependencyViolation", "in use");
    }
    if let Some(left) = state.held.get_mut(id).filter(|left| **left > 0) {
        *left -= 1;
        return refuse("DependencyViolation", "an interface is still there");
    }
    state.groups.remove(id);
    Ok(element("return", "true"))
}

fn paged(manners: Manners, list: &str, all: Vec<String>, fields: &Fields) -> String {
    let (items, next) = page(manners, all, fields.get("NextToken"));
    elements(list, "item", items)
        + &next
            .map(|next| element("nextToken", next))
            .unwrap_or_default()
}

fn fits(id: &str, group: &Group, fields: &Fields) -> bool {
    (1..)
        .map_while(|number| Some((number, fields.0.get(&format!("Filter.{number}.Name"))?)))
        .all(|(number, name)| {
            let values = fields.list(&format!("Filter.{number}.Value"));
            let has = |text: &str| values.iter().any(|value| value == text);
            match name.as_str() {
                "vpc-id" => has(VPC),
                "group-id" => has(id),
                "group-name" => has(&group.name),
                "tag-key" => group.tags.keys().any(|key| has(key)),
                "ip-permission.group-id" => group.rules.iter().any(|rule| has(&rule.3)),
                other => panic!("filter {other}"),
            }
        })
}

fn described(id: &str, group: &Group) -> String {
    let tags = group
        .tags
        .iter()
        .map(|(key, value)| element("key", key) + &element("value", value));
    let rules = group.rules.iter().map(|(protocol, from, to, source)| {
        let source = match source.starts_with("sg-") {
            true => elements("groups", "item", [element("groupId", source)]),
            false => elements("ipRanges", "item", [element("cidrIp", source)]),
        };
        element("ipProtocol", protocol)
            + &element("fromPort", from)
            + &element("toPort", to)
            + &source
    });
    element("groupId", id)
        + &element("groupName", &group.name)
        + &elements("ipPermissions", "item", rules)
        + &elements("tagSet", "item", tags)
}

fn rules(fields: &Fields) -> Vec<Rule> {
    let of = |number: usize| {
        let get = |field: &str| {
            fields
                .get(&format!("IpPermissions.{number}.{field}"))
                .to_owned()
        };
        let source = get("IpRanges.1.CidrIp") + &get("Groups.1.GroupId");
        let rule = (get("IpProtocol"), get("FromPort"), get("ToPort"), source);
        (!rule.0.is_empty()).then_some(rule)
    };
    (1..).map_while(of).collect()
}

pub(super) fn lines(state: &State) -> Vec<(bool, String)> {
    let owned = |id: &str| {
        state
            .groups
            .get(id)
            .is_some_and(|group| is_owned(&group.tags))
    };
    let mut lines = Vec::new();
    for (id, group) in &state.groups {
        lines.push((owned(id), format!("group {} {:?}", group.name, group.tags)));
        let on = &group.name;
        lines.extend(group.rules.iter().map(|(protocol, from, to, source)| {
            let shown = state.groups.get(source).map_or(source, |group| &group.name);
            (
                owned(id) || owned(source),
                format!("rule on {on}: {protocol} {from}-{to} from {shown}"),
            )
        }));
    }
    lines
}
