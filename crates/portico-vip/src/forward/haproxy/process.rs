//! HAProxy as our child: started, told to reload, started again when it dies, and ended with us,
//! whatever we end of.

use portico_client::wait::Backoff;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// The time between two looks whether it still runs.
const LOOK: Duration = Duration::from_millis(100);
/// Before it is started again, the longer the more often it died.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// A process that ran for this long did not fail at its start.
const STEADY: Duration = Duration::from_secs(10);
/// The time limit for it to end when asked.
const GOODBYE: Duration = Duration::from_secs(2);

/// Runs until dropped. In the network namespace of the thread that started it.
pub(super) struct Process {
    /// To load the configuration anew. Gone when it is to end.
    reloads: Option<SyncSender<()>>,
    supervisor: Option<JoinHandle<()>>,
}

impl Process {
    pub(super) fn start(program: &Path, config: &Path) -> io::Result<Self> {
        let (reloads, received) = mpsc::sync_channel(1);
        let supervisor = Supervisor {
            program: program.to_owned(),
            config: config.to_owned(),
            reloads: received,
        };
        // The kernel takes the end of the thread that started a child for the end of its parent:
        // this one lives as long.
        let thread = thread::Builder::new()
            .name("haproxy".to_owned())
            .spawn(move || supervisor.run())?;
        Ok(Self {
            reloads: Some(reloads),
            supervisor: Some(thread),
        })
    }

    pub(super) fn reload(&self) {
        // One that waits already will do.
        self.reloads
            .iter()
            .for_each(|reloads| _ = reloads.try_send(()));
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.reloads = None;
        self.supervisor.take().map(JoinHandle::join);
    }
}

struct Supervisor {
    program: PathBuf,
    config: PathBuf,
    reloads: Receiver<()>,
}

impl Supervisor {
    fn run(self) {
        let mut backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
        loop {
            let began = Instant::now();
            match self.spawn() {
                Ok(mut child) => match self.attend(&mut child) {
                    Some(status) => {
                        tracing::error!(%status, "HAProxy ended by itself, and is started again")
                    }
                    None => return end(child),
                },
                Err(error) => tracing::error!(%error, "cannot start HAProxy, will try again"),
            }
            if began.elapsed() > STEADY {
                backoff.reset();
            }
            // What it was to load it loads when it starts.
            let until = Instant::now() + backoff.next_wait();
            while let Some(rest) = until.checked_duration_since(Instant::now()) {
                if self.reloads.recv_timeout(rest) == Err(RecvTimeoutError::Disconnected) {
                    return;
                }
            }
        }
    }

    /// A master that stays in the foreground, and workers.
    fn spawn(&self) -> io::Result<Child> {
        let mut command = Command::new(&self.program);
        command
            .args(["-W", "-db", "-f"])
            .arg(&self.config)
            .stdin(Stdio::null());
        // A signal to our process group must not end HAProxy: it ends when another node has the
        // address and open connections are over.
        command.process_group(0);
        die_with_us(&mut command);
        command.spawn()
    }

    /// Waits until the program ends, or is to end (`None`).
    fn attend(&self, child: &mut Child) -> Option<std::process::ExitStatus> {
        loop {
            match self.reloads.recv_timeout(LOOK) {
                Ok(()) => signal(child, libc::SIGUSR2),
                Err(RecvTimeoutError::Disconnected) => return None,
                Err(RecvTimeoutError::Timeout) => {}
            }
            if let Ok(Some(status)) = child.try_wait() {
                return Some(status);
            }
        }
    }
}

fn end(mut child: Child) {
    signal(&child, libc::SIGTERM);
    let deadline = Instant::now() + GOODBYE;
    while Instant::now() < deadline {
        if !matches!(child.try_wait(), Ok(None)) {
            return;
        }
        thread::sleep(Duration::from_millis(5));
    }
    _ = child.kill();
    _ = child.wait();
}

#[expect(
    unsafe_code,
    reason = "what a child does between fork and exec is unsafe to say"
)]
fn die_with_us(command: &mut Command) {
    let parent = std::process::id() as i32;
    // SAFETY: the closure makes system calls and nothing else: it allocates nothing and takes no
    // lock.
    unsafe {
        command.pre_exec(move || {
            if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM) != 0 {
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

/// Its number is its own until it has been waited for, which only we do.
#[expect(unsafe_code, reason = "kill is only there as a system call")]
fn signal(child: &Child, signal: i32) {
    // SAFETY: takes two integers, touches no memory of ours.
    unsafe { libc::kill(child.id() as i32, signal) };
}
