//! Beside kube-proxy, in iptables or IPVS mode: rules in the nat table that mark for masquerading
//! and hand over to what kube-proxy has for `default/kubernetes`.
//!
//! kube-proxy learns of a dead server from the API, which may be too late, or never. So while a
//! server is out, or kube-proxy does not have them all, connections go to the servers by a chain of
//! our own instead. [`rules`] decides and plans, [`ipvs`] reads what IPVS has; here it is read and
//! done.

mod ipvs;
mod rules;

pub(super) use rules::{Kind, service_chain};

use super::route::Route;
use super::{ForwardError, Forwarder, Wanted};
use portico_dataplane::iptables::{MARK_MASQ, Programs, Variant, plain_variant};
use portico_model::table::{Family, PerFamily};
use rules::{HOOKS, Rules, Target};
use std::net::SocketAddr;

/// How often the table is read again because another program changed it meanwhile.
const ATTEMPTS: usize = 3;

/// The programs of both variants, as far as they are installed.
pub(super) fn installed_programs() -> Vec<Programs> {
    [Variant::Nft, Variant::Legacy]
        .into_iter()
        .filter_map(Programs::find)
        .collect()
}

pub(super) struct KubeProxy {
    kind: Kind,
    programs: Vec<Programs>,
    /// What we installed. Trusted where it is to become something else, since that is urgent, and
    /// compared with what is there on the slow timer.
    installed: PerFamily<Option<Installed>>,
    /// Where nothing of ours is, because we looked.
    clean: Vec<(Variant, Family)>,
}

struct Installed {
    programs: Programs,
    route: Route,
    /// kube-proxy's chain that marks for masquerading is there.
    marks: bool,
    rules: Rules,
}

impl KubeProxy {
    pub(super) fn new(kind: Kind, programs: Vec<Programs>) -> Self {
        Self {
            kind,
            programs,
            installed: PerFamily { v4: None, v6: None },
            clean: Vec::new(),
        }
    }

    fn apply_family(&mut self, family: Family, route: Option<Route>) -> Result<(), ForwardError> {
        let known = self.installed.get_mut(family).take();
        let changed =
            known.filter(|known| route.as_ref().is_some_and(|route| known.route != *route));
        if let (Some(known), Some(route)) = (changed, &route)
            && let Ok(installed) = self.change(known, route)
        {
            *self.installed.get_mut(family) = Some(installed);
            return Ok(());
        }
        if let Some(route) = route {
            *self.installed.get_mut(family) = Some(self.install(route)?);
        }
        self.clear_others(family)
    }

    /// Changes what was installed to what is wanted now.
    fn change(&self, known: Installed, route: &Route) -> Result<Installed, ForwardError> {
        let Installed {
            programs,
            marks,
            rules: before,
            ..
        } = known;
        let rules = rules::rules(self.kind, route, &self.target(&programs, route), marks);
        self.restore(&programs, route.family, &before, &rules)?;
        Ok(Installed {
            programs,
            route: route.clone(),
            marks,
            rules,
        })
    }

    /// Changes what is there to what is wanted.
    fn install(&mut self, route: Route) -> Result<Installed, ForwardError> {
        let missing = || ForwardError::Unfit("iptables is not installed".to_owned());
        let programs = self.choose(route.family).ok_or_else(missing)?;
        self.clean
            .retain(|clean| *clean != (programs.variant, route.family));
        let mut attempt = 1;
        loop {
            let marks = marks(&programs, route.family);
            let rules = rules::rules(self.kind, &route, &self.target(&programs, &route), marks);
            match self.restore(
                &programs,
                route.family,
                &self.read(&programs, route.family),
                &rules,
            ) {
                Ok(()) => {
                    return Ok(Installed {
                        programs,
                        route,
                        marks,
                        rules,
                    });
                }
                Err(_) if attempt < ATTEMPTS => attempt += 1,
                Err(error) => return Err(error),
            }
        }
    }

    /// Where kube-proxy's chains are; else what the distribution prefers.
    fn choose(&self, family: Family) -> Option<Programs> {
        let holds =
            |test: &dyn Fn(&Programs) -> bool| self.programs.iter().find(|programs| test(programs));
        let serves = |programs: &Programs| self.kind == Kind::Iptables && serves(programs, family);
        let found = holds(&serves).or_else(|| holds(&|programs| marks(programs, family)));
        let preferred = || holds(&|programs| plain_variant() == Some(programs.variant));
        found.or_else(preferred).or(self.programs.first()).cloned()
    }

    fn target(&self, programs: &Programs, route: &Route) -> Target {
        let complete = match self.kind {
            _ if !route.all_healthy => None,
            // kube-proxy cannot remove a chain that we lead to, nor install anything else with it.
            // It wants to when the last server goes; of several one goes first, and then we do not
            // lead there any more.
            Kind::Iptables if route.servers.len() < 2 => None,
            Kind::Iptables => {
                let chain = programs
                    .list_chain(route.family, &service_chain(route.family))
                    .unwrap_or_default();
                rules::covers(&chain, &route.servers, route.family).then_some(Target::Service)
            }
            Kind::Ipvs => {
                let list =
                    std::fs::read_to_string("/proc/thread-self/net/ip_vs").unwrap_or_default();
                let serves = |address: &SocketAddr| ipvs::covers(&list, *address, &route.servers);
                route.cluster.filter(serves).map(Target::ClusterIp)
            }
        };
        complete.unwrap_or(Target::Servers)
    }

    /// Nothing in the variant that we do not use, nor in a family that is not served.
    fn clear_others(&mut self, family: Family) -> Result<(), ForwardError> {
        let used = self
            .installed
            .get(family)
            .as_ref()
            .map(|installed| installed.programs.variant);
        let others: Vec<Programs> = self
            .programs
            .iter()
            .filter(|programs| Some(programs.variant) != used)
            .cloned()
            .collect();
        others
            .iter()
            .try_for_each(|programs| self.clear(programs, family))
    }

    fn clear(&mut self, programs: &Programs, family: Family) -> Result<(), ForwardError> {
        if !self.clean.contains(&(programs.variant, family)) {
            self.restore(
                programs,
                family,
                &self.read(programs, family),
                &Rules::default(),
            )?;
            self.clean.push((programs.variant, family));
        }
        Ok(())
    }

    fn restore(
        &self,
        programs: &Programs,
        family: Family,
        before: &Rules,
        after: &Rules,
    ) -> Result<(), ForwardError> {
        match rules::plan(self.kind, before, after) {
            Some(input) => Ok(programs.restore(family, &input)?),
            None => Ok(()),
        }
    }

    fn read(&self, programs: &Programs, family: Family) -> Rules {
        let chain = |name: &str| programs.list_chain(family, name);
        let hooks = HOOKS.map(|hook| rules::ours(self.kind, chain(hook).unwrap_or_default()));
        Rules {
            hooks,
            own: chain(self.kind.chain()),
        }
    }
}

/// kube-proxy's chain of `default/kubernetes:https` is there and leads somewhere.
pub(super) fn serves(programs: &Programs, family: Family) -> bool {
    programs
        .list_chain(family, &service_chain(family))
        .is_some_and(|chain| rules::has_endpoints(&chain))
}

/// kube-proxy's chain that marks for masquerading is there.
fn marks(programs: &Programs, family: Family) -> bool {
    programs
        .list_chain(family, MARK_MASQ)
        .is_some_and(|chain| !chain.is_empty())
}

impl Forwarder for KubeProxy {
    fn name(&self) -> &'static str {
        self.kind.name()
    }

    fn apply(&mut self, wanted: &Wanted) -> Result<(), ForwardError> {
        Family::BOTH
            .into_iter()
            .try_for_each(|family| self.apply_family(family, wanted.route(family)))
    }

    fn rules(&mut self) -> Result<Vec<String>, ForwardError> {
        let mut lines = Vec::new();
        for programs in &self.programs {
            for family in Family::BOTH
                .into_iter()
                .filter(|family| !self.clean.contains(&(programs.variant, *family)))
            {
                let Rules { hooks, own } = self.read(programs, family);
                let own = (self.kind.chain(), own.unwrap_or_default());
                let program = programs.name(family, "");
                for (chain, rules) in HOOKS.into_iter().zip(hooks).chain([own]) {
                    lines.extend(
                        rules
                            .iter()
                            .map(|rule| format!("{program} -t nat -A {chain} {rule}")),
                    );
                }
            }
        }
        Ok(lines)
    }

    fn remove(&mut self) -> Result<(), ForwardError> {
        self.installed = PerFamily { v4: None, v6: None };
        self.clean.clear();
        let mut result = Ok(());
        for programs in self.programs.clone() {
            // One family that is not there does not keep the other's rules.
            result = Family::BOTH.into_iter().fold(result, |so_far, family| {
                so_far.and(self.clear(&programs, family))
            });
        }
        result
    }
}

#[cfg(test)]
mod tests;
