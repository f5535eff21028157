//! The Dockerfile, which nobody here can build: what it copies is there, the versions are the
//! project's, and the program is where it is started.

use crate::deploy;
use std::fs;
use std::path::PathBuf;

fn root() -> PathBuf {
    deploy().join("..")
}

/// Instructions with their lines joined, as Docker reads them.
fn instructions() -> Vec<(String, String)> {
    let text = fs::read_to_string(deploy().join("Dockerfile")).unwrap();
    let lines: Vec<&str> = text
        .lines()
        .filter(|line| !line.trim_start().starts_with('#'))
        .collect();
    let joined = lines.join("\n").replace("\\\n", " ");
    let lines = joined.lines().filter(|line| !line.trim().is_empty());
    lines
        .map(|line| line.split_once(' ').unwrap())
        .map(|(name, rest)| (name.to_owned(), rest.trim().to_owned()))
        .collect()
}

#[test]
fn the_instructions_are_those_of_docker_and_stages_exist() {
    let mut stages = Vec::new();
    for (name, rest) in instructions() {
        assert!(
            ["FROM", "WORKDIR", "COPY", "RUN", "ENV", "ENTRYPOINT"].contains(&name.as_str()),
            "{name}"
        );
        if name == "FROM" {
            stages.push(rest.split(" AS ").nth(1).unwrap_or_default().to_owned());
        }
        let from = rest
            .strip_prefix("--from=")
            .map(|rest| rest.split(' ').next().unwrap().to_owned());
        assert!(
            from.as_ref().is_none_or(|from| stages.contains(from)),
            "there is no stage {from:?}"
        );
    }
    assert_eq!(stages, ["build", "static", ""]);
}

#[test]
fn what_is_built_is_this_project() {
    let manifest = fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let rust = manifest
        .lines()
        .find_map(|line| line.strip_prefix("rust-version = "))
        .unwrap()
        .trim_matches('"');
    let ignored = fs::read_to_string(root().join(".dockerignore")).unwrap();
    let mut copied = Vec::new();
    for (name, rest) in instructions() {
        match (name.as_str(), rest.as_str()) {
            ("FROM", image) if image.starts_with("rust:") => {
                assert!(image.starts_with(&format!("rust:{rust}-")), "{image}")
            }
            ("COPY", files) if !files.starts_with("--from") => {
                let words: Vec<&str> = files.split_whitespace().collect();
                copied.extend(
                    words[..words.len() - 1]
                        .iter()
                        .map(|word| (*word).to_owned()),
                );
            }
            _ => {}
        }
    }
    for path in &copied {
        assert!(root().join(path).exists(), "{path} is not there");
        assert!(
            !ignored.lines().any(|line| line == path),
            "{path} is in .dockerignore"
        );
    }
    // Every target of the workspace is somewhere below what is copied, or cargo does not begin.
    for folder in ["crates", "tests", "benches", "examples"] {
        assert!(
            copied.iter().any(|path| path == folder),
            "{folder} is not copied"
        );
    }
    let makefile = fs::read_to_string(root().join("Makefile")).unwrap();
    assert!(makefile.contains("\nstatic: ") && makefile.contains("$(TARGET)/static/portico"));
}

/// kubeadm's DaemonSet starts `/usr/local/bin/kube-proxy`, whatever the image.
#[test]
fn called_as_kube_proxy_it_is_a_node() {
    let folder = tempfile::tempdir().unwrap();
    let (program, written) = (
        folder.path().join("kube-proxy"),
        folder.path().join("config"),
    );
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_portico"), &program).unwrap();
    let write = format!("--write-config-to={}", written.display());
    let status = std::process::Command::new(program)
        .args(["--proxy-mode=iptables", "--cluster-cidr=10.0.0.0/8", &write])
        .status();
    assert!(status.unwrap().success());
    assert!(
        fs::read_to_string(written)
            .unwrap()
            .contains("mode: iptables")
    );
}

/// The chart starts `portico` by its name, the image has it in its path and starts it by its place.
#[test]
fn the_program_is_where_it_is_started() {
    let (mut built, mut places, mut starts) = (String::new(), Vec::new(), Vec::new());
    for (name, rest) in instructions() {
        match name.as_str() {
            "RUN" if rest.starts_with("make static") => {
                let folder = rest
                    .split(' ')
                    .find(|word| word.starts_with('/') && word.ends_with('/'))
                    .unwrap();
                built = format!("{folder}portico");
                assert!(
                    rest.ends_with("ln -s portico /image/usr/local/bin/kube-proxy"),
                    "{rest}"
                );
            }
            "COPY" if rest == "--from=build /image /" => {
                places.push(built.strip_prefix("/image").unwrap().to_owned())
            }
            "ENTRYPOINT" => starts.push(rest.trim_matches(['[', ']', '"']).to_owned()),
            _ => {}
        }
    }
    assert_eq!(places, starts);
    assert_eq!(places, ["/usr/local/bin/portico"; 2]);
    let chart: serde_json::Value =
        serde_saphyr::from_str(&fs::read_to_string(deploy().join("chart/Chart.yaml")).unwrap())
            .unwrap();
    assert_eq!(chart["appVersion"], env!("CARGO_PKG_VERSION"));
}
