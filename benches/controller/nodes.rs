//! Nodes: `portico node` in a network namespace each, which reaches the API server through its
//! loopback.

use portico_testbed::{Host, Process, Testbed};
use std::fs::File;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;

pub(crate) struct Node {
    pub name: String,
    host: Host,
    kubeconfig: PathBuf,
    dir: PathBuf,
    pub daemon: Option<Process>,
}

impl Node {
    /// A node that is not running yet.
    pub(crate) fn new(
        bed: &Testbed,
        number: usize,
        port: u16,
        kubeconfig: &Path,
        dir: &Path,
    ) -> Self {
        let name = format!("node-{number}");
        let host = bed.host(&name).unwrap();
        let router = bed.host(&format!("router-{number}")).unwrap();
        host.cable("eth0", &router, "eth0").unwrap();
        host.address("eth0", &format!("172.30.{number}.11/24"))
            .unwrap();
        lead(
            host.enter(|| TcpListener::bind(("127.0.0.1", port)))
                .unwrap(),
            port,
        );
        Self {
            dir: dir.join(&name),
            name,
            host,
            kubeconfig: kubeconfig.to_owned(),
            daemon: None,
        }
    }

    pub(crate) fn start(&mut self) {
        std::fs::create_dir_all(&self.dir).unwrap();
        let log = File::create(self.dir.join("log")).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_portico"));
        command.args([
            "node",
            "--proxy-mode=nftables",
            "--static-services=",
            "--cluster-cidr=10.244.0.0/16",
        ]);
        command.arg(format!("--hostname-override={}", self.name));
        command
            .arg("--kubeconfig")
            .arg(&self.kubeconfig)
            .arg("--data-dir")
            .arg(self.dir.join("data"));
        command
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log);
        self.daemon = Some(self.host.spawn(command).unwrap());
    }

    pub(crate) fn stop(&mut self) {
        self.daemon.take().unwrap().kill();
    }
}

/// What arrives at a node's loopback goes to ours: a socket stays in the namespace in which it was
/// made.
fn lead(listener: TcpListener, port: u16) {
    thread::spawn(move || {
        for inside in listener.incoming().flatten() {
            let Ok(outside) = TcpStream::connect(("127.0.0.1", port)) else {
                continue;
            };
            for stream in [&inside, &outside] {
                stream.set_nodelay(true).unwrap();
            }
            let (back, forth) = (outside.try_clone().unwrap(), inside.try_clone().unwrap());
            thread::spawn(move || copy(inside, outside));
            thread::spawn(move || copy(back, forth));
        }
    });
}

fn copy(mut from: TcpStream, mut to: TcpStream) {
    // Whoever has gone is none of our business.
    let _ = std::io::copy(&mut from, &mut to);
    let _ = to.shutdown(Shutdown::Both);
}
