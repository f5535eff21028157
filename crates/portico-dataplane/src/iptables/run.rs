//! Starts `iptables-save` and `iptables-restore`: an argument list, never a shell, and never longer
//! than [`TIME_LIMIT`].

use super::names::program_stem;
use super::read::Installed;
use crate::ApplyError;
use crate::nftables;
use portico_model::table::Family;
use std::io::{BufReader, Read, Write};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// Hundreds of thousands of rules take the programs some ten seconds, and others may hold their
/// lock.
const TIME_LIMIT: Duration = Duration::from_secs(180);

/// The two ways in which the kernel keeps iptables rules; programs of one do not see those of the
/// other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variant {
    /// Through nf_tables.
    Nft,
    /// The programs that use the kernel's x_tables.
    Legacy,
}

/// Programs of one variant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Programs {
    /// Which of the two they are.
    pub variant: Variant,
    /// What stands between `iptables` and `-restore` in their names.
    infix: &'static str,
    version: (u32, u32, u32),
}

impl Programs {
    /// The variant's programs, under their own name or under the plain one.
    pub fn find(variant: Variant) -> Option<Self> {
        let infix = match variant {
            Variant::Nft => "-nft",
            Variant::Legacy => "-legacy",
        };
        [infix, ""].into_iter().find_map(|infix| {
            let printed = printed(&format!("iptables{infix}-restore"), &["-V"])?;
            let (found, version) = parse_version(&printed)?;
            (found == variant).then_some(Self {
                variant,
                infix,
                version,
            })
        })
    }

    /// Whether `--random-fully` is known to the program and the kernel.
    pub fn random_fully(&self) -> bool {
        self.version >= (1, 6, 2)
    }

    /// What the programs of this variant are called: `iptables-nft`, or with what follows,
    /// `iptables-nft-restore`.
    pub fn name(&self, family: Family, what: &str) -> String {
        format!("{}{}{what}", program_stem(family), self.infix)
    }

    /// Reads what is installed, by `iptables-save`.
    pub fn save(&self, family: Family) -> Result<Installed, ApplyError> {
        let program = self.name(family, "-save");
        let read = |stdout: ChildStdout| Installed::parse(BufReader::new(stdout));
        let parsed = run(&program, &[], "", read)?;
        parsed.map_err(|source| ApplyError::Kernel {
            doing: format!("reading what {program} prints"),
            source,
        })
    }

    /// Runs `iptables-restore --noflush`: all of the input of a table is done, or nothing.
    pub fn restore(&self, family: Family, input: &str) -> Result<(), ApplyError> {
        run(
            &self.name(family, "-restore"),
            &["--noflush", "--wait"],
            input,
            read_all,
        )
        .map(drop)
    }

    /// Whether a chain of the nat table exists.
    pub fn has_chain(&self, family: Family, chain: &str) -> bool {
        let arguments = ["--wait", "-t", "nat", "-n", "-L", chain, "1"];
        run(&self.name(family, ""), &arguments, "", read_all).is_ok()
    }

    /// The rules of a chain of the nat table, without the `-A NAME` before each; `None` if there is
    /// no such chain, or it cannot be read. Costs what the chain has, not what the table has.
    pub fn list_chain(&self, family: Family, chain: &str) -> Option<Vec<String>> {
        if !self.has_table(family, "nat") {
            return None;
        }
        let arguments = ["--wait", "-t", "nat", "-S", chain];
        let printed = run(&self.name(family, ""), &arguments, "", read_all).ok()?;
        let rule = |line: &str| {
            line.strip_prefix("-A ")?
                .strip_prefix(chain)?
                .strip_prefix(' ')
                .map(str::to_owned)
        };
        Some(printed.lines().filter_map(rule).collect())
    }

    /// kubelet leaves chains in the mangle table of the variant that the node uses.
    pub fn has_hint(&self, family: Family) -> bool {
        let program = self.name(family, "-save");
        let parse = |stdout: ChildStdout| {
            Installed::parse(BufReader::new(stdout)).is_ok_and(|installed| installed.kubelet)
        };
        self.has_table(family, "mangle")
            && run(&program, &["-t", "mangle"], "", parse).unwrap_or(false)
    }

    /// Whether the table is there, without making the kernel load it, and without starting a
    /// program.
    pub fn has_table(&self, family: Family, table: &str) -> bool {
        let file = match family {
            Family::V4 => "/proc/thread-self/net/ip_tables_names",
            Family::V6 => "/proc/thread-self/net/ip6_tables_names",
        };
        match self.variant {
            // Where it cannot be told the program is asked.
            Variant::Nft => nftables::has_table(family, table).unwrap_or(true),
            Variant::Legacy => std::fs::read_to_string(file)
                .is_ok_and(|names| names.lines().any(|name| name == table)),
        }
    }

    /// Whether the kernel has the tables for this family.
    pub fn has_tables(&self, family: Family) -> bool {
        ["filter", "nat", "mangle"]
            .iter()
            .any(|table| self.has_table(family, table))
    }
}

/// Which variant the plain `iptables` is.
pub fn plain_variant() -> Option<Variant> {
    parse_version(&printed("iptables-restore", &["-V"])?).map(|(variant, _)| variant)
}

/// `iptables-restore v1.8.9 (nf_tables)`; before 1.8 there was only the legacy variant, which did
/// not say so.
fn parse_version(printed: &str) -> Option<(Variant, (u32, u32, u32))> {
    let variant = if printed.contains("(nf_tables)") {
        Variant::Nft
    } else {
        Variant::Legacy
    };
    let version = printed
        .split_whitespace()
        .find_map(|word| word.strip_prefix('v'))?;
    let mut numbers = version.split('.').map_while(|number| number.parse().ok());
    Some((
        variant,
        (
            numbers.next()?,
            numbers.next().unwrap_or(0),
            numbers.next().unwrap_or(0),
        ),
    ))
}

fn printed(program: &str, arguments: &[&str]) -> Option<String> {
    run(program, arguments, "", read_all).ok()
}

fn read_all(mut stdout: ChildStdout) -> String {
    let mut printed = String::new();
    _ = stdout.read_to_string(&mut printed);
    printed
}

fn run<T: Send>(
    program: &str,
    arguments: &[&str],
    input: &str,
    read: impl FnOnce(ChildStdout) -> T + Send,
) -> Result<T, ApplyError> {
    let failed = |problem: String| ApplyError::Program {
        program: program.to_owned(),
        problem,
    };
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| failed(format!("cannot be started: {error}")))?;
    let (output, complaint) = talk(&mut child, input, read).map_err(failed)?;
    let status = child.wait().map_err(|error| failed(error.to_string()))?;
    match status.success() {
        true => Ok(output),
        false => Err(failed(explain(&complaint, input, &status.to_string()))),
    }
}

/// Feed the program and read what it prints until it ends, or end it.
fn talk<T: Send>(
    child: &mut Child,
    input: &str,
    read: impl FnOnce(ChildStdout) -> T + Send,
) -> Result<(T, String), String> {
    let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let (Some(mut stdin), Some(stdout), Some(mut stderr)) = pipes else {
        return Err("has no pipes".to_owned());
    };
    let (done, ended) = mpsc::channel();
    thread::scope(|scope| {
        let conversation = || -> Result<(T, String), String> {
            let no_thread = |error: std::io::Error| format!("cannot be talked to: {error}");
            // A program that fails stops reading; what it complains about says more than the broken
            // pipe.
            let write = move || _ = stdin.write_all(input.as_bytes());
            thread::Builder::new()
                .spawn_scoped(scope, write)
                .map_err(no_thread)?;
            let reader = thread::Builder::new()
                .spawn_scoped(scope, move || read(stdout))
                .map_err(no_thread)?;
            let listen = move || {
                let mut complaint = Vec::new();
                _ = stderr.read_to_end(&mut complaint);
                _ = done.send(());
                String::from_utf8_lossy(&complaint).into_owned()
            };
            let listener = thread::Builder::new()
                .spawn_scoped(scope, listen)
                .map_err(no_thread)?;
            let in_time = ended.recv_timeout(TIME_LIMIT);
            in_time.map_err(|_| {
                format!("took longer than {} s and was ended", TIME_LIMIT.as_secs())
            })?;
            match (reader.join(), listener.join()) {
                (Ok(output), Ok(complaint)) => Ok((output, complaint)),
                _ => Err("could not be read".to_owned()),
            }
        };
        let result = conversation();
        if result.is_err() {
            // The threads wait for it.
            _ = child.kill();
            _ = child.wait();
        }
        result
    })
}

/// What the program complained about, with the line that it names.
fn explain(complaint: &str, input: &str, status: &str) -> String {
    let hint = |line: &&str| !line.trim().is_empty() && !line.starts_with("Try `");
    let said = complaint
        .lines()
        .filter(hint)
        .map(str::trim)
        .collect::<Vec<_>>()
        .join(" ");
    let said = if said.is_empty() {
        status.to_owned()
    } else {
        said
    };
    match line_number(&said).and_then(|number| input.lines().nth(number.checked_sub(1)?)) {
        Some(line) => format!("{said} (the line is: {line})"),
        None => said,
    }
}

/// `line 15: ...`, `... at line: 15`, `line 15 failed`.
fn line_number(said: &str) -> Option<usize> {
    said.split("line").skip(1).find_map(|rest| {
        let rest = rest.trim_start_matches([':', ' ']);
        rest.split(|c: char| !c.is_ascii_digit())
            .next()?
            .parse()
            .ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions() {
        let nft = "iptables-restore v1.8.9 (nf_tables)\n";
        assert_eq!(parse_version(nft), Some((Variant::Nft, (1, 8, 9))));
        assert_eq!(
            parse_version("iptables-restore v1.8.9 (legacy)"),
            Some((Variant::Legacy, (1, 8, 9)))
        );
        assert_eq!(
            parse_version("iptables v1.6.1"),
            Some((Variant::Legacy, (1, 6, 1)))
        );
        assert_eq!(parse_version("nonsense"), None);
    }

    #[test]
    fn a_complaint_names_the_line() {
        let input = "*nat\n-A KUBE-X -j NOWHERE\nCOMMIT\n";
        let said = "iptables-nft-restore v1.8.9 (nf_tables): \nline 2: RULE_APPEND failed (Invalid \
                    argument): rule in chain KUBE-X\n";
        assert!(explain(said, input, "").ends_with("(the line is: -A KUBE-X -j NOWHERE)"));
        let said = "iptables-restore v1.8.9 (legacy): Couldn't load target `NOWHERE'\n\nError \
                    occurred at line: 2\nTry `iptables-restore -h' for more";
        assert!(
            explain(said, input, "").ends_with("at line: 2 (the line is: -A KUBE-X -j NOWHERE)")
        );
        assert_eq!(explain("", input, "exit status: 4"), "exit status: 4");
        assert_eq!(explain("line 999 failed", input, ""), "line 999 failed");
    }

    #[test]
    fn a_program_that_is_not_there_is_an_error() {
        let error = run("portico-no-such-program", &[], "", read_all).unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with("portico-no-such-program: cannot be started"),
            "{error}"
        );
    }
}
