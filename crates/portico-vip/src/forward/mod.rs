//! What comes to the virtual address goes to an API server. One way a file; all are chosen at run
//! time.
//!
//! [`direct`] needs no other program, [`kube_proxy`] stands beside kube-proxy (in iptables and IPVS
//! mode), [`node`] has Portico's node daemon do it, [`haproxy`] runs HAProxy. [`choose`] decides
//! which way, from what is on the node; [`Forwarding`] is all of it for the callers. [`flows`] ends
//! connections to servers that are gone.

mod choose;
mod direct;
mod flows;
mod haproxy;
mod kube_proxy;
mod node;
mod route;
pub(crate) mod worker;

pub use choose::Mode;
pub use haproxy::HaproxySettings;

use crate::servers::Server;
use choose::{Choice, Surroundings};
use direct::Direct;
use flows::Flows;
use haproxy::Haproxy;
use kube_proxy::{Kind, KubeProxy};
use node::Node;
use portico_dataplane::ApplyError;
use portico_dataplane::iptables::Programs;
use portico_model::static_services;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

/// What is to be forwarded where, on every node that runs `portico vip`, whether it has the address
/// or not: a take-over finds it ready, and clients on the node need no owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The virtual addresses.
    pub addresses: Vec<IpAddr>,
    /// The port of the virtual addresses.
    pub port: u16,
    /// All that are known, in a stable order. [`crate::servers::eligible`] says which of them get
    /// connections.
    pub servers: Vec<Server>,
    /// The cluster IPs and the port of `default/kubernetes`, where they are known.
    pub cluster: Vec<SocketAddr>,
    /// We are about to go: what is open goes on here, new connections are for the owner of the
    /// address. For the ways that cut open connections when they end.
    pub closing: bool,
}

#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each message says what its variant means")]
pub enum ForwardError {
    #[error(transparent)]
    Dataplane(#[from] ApplyError),
    #[error("{doing}: {source}")]
    Io {
        doing: String,
        source: std::io::Error,
    },
    #[error("{0}")]
    Unfit(String),
}

/// One way to forward.
pub trait Forwarder: Send {
    /// The name of the way, for logs and `portico vip status`.
    fn name(&self) -> &'static str;

    /// Make it so; called when something changed, and on a slow timer to put back what others
    /// removed. What is right already is not touched.
    fn apply(&mut self, wanted: &Wanted) -> Result<(), ForwardError>;

    /// The rules in force, as their own tool prints them, for `portico vip status`.
    fn rules(&mut self) -> Result<Vec<String>, ForwardError>;

    /// Remove everything of ours, also what an earlier process left, and nothing else.
    fn remove(&mut self) -> Result<(), ForwardError>;
}

/// What the operator decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForwardSettings {
    /// Which way is taken, or that it is chosen by what is on the node.
    pub mode: Mode,
    /// Where Portico's node daemon looks for static Services.
    pub static_services: PathBuf,
    /// The bit of the packet mark that asks for masquerading, where we masquerade ourselves. It is
    /// kube-proxy's, which other programs keep clear of.
    pub masquerade_mark: u32,
    /// How HAProxy is run, where it is the way.
    pub haproxy: HaproxySettings,
}

impl Default for ForwardSettings {
    fn default() -> Self {
        Self {
            mode: Mode::Auto,
            static_services: static_services::FOLDER.into(),
            masquerade_mark: 1 << 14,
            haproxy: HaproxySettings::default(),
        }
    }
}

/// What is in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied {
    /// Never [`Mode::Auto`].
    pub mode: Mode,
    /// Why it was chosen, for people.
    pub why: String,
    /// What keeps some from being forwarded, with the way out.
    pub problems: Vec<String>,
}

/// Forwards by the way that fits this node. Everything here waits for the kernel and for programs:
/// it is for a thread of its own, and for the network namespace of that thread.
pub struct Forwarding {
    settings: ForwardSettings,
    /// iptables, as far as it is installed.
    programs: Vec<Programs>,
    current: Option<Current>,
    /// What was last applied.
    wanted: Option<Wanted>,
    flows: Flows,
}

struct Current {
    choice: Choice,
    way: Box<dyn Forwarder>,
}

/// A way that does not work any more.
struct Broken {
    mode: Mode,
    error: ForwardError,
}

impl Current {
    fn apply(&mut self, wanted: &Wanted) -> Result<(), Broken> {
        self.way.apply(wanted).map_err(|error| {
            tracing::warn!(way = self.way.name(), %error, "cannot forward this way any more");
            Broken {
                mode: self.choice.mode,
                error,
            }
        })
    }
}

impl Forwarding {
    /// Nothing is forwarded before the first call.
    pub fn new(settings: ForwardSettings) -> Self {
        Self {
            settings,
            programs: kube_proxy::installed_programs(),
            current: None,
            wanted: None,
            flows: Flows::default(),
        }
    }

    /// Make it so. To be called when anything of it changed, which is then done at once, and on a
    /// slow timer with what it was before: then what others changed is put back, and it is looked
    /// again which way fits.
    pub fn apply(&mut self, wanted: &Wanted) -> Result<Applied, ForwardError> {
        let changed = self.wanted.as_ref() != Some(wanted);
        let urgent = self
            .current
            .as_mut()
            .filter(|_| changed)
            .map(|current| current.apply(wanted));
        match urgent {
            Some(Ok(())) => {}
            // There is no time to try twice what just failed.
            Some(Err(broken)) => self.choose_and_apply(wanted, Some(broken))?,
            None => self.choose_and_apply(wanted, None)?,
        }
        self.wanted = Some(wanted.clone());
        self.flows.end(wanted);
        self.applied(wanted)
    }

    /// The rules in force, as their own tool prints them.
    pub fn rules(&mut self) -> Result<Vec<String>, ForwardError> {
        self.current
            .as_mut()
            .map_or(Ok(Vec::new()), |current| current.way.rules())
    }

    /// Remove everything of ours, whichever way installed it, also what an earlier process left.
    pub fn remove(&mut self) -> Result<(), ForwardError> {
        self.wanted = None;
        match self.current.take() {
            // What other ways had left went when this one came.
            Some(mut current) => current.way.remove(),
            // One that cannot be removed does not keep the others.
            None => Mode::WAYS
                .map(|mode| self.remove_way(mode))
                .into_iter()
                .collect(),
        }
    }

    /// The first way that fits and works, but for the one that was just found not to.
    fn choose_and_apply(
        &mut self,
        wanted: &Wanted,
        broken: Option<Broken>,
    ) -> Result<(), ForwardError> {
        let (broken, mut failure) = broken.map(|Broken { mode, error }| (mode, error)).unzip();
        for mut choice in self
            .choices(wanted)
            .into_iter()
            .filter(|choice| Some(choice.mode) != broken)
        {
            if let Some(failure) = &failure {
                choice.why = format!("{}; the better way does not work: {failure}", choice.why);
            }
            match self.apply_by(choice, wanted) {
                Ok(()) => return Ok(()),
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        Err(failure.unwrap_or_else(|| ForwardError::Unfit("there is no way to forward".to_owned())))
    }

    fn choices(&self, wanted: &Wanted) -> Vec<Choice> {
        match self.settings.mode {
            Mode::Auto => choose::choices(&Surroundings::look(
                wanted,
                &self.programs,
                &self.settings.static_services,
            )),
            mode => vec![Choice {
                mode,
                why: "the configuration says so".to_owned(),
            }],
        }
    }

    /// Another way is in force before the one it replaces goes.
    fn apply_by(&mut self, choice: Choice, wanted: &Wanted) -> Result<(), ForwardError> {
        if let Some(current) = self
            .current
            .as_mut()
            .filter(|current| current.choice.mode == choice.mode)
        {
            current.choice = choice;
            return current.way.apply(wanted);
        }
        let mut way = self.open(choice.mode)?;
        if let Err(error) = way.apply(wanted) {
            _ = way.remove();
            return Err(error);
        }
        tracing::info!(
            way = way.name(),
            why = choice.why,
            "forwarding the virtual address"
        );
        let mode = choice.mode;
        match self.current.replace(Current { choice, way }) {
            Some(mut old) => note_leftovers(old.choice.mode, old.way.remove()),
            None => {
                let others = Mode::WAYS.into_iter().filter(|other| *other != mode);
                others.for_each(|other| note_leftovers(other, self.remove_way(other)));
            }
        }
        Ok(())
    }

    fn open(&self, mode: Mode) -> Result<Box<dyn Forwarder>, ForwardError> {
        let beside = |kind| KubeProxy::new(kind, self.programs.clone());
        Ok(match mode {
            Mode::Portico => Box::new(Node::new(&self.settings.static_services)),
            Mode::Iptables => Box::new(beside(Kind::Iptables)),
            Mode::Ipvs => Box::new(beside(Kind::Ipvs)),
            Mode::Haproxy => Box::new(Haproxy::open(
                self.settings.haproxy.clone(),
                self.settings.masquerade_mark,
            )?),
            Mode::Direct | Mode::Auto => Box::new(Direct::open(self.settings.masquerade_mark)?),
        })
    }

    fn remove_way(&self, mode: Mode) -> Result<(), ForwardError> {
        match self.open(mode).and_then(|mut way| way.remove()) {
            Err(ForwardError::Dataplane(error)) if is_absent(&error) => Ok(()),
            removed => removed,
        }
    }

    fn applied(&self, wanted: &Wanted) -> Result<Applied, ForwardError> {
        let nothing = || ForwardError::Unfit("nothing is in force".to_owned());
        let Choice { mode, why } = self.current.as_ref().ok_or_else(nothing)?.choice.clone();
        Ok(Applied {
            mode,
            why,
            problems: route::problems(wanted),
        })
    }
}

fn note_leftovers(mode: Mode, removed: Result<(), ForwardError>) {
    if let Err(error) = removed {
        tracing::warn!(?mode, %error, "cannot remove what this way may have left");
    }
}

/// The kernel does not know what it was asked for: without nftables there are no nftables rules.
fn is_absent(error: &ApplyError) -> bool {
    let ApplyError::Kernel { source, .. } = error else {
        return false;
    };
    let absent = [
        libc::EINVAL,
        libc::EOPNOTSUPP,
        libc::EPROTONOSUPPORT,
        libc::EAFNOSUPPORT,
    ];
    source
        .raw_os_error()
        .is_some_and(|code| absent.contains(&code))
}
