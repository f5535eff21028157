//! What there is, as the cloud itself tells it: every element of every answer, but for what changes
//! by itself.

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use portico_providers::aws::api::{Query, Service};
use portico_providers::conformance::World;
use portico_providers::{Family, HealthCheck, Port, Protocol, Request, ServiceRef};
use roxmltree::{Document, Node};

use super::moto::Moto;

/// Times, states, and ids that the cloud gives; and which balancers use a target group, which
/// `moto` does not note when a listener changes (the listeners tell).
const NOISE: &[&str] = &[
    "CreatedTime",
    "State",
    "ListenerArn",
    "securityGroupRuleId",
    "CanonicalHostedZoneNameID",
    "LoadBalancerArns",
];
const SERVICE: &str = "kubernetes.io/service-name";

pub(crate) fn request(name: &str) -> Request {
    let port = Port {
        name: "http".to_owned(),
        protocol: Protocol::Tcp,
        port: 80,
        node_port: 30_080,
        app_protocol: None,
    };
    Request {
        cluster: "conformance".to_owned(),
        balancer_name: format!("a{name}"),
        service: ServiceRef {
            namespace: "default".to_owned(),
            name: name.to_owned(),
            uid: name.to_owned(),
        },
        families: vec![Family::V4],
        ports: vec![port],
        health_check: Some(HealthCheck {
            port: 10_256,
            path: "/healthz".to_owned(),
        }),
        ..Request::default()
    }
}

/// An element and what is in it, in one line.
fn flat(node: Node<'_, '_>) -> String {
    let elements: Vec<Node<'_, '_>> = node.children().filter(Node::is_element).collect();
    let name = node.tag_name().name();
    if NOISE.contains(&name) {
        return String::new();
    }
    if elements.is_empty() {
        let text = node.text().unwrap_or_default().trim();
        return if text.is_empty() {
            String::new()
        } else {
            format!("{name}={}", without_ids(text))
        };
    }
    let mut parts: Vec<String> = elements
        .into_iter()
        .map(flat)
        .filter(|part| !part.is_empty())
        .collect();
    if ["item", "member"].contains(&name) {
        return parts.join(" ");
    }
    parts.sort();
    format!("{name} {}", parts.join(" "))
}

/// An ARN ends with numbers that are drawn.
fn without_ids(text: &str) -> String {
    let drawn =
        |part: &&str| part.len() == 16 && part.chars().all(|letter| letter.is_ascii_hexdigit());
    match text.starts_with("arn:") {
        true => text
            .split('/')
            .filter(|part| !drawn(part))
            .collect::<Vec<_>>()
            .join("/"),
        false => text.to_owned(),
    }
}

struct Item {
    line: String,
    /// Values by the names of elements, of the item itself.
    values: Vec<(String, String)>,
}

impl Item {
    fn get(&self, name: &str) -> &str {
        self.values
            .iter()
            .find(|(key, _)| key == name)
            .map_or("", |(_, value)| value)
    }
}

async fn items(service: &Service, query: Query, list: &str) -> Result<Vec<Item>, String> {
    let reply = service
        .ask(query)
        .await
        .map_err(|error| error.to_string())?;
    let text = String::from_utf8_lossy(&reply.body).into_owned();
    let document = Document::parse(&text).map_err(|error| error.to_string())?;
    let found = document
        .descendants()
        .find(|node| node.tag_name().name() == list);
    let elements = found
        .into_iter()
        .flat_map(|list| list.children())
        .filter(Node::is_element);
    let values = |node: Node<'_, '_>| {
        let leaf = |it: Node<'_, '_>| {
            (
                it.tag_name().name().to_owned(),
                it.text().unwrap_or_default().trim().to_owned(),
            )
        };
        node.children().filter(Node::is_element).map(leaf).collect()
    };
    Ok(elements
        .map(|node| Item {
            line: flat(node),
            values: values(node),
        })
        .collect())
}

async fn lines(service: &Service, query: Query, list: &str) -> Result<String, String> {
    let mut lines: Vec<String> = items(service, query, list)
        .await?
        .into_iter()
        .map(|item| item.line)
        .collect();
    // What is off was never turned on, or is off again; the provider's note about it is empty then.
    lines.retain(|line| !line.ends_with("Value=false") && line != "Key=portico.dev/settings");
    lines.sort();
    Ok(lines.join("; "))
}

/// Each with whether it is a Service's.
async fn all(moto: &Moto) -> Result<Vec<(bool, String)>, String> {
    let mut all = Vec::new();
    let (network, classic) = (moto.network(), moto.classic());
    let balancers = items(
        &network,
        Query::read("elbv2.DescribeLoadBalancers"),
        "LoadBalancers",
    )
    .await?;
    for balancer in balancers {
        let arn = balancer.get("LoadBalancerArn");
        let tags = lines(
            &network,
            Query::read("elbv2.DescribeTags").set("ResourceArns.member.1", arn),
            "Tags",
        )
        .await?;
        let query = Query::read("elbv2.DescribeLoadBalancerAttributes").set("LoadBalancerArn", arn);
        let attributes = lines(&network, query, "Attributes").await?;
        let owned = tags.contains(SERVICE);
        all.push((
            owned,
            format!("balancer {} {tags} {attributes}", balancer.line),
        ));
        let query = Query::read("elbv2.DescribeListeners").set("LoadBalancerArn", arn);
        let listeners = items(&network, query, "Listeners").await?;
        all.extend(
            listeners
                .into_iter()
                .map(|it| (owned, format!("listener {}", it.line))),
        );
    }
    for group in items(
        &network,
        Query::read("elbv2.DescribeTargetGroups"),
        "TargetGroups",
    )
    .await?
    {
        let arn = group.get("TargetGroupArn");
        let tags = lines(
            &network,
            Query::read("elbv2.DescribeTags").set("ResourceArns.member.1", arn),
            "Tags",
        )
        .await?;
        let query = Query::read("elbv2.DescribeTargetGroupAttributes").set("TargetGroupArn", arn);
        let attributes = lines(&network, query, "Attributes").await?;
        let query = Query::read("elbv2.DescribeTargetHealth").set("TargetGroupArn", arn);
        let targets = lines(&network, query, "TargetHealthDescriptions").await?;
        all.push((
            tags.contains(SERVICE),
            format!("targets {} {tags} {attributes} {targets}", group.line),
        ));
    }
    for balancer in items(
        &classic,
        Query::read("elb.DescribeLoadBalancers"),
        "LoadBalancerDescriptions",
    )
    .await?
    {
        let name = balancer.get("LoadBalancerName");
        let query = Query::read("elb.DescribeTags").set("LoadBalancerNames.member.1", name);
        let tags = lines(&classic, query, "Tags").await?;
        let query = Query::read("elb.DescribeLoadBalancerAttributes").set("LoadBalancerName", name);
        let attributes = lines(&classic, query, "LoadBalancerAttributes").await?;
        all.push((
            tags.contains(SERVICE),
            format!("classic {} {tags} {attributes}", balancer.line),
        ));
    }
    all.extend(groups(&moto.ec2()).await?);
    Ok(all)
}

/// Security groups, and of those of others the rules for a Service's each for itself.
async fn groups(ec2: &Service) -> Result<Vec<(bool, String)>, String> {
    let reply = ec2
        .ask(Query::read("ec2.DescribeSecurityGroups"))
        .await
        .map_err(|error| error.to_string())?;
    let text = String::from_utf8_lossy(&reply.body).into_owned();
    let document = Document::parse(&text).map_err(|error| error.to_string())?;
    let child = |node: Node<'_, '_>, name: &str| -> String {
        let found = node.children().find(|it| it.tag_name().name() == name);
        found
            .and_then(|it| it.text().map(str::to_owned))
            .unwrap_or_default()
    };
    let groups = || {
        let list = document
            .descendants()
            .find(|node| node.tag_name().name() == "securityGroupInfo");
        list.into_iter()
            .flat_map(|list| list.children())
            .filter(Node::is_element)
    };
    let owned: Vec<String> = groups()
        .filter(|group| flat(*group).contains(SERVICE))
        .map(|group| child(group, "groupId"))
        .collect();
    let mut all = Vec::new();
    for group in groups() {
        if owned.contains(&child(group, "groupId")) {
            all.push((true, format!("group {}", flat(group))));
            continue;
        }
        let permissions = group
            .descendants()
            .filter(|node| node.tag_name().name() == "ipPermissions");
        let rules = permissions
            .flat_map(|node| node.children())
            .filter(Node::is_element)
            .map(flat);
        all.push((
            false,
            format!(
                "group {} {}",
                child(group, "groupId"),
                child(group, "groupName")
            ),
        ));
        for rule in rules {
            all.push((
                owned.iter().any(|id| rule.contains(id.as_str())),
                format!("rule {rule}"),
            ));
        }
    }
    Ok(all)
}

pub(crate) async fn owned(moto: &Moto) -> Result<Vec<String>, String> {
    Ok(all(moto)
        .await?
        .into_iter()
        .filter(|(owned, _)| *owned)
        .map(|(_, line)| line)
        .collect())
}

impl World for Moto {
    fn owned(&self) -> BoxFuture<'_, Result<Vec<String>, String>> {
        owned(self).boxed()
    }

    fn foreign(&self) -> BoxFuture<'_, Result<Vec<String>, String>> {
        async {
            Ok(all(self)
                .await?
                .into_iter()
                .filter(|(owned, _)| !*owned)
                .map(|(_, line)| line)
                .collect())
        }
        .boxed()
    }
}
