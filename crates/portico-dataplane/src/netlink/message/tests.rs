use super::*;

fn sample() -> Messages {
    let mut m = Messages::new();
    m.netfilter(10, 3, flags::CREATE, 2, |m| {
        m.put_str(1, "portico");
        m.nested(4, |m| {
            m.put_u32_be(1, 7);
            m.put_u8(2, 9);
            m.put_u16_be(3, 80);
            m.put_u64_be(4, 1 << 40);
        });
    });
    m.message(99, 0, |m| m.put(5, b"abc"));
    m
}

#[test]
fn what_is_written_is_read() {
    let m = sample();
    let all: Vec<Message> = messages(m.bytes()).collect();
    assert_eq!(all.len(), 2);
    assert_eq!(
        (all[0].kind, all[0].flags, all[0].sequence),
        (0x0a03, flags::CREATE | flags::REQUEST, 1)
    );
    assert_eq!(all[0].family(), Some(2));
    let top: Vec<Attribute> = all[0].attributes(4).collect();
    assert_eq!(top[0].text(), Some("portico"));
    let inner: Vec<Attribute> = top[1].nested().collect();
    assert_eq!(inner[0].u32_be(), Some(7));
    assert_eq!(inner[1].u8(), Some(9));
    assert_eq!(inner[2].u16_be(), Some(80));
    assert_eq!(inner[3].u64_be(), Some(1 << 40));
    assert_eq!(
        all[1].attributes(0).find_kind(5).map(|a| a.data),
        Some(&b"abc"[..])
    );
    assert_eq!(
        (m.last_sequence(), m.len() % 4, m.oversized()),
        (2, 0, false)
    );
}

#[test]
fn an_acknowledgement_is_asked_of_the_last_message_only() {
    let mut m = sample();
    m.acknowledge_last();
    let flags: Vec<bool> = messages(m.bytes())
        .map(|m| m.flags & flags::ACK != 0)
        .collect();
    assert_eq!(flags, [false, true]);
}

#[test]
fn damaged_input_ends_quietly() {
    let whole = sample();
    for cut in 0..whole.len() {
        for message in messages(&whole.bytes()[..cut]) {
            let _ = message.attributes(4).flat_map(|a| a.nested()).count();
        }
    }
    for position in 0..whole.len() {
        for value in [0, 1, 3, 0x7f, 0xff] {
            let mut bytes = whole.bytes().to_vec();
            bytes[position] = value;
            assert!(messages(&bytes).take(1000).count() < 1000);
            for message in messages(&bytes) {
                assert!(message.attributes(4).take(1000).count() < 1000);
            }
        }
    }
}

#[test]
fn an_attribute_over_64_kib_is_noticed() {
    let mut m = Messages::new();
    m.message(1, 0, |m| {
        m.nested(1, |m| (0..20_000).for_each(|_| m.put_u32_be(1, 1)))
    });
    assert!(m.oversized());
    m.clear();
    assert!(!m.oversized());
    m.message(1, 0, |m| m.put(1, &[0; 70_000]));
    assert!(m.oversized());
}
