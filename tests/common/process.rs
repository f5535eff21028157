//! Server processes: started on free ports in a temporary directory, killed on drop.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Instant;

use tempfile::TempDir;

use super::client::Client;
use super::{PATIENCE, ports};

/// The service ranges the recorded cases were made with.
pub(crate) const SERVICE_RANGES: &str = "10.96.0.0/16,fd00:10:96::/112";

/// Tokens in the token file of every server: token, user, uid, groups.
const TOKENS: &str = "\
admin-token,admin,1,system:masters
viewer-token,viewer,2,viewers
node-token,system:node:node-a,3,system:nodes
nobody-token,nobody,4
";

/// Where a server keeps its data.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Store {
    Embedded,
    Etcd,
}

/// A child process that dies with its owner.
struct Process {
    child: Child,
    log: PathBuf,
    /// How many lines of the log a failed test shows.
    tail: usize,
}

impl Process {
    fn start(program: &Path, arguments: &[String], log: PathBuf, tail: usize) -> Self {
        let out = File::options()
            .create(true)
            .append(true)
            .open(&log)
            .unwrap();
        let child = Command::new(program)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(out.try_clone().unwrap())
            .stderr(out)
            .spawn()
            .unwrap_or_else(|error| panic!("cannot start {}: {error}", program.display()));
        Self { child, log, tail }
    }

    fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
        if std::thread::panicking() {
            let log = self.log();
            let lines: Vec<String> = log
                .lines()
                .map(|line| line.chars().take(300).collect())
                .collect();
            let tail = &lines[lines.len().saturating_sub(self.tail)..];
            eprintln!(
                "--- the end of {}\n{}\n---",
                self.log.display(),
                tail.join("\n")
            );
        }
    }
}

/// An etcd with its own data; clones are the same process.
#[derive(Clone)]
pub(crate) struct Etcd {
    pub url: String,
    _process: Arc<Process>,
    _dir: Arc<TempDir>,
}

impl Etcd {
    pub(crate) async fn start() -> Self {
        let dir = TempDir::with_prefix("portico-etcd-").unwrap();
        let (client, peer) = (
            format!("http://127.0.0.1:{}", ports::free()),
            format!("http://127.0.0.1:{}", ports::free()),
        );
        let arguments = [
            ("--data-dir", dir.path().join("data").display().to_string()),
            ("--listen-client-urls", client.clone()),
            ("--advertise-client-urls", client.clone()),
            ("--listen-peer-urls", peer.clone()),
            ("--initial-advertise-peer-urls", peer.clone()),
            ("--initial-cluster", format!("default={peer}")),
        ];
        let arguments: Vec<_> = arguments
            .into_iter()
            .flat_map(|(flag, value)| [flag.to_owned(), value])
            .collect();
        let program = std::env::var("ETCD").unwrap_or("etcd".to_owned());
        let process = Process::start(
            Path::new(&program),
            &arguments,
            dir.path().join("etcd.log"),
            5,
        );
        let address = client.trim_start_matches("http://").to_owned();
        let started = Instant::now();
        while !answers_health(&address).await {
            assert!(
                started.elapsed() < PATIENCE,
                "etcd does not start: {}",
                process.log()
            );
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
        Self {
            url: client,
            _process: Arc::new(process),
            _dir: Arc::new(dir),
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self._process.child.id()
    }
}

async fn answers_health(address: &str) -> bool {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let Ok(mut tcp) = tokio::net::TcpStream::connect(address).await else {
        return false;
    };
    let mut answer = String::new();
    let request = b"GET /health HTTP/1.0\r\nHost: etcd\r\n\r\n";
    tcp.write_all(request).await.is_ok()
        && tcp.read_to_string(&mut answer).await.is_ok()
        && answer.contains("true")
}

/// The kube-apiserver to start in place of Portico, if the environment names one.
pub(crate) fn rival() -> Option<PathBuf> {
    std::env::var_os("PORTICO_TEST_KUBE_APISERVER").map(PathBuf::from)
}

/// A running API server and its data.
pub(crate) struct Server {
    process: Process,
    program: PathBuf,
    kube: bool,
    pub port: u16,
    dir: Arc<TempDir>,
    etcd: Option<Etcd>,
    flags: Vec<String>,
    admin: Client,
}

impl Server {
    /// Starts Portico with these flags beside the usual ones, and waits until it is ready.
    pub(crate) async fn start(store: Store, flags: &[&str]) -> Self {
        let etcd = if store == Store::Etcd || rival().is_some() {
            Some(Etcd::start().await)
        } else {
            None
        };
        Self::start_on(etcd, flags).await
    }

    /// The same on an etcd that already runs, or the embedded store.
    pub(crate) async fn start_on(etcd: Option<Etcd>, flags: &[&str]) -> Self {
        let (program, kube) = match rival() {
            Some(program) => (program, true),
            None => (PathBuf::from(env!("CARGO_BIN_EXE_portico")), false),
        };
        Self::launch(&program, kube, etcd, flags).await
    }

    /// Starts a given program, a kube-apiserver or a Portico.
    pub(crate) async fn launch(
        program: &Path,
        kube: bool,
        etcd: Option<Etcd>,
        flags: &[&str],
    ) -> Self {
        match Self::attempt(program, kube, etcd, flags).await {
            Ok(server) => server,
            Err(log) => panic!("the server does not start:\n{log}"),
        }
    }

    /// Starts Portico where it should fail; the log when it does.
    pub(crate) async fn refuses(flags: &[&str]) -> String {
        match Self::attempt(Path::new(env!("CARGO_BIN_EXE_portico")), false, None, flags).await {
            Ok(_) => panic!("the server started with {flags:?}"),
            Err(log) => log,
        }
    }

    async fn attempt(
        program: &Path,
        kube: bool,
        etcd: Option<Etcd>,
        flags: &[&str],
    ) -> Result<Self, String> {
        let dir = TempDir::with_prefix("portico-test-").unwrap();
        fs::write(dir.path().join("tokens.csv"), TOKENS).unwrap();
        if kube {
            write_service_account_key(dir.path());
        }
        let port = ports::free();
        let flags: Vec<_> = flags.iter().map(|&flag| flag.to_owned()).collect();
        let arguments = arguments(dir.path(), kube, etcd.as_ref(), port, &flags);
        let process = Process::start(program, &arguments, dir.path().join("server.log"), 40);
        // The CA exists only once the server has made it: until it is ready nobody is trusted with
        // anything.
        let admin = Client::new(&format!("127.0.0.1:{port}"), "admin-token", None);
        let dir = Arc::new(dir);
        let mut server = Self {
            process,
            program: program.to_owned(),
            kube,
            port,
            dir,
            etcd,
            flags,
            admin,
        };
        server.ready().await?;
        Ok(server)
    }

    /// Waits until `/readyz` answers; the log if the server ends or takes too long.
    async fn ready(&mut self) -> Result<(), String> {
        let (authority, started) = (format!("127.0.0.1:{}", self.port), Instant::now());
        let probe = Client::new(&authority, "admin-token", None);
        loop {
            if probe
                .try_call("GET", "/readyz", &[], None)
                .await
                .is_ok_and(|answer| answer.status == 200)
            {
                let ca = (!self.kube).then(|| self.cert_dir().join("ca.crt"));
                self.admin = Client::new(&authority, "admin-token", ca);
                return Ok(());
            }
            if self.process.child.try_wait().unwrap().is_some() || started.elapsed() > PATIENCE {
                return Err(self.log());
            }
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    }

    /// Ends the server without notice, as a power cut would.
    pub(crate) fn kill(&mut self) {
        self.process.kill();
    }

    /// Asks the server to end (SIGTERM) and waits until it has; its exit code.
    pub(crate) async fn stop(&mut self) -> Option<i32> {
        let status = Command::new("kill")
            .arg(self.pid().to_string())
            .status()
            .unwrap();
        assert!(status.success());
        let started = Instant::now();
        loop {
            if let Some(status) = self.process.child.try_wait().unwrap() {
                return status.code();
            }
            assert!(
                started.elapsed() < PATIENCE,
                "the server does not end on SIGTERM"
            );
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    }

    /// Waits until the server has ended by itself; its exit code.
    pub(crate) async fn ended(&mut self) -> Option<i32> {
        let started = Instant::now();
        loop {
            if let Some(status) = self.process.child.try_wait().unwrap() {
                return status.code();
            }
            assert!(started.elapsed() < PATIENCE, "the server does not end");
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    }

    /// Kills the server if it runs and starts it again on its data and port, with other flags if
    /// given.
    pub(crate) async fn restart(&mut self, flags: Option<&[&str]>) {
        self.kill();
        if let Some(flags) = flags {
            self.flags = flags.iter().map(|&flag| flag.to_owned()).collect();
        }
        if let Err(log) = self.start_again().await {
            panic!("the server does not start again:\n{log}");
        }
    }

    /// Starts the server, which has ended, on its data and port; the log if it does not become
    /// ready.
    pub(crate) async fn start_again(&mut self) -> Result<(), String> {
        let arguments = arguments(
            self.dir.path(),
            self.kube,
            self.etcd.as_ref(),
            self.port,
            &self.flags,
        );
        self.process = Process::start(
            &self.program,
            &arguments,
            self.dir.path().join("server.log"),
            40,
        );
        self.ready().await
    }

    pub(crate) fn admin(&self) -> Client {
        self.admin.clone()
    }

    pub(crate) fn with_token(&self, token: &str) -> Client {
        self.admin.with_token(token)
    }

    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn etcd(&self) -> Option<&Etcd> {
        self.etcd.as_ref()
    }

    pub(crate) fn cert_dir(&self) -> PathBuf {
        if self.etcd.is_some() {
            self.dir().join("pki")
        } else {
            self.dir().join("data/pki")
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.child.id()
    }

    pub(crate) fn log(&self) -> String {
        self.process.log()
    }

    pub(crate) fn is_rival(&self) -> bool {
        self.kube
    }

    /// A kubeconfig for the administrator: the server's own, or one like it for a rival.
    pub(crate) fn kubeconfig(&self) -> PathBuf {
        if !self.kube {
            return self.cert_dir().join("admin.kubeconfig");
        }
        let path = self.dir().join("admin.kubeconfig");
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: test\n\
             clusters: [{{name: test, cluster: {{server: 'https://127.0.0.1:{}', insecure-skip-tls-verify: true}}}}]\n\
             users: [{{name: admin, user: {{token: admin-token}}}}]\n\
             contexts: [{{name: test, context: {{cluster: test, user: admin}}}}]\n",
            self.port
        );
        fs::write(&path, text).unwrap();
        path
    }
}

fn arguments(
    dir: &Path,
    kube: bool,
    etcd: Option<&Etcd>,
    port: u16,
    flags: &[String],
) -> Vec<String> {
    let mut arguments: Vec<String> = if kube {
        vec![]
    } else {
        vec!["apiserver".to_owned()]
    };
    let mut add = |flag: &str, value: String| arguments.extend([format!("--{flag}={value}")]);
    match etcd {
        Some(etcd) => {
            add("etcd-servers", etcd.url.clone());
            add("cert-dir", dir.join("pki").display().to_string());
        }
        None if flags.iter().any(|flag| flag.starts_with("--data-dir")) => {}
        None => add("data-dir", dir.join("data").display().to_string()),
    }
    add("secure-port", port.to_string());
    add("bind-address", "127.0.0.1".to_owned());
    add(
        "token-auth-file",
        dir.join("tokens.csv").display().to_string(),
    );
    if !flags
        .iter()
        .any(|flag| flag.starts_with("--service-cluster-ip-range"))
    {
        add("service-cluster-ip-range", SERVICE_RANGES.to_owned());
    }
    if kube {
        let key = dir.join("sa.key").display().to_string();
        add("authorization-mode", "RBAC".to_owned());
        add("service-account-key-file", key.clone());
        add("service-account-signing-key-file", key);
        add(
            "service-account-issuer",
            "https://kubernetes.default.svc".to_owned(),
        );
        add("disable-admission-plugins", "ServiceAccount".to_owned());
    }
    arguments.extend(flags.iter().cloned());
    arguments
}

fn write_service_account_key(dir: &Path) {
    let made = Command::new("openssl")
        .args(["genrsa", "-out"])
        .arg(dir.join("sa.key"))
        .args(["2048"])
        .output()
        .unwrap();
    assert!(
        made.status.success(),
        "{}",
        String::from_utf8_lossy(&made.stderr)
    );
}
