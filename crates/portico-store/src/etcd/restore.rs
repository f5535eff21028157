//! Restoring a backup to a prefix of etcd. etcd gives every write a revision of its own, so the
//! head says by how much the store's are ahead.
//!
//! While it lasts the head says so: no server starts on half a backup, and those that run end. One
//! that died is done again from the start.

use super::client::Client;
use super::clock::{Clock, floor_of_restoring, restoring};
use super::failure::Failure;
use super::proto::{DeleteRequest, PutRequest, Request, RequestOp, TxnRequest, prefix_end};
use super::{EtcdOptions, check_prefix, txn};
use crate::{Backup, Entry, OpenError, Revision};

/// What one transaction writes, well below what etcd takes.
const OPERATIONS: usize = 100;
const BYTES: usize = 1 << 20;

/// Puts the contents of a backup in the place of what is under the prefix, if `replace` allows
/// that. The revision that the store goes on with.
pub async fn restore(
    options: EtcdOptions,
    backup: Backup,
    replace: bool,
) -> Result<Revision, OpenError> {
    check_prefix(&options.prefix)?;
    let client = Client::new(&options)?;
    let prefix = options.prefix.as_str();
    let failed = |failure: Failure| OpenError::Unreachable {
        endpoints: options.endpoints.join(", "),
        source: failure.outage("the restore"),
    };
    let floor = floor(&client, prefix, &backup, replace)
        .await
        .map_err(failed)??;
    let mut revision = send(&client, clear(prefix, floor)).await.map_err(failed)?;
    for group in groups(backup.entries) {
        revision = send(&client, put(prefix, group)).await.map_err(failed)?;
    }
    // The last write is one revision further on.
    let clock = Clock::at_least(floor, revision);
    let done = vec![txn::put_head(prefix, &clock.head())];
    let revision = send(&client, done).await.map_err(failed)?;
    Ok(clock.revision(revision))
}

/// The revision that everything restored is above.
async fn floor(
    client: &Client,
    prefix: &str,
    backup: &Backup,
    replace: bool,
) -> Result<Result<Revision, OpenError>, Failure> {
    let answer = client.range(txn::read_head(prefix)).await?;
    let revision = answer.header.map_or(0, |header| header.revision);
    let Some(head) = answer.kvs.first() else {
        return Ok(Ok(backup.next_revision(0)));
    };
    // A restore that died left its own floor, and no other data.
    if let Some(floor) = floor_of_restoring(&head.value) {
        return Ok(Ok(floor.max(backup.next_revision(0))));
    }
    if !replace {
        let place = format!("the etcd prefix {prefix}");
        return Ok(Err(OpenError::InTheWay { place }));
    }
    let known = Clock::read(prefix, &head.value).map(|clock| clock.revision(revision));
    Ok(known.map(|known| backup.next_revision(known)))
}

/// Removes everything but the head, which says what is going on.
fn clear(prefix: &str, floor: Revision) -> Vec<RequestOp> {
    let head = txn::etcd_key(prefix, txn::HEAD);
    let behind_head = [&head[..], &[0]].concat();
    let delete = |key: Vec<u8>, range_end: Vec<u8>| {
        txn::op(Request::Delete(DeleteRequest { key, range_end }))
    };
    vec![
        delete(prefix.into(), head),
        txn::put_head(prefix, &restoring(floor)),
        delete(behind_head, prefix_end(prefix.as_bytes())),
    ]
}

fn groups(entries: Vec<Entry>) -> Vec<Vec<Entry>> {
    let mut groups: Vec<Vec<Entry>> = Vec::new();
    let mut bytes = 0;
    for entry in entries {
        let size = entry.key.len() + entry.value.len();
        match groups.last_mut() {
            Some(group) if group.len() < OPERATIONS && bytes + size <= BYTES => group.push(entry),
            _ => {
                groups.push(vec![entry]);
                bytes = 0;
            }
        }
        bytes += size;
    }
    groups
}

fn put(prefix: &str, group: Vec<Entry>) -> Vec<RequestOp> {
    let put = |entry: Entry| {
        txn::op(Request::Put(PutRequest {
            key: txn::etcd_key(prefix, &entry.key),
            value: entry.value,
        }))
    };
    group.into_iter().map(put).collect()
}

/// All of it or nothing; the revision it got.
async fn send(client: &Client, success: Vec<RequestOp>) -> Result<i64, Failure> {
    let request = TxnRequest {
        success,
        ..Default::default()
    };
    let answer = client.txn(request).await?;
    Ok(answer.header.map_or(0, |header| header.revision))
}
