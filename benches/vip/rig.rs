//! Two masters and a client on one switch, an API server on each master, and what moves the address
//! between them.

use portico_testbed::{Host, Process, Testbed};
use std::fs;
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

pub(crate) const VIP: &str = "172.16.64.58:6443";
const MASTERS: [(&str, &str); 2] = [("master0", "172.16.64.35"), ("master1", "172.16.64.48")];
const CLIENT: &str = "172.16.64.125";
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Tool {
    Portico,
    Keepalived,
}

impl Tool {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Portico => "portico",
            Self::Keepalived => "keepalived",
        }
    }
}

/// How an owner is lost.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Loss {
    Killed,
    LinkDown,
    Frozen,
    Asked,
}

impl Loss {
    pub(crate) const ALL: [Self; 4] = [Self::Killed, Self::LinkDown, Self::Frozen, Self::Asked];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Killed => "process killed",
            Self::LinkDown => "link down",
            Self::Frozen => "host frozen",
            Self::Asked => "planned hand-over",
        }
    }
}

pub(crate) struct Rig {
    tool: Tool,
    interval: Duration,
    switch: Host,
    masters: Vec<Host>,
    pub client: Host,
    servers: Vec<Process>,
    daemons: Vec<Option<Process>>,
    dir: TempDir,
    _bed: Testbed,
}

impl Rig {
    pub(crate) fn start(tool: Tool, interval: Duration) -> Self {
        let mut dir = TempDir::with_prefix("portico-bench-vip-").unwrap();
        if std::env::var_os("PORTICO_KEEP").is_some() {
            dir.disable_cleanup(true);
            println!("logs of {} are in {}", tool.name(), dir.path().display());
        }
        let bed = Testbed::new().unwrap();
        let switch = bed.host("switch").unwrap();
        switch.bridge("br0").unwrap();
        let join = |name: &str, address: &str| {
            let host = bed.host(name).unwrap();
            host.cable_to_switch("eth0", &switch, name, "br0").unwrap();
            host.address("eth0", &format!("{address}/24")).unwrap();
            host.sysctl("net/ipv4/ip_forward", "1").unwrap();
            host
        };
        let masters = MASTERS
            .iter()
            .map(|(name, address)| join(name, address))
            .collect();
        let client = join("client", CLIENT);
        let (servers, daemons) = (Vec::new(), vec![None, None]);
        let mut rig = Self {
            tool,
            interval,
            switch,
            masters,
            client,
            servers,
            daemons,
            dir,
            _bed: bed,
        };
        (0..MASTERS.len()).for_each(|n| rig.start_server(n));
        (0..MASTERS.len()).for_each(|n| rig.start_daemon(n));
        rig.wait("somebody owns the address", |rig| rig.owners().len() == 1);
        rig
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn spawn(&self, n: usize, what: &str, mut command: Command) -> Process {
        let log = fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.path(&format!("{what}{n}.log")))
            .unwrap();
        command
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log);
        self.masters[n].spawn(command).unwrap()
    }

    fn start_server(&mut self, n: usize) {
        let (pki, first) = (self.path(&format!("pki{n}")), self.path("pki0"));
        if n > 0 {
            fs::create_dir(&pki).unwrap();
            for file in ["ca.crt", "ca.key"] {
                fs::copy(first.join(file), pki.join(file)).unwrap();
            }
        }
        let mut command = Command::new(env!("CARGO_BIN_EXE_portico"));
        command.args([
            "apiserver",
            "--secure-port",
            "6443",
            "--bind-address",
            "0.0.0.0",
        ]);
        command.args([
            "--advertise-address",
            MASTERS[n].1,
            "--service-cluster-ip-range",
            "10.96.0.0/16",
        ]);
        command
            .arg("--cert-dir")
            .arg(&pki)
            .arg("--data-dir")
            .arg(self.path(&format!("data{n}")));
        let server = self.spawn(n, "apiserver", command);
        self.servers.push(server);
        let address = format!("{}:6443", MASTERS[n].1);
        self.wait("the API server listens", |rig| {
            pki.join("admin.kubeconfig").exists()
                && rig.masters[n].enter(|| TcpStream::connect(&address).is_ok())
        });
    }

    fn start_daemon(&mut self, n: usize) {
        let daemon = match self.tool {
            Tool::Portico => self.portico(n),
            Tool::Keepalived => self.keepalived(n),
        };
        self.daemons[n] = Some(self.spawn(n, self.tool.name(), daemon));
    }

    fn portico(&self, n: usize) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_portico"));
        command.args([
            "vip",
            "--address",
            "172.16.64.58",
            "--forward",
            "direct",
            "--priority",
            "200",
            "--preempt=false",
        ]);
        command.args(["--interval", &format!("{}ms", self.interval.as_millis())]);
        let servers: Vec<String> = MASTERS
            .iter()
            .map(|(_, address)| format!("{address}:6443"))
            .collect();
        command
            .args(["--api-server", &servers.join(",")])
            .arg("--ca-file")
            .arg(self.path("pki0/ca.crt"));
        command
            .arg("--data-dir")
            .arg(self.path(&format!("vip{n}")))
            .arg("--static-services")
            .arg(self.path("none"));
        command
    }

    fn keepalived(&self, n: usize) -> Command {
        let text = format!(
            "global_defs {{\n  vrrp_version 3\n}}\n\
             vrrp_instance vip {{\n  state BACKUP\n  nopreempt\n  interface eth0\n  virtual_router_id 59\n  priority 200\n  \
             advert_int {}\n  virtual_ipaddress {{\n    172.16.64.58/32 dev eth0\n  }}\n}}\n",
            self.interval.as_secs_f64()
        );
        let file = self.path(&format!("keepalived{n}.conf"));
        fs::write(&file, text).unwrap();
        let mut command = Command::new("keepalived");
        command
            .args(["--dont-fork", "--log-console", "--vrrp", "--use-file"])
            .arg(file);
        for pid in ["--pid", "--vrrp_pid"] {
            command
                .arg(pid)
                .arg(self.path(&format!("keepalived{n}{pid}")));
        }
        command
    }

    fn owners(&self) -> Vec<usize> {
        let has = |host: &Host| {
            let mut command = Command::new("ip");
            command.args(["addr", "show", "dev", "eth0"]);
            host.run(command, "")
                .unwrap_or_default()
                .contains(" 172.16.64.58/")
        };
        (0..MASTERS.len())
            .filter(|&n| has(&self.masters[n]))
            .collect()
    }

    pub(crate) fn owner(&self) -> usize {
        self.wait("one owns the address", |rig| rig.owners().len() == 1);
        self.owners()[0]
    }

    pub(crate) fn wait_until_owned_by_other(&self, lost: usize) {
        self.wait("the other owns the address", |rig| {
            rig.owners().iter().any(|&n| n != lost)
        });
    }

    pub(crate) fn lose(&mut self, n: usize, loss: Loss) {
        match loss {
            Loss::Killed => drop(self.daemons[n].take().unwrap().kill()),
            Loss::Asked => self.daemons[n].as_mut().unwrap().signal(libc::SIGTERM),
            Loss::LinkDown => self.port(n, &["down"]),
            Loss::Frozen => {
                self.port(n, &["nomaster"]);
                self.signal(n, libc::SIGSTOP);
            }
        }
    }

    /// Everything as it was, but for who owns the address.
    pub(crate) fn mend(&mut self, n: usize, loss: Loss) {
        match loss {
            Loss::Killed => self.restart(n),
            Loss::Asked => {
                self.daemons[n].as_mut().unwrap().terminate(PATIENCE);
                self.restart(n);
            }
            Loss::LinkDown => self.port(n, &["up"]),
            Loss::Frozen => {
                self.signal(n, libc::SIGCONT);
                self.port(n, &["master", "br0"]);
            }
        }
        // It has heard the owner before that is lost in turn.
        std::thread::sleep(2 * self.interval + Duration::from_millis(1500));
    }

    fn restart(&mut self, n: usize) {
        // What keepalived leaves when it is killed is removed by hand.
        let mut command = Command::new("ip");
        command.args(["addr", "del", "172.16.64.58/32", "dev", "eth0"]);
        let _ = self.masters[n].run(command, "");
        self.start_daemon(n);
    }

    fn signal(&mut self, n: usize, signal: i32) {
        self.servers[n].signal(signal);
        self.daemons[n].as_mut().unwrap().signal(signal);
    }

    fn port(&self, n: usize, setting: &[&str]) {
        let mut command = Command::new("ip");
        command
            .args(["link", "set", "dev", MASTERS[n].0])
            .args(setting);
        self.switch.run(command, "").unwrap();
    }

    fn wait(&self, what: &str, condition: impl Fn(&Self) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !condition(self) {
            assert!(
                Instant::now() < deadline,
                "{}: waited {PATIENCE:?} in vain until {what}",
                self.tool.name()
            );
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}
