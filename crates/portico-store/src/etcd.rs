//! The etcd engine: several servers share one store under a prefix of an etcd cluster. Owns the
//! transactions and the barrier; the connections are in `client`, the mirror is filled by `follow`.
//!
//! Every transaction also puts `<prefix>head`. Its revision is the newest of the store, so a
//! linearizable read of that one key tells how far the mirror must be. Its value is the format
//! version, and after a restore by how much the store's revisions are ahead of etcd's (`clock`).
//! Other users of the same etcd do not matter.

mod client;
mod clock;
mod failure;
mod follow;
mod proto;
pub(crate) mod restore;
mod txn;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;

use self::client::Client;
use self::clock::Clock;
use self::failure::Failure;
use self::follow::Follower;
use self::proto::{KeyValue, TxnRequest, TxnResponse};
use crate::health::Health;
use crate::mirror::{HistoryLimits, Mirror};
use crate::{OpenError, Outage, Revision, Txn, TxnError};

/// How often etcd is asked whether it takes writes again.
const LOOK_FOR_ROOM: Duration = Duration::from_secs(1);

/// How a store on etcd is opened.
#[derive(Clone, Debug)]
pub struct EtcdOptions {
    /// `http://host:port` or `https://host:port`, in the order they are tried.
    pub endpoints: Vec<String>,
    /// Everything the store has is under this prefix, which ends with `/`.
    pub prefix: String,
    /// The files for `https` endpoints.
    pub tls: Option<EtcdTls>,
    /// For a connection to one endpoint.
    pub connect_timeout: Duration,
    /// For one call, and for one commit to become visible.
    pub request_timeout: Duration,
    /// How much of the past is kept for watches.
    pub history: HistoryLimits,
    /// Whether to compact etcd too. Turn it off if another program compacts it, or needs etcd's
    /// older history.
    pub compact_etcd: bool,
}

impl Default for EtcdOptions {
    fn default() -> Self {
        Self {
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
    /// The CA of etcd's certificates.
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
    clock: Clock,
    health: Arc<Health>,
    timeout: Duration,
    compact_etcd: bool,
    follower: JoinHandle<()>,
}

impl Etcd {
    pub(crate) async fn open(
        options: EtcdOptions,
        health: Arc<Health>,
    ) -> Result<(Arc<Mirror>, Self), OpenError> {
        check_prefix(&options.prefix)?;
        let client = Arc::new(Client::new(&options)?);
        let unreachable = |failure: Failure| OpenError::Unreachable {
            endpoints: options.endpoints.join(", "),
            source: failure.outage("the start"),
        };
        let head = ensure_head(&client, &options.prefix, Clock::default())
            .await
            .map_err(unreachable)?;
        let clock = Clock::read(&options.prefix, &head.value)?;
        let (revision, entries) = follow::read_all(&client, &options.prefix, clock)
            .await
            .map_err(unreachable)?;
        let mirror = Arc::new(Mirror::new(revision, entries, options.history));
        let follower = Follower {
            mirror: mirror.clone(),
            client: client.clone(),
            prefix: options.prefix.clone(),
            clock,
            health: health.clone(),
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
            Self {
                mirror,
                client,
                prefix,
                clock,
                health,
                timeout,
                compact_etcd,
                follower,
            },
        ))
    }

    pub(crate) async fn commit(&self, txn: Txn) -> Result<Revision, TxnError> {
        if self.mirror.is_closed() {
            return Err(TxnError::Unavailable(closed()));
        }
        let Txn { checks, ops } = txn;
        let request = txn::request(&self.prefix, self.clock, &checks, ops);
        let mut answer = self.send(request.clone()).await?;
        if !answer.succeeded && txn::head(&answer).is_none() {
            // Another program cleared the prefix: the transaction needs a head to go on from.
            let made = ensure_head(&self.client, &self.prefix, self.clock).await;
            made.map_err(txn_error)?;
            answer = self.send(request).await?;
        }
        if answer.succeeded {
            self.health.set_writable();
            let revision = self
                .clock
                .revision(answer.header.map_or(0, |header| header.revision));
            self.visible(revision)
                .await
                .map_err(|outage| TxnError::Unavailable(outage.after_write()))?;
            return Ok(revision);
        }
        if let Some(head) = txn::head(&answer)
            && head.value != self.clock.head().into_bytes()
        {
            let outage = restored(&self.prefix);
            self.health.set_lost(&outage);
            return Err(TxnError::Unavailable(outage));
        }
        let (head, key) = txn::conflict(&answer, self.clock, checks);
        // The caller will read before it tries again: it must then see what it lost to. If that
        // takes too long, it is still a conflict.
        let _ = self.visible(head).await;
        Err(TxnError::Conflict { key })
    }

    async fn send(&self, request: TxnRequest) -> Result<TxnResponse, TxnError> {
        let failure = match self.client.txn(request).await {
            Ok(answer) => return Ok(answer),
            Err(failure) => failure,
        };
        if failure.is_full() && self.health.writable().is_ok() {
            self.health.set_blocked(&Outage::new(
                "etcd has no room left: compact and defragment it, then disarm its alarm (etcdctl \
                 alarm disarm)",
            ));
            tokio::spawn(look_for_room(
                self.client.clone(),
                self.prefix.clone(),
                self.clock,
                self.health.clone(),
            ));
        }
        Err(txn_error(failure))
    }

    pub(crate) async fn barrier(&self) -> Result<Revision, Outage> {
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
            Some(head) if head.value == self.clock.head().into_bytes() => head,
            Some(_) => {
                let outage = restored(&self.prefix);
                self.health.set_lost(&outage);
                return Err(outage);
            }
            // Another program cleared the prefix: the new head comes after that.
            None => ensure_head(&self.client, &self.prefix, self.clock)
                .await
                .map_err(outage)?,
        };
        self.visible(self.clock.revision(head.mod_revision)).await?;
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

    pub(crate) async fn compact(&self, at: Revision) -> Result<(), Outage> {
        if !self.compact_etcd {
            return Ok(());
        }
        self.client
            .compact(self.clock.wire(at))
            .await
            .map_err(|failure| failure.outage("a compaction"))
    }

    pub(crate) fn close(&self) {
        self.follower.abort();
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        self.close();
    }
}

/// Makes the head if there is none, and returns it.
async fn ensure_head(client: &Client, prefix: &str, clock: Clock) -> Result<KeyValue, Failure> {
    let answer = client.txn(txn::ensure_head(prefix, clock)).await?;
    let ranges = answer
        .responses
        .into_iter()
        .filter_map(|response| response.range);
    Ok(ranges
        .flat_map(|range| range.kvs)
        .next()
        .unwrap_or_default())
}

fn check_prefix(prefix: &str) -> Result<(), OpenError> {
    if prefix.ends_with('/') {
        return Ok(());
    }
    Err(OpenError::Option {
        option: "prefix",
        reason: format!("{prefix:?} does not end with a slash"),
    })
}

/// Asks until etcd takes writes again, so that an idle server hears of it.
async fn look_for_room(client: Arc<Client>, prefix: String, clock: Clock, health: Arc<Health>) {
    while health.writable().is_err() {
        tokio::time::sleep(LOOK_FOR_ROOM).await;
        if client.txn(txn::write_head(&prefix, clock)).await.is_ok() {
            health.set_writable();
        }
    }
}

fn txn_error(failure: Failure) -> TxnError {
    match failure.refusal() {
        Some(reason) => TxnError::Invalid { reason },
        None => TxnError::Unavailable(failure.write_outage()),
    }
}

/// A backup was restored: this process still shows the state before it.
fn restored(prefix: &str) -> Outage {
    Outage::new(format!(
        "a backup was restored to {prefix}, and this process shows what was there before: it ends, \
         start it again"
    ))
}

fn closed() -> Outage {
    Outage::new("the store is closed")
}
