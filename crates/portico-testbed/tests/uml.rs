//! The kernel inside: commands run in it, it has what it is there for, its end is told, and nothing
//! stays.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use portico_testbed::Ask as _;
use portico_testbed::uml::{Uml, has_ipvs, test_inside};
use portico_testbed::{Cluster, Flow, Protocol};
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

fn sh(text: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", text]);
    command
}

fn uml() -> Uml {
    Uml {
        patience: Duration::from_secs(60),
        ..Uml::default()
    }
}

/// How many processes have this in their command line.
fn running(mark: &str) -> usize {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let lines = processes.filter_map(|process| fs::read(process.path().join("cmdline")).ok());
    lines
        .filter(|line| String::from_utf8_lossy(line).contains(mark))
        .count()
}

fn eventually(what: &str, mut check: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !check() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_command_is_run_as_it_is_and_its_output_comes_as_it_is_printed() {
    let mut command = sh(
        "printf '%s|' \"$@\"; echo \"$STRANGE $PORTICO\"; echo aside >&2; seq 20000; printf open; \
         exit 7",
    );
    command
        .args(["sh", "it's", "a  b", "$HOME", "", "ö\n"])
        .env("STRANGE", "'\"`$(x)\\")
        .current_dir("/usr");
    let mut told = Vec::new();
    let ended = uml()
        .run(&command, |line| told.push(line.to_owned()))
        .unwrap();
    assert_eq!(ended.status, 7);
    assert_eq!(told[..3], ["it's|a  b|$HOME||ö", "|'\"`$(x)\\ ", "aside"]);
    let numbers: Vec<_> = (1..=20000).map(|number: u32| number.to_string()).collect();
    assert_eq!(told[3..20003], numbers);
    assert_eq!(told[20003], "open");
}

#[test]
fn the_hosts_files_can_be_read_and_not_written() {
    let text = "test -r Cargo.toml && echo read; touch Cargo.toml || echo not written; touch \
                $(mktemp) /run/x && echo scratch";
    let mut command = sh(text);
    command.current_dir(env!("CARGO_MANIFEST_DIR"));
    let output = uml().run(&command, |_| ()).unwrap().output;
    for word in ["read\n", "\nnot written\n", "\nscratch\n"] {
        assert!(output.contains(word), "{output}");
    }
    assert!(!Path::new("/run/x").exists());
}

#[test]
fn a_panic_of_the_kernel_is_told() {
    let error = uml()
        .run(
            &sh("echo 1 >/proc/sys/kernel/sysrq; echo c >/proc/sysrq-trigger"),
            |_| (),
        )
        .unwrap_err();
    assert!(
        error
            .source
            .to_string()
            .contains("Kernel panic - not syncing: sysrq triggered crash"),
        "{}",
        error.source
    );
}

#[test]
fn who_takes_too_long_is_ended_and_nothing_is_left() {
    let uml = Uml {
        memory: "333M".to_owned(),
        patience: Duration::from_secs(12),
    };
    let mut seen = 0;
    let error = uml
        .run(&sh("echo waiting; sleep 1000"), |_| {
            seen = running("mem=333M")
        })
        .unwrap_err();
    assert!(
        error.source.to_string().contains("waiting"),
        "{error}: {}",
        error.source
    );
    assert!(seen >= 3, "unshare, the shell and the kernel");
    eventually("all of it is gone", || running("mem=333M") == 0);
}

#[test]
fn nothing_is_left_after_a_kill() {
    if std::env::var_os("TESTBED_KILLED").is_some() {
        let uml = Uml {
            memory: "334M".to_owned(),
            patience: Duration::from_secs(60),
        };
        let _ = uml.run(&sh("echo up; sleep 1000"), |_| eprintln!("up"));
        return;
    }
    let mut victim = Command::new(std::env::current_exe().unwrap());
    victim
        .args(["--exact", "nothing_is_left_after_a_kill", "--nocapture"])
        .env("TESTBED_KILLED", "1");
    let mut victim = victim
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut told = [0; 2];
    std::io::Read::read_exact(victim.stderr.as_mut().unwrap(), &mut told).unwrap();
    assert!(running("mem=334M") >= 3);
    victim.kill().unwrap();
    victim.wait().unwrap();
    eventually("all of it is gone", || running("mem=334M") == 0);
}

#[test]
fn clocks_run_as_outside() {
    let now = || {
        SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap()
            .as_secs_f64()
    };
    let mut late = Vec::new();
    let text = "for i in 1 2 3; do date +%s.%N; sleep 0.5; done";
    uml()
        .run(&sh(text), |line| {
            late.extend(line.parse::<f64>().map(|inside| now() - inside))
        })
        .unwrap();
    assert!(
        late.len() == 3 && late.iter().all(|late| (-0.1..1.0).contains(late)),
        "{late:?}"
    );
}

#[test]
fn a_cluster_runs_inside() {
    test_inside("a_cluster_runs_inside", || {
        assert!(has_ipvs());
        assert!(
            fs::read_to_string("/proc/version")
                .unwrap()
                .starts_with("Linux version 6.1.")
        );
        let started = Instant::now();
        let cluster = Cluster::new().unwrap();
        println!("17 hosts are up after {:?}", started.elapsed());
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        for (from, to, by) in [
            ("pod1-1", "pod2-3", "pod2-3"),
            ("node1", "pod3-1", "pod3-1"),
        ] {
            for which in ["ip", "ip6"] {
                let address = SocketAddr::new(cluster.addresses.of(to, which).unwrap(), 8080);
                for protocol in [Protocol::Tcp, Protocol::Udp, Protocol::Sctp] {
                    let answer = runtime.block_on(
                        cluster
                            .host(from)
                            .unwrap()
                            .ask(&Flow::new(protocol, address)),
                    );
                    assert_eq!(answer.unwrap().seen.host, by, "{from} {to} {protocol:?}");
                }
            }
        }
        for address in ["203.0.113.7:4711", "[2001:db8:99::7]:4711"] {
            let flow = Flow {
                mark: Some(1),
                ..Flow::new(Protocol::Tcp, address.parse().unwrap())
            };
            assert_eq!(
                runtime
                    .block_on(cluster.host("client").unwrap().ask(&flow))
                    .unwrap()
                    .seen
                    .host,
                "lb"
            );
        }
    });
}
