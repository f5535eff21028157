//! Load balancing version 1.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    Answer, Fields, State, Tags, element, elements, is_instance, is_owned, refuse, within,
};

#[derive(Clone, Debug, Default)]
pub(crate) struct Classic {
    scheme: String,
    pub groups: Vec<String>,
    subnets: Vec<String>,
    /// Node ports by port.
    listeners: BTreeMap<u32, u32>,
    /// By the name of the field.
    check: BTreeMap<&'static str, String>,
    policies: BTreeSet<String>,
    /// Policies of node ports.
    servers: BTreeMap<u32, Vec<String>>,
    attributes: Tags,
    tags: Tags,
    ids: BTreeSet<String>,
}

const CHECK: [&str; 5] = [
    "Target",
    "Interval",
    "Timeout",
    "HealthyThreshold",
    "UnhealthyThreshold",
];

pub(super) fn answer(state: &mut State, action: &str, fields: &Fields) -> Answer {
    match action {
        "CreateLoadBalancer" => return create(state, fields),
        "DescribeLoadBalancers" => {
            let name = fields.get("LoadBalancerNames.member.1");
            let Some(it) = state.classics.get(name) else {
                return refuse("LoadBalancerNotFound", name);
            };
            return Ok(elements(
                "LoadBalancerDescriptions",
                "member",
                [described(name, it)],
            ));
        }
        "DeleteLoadBalancer" => {
            if let Some(gone) = state.classics.remove(fields.get("LoadBalancerName")) {
                state.hold(&gone.groups);
            }
            return Ok(String::new());
        }
        _ => {}
    }
    let name = fields.get("LoadBalancerName").to_owned() + fields.get("LoadBalancerNames.member.1");
    let Some(it) = state.classics.get_mut(&name) else {
        return refuse("LoadBalancerNotFound", name);
    };
    let ids = fields.list_of("Instances.member", "InstanceId");
    match action {
        "DescribeTags" => {
            let tags = it
                .tags
                .iter()
                .map(|(key, value)| element("Key", key) + &element("Value", value));
            let described = element("LoadBalancerName", &name) + &elements("Tags", "member", tags);
            return Ok(elements("TagDescriptions", "member", [described]));
        }
        "AddTags" => it.tags.extend(fields.pairs("Tags.member")),
        "ApplySecurityGroupsToLoadBalancer" => it.groups = fields.list("SecurityGroups.member"),
        "CreateLoadBalancerListeners" => listen(it, fields)?,
        "DeleteLoadBalancerListeners" => {
            let ports = fields.list("LoadBalancerPorts.member");
            it.listeners
                .retain(|port, _| !ports.contains(&port.to_string()));
        }
        "CreateLoadBalancerPolicy" => {
            if !it.policies.insert(fields.get("PolicyName").to_owned()) {
                return refuse("DuplicatePolicyName", "");
            }
        }
        "SetLoadBalancerPoliciesForBackendServer" => {
            let (port, policies) = (
                fields.number("InstancePort"),
                fields.list("PolicyNames.member"),
            );
            if let Some(unknown) = policies
                .iter()
                .find(|policy| !it.policies.contains(*policy))
            {
                return refuse("PolicyNotFound", unknown);
            }
            it.servers.insert(port, policies);
            it.servers.retain(|_, policies| !policies.is_empty());
        }
        "ConfigureHealthCheck" => {
            let number = |name: &str| fields.number(&format!("HealthCheck.{name}"));
            within("interval", number("Interval"), 5..=300)?;
            within(
                "timeout",
                number("Timeout"),
                2..=60.min(number("Interval") - 1),
            )?;
            within("healthy", number("HealthyThreshold"), 2..=10)?;
            within("unhealthy", number("UnhealthyThreshold"), 2..=10)?;
            it.check = CHECK
                .map(|name| (name, fields.get(&format!("HealthCheck.{name}")).to_owned()))
                .into();
        }
        "ModifyLoadBalancerAttributes" => {
            let set = fields
                .0
                .iter()
                .filter(|(name, _)| name.starts_with("LoadBalancerAttributes"));
            it.attributes
                .extend(set.map(|(name, value)| (name.clone(), value.clone())));
        }
        "RegisterInstancesWithLoadBalancer" => {
            within("the number of instances", ids.len() as u32, 1..=100)?;
            if let Some(unknown) = ids.iter().find(|id| !is_instance(id)) {
                return refuse("InvalidInstance", unknown);
            }
            it.ids.extend(ids);
        }
        "DeregisterInstancesFromLoadBalancer" => it.ids.retain(|id| !ids.contains(id)),
        _ => return refuse("InvalidAction", action),
    }
    Ok(String::new())
}

fn create(state: &mut State, fields: &Fields) -> Answer {
    let name = fields.get("LoadBalancerName").to_owned();
    within("the length of the name", name.len() as u32, 1..=32)?;
    if state.classics.contains_key(&name) {
        return refuse("DuplicateLoadBalancerName", name);
    }
    let mut it = Classic {
        scheme: fields.get("Scheme").to_owned(),
        groups: fields.list("SecurityGroups.member"),
        subnets: fields.list("Subnets.member"),
        tags: fields.pairs("Tags.member"),
        ..Classic::default()
    };
    listen(&mut it, fields)?;
    within("the number of subnets", it.subnets.len() as u32, 1..=10)?;
    within(
        "the number of listeners",
        it.listeners.len() as u32,
        1..=100,
    )?;
    let host = element("DNSName", host(&name));
    state.classics.insert(name, it);
    Ok(host)
}

/// What is there already and the same is no failure.
fn listen(it: &mut Classic, fields: &Fields) -> Result<(), (&'static str, String)> {
    let ports = fields.list_of("Listeners.member", "LoadBalancerPort");
    for (port, node_port) in ports
        .iter()
        .zip(fields.list_of("Listeners.member", "InstancePort"))
    {
        let (port, node_port) = (port.parse().unwrap_or(0), node_port.parse().unwrap_or(0));
        if *it.listeners.entry(port).or_insert(node_port) != node_port {
            return refuse("DuplicateListener", port.to_string());
        }
    }
    Ok(())
}

fn host(name: &str) -> String {
    format!("{name}.us-east-1.elb.amazonaws.com")
}

fn described(name: &str, it: &Classic) -> String {
    let listeners = it.listeners.iter().map(|(port, node_port)| {
        let fields = element("Protocol", "TCP")
            + &element("LoadBalancerPort", port)
            + &element("InstancePort", node_port);
        element("Listener", fields)
    });
    let servers = it.servers.iter().map(|(port, policies)| {
        element("InstancePort", port) + &elements("PolicyNames", "member", policies.clone())
    });
    let check: String = it
        .check
        .iter()
        .map(|(name, value)| element(name, value))
        .collect();
    element("LoadBalancerName", name)
        + &element("DNSName", host(name))
        + &element(
            "Scheme",
            if it.scheme.is_empty() {
                "internet-facing"
            } else {
                &it.scheme
            },
        )
        + &elements("SecurityGroups", "member", it.groups.clone())
        + &elements("ListenerDescriptions", "member", listeners)
        + &elements("BackendServerDescriptions", "member", servers)
        + &element(
            "Policies",
            elements("OtherPolicies", "member", it.policies.clone()),
        )
        + &element("HealthCheck", check)
        + &elements(
            "Instances",
            "member",
            it.ids.iter().map(|id| element("InstanceId", id)),
        )
}

pub(super) fn forget_tags(state: &mut State) {
    state.classics.values_mut().for_each(|it| it.tags.clear());
}

pub(super) fn lines(state: &State) -> Vec<(bool, String)> {
    let line = |(name, it): (&String, &Classic)| {
        let Classic {
            scheme,
            subnets,
            listeners,
            check,
            servers,
            attributes,
            tags,
            ids,
            ..
        } = it;
        let line = format!(
            "classic {name} {scheme} {subnets:?} {listeners:?} {check:?} {servers:?} \
             {attributes:?} {tags:?} {ids:?}"
        );
        (is_owned(tags), line)
    };
    state.classics.iter().map(line).collect()
}
