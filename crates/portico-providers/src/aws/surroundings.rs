//! What is around balancers: the network with its subnets, and security groups, read and changed.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use tracing::warn;

use super::api::Api;
use super::config::Config;
use super::groups::{Group, GroupStep, Groups, On, Origin, Rule};
use super::subnets::{Desired, RouteTable, Subnet, choose};
use super::wanted::{Names, Wanted, is_of_service, refused};
use crate::ProviderError;
use crate::cloud::{CallError, Poll, Progress, wait_for};

/// Subnets and the groups of nodes are made with the cluster: for a new balancer they are read
/// again after this, or when one could not be made with them.
const KNOWN_FOR: Duration = Duration::from_secs(600);

/// What is the same for all Services, and when it was read.
struct Known<T>(Mutex<Option<(T, Instant)>>);

impl<T: Clone> Known<T> {
    async fn get_or<F>(&self, trust: Trust, read: F) -> Result<T, CallError>
    where
        F: Future<Output = Result<T, CallError>>,
    {
        if let Some(known) = self.get().filter(|_| trust == Trust::Known) {
            return Ok(known);
        }
        let what = read.await?;
        self.set(what.clone());
        Ok(what)
    }

    fn get(&self) -> Option<T> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known
            .as_ref()
            .filter(|(_, at)| at.elapsed() < KNOWN_FOR)
            .map(|(what, _)| what.clone())
    }

    fn set(&self, what: T) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some((what, Instant::now()));
    }
}

impl<T> Default for Known<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

pub(super) struct Surroundings {
    pub api: Api,
    pub config: Config,
    pub region: String,
    pub vpc: String,
    /// As tags have it.
    pub cluster: String,
    pub poll: Poll,
    node_groups: Known<Vec<String>>,
    subnets: Known<Vec<Subnet>>,
    route_tables: Known<Vec<RouteTable>>,
}

/// Whether what is the same for all Services is read in any case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trust {
    Known,
    Nothing,
}

impl Surroundings {
    pub(super) fn new(
        api: Api,
        config: Config,
        region: String,
        vpc: String,
        cluster: String,
        poll: Poll,
    ) -> Self {
        let (node_groups, subnets, route_tables) = Default::default();
        Self {
            api,
            config,
            region,
            vpc,
            cluster,
            poll,
            node_groups,
            subnets,
            route_tables,
        }
    }

    /// The subnets for a balancer that has to be made.
    pub(super) async fn subnets(
        &self,
        wanted: &Wanted,
        trust: Trust,
    ) -> Result<Vec<String>, ProviderError> {
        let (ec2, vpc) = (&self.api.ec2, &self.vpc);
        let subnets = self.subnets.get_or(trust, ec2.subnets(vpc)).await?;
        let decided = wanted.internal || !wanted.subnets.is_empty();
        let tables = match decided {
            true => Vec::new(),
            false => {
                self.route_tables
                    .get_or(trust, ec2.route_tables(vpc))
                    .await?
            }
        };
        let desired = Desired {
            region: &self.region,
            cluster: &self.cluster,
            internal: wanted.internal,
            named: &wanted.subnets,
            own: self.config.subnet.as_deref(),
        };
        choose(&desired, &subnets, &tables).or_else(|problem| refused("NoSubnet", problem))
    }

    pub(super) async fn groups(&self, names: &Names) -> Result<Groups, ProviderError> {
        let own = self.own_group(names).await?;
        let mut nodes = if self.config.leave_nodes {
            Vec::new()
        } else {
            self.groups_of_nodes(names).await?
        };
        nodes
            .iter_mut()
            .for_each(|group| group.rules = from(own.as_ref(), group));
        Ok(Groups { own, nodes })
    }

    /// Groups before anything is made: those of nodes are known by their ids.
    pub(super) async fn groups_at_first(&self, names: &Names) -> Result<Groups, ProviderError> {
        let bare = |id: &String| Group {
            id: id.clone(),
            ..Group::default()
        };
        let known = if self.config.node_groups.is_empty() {
            self.node_groups.get()
        } else {
            None
        };
        let nodes = match known.as_ref().unwrap_or(&self.config.node_groups) {
            _ if self.config.leave_nodes => Vec::new(),
            ids if !ids.is_empty() => ids.iter().map(bare).collect(),
            _ => self
                .groups_of_nodes(names)
                .await?
                .iter()
                .map(|group| bare(&group.id))
                .collect(),
        };
        Ok(Groups { own: None, nodes })
    }

    /// As [`Surroundings::groups`], with whatever groups have rules for the balancer.
    pub(super) async fn groups_to_remove(&self, names: &Names) -> Result<Groups, ProviderError> {
        let Some(own) = self.own_group(names).await? else {
            return Ok(Groups::default());
        };
        let mut nodes = self
            .api
            .ec2
            .groups(&[("ip-permission.group-id", &[&own.id])])
            .await?;
        nodes.retain(|group| group.id != own.id);
        nodes
            .iter_mut()
            .for_each(|group| group.rules = from(Some(&own), group));
        Ok(Groups {
            own: Some(own),
            nodes,
        })
    }

    async fn own_group(&self, names: &Names) -> Result<Option<Group>, ProviderError> {
        let found = self
            .api
            .ec2
            .groups(&[("group-name", &[&names.group]), ("vpc-id", &[&self.vpc])])
            .await?;
        match found.into_iter().next() {
            Some(group) if !names.is_owned(&group.tags) => {
                not_ours("security group", &names.group, names)
            }
            found => Ok(found),
        }
    }

    async fn groups_of_nodes(&self, names: &Names) -> Result<Vec<Group>, ProviderError> {
        if !self.config.node_groups.is_empty() {
            let ids: Vec<&str> = self.config.node_groups.iter().map(String::as_str).collect();
            return Ok(self.api.ec2.groups(&[("group-id", &ids)]).await?);
        }
        let filters: &[(&str, &[&str])] =
            &[("vpc-id", &[&self.vpc]), ("tag-key", &[&names.cluster_tag])];
        let mut groups = self.api.ec2.groups(filters).await?;
        groups.retain(|group| !is_of_service(&group.tags));
        if groups.is_empty() {
            let way = "tag it, set NodeSecurityGroup, or set DisableSecurityGroupIngress to open \
                       node ports yourself";
            let message = format!(
                "no security group of nodes is tagged {}: {way}",
                names.cluster_tag
            );
            return refused("NoNodeSecurityGroup", message);
        }
        self.node_groups
            .set(groups.iter().map(|group| group.id.clone()).collect());
        Ok(groups)
    }

    /// Does a step, and notes it in `groups`.
    pub(super) async fn change_groups(
        &self,
        step: &GroupStep,
        groups: &mut Groups,
    ) -> Result<(), ProviderError> {
        let (ec2, own) = (&self.api.ec2, &groups.own_id());
        let mut created = None;
        match step {
            GroupStep::Create { name, tags } => {
                let text = "Clients of a load balancer of Kubernetes";
                created = Some(quota(ec2.create_group(name, &self.vpc, text, tags).await)?);
            }
            GroupStep::Tag(tags) => ec2.tag(own, tags).await?,
            GroupStep::Allow(on, rules) => quota(ec2.allow(group(on, own), rules, own).await)?,
            GroupStep::Revoke(on, rules) => ec2.revoke(group(on, own), rules, own).await?,
            GroupStep::Delete => self.delete_group(own).await?,
        }
        groups.done(step, created);
        Ok(())
    }

    /// The interfaces of a balancer that is gone hold its group for a while.
    async fn delete_group(&self, id: &str) -> Result<(), ProviderError> {
        let waiting = "the load balancer is gone, its network interfaces are not yet";
        self.until_free(&["DependencyViolation"], waiting, || {
            self.api.ec2.delete_group(id)
        })
        .await
    }

    /// Repeats a call as long as the answer is one of these codes.
    pub(super) async fn until_free<F>(
        &self,
        codes: &[&str],
        waiting: &str,
        act: impl Fn() -> F,
    ) -> Result<(), ProviderError>
    where
        F: Future<Output = Result<(), CallError>>,
    {
        let ask = || async {
            match act().await {
                Ok(()) => Ok(Progress::Done(())),
                Err(error) if codes.iter().any(|code| error.is_code(code)) => {
                    Ok(Progress::Pending(waiting.to_owned()))
                }
                Err(error) => Err(error),
            }
        };
        Ok(wait_for(&self.poll, ask).await?)
    }
}

fn group<'a>(on: &'a On, own: &'a str) -> &'a str {
    match on {
        On::Balancer => own,
        On::Nodes(id) => id,
    }
}

/// Rules for what is in the balancer's group.
fn from(own: Option<&Group>, group: &Group) -> BTreeSet<Rule> {
    let is_own = |source: &Origin| match source {
        Origin::Other {
            field: "Groups.1.GroupId",
            value,
        } => own.is_some_and(|own| own.id == *value),
        _ => false,
    };
    let ours = group.rules.iter().filter(|rule| is_own(&rule.source));
    ours.map(|rule| Rule {
        source: Origin::Balancer,
        ..rule.clone()
    })
    .collect()
}

pub(super) fn not_ours<T>(what: &str, name: &str, names: &Names) -> Result<T, ProviderError> {
    let message = format!(
        "there is a {what} {name} that is not tagged {}=owned: it is somebody else's",
        names.cluster_tag
    );
    refused("NotOurs", message)
}

/// A quota that is used up is for people to see, with the vendor's word for it.
pub(super) fn quota<T>(result: Result<T, CallError>) -> Result<T, ProviderError> {
    const WORDS: [&str; 3] = ["LimitExceeded", "TooMany", "Quota"];
    let over = |code: &str| WORDS.iter().any(|word| code.contains(word));
    match result {
        Err(error)
            if error
                .status()
                .is_some_and(|status| !status.throttled && over(&status.code)) =>
        {
            refused("QuotaExceeded", error.to_string())
        }
        result => Ok(result?),
    }
}

/// Registers instances. One that is gone while its node is not yet must not keep the others out:
/// the vendor refuses all that are named with it, with this code.
pub(super) async fn in_lots<'a, F>(
    instances: &'a [String],
    invalid: &str,
    register: impl Fn(&'a [String]) -> F,
) -> Result<(), CallError>
where
    F: Future<Output = Result<(), CallError>>,
{
    let mut lots = vec![instances];
    while let Some(lot) = lots.pop() {
        match register(lot).await {
            Err(error) if error.is_code(invalid) && lot.len() > 1 => {
                let (some, others) = lot.split_at(lot.len() / 2);
                lots.extend([others, some]);
            }
            Err(error) if error.is_code(invalid) => {
                warn!(?lot, %error, "an instance cannot get traffic")
            }
            result => result?,
        }
    }
    Ok(())
}
