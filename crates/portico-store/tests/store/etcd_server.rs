//! A real etcd on loopback for one test. A shell holds it: when the test lets go of the shell's
//! input, or dies, etcd dies.

use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use portico_store::{EtcdOptions, Store};
use tempfile::TempDir;

const SHELL: &str = r#"etcd "$@" & pid=$!; read -r _; kill -9 $pid; wait $pid"#;

pub(crate) struct Server {
    pub dir: TempDir,
    client: u16,
    peer: u16,
    scheme: &'static str,
    extra: Vec<String>,
    shell: Option<Child>,
}

impl Server {
    pub(crate) fn start() -> Self {
        Self::start_with(tempfile::tempdir().unwrap(), "http", vec![])
    }

    pub(crate) fn start_with(dir: TempDir, scheme: &'static str, extra: Vec<String>) -> Self {
        let mut server = Self {
            dir,
            client: free_port(),
            peer: free_port(),
            scheme,
            extra,
            shell: None,
        };
        server.run();
        server
    }

    /// A cluster of three.
    pub(crate) fn start_cluster() -> Vec<Self> {
        let member = |_| {
            let dir = tempfile::tempdir().unwrap();
            Self {
                dir,
                client: free_port(),
                peer: free_port(),
                scheme: "http",
                extra: vec![],
                shell: None,
            }
        };
        let mut servers: Vec<Self> = (0..3).map(member).collect();
        let peers: Vec<_> = servers
            .iter()
            .enumerate()
            .map(|(n, server)| format!("m{n}={}", server.peer_url()))
            .collect();
        for (number, server) in servers.iter_mut().enumerate() {
            server.extra = vec![
                format!("--name=m{number}"),
                format!("--initial-cluster={}", peers.join(",")),
                "--election-timeout=400".into(),
            ];
            server.spawn();
        }
        // A member only listens to clients when there is a leader.
        servers.iter().for_each(Self::wait_for_port);
        servers
    }

    fn peer_url(&self) -> String {
        format!("http://127.0.0.1:{}", self.peer)
    }

    pub(crate) fn endpoint(&self) -> String {
        format!("{}://127.0.0.1:{}", self.scheme, self.client)
    }

    pub(crate) fn options(&self) -> EtcdOptions {
        EtcdOptions {
            endpoints: vec![self.endpoint()],
            ..EtcdOptions::default()
        }
    }

    pub(crate) async fn open(&self) -> Store {
        open(self.options()).await
    }

    /// Starts it, or starts it again on the same data.
    pub(crate) fn run(&mut self) {
        self.spawn();
        self.wait_for_port();
    }

    fn spawn(&mut self) {
        let client = self.endpoint();
        let peer = self.peer_url();
        let data: PathBuf = self.dir.path().join("etcd");
        let log = std::fs::File::create(self.dir.path().join("log")).unwrap();
        let shell = Command::new("sh")
            .args([
                "-c",
                SHELL,
                "sh",
                "--name=test",
                "--heartbeat-interval=20",
                "--election-timeout=200",
            ])
            .args(["--logger=zap", "--log-outputs=stderr"])
            .arg(format!("--data-dir={}", data.display()))
            .arg(format!("--listen-client-urls={client}"))
            .arg(format!("--advertise-client-urls={client}"))
            .arg(format!("--listen-peer-urls={peer}"))
            .arg(format!("--initial-advertise-peer-urls={peer}"))
            .arg(format!("--initial-cluster=test={peer}"))
            .args(&self.extra)
            .stdin(Stdio::piped())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        self.shell = Some(shell);
    }

    pub(crate) fn kill(&mut self) {
        if let Some(mut shell) = self.shell.take() {
            drop(shell.stdin.take());
            let _ = shell.wait();
        }
    }

    fn wait_for_port(&self) {
        let deadline = Instant::now() + Duration::from_secs(20);
        while TcpStream::connect(("127.0.0.1", self.client)).is_err() {
            let log = std::fs::read_to_string(self.dir.path().join("log")).unwrap_or_default();
            assert!(
                !log.contains("not found"),
                "these tests need etcd on the PATH: install the package etcd-server"
            );
            assert!(Instant::now() < deadline, "etcd does not start: {log}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

/// etcd listens before it has a leader, so the first tries may fail.
pub(crate) async fn open(options: EtcdOptions) -> Store {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        match Store::etcd(options.clone()).await {
            Ok(store) => return store,
            Err(error) => assert!(Instant::now() < deadline, "{error:?}"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Below the range from which outgoing connections take theirs, so that a killed server finds its
/// port free.
pub(crate) fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let first = 20_000 + (std::process::id() % 1000) as u16 * 10;
    loop {
        let port = first.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed));
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}
