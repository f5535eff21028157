//! Load balancing version 2.

use std::collections::{BTreeMap, BTreeSet};

use super::ec2::Tags;
use super::{Paging, Query, Service, Xml, unless};
use crate::aws::network::{Balancer, SeenListener, TargetGroup};
use crate::aws::wanted::{Check, Listener};
use crate::cloud::CallError;

pub(crate) const VERSION: &str = "2015-12-01";
/// In one call.
const MOST_TAGGED: usize = 20;
const MOST_TARGETS: usize = 100;

/// What a balancer begins with.
pub(crate) struct NewBalancer<'a> {
    pub(crate) name: &'a str,
    pub(crate) internal: bool,
    pub(crate) subnets: &'a [(String, Option<String>)],
    pub(crate) group: &'a str,
    pub(crate) tags: &'a Tags,
}

impl Service {
    pub(crate) async fn balancer(&self, name: &str) -> Result<Option<Balancer>, CallError> {
        let query = Query::read("elbv2.DescribeLoadBalancers").set("Names.member.1", name);
        let Some(reply) = unless(&["LoadBalancerNotFound"], self.ask(query).await)? else {
            return Ok(None);
        };
        Xml::read(&reply, |xml| xml.all("LoadBalancers").next().map(balancer))
    }

    pub(crate) async fn create_balancer(
        &self,
        new: &NewBalancer<'_>,
    ) -> Result<Option<Balancer>, CallError> {
        let query = Query::write("elbv2.CreateLoadBalancer")
            .set("Name", new.name)
            .set("Type", "network");
        let query = query.set(
            "Scheme",
            if new.internal {
                "internal"
            } else {
                "internet-facing"
            },
        );
        let subnets =
            new.subnets
                .iter()
                .zip(1..)
                .fold(query, |query, ((subnet, address), number)| {
                    let query =
                        query.set(format!("SubnetMappings.member.{number}.SubnetId"), subnet);
                    query.set_some(
                        &format!("SubnetMappings.member.{number}.AllocationId"),
                        address.as_deref(),
                    )
                });
        let query = subnets
            .set("SecurityGroups.member.1", new.group)
            .pairs("Tags.member", new.tags);
        Xml::read(&self.ask(query).await?, |xml| {
            xml.all("LoadBalancers").next().map(balancer)
        })
    }

    pub(crate) async fn use_group(&self, arn: &str, group: &str) -> Result<(), CallError> {
        let query = Query::write("elbv2.SetSecurityGroups")
            .repeatable()
            .set("LoadBalancerArn", arn);
        self.ask(query.set("SecurityGroups.member.1", group))
            .await
            .map(drop)
    }

    pub(crate) async fn delete_balancer(&self, arn: &str) -> Result<(), CallError> {
        let query = Query::write("elbv2.DeleteLoadBalancer")
            .repeatable()
            .set("LoadBalancerArn", arn);
        unless(&["LoadBalancerNotFound"], self.ask(query).await).map(drop)
    }

    pub(crate) async fn set_balancer_attributes(
        &self,
        arn: &str,
        attributes: &Tags,
    ) -> Result<(), CallError> {
        let query = Query::write("elbv2.ModifyLoadBalancerAttributes")
            .repeatable()
            .set("LoadBalancerArn", arn);
        self.ask(query.pairs("Attributes.member", attributes))
            .await
            .map(drop)
    }

    pub(crate) async fn listeners(&self, balancer: &str) -> Result<Vec<SeenListener>, CallError> {
        let query = || Query::read("elbv2.DescribeListeners").set("LoadBalancerArn", balancer);
        self.list(query, Paging::elb("Listeners"), seen_listener)
            .await
    }

    pub(crate) async fn create_listener(
        &self,
        balancer: &str,
        listener: &Listener,
        targets: &str,
        tags: &Tags,
    ) -> Result<Option<SeenListener>, CallError> {
        let query = Query::write("elbv2.CreateListener").set("LoadBalancerArn", balancer);
        let query = query
            .set("Protocol", listener.protocol)
            .set("Port", listener.port);
        let reply = self
            .ask(forward(query, targets).pairs("Tags.member", tags))
            .await?;
        Xml::read(&reply, |xml| xml.all("Listeners").next().map(seen_listener))
    }

    pub(crate) async fn redirect(&self, listener: &str, targets: &str) -> Result<(), CallError> {
        let query = Query::write("elbv2.ModifyListener")
            .repeatable()
            .set("ListenerArn", listener);
        self.ask(forward(query, targets)).await.map(drop)
    }

    pub(crate) async fn delete_listener(&self, arn: &str) -> Result<(), CallError> {
        let query = Query::write("elbv2.DeleteListener")
            .repeatable()
            .set("ListenerArn", arn);
        unless(&["ListenerNotFound"], self.ask(query).await).map(drop)
    }

    /// All of the region whose names begin so, without tags and targets: those that nothing uses
    /// cannot be asked for otherwise.
    pub(crate) async fn target_groups(&self, prefix: &str) -> Result<Vec<TargetGroup>, CallError> {
        let query = || Query::read("elbv2.DescribeTargetGroups").set("PageSize", 400);
        let mut groups = self
            .list(query, Paging::elb("TargetGroups"), target_group)
            .await?;
        groups.retain(|group| group.name.starts_with(prefix));
        Ok(groups)
    }

    pub(crate) async fn create_target_group(
        &self,
        listener: &Listener,
        vpc: &str,
        check: &Check,
        tags: &Tags,
    ) -> Result<String, CallError> {
        let query = Query::write("elbv2.CreateTargetGroup")
            .set("Name", &listener.target_group)
            .set("VpcId", vpc);
        let query = query
            .set("Protocol", listener.protocol)
            .set("Port", listener.node_port)
            .set("TargetType", "instance");
        let query = query
            .set("HealthCheckProtocol", "HTTP")
            .set("HealthCheckIntervalSeconds", check.interval);
        let reply = self
            .ask(set_check(query, check).pairs("Tags.member", tags))
            .await?;
        Xml::read(&reply, |xml| {
            xml.all("TargetGroups")
                .next()
                .map(|item| item.text("TargetGroupArn"))
                .unwrap_or_default()
        })
    }

    pub(crate) async fn set_check(&self, arn: &str, check: &Check) -> Result<(), CallError> {
        let query = Query::write("elbv2.ModifyTargetGroup")
            .repeatable()
            .set("TargetGroupArn", arn);
        self.ask(set_check(query, check)).await.map(drop)
    }

    pub(crate) async fn set_target_attributes(
        &self,
        arn: &str,
        attributes: &Tags,
    ) -> Result<(), CallError> {
        let query = Query::write("elbv2.ModifyTargetGroupAttributes")
            .repeatable()
            .set("TargetGroupArn", arn);
        self.ask(query.pairs("Attributes.member", attributes))
            .await
            .map(drop)
    }

    pub(crate) async fn delete_target_group(&self, arn: &str) -> Result<(), CallError> {
        let query = Query::write("elbv2.DeleteTargetGroup")
            .repeatable()
            .set("TargetGroupArn", arn);
        unless(&["TargetGroupNotFound"], self.ask(query).await).map(drop)
    }

    /// The targets of a group, without those that are draining.
    pub(crate) async fn targets(&self, group: &str) -> Result<BTreeSet<String>, CallError> {
        let query = Query::read("elbv2.DescribeTargetHealth").set("TargetGroupArn", group);
        let reply = self.ask(query).await?;
        Xml::read(&reply, |xml| {
            let all = xml.all("TargetHealthDescriptions");
            let staying = all.filter(|item| item.child("TargetHealth").text("State") != "draining");
            staying
                .map(|item| item.child("Target").text("Id"))
                .collect()
        })
    }

    pub(crate) async fn register(
        &self,
        group: &str,
        instances: &[String],
    ) -> Result<(), CallError> {
        for some in instances.chunks(MOST_TARGETS) {
            let query = Query::write("elbv2.RegisterTargets")
                .repeatable()
                .set("TargetGroupArn", group);
            self.ask(query.list_of("Targets.member", "Id", some))
                .await?;
        }
        Ok(())
    }

    pub(crate) async fn deregister(
        &self,
        group: &str,
        instances: &[String],
    ) -> Result<(), CallError> {
        for some in instances.chunks(MOST_TARGETS) {
            let query = Query::write("elbv2.DeregisterTargets").set("TargetGroupArn", group);
            self.ask(query.list_of("Targets.member", "Id", some))
                .await?;
        }
        Ok(())
    }

    /// The tags of resources, by ARN.
    pub(crate) async fn tags(&self, arns: &[&str]) -> Result<BTreeMap<String, Tags>, CallError> {
        let mut all = BTreeMap::new();
        for some in arns.chunks(MOST_TAGGED) {
            let reply = self
                .ask(Query::read("elbv2.DescribeTags").list("ResourceArns.member", some))
                .await?;
            let tags = |item: Xml<'_>| {
                item.list("Tags")
                    .map(|tag| (tag.text("Key"), tag.text("Value")))
                    .collect()
            };
            let read = |xml: Xml<'_>| -> Vec<(String, Tags)> {
                xml.all("TagDescriptions")
                    .map(|item| (item.text("ResourceArn"), tags(item)))
                    .collect()
            };
            all.extend(Xml::read(&reply, read)?);
        }
        Ok(all)
    }

    pub(crate) async fn add_tags(&self, arn: &str, tags: &Tags) -> Result<(), CallError> {
        let query = Query::write("elbv2.AddTags")
            .repeatable()
            .set("ResourceArns.member.1", arn);
        self.ask(query.pairs("Tags.member", tags)).await.map(drop)
    }
}

fn balancer(item: Xml<'_>) -> Balancer {
    Balancer {
        arn: item.text("LoadBalancerArn"),
        host: item.text("DNSName"),
        internal: item.text("Scheme") == "internal",
        state: item.child("State").text("Code"),
        groups: item.list("SecurityGroups").map(Xml::own_text).collect(),
        tags: Tags::new(),
    }
}

fn seen_listener(item: Xml<'_>) -> SeenListener {
    SeenListener {
        arn: item.text("ListenerArn"),
        port: item.number("Port").unwrap_or_default(),
        protocol: item.text("Protocol"),
        target_group: item
            .list("DefaultActions")
            .next()
            .map(|it| it.text("TargetGroupArn"))
            .unwrap_or_default(),
    }
}

fn target_group(item: Xml<'_>) -> TargetGroup {
    TargetGroup {
        arn: item.text("TargetGroupArn"),
        name: item.text("TargetGroupName"),
        check: Check {
            port: item.number("HealthCheckPort").unwrap_or_default(),
            path: item.text("HealthCheckPath"),
            interval: item
                .number("HealthCheckIntervalSeconds")
                .unwrap_or_default(),
            timeout: item.number("HealthCheckTimeoutSeconds").unwrap_or_default(),
            healthy: item.number("HealthyThresholdCount").unwrap_or_default(),
            unhealthy: item.number("UnhealthyThresholdCount").unwrap_or_default(),
        },
        ..TargetGroup::default()
    }
}

fn forward(query: Query, targets: &str) -> Query {
    query
        .set("DefaultActions.member.1.Type", "forward")
        .set("DefaultActions.member.1.TargetGroupArn", targets)
}

/// What can be changed later.
fn set_check(query: Query, check: &Check) -> Query {
    let query = query
        .set("HealthCheckPort", check.port)
        .set("HealthCheckPath", &check.path);
    let query = query.set("HealthCheckTimeoutSeconds", check.timeout);
    query
        .set("HealthyThresholdCount", check.healthy)
        .set("UnhealthyThresholdCount", check.unhealthy)
}
