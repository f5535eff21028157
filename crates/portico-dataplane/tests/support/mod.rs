//! Network namespaces for tests: one thread each, gone when it ends.

#![allow(dead_code, clippy::unwrap_used, clippy::new_without_default, reason = "each test file uses a part")]

use std::process::Command;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

type Job = Box<dyn FnOnce() + Send>;

/// A thread in a network namespace of its own. Sockets that are made in it stay in it.
pub struct Namespace {
    jobs: Option<Sender<Job>>,
    thread: Option<JoinHandle<()>>,
    id: i32,
}

impl Namespace {
    pub fn new() -> Namespace {
        let (jobs, queue) = channel::<Job>();
        let (tell, told) = channel();
        let thread = std::thread::spawn(move || {
            tell.send(enter()).unwrap();
            for job in queue {
                job();
            }
        });
        let id = told.recv().unwrap();
        let namespace = Namespace { jobs: Some(jobs), thread: Some(thread), id };
        namespace.sh("ip link set lo up");
        namespace
    }

    /// Run in the namespace and wait.
    pub fn run<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> T {
        let (tell, told) = channel();
        let job = move || tell.send(job()).unwrap();
        self.jobs.as_ref().unwrap().send(Box::new(job)).unwrap();
        told.recv().expect("the job panicked")
    }

    /// Run a shell command; its output.
    pub fn sh(&self, command: &str) -> String {
        let command = command.to_owned();
        let output = self.run(move || (Command::new("sh").args(["-ec", &command]).output().unwrap(), command));
        let (output, command) = output;
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{command}: {errors}");
        assert!(errors.is_empty(), "{command}: {errors}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// A cable between two namespaces.
    pub fn connect(&self, name: &str, other: &Namespace, other_name: &str) {
        self.sh(&format!("ip link add {name} type veth peer name {other_name} netns {}", other.id));
        self.sh(&format!("ip link set {name} up"));
        other.sh(&format!("ip link set {other_name} up"));
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[expect(unsafe_code, reason = "namespaces are entered by a system call")]
fn enter() -> i32 {
    // SAFETY: no pointers.
    unsafe {
        assert_eq!(libc::unshare(libc::CLONE_NEWNET), 0, "tests of the kernel need root");
        libc::gettid()
    }
}
