//! Path attributes: their numbers, and what flags they have to have.

pub(super) const ORIGIN: u8 = 1;
pub(super) const AS_PATH: u8 = 2;
pub(super) const NEXT_HOP: u8 = 3;
pub(super) const MULTI_EXIT: u8 = 4;
pub(super) const LOCAL_PREF: u8 = 5;
pub(super) const ATOMIC_AGGREGATE: u8 = 6;
pub(super) const AGGREGATOR: u8 = 7;
pub(super) const COMMUNITIES: u8 = 8;
pub(super) const ORIGINATOR: u8 = 9;
pub(super) const CLUSTER_LIST: u8 = 10;
pub(super) const REACH: u8 = 14;
pub(super) const UNREACH: u8 = 15;
pub(super) const AS4_PATH: u8 = 17;
pub(super) const LARGE_COMMUNITIES: u8 = 32;

pub(super) const OPTIONAL: u8 = 0x80;
pub(super) const TRANSITIVE: u8 = 0x40;
/// Its length has two octets.
pub(super) const EXTENDED: u8 = 0x10;

pub(super) const AS_SET: u8 = 1;
pub(super) const AS_SEQUENCE: u8 = 2;

/// Whether it is optional and transitive, for those that we look at.
pub(super) fn flags(kind: u8) -> Option<u8> {
    match kind {
        ORIGIN | AS_PATH | NEXT_HOP | LOCAL_PREF | ATOMIC_AGGREGATE => Some(TRANSITIVE),
        MULTI_EXIT | ORIGINATOR | CLUSTER_LIST | REACH | UNREACH => Some(OPTIONAL),
        AGGREGATOR | COMMUNITIES | AS4_PATH | LARGE_COMMUNITIES => Some(OPTIONAL | TRANSITIVE),
        _ => None,
    }
}
