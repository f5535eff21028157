//! A revisioned key-value store with watch: what the API server keeps its objects in.
//!
//! Two engines make transactions durable: [`Store::embedded`] (one directory on this machine) and
//! [`Store::etcd`] (etcd v3, shared by several servers). Both feed the same in-memory mirror, which
//! serves every read and every watch, so the engines differ in where a commit goes and in nothing a
//! reader can see.
//!
//! Keys look like `services/default/web`. The part before the first `/` is the *topic*: watch logs
//! are kept per topic, so a watcher of one resource is not woken by another.

mod backup;
mod embedded;
mod error;
mod etcd;
mod health;
mod mirror;
mod store;
mod types;
mod watch;

pub use backup::{Backup, BackupError};
pub use embedded::EmbeddedOptions;
pub use embedded::offline::{Report, Restored, check, repair, restore};
pub use error::{CompactError, OpenError, Outage, ReadError, TxnError, WatchError};
pub use etcd::restore::restore as restore_to_etcd;
pub use etcd::{EtcdOptions, EtcdTls};
pub use mirror::HistoryLimits;
pub use store::{MAX_TXN_BYTES, MAX_TXN_OPS, Store};
pub use types::{Check, Damaged, Entry, Event, Op, Range, RangeResult, Revision, Txn};
pub use watch::Watch;
