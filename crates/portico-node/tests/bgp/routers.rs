//! Real routers from Debian's packages: BIRD, FRR and GoBGP. Each is the neighbour of the three
//! nodes, over IPv4 and over IPv6.

use crate::rig::{NODES, OUR_AS, ROUTER_AS, Rig, wait_until};
use portico_testbed::Process;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Bird,
    Frr,
    Gobgp,
}

/// A running router.
pub(crate) struct Router<'a> {
    kind: Kind,
    rig: &'a Rig,
    dir: PathBuf,
    processes: Vec<Process>,
}

/// What a test wants of a router.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wish {
    pub password: Option<&'static str>,
    /// Route flap damping (FRR).
    pub dampening: bool,
    /// It takes the AS number of the nodes for this one.
    pub other_as: Option<u32>,
    /// It is of the AS of the nodes.
    pub internal: bool,
}

impl Wish {
    fn own_as(&self) -> u32 {
        if self.internal { OUR_AS } else { ROUTER_AS }
    }
}

impl Router<'_> {
    pub(crate) fn start(kind: Kind, rig: &Rig, wish: Wish) -> Router<'_> {
        let dir = rig.dir.path().to_owned();
        let mut router = Router {
            kind,
            rig,
            dir,
            processes: vec![],
        };
        match kind {
            Kind::Bird => router.start_bird(&wish),
            Kind::Frr => router.start_frr(&wish),
            Kind::Gobgp => router.start_gobgp(&wish),
        }
        router
    }

    /// It puts its routes into the kernel.
    pub(crate) fn programs_the_kernel(&self) -> bool {
        self.kind != Kind::Gobgp
    }

    /// The next hops of a prefix in its table of routes.
    pub(crate) fn next_hops(&self, prefix: &str) -> BTreeSet<String> {
        match self.kind {
            Kind::Bird => bird_next_hops(&self.ask(&["show", "route", "for", prefix, "all"])),
            Kind::Frr => {
                let family = if prefix.contains(':') { "ipv6" } else { "ipv4" };
                frr_next_hops(
                    &self.ask(&["-c", &format!("show bgp {family} unicast {prefix} json")]),
                )
            }
            Kind::Gobgp => {
                let family = if prefix.contains(':') { "ipv6" } else { "ipv4" };
                gobgp_next_hops(&self.ask(&["global", "rib", prefix, "-a", family, "-j"]))
            }
        }
    }

    /// It has a session with this address.
    pub(crate) fn is_established(&self, address: &str) -> bool {
        let text = match self.kind {
            Kind::Bird => {
                let name = neighbours()
                    .find(|(_, neighbour)| *neighbour == address)
                    .unwrap()
                    .0;
                return self
                    .ask(&["show", "protocols", &name])
                    .contains("Established");
            }
            Kind::Frr => self.ask(&["-c", &format!("show bgp neighbors {address} json")]),
            Kind::Gobgp => self.ask(&["neighbor", address, "-j"]),
        };
        let value: Value = serde_json::from_str(&text).unwrap_or_default();
        value[address]["bgpState"] == "Established" || value["state"]["session_state"] == 6
    }

    /// What the router's own tool says.
    pub(crate) fn ask(&self, arguments: &[&str]) -> String {
        let mut command = match self.kind {
            Kind::Bird => tool("birdc", "bird2", &["-s", &self.path("bird.ctl")]),
            Kind::Frr => tool("vtysh", "frr", &["--vty_socket", &self.path("")]),
            Kind::Gobgp => tool("gobgp", "gobgpd", &[]),
        };
        command.args(arguments);
        // GoBGP says that a prefix is not there by failing.
        self.rig.router.run(command, "").unwrap_or_default()
    }

    fn path(&self, name: &str) -> String {
        self.dir.join(name).to_str().unwrap().to_owned()
    }

    fn run(&mut self, mut command: Command, log: &str) {
        let log = fs::File::create(self.dir.join(log)).unwrap();
        command
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log);
        self.processes.push(self.rig.router.spawn(command).unwrap());
    }

    fn start_bird(&mut self, wish: &Wish) {
        fs::write(
            self.dir.join("bird.conf"),
            bird(wish, &self.path("bird.log")),
        )
        .unwrap();
        let (config, socket, pid) = (
            self.path("bird.conf"),
            self.path("bird.ctl"),
            self.path("bird.pid"),
        );
        self.run(
            tool(
                "bird",
                "bird2",
                &["-f", "-c", &config, "-s", &socket, "-P", &pid],
            ),
            "bird.out",
        );
        wait_until("BIRD runs", || {
            let answer = self.ask(&["show", "status"]);
            if answer.contains("Daemon is up and running") {
                Ok(())
            } else {
                Err(answer)
            }
        });
    }

    fn start_frr(&mut self, wish: &Wish) {
        fs::write(self.dir.join("frr.conf"), frr(wish)).unwrap();
        // Its daemons run as a user of their own.
        fs::set_permissions(&self.dir, fs::Permissions::from_mode(0o777)).unwrap();
        let (config, zserv, vty) = (self.path("frr.conf"), self.path("zserv.api"), self.path(""));
        for daemon in ["zebra", "bgpd"] {
            let (pid, log) = (
                self.path(&format!("{daemon}.pid")),
                format!("file:{}", self.path(&format!("{daemon}.log"))),
            );
            let program = format!("/usr/lib/frr/{daemon}");
            let mut command = tool(
                &program,
                "frr",
                &[
                    "-f",
                    &config,
                    "-i",
                    &pid,
                    "-z",
                    &zserv,
                    "--vty_socket",
                    &vty,
                ],
            );
            command.args(["--log", &log, "--log-level", "debug"]);
            self.run(command, &format!("{daemon}.out"));
            wait_until(&format!("{daemon} runs"), || {
                let socket = self.dir.join(format!("{daemon}.vty"));
                if socket.exists() {
                    Ok(())
                } else {
                    Err(fs::read_to_string(self.dir.join(format!("{daemon}.out"))))
                }
            });
        }
        wait_until("FRR answers", || {
            let answer = self.ask(&["-c", "show bgp summary json"]);
            if answer.contains(NODES[2][1]) {
                Ok(())
            } else {
                Err(answer)
            }
        });
    }

    fn start_gobgp(&mut self, wish: &Wish) {
        fs::write(self.dir.join("gobgp.toml"), gobgp(wish)).unwrap();
        let config = self.path("gobgp.toml");
        self.run(
            tool(
                "gobgpd",
                "gobgpd",
                &[
                    "-f",
                    &config,
                    "--api-hosts",
                    "127.0.0.1:50051",
                    "-l",
                    "debug",
                ],
            ),
            "gobgp.log",
        );
        wait_until("GoBGP runs", || {
            let answer = self.ask(&["neighbor", "-j"]);
            if answer.contains(NODES[2][1]) {
                Ok(())
            } else {
                Err(answer)
            }
        });
    }
}

/// A program of a package.
fn tool(program: &str, package: &str, arguments: &[&str]) -> Command {
    let found = match program.starts_with('/') {
        true => Path::new(program).exists(),
        false => std::env::var("PATH")
            .unwrap_or_default()
            .split(':')
            .any(|dir| Path::new(dir).join(program).exists()),
    };
    assert!(
        found,
        "{program} is not there: install the Debian package {package} (`make deps` does)"
    );
    let mut command = Command::new(program);
    command.args(arguments);
    command
}

fn neighbours() -> impl Iterator<Item = (String, &'static str)> {
    let of_node = |(number, node): (usize, &'static [&'static str; 2])| {
        node.iter()
            .zip(["v4", "v6"])
            .map(move |(address, family)| (format!("node{number}_{family}"), *address))
    };
    NODES.iter().enumerate().flat_map(of_node)
}

fn bird(wish: &Wish, log: &str) -> String {
    let (asn, password) = (wish.other_as.unwrap_or(OUR_AS), wish.password);
    let own = wish.own_as();
    let password = password
        .map(|password| format!("password \"{password}\";"))
        .unwrap_or_default();
    let mut text = format!(
        r#"log "{log}" all;
router id 10.8.0.1;
protocol device {{}}
protocol kernel {{ ipv4 {{ import none; export all; }}; merge paths on; }}
protocol kernel {{ ipv6 {{ import none; export all; }}; merge paths on; }}
template bgp node {{
  local as {own};
  passive;
  hold time 3;
  error wait time 1,2;
  {password}
  ipv4 {{ import all; export none; extended next hop; }};
  ipv6 {{ import all; export none; }};
}}
"#
    );
    for (name, address) in neighbours() {
        text += &format!("protocol bgp {name} from node {{ neighbor {address} as {asn}; }}\n");
    }
    text
}

fn frr(wish: &Wish) -> String {
    let asn = wish.other_as.unwrap_or(OUR_AS);
    let mut text = format!(
        "frr defaults traditional\nrouter bgp {}\n bgp router-id 10.8.0.1\n no bgp \
         ebgp-requires-policy\n timers bgp 1 3\n",
        wish.own_as()
    );
    for (_, address) in neighbours() {
        text += &format!(" neighbor {address} remote-as {asn}\n neighbor {address} passive\n");
        if address.contains(':') {
            text += &format!(" neighbor {address} capability extended-nexthop\n");
        }
        if let Some(password) = wish.password {
            text += &format!(" neighbor {address} password {password}\n");
        }
    }
    for family in ["ipv4", "ipv6"] {
        text += &format!(" address-family {family} unicast\n  maximum-paths 8\n");
        if wish.dampening {
            text += "  bgp dampening\n";
        }
        for (_, address) in neighbours() {
            text += &format!("  neighbor {address} activate\n");
        }
        text += " exit-address-family\n";
    }
    text
}

fn gobgp(wish: &Wish) -> String {
    let (asn, own) = (wish.other_as.unwrap_or(OUR_AS), wish.own_as());
    let mut text = format!(
        r#"[global.config]
as = {own}
router-id = "10.8.0.1"
port = 179
[global.use-multiple-paths.config]
enabled = true
"#
    );
    for (_, address) in neighbours() {
        let password = wish
            .password
            .map(|password| format!("auth-password = \"{password}\"\n"))
            .unwrap_or_default();
        text += &format!(
            r#"[[neighbors]]
[neighbors.config]
neighbor-address = "{address}"
peer-as = {asn}
{password}[neighbors.transport.config]
passive-mode = true
[neighbors.timers.config]
hold-time = 3
keepalive-interval = 1
[neighbors.graceful-restart.config]
enabled = true
restart-time = 30
"#
        );
        for family in ["ipv4-unicast", "ipv6-unicast"] {
            text += &format!(
                "[[neighbors.afi-safis]]\n[neighbors.afi-safis.config]\nafi-safi-name = \"{family}\"\n\
                 [neighbors.afi-safis.mp-graceful-restart.config]\nenabled = true\n"
            );
        }
    }
    text
}

fn bird_next_hops(text: &str) -> BTreeSet<String> {
    let next = |line: &str| {
        let line = line.trim().strip_prefix("BGP.next_hop:")?;
        Some(line.split_whitespace().next()?.to_owned())
    };
    text.lines().filter_map(next).collect()
}

fn frr_next_hops(text: &str) -> BTreeSet<String> {
    let value: Value = serde_json::from_str(text).unwrap_or_default();
    let paths = value["paths"].as_array().cloned().unwrap_or_default();
    // Those that are used together; one that is damped or worse is not.
    let used = paths
        .iter()
        .filter(|path| path["bestpath"]["overall"] == true || path["multipath"] == true);
    let next = |path: &Value| path["nexthops"][0]["ip"].as_str().map(str::to_owned);
    used.filter_map(next).collect()
}

fn gobgp_next_hops(text: &str) -> BTreeSet<String> {
    let value: Value = serde_json::from_str(text).unwrap_or_default();
    let prefixes: Vec<Value> = match value {
        Value::Array(paths) => paths,
        Value::Object(prefixes) => prefixes
            .into_iter()
            .flat_map(|(_, paths)| paths.as_array().cloned().unwrap_or_default())
            .collect(),
        _ => vec![],
    };
    let attributes = prefixes
        .iter()
        .flat_map(|path| path["attrs"].as_array().cloned().unwrap_or_default());
    attributes
        .filter_map(|attribute| attribute["nexthop"].as_str().map(str::to_owned))
        .collect()
}
