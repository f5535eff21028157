//! Linux 6.1 as a program: runs a command in a kernel of its own (user-mode-linux), which has what
//! this one may lack: IPVS, the legacy iptables.
//!
//! Inside are the host's files, which cannot be written; `/run` (where `TMPDIR` is) and `/dev/shm`
//! are in memory. There is one CPU, and nf_tables knows neither IPv4 nor IPv6. Outside, all of it
//! lives in namespaces of its own: it is gone, with its processes and files, when the command has
//! ended, when time is up, and when its parent dies, for any reason.

use portico_netns::process::{self, Process};
use portico_netns::{Error, Result};
use std::ffi::OsStr;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

mod test;

pub use test::{has_ipvs, is_inside, test_inside, test_with_ipvs};

/// Commands that have to be there, with the Debian packages they come in.
const NEEDED: [(&str, &str); 7] = [
    ("cc", "build-essential"),
    ("linux.uml", "user-mode-linux"),
    ("modprobe", "kmod"),
    ("taskset", "util-linux"),
    ("unshare", "util-linux"),
    ("xtables-legacy-multi", "iptables"),
    ("ip", "iproute2"),
];
const FOLDERS: [&str; 6] = [
    "/usr/local/sbin",
    "/usr/local/bin",
    "/usr/sbin",
    "/usr/bin",
    "/sbin",
    "/bin",
];
/// Files that it needs outside, its memory among them, are in a folder that no other process sees.
/// It does not take the shell's place: the first process of a namespace cannot abort itself, which
/// is how this kernel ends a panic.
const START: &str =
    "ulimit -c 0; mount -t tmpfs -o mode=700,size=100% uml /run && cat >/run/init && chmod 700 /run/init &&
    if [ -n \"$XSTATE\" ]; then
        printf %s \"$XSTATE\" | cc -shared -fPIC -O2 -x c -o /run/xstate.so - && export LD_PRELOAD=/run/xstate.so
    fi &&
    TMPDIR=/run taskset --cpu-list \"$CPU\" linux.uml uml_dir=/run/ init=/run/init \"$@\" </dev/null; exit $?";
/// The first line is the command's output, the other the kernel's own words.
const LINES: [&str; 4] = ["ssl=null", "ssl0=null,fd:1", "con=null", "con0=null,fd:2"];
const ROOT: [&str; 3] = ["rootfstype=hostfs", "rootflags=/", "ro"];
/// Put before the library of the host where the CPU has more registers than this kernel knows.
const XSTATE: &str = include_str!("uml/xstate.c");
const INIT: &str = include_str!("uml/init.sh");
/// Begins the last line of the output.
const ENDED: &str = "user-mode-linux: the command ended with status ";

/// A kernel to be started.
#[derive(Clone, Debug)]
pub struct Uml {
    pub memory: String,
    /// After which it is ended.
    pub patience: Duration,
}

impl Default for Uml {
    fn default() -> Self {
        Self {
            memory: "2G".to_owned(),
            patience: Duration::from_secs(900),
        }
    }
}

/// A command that has ended.
#[derive(Clone, Debug)]
pub struct Ended {
    /// As a shell tells it: 128 and more is the signal it died of.
    pub status: u8,
    /// What it printed, to both its standard output and its standard error.
    pub output: String,
    /// What the kernel had to say.
    pub kernel: String,
}

enum Line {
    Output(String),
    Kernel(String),
}

impl Uml {
    /// Runs the command with its arguments, in its folder and with this program's environment
    /// beside its own; `tell` gets the lines that it prints as they come.
    pub fn run(&self, command: &Command, mut tell: impl FnMut(&str)) -> Result<Ended> {
        let (mut process, lines) = self.boot(&script(command)).map_err(failed("start"))?;
        let deadline = Instant::now() + self.patience;
        let mut ended = Ended {
            status: 0,
            output: String::new(),
            kernel: String::new(),
        };
        loop {
            match lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(Line::Kernel(line)) => ended.kernel.push_str(&line),
                Ok(Line::Output(line)) => {
                    match line.strip_prefix(ENDED).map(|status| status.trim().parse()) {
                        Some(status) => {
                            let odd = |_| failed("end")(io::Error::other(line.clone()));
                            ended.status = status.map_err(odd)?;
                            return Ok(ended);
                        }
                        None => {
                            ended.output.push_str(&line);
                            tell(line.trim_end_matches('\n'));
                        }
                    }
                }
                Err(RecvTimeoutError::Timeout) => return Err(self.too_late(&ended)),
                Err(RecvTimeoutError::Disconnected) => {
                    let status = process
                        .kill()
                        .map(|status| status.to_string())
                        .unwrap_or_default();
                    let text = format!(
                        "the kernel ended by itself ({status}); it said:\n{}",
                        ended.kernel
                    );
                    return Err(failed(format!("run {command:?}"))(io::Error::other(text)));
                }
            }
        }
    }

    fn boot(&self, script: &[u8]) -> io::Result<(Process, mpsc::Receiver<Line>)> {
        for (program, package) in NEEDED {
            if !FOLDERS
                .iter()
                .any(|folder| Path::new(folder).join(program).exists())
            {
                let text = format!(
                    "{program} is not there: install the package {package} (`make deps` does)"
                );
                return Err(io::Error::new(io::ErrorKind::NotFound, text));
            }
        }
        let mut unshare = Command::new("unshare");
        unshare.args([
            "--mount",
            "--pid",
            "--fork",
            "--kill-child=KILL",
            "sh",
            "-c",
            START,
            "sh",
        ]);
        unshare
            .arg(format!("mem={}", self.memory))
            .args(ROOT)
            .args(LINES)
            .arg("quiet");
        unshare.env("CPU", next_cpu()?);
        unshare.env("XSTATE", if has_many_registers() { XSTATE } else { "" });
        unshare
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut process = Process::from(process::start(None, unshare)?);
        let (sender, lines) = mpsc::channel();
        if let (Some(mut stdin), Some(stdout), Some(stderr)) = process.pipes() {
            read_lines(stdout, Line::Output, sender.clone());
            read_lines(stderr, Line::Kernel, sender);
            stdin.write_all(script)?;
        }
        Ok((process, lines))
    }

    fn too_late(&self, ended: &Ended) -> Error {
        let tail: Vec<&str> = ended.output.lines().rev().take(10).collect();
        let tail: Vec<&str> = tail.into_iter().rev().collect();
        let text = format!(
            "its last words:\n{}\nthe kernel's:\n{}",
            tail.join("\n"),
            ended.kernel
        );
        let source = io::Error::new(io::ErrorKind::TimedOut, text);
        failed(format!("end within {:?}", self.patience))(source)
    }
}

fn failed(doing: impl Into<String>) -> impl FnOnce(io::Error) -> Error {
    let doing = doing.into();
    move |source| Error {
        host: "user-mode-linux".to_owned(),
        doing,
        source,
    }
}

fn read_lines(pipe: impl Read + Send + 'static, line: fn(String) -> Line, lines: Sender<Line>) {
    std::thread::spawn(move || {
        let (mut pipe, mut bytes) = (BufReader::new(pipe), Vec::new());
        while pipe
            .read_until(b'\n', &mut bytes)
            .is_ok_and(|length| length > 0)
        {
            let text = String::from_utf8_lossy(&bytes).into_owned();
            if lines.send(line(text)).is_err() {
                return;
            }
            bytes.clear();
        }
    });
}

/// The first program inside: makes a place for the command and runs it.
fn script(command: &Command) -> Vec<u8> {
    let mut script = INIT.as_bytes().to_vec();
    let own =
        std::env::vars_os().filter(|(name, _)| is_name(name) && name != "PATH" && name != "TMPDIR");
    let given = command
        .get_envs()
        .filter_map(|(name, value)| Some((name.to_owned(), value?.to_owned())));
    for (name, value) in own.chain(given) {
        script.extend([b"export ", name.as_bytes(), b"=", &quoted(&value), b"\n"].concat());
    }
    let here = std::env::current_dir().unwrap_or_default();
    let folder = command.get_current_dir().unwrap_or(&here);
    script.extend([b"cd ".as_slice(), &quoted(folder.as_os_str()), b" &&"].concat());
    for word in std::iter::once(command.get_program()).chain(command.get_args()) {
        script.push(b' ');
        script.extend(quoted(word));
    }
    // The reader of the last line ends the kernel.
    script.extend(
        format!("\nstatus=$?; printf '\\n%s%s\\n' '{ENDED}' $status; sleep infinity\n")
            .into_bytes(),
    );
    script
}

/// What a shell can have as the name of a variable.
fn is_name(name: &OsStr) -> bool {
    let bytes = name.as_bytes();
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    bytes.iter().all(plain) && bytes.first().is_some_and(|byte| !byte.is_ascii_digit())
}

/// As a shell takes it for one word.
fn quoted(word: &OsStr) -> Vec<u8> {
    let parts: Vec<&[u8]> = word.as_bytes().split(|&byte| byte == b'\'').collect();
    [b"'".as_slice(), &parts.join(br"'\''".as_slice()), b"'"].concat()
}

/// Where a kernel is to run, each on another CPU as long as there are others. Its processes take
/// turns with it at every system call: on one CPU that is a switch, between two it is an interrupt
/// and a wake-up, and twice as slow.
fn next_cpu() -> io::Result<String> {
    static STARTED: AtomicUsize = AtomicUsize::new(0);
    let status = std::fs::read_to_string("/proc/self/status")?;
    let allowed = status
        .lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:"))
        .unwrap_or_default();
    let cpus = cpus(allowed);
    let turn = STARTED
        .fetch_add(1, Ordering::Relaxed)
        .checked_rem(cpus.len());
    let cpu = turn
        .and_then(|turn| cpus.get(turn))
        .ok_or_else(|| io::Error::other("/proc/self/status has no CPUs"))?;
    Ok(cpu.to_string())
}

/// From a list like `0-1,4`.
fn cpus(list: &str) -> Vec<u32> {
    let range = |range: &str| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        Some(first.parse().ok()?..=last.parse().ok()?)
    };
    list.trim().split(',').filter_map(range).flatten().collect()
}

/// The CPU has AMX, whose registers are larger than all others together.
fn has_many_registers() -> bool {
    std::fs::read_to_string("/proc/cpuinfo").is_ok_and(|text| text.contains(" amx_tile"))
}
