//! Real secondaries, BIND and NSD: they transfer the zone, are told of changes, and answer the
//! same.

use crate::common::ports;
use crate::dig::Dig;
use crate::rig::{Rig, ZONE, program};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;
use tempfile::TempDir;

const KEY: &str =
    "key \"second\" { algorithm hmac-sha256; secret \"c2VjcmV0IGZvciB0ZXN0cyBvbmx5\"; };";

/// A server of somebody else that follows the zone.
struct Secondary {
    child: Child,
    log: PathBuf,
    _folder: TempDir,
    dig: Dig,
}

impl Drop for Secondary {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!(
                "--- secondary\n{}---",
                std::fs::read_to_string(&self.log).unwrap_or_default()
            );
        }
    }
}

impl Secondary {
    /// `write` makes the configuration of a program in a folder, from the ports of the primary and
    /// its own, and says how to start it.
    fn start(
        name: &str,
        package: &str,
        port: u16,
        write: impl FnOnce(&Path) -> Vec<String>,
    ) -> Self {
        let folder = TempDir::with_prefix("portico-secondary-").unwrap();
        let arguments = write(folder.path());
        let log = folder.path().join("log");
        let out = std::fs::File::create(&log).unwrap();
        let child = Command::new(program(name, package))
            .args(arguments)
            .current_dir(folder.path())
            .stdin(Stdio::null())
            .stdout(out.try_clone().unwrap())
            .stderr(out)
            .spawn()
            .unwrap();
        Self {
            child,
            log,
            _folder: folder,
            dig: Dig { port },
        }
    }

    /// With a key: everything that it asks the primary is signed.
    fn bind(primary: u16, port: u16) -> Self {
        Self::start("named", "bind9", port, |folder| {
            let place = folder.display();
            let text = format!(
                "options {{ directory \"{place}\"; pid-file none; session-keyfile none; listen-on port {port} {{ 127.0.0.1; }};\n\
                 listen-on-v6 {{ none; }}; recursion no; dnssec-validation no; }};\n\
                 controls {{ }};\n{KEY}\n\
                 zone \"{ZONE}\" {{ type secondary; primaries {{ 127.0.0.1 port {primary} key second; }}; allow-notify {{ 127.0.0.1; }}; file \"zone\"; }};\n"
            );
            std::fs::write(folder.join("named.conf"), text).unwrap();
            ["-g", "-n", "1", "-c", "named.conf"]
                .map(str::to_owned)
                .to_vec()
        })
    }

    fn nsd(primary: u16, port: u16) -> Self {
        Self::start("nsd", "nsd", port, |folder| {
            let place = folder.display();
            let text = format!(
                "server:\n  ip-address: 127.0.0.1@{port}\n  username: \"\"\n  chroot: \"\"\n  zonesdir: \"{place}\"\n  \
                 pidfile: \"\"\n  xfrdfile: \"{place}/xfrd\"\n  xfrdir: \"{place}\"\n  zonelistfile: \"{place}/list\"\n  database: \"\"\n\
                 remote-control:\n  control-enable: no\n\
                 zone:\n  name: {ZONE}\n  zonefile: \"{place}/zone\"\n  allow-notify: 127.0.0.1 NOKEY\n  \
                 request-xfr: AXFR 127.0.0.1@{primary} second\n\
                 key:\n  name: second\n  algorithm: hmac-sha256\n  secret: \"c2VjcmV0IGZvciB0ZXN0cyBvbmx5\"\n"
            );
            std::fs::write(folder.join("nsd.conf"), text).unwrap();
            ["-d", "-c", "nsd.conf"].map(str::to_owned).to_vec()
        })
    }
}

async fn follows(start: fn(u16, u16) -> Secondary) {
    let port = ports::free();
    let keys = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(keys.path(), KEY).unwrap();
    let rig = Rig::start(&[
        "--allow-transfer=127.0.0.1",
        &format!("--notify=127.0.0.1:{port}"),
        &format!("--transfer-key-file={}", keys.path().display()),
    ])
    .await;
    rig.service(
        "web",
        json!({"type": "NodePort", "ports": [{"name": "http", "port": 80, "nodePort": 30080}]}),
    )
    .await;
    let secondary = start(rig.dns.port, port);
    let nodes: Vec<String> = [1, 2]
        .map(|node| format!("0 1 30080 n{node}.node.{ZONE}."))
        .to_vec();
    let nodes: Vec<&str> = nodes.iter().map(String::as_str).collect();
    secondary
        .dig
        .awaits("_http._tcp.web.shop.svc", "SRV", &nodes)
        .await;
    // Changes come by NOTIFY: the time to ask without is minutes.
    let began = Instant::now();
    rig.service(
        "web",
        json!({"ports": [{"name": "http", "port": 80, "nodePort": 30099}]}),
    )
    .await;
    let moved: Vec<String> = nodes
        .iter()
        .map(|text| text.replace("30080", "30099"))
        .collect();
    let moved: Vec<&str> = moved.iter().map(String::as_str).collect();
    secondary
        .dig
        .awaits("_http._tcp.web.shop.svc", "SRV", &moved)
        .await;
    println!(
        "from the Service to the secondary's answer: {:?}",
        began.elapsed()
    );
    rig.set_health(1, rig.healthz_port, false);
    secondary
        .dig
        .awaits("web.shop.svc", "A", &[&rig.ip(2)])
        .await;
    for (name, kind) in [
        ("", "SOA"),
        ("", "NS"),
        ("n1.node", "A"),
        ("nobody", "A"),
        ("shop.svc", "A"),
        ("web.shop.svc", "A"),
    ] {
        let (ours, theirs) = (
            rig.dig.ask(name, kind, &[]).await,
            secondary.dig.ask(name, kind, &[]).await,
        );
        assert_eq!(
            (&ours.status, &ours.answers),
            (&theirs.status, &theirs.answers),
            "{name} {kind}"
        );
    }
    assert!(
        rig.metric("portico_dns_notifies_total{outcome=\"answered\"}")
            .await
            >= 1.0
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bind_follows_the_zone() {
    follows(Secondary::bind).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nsd_follows_the_zone() {
    follows(Secondary::nsd).await;
}
