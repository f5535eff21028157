//! The way to the kernel: read everything, commit a plan. Tests put a fake in its place.

use super::encode;
use super::plan::Plan;
use super::read;
use super::sets::Table;
use super::snapshot::Snapshot;
use super::watch::Watch;
use crate::ApplyError;
use crate::netlink::{Messages, Replies, Socket};
use portico_model::table::{Family, PerFamily};
use std::io;
use std::time::{Duration, Instant};

/// The kernel, as far as the dataplane uses it; tests have one in memory.
pub trait Kernel: Send {
    /// The table that is ours.
    fn table(&self) -> Table {
        Table::NODE
    }

    /// Reads our tables.
    fn read(&mut self) -> Result<Snapshot, ApplyError>;

    /// The families that have our table.
    fn tables(&mut self) -> Result<PerFamily<bool>, ApplyError>;

    /// Whether it is known that no other program changed our tables since they were read.
    fn is_undisturbed(&mut self) -> bool;

    /// Do all of a plan or nothing. With a generation it is done only if no rule of any table
    /// changed since.
    fn commit(&mut self, plan: &Plan, generation: Option<u32>) -> Result<Sent, CommitError>;
}

/// What was sent.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sent {
    /// The length of the batch.
    pub bytes: usize,
    /// How long the kernel took.
    pub kernel: Duration,
}

/// Why a plan was not done.
#[derive(Debug, thiserror::Error)]
pub enum CommitError {
    /// Rules changed since the snapshot: read again.
    #[error("the rule set changed meanwhile")]
    Changed,
    /// The kernel refused it.
    #[error(transparent)]
    Failed(ApplyError),
}

impl From<CommitError> for ApplyError {
    fn from(error: CommitError) -> Self {
        match error {
            CommitError::Changed => {
                let source = io::Error::new(
                    io::ErrorKind::ResourceBusy,
                    "the rule set changes all the time",
                );
                Self::Kernel {
                    doing: "nftables batch".to_owned(),
                    source,
                }
            }
            CommitError::Failed(error) => error,
        }
    }
}

/// The kernel of the network namespace that it was opened in.
pub struct Netlink {
    table: Table,
    socket: Socket,
    messages: Messages,
    watch: Option<Watch>,
}

/// A batch is tried so often when the kernel is short of something for a moment.
const ATTEMPTS: usize = 3;
/// Memory for messages beyond this is given back.
const KEPT: usize = 1 << 20;
/// Batches with more operations than this are too large for the kernel's notifications.
const LARGE: usize = 2000;

impl Netlink {
    /// Opens the socket, in the network namespace of the calling thread.
    pub fn open(table: Table) -> Result<Self, ApplyError> {
        let unwatched = Self::unwatched(table)?;
        let watch = Watch::open(unwatched.socket.port(), table.name).inspect_err(
            |error| tracing::warn!(%error, "cannot notice who else changes nftables rules"),
        );
        Ok(Self {
            watch: watch.ok(),
            ..unwatched
        })
    }

    /// Opens a table that is read each time.
    pub fn unwatched(table: Table) -> Result<Self, ApplyError> {
        let socket =
            Socket::netfilter().map_err(|error| failed("opening a netlink socket", error))?;
        Ok(Self {
            table,
            socket,
            messages: Messages::new(),
            watch: None,
        })
    }

    /// Our rules in one family, by their fingerprints.
    pub fn fingerprints(&mut self, family: Family) -> Result<Vec<Option<u64>>, ApplyError> {
        let found = read::fingerprints(&mut self.socket, family, self.table.name);
        found.map_err(|error| failed("reading nftables rules", error))
    }

    /// A watch that tells when another program changes our tables, if the kernel allows one.
    pub fn watch(&self) -> Option<Watch> {
        self.watch.clone()
    }

    /// Delete tables of this name, in both families, as far as there are any. Returns how many
    /// there were.
    pub fn delete_tables(&mut self, name: &str) -> Result<usize, ApplyError> {
        let found = self.find_tables(name)?;
        let present: Vec<Family> = Family::BOTH
            .into_iter()
            .filter(|family| *found.get(*family))
            .collect();
        if !present.is_empty() {
            self.messages.clear();
            encode::batch(&mut self.messages, None, |m| {
                present
                    .iter()
                    .for_each(|family| encode::delete_table(m, *family, name));
            });
            self.exchange()?;
        }
        Ok(present.len())
    }

    fn find_tables(&mut self, name: &str) -> Result<PerFamily<bool>, ApplyError> {
        let mut find = |family| {
            let found = read::has_table(&mut self.socket, family, name);
            found.map_err(|error| failed("listing nftables tables", error))
        };
        Ok(PerFamily {
            v4: find(Family::V4)?,
            v6: find(Family::V6)?,
        })
    }

    fn exchange(&mut self) -> Result<Duration, CommitError> {
        let mut attempt = 1;
        loop {
            let start = Instant::now();
            match self.socket.exchange_batch(&self.messages).and_then(outcome) {
                Ok(()) => return Ok(start.elapsed()),
                Err(error) if error.raw_os_error() == Some(libc::ERESTART) => {
                    return Err(CommitError::Changed);
                }
                Err(error) if attempt < ATTEMPTS && is_momentary(&error) => attempt += 1,
                Err(error) => return Err(CommitError::Failed(failed("nftables batch", error))),
            }
        }
    }
}

/// A large batch, of which the kernel sends no notifications; the generation of the rule set shows
/// whether it was the only change meanwhile.
struct Unheard {
    watch: Watch,
    generation: Option<u32>,
}

impl Unheard {
    fn begin(watch: &Watch, socket: &mut Socket) -> Option<Self> {
        // The generation is read first, so that no change falls between it and the pause unnoticed.
        let generation = read::generation(socket).ok();
        watch.pause().ok()?;
        Some(Self {
            watch: watch.clone(),
            generation,
        })
    }

    fn end(self, socket: &mut Socket, committed: bool) {
        let joined = self.watch.resume().is_ok();
        let expected = self
            .generation
            .map(|before| before.wrapping_add(committed.into()));
        if !joined || expected.is_none() || read::generation(socket).ok() != expected {
            self.watch.suspect();
        }
    }
}

impl Kernel for Netlink {
    fn table(&self) -> Table {
        self.table
    }

    fn read(&mut self) -> Result<Snapshot, ApplyError> {
        let reset = self.watch.as_ref().map_or(Ok(()), Watch::reset);
        reset.map_err(|error| failed("reading notifications", error))?;
        read::snapshot(&mut self.socket, self.table.name)
            .map_err(|error| failed("reading nftables rules", error))
    }

    fn tables(&mut self) -> Result<PerFamily<bool>, ApplyError> {
        self.find_tables(self.table.name)
    }

    fn is_undisturbed(&mut self) -> bool {
        self.watch
            .as_ref()
            .is_some_and(|watch| matches!(watch.touched(), Ok(false)))
    }

    fn commit(&mut self, plan: &Plan, generation: Option<u32>) -> Result<Sent, CommitError> {
        self.messages.clear();
        encode::batch(&mut self.messages, generation, |m| {
            encode::plan(m, self.table.name, plan)
        });
        let large = self.watch.as_ref().filter(|_| plan.operations() > LARGE);
        let unheard = large.and_then(|watch| Unheard::begin(watch, &mut self.socket));
        let result = self.exchange();
        if let Some(unheard) = unheard {
            unheard.end(&mut self.socket, result.is_ok());
        }
        let bytes = self.messages.len();
        if bytes > KEPT {
            self.messages = Messages::new();
        }
        Ok(Sent {
            bytes,
            kernel: result?,
        })
    }
}

/// A batch is done if its last operation was acknowledged and nothing was refused. The error of a
/// momentary shortage stays what it is; others are said in the kernel's words.
fn outcome(replies: Replies) -> io::Result<()> {
    let count = replies.refused.len();
    let Some(first) = replies.refused.into_iter().next() else {
        return match replies.acknowledged {
            0 => Err(io::Error::from_raw_os_error(libc::ENOBUFS)),
            _ => Ok(()),
        };
    };
    if is_momentary(&first.error) || first.error.raw_os_error() == Some(libc::ERESTART) {
        return Err(first.error);
    }
    if first.error.raw_os_error() == Some(libc::ENFILE) {
        // Comparing everything makes it larger.
        return Err(io::Error::new(io::ErrorKind::StorageFull, "a set is full"));
    }
    let text = first
        .text
        .map(|text| format!(": {text}"))
        .unwrap_or_default();
    let text = format!(
        "{}{text} (operation {}, {count} refused)",
        first.error, first.sequence
    );
    Err(io::Error::new(first.error.kind(), text))
}

fn is_momentary(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EINTR | libc::ENOBUFS | libc::EAGAIN | libc::EBUSY | libc::ENOMEM)
    )
}

fn failed(doing: &str, source: io::Error) -> ApplyError {
    ApplyError::Kernel {
        doing: doing.to_owned(),
        source,
    }
}
