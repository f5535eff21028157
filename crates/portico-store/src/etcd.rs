//! The etcd engine: several servers share one store under a prefix of an etcd cluster. Owns the transactions and the
//! barrier; the connections are in `client`, the mirror is filled by `follow`.
//!
//! Every transaction also puts `<prefix>head`. Its revision is the newest of the store, so a linearizable read of that one
//! key tells how far the mirror must be. Its value is the format version. Other users of the same etcd do not matter.

mod client;
mod follow;
mod proto;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;

use self::client::{Client, Failure};
use self::follow::Follower;
use self::proto::{
    Compare, DeleteRequest, KeyValue, PutRequest, RangeRequest, Request, RequestOp, ResponseOp,
    TxnRequest, TxnResponse,
};
use crate::mirror::{HistoryLimits, Mirror};
use crate::{Check, Op, OpenError, Outage, Revision, Txn, TxnError};

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
    /// Whether to compact etcd too. Turn it off if somebody else does, or needs etcd's older history.
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
        let answer = self
            .client
            .txn(request(&self.prefix, &checks, ops))
            .await
            .map_err(txn_error)?;
        if answer.succeeded {
            let revision = revision(answer.header.map_or(0, |header| header.revision));
            self.visible(revision)
                .await
                .map_err(TxnError::Unavailable)?;
            return Ok(revision);
        }
        let (head, key) = conflict(&answer, checks);
        // The caller will read before it tries again: it must then see what it lost to. If that takes too long, it is
        // still a conflict.
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
            .range(read_head(&self.prefix))
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
            Err(_) => Err(Outage::unknown(format!(
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
    let absent = Check::absent(String::new());
    let key = head_key(prefix);
    let compare = vec![Compare {
        key: key.clone(),
        ..compare(prefix, &absent)
    }];
    let read = || op(Request::Range(read_head(prefix)));
    let txn = TxnRequest {
        compare,
        success: vec![put_head(prefix), read()],
        failure: vec![read()],
    };
    let answer = client.txn(txn).await?;
    let found = answer
        .responses
        .into_iter()
        .filter_map(|response| response.range)
        .flat_map(|range| range.kvs)
        .next();
    Ok(found.unwrap_or_default())
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

fn request(prefix: &str, checks: &[Check], ops: Vec<Op>) -> TxnRequest {
    let read = |check: &Check| RangeRequest {
        key: etcd_key(prefix, &check.key),
        keys_only: true,
        ..Default::default()
    };
    let write = |op| match op {
        Op::Put { key, value } => Request::Put(PutRequest {
            key: etcd_key(prefix, &key),
            value,
        }),
        Op::Delete { key } => Request::Delete(DeleteRequest {
            key: etcd_key(prefix, &key),
        }),
    };
    TxnRequest {
        compare: checks.iter().map(|check| compare(prefix, check)).collect(),
        success: std::iter::once(put_head(prefix))
            .chain(ops.into_iter().map(write).map(op))
            .collect(),
        failure: std::iter::once(read_head(prefix))
            .chain(checks.iter().map(read))
            .map(Request::Range)
            .map(op)
            .collect(),
    }
}

/// The head's revision, and the key of the first check that does not hold, from the answers of the failure branch.
fn conflict(answer: &TxnResponse, checks: Vec<Check>) -> (Revision, String) {
    let modified = |response: &ResponseOp| {
        let found = response.range.as_ref().and_then(|range| range.kvs.first());
        revision(found.map_or(0, |kv| kv.mod_revision))
    };
    let mut found = answer.responses.iter().map(modified);
    let head = found.next().unwrap_or(0);
    let failed = checks
        .into_iter()
        .zip(found)
        .find(|(check, modified)| check.modified != *modified);
    (head, failed.map_or(String::new(), |(check, _)| check.key))
}

fn txn_error(failure: Failure) -> TxnError {
    match failure.refusal() {
        Some(reason) => TxnError::Invalid { reason },
        None => TxnError::Unavailable(failure.write_outage()),
    }
}

fn compare(prefix: &str, check: &Check) -> Compare {
    Compare {
        target: proto::TARGET_MOD,
        key: etcd_key(prefix, &check.key),
        mod_revision: Some(wire(check.modified)),
    }
}

fn put_head(prefix: &str) -> RequestOp {
    op(Request::Put(PutRequest {
        key: head_key(prefix),
        value: FORMAT.to_string().into(),
    }))
}

fn read_head(prefix: &str) -> RangeRequest {
    RangeRequest {
        key: head_key(prefix),
        ..Default::default()
    }
}

fn op(request: Request) -> RequestOp {
    RequestOp {
        request: Some(request),
    }
}

fn head_key(prefix: &str) -> Vec<u8> {
    etcd_key(prefix, "head")
}

fn etcd_key(prefix: &str, key: &str) -> Vec<u8> {
    [prefix, key].concat().into_bytes()
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
