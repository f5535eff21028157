//! Other programs on this machine that forward Services, and the room that is left in the kernel.
//! Pure.

use super::super::facts::{Facts, Link, Machine, Mode, Role};
use super::Finding;

/// What VXLAN adds to each packet.
const VXLAN: u32 = 50;
/// A node has a socket for each health-check node port, an API server one for each watch.
const FEW_FILES: u64 = 4_096;
const MEGABYTE: u64 = 1 << 20;

pub(super) fn judge(machine: &Machine, facts: &Facts) -> Vec<Finding> {
    let mut findings = proxies(machine, facts.mode);
    findings.extend(firewalls(machine));
    findings.extend(node_ports(machine, facts.node_ports));
    findings.extend(links(machine));
    findings.extend(files(machine));
    findings.extend(disk(machine));
    findings
}

fn processes(machine: &Machine, role: Role) -> Vec<u32> {
    machine
        .programs
        .iter()
        .filter(|program| program.role == role)
        .map(|program| program.process)
        .collect()
}

fn listed(processes: &[u32]) -> String {
    processes
        .iter()
        .map(u32::to_string)
        .collect::<Vec<_>>()
        .join(", ")
}

fn proxies(machine: &Machine, mode: Mode) -> Vec<Finding> {
    const CHECK: &str = "other proxies";
    let (kube_proxies, ours) = (
        processes(machine, Role::KubeProxy),
        processes(machine, Role::PorticoNode),
    );
    let mut findings = Vec::new();
    if !kube_proxies.is_empty() {
        let both = if ours.is_empty() {
            "`portico node` would fight with it"
        } else {
            "and so does `portico node`: they undo each other's rules"
        };
        let found = format!(
            "kube-proxy runs (process {}): {both}",
            listed(&kube_proxies)
        );
        let fix = "kubectl -n kube-system patch daemonset kube-proxy -p \
                 '{\"spec\":{\"template\":{\"spec\":{\"nodeSelector\":{\"portico.dev/none\":\"\"}}}}}'";
        findings.push(if ours.is_empty() {
            Finding::warning(CHECK, found, fix)
        } else {
            Finding::broken(CHECK, found, fix)
        });
    }
    if ours.len() > 1 {
        let found = format!(
            "`portico node` runs {} times (processes {})",
            ours.len(),
            listed(&ours)
        );
        findings.push(Finding::broken(
            CHECK,
            found,
            "systemctl stop portico, or remove the DaemonSet: keep one of them",
        ));
    }
    if kube_proxies.is_empty() {
        findings.extend(leftovers(machine, mode, !ours.is_empty()));
    }
    if findings.is_empty() {
        findings.push(Finding::good(CHECK, "none"));
    }
    if machine.rules.portico_nftables && ours.is_empty() {
        let found = "its rules are installed, and nobody keeps them up to date";
        findings.push(Finding::note(
            "portico node",
            found,
            "systemctl start portico, or portico cleanup",
        ));
    }
    findings
}

/// Rules of a dataplane that no running node daemon keeps up to date.
fn leftovers(machine: &Machine, mode: Mode, served: bool) -> Option<Finding> {
    let rules = machine.rules;
    let all = [
        (
            rules.kube_proxy_nftables,
            "kube-proxy's nftables tables",
            true,
        ),
        (
            rules.iptables,
            "kube-proxy's iptables chains",
            !(served && mode != Mode::Nftables),
        ),
        (
            rules.ipvs,
            "kube-proxy's IPVS link",
            !(served && mode == Mode::Ipvs),
        ),
    ];
    let left: Vec<&str> = all
        .into_iter()
        .filter(|(there, _, stale)| *there && *stale)
        .map(|(_, what, _)| what)
        .collect();
    let text = match served {
        true => "next to `portico node`, which removes them when it starts",
        false => "with nobody to keep them up to date",
    };
    (!left.is_empty()).then(|| {
        Finding::warning(
            "other proxies",
            format!("{} are left, {text}", left.join(" and ")),
            "portico cleanup",
        )
    })
}

fn firewalls(machine: &Machine) -> Vec<Finding> {
    let mut findings = Vec::new();
    if let [process, ..] = processes(machine, Role::Firewalld)[..] {
        let found = format!(
            "firewalld runs (process {process}) and refuses what it does not know: node ports, \
             forwarding to pods, heartbeats on UDP 10262"
        );
        findings.push(Finding::warning(
            "firewall",
            found,
            "firewall-cmd --permanent --zone=trusted --add-source=POD-NETWORK && firewall-cmd \
             --permanent --add-port=30000-32767/tcp --add-port=10256/tcp --add-port=10262/udp \
             && firewall-cmd --reload",
        ));
    }
    match machine.forward_policy.as_deref() {
        Some("DROP" | "REJECT") => findings.push(Finding::broken(
            "firewall",
            "the policy of FORWARD is DROP (Docker sets it): packets to pods that no rule accepts \
             are lost",
            "iptables -P FORWARD ACCEPT",
        )),
        Some(policy) => findings.push(Finding::good(
            "firewall",
            format!("the policy of FORWARD is {policy}"),
        )),
        None => {}
    }
    findings
}

/// `30000-32767`, or a single number.
fn range(text: &str) -> Option<(u16, u16)> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    Some((first.trim().parse().ok()?, last.trim().parse().ok()?))
}

fn node_ports(machine: &Machine, (first, last): (u16, u16)) -> Option<Finding> {
    let text = machine.settings.get("net.ipv4.ip_local_port_range")?;
    let mut numbers = text
        .split_whitespace()
        .filter_map(|number| number.parse::<u16>().ok());
    let (low, high) = (numbers.next()?, numbers.next()?);
    let reserved = machine
        .settings
        .get("net.ipv4.ip_local_reserved_ports")
        .map(String::as_str)
        .unwrap_or_default();
    let (from, to) = (first.max(low), last.min(high));
    let kept = |port: u16| {
        reserved
            .split(',')
            .filter_map(range)
            .any(|(a, b)| (a..=b).contains(&port))
    };
    Some(match (from..=to).find(|port| !kept(*port)) {
        Some(port) => Finding::warning(
            "node ports",
            format!(
                "{first}-{last} overlaps the ports of outgoing connections ({low}-{high}): {port} \
                 may be taken when a Service gets it"
            ),
            &format!("sysctl -w net.ipv4.ip_local_reserved_ports={first}-{last}"),
        ),
        None => Finding::good(
            "node ports",
            format!("{first}-{last} is apart from outgoing connections ({low}-{high})"),
        ),
    })
}

/// A packet that is larger than the link it leaves by is lost where its sender gets no ICMP error.
fn links(machine: &Machine) -> Option<Finding> {
    let default = machine.default_link.as_deref()?;
    let uplink = machine.links.iter().find(|link| link.name == default)?;
    let room = |link: &Link| {
        if link.kind == "vxlan" {
            uplink.mtu.saturating_sub(VXLAN)
        } else {
            uplink.mtu
        }
    };
    let others = machine
        .links
        .iter()
        .filter(|link| link.up && link.name != "lo" && link.name != default);
    let wide: Vec<&Link> = others.filter(|link| link.mtu > room(link)).collect();
    Some(match wide.first() {
        Some(link) => {
            let names: Vec<String> = wide
                .iter()
                .take(5)
                .map(|link| format!("{} ({})", link.name, link.mtu))
                .collect();
            let found = format!(
                "{} let larger packets through than {default} ({})",
                names.join(", "),
                uplink.mtu
            );
            Finding::warning(
                "MTU",
                found,
                &format!(
                    "ip link set {} mtu {}, and the same in the configuration of the CNI plugin",
                    link.name,
                    room(link)
                ),
            )
        }
        None => Finding::good(
            "MTU",
            format!("no link is wider than {default} ({})", uplink.mtu),
        ),
    })
}

fn files(machine: &Machine) -> Option<Finding> {
    let ours = machine
        .programs
        .iter()
        .filter(|program| program.role == Role::PorticoNode);
    let (process, limit) = ours
        .filter_map(|program| Some((program.process, program.open_files?)))
        .min_by_key(|(_, limit)| *limit)?;
    let found = format!("`portico node` (process {process}) may open {limit}");
    Some(match limit < FEW_FILES {
        true => Finding::warning(
            "open files",
            found,
            &format!("prlimit --pid {process} --nofile=65536, and LimitNOFILE=65536 in its unit"),
        ),
        false => Finding::good("open files", found),
    })
}

fn disk(machine: &Machine) -> Option<Finding> {
    let disk = machine.disk.as_ref()?;
    let (check, found) = (
        "disk",
        format!("{} has {} MB free", disk.path, disk.free / MEGABYTE),
    );
    let fix = format!("du -xh --max-depth=2 {} | sort -h | tail", disk.path);
    Some(match disk.free / MEGABYTE {
        _ if disk.read_only => Finding::broken(
            check,
            format!("{} is read-only", disk.path),
            &format!("mount -o remount,rw $(findmnt -no TARGET -T {})", disk.path),
        ),
        0..100 => Finding::broken(check, format!("{found}: nothing can be stored soon"), &fix),
        100..1_024 => Finding::warning(check, found, &fix),
        _ => Finding::good(check, found),
    })
}
