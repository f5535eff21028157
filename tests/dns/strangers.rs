//! What strangers send: noise, damaged questions, floods, connections that say nothing. The server
//! lives on, small, and answers others. `PORTICO_FUZZ_SEED` and `PORTICO_FUZZ_SECONDS` are as for
//! the other fuzz tests.

use crate::common::eventually;
use crate::common::random::Random;
use crate::rig::{Rig, ZONE};
use serde_json::json;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

/// Packets before answers are read.
const BURST: usize = 64;
/// KiB that it may have more after any flood.
const GROWTH: usize = 24 << 10;

async fn rig(flags: &[&str]) -> Rig {
    let rig = Rig::start(flags).await;
    rig.service(
        "web",
        json!({"type": "NodePort", "ports": [{"name": "http", "port": 80, "nodePort": 30080}]}),
    )
    .await;
    rig.dig
        .awaits("web.shop.svc", "A", &[&rig.ip(1), &rig.ip(2)])
        .await;
    rig
}

fn variable(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// A question, good at first.
fn question(random: &mut Random) -> Vec<u8> {
    let first = [
        "web",
        "_http._tcp.web",
        "nobody",
        "n1",
        "_tcp",
        "WEB",
        "a.b.c.d.e",
        "",
    ];
    let second = [".shop.svc.", ".node.", ".lb.", ".svc.", "."];
    let name = format!("{}{}{ZONE}", random.pick(&first), random.pick(&second));
    let kinds = [1_u16, 28, 33, 5, 2, 6, 255, 252, 251, 250, 41, 16, 0, 65535];
    let mut bytes = vec![
        random.next() as u8,
        random.next() as u8,
        1,
        0,
        0,
        1,
        0,
        0,
        0,
        0,
        0,
        1,
    ];
    for label in name.split('.').filter(|label| !label.is_empty()) {
        bytes.push(label.len() as u8);
        bytes.extend(label.bytes());
    }
    bytes.push(0);
    bytes.extend(random.pick(&kinds).to_be_bytes());
    bytes.extend([0, 1]);
    // OPT with a size, and now and then with an option.
    bytes.extend([0, 0, 41, 16, 0, 0, 0, 0, 0]);
    let options: [&[u8]; 3] = [
        &[0, 0],
        &[0, 12, 0, 10, 0, 8, 1, 2, 3, 4, 5, 6, 7, 8],
        &[0, 4, 0, 8, 0, 0],
    ];
    bytes.extend(*random.pick(&options));
    bytes
}

/// Noise, or a question that something happened to.
fn damaged(random: &mut Random) -> Vec<u8> {
    if random.one_in(5) {
        let length = random.below(700);
        return (0..length).map(|_| random.next() as u8).collect();
    }
    let mut bytes = question(random);
    for _ in 0..random.below(6) {
        let at = random.below(bytes.len());
        match random.below(6) {
            0 => bytes[at] = random.next() as u8,
            1 => bytes[at] ^= 1 << random.below(8),
            // A pointer to somewhere.
            2 => bytes[at] = 0xc0 | random.next() as u8,
            3 => bytes.truncate(at.max(1)),
            4 => bytes.extend(question(random)),
            // Counts that are not true.
            _ => {
                let at = 4 + random.below(8);
                if let Some(byte) = bytes.get_mut(at) {
                    *byte = random.next() as u8;
                }
            }
        }
        bytes.truncate(4000);
    }
    bytes
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_comes_in_others_are_answered() {
    let seed = variable("PORTICO_FUZZ_SEED").unwrap_or(1);
    let seconds = variable("PORTICO_FUZZ_SECONDS").unwrap_or(10);
    println!("PORTICO_FUZZ_SEED={seed}");
    let mut rig = rig(&["--rate-limit=0", "--allow-transfer=127.0.0.0/8"]).await;
    let to = SocketAddr::from(([127, 0, 0, 1], rig.dns.port));
    let end = Instant::now() + Duration::from_secs(seconds);
    let by_udp = std::thread::spawn(move || flood_udp(to, Random::seeded(seed), end));
    let by_tcp = std::thread::spawn(move || flood_tcp(to, Random::seeded(seed ^ 1), end));
    // The first of it makes it as large as it gets.
    tokio::time::sleep(Duration::from_secs(seconds) / 4).await;
    let before = rig.dns.memory();
    let (sent, answered) = by_udp.join().unwrap();
    let connections = by_tcp.join().unwrap();
    let after = rig.dns.memory();
    println!(
        "{sent} packets, {answered} answers, {connections} connections; {before} KiB before, \
         {after} KiB after"
    );
    assert!(rig.dns.is_alive(), "{}", rig.dns.log());
    assert!(answered > sent / 10, "{answered} of {sent}");
    assert!(after < before + GROWTH, "{before} KiB, then {after} KiB");
    assert!(!rig.dns.log().contains("panicked"), "{}", rig.dns.log());
    rig.dig
        .awaits("web.shop.svc", "A", &[&rig.ip(1), &rig.ip(2)])
        .await;
    assert_eq!(
        rig.dig.ask("n1.node", "A", &["+tcp"]).await.answers,
        [rig.ip(1)]
    );
}

/// How many were sent, and how many answered.
fn flood_udp(to: SocketAddr, mut random: Random, end: Instant) -> (usize, usize) {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.connect(to).unwrap();
    socket
        .set_read_timeout(Some(Duration::from_millis(2)))
        .unwrap();
    let (mut sent, mut answered) = (0, 0);
    while Instant::now() < end {
        for _ in 0..BURST {
            sent += usize::from(socket.send(&damaged(&mut random)).is_ok());
        }
        let mut buffer = [0; 4096];
        while let Ok(length) = socket.recv(&mut buffer) {
            assert!((12..=1232).contains(&length), "{length} bytes");
            assert_eq!(buffer[2] & 0x80, 0x80, "an answer says that it is one");
            answered += 1;
        }
    }
    (sent, answered)
}

fn flood_tcp(to: SocketAddr, mut random: Random, end: Instant) -> usize {
    let mut connections = 0;
    while Instant::now() < end {
        let Ok(mut stream) = TcpStream::connect(to) else {
            continue;
        };
        stream
            .set_read_timeout(Some(Duration::from_millis(20)))
            .unwrap();
        connections += 1;
        for _ in 0..=random.below(4) {
            let bytes = damaged(&mut random);
            // One in four says a length that is not true.
            let length = if random.one_in(4) {
                random.next() as u16
            } else {
                bytes.len() as u16
            };
            if stream
                .write_all(&length.to_be_bytes())
                .and_then(|()| stream.write_all(&bytes))
                .is_err()
            {
                break;
            }
            let mut buffer = [0; 65536];
            let _ = stream.read(&mut buffer);
        }
    }
    connections
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_is_limited_and_the_honest_come_by_tcp() {
    let rig = rig(&["--rate-limit=50"]).await;
    let to = SocketAddr::from(([127, 0, 0, 1], rig.dns.port));
    // Networks are told apart: this is not the one that dig asks from.
    let socket = UdpSocket::bind("127.77.7.7:0").unwrap();
    socket.connect(to).unwrap();
    socket
        .set_read_timeout(Some(Duration::from_millis(500)))
        .unwrap();
    let mut ask = vec![0, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 3, b'k', b'8', b's', 7];
    ask.extend(b"example\x03com\x00\x00\x06\x00\x01");
    let began = Instant::now();
    (0..1000).for_each(|_| drop(socket.send(&ask)));
    let (mut whole, mut truncated) = (0, 0);
    let mut buffer = [0; 1500];
    while let Ok(length) = socket.recv(&mut buffer) {
        assert!(length >= 12);
        if buffer[2] & 2 == 2 {
            truncated += 1
        } else {
            whole += 1
        }
    }
    let allowed = 50 + (began.elapsed().as_secs_f64() * 50.0) as usize;
    println!("{whole} answers, {truncated} with the advice to use TCP");
    assert!((50..=allowed).contains(&whole), "{whole}");
    assert!(truncated >= 200, "{truncated}");
    let honest = rig
        .dig
        .ask("web.shop.svc", "A", &["-b", "127.77.7.8"])
        .await;
    assert_eq!(honest.answers, [rig.ip(1), rig.ip(2)], "by TCP if need be");
    assert_eq!(
        rig.dig
            .ask("web.shop.svc", "A", &["+notcp", "+ignore"])
            .await
            .answers
            .len(),
        2,
        "another network"
    );
    assert!(
        rig.metric("portico_dns_limited_total{outcome=\"dropped\"}")
            .await
            > 0.0
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silent_connections_do_not_take_all_room() {
    let rig = rig(&["--tcp-connections=16"]).await;
    let to = SocketAddr::from(([127, 0, 0, 1], rig.dns.port));
    let silent: Vec<TcpStream> = (0..100).map(|_| TcpStream::connect(to).unwrap()).collect();
    eventually("there is no room for most of them", || async {
        (rig.metric("portico_dns_tcp_refused_total").await >= 90.0).then_some(())
    })
    .await;
    eventually("one address has a quarter of it", || async {
        (rig.metric("portico_dns_tcp_connections").await <= 4.0).then_some(())
    })
    .await;
    let other = rig
        .dig
        .ask("web.shop.svc", "A", &["+tcp", "-b", "127.0.0.9"])
        .await;
    assert_eq!(other.answers.len(), 2);
    // Those that say nothing are sent away, and then there is room again.
    eventually("there is room again", || async {
        (rig.dig
            .ask("web.shop.svc", "A", &["+tcp"])
            .await
            .answers
            .len()
            == 2)
            .then_some(())
    })
    .await;
    drop(silent);
}
