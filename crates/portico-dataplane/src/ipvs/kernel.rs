//! The way to the kernel: read everything, do operations. Tests put a fake in its place.

use super::Options;
use super::plan::Operation;
use super::read;
use super::rules;
use super::server::{At, Destination};
use super::sets::{Entry, Set, is_kube_proxys};
use super::snapshot::Snapshot;
use super::sysctls;
use super::wire::{link, server, set};
use crate::conntrack::local::LocalAddresses;
use crate::iptables::fixed::Features;
use crate::iptables::plan::{Planner, Run, Sink};
use crate::iptables::read::Installed;
use crate::iptables::repair::repair_fixed;
use crate::iptables::run::Programs;
use crate::iptables::{self, Variant, names};
use crate::netlink::{Messages, Socket, generic};
use crate::{ApplyError, Report};
use portico_model::table::{Family, NodeRules};
use std::collections::BTreeSet;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub trait Kernel: Send {
    /// Make what everything else is put into: the link, and the sets of a family.
    fn prepare(&mut self, family: Family) -> Result<(), ApplyError>;

    fn read(&mut self) -> Result<Snapshot, ApplyError>;

    /// The same, where nothing may be made.
    fn look(&mut self) -> Result<Snapshot, ApplyError> {
        self.read()
    }

    /// How the rules are not what they should be, in words.
    fn compare_rules(
        &mut self,
        family: Family,
        rules: &NodeRules,
    ) -> Result<Vec<String>, ApplyError>;

    /// What a virtual server has; nothing, if it is not there.
    fn destinations(&mut self, at: At) -> Result<Vec<Destination>, ApplyError>;

    /// Does operations of one kind, one after the other. After an error some are done and some are
    /// not.
    fn send(&mut self, operations: &[Operation]) -> Result<Sent, ApplyError>;

    /// Whether rules of ours are there, of whichever mode.
    fn has_rules(&mut self) -> bool;

    /// Make the rules what they should be. What differed, in words.
    fn repair_rules(
        &mut self,
        family: Family,
        rules: &NodeRules,
        report: &mut Report,
    ) -> Result<Vec<String>, ApplyError>;

    /// Remove sets that only kube-proxy used.
    fn tidy(&mut self) -> Result<(), ApplyError>;
}

/// What was sent.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sent {
    pub bytes: usize,
    pub kernel: Duration,
}

/// The kernel of the network namespace that it was opened in.
pub struct Netlink {
    servers: Socket,
    requests: server::Requests,
    sets: Socket,
    links: Socket,
    /// Sets that were made larger, because they were full.
    large: BTreeSet<&'static str>,
    /// The number of our link, once it is known.
    link: Option<u32>,
    local: LocalAddresses,
    programs: Programs,
}

/// Operations that are sent at once; each is some hundred bytes.
const TOGETHER: usize = 8 << 10;
/// The time limit for the kernel to finish what it does later.
const A_MOMENT: Duration = Duration::from_millis(100);
/// Takes a set's place while it is made anew.
const SPARE: &str = "PORTICO-SPARE";

impl Netlink {
    pub fn open(options: &Options) -> Result<Self, ApplyError> {
        let netlink = Self::open_to_look(options)?;
        sysctls::apply(options.strict_arp)?;
        Ok(netlink)
    }

    /// Changes nothing.
    pub fn open_to_look(options: &Options) -> Result<Self, ApplyError> {
        let open = |protocol| {
            Socket::open(protocol).map_err(|error| failed("opening a netlink socket", error))
        };
        let mut servers = open(libc::NETLINK_GENERIC)?;
        let subsystem = generic::family(&mut servers, server::SUBSYSTEM).map_err(|source| {
            ApplyError::Kernel {
                doing:
                    "the kernel has no IPVS: load the module ip_vs, or use --proxy-mode=nftables"
                        .to_owned(),
                source,
            }
        })?;
        Ok(Self {
            servers,
            requests: server::Requests { subsystem },
            sets: open(libc::NETLINK_NETFILTER)?,
            links: open(libc::NETLINK_ROUTE)?,
            large: BTreeSet::new(),
            link: None,
            local: LocalAddresses::open()
                .map_err(|error| failed("opening a netlink socket", error))?,
            programs: iptables::choose(options.variant)?,
        })
    }

    pub fn variant(&self) -> Variant {
        self.programs.variant
    }

    /// The scheduler if the kernel has it, or else round robin.
    pub fn scheduler(&mut self, wanted: &Arc<str>) -> Result<Arc<str>, ApplyError> {
        let mut request = Messages::new();
        self.requests.add_probe(&mut request, wanted);
        let added = self
            .servers
            .exchange(&request)
            .and_then(|replies| replies.into_result());
        let mut request = Messages::new();
        self.requests.delete_probe(&mut request);
        // The probe server was left by an interrupted process, or has just been made.
        let _ = self.servers.exchange(&request);
        match added {
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) && &**wanted != "rr" => {
                tracing::warn!(
                    scheduler = %wanted,
                    "the kernel does not have this scheduler: load the module ip_vs_{wanted}; \
                     using rr instead"
                );
                self.scheduler(&"rr".into())
            }
            Err(error) if error.raw_os_error() != Some(libc::EEXIST) => Err(failed(
                format!("making a virtual server with scheduler {wanted} (module ip_vs_{wanted})"),
                error,
            )),
            _ => Ok(wanted.clone()),
        }
    }

    pub fn set_timeouts(&mut self, options: &Options) -> Result<(), ApplyError> {
        let (tcp, tcp_fin, udp) = (
            options.tcp_timeout,
            options.tcp_fin_timeout,
            options.udp_timeout,
        );
        if [tcp, tcp_fin, udp].iter().all(Duration::is_zero) {
            return Ok(());
        }
        let mut request = Messages::new();
        self.requests.timeouts(&mut request, tcp, tcp_fin, udp);
        let done = self
            .servers
            .exchange(&request)
            .and_then(|replies| replies.into_result());
        done.map(drop)
            .map_err(|error| failed("setting the timeouts of IPVS", error))
    }

    /// The number of our link, which is made if it is not there.
    fn make_link(&mut self) -> Result<u32, ApplyError> {
        if let Some(index) = find_link(&mut self.links)? {
            self.link = Some(index);
            return Ok(index);
        }
        let made = self
            .links
            .exchange(&link::create())
            .and_then(|replies| replies.into_result());
        made.map_err(|error| {
            failed(
                format!("making the link {} (module dummy)", link::LINK),
                error,
            )
        })?;
        let index = find_link(&mut self.links)?;
        self.link = index;
        index.ok_or_else(|| {
            failed(
                format!("finding the link {}", link::LINK),
                io::ErrorKind::NotFound.into(),
            )
        })
    }

    fn make_set(&mut self, set: Set, family: Family) -> Result<(), ApplyError> {
        let name = set.name(family);
        match read::is_as_made(&mut self.sets, set, family)? {
            Some(true) => Ok(()),
            None => self.sets_do(&format!("making the set {name}"), |m| {
                set::create(m, name, set, family, set::USUAL)
            }),
            Some(false) => self.make_set_anew(set, family, set::USUAL),
        }
    }

    /// Its entries are kept: packets look into it.
    fn make_set_anew(&mut self, set: Set, family: Family, most: u32) -> Result<(), ApplyError> {
        let name = set.name(family);
        let doing = format!("making the set {name} anew");
        let entries = read::entries(&mut self.sets, set, family)?;
        _ = self.sets_do(&doing, |m| set::destroy(m, SPARE));
        self.sets_do(&doing, |m| set::create(m, SPARE, set, family, most))?;
        // Without entries there is no message, and so no answer to wait for.
        if !entries.is_empty() {
            self.sets_do(&doing, |m| set::add(m, SPARE, &entries))?;
        }
        self.sets_do(&doing, |m| set::swap(m, SPARE, name))?;
        self.sets_do(&doing, |m| set::destroy(m, SPARE))
    }

    /// Makes room in the set that an operation adds to, once. Says whether it did.
    fn make_room(&mut self, operation: &Operation) -> Result<bool, ApplyError> {
        let Operation::AddEntry(set, entry) = operation else {
            return Ok(false);
        };
        let family = entry.family();
        if *set == Set::HealthCheck || !self.large.insert(set.name(family)) {
            return Ok(false);
        }
        tracing::info!(set = set.name(family), "the set is full and made larger");
        self.make_set_anew(*set, family, set::LARGE).map(|()| true)
    }

    fn sets_do(
        &mut self,
        doing: &str,
        write: impl FnOnce(&mut Messages),
    ) -> Result<(), ApplyError> {
        let mut request = Messages::new();
        write(&mut request);
        let done = self
            .sets
            .exchange(&request)
            .and_then(|replies| replies.into_result());
        done.map(drop)
            .map_err(|error| failed(doing, set::explain(error)))
    }

    fn send_some(&mut self, operations: &[Operation], sent: &mut Sent) -> Result<(), ApplyError> {
        let Some(first) = operations.first() else {
            return Ok(());
        };
        let mut batch = Batch::default();
        match way(first) {
            Way::Sets => batch.entries(operations),
            Way::Servers => batch.servers(operations, self.requests),
            Way::Links => batch.addresses(operations, self.make_link_if_unknown()?),
        }
        let socket = match way(first) {
            Way::Sets => &mut self.sets,
            Way::Servers => &mut self.servers,
            Way::Links => &mut self.links,
        };
        sent.bytes += batch.messages.len();
        let replies = socket
            .exchange(&batch.messages)
            .map_err(|error| failed(first.to_string(), error))?;
        for refusal in replies.refused {
            let operation = batch
                .first
                .get(refusal.sequence.wrapping_sub(1) as usize)
                .and_then(|at| operations.get(*at));
            let operation = operation.unwrap_or(first);
            // What of the batch was done is no error when it is sent again.
            if set::is_full(&refusal.error) && self.make_room(operation)? {
                return self.send_some(operations, sent);
            }
            match (
                is_done(operation, &refusal.error),
                is_unusable(operation, &refusal.error),
            ) {
                (true, _) => {}
                (_, true) => {
                    tracing::warn!(error = %refusal.error, "cannot {operation}: the kernel does not take such an address")
                }
                _ => return Err(failed(operation.to_string(), set::explain(refusal.error))),
            }
        }
        self.await_local(operations);
        Ok(())
    }

    /// The kernel takes an IPv6 address for its own a moment after it said that it has it; until
    /// then packets pass by.
    fn await_local(&mut self, operations: &[Operation]) {
        let bound = |operation: &Operation| match operation {
            Operation::Bind(address @ IpAddr::V6(_)) => Some(*address),
            _ => None,
        };
        let Some(last) = operations.iter().filter_map(bound).next_back() else {
            return;
        };
        let deadline = Instant::now() + A_MOMENT;
        loop {
            self.local.forget();
            if self.local.has(last) || Instant::now() > deadline {
                return;
            }
            std::thread::sleep(Duration::from_micros(100));
        }
    }

    /// Gives what the rules lack to `send`.
    fn repair_rules_by<E>(
        &self,
        installed: Installed,
        (family, rules): (Family, &NodeRules),
        send: &mut dyn FnMut(&Run) -> Result<(), E>,
    ) -> Result<Vec<String>, E> {
        let features = Features {
            random_fully: self.programs.random_fully(),
            drop_invalid: false,
        };
        let chains = rules::chains(rules, family, features);
        let mut sink = Sink::new(iptables::split_after(self.programs.variant), send);
        let planner = Planner {
            rules,
            family,
            features,
        };
        repair_fixed(planner, installed, &chains, &rules::hooks(), &mut sink)
            .map(|drift| drift.words())
    }

    fn make_link_if_unknown(&mut self) -> Result<u32, ApplyError> {
        match self.link {
            Some(index) => Ok(index),
            None => self.make_link(),
        }
    }
}

impl Kernel for Netlink {
    fn prepare(&mut self, family: Family) -> Result<(), ApplyError> {
        self.make_link()?;
        Set::ALL
            .into_iter()
            .try_for_each(|set| self.make_set(set, family))
    }

    fn read(&mut self) -> Result<Snapshot, ApplyError> {
        let link = self.make_link_if_unknown()?;
        read::snapshot(
            &mut self.servers,
            self.requests,
            &mut self.sets,
            &mut self.links,
            link,
        )
    }

    fn destinations(&mut self, at: At) -> Result<Vec<Destination>, ApplyError> {
        read::destinations(&mut self.servers, self.requests, at)
    }

    fn send(&mut self, operations: &[Operation]) -> Result<Sent, ApplyError> {
        let (start, mut sent) = (Instant::now(), Sent::default());
        for some in operations.chunks(TOGETHER) {
            self.send_some(some, &mut sent)?;
        }
        sent.kernel = start.elapsed();
        Ok(sent)
    }

    fn has_rules(&mut self) -> bool {
        Family::BOTH
            .iter()
            .any(|family| self.programs.has_chain(*family, names::SERVICES))
    }

    fn repair_rules(
        &mut self,
        family: Family,
        rules: &NodeRules,
        report: &mut Report,
    ) -> Result<Vec<String>, ApplyError> {
        let start = Instant::now();
        let installed = self.programs.save(family)?;
        report.kernel += start.elapsed();
        let mut send = |run: &Run| iptables::send(&self.programs, family, run, report);
        self.repair_rules_by(installed, (family, rules), &mut send)
    }

    fn look(&mut self) -> Result<Snapshot, ApplyError> {
        // No link has the number 0: without ours, no address is on it.
        let link = find_link(&mut self.links)?.unwrap_or_default();
        read::snapshot(
            &mut self.servers,
            self.requests,
            &mut self.sets,
            &mut self.links,
            link,
        )
    }

    fn compare_rules(
        &mut self,
        family: Family,
        rules: &NodeRules,
    ) -> Result<Vec<String>, ApplyError> {
        let installed = self.programs.save(family)?;
        let mut unsent = |_: &Run| Ok::<(), ApplyError>(());
        self.repair_rules_by(installed, (family, rules), &mut unsent)
    }

    fn tidy(&mut self) -> Result<(), ApplyError> {
        for name in read::set_names(&mut self.sets)?
            .iter()
            .filter(|name| is_kube_proxys(name))
        {
            self.sets_do(&format!("removing the set {name}"), |m| {
                set::destroy(m, name)
            })?;
        }
        Ok(())
    }
}

/// The number of the link with our name, if there is one; an error if it is of another kind.
pub(super) fn find_link(links: &mut Socket) -> Result<Option<u32>, ApplyError> {
    match links.query(&link::find(), |message| Some(link::parse_link(&message))) {
        Ok(found) => match found.into_iter().next() {
            Some(Some(index)) => Ok(Some(index)),
            Some(None) => Err(failed(
                format!("{} is not a dummy link", link::LINK),
                io::ErrorKind::AlreadyExists.into(),
            )),
            None => Ok(None),
        },
        Err(error) if error.raw_os_error() == Some(libc::ENODEV) => Ok(None),
        Err(error) => Err(failed(
            format!("looking for the link {}", link::LINK),
            error,
        )),
    }
}

#[derive(Clone, Copy)]
enum Way {
    Sets,
    Servers,
    Links,
}

fn way(operation: &Operation) -> Way {
    match operation {
        Operation::AddEntry(..) | Operation::DeleteEntry(..) => Way::Sets,
        Operation::Bind(_) | Operation::Unbind(_) => Way::Links,
        _ => Way::Servers,
    }
}

/// Operations as messages.
#[derive(Default)]
struct Batch {
    messages: Messages,
    /// The first operation of each message.
    first: Vec<usize>,
}

impl Batch {
    fn entries(&mut self, operations: &[Operation]) {
        let target = |operation: &Operation| match operation {
            Operation::AddEntry(set, entry) => Some((true, set.name(entry.family()), *entry)),
            Operation::DeleteEntry(set, entry) => Some((false, set.name(entry.family()), *entry)),
            _ => None,
        };
        let same = |one: &Operation, other: &Operation| {
            let of = |operation| target(operation).map(|(add, name, _)| (add, name));
            of(one) == of(other)
        };
        let mut at = 0;
        for together in operations.chunk_by(same) {
            let entries: Vec<Entry> = together
                .iter()
                .filter_map(|one| target(one).map(|(_, _, entry)| entry))
                .collect();
            match together.first().and_then(target) {
                Some((true, name, _)) => set::add(&mut self.messages, name, &entries),
                Some((false, name, _)) => set::delete(&mut self.messages, name, &entries),
                None => {}
            }
            self.first
                .resize(self.messages.last_sequence() as usize, at);
            at += together.len();
        }
    }

    fn servers(&mut self, operations: &[Operation], requests: server::Requests) {
        let m = &mut self.messages;
        for operation in operations {
            match operation {
                Operation::AddServer(at, settings) => requests.add_server(m, *at, settings),
                Operation::EditServer(at, settings) => requests.edit_server(m, *at, settings),
                Operation::DeleteServer(at) => requests.delete_server(m, *at),
                Operation::AddDestination(at, endpoint) => {
                    requests.add_destination(m, *at, *endpoint)
                }
                Operation::Weigh(at, endpoint, weight) => {
                    requests.weigh(m, *at, *endpoint, *weight)
                }
                Operation::DeleteDestination(at, endpoint) => {
                    requests.delete_destination(m, *at, *endpoint)
                }
                _ => {}
            }
        }
        self.first = (0..operations.len()).collect();
    }

    fn addresses(&mut self, operations: &[Operation], index: u32) {
        for operation in operations {
            match operation {
                Operation::Bind(address) => link::bind(&mut self.messages, index, *address),
                Operation::Unbind(address) => link::unbind(&mut self.messages, index, *address),
                _ => {}
            }
        }
        self.first = (0..operations.len()).collect();
    }
}

/// The kernel refuses because it is so already.
fn is_done(operation: &Operation, error: &io::Error) -> bool {
    let gone = [libc::ENOENT, libc::ESRCH, libc::EADDRNOTAVAIL];
    match operation {
        Operation::DeleteServer(_)
        | Operation::DeleteDestination(..)
        | Operation::Weigh(_, _, 0)
        | Operation::Unbind(_) => error
            .raw_os_error()
            .is_some_and(|number| gone.contains(&number)),
        Operation::Bind(_) => error.raw_os_error() == Some(libc::EEXIST),
        _ => false,
    }
}

/// An object may have an address that no host can have, such as a network's broadcast address. All
/// others are served.
fn is_unusable(operation: &Operation, error: &io::Error) -> bool {
    let adds = matches!(
        operation,
        Operation::AddDestination(..) | Operation::Bind(_)
    );
    adds && matches!(
        error.raw_os_error(),
        Some(libc::EINVAL | libc::EADDRNOTAVAIL)
    )
}

pub(super) fn failed(doing: impl Into<String>, source: io::Error) -> ApplyError {
    ApplyError::Kernel {
        doing: doing.into(),
        source,
    }
}
