//! The etcd engine: several servers share one store under a prefix of an etcd cluster. Owns the
//! transactions and the barrier; the connections are in `client`, the mirror is filled by `follow`.
//!
//! Every transaction also puts `<prefix>head`. Its revision is the newest of the store, so a
//! linearizable read of that one key tells how far the mirror must be. Its value is the format
//! version. Other users of the same etcd do not matter.

mod client;
mod failure;
mod follow;
mod proto;
mod txn;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;

use self::client::Client;
use self::failure::Failure;
use self::follow::Follower;
use self::proto::KeyValue;
use crate::mirror::{HistoryLimits, Mirror};
use crate::{OpenError, Outage, Revision, Txn, TxnError};

const FORMAT: u64 = 1;

#[derive(Clone, Debug)]
pub struct EtcdOptions {
    /// `http://host:port` or `https://host:port`, in the order they are tried.
    pub endpoints: Vec<String>,
    /// Everything the store has is under this prefix, which ends with `/`.
    pub prefix: String,
    pub tls: Option<EtcdTls>,
    pub connect_timeout: Duration,
    /// For one call, and for one commit to become visible.
    pub request_timeout: Duration,
    pub history: HistoryLimits,
    /// Whether to compact etcd too. Turn it off if somebody else does, or needs etcd's older
    /// history.
    pub compact_etcd: bool,
}

impl Default for EtcdOptions {
    fn default() -> EtcdOptions {
        EtcdOptions {
            endpoints: vec!["http://127.0.0.1:2379".into()],
            prefix: "/portico/".into(),
            tls: None,
            connect_timeout: Duration::from_secs(2),
            request_timeout: Duration::from_secs(5),
            history: HistoryLimits::default(),
            compact_etcd: true,
        }
    }
}

/// PEM files for `https` endpoints.
#[derive(Clone, Debug, Default)]
pub struct EtcdTls {
    pub ca: PathBuf,
    /// The certificate and key that this server shows to etcd.
    pub identity: Option<(PathBuf, PathBuf)>,
    /// The name to expect in etcd's certificate, if it is not the endpoint's host.
    pub server_name: Option<String>,
}

pub(crate) struct Etcd {
    mirror: Arc<Mirror>,
    client: Arc<Client>,
    prefix: String,
    timeout: Duration,
    compact_etcd: bool,
    follower: JoinHandle<()>,
}

impl Etcd {
    pub async fn open(options: EtcdOptions) -> Result<(Arc<Mirror>, Etcd), OpenError> {
        if !options.prefix.ends_with('/') {
            return Err(OpenError::Option {
                option: "prefix",
                reason: format!("{:?} does not end with a slash", options.prefix),
            });
        }
        let client = Arc::new(Client::new(&options)?);
        let unreachable = |failure: Failure| OpenError::Unreachable {
            endpoints: options.endpoints.join(", "),
            source: failure.outage("the start"),
        };
        let head = ensure_head(&client, &options.prefix)
            .await
            .map_err(unreachable)?;
        check_format(&options.prefix, &head)?;
        let (revision, entries) = follow::read_all(&client, &options.prefix)
            .await
            .map_err(unreachable)?;
        let mirror = Arc::new(Mirror::new(revision, entries, options.history));
        let follower = Follower {
            mirror: mirror.clone(),
            client: client.clone(),
            prefix: options.prefix.clone(),
        };
        let follower = tokio::spawn(follower.run());
        let EtcdOptions {
            prefix,
            request_timeout: timeout,
            compact_etcd,
            ..
        } = options;
        Ok((
            mirror.clone(),
            Etcd {
                mirror,
                client,
                prefix,
                timeout,
                compact_etcd,
                follower,
            },
        ))
    }

    pub async fn commit(&self, txn: Txn) -> Result<Revision, TxnError> {
        if self.mirror.is_closed() {
            return Err(TxnError::Unavailable(closed()));
        }
        let Txn { checks, ops } = txn;
        let request = txn::request(&self.prefix, &checks, ops);
        let answer = self.client.txn(request).await.map_err(txn_error)?;
        if answer.succeeded {
            let revision = revision(answer.header.map_or(0, |header| header.revision));
            self.visible(revision)
                .await
                .map_err(|outage| TxnError::Unavailable(outage.after_write()))?;
            return Ok(revision);
        }
        let (head, key) = txn::conflict(&answer, checks);
        // The caller will read before it tries again: it must then see what it lost to. If that
        // takes too long, it is still a conflict.
        let _ = self.visible(head).await;
        Err(TxnError::Conflict { key })
    }

    pub async fn barrier(&self) -> Result<Revision, Outage> {
        if self.mirror.is_closed() {
            return Err(closed());
        }
        let outage = |failure: Failure| failure.outage("a read");
        let answer = self
            .client
            .range(txn::read_head(&self.prefix))
            .await
            .map_err(outage)?;
        let head = match answer.kvs.into_iter().next() {
            Some(head) => head,
            // Somebody cleared the prefix: the new head comes after that.
            None => ensure_head(&self.client, &self.prefix)
                .await
                .map_err(outage)?,
        };
        self.visible(revision(head.mod_revision)).await?;
        Ok(self.mirror.revision())
    }

    async fn visible(&self, revision: Revision) -> Result<(), Outage> {
        match tokio::time::timeout(self.timeout, self.mirror.reached(revision)).await {
            Ok(true) => Ok(()),
            Ok(false) => Err(closed()),
            Err(_) => Err(Outage::new(format!(
                "this server does not see revision {revision} of etcd yet"
            ))),
        }
    }

    pub async fn compact(&self, at: Revision) -> Result<(), Outage> {
        if !self.compact_etcd {
            return Ok(());
        }
        self.client
            .compact(wire(at))
            .await
            .map_err(|failure| failure.outage("a compaction"))
    }

    pub fn close(&self) {
        self.follower.abort();
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        self.close();
    }
}

/// Makes the head if there is none, and returns it.
async fn ensure_head(client: &Client, prefix: &str) -> Result<KeyValue, Failure> {
    let answer = client.txn(txn::ensure_head(prefix)).await?;
    let ranges = answer
        .responses
        .into_iter()
        .filter_map(|response| response.range);
    Ok(ranges
        .flat_map(|range| range.kvs)
        .next()
        .unwrap_or_default())
}

fn check_format(prefix: &str, head: &KeyValue) -> Result<(), OpenError> {
    let found = std::str::from_utf8(&head.value)
        .ok()
        .and_then(|text| text.parse().ok());
    match found {
        Some(found) if found <= FORMAT => Ok(()),
        Some(found) => Err(OpenError::Newer {
            place: format!("the etcd prefix {prefix}"),
            found,
            known: FORMAT,
        }),
        None => Err(OpenError::Option {
            option: "prefix",
            reason: format!("{prefix}head is not Portico's: choose another prefix"),
        }),
    }
}

fn txn_error(failure: Failure) -> TxnError {
    match failure.refusal() {
        Some(reason) => TxnError::Invalid { reason },
        None => TxnError::Unavailable(failure.write_outage()),
    }
}

/// etcd counts in signed numbers that are never negative.
fn revision(number: i64) -> Revision {
    Revision::try_from(number).unwrap_or(0)
}

fn wire(revision: Revision) -> i64 {
    i64::try_from(revision).unwrap_or(i64::MAX)
}

fn closed() -> Outage {
    Outage::new("the store is closed")
}
