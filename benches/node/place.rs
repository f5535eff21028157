//! Where the benchmark runs: a network namespace of its own, with one interface and two endpoints
//! that answer.

use std::io::Write;
use std::net::TcpListener;
use std::process::Command;

/// Addresses of endpoints that really answer, with their own address.
pub(crate) const ENDPOINTS: [&str; 2] = ["10.244.0.2", "10.244.0.3"];
const INSIDE: &str = "PORTICO_BENCH_INSIDE";

pub(crate) fn inside() -> bool {
    std::env::var_os(INSIDE).is_some()
}

/// The same program again, in a network namespace that vanishes with it.
pub(crate) fn run_inside() -> i32 {
    let this = std::env::current_exe().unwrap();
    let status = Command::new("unshare")
        .arg("--net")
        .arg(this)
        .args(std::env::args().skip(1))
        .env(INSIDE, "1")
        .status();
    status
        .expect("unshare (util-linux) is needed, and root")
        .code()
        .unwrap_or(1)
}

pub(crate) fn prepare() {
    let mut lines = vec![
        "link set lo up".to_owned(),
        "link add eth0 type veth peer name eth0p".to_owned(),
        "link set eth0 up".to_owned(),
        "link set eth0p up".to_owned(),
        "addr add 192.0.2.10/24 dev eth0".to_owned(),
        "route add default via 192.0.2.1".to_owned(),
    ];
    lines.extend(ENDPOINTS.map(|address| format!("addr add {address}/32 dev lo")));
    for line in lines {
        let status = Command::new("ip")
            .args(line.split(' '))
            .status()
            .expect("ip (iproute2) is needed");
        assert!(status.success(), "ip {line}");
    }
    ENDPOINTS.into_iter().for_each(answer);
}

/// Accepts connections to an address and says which it is.
fn answer(address: &'static str) {
    let listener = TcpListener::bind((address, 8080)).unwrap();
    std::thread::spawn(move || {
        for mut connection in listener.incoming().flatten() {
            // A client that has gone is none of our business.
            let _ = connection.write_all(address.as_bytes());
        }
    });
}
