use super::*;

/// The number of the current rule set; any process may ask for it.
fn generation_request() -> Messages {
    let mut request = Messages::new();
    request.netfilter(10, 16, 0, 0, |_| {});
    request
}

#[test]
fn a_query_is_answered() {
    let mut socket = Socket::netfilter().unwrap();
    let answers = socket
        .query(&generation_request(), |m| {
            m.attributes(4).find_kind(1)?.u32_be()
        })
        .unwrap();
    assert_eq!(answers.len(), 1);
}

#[test]
fn a_dump_ends_and_two_in_a_row_do_not_mix() {
    let mut socket = Socket::netfilter().unwrap();
    let mut request = Messages::new();
    request.netfilter(10, 1, flags::DUMP, 0, |_| {});
    for _ in 0..2 {
        socket.query(&request, |m| Some(m.kind)).unwrap();
        let kinds = socket
            .query(&generation_request(), |m| Some(m.kind))
            .unwrap();
        assert_eq!(kinds, [10 << 8 | 15]);
    }
}

#[test]
fn refusals_name_the_request_and_the_reason() {
    let mut socket = Socket::netfilter().unwrap();
    let mut requests = Messages::new();
    requests.netfilter(10, 16, flags::ACK, 0, |_| {});
    let bad = requests.netfilter(10, 1, 0, 2, |m| m.put_str(1, "no-such-table"));
    let replies = socket.exchange(&requests).unwrap();
    assert_eq!(replies.refused.len(), 1);
    assert_eq!(replies.refused[0].sequence, bad);
    assert_eq!(replies.refused[0].error.raw_os_error(), Some(libc::ENOENT));
    assert_eq!(replies.acknowledged, 1);
    assert_eq!(
        replies.into_result().unwrap_err().kind(),
        io::ErrorKind::NotFound
    );
}

#[test]
fn an_oversized_request_is_not_sent() {
    let mut requests = Messages::new();
    requests.message(1, 0, |m| m.put(1, &[0; 70_000]));
    let error = Socket::netfilter()
        .unwrap()
        .exchange(&requests)
        .unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
}
