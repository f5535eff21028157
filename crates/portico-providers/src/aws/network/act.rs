//! Network Load Balancers, read and changed.

use super::{Balancer, Made, Observed, Step, Tagged};
use crate::ProviderError;
use crate::aws::api::network::NewBalancer;
use crate::aws::surroundings::{Surroundings, Trust, in_lots, not_ours, quota};
use crate::aws::wanted::{Names, Wanted};
use crate::cloud::CallError;

/// Reads everything that belongs to a Service.
pub(crate) async fn observe(
    around: &Surroundings,
    names: &Names,
    balancer: Option<Balancer>,
    wanted: &Wanted,
) -> Result<Observed, ProviderError> {
    let groups = around.groups(names).await?;
    let mut seen = owned(
        around,
        names,
        Observed {
            groups,
            balancer,
            ..Observed::default()
        },
    )
    .await?;
    for group in &mut seen.targets {
        group.targets = around.api.network.targets(&group.arn).await?;
    }
    match &seen.balancer {
        Some(balancer) => seen.listeners = around.api.network.listeners(&balancer.arn).await?,
        None => seen.subnets = around.subnets(wanted, Trust::Nothing).await?,
    }
    Ok(seen)
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

/// Reads what has to be known to delete it.
pub(crate) async fn observe_to_remove(
    around: &Surroundings,
    names: &Names,
    balancer: Option<Balancer>,
) -> Result<Observed, ProviderError> {
    let groups = around.groups_to_remove(names).await?;
    owned(
        around,
        names,
        Observed {
            groups,
            balancer,
            ..Observed::default()
        },
    )
    .await
}

/// Adds target groups and tags; what has our name and not our tag belongs to another program.
async fn owned(
    around: &Surroundings,
    names: &Names,
    mut seen: Observed,
) -> Result<Observed, ProviderError> {
    let api = &around.api.network;
    seen.targets = api.target_groups(&names.targets).await?;
    let mut arns: Vec<&str> = seen
        .targets
        .iter()
        .map(|group| group.arn.as_str())
        .collect();
    arns.extend(seen.balancer.iter().map(|balancer| balancer.arn.as_str()));
    let mut tags = api.tags(&arns).await?;
    if let Some(balancer) = &mut seen.balancer {
        balancer.tags = tags.remove(&balancer.arn).unwrap_or_default();
        if !names.is_owned(&balancer.tags) {
            return not_ours("load balancer", &names.balancer, names);
        }
    }
    for group in &mut seen.targets {
        group.tags = tags.remove(&group.arn).unwrap_or_default();
        if !names.is_owned(&group.tags) {
            return not_ours("target group", &group.name, names);
        }
    }
    Ok(seen)
}

/// Carries steps out, and notes what there is after each.
pub(crate) struct Actor<'a> {
    pub around: &'a Surroundings,
    pub seen: Observed,
}

impl Actor<'_> {
    pub(crate) async fn run(mut self, steps: Vec<Step>) -> Result<Observed, ProviderError> {
        for step in &steps {
            let made = self.act(step).await?;
            self.seen.done(step, made);
        }
        Ok(self.seen)
    }

    async fn act(&mut self, step: &Step) -> Result<Made, ProviderError> {
        let (api, group) = (&self.around.api.network, self.seen.groups.own_id());
        match step {
            Step::Group(step) => {
                self.around
                    .change_groups(step, &mut self.seen.groups)
                    .await?
            }
            Step::CreateBalancer {
                name,
                internal,
                subnets,
                tags,
            } => {
                let new = NewBalancer {
                    name,
                    internal: *internal,
                    subnets,
                    group: &group,
                    tags,
                };
                return Ok(
                    quota(api.create_balancer(&new).await)?.map_or(Made::Nothing, Made::Balancer)
                );
            }
            Step::UseGroup => api.use_group(self.arn(), &group).await?,
            Step::Tag(what, tags) => api.add_tags(self.tagged(what), tags).await?,
            Step::SetAttributes(what, attributes) => match what {
                Tagged::Balancer => api.set_balancer_attributes(self.arn(), attributes).await?,
                Tagged::Targets(name) => {
                    api.set_target_attributes(self.target(name), attributes)
                        .await?
                }
            },
            Step::CreateTargets {
                listener,
                check,
                tags,
            } => {
                let made = api
                    .create_target_group(listener, &self.around.vpc, check, tags)
                    .await;
                return Ok(Made::Targets(quota(made)?));
            }
            Step::SetCheck(name, check) => api.set_check(self.target(name), check).await?,
            Step::Register(name, instances) => {
                register(self.around, self.target(name), instances).await?
            }
            Step::Deregister(name, instances) => {
                api.deregister(self.target(name), instances).await?
            }
            Step::CreateListener(listener, tags) => {
                let target = self.target(&listener.target_group);
                let made = quota(
                    api.create_listener(self.arn(), listener, target, tags)
                        .await,
                )?;
                return Ok(made.map_or(Made::Nothing, Made::Listener));
            }
            Step::Redirect(listener, name) => api.redirect(listener, self.target(name)).await?,
            Step::DeleteListener(arn) => api.delete_listener(arn).await?,
            Step::DeleteTargets(name) => {
                let waiting = "a target group is still in use by the load balancer";
                let act = || api.delete_target_group(self.target(name));
                self.around
                    .until_free(&["ResourceInUse"], waiting, act)
                    .await?;
            }
            Step::DeleteBalancer => api.delete_balancer(self.arn()).await?,
        }
        Ok(Made::Nothing)
    }

    fn arn(&self) -> &str {
        self.seen
            .balancer
            .as_ref()
            .map_or("", |balancer| &balancer.arn)
    }

    fn target(&self, name: &str) -> &str {
        self.seen
            .targets
            .iter()
            .find(|group| group.name == name)
            .map_or("", |group| &group.arn)
    }

    fn tagged(&self, what: &Tagged) -> &str {
        match what {
            Tagged::Balancer => self.arn(),
            Tagged::Targets(name) => self.target(name),
        }
    }
}

async fn register(
    around: &Surroundings,
    group: &str,
    instances: &[String],
) -> Result<(), CallError> {
    in_lots(instances, "InvalidTarget", |lot| async move {
        around.api.network.register(group, lot).await
    })
    .await
}
