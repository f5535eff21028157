use super::*;
use crate::facts::Reach;
use crate::testing::{Rig, name, service};
use crate::zone::Settings;
use hickory_proto::op::{MessageType, OpCode, Query};
use hickory_proto::rr::Name;

fn request(name: &str, kind: RecordType) -> Message {
    let mut message = Message::new(9, MessageType::Query, OpCode::Query);
    message
        .queries
        .push(Query::query(Name::from_ascii(name).unwrap(), kind));
    message
}

fn code(transfer: &Transfer) -> Option<ResponseCode> {
    match transfer {
        Transfer::Reply(reply) => Some(reply.metadata.response_code),
        Transfer::All(_) => None,
    }
}

#[test]
fn who_gets_what() {
    let mut rig = Rig::with_nodes();
    let axfr = request("Example.COM.", RecordType::AXFR);
    assert_eq!(code(&plan(&rig.zone, &axfr, Allowed(true))), None);
    assert_eq!(
        code(&plan(&rig.zone, &axfr, Allowed(false))),
        Some(ResponseCode::Refused)
    );
    for other in ["node.example.com.", "example.org."] {
        let transfer = plan(&rig.zone, &request(other, RecordType::AXFR), Allowed(true));
        assert_eq!(code(&transfer), Some(ResponseCode::NotAuth), "{other}");
    }
    assert_eq!(
        by_udp(&rig.zone, &axfr, Allowed(true))
            .metadata
            .response_code,
        ResponseCode::Refused
    );
    let settings = Settings {
        origin: rig.zone.origin().clone(),
        servers: vec![],
        hostmaster: Name::root(),
        ttl: 1,
        negative_ttl: 1,
    };
    rig.zone = Zone::new(settings, 1);
    assert_eq!(
        code(&plan(&rig.zone, &axfr, Allowed(true))),
        Some(ResponseCode::ServFail)
    );
}

#[test]
fn an_incremental_transfer_is_all_or_nothing_new() {
    let mut rig = Rig::with_nodes();
    rig.zone.renew(1000);
    for (theirs, whole) in [
        (999, true),
        (1000, false),
        (1001, false),
        (1000 + (1 << 31) + 1, true),
    ] {
        let mut ixfr = request("example.com.", RecordType::IXFR);
        let mut soa = rig.zone.soa();
        if let RData::SOA(soa) = &mut soa.data {
            soa.serial = theirs;
        }
        ixfr.authorities.push(soa);
        let transfer = plan(&rig.zone, &ixfr, Allowed(true));
        assert_eq!(matches!(transfer, Transfer::All(_)), whole, "{theirs}");
        let by_udp = by_udp(&rig.zone, &ixfr, Allowed(true));
        assert_eq!(by_udp.answers, [rig.zone.soa()], "{theirs}");
    }
}

#[test]
fn a_large_zone_takes_many_messages() {
    let mut rig = Rig::with_nodes();
    for number in 0..1000 {
        rig.index.set_service(
            name(&format!("shop/web-{number}")),
            Some(service(Reach::Public)),
        );
    }
    rig.settle();
    let axfr = request("example.com.", RecordType::AXFR);
    let snapshot = rig.zone.snapshot();
    let all: Vec<Message> = messages(&snapshot, &axfr).collect();
    assert!(all.len() > 10, "{}", all.len());
    assert!(
        all.iter()
            .all(|message| message.to_vec().unwrap().len() < 20_000 && message.metadata.id == 9)
    );
    assert_eq!(
        all.iter()
            .filter(|message| !message.queries.is_empty())
            .count(),
        1
    );
    let records: Vec<&Record> = all.iter().flat_map(|message| &message.answers).collect();
    // Two SRV, two A and two AAAA for each Service; two of each for the nodes; SOA twice, NS twice
    // and its address.
    assert_eq!(records.len(), 6 * 1000 + 4 + 5);
    let soa = rig.zone.soa();
    assert_eq!((records[0], *records.last().unwrap()), (&soa, &soa));
}
