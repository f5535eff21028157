//! Through HAProxy on this node, with a configuration that follows the servers.
//!
//! An API server usually listens on every address of its node, the virtual one too, so HAProxy
//! listens at a port of its own and nftables sends there what comes to the virtual address. While
//! HAProxy does not answer it is sent to the servers directly. [`config`] writes the configuration,
//! [`process`] keeps the program running.
//!
//! HAProxy checks the servers itself. Which of them we know to be out it is told while it runs: a
//! reload would leave the connections that are open with a worker that checks nothing any more. Its
//! checks end no connection: on a busy machine those of all servers may fail at once, and clients
//! that were cut off would come back to the same ones. Those that lead nowhere we have it end.

mod config;
mod process;

use super::direct::Translation;
use super::route::Route;
use super::{ForwardError, Forwarder, Wanted};
use crate::access::KUBEADM_CA;
use config::{Config, SECTIONS};
use portico_dataplane::nftables::Table;
use process::Process;
use std::fs;
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

const TABLE: Table = Table::small("portico-vip-haproxy");
/// The time limit for HAProxy to listen once it was started, and to answer when it runs.
const START: Duration = Duration::from_secs(3);
const ANSWER: Duration = Duration::from_millis(300);

/// How HAProxy is run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HaproxySettings {
    /// The program to run.
    pub program: PathBuf,
    /// Where its configuration and its socket are: `haproxy.cfg`, `haproxy.sock`.
    pub folder: PathBuf,
    /// Addresses of this node, at which HAProxy listens, one of each family.
    pub own_addresses: Vec<IpAddr>,
    /// The port at which HAProxy listens on each of these addresses.
    pub port: u16,
    /// The CA of the servers' certificates: where it is not given kubeadm's, and without any they
    /// are not checked.
    pub ca_file: Option<PathBuf>,
    /// The time between two health checks of a server.
    pub check_interval: Duration,
    /// How long one health check may take.
    pub check_timeout: Duration,
    /// Good answers in a row until a server is used again.
    pub healthy_after: u32,
    /// Bad answers in a row until it no longer is.
    pub unhealthy_after: u32,
    /// The command (a program and its arguments) that makes an HAProxy which another program runs
    /// load our configuration.
    pub reload: Option<Vec<String>>,
}

impl Default for HaproxySettings {
    fn default() -> Self {
        Self {
            program: "haproxy".into(),
            folder: "/run/portico/haproxy".into(),
            own_addresses: Vec::new(),
            port: 16443,
            ca_file: None,
            check_interval: Duration::from_millis(500),
            check_timeout: Duration::from_millis(400),
            healthy_after: 2,
            unhealthy_after: 1,
            reload: None,
        }
    }
}

pub(super) struct Haproxy {
    settings: HaproxySettings,
    translation: Translation,
    process: Option<Process>,
    /// Where it is to listen.
    listen: Vec<SocketAddr>,
}

impl Haproxy {
    pub(super) fn open(
        mut settings: HaproxySettings,
        masquerade_mark: u32,
    ) -> Result<Self, ForwardError> {
        settings.ca_file = settings
            .ca_file
            .or_else(|| Some(KUBEADM_CA.into()).filter(|path: &PathBuf| path.exists()));
        Ok(Self {
            settings,
            translation: Translation::open(TABLE, masquerade_mark)?,
            process: None,
            listen: Vec::new(),
        })
    }

    fn config_path(&self) -> PathBuf {
        self.settings.folder.join("haproxy.cfg")
    }

    fn new_path(&self) -> PathBuf {
        self.settings.folder.join(".haproxy.cfg.new")
    }

    fn socket(&self) -> PathBuf {
        self.settings.folder.join("haproxy.sock")
    }

    /// HAProxy has this configuration, or is about to.
    fn configure(&mut self, config: &Config<'_>) -> Result<(), ForwardError> {
        let socket = self.socket();
        let old = fs::read_to_string(self.config_path()).unwrap_or_default();
        let text = config.text(&socket);
        if old == text && self.is_started() {
            return Ok(());
        }
        // Only the states of servers differ: they are set by commands, and the file is for the next
        // start.
        let same_servers = without_states(&old) == config.with_all().text(&socket);
        if !same_servers || !self.is_started() {
            self.check(&text)?;
        }
        self.replace(&text)?;
        if !self.is_started() {
            return self.start();
        }
        if !same_servers || tell(&socket, config).is_err() {
            self.reload()?;
        }
        Ok(())
    }

    fn is_started(&self) -> bool {
        self.process.is_some() || self.settings.reload.is_some()
    }

    fn start(&mut self) -> Result<(), ForwardError> {
        let started = Process::start(&self.settings.program, &self.config_path());
        self.process = Some(started.map_err(|source| failed("starting HAProxy", source))?);
        let deadline = Instant::now() + START;
        while !self.answers() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    fn reload(&self) -> Result<(), ForwardError> {
        if let Some(process) = &self.process {
            process.reload();
        }
        let Some([program, arguments @ ..]) = self.settings.reload.as_deref() else {
            return Ok(());
        };
        let output = Command::new(program).args(arguments).output();
        good(program, output.map_err(|source| failed(program, source))?)
    }

    /// A configuration that HAProxy does not take is not put in its place.
    fn check(&self, text: &str) -> Result<(), ForwardError> {
        let doing = |path: &Path| format!("writing {}", path.display());
        fs::create_dir_all(&self.settings.folder)
            .map_err(|source| failed(&doing(&self.settings.folder), source))?;
        fs::write(self.new_path(), text)
            .map_err(|source| failed(&doing(&self.new_path()), source))?;
        let program = &self.settings.program;
        match Command::new(program)
            .args(["-c", "-f"])
            .arg(self.new_path())
            .output()
        {
            Ok(output) => good(
                &format!("{} -c -f {}", program.display(), self.new_path().display()),
                output,
            ),
            // With a reload command HAProxy may be installed elsewhere, and its operator checks the
            // file.
            Err(error)
                if error.kind() == io::ErrorKind::NotFound && self.settings.reload.is_some() =>
            {
                Ok(())
            }
            Err(source) => Err(failed(&format!("running {}", program.display()), source)),
        }
    }

    fn replace(&self, text: &str) -> Result<(), ForwardError> {
        let written = fs::write(self.new_path(), text)
            .and_then(|()| fs::rename(self.new_path(), self.config_path()));
        written
            .map_err(|source| failed(&format!("writing {}", self.config_path().display()), source))
    }

    /// It listens wherever it should.
    fn answers(&self) -> bool {
        self.listen
            .iter()
            .all(|place| TcpStream::connect_timeout(place, ANSWER).is_ok())
    }

    /// Sends connections to HAProxy, or past it.
    fn translate(&mut self, routes: impl Iterator<Item = Route>) -> Result<(), ForwardError> {
        let answers = self.answers();
        if !answers {
            tracing::warn!("HAProxy does not answer: sending straight to the servers");
        }
        let to = |route: Route| {
            let haproxy = self.settings.listen_on(route.family).filter(|_| answers);
            (
                route.family,
                route.frontends,
                haproxy.map_or(route.eligible, |place| vec![place]),
            )
        };
        let routes: Vec<_> = routes.map(to).collect();
        self.translation.set(routes)
    }
}

impl Forwarder for Haproxy {
    fn name(&self) -> &'static str {
        "haproxy"
    }

    fn apply(&mut self, wanted: &Wanted) -> Result<(), ForwardError> {
        let routes: Vec<Route> = wanted.routes().collect();
        let settings = self.settings.clone();
        let config = Config::new(&settings, &routes);
        if config.listen.is_empty() && !routes.is_empty() {
            return Err(ForwardError::Unfit(
                "HAProxy needs an address of this node to listen at".to_owned(),
            ));
        }
        self.listen.clone_from(&config.listen);
        match routes.is_empty() {
            true => self.process = None,
            false => self.configure(&config)?,
        }
        self.translate(wanted.open_routes())?;
        wanted
            .gone()
            .iter()
            .for_each(|server| end_sessions(&self.socket(), server));
        Ok(())
    }

    fn rules(&mut self) -> Result<Vec<String>, ForwardError> {
        let text = fs::read_to_string(self.config_path()).unwrap_or_default();
        let about = format!("# {}", self.config_path().display());
        let config = [about].into_iter().chain(text.lines().map(str::to_owned));
        Ok(self.translation.rules().into_iter().chain(config).collect())
    }

    fn remove(&mut self) -> Result<(), ForwardError> {
        self.translation.remove()?;
        self.process = None;
        for path in [self.config_path(), self.new_path(), self.socket()] {
            match fs::remove_file(&path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                removed => removed
                    .map_err(|source| failed(&format!("removing {}", path.display()), source))?,
            }
        }
        // The folder is removed only if it is empty: other files in it are not ours.
        _ = fs::remove_dir(&self.settings.folder);
        Ok(())
    }
}

fn failed(doing: &str, source: io::Error) -> ForwardError {
    ForwardError::Io {
        doing: doing.to_owned(),
        source,
    }
}

fn good(doing: &str, output: Output) -> Result<(), ForwardError> {
    if output.status.success() {
        return Ok(());
    }
    let said = [output.stderr, output.stdout].concat();
    let said = String::from_utf8_lossy(&said);
    let alerts: Vec<&str> = said.lines().filter(|line| line.contains("ALERT")).collect();
    let said = if alerts.is_empty() {
        said.trim().to_owned()
    } else {
        alerts.join(" ")
    };
    Err(ForwardError::Unfit(format!(
        "{doing}: {}: {said}",
        output.status
    )))
}

fn without_states(text: &str) -> String {
    text.replace(" disabled\n", "\n")
}

/// Say of every server whether it is in, through the socket of the running HAProxy.
fn tell(socket: &Path, config: &Config<'_>) -> io::Result<()> {
    for target in &config.targets {
        let state = if target.disabled { "maint" } else { "ready" };
        for section in SECTIONS {
            ask(
                socket,
                &format!(
                    "set server {section}/{} state {state}\n",
                    config::name(&target.address)
                ),
            )?;
        }
    }
    Ok(())
}

/// Repeated with every look; a server that is gone gets no new sessions meanwhile.
fn end_sessions(socket: &Path, server: &SocketAddr) {
    let shutdown = |section| {
        ask(
            socket,
            &format!(
                "shutdown sessions server {section}/{}\n",
                config::name(server)
            ),
        )
    };
    if let Err(error) = SECTIONS.into_iter().try_for_each(shutdown) {
        tracing::warn!(%server, %error, "cannot end connections to a server that is gone");
    }
}

/// HAProxy answers with an empty line where there is nothing to say.
fn ask(socket: &Path, question: &str) -> io::Result<()> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(ANSWER))?;
    stream.write_all(question.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    match answer.trim() {
        "" => Ok(()),
        complaint => Err(io::Error::other(complaint.to_owned())),
    }
}

#[cfg(test)]
mod tests;
