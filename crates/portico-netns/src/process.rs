//! Programs inside a host, which die with the program that started them, whatever it dies of.

use crate::Result;
use crate::host::Host;
use crate::namespace;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{
    Child, ChildStderr, ChildStdin, ChildStdout, Command, ExitStatus, Output, Stdio,
};
use std::sync::mpsc::{self, Sender};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

/// A running program and the processes it started; all are killed on drop.
pub struct Process {
    child: Child,
}

impl Host {
    /// Starts a program inside this host.
    pub fn spawn(&self, command: Command) -> Result<Process> {
        let doing = format!("start {command:?}");
        let child = start(Some(self.namespace_fd()), command).map_err(self.failed(doing))?;
        Ok(Process { child })
    }

    /// Runs a program inside this host to its end, which must be a good one, with this input; its
    /// output.
    pub fn run(&self, mut command: Command, input: &str) -> Result<String> {
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let doing = format!("run {command:?}");
        let output =
            start(Some(self.namespace_fd()), command).and_then(|child| finish(child, input));
        output.and_then(good).map_err(self.failed(doing))
    }
}

/// Takes the calling program to the namespace that a file stands for, such as `/proc/PID/fd/N` of
/// the program that holds it, and becomes the command. Returns only if it cannot.
pub fn become_inside(namespace: &Path, mut command: Command) -> io::Error {
    match File::open(namespace).and_then(|file| namespace::join(file.as_raw_fd())) {
        Ok(()) => command.exec(),
        Err(error) => error,
    }
}

impl From<Child> for Process {
    fn from(child: Child) -> Self {
        Self { child }
    }
}

impl Process {
    /// Starts a program where the calling one is.
    pub fn start(command: Command) -> io::Result<Self> {
        start(None, command).map(Self::from)
    }

    /// What was asked for of its standard input, output and error.
    pub fn pipes(&mut self) -> (Option<ChildStdin>, Option<ChildStdout>, Option<ChildStderr>) {
        (
            self.child.stdin.take(),
            self.child.stdout.take(),
            self.child.stderr.take(),
        )
    }

    /// The process id, in the namespace of the caller.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// The status, once it has ended.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Asks the program to end and kills it if it does not in time; how it ended.
    pub fn terminate(&mut self, patience: Duration) -> Option<ExitStatus> {
        self.signal(libc::SIGTERM);
        let deadline = Instant::now() + patience;
        while Instant::now() < deadline {
            if let Some(status) = self.ended() {
                return Some(status);
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        self.kill()
    }

    /// Ends the program without notice.
    pub fn kill(&mut self) -> Option<ExitStatus> {
        self.signal(libc::SIGKILL);
        self.child.wait().ok()
    }

    /// Sends a signal to the program and what it started.
    pub fn signal(&mut self, signal: i32) {
        // Its number is its own until it has been waited for.
        if self.ended().is_none() {
            signal_group(self.child.id() as i32, signal);
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

fn finish(mut child: Child, input: &str) -> io::Result<Output> {
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(input.as_bytes())?;
    }
    child.wait_with_output()
}

fn good(output: Output) -> io::Result<String> {
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => {
            let text = String::from_utf8_lossy(&output.stderr);
            Err(io::Error::other(format!(
                "{}: {}",
                output.status,
                text.trim()
            )))
        }
    }
}

type Job = Box<dyn FnOnce() + Send>;

/// Starts a child from a thread that lives as long as this program: the kernel takes the end of the
/// *thread* that started a child for the death of its parent. It runs in the namespace, if one is
/// given.
pub fn start(namespace: Option<RawFd>, mut command: Command) -> io::Result<Child> {
    static STARTER: OnceLock<Mutex<Sender<Job>>> = OnceLock::new();
    let starter = STARTER.get_or_init(|| {
        let (sender, jobs) = mpsc::channel::<Job>();
        std::thread::spawn(move || jobs.iter().for_each(|job| job()));
        Mutex::new(sender)
    });
    prepare(&mut command, namespace);
    let (answer, started) = mpsc::channel();
    let job: Job = Box::new(move || drop(answer.send(command.spawn())));
    let gone = || io::Error::other("the thread that starts programs is gone");
    starter
        .lock()
        .map_err(|_| gone())?
        .send(job)
        .map_err(|_| gone())?;
    started.recv().map_err(|_| gone())?
}

#[expect(
    unsafe_code,
    reason = "what a child does between fork and exec is unsafe to say"
)]
fn prepare(command: &mut Command, namespace: Option<RawFd>) {
    let parent = std::process::id() as i32;
    command.process_group(0);
    // SAFETY: the closure makes system calls and nothing else: it allocates nothing and takes no
    // lock.
    unsafe {
        command.pre_exec(move || {
            namespace.map_or(Ok(()), namespace::join)?;
            if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) != 0 {
                return Err(io::Error::last_os_error());
            }
            // The parent may have died before the kernel was asked to tell.
            if libc::getppid() != parent {
                Err(io::ErrorKind::BrokenPipe.into())
            } else {
                Ok(())
            }
        });
    }
}

#[expect(unsafe_code, reason = "killpg is only there as a system call")]
fn signal_group(group: i32, signal: i32) {
    // SAFETY: takes two integers, touches no memory of ours.
    unsafe { libc::killpg(group, signal) };
}
