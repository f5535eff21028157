//! Programs that run on this machine and count for forwarding: ours, and others that do the same.

use std::fs;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    KubeProxy,
    PorticoNode,
    PorticoVip,
    Firewalld,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    pub role: Role,
    pub process: u32,
    /// So many files may it have open.
    pub open_files: Option<u64>,
}

/// Those in this network namespace.
pub fn running() -> Vec<Program> {
    let own = fs::read_link("/proc/thread-self/ns/net").ok();
    let is_here = |process: u32| fs::read_link(format!("/proc/{process}/ns/net")).ok() == own;
    let program = |(process, words): (u32, Vec<String>)| {
        let role = role(&words).filter(|_| is_here(process))?;
        let limits = fs::read_to_string(format!("/proc/{process}/limits")).unwrap_or_default();
        Some(Program { role, process, open_files: open_files(&limits) })
    };
    let mut found: Vec<Program> = command_lines().filter_map(program).collect();
    found.sort_by_key(|program| (program.role, program.process));
    found
}

/// Of every process of the machine.
pub fn command_lines() -> impl Iterator<Item = (u32, Vec<String>)> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| {
        let process = entry.file_name().to_str()?.parse().ok()?;
        let line = fs::read(entry.path().join("cmdline")).ok()?;
        let words = line.split(|byte| *byte == 0).map(|word| String::from_utf8_lossy(word).into_owned());
        Some((process, words.collect()))
    })
}

/// What a command line stands for.
fn role(words: &[String]) -> Option<Role> {
    let program = words.first()?.rsplit('/').next()?;
    match (program, words.get(1).map(String::as_str).unwrap_or_default()) {
        ("kube-proxy", _) => Some(Role::KubeProxy),
        // Those that are soon done are none of the daemons.
        ("portico", "node") if !words.iter().any(|word| word.starts_with("--cleanup")) => Some(Role::PorticoNode),
        ("portico", "vip") if words.get(2).is_none_or(|word| word.is_empty() || word.starts_with('-')) => {
            Some(Role::PorticoVip)
        }
        ("firewalld", _) => Some(Role::Firewalld),
        // It is a script of Python.
        (python, _) if python.starts_with("python") && words.iter().any(|word| word.ends_with("/firewalld")) => {
            Some(Role::Firewalld)
        }
        _ => None,
    }
}

fn open_files(limits: &str) -> Option<u64> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_known_by_their_command_line() {
        for (line, expected) in [
            ("/usr/local/bin/kube-proxy --config=x", Some(Role::KubeProxy)),
            ("portico node --kubeconfig x", Some(Role::PorticoNode)),
            ("portico node --cleanup", None),
            ("/usr/bin/portico vip --address 192.0.2.1", Some(Role::PorticoVip)),
            ("/usr/bin/portico vip status", None),
            ("/usr/bin/portico apiserver", None),
            ("/usr/bin/python3 -s -P /usr/sbin/firewalld --nofork", Some(Role::Firewalld)),
            ("vi /etc/firewalld", None),
            ("", None),
        ] {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            assert_eq!(role(&words), expected, "{line}");
        }
    }

    #[test]
    fn limits_are_read() {
        assert_eq!(open_files("Limit Soft Hard Units\nMax open files            1024   4096   files\n"), Some(1024));
    }
}
