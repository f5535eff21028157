//! One error per operation. Whether trying again can help is part of the type; the cause is in the
//! source.

use std::error::Error as StdError;
use std::path::PathBuf;
use std::sync::Arc;

use crate::Revision;

/// The engine behind the store could not be asked, or did not answer.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{what}")]
pub struct Outage {
    what: String,
    /// True if a write was sent and not confirmed: it may have happened. False if it surely did
    /// not.
    pub unknown: bool,
    #[source]
    source: Option<Arc<dyn StdError + Send + Sync>>,
}

impl Outage {
    pub(crate) fn new(what: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            unknown: false,
            source: None,
        }
    }

    pub(crate) fn unknown(what: impl Into<String>) -> Self {
        let what = format!(
            "{}; the write may or may not have happened: read before trying again",
            what.into()
        );
        Self {
            what,
            unknown: true,
            source: None,
        }
    }

    /// The same, after a write that did happen.
    pub(crate) fn after_write(self) -> Self {
        Self {
            unknown: true,
            what: format!("{}, but the write happened", self.what),
            ..self
        }
    }

    pub(crate) fn because(mut self, source: impl StdError + Send + Sync + 'static) -> Self {
        self.source = Some(Arc::new(source));
        self
    }
}

#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each message says what its variant means")]
pub enum TxnError {
    /// The first check that did not hold, so that the caller can tell which claim was lost.
    #[error("{key} is not at the revision the transaction expects: read it and try again")]
    Conflict { key: String },
    #[error("the transaction has {size} {what}, the limit is {limit}: split it")]
    TooLarge {
        what: &'static str,
        size: usize,
        limit: usize,
    },
    #[error(
        "what is stored as {key} is damaged: restore a backup, or let go of it with portico store \
         repair"
    )]
    Damaged { key: String },
    #[error("the transaction is not valid: {reason}")]
    Invalid { reason: String },
    #[error(transparent)]
    Unavailable(Outage),
}

#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each message says what its variant means")]
pub enum ReadError {
    #[error(
        "the revision has been compacted, the oldest that can be read is {compacted}: list again"
    )]
    Compacted { compacted: Revision },
    #[error("revision {revision} has not happened yet, the store is at {current}")]
    Future {
        revision: Revision,
        current: Revision,
    },
    #[error("the prefix {prefix:?} does not start with a whole topic and a slash")]
    Prefix { prefix: String },
    #[error(transparent)]
    Unavailable(Outage),
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "each message says what its variant means")]
pub enum WatchError {
    #[error("the watch fell behind the history, which starts at {compacted}: list again")]
    Compacted { compacted: Revision },
    #[error("the store was closed")]
    Closed,
}

#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each message says what its variant means")]
pub enum CompactError {
    #[error("revision {revision} has not happened yet, the store is at {current}")]
    Future {
        revision: Revision,
        current: Revision,
    },
    #[error(transparent)]
    Unavailable(Outage),
}

/// Why the store cannot start, and what to do about it.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each message says what its variant means")]
pub enum OpenError {
    #[error("{} is in use by another process: stop it, or choose another directory", path.display())]
    Locked { path: PathBuf },
    #[error("no permission for {}: run as its owner, or change the owner", path.display())]
    Permission {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error(
        "{place} was written by a newer version (format {found}, this one knows {known}): upgrade \
         this program"
    )]
    Newer {
        place: String,
        found: u64,
        known: u64,
    },
    #[error(
        "{} is damaged ({reason}): see what is left with portico store check, and restore a backup \
         with portico restore, or go on with what is left by portico store repair",
        path.display()
    )]
    Damaged { path: PathBuf, reason: String },
    #[error(
        "{} is {what}, and there was a store: put the file back, restore a backup with portico \
         restore, or start once with --new-store to begin with an empty cluster",
        path.display()
    )]
    Missing { path: PathBuf, what: &'static str },
    #[error("there is a store at {place}: give --replace to put the backup in its place")]
    InTheWay { place: String },
    #[error("there is a store at {}: leave out --new-store, or move it away", path.display())]
    Exists { path: PathBuf },
    #[error("cannot use {}: check the path, the disk and its free space", path.display())]
    Storage {
        path: PathBuf,
        source: Box<dyn StdError + Send + Sync>,
    },
    #[error("cannot use the etcd option {option}: {reason}")]
    Option {
        option: &'static str,
        reason: String,
    },
    #[error(
        "no answer from etcd at {endpoints}: check that it runs, its address, and the certificates"
    )]
    Unreachable { endpoints: String, source: Outage },
}
