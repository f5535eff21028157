//! What is answered to a question: the zone and a message in, a message out.
//!
//! Answers say only what was asked for (no authority section beside data), because what is larger
//! than a packet costs a second way by TCP. Nothing is looked up elsewhere.

use crate::zone::{Content, Found, Zone, address};
use hickory_proto::op::{Edns, Header, Message, MessageType, OpCode, Query, ResponseCode};
use hickory_proto::rr::rdata::CNAME;
use hickory_proto::rr::{DNSClass, Name, RData, Record, RecordType};
use hickory_proto::serialize::binary::{BinDecodable, BinDecoder};

/// By UDP nothing larger is sent, whatever the client says that it can take: larger packets are cut
/// into pieces on the way, and those get lost or forged.
pub const MOST_UDP: u16 = 1232;
const LEAST_UDP: u16 = 512;
const MOST_TCP: usize = u16::MAX as usize;
/// In the third byte of a message.
const TRUNCATED: u8 = 2;
/// No record is smaller.
const LEAST_RECORD: usize = 16;
/// Names that stand for another name and lead on within the zone.
const MOST_ALIASES: usize = 8;

/// How a question came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// By UDP: the answer must fit into one packet.
    Udp,
    /// By TCP.
    Tcp,
}

/// What came in.
pub enum Incoming {
    /// Not to be answered: not a question, or too short to be one.
    Noise,
    /// To be answered with this.
    Mistake(Box<Message>),
    /// A question to be answered from the zone.
    Question(Box<Message>),
    /// AXFR or IXFR.
    Transfer(Box<Message>),
}

/// Whether a message is a question at all, before more is done with it.
pub fn is_question(bytes: &[u8]) -> bool {
    bytes.len() >= 12 && bytes.get(2).is_some_and(|flags| flags & 0x80 == 0)
}

/// Read a message. Whatever it contains, this comes to an end without panicking.
pub fn read(bytes: &[u8]) -> Incoming {
    let Ok(header) = Header::read(&mut BinDecoder::new(bytes)) else {
        return Incoming::Noise;
    };
    if header.metadata.message_type == MessageType::Response {
        return Incoming::Noise;
    }
    let Ok(message) = Message::from_vec(bytes) else {
        let mut reply = Message::error_msg(
            header.metadata.id,
            header.metadata.op_code,
            ResponseCode::FormErr,
        );
        reply.metadata.recursion_desired = header.metadata.recursion_desired;
        return Incoming::Mistake(Box::new(reply));
    };
    match check(&message) {
        Some(code) => Incoming::Mistake(Box::new(refuse(&message, code))),
        None if message
            .queries
            .iter()
            .any(|query| is_transfer(query.query_type())) =>
        {
            Incoming::Transfer(Box::new(message))
        }
        None => Incoming::Question(Box::new(message)),
    }
}

/// What is wrong with a message, before anything is looked up.
fn check(message: &Message) -> Option<ResponseCode> {
    let [query] = message.queries.as_slice() else {
        return Some(wrong_count(message));
    };
    if message.metadata.op_code != OpCode::Query {
        return Some(ResponseCode::NotImp);
    }
    if message.version() > 0 && message.edns.is_some() {
        return Some(ResponseCode::BADVERS);
    }
    if query.query_class() != DNSClass::IN {
        return Some(ResponseCode::Refused);
    }
    let number = u16::from(query.query_type());
    let is_meta = (128..=255).contains(&number) || query.query_type() == RecordType::OPT;
    let is_known = is_transfer(query.query_type()) || query.query_type() == RecordType::ANY;
    (is_meta && !is_known).then_some(ResponseCode::NotImp)
}

fn wrong_count(message: &Message) -> ResponseCode {
    match message.metadata.op_code {
        OpCode::Query => ResponseCode::FormErr,
        _ => ResponseCode::NotImp,
    }
}

fn is_transfer(kind: RecordType) -> bool {
    matches!(kind, RecordType::AXFR | RecordType::IXFR)
}

/// An answer without records.
pub fn refuse(request: &Message, code: ResponseCode) -> Message {
    let mut reply = reply(request);
    reply.metadata.response_code = code;
    reply
}

/// The beginning of every answer: the question as it was asked, letter for letter.
pub fn reply(request: &Message) -> Message {
    let mut reply = Message::response(request.metadata.id, request.metadata.op_code);
    reply.metadata.recursion_desired = request.metadata.recursion_desired;
    reply.queries = request.queries.iter().take(1).cloned().collect();
    if request.edns.is_some() {
        let mut edns = Edns::new();
        edns.set_max_payload(MOST_UDP);
        reply.edns = Some(edns);
    }
    reply
}

/// How many bytes an answer may have.
pub fn room(request: &Message, transport: Transport) -> usize {
    match (transport, &request.edns) {
        (Transport::Tcp, _) => MOST_TCP,
        (Transport::Udp, None) => usize::from(LEAST_UDP),
        (Transport::Udp, Some(edns)) => usize::from(edns.max_payload().clamp(LEAST_UDP, MOST_UDP)),
    }
}

/// The answer to a question; `chance` turns the order of records, so that the first one is not
/// always the same.
pub fn answer(zone: &Zone, request: &Message, transport: Transport, chance: usize) -> Message {
    let Some(query) = request.queries.first() else {
        return refuse(request, ResponseCode::FormErr);
    };
    if !zone.is_complete() {
        return refuse(request, ResponseCode::ServFail);
    }
    let mut reply = reply(request);
    let room = room(request, transport);
    let mut asked = query.name().clone();
    for step in 0..MOST_ALIASES {
        let Some(key) = zone.origin().find(&asked) else {
            // The end of an alias that leads out of the zone is for the client to find.
            if step == 0 {
                reply.metadata.response_code = ResponseCode::Refused;
            }
            return reply;
        };
        reply.metadata.authoritative = true;
        let mut lookup = Lookup {
            zone,
            query,
            room,
            chance,
            reply: &mut reply,
        };
        match lookup.step(&asked, key.key()) {
            Some(next) => asked = next,
            None => return reply,
        }
    }
    reply
}

struct Lookup<'a> {
    zone: &'a Zone,
    query: &'a Query,
    room: usize,
    chance: usize,
    reply: &'a mut Message,
}

impl Lookup<'_> {
    /// Add what is found at a name, or that nothing is. Returns where an alias leads.
    fn step(&mut self, name: &Name, key: &[u8]) -> Option<Name> {
        let before = self.reply.answers.len();
        let kind = self.query.query_type();
        if key.is_empty() {
            self.add_origin(name);
        }
        match self.zone.find(key) {
            Found::Content(Content::Alias(target))
                if !matches!(kind, RecordType::CNAME | RecordType::ANY) =>
            {
                self.extend(name, vec![RData::CNAME(CNAME(target.clone()))]);
                return Some(target.clone());
            }
            Found::Content(content) => self.add_content(name, content),
            Found::Missing => self.reply.metadata.response_code = ResponseCode::NXDomain,
            Found::Empty => {}
        }
        if self.reply.answers.len() == before && !self.reply.metadata.truncation {
            self.reply.authorities.push(self.zone.negative_soa());
        }
        None
    }

    /// The records that stand at the origin alone.
    fn add_origin(&mut self, name: &Name) {
        match self.query.query_type() {
            RecordType::SOA | RecordType::ANY => {
                self.reply.answers.push(Record::from_rdata(
                    name.clone(),
                    self.zone.ttl(),
                    self.zone.soa().data,
                ));
            }
            RecordType::NS => {
                self.extend(name, self.zone.servers());
                self.add_glue(self.zone.glue());
            }
            _ => {}
        }
    }

    fn add_content(&mut self, name: &Name, content: &Content) {
        let wanted = self.zone.wanted(content);
        let kind = match self.query.query_type() {
            // Of all that is there, one set is enough of an answer (RFC 8482).
            RecordType::ANY if !self.reply.answers.is_empty() => return,
            RecordType::ANY => content
                .types()
                .iter()
                .copied()
                .find(|kind| !wanted.records(*kind).is_empty()),
            kind => content.types().contains(&kind).then_some(kind),
        };
        let Some(kind) = kind else { return };
        let records = wanted.records(kind);
        // It would be written only to be thrown away.
        if self.room < MOST_TCP && records.len() * LEAST_RECORD > self.room {
            self.reply.metadata.truncation = true;
            return;
        }
        self.extend(name, records);
        if kind == RecordType::SRV {
            self.add_glue(wanted.additional());
        }
    }

    fn extend(&mut self, name: &Name, mut records: Vec<RData>) {
        let turn = self.chance.checked_rem(records.len()).unwrap_or_default();
        records.rotate_left(turn);
        let ttl = self.zone.ttl();
        self.reply.answers.extend(
            records
                .into_iter()
                .map(|data| Record::from_rdata(name.clone(), ttl, data)),
        );
    }

    fn add_glue(&mut self, glue: Vec<(Name, std::net::IpAddr)>) {
        let ttl = self.zone.ttl();
        let of = |(name, ip): (Name, std::net::IpAddr)| {
            let data = address(ip, RecordType::A).or_else(|| address(ip, RecordType::AAAA))?;
            Some(Record::from_rdata(name, ttl, data))
        };
        self.reply
            .additionals
            .extend(glue.into_iter().filter_map(of));
    }
}

/// The bytes of an answer. What is too large goes without additional records; then by UDP empty,
/// with the advice to use TCP, and by TCP with as many records as there is room for.
pub fn write(mut reply: Message, room: usize, transport: Transport) -> Option<Vec<u8>> {
    let fits = |reply: &Message| {
        let bytes = reply.to_vec().ok()?;
        // Where a message is full, the encoder leaves out what is left and marks it so.
        let cut =
            !reply.metadata.truncation && bytes.get(2).is_some_and(|flags| flags & TRUNCATED != 0);
        (bytes.len() <= room && !cut).then_some(bytes)
    };
    if reply.metadata.truncation {
        return fits(&reply.truncate());
    }
    loop {
        if let Some(bytes) = fits(&reply) {
            return Some(bytes);
        }
        if !reply.additionals.is_empty() {
            reply.additionals.clear();
        } else if transport == Transport::Udp || reply.answers.is_empty() {
            return fits(&reply.truncate());
        } else {
            let fewer = reply.answers.len() * 3 / 4;
            reply.answers.truncate(fewer);
        }
    }
}

#[cfg(test)]
mod tests;
