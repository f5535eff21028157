//! A forwarding table becomes a plan, a plan becomes kernel state.
//!
//! Each dataplane is a folder of the same shape: `plan` (pure: installed and wanted → operations),
//! `read` (what the kernel has), `mod` (the [`Dataplane`]: remembers what is installed, sends one
//! batch per change, atomic where the kernel has such). `netlink` has the message encoding and the
//! socket that they share, `conntrack` ends flows whose endpoint is gone, `early_packets` has
//! packets wait that come before their Service, `link` is for protocols below IP, `thread` for
//! loops that have to run on time.

pub mod conntrack;
pub mod early_packets;
pub mod iptables;
pub mod ipvs;
pub mod link;
pub mod netlink;
pub mod nftables;
#[doc(hidden)]
pub mod parsers;
#[cfg(test)]
mod testing;
pub mod thread;

use portico_model::table::{Change, ForwardingTable, NodeRules};
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// The kernel's side of a node, whichever way it forwards.
///
/// `replace` is called at start, after an error, when the node's rules change and on a slow timer;
/// `apply` for everything else.
pub trait Dataplane: Send {
    /// The name of the mode: `nftables`, `iptables` or `ipvs`.
    fn name(&self) -> &'static str;

    /// Make the kernel equal to the table: reads what is there, adopts what is right (also what an
    /// earlier process installed), repairs the rest in one batch. Nothing that is already right is
    /// touched, so that forwarding does not blink.
    fn replace(&mut self, table: &ForwardingTable) -> Result<Report, ApplyError>;

    /// Install changes of single ports in one batch, without reading the kernel. After an error
    /// what is installed is unknown: call `replace`.
    fn apply(&mut self, rules: &NodeRules, changes: &[Change]) -> Result<Report, ApplyError>;

    /// Whether it is known that no other program changed what is installed, so that a look for
    /// drift would find none. `false` where that cannot be known.
    fn is_undisturbed(&mut self) -> bool {
        false
    }

    /// Whether the node's addresses count beyond what the table says of them: then `replace` is
    /// called when they change.
    fn depends_on_addresses(&self) -> bool {
        false
    }

    /// When [`Dataplane::tend`] has something to do.
    fn due(&self) -> Option<Instant> {
        None
    }

    /// Finish what had to wait, such as removing an endpoint when its connections have ended. After
    /// an error what is installed is unknown: call `replace`.
    fn tend(&mut self, _now: Instant) -> Result<Report, ApplyError> {
        Ok(Report::default())
    }

    /// Whether the kernel has anything of ours, from an earlier process too. "Yes" where it cannot
    /// be told.
    fn is_installed(&mut self) -> Result<bool, ApplyError> {
        Ok(true)
    }

    /// Remove everything of ours, and nothing else.
    fn remove(&mut self) -> Result<(), ApplyError>;
}

/// What was done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Operations sent (elements, rules, chains; lines for iptables).
    pub operations: usize,
    /// Bytes sent.
    pub bytes: usize,
    /// Time spent in the kernel (or in the helper program): the part that no faster planning would
    /// save.
    pub kernel: Duration,
    /// What differed from what should have been installed, for `replace` on something that was
    /// installed before.
    pub drift: Vec<String>,
}

/// How the kernel differs from a table, as sentences for the reader of `explain` about one
/// frontend.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Differences {
    /// In what serves the frontend.
    pub of_frontend: Vec<String>,
    /// In what the packets for all frontends go through.
    pub of_all: Vec<String>,
    /// How many there are in what serves others.
    pub of_others: usize,
}

/// What the kernel has of the edge.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FoundEdge {
    /// Addresses of load balancers whose connections are shared out.
    pub addresses: BTreeSet<IpAddr>,
    /// Addresses of other nodes that have slots.
    pub nodes: BTreeSet<IpAddr>,
}

#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each message says what its variant means")]
pub enum ApplyError {
    #[error("{doing}: {source}")]
    Kernel {
        doing: String,
        source: std::io::Error,
    },
    #[error("{program}: {problem}")]
    Program { program: String, problem: String },
    #[error("{0}")]
    Limit(String),
}
