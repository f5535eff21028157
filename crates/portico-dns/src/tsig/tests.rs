use super::*;
use proptest::prelude::*;

const NOW: u64 = 1_800_000_000;

fn keys() -> Vec<Key> {
    let text = "key \"Second.Example.com\" {\n\talgorithm hmac-sha256;\n\tsecret \
                \"s3cr3t\";\n};\nother hmac-sha512 x # comment\n";
    parse_keys(text, |text| Some(text.as_bytes().to_vec())).unwrap()
}

/// The header of a question with nothing in it.
fn message() -> Vec<u8> {
    vec![0x12, 0x34, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0]
}

/// As a client signs it.
fn request(key: &Key, now: u64) -> Vec<u8> {
    let session = Session {
        key,
        mac: Vec::new(),
        is_first: true,
    };
    let record = session.record(&message(), now);
    let mut signed = message();
    signed.extend(record.variables());
    let mac = hmac::sign(&key.secret, &signed).as_ref().to_vec();
    Record { mac, ..record }.append(&message())
}

fn code(opened: &Opened<'_>) -> Option<u16> {
    match opened {
        Opened::Bad(code, _) => Some(*code),
        _ => None,
    }
}

#[test]
fn what_is_signed_is_believed() {
    let keys = keys();
    for key in &keys {
        let bytes = request(key, NOW);
        let Opened::Signed(opened, mut session) = open(&keys, &bytes, NOW + 299) else {
            panic!("{key:?}")
        };
        assert_eq!(opened, message());
        let (first, second) = (session.sign(&message(), NOW), session.sign(&message(), NOW));
        assert_eq!(first.len(), message().len() + session.size());
        assert_ne!(first, second, "the second is signed with the first");
        let (stripped, record) = strip(&first).unwrap();
        assert_eq!(
            (stripped, record.name, record.original_id),
            (message(), key.name.clone(), 0x1234)
        );
    }
    assert!(matches!(open(&keys, &message(), NOW), Opened::Unsigned));
}

#[test]
fn what_is_not_as_it_was_signed_is_not() {
    let keys = keys();
    let good = request(&keys[0], NOW);
    let mut changed = good.clone();
    changed[2] = 0;
    assert_eq!(code(&open(&keys, &changed, NOW)), Some(BADSIG));
    assert_eq!(code(&open(&keys[1..], &good, NOW)), Some(BADKEY));
    assert_eq!(code(&open(&[], &good, NOW)), Some(BADKEY));
    assert_eq!(code(&open(&keys, &good, NOW + 301)), Some(BADTIME));
    assert_eq!(code(&open(&keys, &good, NOW - 301)), Some(BADTIME));
    let Opened::Bad(_, reply) = open(&keys, &changed, NOW) else {
        panic!()
    };
    assert_eq!((reply[2] & 0x80, reply[3] & 15), (0x80, NOTAUTH));
    let (_, record) = strip(&reply).unwrap();
    assert_eq!((record.error, record.mac.len()), (BADSIG, 0));
    let Opened::Bad(_, reply) = open(&keys, &good, NOW + 400) else {
        panic!()
    };
    let (_, record) = strip(&reply).unwrap();
    assert_eq!(
        (record.error, record.mac.len(), record.other.len()),
        (BADTIME, 32, 6),
        "signed, with our time"
    );
}

#[test]
fn a_key_that_is_none_is_told() {
    let decode = |text: &str| (text != "?").then(|| text.as_bytes().to_vec());
    for (text, word) in [
        ("name hmac-sha256", "a name, an algorithm and a secret"),
        ("name hmac-md5 x", "hmac-md5 is not an algorithm"),
        ("a..b hmac-sha256 x", "a..b is not the name"),
        ("name hmac-sha256 ?", "the secret of name is not Base64"),
    ] {
        let error = parse_keys(text, decode).unwrap_err().to_string();
        assert!(error.contains(word), "{error}");
    }
    assert!(parse_keys("", decode).unwrap().is_empty());
    assert!(!format!("{:?}", keys()).contains("s3cr3t"));
}

proptest! {
    #[test]
    fn any_bytes_are_taken(bytes in proptest::collection::vec(any::<u8>(), 0..200), at in 0..200_usize, to in any::<u8>()) {
        let keys = keys();
        open(&keys, &bytes, NOW);
        let mut signed = request(&keys[0], NOW);
        let at = at % signed.len();
        // The id may change on the way, and letters of names are the same in either case.
        let same = signed[at].eq_ignore_ascii_case(&to) || at < 2;
        signed[at] = to;
        prop_assert!(same || !matches!(open(&keys, &signed, NOW), Opened::Signed(..)));
    }
}
