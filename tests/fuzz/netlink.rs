//! Netlink: whatever the kernel might say of IPVS, sets, links, nftables and tracked connections,
//! and what it never would, is read without harm.

use std::time::{Duration, Instant};

use portico_dataplane::netlink::Messages;
use portico_dataplane::parsers::understood;

use crate::body::damaged;
use crate::common::random::Random;

#[test]
fn anything_the_kernel_says_is_read_without_harm() {
    let seed = crate::variable("PORTICO_FUZZ_SEED").unwrap_or(1);
    let seconds = crate::variable("PORTICO_FUZZ_SECONDS")
        .unwrap_or(20)
        .div_ceil(10);
    println!("PORTICO_FUZZ_SEED={seed}");
    let mut random = Random::seeded(seed);
    let end = Instant::now() + Duration::from_secs(seconds);
    let (mut read, mut things) = (0, 0);
    while Instant::now() < end {
        let bytes = bytes(&mut random);
        things += understood(&bytes);
        read += 1;
    }
    println!("{read} answers read, {things} things found in them");
    assert!(
        things > read / 10,
        "{things} in {read} answers: there is nothing to misunderstand"
    );
}

/// Messages that could mean something, or nearly, or bytes.
fn bytes(random: &mut Random) -> Vec<u8> {
    let mut messages = Messages::new();
    for _ in 0..=random.below(3) {
        message(random, &mut messages);
    }
    match random.below(8) {
        0 => (0..random.below(200))
            .map(|_| random.next() as u8)
            .collect(),
        1 | 2 => damaged(random, messages.bytes().to_vec()),
        _ => messages.bytes().to_vec(),
    }
}

fn message(random: &mut Random, messages: &mut Messages) {
    let header = *random.pick(&[4, 4, 4, 8, 12, 16]);
    let family = *random.pick(&[2, 10, 0]);
    messages.message(random.next() as u16, 0, |m| {
        let mut bytes = vec![0; header];
        bytes[0] = family;
        m.raw(&bytes);
        (0..random.below(8)).for_each(|_| attribute(random, m, 3));
    });
}

/// One of the kinds that there are, most of them low.
fn kind(random: &mut Random) -> u16 {
    let end = *random.pick(&[4, 8, 12, 30]);
    1 + random.below(end) as u16
}

fn attribute(random: &mut Random, m: &mut Messages, depth: usize) {
    const WORDS: [&str; 9] = [
        "KUBE-CLUSTER-IP",
        "hash:ip,port",
        "rr",
        "kube-ipvs0",
        "dummy",
        "portico",
        "frontends",
        "endpoints",
        "",
    ];
    let kind = kind(random);
    match random.below(if depth == 0 { 5 } else { 8 }) {
        0 => m.put_str(kind, random.pick::<&str>(&WORDS)),
        1 => m.put_u8(kind, *random.pick(&[0, 1, 6, 17, 24, 132, 255])),
        2 => m.put_u16(kind, *random.pick(&[2, 6, 10, 17, 132])),
        3 => m.put(
            kind,
            &(0..random.below(20))
                .map(|_| random.next() as u8)
                .collect::<Vec<_>>(),
        ),
        4 => m.put(kind, &vec![10; *random.pick(&[2, 4, 8, 16])]),
        _ => m.nested(kind, |m| {
            (0..random.below(8)).for_each(|_| attribute(random, m, depth - 1))
        }),
    }
}
