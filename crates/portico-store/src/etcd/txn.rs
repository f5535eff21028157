//! A transaction of the store as etcd's, and etcd's answer read back.

use super::clock::Clock;
use super::proto::{
    Compare, DeleteRequest, PutRequest, RangeRequest, Request, RequestOp, ResponseOp,
};
use super::proto::{KeyValue, TARGET_MOD, TARGET_VALUE, TxnRequest, TxnResponse};
use crate::{Check, Op, Revision};

/// No key of the store: those have a topic.
pub(super) const HEAD: &str = "head";

/// A server that does not know of a restore must not write: the head has to be as it is known.
pub(super) fn request(prefix: &str, clock: Clock, checks: &[Check], ops: Vec<Op>) -> TxnRequest {
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
            range_end: Vec::new(),
        }),
    };
    TxnRequest {
        compare: std::iter::once(compare_head(prefix, clock))
            .chain(checks.iter().map(|check| compare(prefix, clock, check)))
            .collect(),
        success: std::iter::once(put_head(prefix, &clock.head()))
            .chain(ops.into_iter().map(write).map(op))
            .collect(),
        failure: std::iter::once(read_head(prefix))
            .chain(checks.iter().map(read))
            .map(Request::Range)
            .map(op)
            .collect(),
    }
}

/// Puts the head if there is none, and reads it either way.
pub(super) fn ensure_head(prefix: &str, clock: Clock) -> TxnRequest {
    let read = || op(Request::Range(read_head(prefix)));
    TxnRequest {
        compare: vec![compare(prefix, clock, &Check::absent(HEAD))],
        success: vec![put_head(prefix, &clock.head()), read()],
        failure: vec![read()],
    }
}

/// Changes nothing but the revision: does etcd take writes?
pub(super) fn write_head(prefix: &str, clock: Clock) -> TxnRequest {
    request(prefix, clock, &[], Vec::new())
}

/// The head that a transaction which failed found.
pub(super) fn head(answer: &TxnResponse) -> Option<&KeyValue> {
    answer.responses.first()?.range.as_ref()?.kvs.first()
}

/// The head's revision, and the key of the first check that does not hold, from the answers of the
/// failure branch.
pub(super) fn conflict(
    answer: &TxnResponse,
    clock: Clock,
    checks: Vec<Check>,
) -> (Revision, String) {
    let modified = |response: &ResponseOp| {
        let found = response.range.as_ref().and_then(|range| range.kvs.first());
        clock.revision(found.map_or(0, |kv| kv.mod_revision))
    };
    let mut found = answer.responses.iter().map(modified);
    let head = found.next().unwrap_or(0);
    let failed = checks
        .into_iter()
        .zip(found)
        .find(|(check, modified)| check.modified != *modified);
    (head, failed.map_or(String::new(), |(check, _)| check.key))
}

fn compare(prefix: &str, clock: Clock, check: &Check) -> Compare {
    Compare {
        target: TARGET_MOD,
        key: etcd_key(prefix, &check.key),
        mod_revision: Some(clock.wire(check.modified)),
        value: None,
    }
}

fn compare_head(prefix: &str, clock: Clock) -> Compare {
    Compare {
        target: TARGET_VALUE,
        key: etcd_key(prefix, HEAD),
        mod_revision: None,
        value: Some(clock.head().into_bytes()),
    }
}

pub(super) fn put_head(prefix: &str, value: &str) -> RequestOp {
    op(Request::Put(PutRequest {
        key: etcd_key(prefix, HEAD),
        value: value.to_owned().into(),
    }))
}

pub(super) fn read_head(prefix: &str) -> RangeRequest {
    RangeRequest {
        key: etcd_key(prefix, HEAD),
        ..Default::default()
    }
}

pub(super) fn op(request: Request) -> RequestOp {
    RequestOp {
        request: Some(request),
    }
}

pub(super) fn etcd_key(prefix: &str, key: &str) -> Vec<u8> {
    [prefix, key].concat().into_bytes()
}
