//! EC2: subnets, routes and security groups.

use std::collections::BTreeMap;

use super::{Paging, Query, Service, Xml, unless};
use crate::aws::groups::{Group, Origin, Rule, Traffic};
use crate::aws::subnets::{RouteTable, Subnet};
use crate::cloud::CallError;

pub(crate) const VERSION: &str = "2016-11-15";

pub(crate) type Tags = BTreeMap<String, String>;

impl Service {
    pub(crate) async fn subnets(&self, vpc: &str) -> Result<Vec<Subnet>, CallError> {
        let query = || Query::read("ec2.DescribeSubnets").filters(&[("vpc-id", &[vpc])]);
        let read = |item: Xml<'_>| Subnet {
            id: item.text("subnetId"),
            zone: item.text("availabilityZone"),
            tags: tags(item),
        };
        self.list(query, Paging::ec2("subnetSet"), read).await
    }

    pub(crate) async fn route_tables(&self, vpc: &str) -> Result<Vec<RouteTable>, CallError> {
        let query = || Query::read("ec2.DescribeRouteTables").filters(&[("vpc-id", &[vpc])]);
        self.list(query, Paging::ec2("routeTableSet"), |item| RouteTable {
            main: item
                .list("associationSet")
                .any(|it| it.text("main") == "true"),
            subnets: item
                .list("associationSet")
                .map(|it| it.text("subnetId"))
                .filter(|id| !id.is_empty())
                .collect(),
            internet: item
                .list("routeSet")
                .any(|route| route.text("gatewayId").starts_with("igw")),
        })
        .await
    }

    /// The security groups that all filters fit.
    pub(crate) async fn groups(
        &self,
        filters: &[(&str, &[&str])],
    ) -> Result<Vec<Group>, CallError> {
        let query = || Query::read("ec2.DescribeSecurityGroups").filters(filters);
        self.list(query, Paging::ec2("securityGroupInfo"), group)
            .await
    }

    /// Creates a security group, and returns its id.
    pub async fn create_group(
        &self,
        name: &str,
        vpc: &str,
        text: &str,
        tags: &Tags,
    ) -> Result<String, CallError> {
        let query = Query::write("ec2.CreateSecurityGroup")
            .set("GroupName", name)
            .set("VpcId", vpc);
        let query = query
            .set("GroupDescription", text)
            .set("TagSpecification.1.ResourceType", "security-group");
        let reply = self
            .ask(query.pairs("TagSpecification.1.Tag", tags))
            .await?;
        Xml::read(&reply, |xml| xml.text("groupId"))
    }

    pub(crate) async fn tag(&self, id: &str, tags: &Tags) -> Result<(), CallError> {
        let query = Query::write("ec2.CreateTags")
            .repeatable()
            .set("ResourceId.1", id)
            .pairs("Tag", tags);
        self.ask(query).await.map(drop)
    }

    /// `balancer` is the group that [`Origin::Balancer`] means.
    pub(crate) async fn allow(
        &self,
        id: &str,
        rules: &[Rule],
        balancer: &str,
    ) -> Result<(), CallError> {
        let query = Query::write("ec2.AuthorizeSecurityGroupIngress").set("GroupId", id);
        self.ask(permissions(query, rules, balancer))
            .await
            .map(drop)
    }

    pub(crate) async fn revoke(
        &self,
        id: &str,
        rules: &[Rule],
        balancer: &str,
    ) -> Result<(), CallError> {
        let query = Query::write("ec2.RevokeSecurityGroupIngress").set("GroupId", id);
        self.ask(permissions(query, rules, balancer))
            .await
            .map(drop)
    }

    pub(crate) async fn delete_group(&self, id: &str) -> Result<(), CallError> {
        let query = Query::write("ec2.DeleteSecurityGroup")
            .repeatable()
            .set("GroupId", id);
        unless(
            &["InvalidGroup.NotFound", "InvalidGroupId.NotFound"],
            self.ask(query).await,
        )
        .map(drop)
    }
}

fn tags(item: Xml<'_>) -> Tags {
    item.list("tagSet")
        .map(|tag| (tag.text("key"), tag.text("value")))
        .collect()
}

fn group(item: Xml<'_>) -> Group {
    let rules = item.list("ipPermissions").flat_map(rules).collect();
    Group {
        id: item.text("groupId"),
        tags: tags(item),
        rules,
    }
}

/// One for each source.
fn rules(item: Xml<'_>) -> impl Iterator<Item = Rule> + '_ {
    let of = |list: &'static str, name: &'static str, field: &'static str| {
        item.list(list).map(move |source| {
            let value = source.text(name);
            match value.parse() {
                Ok(range) => Origin::Range(range),
                Err(_) => Origin::Other { field, value },
            }
        })
    };
    let sources = of("ipRanges", "cidrIp", "IpRanges.1.CidrIp")
        .chain(of("ipv6Ranges", "cidrIpv6", "Ipv6Ranges.1.CidrIpv6"))
        .chain(of("groups", "groupId", "Groups.1.GroupId"))
        .chain(of(
            "prefixListIds",
            "prefixListId",
            "PrefixListIds.1.PrefixListId",
        ));
    let port = move |name| item.number(name).unwrap_or(-1);
    sources.map(move |source| Rule {
        protocol: Traffic::parse(&item.text("ipProtocol")),
        from: port("fromPort"),
        to: port("toPort"),
        source,
    })
}

fn permissions(query: Query, rules: &[Rule], balancer: &str) -> Query {
    rules.iter().zip(1..).fold(query, |query, (rule, number)| {
        let name = |field: &str| format!("IpPermissions.{number}.{field}");
        let query = query.set(name("IpProtocol"), &rule.protocol);
        let query = match rule.protocol {
            Traffic::Other(_) => query,
            _ => query
                .set(name("FromPort"), rule.from)
                .set(name("ToPort"), rule.to),
        };
        let (field, value) = match &rule.source {
            Origin::Range(range) => ("IpRanges.1.CidrIp", range.to_string()),
            Origin::Balancer => ("Groups.1.GroupId", balancer.to_owned()),
            Origin::Other { field, value } => (*field, value.clone()),
        };
        query.set(name(field), value)
    })
}
