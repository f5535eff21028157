//! Beside kube-proxy, in iptables or IPVS mode: rules in the nat table that mark for masquerading and hand over to what kube-proxy
//! has for `default/kubernetes`.
//!
//! kube-proxy learns of a dead server from the API, which may be too late, or never. So while a server is out, or kube-proxy does
//! not have them all, connections go to the servers by a chain of our own instead. [`rules`] decides and plans, [`ipvs`] reads
//! what IPVS has; here it is read and done.

mod ipvs;
mod rules;

pub use rules::{Kind, service_chain};

use super::route::Route;
use super::{ForwardError, Forwarder, Wanted};
use portico_dataplane::iptables::{MARK_MASQ, Programs, Variant, plain_variant};
use portico_model::table::Family;
use rules::{HOOKS, Rules, Target};
use std::net::SocketAddr;

/// So often is it looked anew because somebody changed the table meanwhile.
const ATTEMPTS: usize = 3;

/// The programs of both variants, as far as they are installed.
pub fn installed_programs() -> Vec<Programs> {
    [Variant::Nft, Variant::Legacy].into_iter().filter_map(Programs::find).collect()
}

pub struct KubeProxy {
    kind: Kind,
    programs: Vec<Programs>,
    /// Where nothing of ours is, because we looked.
    clean: Vec<(Variant, Family)>,
}

impl KubeProxy {
    pub fn new(kind: Kind, programs: Vec<Programs>) -> KubeProxy {
        KubeProxy { kind, programs, clean: Vec::new() }
    }

    /// Everything in the variant that kube-proxy uses, nothing in the other.
    fn apply_family(&mut self, family: Family, route: Option<Route>) -> Result<(), ForwardError> {
        let chosen = route.as_ref().and_then(|_| self.choose(family));
        if route.is_some() && chosen.is_none() {
            return Err(ForwardError::Unfit("iptables is not installed".to_owned()));
        }
        for programs in self.programs.clone() {
            let place = (programs.variant, family);
            match route.as_ref().filter(|_| chosen == Some(programs.variant)) {
                Some(route) => {
                    self.clean.retain(|clean| *clean != place);
                    self.install(&programs, route)?;
                }
                None if self.clean.contains(&place) => {}
                None => self.clear(&programs, family)?,
            }
        }
        Ok(())
    }

    /// Where kube-proxy's chains are; else what the distribution prefers.
    fn choose(&self, family: Family) -> Option<Variant> {
        let holds = |test: &dyn Fn(&Programs) -> bool| self.programs.iter().find(|programs| test(programs));
        let serves = |programs: &Programs| self.kind == Kind::Iptables && serves(programs, family);
        let found = holds(&serves).or_else(|| holds(&|programs| marks(programs, family)));
        let preferred = || holds(&|programs| plain_variant() == Some(programs.variant));
        found.or_else(preferred).or(self.programs.first()).map(|programs| programs.variant)
    }

    fn install(&self, programs: &Programs, route: &Route) -> Result<(), ForwardError> {
        let mut result = Ok(());
        for _ in 0..ATTEMPTS {
            let target = self.target(programs, route);
            let wanted = rules::rules(self.kind, route, &target, marks(programs, route.family));
            result = self.change(programs, route.family, &wanted);
            if result.is_ok() {
                break;
            }
        }
        result
    }

    fn target(&self, programs: &Programs, route: &Route) -> Target {
        let complete = match self.kind {
            _ if !route.all_healthy => None,
            Kind::Iptables => {
                let chain = programs.list_chain(route.family, &service_chain(route.family)).unwrap_or_default();
                rules::covers(&chain, &route.servers, route.family).then_some(Target::Service)
            }
            Kind::Ipvs => {
                let list = std::fs::read_to_string("/proc/thread-self/net/ip_vs").unwrap_or_default();
                let serves = |address: &SocketAddr| ipvs::covers(&list, *address, &route.servers);
                route.cluster.filter(serves).map(Target::ClusterIp)
            }
        };
        complete.unwrap_or(Target::Servers)
    }

    fn clear(&mut self, programs: &Programs, family: Family) -> Result<(), ForwardError> {
        self.change(programs, family, &Rules::default())?;
        self.clean.push((programs.variant, family));
        Ok(())
    }

    fn change(&self, programs: &Programs, family: Family, wanted: &Rules) -> Result<(), ForwardError> {
        match rules::plan(self.kind, &self.read(programs, family), wanted) {
            Some(input) => Ok(programs.restore(family, &input)?),
            None => Ok(()),
        }
    }

    fn read(&self, programs: &Programs, family: Family) -> Rules {
        let chain = |name: &str| programs.list_chain(family, name);
        let hooks = HOOKS.map(|hook| rules::ours(self.kind, chain(hook).unwrap_or_default()));
        Rules { hooks, own: chain(self.kind.chain()) }
    }
}

/// kube-proxy's chain of `default/kubernetes:https` is there and leads somewhere.
pub fn serves(programs: &Programs, family: Family) -> bool {
    programs.list_chain(family, &service_chain(family)).is_some_and(|chain| rules::has_endpoints(&chain))
}

/// kube-proxy's chain that marks for masquerading is there.
fn marks(programs: &Programs, family: Family) -> bool {
    programs.list_chain(family, MARK_MASQ).is_some_and(|chain| !chain.is_empty())
}

impl Forwarder for KubeProxy {
    fn name(&self) -> &'static str {
        self.kind.name()
    }

    fn apply(&mut self, wanted: &Wanted) -> Result<(), ForwardError> {
        Family::BOTH.into_iter().try_for_each(|family| self.apply_family(family, wanted.route(family)))
    }

    fn rules(&mut self) -> Result<Vec<String>, ForwardError> {
        let mut lines = Vec::new();
        for programs in &self.programs {
            for family in Family::BOTH.into_iter().filter(|family| !self.clean.contains(&(programs.variant, *family))) {
                let Rules { hooks, own } = self.read(programs, family);
                let own = (self.kind.chain(), own.unwrap_or_default());
                let program = programs.name(family, "");
                for (chain, rules) in HOOKS.into_iter().zip(hooks).chain([own]) {
                    lines.extend(rules.iter().map(|rule| format!("{program} -t nat -A {chain} {rule}")));
                }
            }
        }
        Ok(lines)
    }

    fn remove(&mut self) -> Result<(), ForwardError> {
        let mut result = Ok(());
        for programs in self.programs.clone() {
            // One family that is not there does not keep the other's rules.
            result = Family::BOTH.into_iter().fold(result, |so_far, family| so_far.and(self.clear(&programs, family)));
        }
        result
    }
}

#[cfg(test)]
mod tests;
