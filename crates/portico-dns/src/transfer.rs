//! The whole zone, message by message (AXFR, RFC 5936). An IXFR gets the same, or the SOA alone
//! where there is nothing new.

use crate::answer::{refuse, reply};
use crate::zone::{Snapshot, Zone};
use hickory_proto::op::{Message, ResponseCode};
use hickory_proto::rr::{RData, Record, RecordType};

/// The most bytes of records in one message, before names are compressed.
const MESSAGE_BYTES: usize = 16_000;

/// Whether a client may have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Allowed(pub bool);

pub(crate) enum Transfer {
    /// One answer.
    Reply(Box<Message>),
    /// The zone.
    All(Snapshot),
}

/// What to send for an AXFR or IXFR over TCP.
pub(crate) fn plan(zone: &Zone, request: &Message, allowed: Allowed) -> Transfer {
    let refused = |code| Transfer::Reply(Box::new(refuse(request, code)));
    let Some(query) = request.queries.first() else {
        return refused(ResponseCode::FormErr);
    };
    let at_origin = zone
        .origin()
        .find(query.name())
        .is_some_and(|asked| asked.key().is_empty());
    match (allowed, at_origin, zone.is_complete()) {
        (Allowed(false), _, _) => refused(ResponseCode::Refused),
        (_, false, _) => refused(ResponseCode::NotAuth),
        (_, _, false) => refused(ResponseCode::ServFail),
        _ if query.query_type() == RecordType::IXFR && !is_news(zone, request) => {
            soa_only(zone, request)
        }
        _ => Transfer::All(zone.snapshot()),
    }
}

/// The answer to a transfer by UDP: only the SOA; for more the client has to come by TCP.
pub(crate) fn by_udp(zone: &Zone, request: &Message, allowed: Allowed) -> Message {
    let is_ixfr = request
        .queries
        .first()
        .is_some_and(|query| query.query_type() == RecordType::IXFR);
    match plan(zone, request, allowed) {
        Transfer::Reply(reply) => *reply,
        Transfer::All(_) if is_ixfr => match soa_only(zone, request) {
            Transfer::Reply(reply) => *reply,
            Transfer::All(_) => refuse(request, ResponseCode::ServFail),
        },
        Transfer::All(_) => refuse(request, ResponseCode::Refused),
    }
}

fn soa_only(zone: &Zone, request: &Message) -> Transfer {
    let mut message = reply(request);
    message.metadata.authoritative = true;
    message.answers.push(zone.soa());
    Transfer::Reply(Box::new(message))
}

/// The serial that the client has comes in the authority section.
fn is_news(zone: &Zone, request: &Message) -> bool {
    let theirs = request
        .authorities
        .iter()
        .find_map(|record| match &record.data {
            RData::SOA(soa) => Some(soa.serial),
            _ => None,
        });
    theirs.is_none_or(|theirs| {
        zone.serial() != theirs && zone.serial().wrapping_sub(theirs) < 1 << 31
    })
}

/// The messages of a transfer, one at a time.
pub(crate) fn messages<'a>(
    snapshot: &'a Snapshot,
    request: &'a Message,
) -> impl Iterator<Item = Message> + 'a {
    let mut records = snapshot.records();
    let mut is_first = true;
    std::iter::from_fn(move || {
        let mut bytes = 0;
        let mut batch = Vec::new();
        while bytes < MESSAGE_BYTES
            && let Some(record) = records.next()
        {
            bytes += size(&record);
            batch.push(record);
        }
        if batch.is_empty() {
            return None;
        }
        let mut message = reply(request);
        message.metadata.authoritative = true;
        message.answers = batch;
        if !std::mem::take(&mut is_first) {
            message.queries.clear();
        }
        Some(message)
    })
}

/// About the bytes of a record.
fn size(record: &Record) -> usize {
    let data = match &record.data {
        RData::SRV(srv) => 8 + srv.target.len(),
        RData::CNAME(name) => name.0.len(),
        RData::NS(name) => name.0.len(),
        RData::SOA(_) => 256,
        _ => 16,
    };
    record.name.len() + 12 + data
}

#[cfg(test)]
mod tests;
