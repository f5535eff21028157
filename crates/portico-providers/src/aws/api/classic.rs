//! Load balancing version 1.

use super::ec2::Tags;
use super::{Query, Service, Xml, unless};
use crate::aws::annotations::CROSS_ZONE;
use crate::aws::classic::{Balancer, PROXY_POLICY, PortPair};
use crate::aws::wanted::Check;
use crate::cloud::CallError;

pub(crate) const VERSION: &str = "2012-06-01";
/// In one call.
const MOST_INSTANCES: usize = 100;
const GONE: &[&str] = &["LoadBalancerNotFound", "AccessPointNotFound"];

/// What a classic balancer begins with.
pub(crate) struct NewClassic<'a> {
    pub(crate) internal: bool,
    pub(crate) subnets: &'a [String],
    pub(crate) listeners: &'a [PortPair],
    pub(crate) group: &'a str,
    pub(crate) tags: &'a Tags,
}

impl Service {
    /// A classic load balancer, without its tags.
    pub(crate) async fn classic(&self, name: &str) -> Result<Option<Balancer>, CallError> {
        let query =
            Query::read("elb.DescribeLoadBalancers").set("LoadBalancerNames.member.1", name);
        let Some(reply) = unless(GONE, self.ask(query).await)? else {
            return Ok(None);
        };
        Xml::read(&reply, |xml| {
            xml.all("LoadBalancerDescriptions").next().map(balancer)
        })
    }

    pub(crate) async fn create_classic(
        &self,
        name: &str,
        new: &NewClassic<'_>,
    ) -> Result<String, CallError> {
        let query = Query::write("elb.CreateLoadBalancer").set("LoadBalancerName", name);
        let query = query.set_some("Scheme", new.internal.then_some("internal"));
        let query = listeners(query, new.listeners).list("Subnets.member", new.subnets);
        let query = query
            .set("SecurityGroups.member.1", new.group)
            .pairs("Tags.member", new.tags);
        Xml::read(&self.ask(query).await?, |xml| {
            xml.find("DNSName").map(Xml::own_text).unwrap_or_default()
        })
    }

    /// What is not there is deleted.
    pub(crate) async fn delete_classic(&self, name: &str) -> Result<(), CallError> {
        self.ask(change("elb.DeleteLoadBalancer", name))
            .await
            .map(drop)
    }

    pub(crate) async fn use_classic_group(&self, name: &str, group: &str) -> Result<(), CallError> {
        let query = change("elb.ApplySecurityGroupsToLoadBalancer", name);
        self.ask(query.set("SecurityGroups.member.1", group))
            .await
            .map(drop)
    }

    pub(crate) async fn create_classic_listeners(
        &self,
        name: &str,
        ports: &[PortPair],
    ) -> Result<(), CallError> {
        self.ask(listeners(
            change("elb.CreateLoadBalancerListeners", name),
            ports,
        ))
        .await
        .map(drop)
    }

    pub(crate) async fn delete_classic_listeners(
        &self,
        name: &str,
        ports: &[u16],
    ) -> Result<(), CallError> {
        // One in each call: `moto`, which this is tested with, keeps all of several.
        for port in ports {
            let query = change("elb.DeleteLoadBalancerListeners", name)
                .set("LoadBalancerPorts.member.1", port);
            self.ask(query).await?;
        }
        Ok(())
    }

    pub(crate) async fn create_proxy_policy(&self, name: &str) -> Result<(), CallError> {
        let query = Query::write("elb.CreateLoadBalancerPolicy").set("LoadBalancerName", name);
        let query = query
            .set("PolicyName", PROXY_POLICY)
            .set("PolicyTypeName", "ProxyProtocolPolicyType");
        let query = query.set("PolicyAttributes.member.1.AttributeName", "ProxyProtocol");
        self.ask(query.set("PolicyAttributes.member.1.AttributeValue", "true"))
            .await
            .map(drop)
    }

    pub(crate) async fn proxy(
        &self,
        name: &str,
        node_port: u16,
        on: bool,
    ) -> Result<(), CallError> {
        let query = change("elb.SetLoadBalancerPoliciesForBackendServer", name)
            .set("InstancePort", node_port);
        // A list without elements is written as an empty field.
        let query = if on {
            query.set("PolicyNames.member.1", PROXY_POLICY)
        } else {
            query.set("PolicyNames", "")
        };
        self.ask(query).await.map(drop)
    }

    pub(crate) async fn set_classic_check(
        &self,
        name: &str,
        check: &Check,
    ) -> Result<(), CallError> {
        let query = change("elb.ConfigureHealthCheck", name);
        let query = query.set(
            "HealthCheck.Target",
            format!("HTTP:{}{}", check.port, check.path),
        );
        let query = query
            .set("HealthCheck.Interval", check.interval)
            .set("HealthCheck.Timeout", check.timeout);
        let query = query.set("HealthCheck.HealthyThreshold", check.healthy);
        self.ask(query.set("HealthCheck.UnhealthyThreshold", check.unhealthy))
            .await
            .map(drop)
    }

    pub(crate) async fn set_classic_attributes(
        &self,
        name: &str,
        attributes: &Tags,
    ) -> Result<(), CallError> {
        let query = change("elb.ModifyLoadBalancerAttributes", name);
        let query = attributes
            .iter()
            .fold(query, |query, (key, value)| attribute(query, key, value));
        self.ask(query).await.map(drop)
    }

    pub(crate) async fn register_classic(
        &self,
        name: &str,
        instances: &[String],
    ) -> Result<(), CallError> {
        for some in instances.chunks(MOST_INSTANCES) {
            let query = change("elb.RegisterInstancesWithLoadBalancer", name);
            self.ask(query.list_of("Instances.member", "InstanceId", some))
                .await?;
        }
        Ok(())
    }

    pub(crate) async fn deregister_classic(
        &self,
        name: &str,
        instances: &[String],
    ) -> Result<(), CallError> {
        for some in instances.chunks(MOST_INSTANCES) {
            let query = change("elb.DeregisterInstancesFromLoadBalancer", name);
            self.ask(query.list_of("Instances.member", "InstanceId", some))
                .await?;
        }
        Ok(())
    }

    pub(crate) async fn classic_tags(&self, name: &str) -> Result<Tags, CallError> {
        let query = Query::read("elb.DescribeTags").set("LoadBalancerNames.member.1", name);
        let reply = self.ask(query).await?;
        Xml::read(&reply, |xml| {
            xml.all("Tags")
                .map(|tag| (tag.text("Key"), tag.text("Value")))
                .collect()
        })
    }

    pub(crate) async fn tag_classic(&self, name: &str, tags: &Tags) -> Result<(), CallError> {
        let query = Query::write("elb.AddTags")
            .repeatable()
            .set("LoadBalancerNames.member.1", name);
        self.ask(query.pairs("Tags.member", tags)).await.map(drop)
    }
}

/// All changes of a classic balancer say what it shall be, so that a second time does no harm.
fn change(operation: &'static str, name: &str) -> Query {
    Query::write(operation)
        .repeatable()
        .set("LoadBalancerName", name)
}

fn listeners(query: Query, ports: &[PortPair]) -> Query {
    ports.iter().zip(1..).fold(query, |query, (pair, number)| {
        let name = |field: &str| format!("Listeners.member.{number}.{field}");
        let query = query
            .set(name("Protocol"), "TCP")
            .set(name("InstanceProtocol"), "TCP");
        query
            .set(name("LoadBalancerPort"), pair.port)
            .set(name("InstancePort"), pair.node_port)
    })
}

fn attribute(query: Query, key: &str, value: &str) -> Query {
    let name = |field: &str| format!("LoadBalancerAttributes.{field}");
    match key {
        CROSS_ZONE => query.set(name("CrossZoneLoadBalancing.Enabled"), value),
        "idle_timeout" => query.set(name("ConnectionSettings.IdleTimeout"), value),
        "connection_draining.timeout" if value == "0" => {
            query.set(name("ConnectionDraining.Enabled"), false)
        }
        _ => query
            .set(name("ConnectionDraining.Enabled"), true)
            .set(name("ConnectionDraining.Timeout"), value),
    }
}

fn balancer(item: Xml<'_>) -> Balancer {
    let listener = |it: Xml<'_>| {
        let listener = it.child("Listener");
        let number = |name| listener.number(name).unwrap_or_default();
        PortPair {
            port: number("LoadBalancerPort"),
            node_port: number("InstancePort"),
        }
    };
    let proxied = item.list("BackendServerDescriptions").filter(|server| {
        server
            .list("PolicyNames")
            .any(|policy| policy.own_text() == PROXY_POLICY)
    });
    Balancer {
        host: item.text("DNSName"),
        internal: item.text("Scheme") == "internal",
        groups: item.list("SecurityGroups").map(Xml::own_text).collect(),
        listeners: item.list("ListenerDescriptions").map(listener).collect(),
        check: check(item.child("HealthCheck")),
        instances: item
            .list("Instances")
            .map(|it| it.text("InstanceId"))
            .collect(),
        policies: item
            .child("Policies")
            .list("OtherPolicies")
            .map(Xml::own_text)
            .collect(),
        proxied: proxied
            .filter_map(|server| server.number("InstancePort"))
            .collect(),
        tags: Tags::new(),
    }
}

fn check(item: Xml<'_>) -> Option<Check> {
    let target = item.text("Target");
    let target = target.strip_prefix("HTTP:")?;
    let (port, path) = target.split_at(target.find('/')?);
    Some(Check {
        port: port.parse().ok()?,
        path: path.to_owned(),
        interval: item.number("Interval")?,
        timeout: item.number("Timeout")?,
        healthy: item.number("HealthyThreshold")?,
        unhealthy: item.number("UnhealthyThreshold")?,
    })
}
