//! A transaction of the store as etcd's, and etcd's answer read back.

use super::proto::{
    Compare, DeleteRequest, PutRequest, RangeRequest, Request, RequestOp, ResponseOp,
};
use super::proto::{TARGET_MOD, TxnRequest, TxnResponse};
use super::{FORMAT, revision, wire};
use crate::{Check, Op, Revision};

/// No key of the store: those have a topic.
const HEAD: &str = "head";

pub(super) fn request(prefix: &str, checks: &[Check], ops: Vec<Op>) -> TxnRequest {
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

/// Puts the head if there is none, and reads it either way.
pub(super) fn ensure_head(prefix: &str) -> TxnRequest {
    let read = || op(Request::Range(read_head(prefix)));
    TxnRequest {
        compare: vec![compare(prefix, &Check::absent(HEAD))],
        success: vec![put_head(prefix), read()],
        failure: vec![read()],
    }
}

/// The head's revision, and the key of the first check that does not hold, from the answers of the
/// failure branch.
pub(super) fn conflict(answer: &TxnResponse, checks: Vec<Check>) -> (Revision, String) {
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

fn compare(prefix: &str, check: &Check) -> Compare {
    Compare {
        target: TARGET_MOD,
        key: etcd_key(prefix, &check.key),
        mod_revision: Some(wire(check.modified)),
    }
}

fn put_head(prefix: &str) -> RequestOp {
    op(Request::Put(PutRequest {
        key: etcd_key(prefix, HEAD),
        value: FORMAT.to_string().into(),
    }))
}

pub(super) fn read_head(prefix: &str) -> RangeRequest {
    RangeRequest {
        key: etcd_key(prefix, HEAD),
        ..Default::default()
    }
}

fn op(request: Request) -> RequestOp {
    RequestOp {
        request: Some(request),
    }
}

fn etcd_key(prefix: &str, key: &str) -> Vec<u8> {
    [prefix, key].concat().into_bytes()
}
