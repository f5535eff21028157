use super::*;
use crate::facts::{Reach, Service};
use crate::testing::{Rig, ips, name, node, service};

fn rig() -> Rig {
    let mut rig = Rig::with_nodes();
    rig.index
        .set_service(name("shop/web"), Some(service(Reach::Public)));
    let balanced = Service {
        addresses: ips(&["192.0.2.1"]),
        ..service(Reach::Balanced)
    };
    rig.index.set_service(name("shop/api"), Some(balanced));
    let named = Service {
        hosts: vec!["lb.example.net".to_owned()],
        ..service(Reach::Balanced)
    };
    rig.index.set_service(name("shop/aws"), Some(named));
    let inside = Service {
        hosts: vec!["api.shop.lb.example.com".to_owned()],
        ..service(Reach::Balanced)
    };
    rig.index.set_service(name("shop/inside"), Some(inside));
    let lost = Service {
        hosts: vec!["nobody.lb.example.com".to_owned()],
        ..service(Reach::Balanced)
    };
    rig.index.set_service(name("shop/lost"), Some(lost));
    let circle = Service {
        hosts: vec!["circle.shop.svc.example.com".to_owned()],
        ..service(Reach::Balanced)
    };
    rig.index.set_service(name("shop/circle"), Some(circle));
    rig.settle();
    rig
}

fn question(name: &str, kind: RecordType) -> Message {
    let mut message = Message::new(7, MessageType::Query, OpCode::Query);
    message
        .queries
        .push(Query::query(Name::from_ascii(name).unwrap(), kind));
    message
}

/// The code, and the types in the sections.
fn summary(reply: &Message) -> String {
    let types = |records: &[Record]| {
        let all: Vec<String> = records
            .iter()
            .map(|record| record.record_type().to_string())
            .collect();
        all.join(",")
    };
    let code = reply.metadata.response_code.to_str();
    format!(
        "{code} {}/{}/{}",
        types(&reply.answers),
        types(&reply.authorities),
        types(&reply.additionals)
    )
}

#[test]
fn what_is_there_what_is_empty_and_what_is_not() {
    let rig = rig();
    use RecordType as T;
    for (name, kind, wanted) in [
        ("example.com.", T::SOA, "No Error SOA//"),
        ("example.com.", T::NS, "No Error NS,NS//A"),
        ("example.com.", T::A, "No Error /SOA/"),
        ("example.com.", T::ANY, "No Error SOA//"),
        ("ns1.example.com.", T::A, "No Error A//"),
        ("web.shop.svc.example.com.", T::A, "No Error A,A//"),
        ("web.shop.svc.example.com.", T::AAAA, "No Error AAAA,AAAA//"),
        ("web.shop.svc.example.com.", T::SRV, "No Error /SOA/"),
        ("web.shop.svc.example.com.", T::ANY, "No Error A,A//"),
        (
            "_http._tcp.web.shop.svc.example.com.",
            T::SRV,
            "No Error SRV,SRV//A,AAAA,A,AAAA",
        ),
        (
            "_http._tcp.web.shop.svc.example.com.",
            T::A,
            "No Error /SOA/",
        ),
        (
            "_http._tcp.web.shop.svc.example.com.",
            T::ANY,
            "No Error SRV,SRV//A,AAAA,A,AAAA",
        ),
        ("_tcp.web.shop.svc.example.com.", T::SRV, "No Error /SOA/"),
        ("shop.svc.example.com.", T::A, "No Error /SOA/"),
        ("svc.example.com.", T::ANY, "No Error /SOA/"),
        ("lb.example.com.", T::A, "No Error /SOA/"),
        ("node.example.com.", T::A, "No Error /SOA/"),
        ("n1.node.example.com.", T::AAAA, "No Error AAAA//"),
        ("api.shop.lb.example.com.", T::A, "No Error A//"),
        ("api.shop.lb.example.com.", T::AAAA, "No Error /SOA/"),
        (
            "_http._tcp.api.shop.svc.example.com.",
            T::SRV,
            "No Error SRV//A",
        ),
        ("aws.shop.svc.example.com.", T::A, "No Error CNAME//"),
        ("aws.shop.svc.example.com.", T::CNAME, "No Error CNAME//"),
        ("aws.shop.svc.example.com.", T::ANY, "No Error CNAME//"),
        (
            "_http._tcp.aws.shop.svc.example.com.",
            T::SRV,
            "No Error SRV//",
        ),
        ("inside.shop.svc.example.com.", T::A, "No Error CNAME,A//"),
        (
            "inside.shop.svc.example.com.",
            T::AAAA,
            "No Error CNAME/SOA/",
        ),
        (
            "lost.shop.svc.example.com.",
            T::A,
            "Non-Existent Domain CNAME/SOA/",
        ),
        ("nobody.svc.example.com.", T::A, "Non-Existent Domain /SOA/"),
        (
            "x.web.shop.svc.example.com.",
            T::A,
            "Non-Existent Domain /SOA/",
        ),
        ("*.svc.example.com.", T::A, "Non-Existent Domain /SOA/"),
        ("example.org.", T::A, "Query Refused //"),
        ("com.", T::NS, "Query Refused //"),
        (".", T::NS, "Query Refused //"),
    ] {
        let reply = answer(&rig.zone, &question(name, kind), Transport::Udp, 0);
        assert_eq!(summary(&reply), wanted, "{name} {kind}");
        let in_zone = !wanted.starts_with("Query Refused");
        assert_eq!(reply.metadata.authoritative, in_zone, "{name} {kind}");
        assert!(!reply.metadata.recursion_available && reply.metadata.id == 7);
    }
}

#[test]
fn an_alias_of_itself_comes_to_an_end() {
    let rig = rig();
    let reply = answer(
        &rig.zone,
        &question("circle.shop.svc.example.com.", RecordType::A),
        Transport::Udp,
        0,
    );
    assert_eq!(reply.answers.len(), MOST_ALIASES);
}

#[test]
fn the_letters_of_the_question_stay() {
    let rig = rig();
    let asked = "WeB.sHop.SVC.Example.cOm.";
    let mut request = question(asked, RecordType::A);
    request.metadata.recursion_desired = true;
    let reply = answer(&rig.zone, &request, Transport::Udp, 0);
    assert_eq!(reply.queries[0].name().to_ascii(), asked);
    assert!(
        reply
            .answers
            .iter()
            .all(|record| record.name.to_ascii() == asked)
    );
    assert!(reply.metadata.recursion_desired);
}

#[test]
fn the_order_turns() {
    let rig = rig();
    let first = |chance| {
        let reply = answer(
            &rig.zone,
            &question("web.shop.svc.example.com.", RecordType::A),
            Transport::Udp,
            chance,
        );
        reply.answers[0].data.to_string()
    };
    assert_eq!(
        (first(0), first(1), first(2)),
        ("10.0.0.1".into(), "10.0.0.2".into(), "10.0.0.1".into())
    );
}

#[test]
fn the_time_to_remember_nothing_is_short() {
    let rig = rig();
    let reply = answer(
        &rig.zone,
        &question("nobody.example.com.", RecordType::A),
        Transport::Udp,
        0,
    );
    assert_eq!(reply.authorities[0].ttl, 10);
    let reply = answer(
        &rig.zone,
        &question("web.shop.svc.example.com.", RecordType::A),
        Transport::Udp,
        0,
    );
    assert_eq!(reply.answers[0].ttl, 30);
}

#[test]
fn nothing_is_said_before_everything_is_known() {
    let mut rig = rig();
    let settings = crate::zone::Settings {
        origin: rig.zone.origin().clone(),
        servers: vec![],
        hostmaster: Name::root(),
        ttl: 1,
        negative_ttl: 1,
    };
    rig.zone = Zone::new(settings, 1);
    let reply = answer(
        &rig.zone,
        &question("web.shop.svc.example.com.", RecordType::A),
        Transport::Udp,
        0,
    );
    assert_eq!(reply.metadata.response_code, ResponseCode::ServFail);
}

fn code_of(bytes: &[u8]) -> Option<ResponseCode> {
    match read(bytes) {
        Incoming::Mistake(reply) => Some(reply.metadata.response_code),
        _ => None,
    }
}

#[test]
fn mistakes_are_told_and_noise_is_not() {
    let ask = |change: &dyn Fn(&mut Message)| {
        let mut message = question("web.shop.svc.example.com.", RecordType::A);
        change(&mut message);
        message.to_vec().unwrap()
    };
    let good = ask(&|_| {});
    assert!(matches!(read(&good), Incoming::Question(_)));
    let transfer = ask(&|message| {
        message.queries[0].set_query_type(RecordType::AXFR);
    });
    assert!(matches!(read(&transfer), Incoming::Transfer(_)));
    let is_noise = |bytes: &[u8]| matches!(read(bytes), Incoming::Noise);
    assert!(is_noise(&[]) && is_noise(&good[..11]));
    assert!(is_noise(&ask(
        &|message| message.metadata.message_type = MessageType::Response
    )));
    let query = good.clone();
    for (what, bytes, code) in [
        (
            "cut off",
            good[..good.len() - 1].to_vec(),
            ResponseCode::FormErr,
        ),
        (
            "no question",
            ask(&|message| message.queries.clear()),
            ResponseCode::FormErr,
        ),
        (
            "two questions",
            ask(&|message| message.queries.push(message.queries[0].clone())),
            ResponseCode::FormErr,
        ),
        (
            "an update",
            ask(&|message| message.metadata.op_code = OpCode::Update),
            ResponseCode::NotImp,
        ),
        (
            "a notify",
            ask(&|message| message.metadata.op_code = OpCode::Notify),
            ResponseCode::NotImp,
        ),
        (
            "CHAOS",
            ask(&|message| {
                message.queries[0].set_query_class(DNSClass::CH);
            }),
            ResponseCode::Refused,
        ),
        (
            "any class",
            ask(&|message| {
                message.queries[0].set_query_class(DNSClass::ANY);
            }),
            ResponseCode::Refused,
        ),
        (
            "MAILB",
            ask(&|message| {
                message.queries[0].set_query_type(RecordType::from(253));
            }),
            ResponseCode::NotImp,
        ),
        (
            "OPT",
            ask(&|message| {
                message.queries[0].set_query_type(RecordType::OPT);
            }),
            ResponseCode::NotImp,
        ),
        (
            "EDNS 1",
            ask(&|message| {
                let mut edns = Edns::new();
                edns.set_version(1);
                message.edns = Some(edns);
            }),
            ResponseCode::BADVERS,
        ),
    ] {
        assert_ne!(bytes, query, "{what}");
        assert_eq!(code_of(&bytes), Some(code), "{what}");
    }
}

#[test]
fn answers_fit_into_packets() {
    let mut rig = rig();
    for number in 3..80 {
        let ip = format!("10.0.0.{number}");
        rig.index
            .set_node(&format!("n{number}"), Some(node(&[&ip])));
        rig.health(&format!("{ip}:10256"), true);
    }
    let ask = |name: &str, kind, payload: Option<u16>, transport| {
        let mut request = question(name, kind);
        request.edns = payload.map(|payload| {
            let mut edns = Edns::new();
            edns.set_max_payload(payload);
            edns
        });
        let room = room(&request, transport);
        let bytes = write(answer(&rig.zone, &request, transport, 3), room, transport).unwrap();
        assert!(bytes.len() <= room, "{name} {kind} {payload:?}");
        Message::from_vec(&bytes).unwrap()
    };
    let (a, srv) = (
        "web.shop.svc.example.com.",
        "_http._tcp.web.shop.svc.example.com.",
    );
    use Transport::{Tcp, Udp};
    for (name, kind, payload, transport, truncated, answers) in [
        (a, RecordType::A, None, Udp, true, 0),
        (a, RecordType::A, Some(100), Udp, true, 0),
        (a, RecordType::A, Some(4096), Udp, true, 0),
        (a, RecordType::AAAA, None, Udp, false, 2),
        (a, RecordType::A, None, Tcp, false, 79),
        (srv, RecordType::SRV, Some(1232), Udp, true, 0),
        (srv, RecordType::SRV, Some(1232), Tcp, false, 79),
        ("n1.node.example.com.", RecordType::A, None, Udp, false, 1),
    ] {
        let reply = ask(name, kind, payload, transport);
        let said = (reply.metadata.truncation, reply.answers.len());
        assert_eq!(
            said,
            (truncated, answers),
            "{name} {kind} {payload:?} {transport:?}"
        );
        assert_eq!(reply.edns.is_some(), payload.is_some());
        assert!(payload.is_none() || reply.max_payload() == MOST_UDP);
    }
}

#[test]
fn additional_records_are_left_out_before_anything_is_truncated() {
    let mut rig = rig();
    for number in 3..12 {
        let ip = format!("10.0.0.{number}");
        rig.index
            .set_node(&format!("n{number}"), Some(node(&[&ip])));
        rig.health(&format!("{ip}:10256"), true);
    }
    let request = question("_http._tcp.web.shop.svc.example.com.", RecordType::SRV);
    let reply = answer(&rig.zone, &request, Transport::Udp, 0);
    assert!(!reply.additionals.is_empty());
    let bytes = write(reply, 512, Transport::Udp).unwrap();
    let reply = Message::from_vec(&bytes).unwrap();
    assert_eq!(
        (
            reply.answers.len(),
            reply.additionals.len(),
            reply.metadata.truncation
        ),
        (11, 0, false)
    );
}

#[test]
fn more_than_a_message_can_hold_is_cut_by_tcp() {
    let mut rig = Rig::new();
    for number in 0..3000_u32 {
        let ip = std::net::Ipv4Addr::from(0x0a00_0000 + number).to_string();
        rig.index.set_node(
            &format!("a-rather-long-name-of-a-node-{number}"),
            Some(node(&[&ip])),
        );
    }
    rig.index
        .set_service(name("shop/web"), Some(service(Reach::Public)));
    rig.settle();
    let request = question("_http._tcp.web.shop.svc.example.com.", RecordType::SRV);
    let bytes = write(
        answer(&rig.zone, &request, Transport::Tcp, 0),
        MOST_TCP,
        Transport::Tcp,
    )
    .unwrap();
    let reply = Message::from_vec(&bytes).unwrap();
    assert!(
        !reply.metadata.truncation && reply.answers.len() >= 500,
        "{}",
        reply.answers.len()
    );
}

proptest::proptest! {
    /// Whatever comes in, what goes out is a message that fits, or nothing.
    #[test]
    fn any_bytes_are_taken(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..300)) {
        try_bytes(&bytes);
    }

    #[test]
    fn any_change_of_a_question_is_taken(at in 0..200_usize, to in proptest::num::u8::ANY, kind in proptest::num::u16::ANY) {
        let mut request = question("_http._tcp.web.shop.svc.example.com.", RecordType::from(kind));
        request.edns = Some(Edns::new());
        let Ok(mut bytes) = request.to_vec() else { return Ok(()) };
        let at = at % bytes.len();
        bytes[at] = to;
        try_bytes(&bytes);
    }
}

fn try_bytes(bytes: &[u8]) {
    thread_local!(static RIG: Rig = rig());
    let (reply, room) = match read(bytes) {
        Incoming::Noise => return,
        Incoming::Mistake(reply) => (*reply, 512),
        Incoming::Question(request) => {
            let reply = RIG.with(|rig| answer(&rig.zone, &request, Transport::Udp, 1));
            (reply, room(&request, Transport::Udp))
        }
        Incoming::Transfer(request) => {
            let reply = RIG.with(|rig| {
                crate::transfer::by_udp(&rig.zone, &request, crate::transfer::Allowed(true))
            });
            (reply, room(&request, Transport::Udp))
        }
    };
    let bytes = write(reply, room, Transport::Udp).expect("an answer that fits");
    assert!(bytes.len() <= room);
}
