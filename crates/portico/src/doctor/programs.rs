//! Programs that run on this machine and count for forwarding: ours, and others that do the same.

use std::fs;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Role {
    KubeProxy,
    PorticoNode,
    PorticoVip,
    Firewalld,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Program {
    pub role: Role,
    pub process: u32,
    /// So many files may it have open.
    pub open_files: Option<u64>,
}

/// The programs in this network namespace.
pub(crate) fn running() -> Vec<Program> {
    let own = fs::read_link("/proc/thread-self/ns/net").ok();
    let is_here = |process: u32| fs::read_link(format!("/proc/{process}/ns/net")).ok() == own;
    let program = |(process, words): (u32, Vec<String>)| {
        let role = role(&words, &file(process)).filter(|_| is_here(process))?;
        let limits = fs::read_to_string(format!("/proc/{process}/limits")).unwrap_or_default();
        Some(Program {
            role,
            process,
            open_files: open_files(&limits),
        })
    };
    let mut found: Vec<Program> = command_lines().filter_map(program).collect();
    found.sort_by_key(|program| (program.role, program.process));
    found
}

/// The command line of every process of the machine.
pub(crate) fn command_lines() -> impl Iterator<Item = (u32, Vec<String>)> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| {
        let process = entry.file_name().to_str()?.parse().ok()?;
        let line = fs::read(entry.path().join("cmdline")).ok()?;
        let words = line
            .split(|byte| *byte == 0)
            .map(|word| String::from_utf8_lossy(word).into_owned());
        Some((process, words.collect()))
    })
}

/// The name of the file that a process runs, also when an upgrade has put another into its place.
fn file(process: u32) -> String {
    let path = fs::read_link(format!("/proc/{process}/exe")).unwrap_or_default();
    let name = path
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    name.strip_suffix(" (deleted)")
        .map(str::to_owned)
        .unwrap_or(name)
}

/// What a command line stands for, with the name of the file behind it.
fn role(words: &[String], file: &str) -> Option<Role> {
    let program = words.first()?.rsplit('/').next()?;
    // Those that are soon done are none of the daemons.
    let cleans_up = words.iter().any(|word| word.starts_with("--cleanup"));
    match (
        program,
        words.get(1).map(String::as_str).unwrap_or_default(),
    ) {
        // By this name it is a node as well.
        ("kube-proxy", _) if file == "portico" => (!cleans_up).then_some(Role::PorticoNode),
        ("kube-proxy", _) => Some(Role::KubeProxy),
        ("portico", "node") if !cleans_up => Some(Role::PorticoNode),
        ("portico", "vip")
            if words
                .get(2)
                .is_none_or(|word| word.is_empty() || word.starts_with('-')) =>
        {
            Some(Role::PorticoVip)
        }
        ("firewalld", _) => Some(Role::Firewalld),
        // It is a script of Python.
        (python, _)
            if python.starts_with("python")
                && words.iter().any(|word| word.ends_with("/firewalld")) =>
        {
            Some(Role::Firewalld)
        }
        _ => None,
    }
}

fn open_files(limits: &str) -> Option<u64> {
    let line = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_known_by_their_command_line() {
        for (file, line, expected) in [
            (
                "kube-proxy",
                "/usr/local/bin/kube-proxy --config=x",
                Some(Role::KubeProxy),
            ),
            (
                "",
                "/usr/local/bin/kube-proxy --config=x",
                Some(Role::KubeProxy),
            ),
            (
                "portico",
                "/usr/local/bin/kube-proxy --config=x",
                Some(Role::PorticoNode),
            ),
            ("portico", "/usr/local/bin/kube-proxy --cleanup", None),
            (
                "portico",
                "portico node --kubeconfig x",
                Some(Role::PorticoNode),
            ),
            ("portico", "portico node --cleanup", None),
            (
                "portico",
                "/usr/bin/portico vip --address 192.0.2.1",
                Some(Role::PorticoVip),
            ),
            ("portico", "/usr/bin/portico vip status", None),
            ("portico", "/usr/bin/portico apiserver", None),
            (
                "python3.11",
                "/usr/bin/python3 -s -P /usr/sbin/firewalld --nofork",
                Some(Role::Firewalld),
            ),
            ("vi", "vi /etc/firewalld", None),
            ("", "", None),
        ] {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            assert_eq!(role(&words, file), expected, "{file}: {line}");
        }
    }

    #[test]
    fn the_file_of_a_process_is_known() {
        let own = std::env::current_exe().unwrap();
        assert_eq!(
            file(std::process::id()),
            own.file_name().unwrap().to_str().unwrap()
        );
        assert_eq!(file(0), "");
    }

    #[test]
    fn limits_are_read() {
        assert_eq!(
            open_files("Limit Soft Hard Units\nMax open files            1024   4096   files\n"),
            Some(1024)
        );
    }
}
