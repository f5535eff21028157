//! Classic load balancers, read and changed.

use super::{Balancer, Observed, Step};
use crate::providers::ProviderError;
use crate::providers::aws::api::classic::NewClassic;
use crate::providers::aws::surroundings::{Surroundings, in_lots, not_ours, quota};
use crate::providers::aws::wanted::{Names, Wanted};
use crate::providers::cloud::CallError;

pub async fn observe(
    around: &Surroundings,
    names: &Names,
    balancer: Option<Balancer>,
    wanted: &Wanted,
) -> Result<Observed, ProviderError> {
    let balancer = with_tags(around, names, balancer).await?;
    let groups = around.groups(names).await?;
    let subnets = if balancer.is_none() { around.subnets(wanted).await? } else { Vec::new() };
    Ok(Observed { groups, balancer, subnets })
}

/// The security group is not its own alone.
pub async fn remove(around: &Surroundings, names: &Names) -> Result<(), ProviderError> {
    let balancer = around.api.classic.classic(&names.balancer).await?;
    if with_tags(around, names, balancer).await?.is_some() {
        around.api.classic.delete_classic(&names.balancer).await?;
    }
    Ok(())
}

async fn with_tags(
    around: &Surroundings,
    names: &Names,
    balancer: Option<Balancer>,
) -> Result<Option<Balancer>, ProviderError> {
    let Some(balancer) = balancer else { return Ok(None) };
    let tags = around.api.classic.classic_tags(&names.balancer).await?;
    if !names.is_owned(&tags) {
        return not_ours("load balancer", &names.balancer, names);
    }
    Ok(Some(Balancer { tags, ..balancer }))
}

/// Carries steps out.
pub struct Actor<'a> {
    around: &'a Surroundings,
    name: &'a str,
    /// The id of its security group.
    group: String,
    /// Its name in DNS.
    pub host: String,
}

impl Actor<'_> {
    pub fn new<'a>(around: &'a Surroundings, name: &'a str, seen: &Observed) -> Actor<'a> {
        let group = seen.groups.own.as_ref().map(|own| own.id.clone()).unwrap_or_default();
        let host = seen.balancer.as_ref().map(|balancer| balancer.host.clone()).unwrap_or_default();
        Actor { around, name, group, host }
    }

    pub async fn act(&mut self, step: &Step) -> Result<(), ProviderError> {
        let (api, name) = (&self.around.api.classic, self.name);
        match step {
            Step::Group(step) => self.around.change_groups(step, &mut self.group).await?,
            Step::Create { internal, subnets, listeners, tags } => {
                let new = NewClassic { internal: *internal, subnets, listeners, group: &self.group, tags };
                self.host = quota(api.create_classic(name, &new).await)?;
            }
            Step::UseGroup => api.use_classic_group(name, &self.group).await?,
            Step::Tag(tags) => api.tag_classic(name, tags).await?,
            Step::SetAttributes(attributes) => api.set_classic_attributes(name, attributes).await?,
            Step::CreateListeners(ports) => quota(api.create_classic_listeners(name, ports).await)?,
            Step::DeleteListeners(ports) => api.delete_classic_listeners(name, ports).await?,
            Step::CreateProxyPolicy => api.create_proxy_policy(name).await?,
            Step::Proxy(node_port, on) => api.proxy(name, *node_port, *on).await?,
            Step::SetCheck(check) => api.set_classic_check(name, check).await?,
            Step::Register(instances) => register(self.around, name, instances).await?,
            Step::Deregister(instances) => api.deregister_classic(name, instances).await?,
        }
        Ok(())
    }
}

pub async fn register(around: &Surroundings, name: &str, instances: &[String]) -> Result<(), CallError> {
    in_lots(instances, "InvalidInstance", |lot| async move { around.api.classic.register_classic(name, lot).await })
        .await
}
