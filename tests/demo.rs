//! `portico up --demo` as somebody meets it for the first time: everything that it prints is true, and nothing stays. Needs root.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test may panic and print")]

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);

struct Demo {
    child: Child,
    lines: std::io::Lines<BufReader<ChildStdout>>,
    /// The things to try, as printed.
    commands: Vec<String>,
    kubeconfig: String,
}

impl Demo {
    fn start(lab: &str) -> Demo {
        let mut child = Command::new(env!("CARGO_BIN_EXE_portico"))
            .args(["up", "--demo", "--port", "0", "--lab", lab])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let (mut commands, mut kubeconfig) = (Vec::new(), String::new());
        while commands.len() < 5 {
            let line = lines.next().expect("the demo prints its screenful").unwrap();
            println!("{line}");
            if let Some(path) = line.trim().strip_prefix("kubeconfig ") {
                kubeconfig = path.trim().to_owned();
            }
            let number = format!("{}. ", commands.len() + 1);
            if let Some(command) = line.trim().strip_prefix(&number) {
                commands.push(command.to_owned());
            }
        }
        Demo { child, lines, commands, kubeconfig }
    }

    /// Runs one of the things to try as somebody would who copies it.
    fn try_number(&self, number: usize) -> String {
        good(&shell(&self.commands[number - 1]))
    }

    /// Repeats it until its answer is as wanted.
    fn try_until(&self, number: usize, wanted: impl Fn(&str) -> bool) -> String {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let output = shell(&self.commands[number - 1]);
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            if output.status.success() && wanted(&text) {
                return text;
            }
            assert!(Instant::now() < deadline, "{} never: {output:?}", self.commands[number - 1]);
        }
    }

    /// The next line of what happens that has this in it.
    fn told(&mut self, words: &str) -> String {
        self.lines.by_ref().map(Result::unwrap).find(|line| line.contains(words)).expect("the demo goes on")
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn shell(command: &str) -> Output {
    Command::new("sh").args(["-c", command]).output().unwrap()
}

fn good(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn the_five_things_to_try_work_as_printed() {
    let mut demo = Demo::start("test");
    let services = demo.try_number(1);
    for wanted in ["web ", "LoadBalancer", "web-public", "NodePort", "web-internal", "ClusterIP"] {
        assert!(services.contains(wanted), "{services}");
    }
    for pod in ["web-1", "web-2", "web-3"] {
        demo.try_until(2, |text| text.starts_with(&format!("{pod} answers ")));
    }

    let owner = demo.commands[2].rsplit(' ').next().unwrap().to_owned();
    assert!(demo.try_number(3).contains(&format!("{owner} is killed")), "{owner}");
    let moved = demo.told("is answered for by");
    assert!(moved.contains(&format!("before: {owner}")), "{moved}");
    demo.try_until(2, |text| text.contains(" answers "));
    let back = demo.commands[2].replace(" kill ", " start ");
    assert!(good(&shell(&back)).contains("is started"));

    let explained = demo.try_number(4);
    assert!(
        explained.contains("is a load balancer's IP of default/web") && explained.contains("10.244.1.10:8080"),
        "{explained}"
    );

    assert!(demo.try_number(5).contains("web-1"));
    let without = |text: &str| !text.contains("10.244.1.10:8080") && text.contains("10.244.2.10:8080");
    demo.try_until(4, without);
    for _ in 0..30 {
        let answer = demo.try_until(2, |_| true);
        assert!(!answer.starts_with("web-1 "), "{answer}");
    }
}

#[test]
fn ctrl_c_leaves_nothing() {
    let mut demo = Demo::start("test-end");
    let socket = Path::new("/run/portico/lab-test-end.sock");
    let folder = Path::new(&demo.kubeconfig).parent().unwrap().to_owned();
    assert!(socket.exists() && folder.exists());
    let children = || good(&shell(&format!("ps -o args= --ppid {} || true", demo.child.id())));
    assert!(children().contains("portico"), "{}", children());
    let folder_text = folder.display().to_string();
    good(&shell(&format!("kill -INT {}", demo.child.id())));
    assert!(demo.child.wait().unwrap().success());
    assert!(!socket.exists() && !folder.exists());
    let deadline = Instant::now() + PATIENCE;
    while good(&shell("ps -eo args=")).lines().any(|line| line.contains(&folder_text) && !line.contains("ps -eo")) {
        assert!(Instant::now() < deadline, "programs are left: {}", good(&shell("ps -eo pid,args=")));
    }
}

#[test]
fn orders_that_make_no_sense_are_answered() {
    let portico = env!("CARGO_BIN_EXE_portico");
    let nowhere = shell(&format!("{portico} lab --lab none-such show"));
    assert!(
        !nowhere.status.success() && String::from_utf8_lossy(&nowhere.stderr).contains("portico up --demo"),
        "{nowhere:?}"
    );
    let demo = Demo::start("test-orders");
    for (order, wanted) in [
        ("kill node9", "there are node1, node2, node3"),
        ("resume node1", ""),
        ("start node1", "node1 runs already"),
        ("exec nobody -- true", "there is no host nobody"),
    ] {
        let output = shell(&format!("{portico} lab --lab test-orders {order}"));
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(told.contains(wanted), "{order}: {told}");
        assert_eq!(output.status.success(), wanted.is_empty(), "{order}: {told}");
    }
    drop(demo);
}
