//! What `iptables-save` prints → what is installed, as far as it is ours.
//!
//! Chains of service ports are most of it; of them only a fingerprint is kept.

use super::names::{MARTIANS, Table, is_inner, is_ours, is_port_chain};
use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{Hash, Hasher};
use std::io::{self, BufRead};

/// One family's tables.
#[derive(Debug, Default)]
pub struct Installed {
    pub filter: InstalledTable,
    pub nat: InstalledTable,
    pub mangle: InstalledTable,
    /// kubelet left its mark in the mangle table.
    pub kubelet: bool,
    /// How many rules there are, ours or not.
    pub rules: usize,
}

#[derive(Debug, Default)]
pub struct InstalledTable {
    /// Chains of service ports, with the fingerprint of their rules.
    pub ports: HashMap<Box<str>, u64>,
    /// Our other chains (and [`MARTIANS`], which kube-proxy may have made) with their rules.
    pub others: BTreeMap<String, Vec<String>>,
    /// The kernel's chains, with those of their rules that lead to ours.
    pub hooks: BTreeMap<String, Vec<String>>,
    /// Our chains that rules of other programs' chains lead to.
    pub used_by_others: BTreeSet<String>,
}

impl Installed {
    pub fn table(&self, table: Table) -> &InstalledTable {
        match table {
            Table::Filter => &self.filter,
            Table::Nat => &self.nat,
            Table::Mangle => &self.mangle,
        }
    }

    pub fn table_mut(&mut self, table: Table) -> &mut InstalledTable {
        match table {
            Table::Filter => &mut self.filter,
            Table::Nat => &mut self.nat,
            Table::Mangle => &mut self.mangle,
        }
    }

    pub fn parse(save: impl BufRead) -> io::Result<Self> {
        let mut installed = Self::default();
        let mut section = Section::Foreign;
        for line in save.lines() {
            let line = line?;
            if let Some(comment) = line.strip_prefix("# Table `") {
                check_readable(comment)?;
            } else if let Some(name) = line.strip_prefix('*') {
                section = Section::named(name);
            } else if let Some(declared) = line.strip_prefix(':') {
                installed.declare(section, declared);
            } else if let Some(rule) = line.strip_prefix("-A ") {
                installed.rules += 1;
                installed.add(section, rule);
            }
        }
        Ok(installed)
    }

    /// `NAME POLICY [packets:bytes]`; only the kernel's own chains have a policy.
    fn declare(&mut self, section: Section, declared: &str) {
        let mut words = declared.split(' ');
        let (name, policy) = (
            words.next().unwrap_or_default(),
            words.next().unwrap_or_default(),
        );
        self.kubelet |= ["KUBE-KUBELET-CANARY", "KUBE-IPTABLES-HINT"].contains(&name)
            && matches!(section, Section::Ours(Table::Mangle));
        match section {
            Section::Ours(table) if policy != "-" => {
                self.table_mut(table)
                    .hooks
                    .insert(name.to_owned(), Vec::new());
            }
            Section::Ours(table) if is_port_chain(name) => {
                self.table_mut(table).ports.insert(name.into(), NO_RULES);
            }
            Section::Ours(table) if is_ours(name) || name == MARTIANS => {
                self.table_mut(table)
                    .others
                    .insert(name.to_owned(), Vec::new());
            }
            Section::Ours(_) | Section::Foreign => {}
        }
    }

    fn add(&mut self, section: Section, rule: &str) {
        let Section::Ours(table) = section else {
            return;
        };
        let Some((chain, rule)) = rule.split_once(' ') else {
            return;
        };
        let table = self.table_mut(table);
        if let Some(so_far) = table.ports.get_mut(chain) {
            *so_far = extend(*so_far, rule);
        } else if let Some(rules) = table.others.get_mut(chain) {
            rules.push(rule.to_owned());
        } else if let Some(target) =
            target(rule).filter(|target| is_ours(target) || *target == MARTIANS)
        {
            match table.hooks.get_mut(chain).filter(|_| !is_inner(target)) {
                Some(rules) => rules.push(rule.to_owned()),
                None => _ = table.used_by_others.insert(target.to_owned()),
            }
        }
    }
}

/// Where other programs have put rules of their own kind into a table, its contents are not
/// printed, only `# Table `nat' is incompatible`.
fn check_readable(comment: &str) -> io::Result<()> {
    match comment.split_once("' is incompatible") {
        Some((table @ ("filter" | "nat"), _)) => Err(io::Error::other(format!(
            "table {table} has rules that iptables cannot read; see `nft list ruleset`, or use \
             --proxy-mode=nftables"
        ))),
        _ => Ok(()),
    }
}

#[derive(Clone, Copy)]
enum Section {
    Ours(Table),
    Foreign,
}

impl Section {
    fn named(name: &str) -> Self {
        match name {
            "filter" => Self::Ours(Table::Filter),
            "nat" => Self::Ours(Table::Nat),
            "mangle" => Self::Ours(Table::Mangle),
            _ => Self::Foreign,
        }
    }
}

/// Where a rule leads.
pub fn target(rule: &str) -> Option<&str> {
    let mut words = Words(rule);
    words.find(|word| *word == "-j" || *word == "-g")?;
    words.next()
}

const NO_RULES: u64 = 0;

/// The fingerprint of a chain's rules, comments left out: kube-proxy writes them or not, depending
/// on the size of the cluster.
pub(crate) fn fingerprint<'a>(rules: impl IntoIterator<Item = &'a String>) -> u64 {
    rules
        .into_iter()
        .fold(NO_RULES, |so_far, rule| extend(so_far, rule))
}

fn extend(so_far: u64, rule: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    so_far.hash(&mut hasher);
    hash_meaning(rule, false, &mut hasher);
    hasher.finish()
}

/// Equal for rules that mean the same and have the same comment, however the program's version
/// prints them.
pub fn meaning(rule: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    hash_meaning(rule, true, &mut hasher);
    hasher.finish()
}

fn hash_meaning(rule: &str, comments: bool, hasher: &mut DefaultHasher) {
    let mut words = Words(rule);
    while let Some(word) = words.next() {
        match word {
            "-m" => match words.next() {
                // Said again by what follows, or by `-p`.
                Some("tcp" | "udp" | "sctp" | "comment") | None => {}
                Some(module) => ("-m", module).hash(hasher),
            },
            "--comment" => {
                let comment = words.next();
                if comments {
                    comment.hash(hasher);
                }
            }
            // Printed by some versions even where it is the default.
            "--mask" => _ = words.next(),
            "--rsource" => {}
            "--reject-with" => match words.next() {
                Some("icmp-port-unreachable" | "icmp6-port-unreachable") | None => {}
                Some(other) => other.hash(hasher),
            },
            word => word.hash(hasher),
        }
    }
}

/// The words of a rule, those in quotes without them.
pub(crate) struct Words<'a>(pub &'a str);

impl<'a> Iterator for Words<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        let rest = self.0.trim_start_matches(' ');
        if rest.is_empty() {
            return None;
        }
        let (word, rest) = match rest.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"').unwrap_or((quoted, "")),
            None => rest.split_once(' ').unwrap_or((rest, "")),
        };
        self.0 = rest;
        Some(word)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_compared_by_meaning() {
        let same = [
            (
                r#"-d 1.2.3.4/32 -p tcp -m comment --comment "a b" -m tcp --dport 80 -j X"#,
                r#"-d 1.2.3.4/32 -p tcp -m comment --comment "a b" --dport 80 -j X"#,
            ),
            (
                "-p tcp -m comment --comment ab -j X",
                r#"-p tcp -m comment --comment "ab" -j X"#,
            ),
            ("-j REJECT", "-j REJECT --reject-with icmp-port-unreachable"),
            (
                "-m recent --set --name A --mask 255.255.255.255 --rsource -j B",
                "-m recent --set --name A -j B",
            ),
        ];
        for (one, other) in same {
            assert_eq!(meaning(one), meaning(other), "{one} / {other}");
        }
        let different = [
            ("-s 1.2.3.4/32 -j X", "! -s 1.2.3.4/32 -j X"),
            (
                "-p tcp -m tcp --dport 80 -j X",
                "-p udp -m udp --dport 80 -j X",
            ),
            ("-m comment --comment a -j X", "-m comment --comment b -j X"),
            ("-j REJECT", "-j REJECT --reject-with tcp-reset"),
        ];
        for (one, other) in different {
            assert_ne!(meaning(one), meaning(other), "{one} / {other}");
        }
    }

    #[test]
    fn a_table_that_is_not_printed_is_not_taken_for_empty() {
        let error = Installed::parse("# Table `nat' is incompatible, use 'nft' tool.\n".as_bytes())
            .unwrap_err();
        assert!(
            error
                .to_string()
                .contains("table nat has rules that iptables cannot read"),
            "{error}"
        );
        assert!(
            Installed::parse("# Table `other' is incompatible, use 'nft' tool.\n".as_bytes())
                .is_ok()
        );
    }

    #[test]
    fn what_is_ours_is_found() {
        let save = "# Generated\n*mangle\n:KUBE-KUBELET-CANARY - [0:0]\nCOMMIT\n*nat\n:PREROUTING ACCEPT [1:2]\n:DOCKER - [0:0]\n\
                    :KUBE-SERVICES - [0:0]\n:KUBE-MARK-MASQ - [0:0]\n:KUBE-SVC-A - [0:0]\n\
                    -A PREROUTING -m comment --comment \"to -j KUBE-SVC-A\" -j DOCKER\n-A PREROUTING -j KUBE-SERVICES\n\
                    -A PREROUTING -d 2.2.2.2/32 -j KUBE-SVC-A\n\
                    -A DOCKER -s 1.1.1.1/32 -j KUBE-MARK-MASQ\n-A KUBE-SERVICES -d 1.1.1.1/32 -j KUBE-SVC-A\n\
                    -A KUBE-SVC-A -m comment --comment x -j KUBE-SEP-B\nCOMMIT\n";
        let installed = Installed::parse(save.as_bytes()).unwrap();
        assert!(installed.kubelet);
        assert_eq!(installed.rules, 6);
        assert_eq!(installed.nat.hooks["PREROUTING"], ["-j KUBE-SERVICES"]);
        assert_eq!(
            installed.nat.used_by_others.iter().collect::<Vec<_>>(),
            ["KUBE-MARK-MASQ", "KUBE-SVC-A"]
        );
        assert_eq!(
            installed.nat.others["KUBE-SERVICES"],
            ["-d 1.1.1.1/32 -j KUBE-SVC-A"]
        );
        assert_eq!(
            installed.nat.ports["KUBE-SVC-A"],
            fingerprint(&["-j KUBE-SEP-B".to_owned()])
        );
    }
}
