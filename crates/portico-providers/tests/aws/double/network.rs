//! Load balancing version 2.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    Answer, Fields, Manners, State, Tags, element, elements, is_instance, is_owned, page, refuse,
    within,
};

#[derive(Clone, Debug, Default)]
pub(crate) struct Balancer {
    name: String,
    scheme: String,
    pub groups: Vec<String>,
    subnets: Vec<String>,
    attributes: Tags,
    tags: Tags,
    looks: usize,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Listener {
    balancer: String,
    port: u32,
    protocol: String,
    targets: String,
    tags: Tags,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Targets {
    name: String,
    protocol: String,
    port: u32,
    /// As they are asked for, by the name of the field.
    check: BTreeMap<&'static str, String>,
    attributes: Tags,
    tags: Tags,
    ids: BTreeSet<String>,
    leaving: BTreeSet<String>,
}

const CHECK: [&str; 5] = [
    "HealthCheckPort",
    "HealthCheckPath",
    "HealthCheckTimeoutSeconds",
    "HealthyThresholdCount",
    "UnhealthyThresholdCount",
];
const FIXED_CHECK: [&str; 2] = ["HealthCheckProtocol", "HealthCheckIntervalSeconds"];

pub(super) fn answer(state: &mut State, action: &str, fields: &Fields) -> Answer {
    match action {
        "DescribeLoadBalancers" => {
            let name = fields.get("Names.member.1");
            let found = state.balancers.iter_mut().find(|(_, it)| it.name == name);
            let Some((arn, balancer)) = found else {
                return refuse("LoadBalancerNotFound", name);
            };
            balancer.looks += 1;
            Ok(elements(
                "LoadBalancers",
                "member",
                [described(state.manners, arn, balancer)],
            ))
        }
        "CreateLoadBalancer" => create_balancer(state, fields),
        "DeleteLoadBalancer" => {
            let arn = fields.get("LoadBalancerArn");
            if let Some(balancer) = state.balancers.remove(arn) {
                state.hold(&balancer.groups);
                state.listeners.retain(|_, it| it.balancer != arn);
            }
            Ok(String::new())
        }
        "ModifyLoadBalancerAttributes" => {
            let balancer = state.balancers.get_mut(fields.get("LoadBalancerArn"));
            let Some(balancer) = balancer else {
                return refuse("LoadBalancerNotFound", "");
            };
            balancer
                .attributes
                .extend(fields.pairs("Attributes.member"));
            Ok(String::new())
        }
        "DescribeListeners" => {
            let of = state
                .listeners
                .iter()
                .filter(|(_, it)| it.balancer == fields.get("LoadBalancerArn"));
            Ok(paged(
                state.manners,
                "Listeners",
                of.map(described_listener).collect(),
                fields,
            ))
        }
        "CreateListener" => create_listener(state, fields),
        "ModifyListener" => {
            let targets = fields
                .get("DefaultActions.member.1.TargetGroupArn")
                .to_owned();
            let protocol = state.targets.get(&targets).map(|it| it.protocol.clone());
            let Some(listener) = state.listeners.get_mut(fields.get("ListenerArn")) else {
                return refuse("ListenerNotFound", "");
            };
            if protocol.as_ref() != Some(&listener.protocol) {
                return refuse("InvalidConfigurationRequest", "protocols differ");
            }
            listener.targets = targets;
            Ok(String::new())
        }
        "DeleteListener" => match state.listeners.remove(fields.get("ListenerArn")) {
            Some(_) => Ok(String::new()),
            None => refuse("ListenerNotFound", ""),
        },
        "DescribeTags" => {
            let arns = fields.list("ResourceArns.member");
            within("the number of resources", arns.len() as u32, 1..=20)?;
            let mut all = Vec::new();
            for arn in arns {
                let tags = tags(state, &arn)?
                    .iter()
                    .map(|(key, value)| element("Key", key) + &element("Value", value));
                all.push(elements("Tags", "member", tags) + &element("ResourceArn", &arn));
            }
            Ok(elements("TagDescriptions", "member", all))
        }
        "AddTags" => {
            tags(state, fields.get("ResourceArns.member.1"))?.extend(fields.pairs("Tags.member"));
            Ok(String::new())
        }
        _ => targets(state, action, fields),
    }
}

fn targets(state: &mut State, action: &str, fields: &Fields) -> Answer {
    if action == "CreateTargetGroup" {
        return create_targets(state, fields);
    }
    if action == "DescribeTargetGroups" {
        return Ok(paged(
            state.manners,
            "TargetGroups",
            state.targets.iter().map(described_targets).collect(),
            fields,
        ));
    }
    let arn = fields.get("TargetGroupArn").to_owned();
    let used = state.listeners.values().any(|it| it.targets == arn);
    let Some(group) = state.targets.get_mut(&arn) else {
        return refuse("TargetGroupNotFound", arn);
    };
    let ids = fields.list_of("Targets.member", "Id");
    within("the number of targets", ids.len() as u32, 0..=100)?;
    match action {
        "DeleteTargetGroup" if used => return refuse("ResourceInUse", group.name.clone()),
        "DeleteTargetGroup" => _ = state.targets.remove(&arn),
        "ModifyTargetGroup" => {
            check_bounds(
                fields,
                group.check["HealthCheckIntervalSeconds"].parse().unwrap(),
            )?;
            group
                .check
                .extend(CHECK.map(|name| (name, fields.get(name).to_owned())));
        }
        "ModifyTargetGroupAttributes" => group.attributes.extend(fields.pairs("Attributes.member")),
        "RegisterTargets" => {
            if let Some(unknown) = ids.iter().find(|id| !is_instance(id)) {
                return refuse("InvalidTarget", unknown);
            }
            group.leaving.retain(|id| !ids.contains(id));
            group.ids.extend(ids);
        }
        "DeregisterTargets" => {
            group.ids.retain(|id| !ids.contains(id));
            group.leaving.extend(ids);
        }
        "DescribeTargetHealth" => {
            let staying = group.ids.iter().map(|id| (id, "healthy"));
            let all = staying.chain(group.leaving.iter().map(|id| (id, "draining")));
            let target = |(id, state): (&String, &str)| {
                element("Target", element("Id", id))
                    + &element("TargetHealth", element("State", state))
            };
            return Ok(elements(
                "TargetHealthDescriptions",
                "member",
                all.map(target),
            ));
        }
        _ => return refuse("InvalidAction", action),
    }
    Ok(String::new())
}

fn tags<'a>(state: &'a mut State, arn: &str) -> Result<&'a mut Tags, (&'static str, String)> {
    let balancer = state.balancers.get_mut(arn).map(|it| &mut it.tags);
    let found = balancer.or_else(|| state.targets.get_mut(arn).map(|it| &mut it.tags));
    found.ok_or(("LoadBalancerNotFound", arn.to_owned()))
}

fn paged(manners: Manners, list: &str, all: Vec<String>, fields: &Fields) -> String {
    let (items, next) = page(manners, all, fields.get("Marker"));
    elements(list, "member", items)
        + &next
            .map(|next| element("NextMarker", next))
            .unwrap_or_default()
}

fn create_balancer(state: &mut State, fields: &Fields) -> Answer {
    let name = fields.get("Name").to_owned();
    within("the length of the name", name.len() as u32, 1..=32)?;
    if state.balancers.values().any(|it| it.name == name) {
        return refuse("DuplicateLoadBalancerName", name);
    }
    let groups = fields.list("SecurityGroups.member");
    if let Some(missing) = groups.iter().find(|id| !state.groups.contains_key(*id)) {
        return refuse("InvalidSecurityGroup", missing);
    }
    let balancer = Balancer {
        name,
        scheme: fields.get("Scheme").to_owned(),
        groups,
        subnets: fields.list_of("SubnetMappings.member", "SubnetId"),
        tags: fields.pairs("Tags.member"),
        ..Balancer::default()
    };
    within(
        "the number of subnets",
        balancer.subnets.len() as u32,
        1..=10,
    )?;
    let arn = state.id("arn:net/");
    let answer = elements(
        "LoadBalancers",
        "member",
        [described(state.manners, &arn, &balancer)],
    );
    state.balancers.insert(arn, balancer);
    Ok(answer)
}

fn described(manners: Manners, arn: &str, it: &Balancer) -> String {
    let state = if it.looks < manners.provisioning {
        "provisioning"
    } else {
        "active"
    };
    element("LoadBalancerArn", arn)
        + &element("LoadBalancerName", &it.name)
        + &element(
            "DNSName",
            format!("{}.elb.us-east-1.amazonaws.com", it.name),
        )
        + &element("Scheme", &it.scheme)
        + &element("State", element("Code", state))
        + &elements("SecurityGroups", "member", it.groups.clone())
}

fn create_listener(state: &mut State, fields: &Fields) -> Answer {
    let listener = Listener {
        balancer: fields.get("LoadBalancerArn").to_owned(),
        port: fields.number("Port"),
        protocol: fields.get("Protocol").to_owned(),
        targets: fields
            .get("DefaultActions.member.1.TargetGroupArn")
            .to_owned(),
        tags: fields.pairs("Tags.member"),
    };
    if !state.balancers.contains_key(&listener.balancer) {
        return refuse("LoadBalancerNotFound", listener.balancer);
    }
    match state.targets.get(&listener.targets) {
        None => return refuse("TargetGroupNotFound", listener.targets),
        Some(it) if it.protocol != listener.protocol => {
            return refuse("InvalidConfigurationRequest", "protocols differ");
        }
        Some(_) => {}
    }
    let same = |it: &&Listener| it.balancer == listener.balancer && it.port == listener.port;
    if state.listeners.values().any(|it| same(&it)) {
        return refuse("DuplicateListener", listener.port.to_string());
    }
    let arn = state.id("arn:listener/");
    let answer = elements(
        "Listeners",
        "member",
        [described_listener((&arn, &listener))],
    );
    state.listeners.insert(arn, listener);
    Ok(answer)
}

fn described_listener((arn, it): (&String, &Listener)) -> String {
    let action = element("Type", "forward") + &element("TargetGroupArn", &it.targets);
    element("ListenerArn", arn)
        + &element("Port", it.port)
        + &element("Protocol", &it.protocol)
        + &elements("DefaultActions", "member", [action])
}

fn check_bounds(fields: &Fields, interval: u32) -> Result<(), (&'static str, String)> {
    within("interval", interval, 5..=300)?;
    within(
        "timeout",
        fields.number("HealthCheckTimeoutSeconds"),
        2..=120.min(interval - 1),
    )?;
    within("healthy", fields.number("HealthyThresholdCount"), 2..=10)?;
    within(
        "unhealthy",
        fields.number("UnhealthyThresholdCount"),
        2..=10,
    )?;
    within("port", fields.number("HealthCheckPort"), 1..=65535)
}

fn create_targets(state: &mut State, fields: &Fields) -> Answer {
    let name = fields.get("Name").to_owned();
    let fits =
        name.len() <= 32 && !name.starts_with('-') && !name.ends_with('-') && !name.contains("--");
    if !fits
        || !name
            .chars()
            .all(|letter| letter.is_ascii_alphanumeric() || letter == '-')
    {
        return refuse("ValidationError", format!("name {name}"));
    }
    if state.targets.values().any(|it| it.name == name) {
        return refuse("DuplicateTargetGroupName", name);
    }
    check_bounds(fields, fields.number("HealthCheckIntervalSeconds"))?;
    within("port", fields.number("Port"), 1..=65535)?;
    let check = CHECK
        .iter()
        .chain(&FIXED_CHECK)
        .map(|name| (*name, fields.get(name).to_owned()));
    let group = Targets {
        name,
        protocol: fields.get("Protocol").to_owned(),
        port: fields.number("Port"),
        check: check.collect(),
        attributes: BTreeMap::from([("stickiness.type".to_owned(), "source_ip".to_owned())]),
        tags: fields.pairs("Tags.member"),
        ..Targets::default()
    };
    let arn = state.id("arn:targetgroup/");
    let answer = elements(
        "TargetGroups",
        "member",
        [described_targets((&arn, &group))],
    );
    state.targets.insert(arn, group);
    Ok(answer)
}

fn described_targets((arn, it): (&String, &Targets)) -> String {
    let check: String = it
        .check
        .iter()
        .map(|(name, value)| element(name, value))
        .collect();
    element("TargetGroupArn", arn)
        + &element("TargetGroupName", &it.name)
        + &element("Protocol", &it.protocol)
        + &element("Port", it.port)
        + &check
}

pub(super) fn forget_tags(state: &mut State) {
    state.balancers.values_mut().for_each(|it| it.tags.clear());
    state.targets.values_mut().for_each(|it| it.tags.clear());
}

pub(super) fn lines(state: &State) -> Vec<(bool, String)> {
    let name = |arn: &str| state.targets.get(arn).map_or("", |it| &it.name);
    let balancers = state.balancers.values().map(|it| {
        let Balancer {
            name,
            scheme,
            subnets,
            attributes,
            tags,
            ..
        } = it;
        (
            is_owned(tags),
            format!("balancer {name} {scheme} {subnets:?} {attributes:?} {tags:?}"),
        )
    });
    let listeners = state.listeners.values().map(|it| {
        let line = format!(
            "listener {} {} to {} {:?}",
            it.port,
            it.protocol,
            name(&it.targets),
            it.tags
        );
        (is_owned(&it.tags), line)
    });
    let targets = state.targets.values().map(|it| {
        let Targets {
            name,
            protocol,
            port,
            check,
            attributes,
            tags,
            ids,
            ..
        } = it;
        let on: Tags = attributes
            .iter()
            .filter(|(_, value)| *value != "false")
            .map(|(k, v)| (k.clone(), v.clone()))
            .collect();
        // The tag is a note of the provider to itself, which is empty or absent when there is
        // nothing to note.
        let tags: Tags = tags
            .iter()
            .filter(|(_, value)| !value.is_empty())
            .map(|(k, v)| (k.clone(), v.clone()))
            .collect();
        (
            is_owned(&tags),
            format!("targets {name} {protocol} {port} {check:?} {on:?} {tags:?} {ids:?}"),
        )
    });
    balancers.chain(listeners).chain(targets).collect()
}
