//! What is installed is what was asked for.

use super::*;
use clap::CommandFactory;

fn words(text: &[&str]) -> Vec<String> {
    text.iter().map(|word| (*word).to_owned()).collect()
}

#[test]
fn a_unit_runs_the_command_as_given() {
    let program = Path::new("/usr/local/bin/portico");
    let server: http::Uri = "https://192.0.2.11:6443".parse().unwrap();
    for (join, arguments, command) in [
        (
            None,
            words(&["--pool", "192.0.2.1-192.0.2.9"]),
            "up --pool 192.0.2.1-192.0.2.9",
        ),
        (None, words(&[]), "up"),
        (
            Some(&server),
            words(&["--data-dir", "/srv/node", "--", "--proxy-mode", "ipvs"]),
            "join https://192.0.2.11:6443/ --joined --data-dir /srv/node -- --proxy-mode ipvs",
        ),
    ] {
        let unit = systemd_unit(program, join, &arguments).unwrap();
        assert!(
            unit.contains(&format!("ExecStart=/usr/local/bin/portico {command}\n")),
            "{unit}"
        );
        assert!(!unit.contains('@'));
    }
}

#[test]
fn nothing_in_an_argument_means_something_to_systemd() {
    assert_eq!(quoted("a b").unwrap(), "\"a b\"");
    assert_eq!(quoted("50%$x\"\\").unwrap(), "\"50%%$$x\\\"\\\\\"");
    assert_eq!(quoted("").unwrap(), "\"\"");
    assert!(quoted("a\nExecStartPre=evil").is_err());
}

#[test]
fn there_is_completion_for_every_shell_and_a_page_for_every_command() {
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        let mut text = Vec::new();
        clap_complete::generate(
            shell,
            &mut crate::Arguments::command(),
            "portico",
            &mut text,
        );
        assert!(
            String::from_utf8_lossy(&text).contains("explain"),
            "{shell}"
        );
    }
    let dir = tempfile::tempdir().unwrap();
    clap_mangen::generate_to(crate::Arguments::command(), dir.path()).unwrap();
    for page in ["portico.1", "portico-node.1", "portico-lab-exec.1"] {
        assert!(dir.path().join(page).exists(), "{page}");
    }
}

#[test]
fn a_program_that_the_unit_cannot_read_is_taken_from_elsewhere() {
    for (running, program) in [
        ("/usr/bin/portico", "/usr/bin/portico"),
        ("/opt/portico/portico", "/opt/portico/portico"),
        ("/home/ann/portico/target/release/portico", PROGRAM),
        ("/root/portico", PROGRAM),
        ("/tmp/portico", PROGRAM),
        ("/homemade/portico", "/homemade/portico"),
    ] {
        assert_eq!(program_of_unit(Path::new(running)), Path::new(program));
    }
}

#[test]
fn a_copy_replaces_what_is_there_as_a_whole() {
    let dir = tempfile::tempdir().unwrap();
    let (running, program) = (dir.path().join("running"), dir.path().join("portico"));
    fs::write(&running, "new").unwrap();
    fs::write(&program, "old").unwrap();
    copy_program(&running, &program).unwrap();
    assert_eq!(fs::read_to_string(&program).unwrap(), "new");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
    assert!(copy_program(&running, Path::new("/proc/portico")).is_err());
}
