//! A second machine joins the cluster of `portico up`: two network namespaces, the printed command,
//! and a Service that answers on both. Needs root.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test may panic and print"
)]

mod common;

use std::net::SocketAddr;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

use common::Client;
use portico_testbed::{Ask as _, Echo as _};
use portico_testbed::{Flow, Host, Process, Protocol, Route, Testbed};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::runtime::Builder;

/// For anything; machines may be busy.
const PATIENCE: Duration = Duration::from_secs(120);
const SERVER: &str = "192.0.2.11";
const JOINED: &str = "192.0.2.12";
const SERVICE: &str = "10.96.0.100";
const BACKEND_PORT: u16 = 8080;

struct Machines {
    server: Host,
    joining: Host,
    dir: TempDir,
    _up: Process,
    _bed: Testbed,
}

impl Machines {
    /// `portico up` runs on one of two.
    fn start() -> Self {
        let bed = Testbed::new().unwrap();
        let (server, joining) = (bed.host("server").unwrap(), bed.host("joining").unwrap());
        server.cable("eth0", &joining, "eth0").unwrap();
        for (host, address, other) in [(&server, SERVER, JOINED), (&joining, JOINED, SERVER)] {
            host.link_up("lo").unwrap();
            host.link_up("eth0").unwrap();
            host.address("eth0", &format!("{address}/24")).unwrap();
            host.route(Route::to("default").via(other)).unwrap();
        }
        server.serve(BACKEND_PORT).unwrap();
        let dir = TempDir::with_prefix("portico-join-").unwrap();
        let mut up = portico();
        up.args(["up", "--node-name", "one", "--data-dir"])
            .arg(dir.path().join("up"))
            .stdin(Stdio::null());
        let up = server
            .spawn(logged(up, &dir.path().join("up.log")))
            .unwrap();
        Self {
            server,
            joining,
            dir,
            _up: up,
            _bed: bed,
        }
    }

    fn kubeconfig(&self) -> String {
        self.dir
            .path()
            .join("up/api/pki/admin.kubeconfig")
            .display()
            .to_string()
    }

    /// What `portico token create` prints, as soon as the server is there.
    fn token(&self, more: &[&str]) -> Vec<String> {
        until("a token is made", || {
            let mut command = portico();
            command
                .args(["token", "create", "--kubeconfig", &self.kubeconfig()])
                .args(more);
            self.server.run(command, "").ok()
        })
        .split_whitespace()
        .map(str::to_owned)
        .collect()
    }

    /// Runs what was printed until it ends; what it says.
    fn fails(&self, printed: &[String], name: &str) -> String {
        self.fails_with(self.join(printed, name), name)
    }

    fn fails_with(&self, command: Command, name: &str) -> String {
        let log = self.dir.path().join(format!("{name}.failed.log"));
        let mut process = self.joining.spawn(logged(command, &log)).unwrap();
        let status = until("the command ends", || process.ended());
        let told = std::fs::read_to_string(&log).unwrap();
        assert!(!status.success(), "{told}");
        told
    }

    /// What was printed is `echo TOKEN | portico join …`.
    fn join(&self, printed: &[String], name: &str) -> Command {
        self.join_from(name, printed, name)
    }

    fn join_from(&self, folder: &str, printed: &[String], name: &str) -> Command {
        let at = printed.iter().position(|word| word == "portico").unwrap();
        let mut command = portico();
        command
            .args(&printed[at + 1..])
            .args(["--node-name", name, "--data-dir"])
            .arg(self.dir.path().join(folder));
        command.stdin(Stdio::null());
        if let ["echo", token, "|"] =
            printed[..at].iter().map(String::as_str).collect::<Vec<_>>()[..]
        {
            let file = self.dir.path().join(format!("{name}.input"));
            std::fs::write(&file, format!("{token}\n")).unwrap();
            command.stdin(std::fs::File::open(file).unwrap());
        }
        command
    }

    /// An answer of the API server, to who has this token.
    fn ask(&self, token: &str, method: &str, path: &str, body: Option<Value>) -> (u16, Value) {
        let client = Client::new(&format!("{SERVER}:6443"), token, None);
        let body = body.map(|body| ("application/merge-patch+json", body.to_string().into()));
        self.joining.enter(|| {
            Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap()
                .block_on(async {
                    let answer = client.call(method, path, &[], body).await;
                    (answer.status, answer.json())
                })
        })
    }

    fn kubectl(&self, arguments: &[&str], input: &str) -> String {
        let mut command = Command::new("kubectl");
        command
            .args(["--kubeconfig", &self.kubeconfig()])
            .args(arguments);
        self.server
            .run(command, input)
            .unwrap_or_else(|error| panic!("{arguments:?}: {error}: {}", error.source))
    }
}

fn portico() -> Command {
    Command::new(env!("CARGO_BIN_EXE_portico"))
}

fn logged(mut command: Command, log: &Path) -> Command {
    let out = std::fs::File::create(log).unwrap();
    command.stdout(out.try_clone().unwrap()).stderr(out);
    command
}

fn until<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = ask() {
            return found;
        }
        assert!(Instant::now() < deadline, "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Whether the Service answers on this machine.
fn answers(host: &Host) -> bool {
    let to: SocketAddr = format!("{SERVICE}:80").parse().unwrap();
    let flow = Flow {
        patience: Duration::from_secs(2),
        ..Flow::new(Protocol::Tcp, to)
    };
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    runtime
        .block_on(host.ask(&flow))
        .is_ok_and(|answer| answer.seen.host == "server")
}

fn service() -> String {
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"},
        "spec": {"clusterIP": SERVICE, "ports": [{"port": 80, "targetPort": BACKEND_PORT}]}});
    let slice = json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {"name": "web", "labels": {"kubernetes.io/service-name": "web"}},
        "ports": [{"port": BACKEND_PORT, "protocol": "TCP", "name": ""}],
        "endpoints": [{"addresses": [SERVER], "conditions": {"ready": true}}]});
    json!({"apiVersion": "v1", "kind": "List", "items": [service, slice]}).to_string()
}

#[test]
fn a_machine_joins_and_forwards() {
    let machines = Machines::start();
    let printed = machines.token(&[]);

    // Somebody else's server: nothing is sent to it.
    let mut wrong = printed.clone();
    *wrong.last_mut().unwrap() = format!("sha256:{}", "0".repeat(64));
    let told = machines.fails(&wrong, "wrong-hash");
    assert!(
        told.contains("is not the one that --ca-hash names"),
        "{told}"
    );
    // A token that nobody made.
    let mut wrong = printed.clone();
    wrong[1] = "abcdef.0123456789abcdef".to_owned();
    let told = machines.fails(&wrong, "wrong-token");
    assert!(told.contains("it is wrong, or has expired"), "{told}");
    // A token whose time is over.
    let brief = machines.token(&["--ttl", "1s"]);
    until("the token has expired", || {
        let (status, _) = machines.ask(&brief[1], "GET", "/api/v1/services", None);
        (status == 401).then_some(())
    });
    let told = machines.fails(&brief, "expired-token");
    assert!(told.contains("it is wrong, or has expired"), "{told}");
    // A Node that is there is not taken over.
    let told = machines.fails(&printed, "one");
    assert!(told.contains("a Node one is there already"), "{told}");

    let log = machines.dir.path().join("two.log");
    let mut join = machines.join(&printed, "two");
    join.args([
        "--provider-id",
        "x://two",
        "--node-external-address",
        "198.51.100.2",
    ]);
    let joined = machines.joining.spawn(logged(join, &log)).unwrap();
    machines.kubectl(&["apply", "-f", "-"], &service());
    until("the Service answers on the server", || {
        answers(&machines.server).then_some(())
    });
    until("the Service answers on the machine that joined", || {
        answers(&machines.joining).then_some(())
    });
    let nodes = machines.kubectl(&["get", "nodes", "-o", "wide"], "");
    assert!(nodes.contains("two") && nodes.contains(JOINED), "{nodes}");
    assert!(nodes.contains("198.51.100.2"), "{nodes}");
    let versions = nodes.matches("+portico-").count();
    assert_eq!(versions, 2, "both say what they run: {nodes}");
    let two = machines.kubectl(
        &["get", "node", "two", "-o", "jsonpath={.spec.providerID}"],
        "",
    );
    assert_eq!(two, "x://two");
    // What it says of itself is written again, by its own right, when the program is started anew.
    let old = r#"{"status": {"nodeInfo": {"kubeletVersion": "v1.0.0"}}}"#;
    let patch = [
        "patch",
        "node",
        "two",
        "--subresource=status",
        "--type=merge",
        "-p",
        old,
    ];
    machines.kubectl(&patch, "");
    drop(joined);
    let mut join = machines.join(&printed, "two");
    join.arg("--joined");
    let again = machines.dir.path().join("again.log");
    let joined = machines.joining.spawn(logged(join, &again)).unwrap();
    until("the version is written again", || {
        let nodes = machines.kubectl(&["get", "nodes"], "");
        (nodes.matches("+portico-").count() == 2).then_some(())
    });

    // It may write what is its own, and nothing else.
    let token = std::fs::read_to_string(machines.dir.path().join("two/token")).unwrap();
    let said = std::fs::read_to_string(&log).unwrap();
    assert!(
        !said.contains(&token) && !said.contains(&printed[1]),
        "no secret is in the log"
    );
    let status = json!({"status": {"conditions": [{"type": "Ready", "status": "False"}]}});
    let own = machines.ask(
        &token,
        "PATCH",
        "/api/v1/nodes/two/status",
        Some(status.clone()),
    );
    assert_eq!(own.0, 200, "{}", own.1);
    for (method, path, body) in [
        ("PATCH", "/api/v1/nodes/one/status", Some(status)),
        ("GET", "/api/v1/namespaces/kube-system/secrets", None),
        ("DELETE", "/api/v1/namespaces/default/services/web", None),
    ] {
        assert_eq!(
            machines.ask(&token, method, path, body).0,
            403,
            "{method} {path}"
        );
    }
    // Without its Node it is nobody; what it forwards, it goes on forwarding.
    machines.kubectl(&["delete", "node", "two"], "");
    until("its token is useless", || {
        (machines.ask(&token, "GET", "/api/v1/services", None).0 == 401).then_some(())
    });
    until("it goes on", || answers(&machines.joining).then_some(()));
    drop(joined);

    // What is wrong is an error also on a machine that joined before.
    let mut wrong = printed.clone();
    *wrong.last_mut().unwrap() = format!("sha256:{}", "0".repeat(64));
    let told = machines.fails(&wrong, "two");
    assert!(told.contains("--ca-hash"), "{told}");
    let mut wrong = printed.clone();
    wrong[1] = "abcdef.0123456789abcdef".to_owned();
    let told = machines.fails(&wrong, "two");
    assert!(told.contains("it is wrong, or has expired"), "{told}");
    let renamed = machines.join_from("two", &printed, "three");
    let told = machines.fails_with(renamed, "renamed");
    assert!(told.contains("is the node two already"), "{told}");
    // With a token that is right it becomes a node again.
    let again = machines.dir.path().join("anew.log");
    let _joined = machines
        .joining
        .spawn(logged(machines.join(&printed, "two"), &again))
        .unwrap();
    until("its Node is there again", || {
        let nodes = machines.kubectl(&["get", "nodes", "-o", "name"], "");
        nodes.contains("node/two").then_some(())
    });
    machines.kubectl(&["delete", "service", "web"], "");
    until("it follows changes again", || {
        (!answers(&machines.joining)).then_some(())
    });
}

#[test]
fn a_machine_that_joined_goes_on_and_renews_its_token() {
    let machines = Machines::start();
    let (dir, printed) = (machines.dir.path(), machines.token(&[]));
    let joined = machines
        .joining
        .spawn(logged(machines.join(&printed, "two"), &dir.join("two.log")))
        .unwrap();
    machines.kubectl(&["apply", "-f", "-"], &service());
    until("it has joined and forwards", || {
        answers(&machines.joining).then_some(())
    });
    drop(joined);

    let file = dir.join("two/token");
    let token = || std::fs::read_to_string(&file).unwrap();
    let before = token();
    let long_ago = SystemTime::now() - Duration::from_secs(25 * 3600);
    std::fs::File::options()
        .write(true)
        .open(&file)
        .unwrap()
        .set_modified(long_ago)
        .unwrap();
    // As systemd has it.
    let notified = UnixDatagram::bind(dir.join("notify")).unwrap();
    notified.set_read_timeout(Some(PATIENCE)).unwrap();
    let url = format!("https://{SERVER}:6443");
    let mut again = machines.join(
        &["portico", "join", &url, "--joined"].map(str::to_owned),
        "two",
    );
    again.env("NOTIFY_SOCKET", dir.join("notify"));
    let _again = machines
        .joining
        .spawn(logged(again, &dir.join("again.log")))
        .unwrap();
    let mut told = [0; 64];
    let length = notified.recv(&mut told).unwrap();
    assert_eq!(&told[..length], b"READY=1");
    let renewed = until("its token is renewed", || {
        Some(token()).filter(|token| *token != before)
    });
    assert_eq!(
        machines.ask(&renewed, "GET", "/api/v1/nodes/two", None).0,
        200
    );
    machines.kubectl(&["delete", "service", "web"], "");
    until("it follows changes", || {
        (!answers(&machines.joining)).then_some(())
    });
}
