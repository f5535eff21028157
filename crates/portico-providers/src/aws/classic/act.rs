//! Classic load balancers, read and changed.

use super::{Balancer, Observed, Step};
use crate::ProviderError;
use crate::aws::api::classic::NewClassic;
use crate::aws::surroundings::{Surroundings, Trust, in_lots, not_ours, quota};
use crate::aws::wanted::{Names, Wanted};
use crate::cloud::CallError;

pub(crate) async fn observe(
    around: &Surroundings,
    names: &Names,
    balancer: Option<Balancer>,
    wanted: &Wanted,
) -> Result<Observed, ProviderError> {
    let balancer = with_tags(around, names, balancer).await?;
    let groups = around.groups(names).await?;
    let subnets = if balancer.is_none() {
        around.subnets(wanted, Trust::Nothing).await?
    } else {
        Vec::new()
    };
    Ok(Observed {
        groups,
        balancer,
        subnets,
    })
}

/// Begins with a Service that has nothing yet: should that be wrong, a name is taken.
pub(crate) async fn begin(
    around: &Surroundings,
    names: &Names,
    wanted: &Wanted,
) -> Result<Observed, ProviderError> {
    let (groups, subnets) = (
        around.groups_at_first(names).await?,
        around.subnets(wanted, Trust::Known).await?,
    );
    Ok(Observed {
        groups,
        subnets,
        ..Observed::default()
    })
}

/// Reads only the balancer: the security group may be in use by others.
pub(crate) async fn observe_to_remove(
    around: &Surroundings,
    names: &Names,
) -> Result<Observed, ProviderError> {
    let balancer = around.api.classic.classic(&names.balancer).await?;
    Ok(Observed {
        balancer: with_tags(around, names, balancer).await?,
        ..Observed::default()
    })
}

async fn with_tags(
    around: &Surroundings,
    names: &Names,
    balancer: Option<Balancer>,
) -> Result<Option<Balancer>, ProviderError> {
    let Some(balancer) = balancer else {
        return Ok(None);
    };
    let tags = around.api.classic.classic_tags(&names.balancer).await?;
    if !names.is_owned(&tags) {
        return not_ours("load balancer", &names.balancer, names);
    }
    Ok(Some(Balancer { tags, ..balancer }))
}

/// Carries steps out, and notes what there is after each.
pub(crate) struct Actor<'a> {
    pub around: &'a Surroundings,
    pub name: &'a str,
    pub seen: Observed,
}

impl Actor<'_> {
    pub(crate) async fn run(mut self, steps: Vec<Step>) -> Result<Observed, ProviderError> {
        for step in &steps {
            let host = self.act(step).await?;
            self.seen.done(step, host);
        }
        Ok(self.seen)
    }

    /// The name in DNS of a balancer that was made.
    async fn act(&mut self, step: &Step) -> Result<Option<String>, ProviderError> {
        let (api, name, group) = (
            &self.around.api.classic,
            self.name,
            self.seen.groups.own_id(),
        );
        match step {
            Step::Group(step) => {
                self.around
                    .change_groups(step, &mut self.seen.groups)
                    .await?
            }
            Step::Create {
                internal,
                subnets,
                listeners,
                tags,
            } => {
                let new = NewClassic {
                    internal: *internal,
                    subnets,
                    listeners,
                    group: &group,
                    tags,
                };
                return Ok(Some(quota(api.create_classic(name, &new).await)?));
            }
            Step::UseGroup => api.use_classic_group(name, &group).await?,
            Step::Tag(tags) => api.tag_classic(name, tags).await?,
            Step::SetAttributes(attributes) => api.set_classic_attributes(name, attributes).await?,
            Step::CreateListeners(ports) => quota(api.create_classic_listeners(name, ports).await)?,
            Step::DeleteListeners(ports) => api.delete_classic_listeners(name, ports).await?,
            Step::CreateProxyPolicy => api.create_proxy_policy(name).await?,
            Step::Proxy(node_port, on) => api.proxy(name, *node_port, *on).await?,
            Step::SetCheck(check) => api.set_classic_check(name, check).await?,
            Step::Register(instances) => register(self.around, name, instances).await?,
            Step::Deregister(instances) => api.deregister_classic(name, instances).await?,
            Step::Delete => api.delete_classic(name).await?,
        }
        Ok(None)
    }
}

async fn register(
    around: &Surroundings,
    name: &str,
    instances: &[String],
) -> Result<(), CallError> {
    in_lots(instances, "InvalidInstance", |lot| async move {
        around.api.classic.register_classic(name, lot).await
    })
    .await
}
