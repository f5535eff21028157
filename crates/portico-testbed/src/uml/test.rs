//! Tests that run themselves inside.

use super::Uml;
use std::path::Path;
use std::process::Command;

/// Set inside.
const INSIDE: &str = "PORTICO_INSIDE_UML";

/// Whether this is the kernel inside, where everything takes longer.
pub fn is_inside() -> bool {
    std::env::var_os(INSIDE).is_some()
}

/// Whether this kernel has IPVS; loads it where it is a module.
pub fn has_ipvs() -> bool {
    let there = || Path::new("/proc/net/ip_vs").exists();
    there()
        || Command::new("modprobe")
            .args(["-q", "ip_vs"])
            .status()
            .is_ok_and(|_| there())
}

/// Runs the test of this name (that of the calling function) here if the kernel has IPVS, else
/// inside.
pub fn test_with_ipvs(name: &str, run: impl FnOnce()) {
    if has_ipvs() {
        run()
    } else {
        test_inside(name, run)
    }
}

/// Runs the test of this name (that of the calling function) inside: starts this program again
/// there, with nothing but that test, and passes its output and its end on.
#[expect(
    clippy::print_stdout,
    reason = "it is the output of the test that calls it"
)]
pub fn test_inside(name: &str, run: impl FnOnce()) {
    if is_inside() {
        return run();
    }
    let mut again = Command::new(std::env::current_exe().expect("a test has a program"));
    again
        .args([name, "--exact", "--include-ignored", "--nocapture"])
        .env(INSIDE, "1");
    let tell = |line: &str| println!("{line}");
    let ended = Uml::default()
        .run(&again, tell)
        .unwrap_or_else(|error| panic!("{error}: {}", error.source));
    assert_eq!(
        ended.status, 0,
        "{name} failed inside user-mode-linux; the kernel said:\n{}",
        ended.kernel
    );
    assert!(
        ended.output.contains("test result: ok. 1 passed"),
        "there is no test {name}"
    );
}
