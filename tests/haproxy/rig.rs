//! A HAProxy with a provider that drives it, and requests for it.

use crate::common::eventually;
use crate::endpoint::Endpoint;
use portico_providers::haproxy::Haproxy;
use portico_providers::{Family, Port, Protocol, Provider, ProviderError, Request, ServiceRef};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, UnixStream};
use tokio::sync::watch;

/// Where endpoints listen.
pub(crate) const PORT: u16 = 8080;

pub(crate) struct Rig {
    folder: TempDir,
    /// Two bytes of addresses that no other test has.
    network: [u8; 2],
}

/// The HAProxy goes with the rig, whoever started it.
impl Drop for Rig {
    fn drop(&mut self) {
        if let Ok(pid) = std::fs::read_to_string(self.path("haproxy.pid")) {
            let _ = Command::new("kill").args(["-9", pid.trim()]).status();
        }
    }
}

impl Rig {
    /// With more lines of configuration.
    pub(crate) fn new(more: &str) -> Self {
        static RIGS: AtomicU32 = AtomicU32::new(0);
        let number = std::process::id() * 16 + RIGS.fetch_add(1, Ordering::Relaxed);
        let rig = Self {
            folder: TempDir::new().unwrap(),
            network: [100 + (number >> 8) as u8 % 100, number as u8],
        };
        let folder = rig.folder.path().display();
        let config = format!(
            "addresses: [{}]\nfolder: {folder}\nmasterSocket: {folder}/master.sock\n\
             healthCheck: {{interval: 200ms, timeout: 1s, rise: 1, fall: 2}}\n{more}\n",
            rig.address(1),
        );
        std::fs::write(rig.config(), config).unwrap();
        rig
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn config(&self) -> PathBuf {
        self.path("cloud.yaml")
    }

    /// The first is HAProxy's.
    pub(crate) fn address(&self, host: u8) -> IpAddr {
        let [second, third] = self.network;
        Ipv4Addr::new(127, second, third, host).into()
    }

    pub(crate) fn frontend(&self, port: u16) -> SocketAddr {
        SocketAddr::new(self.address(1), port)
    }

    pub(crate) fn endpoint_address(&self, number: u8) -> SocketAddr {
        SocketAddr::new(self.address(10 + number), PORT)
    }

    pub(crate) async fn endpoints(&self, count: u8) -> Vec<Endpoint> {
        let hosts: Vec<u8> = (0..count).map(|number| 10 + number).collect();
        self.endpoints_at(&hosts).await
    }

    pub(crate) async fn start(&self) -> Running {
        let (stop, stopped) = watch::channel(false);
        Running {
            haproxy: Haproxy::start(&self.config(), stopped).await.unwrap(),
            stop,
        }
    }

    pub(crate) async fn endpoints_at(&self, hosts: &[u8]) -> Vec<Endpoint> {
        let mut endpoints = Vec::new();
        for host in hosts {
            endpoints.push(Endpoint::start(SocketAddr::new(self.address(*host), PORT)).await);
        }
        endpoints
    }

    /// What HAProxy's worker says to a command.
    pub(crate) async fn ask(&self, command: &str) -> String {
        self.ask_master(&format!("@1 {command}")).await
    }

    pub(crate) async fn ask_master(&self, command: &str) -> String {
        // A master that loads a configuration does not answer.
        eventually("HAProxy answers", || async {
            self.try_ask(command).await.ok()
        })
        .await
    }

    async fn try_ask(&self, command: &str) -> std::io::Result<String> {
        let mut stream = UnixStream::connect(self.path("master.sock")).await?;
        stream.write_all(format!("{command}\n").as_bytes()).await?;
        stream.shutdown().await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        Ok(answer)
    }

    /// Servers of all sections that get connections, by what HAProxy says.
    pub(crate) async fn servers(&self) -> Vec<String> {
        let states = self.ask("show servers state").await;
        let fields = states
            .lines()
            .map(|line| line.split(' ').collect::<Vec<_>>());
        let ready = fields.filter(|words| words.len() > 18 && words[6] == "0" && words[5] == "2");
        let mut names: Vec<String> = ready.map(|words| words[3].to_owned()).collect();
        names.sort();
        names
    }

    /// Every server that HAProxy has, whether it gets connections or not.
    pub(crate) async fn servers_of_sections(&self) -> Vec<String> {
        let states = self.ask("show servers state").await;
        let fields = states
            .lines()
            .map(|line| line.split(' ').collect::<Vec<_>>());
        fields
            .filter(|words| words.len() > 18)
            .filter(|words| words[0] != "#")
            .map(|words| format!("server {}/{} {} {}", words[1], words[3], words[4], words[6]))
            .collect()
    }

    pub(crate) fn config_text(&self) -> String {
        std::fs::read_to_string(self.path("haproxy.cfg")).unwrap()
    }
}

pub(crate) struct Running {
    pub haproxy: Haproxy,
    /// Dropped, it stops too.
    #[expect(dead_code, reason = "its end is what it is for")]
    stop: watch::Sender<bool>,
}

impl Running {
    pub(crate) async fn ensure(&self, request: &Request) {
        self.haproxy.ensure(request).await.unwrap();
    }

    pub(crate) async fn refusal(&self, request: &Request) -> &'static str {
        match self.haproxy.ensure(request).await {
            Err(ProviderError::Refused { reason, .. }) => reason,
            other => panic!("{other:?}"),
        }
    }
}

/// `test/NAME` at a port, at endpoints.
pub(crate) fn request(
    name: &str,
    port: u16,
    endpoints: impl IntoIterator<Item = SocketAddr>,
) -> Request {
    let mut endpoints: Vec<_> = endpoints.into_iter().map(endpoint).collect();
    endpoints.sort();
    Request {
        service: ServiceRef {
            namespace: "test".to_owned(),
            name: name.to_owned(),
            uid: format!("uid-{name}"),
        },
        annotations: [("portico.dev/targets".to_owned(), "endpoints".to_owned())].into(),
        families: vec![Family::V4],
        ports: vec![Port {
            name: String::new(),
            protocol: Protocol::Tcp,
            port,
            node_port: 0,
            app_protocol: None,
        }],
        endpoints,
        ..Request::default()
    }
}

fn endpoint(address: SocketAddr) -> portico_providers::Endpoint {
    let (port_name, protocol, port) = (String::new(), Protocol::Tcp, address.port());
    portico_providers::Endpoint {
        address: address.ip(),
        port_name,
        protocol,
        port,
        node: None,
    }
}

/// What the body of an answer says, on a connection from this address; `None` where there is no
/// whole answer.
pub(crate) async fn get(from: IpAddr, to: SocketAddr) -> Option<String> {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(SocketAddr::new(from, 0)).unwrap();
    let mut stream = socket.connect(to).await.ok()?;
    stream
        .write_all(b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        .await
        .ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    head.starts_with("HTTP/1.1 200").then(|| body.to_owned())
}

/// Nothing is left of HAProxy's own folder that only lives for a moment.
pub(crate) fn assert_tidy(folder: &Path) {
    let names = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let left: Vec<String> = names
        .filter(|name| name.ends_with(".new") || name.ends_with(".check"))
        .collect();
    assert!(left.is_empty(), "{left:?}");
}
