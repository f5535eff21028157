//! What the kernel can do, and how it is set. Pure.

use super::super::facts::{Machine, Mode, Tried};
use super::{Finding, Severity};
use portico_node::sysctl;

/// Connections for each core, and at least, as the node asks for by default.
const PER_CORE: u32 = 32_768;
const LEAST: u32 = 131_072;
/// Queues of listening sockets shorter than this drop connections in a burst.
const SHORT_QUEUE: u64 = 1_024;

pub(super) fn judge(machine: &Machine, mode: Mode) -> Vec<Finding> {
    let mut findings = features(machine, mode);
    findings.extend(forwarding(machine));
    findings.extend(reverse_path(machine));
    findings.extend(local_networks(machine, mode));
    findings.extend(bridges(machine));
    findings.extend(tracking(machine));
    findings.extend(queue(machine));
    findings.extend(liberal(machine));
    findings
}

fn number(machine: &Machine, setting: &str) -> Option<u64> {
    machine.settings.get(setting)?.trim().parse().ok()
}

fn features(machine: &Machine, mode: Mode) -> Vec<Finding> {
    let of = [
        (
            Mode::Nftables,
            &machine.nftables,
            "modprobe nf_tables nft_ct nft_nat nft_masq nft_numgen",
        ),
        (
            Mode::Iptables,
            &machine.iptables,
            "apt-get install iptables && modprobe ip_tables iptable_nat xt_comment xt_statistic",
        ),
        (
            Mode::Ipvs,
            &machine.ipvs,
            "apt-get install iptables && modprobe -a ip_vs ip_vs_rr ip_set dummy xt_set xt_NETMAP",
        ),
    ];
    let of_mode = |(of, tried, fix): (Mode, &Tried, &str)| {
        let check = format!("kernel: {}", of.name());
        // Another mode is not needed.
        let needed = if of == mode {
            Severity::Broken
        } else {
            Severity::Note
        };
        feature(
            &check,
            tried,
            needed,
            fix,
            "rules were installed and removed in a network namespace of their own",
        )
    };
    let mut findings: Vec<Finding> = of.into_iter().map(of_mode).collect();
    let tracker = "flows were listed";
    findings.push(feature(
        "kernel: conntrack",
        &machine.conntrack,
        Severity::Broken,
        "modprobe nf_conntrack nf_conntrack_netlink",
        tracker,
    ));
    findings
}

fn feature(check: &str, tried: &Tried, severity: Severity, fix: &str, good: &str) -> Finding {
    match tried {
        Tried::Works => Finding::good(check, good),
        Tried::Fails(problem) => Finding::new(severity, check, problem.as_str(), fix),
        Tried::Unknown(why) => {
            Finding::note(check, format!("not tried: {why}"), "sudo portico doctor")
        }
    }
}

fn forwarding(machine: &Machine) -> Vec<Finding> {
    let check = |setting: &str, severity: Severity| {
        let name = format!("sysctl: {setting}");
        Some(match number(machine, setting)? {
            0 => Finding::new(
                severity,
                &name,
                "0: nothing is forwarded to pods on other links",
                &format!("sysctl -w {setting}=1"),
            ),
            _ => Finding::good(&name, "1"),
        })
    };
    // Many nodes have no IPv6.
    let both = [
        ("net.ipv4.ip_forward", Severity::Broken),
        ("net.ipv6.conf.all.forwarding", Severity::Note),
    ];
    both.into_iter()
        .filter_map(|(setting, severity)| check(setting, severity))
        .collect()
}

fn reverse_path(machine: &Machine) -> Option<Finding> {
    let setting = "net.ipv4.conf.all.rp_filter";
    let name = format!("sysctl: {setting}");
    Some(match number(machine, setting)? {
        1 => Finding::warning(
            &name,
            "1 (strict): packets that come in by another link than answers go out are dropped",
            &format!("sysctl -w {setting}=2"),
        ),
        value => Finding::good(&name, value.to_string()),
    })
}

fn local_networks(machine: &Machine, mode: Mode) -> Option<Finding> {
    let setting = "net.ipv4.conf.all.route_localnet";
    let name = format!("sysctl: {setting}");
    Some(match (number(machine, setting)?, mode) {
        (0, _) => Finding::good(&name, "0"),
        (_, Mode::Iptables) => Finding::note(&name, "1: node ports answer on 127.0.0.1", ""),
        (_, _) => Finding::warning(
            &name,
            "1: neighbours may reach what listens on 127.0.0.1; kube-proxy leaves it so",
            &format!("sysctl -w {setting}=0"),
        ),
    })
}

/// Packets between pods on one bridge are seen by rules only with the help of a module.
fn bridges(machine: &Machine) -> Option<Finding> {
    let setting = "net.bridge.bridge-nf-call-iptables";
    let bridge = machine.links.iter().find(|link| link.kind == "bridge")?;
    let (name, value) = (format!("sysctl: {setting}"), number(machine, setting));
    if value.is_some_and(|value| value > 0) {
        return Some(Finding::good(&name, "1"));
    }
    let found = value.map_or("br_netfilter is not there".to_owned(), |value| {
        value.to_string()
    });
    let text = format!(
        "{found}: a pod cannot reach a Service that leads to a pod on the same bridge ({})",
        bridge.name
    );
    Some(Finding::warning(
        &name,
        text,
        &format!("modprobe br_netfilter && sysctl -w {setting}=1"),
    ))
}

fn tracking(machine: &Machine) -> Vec<Finding> {
    let setting = "net.netfilter.nf_conntrack_max";
    let Some(most) = number(machine, setting) else {
        return Vec::new();
    };
    let name = format!("sysctl: {setting}");
    let settings = sysctl::Settings {
        conntrack_max_per_core: PER_CORE,
        conntrack_min: LEAST,
        ..Default::default()
    };
    let wanted = sysctl::wanted(&settings, machine.cores)
        .first()
        .map_or(most, |setting| setting.value);
    let fix = format!("sysctl -w {setting}={}", wanted.max(most.saturating_mul(2)));
    let mut findings = vec![match most < wanted {
        true => Finding::note(
            &name,
            format!("{most}; `portico node` raises it to {wanted} when it starts"),
            &format!("sysctl -w {setting}={wanted}"),
        ),
        false => Finding::good(&name, most.to_string()),
    }];
    if let Some(count) = number(machine, "net.netfilter.nf_conntrack_count") {
        let (name, found) = ("conntrack: in use", format!("{count} of {most}"));
        // In hundredths.
        findings.push(
            match count.saturating_mul(100).checked_div(most).unwrap_or(100) {
                90.. => Finding::broken(
                    name,
                    format!("{found}: new connections are dropped when it is full"),
                    &fix,
                ),
                70.. => Finding::warning(name, found, &fix),
                _ => Finding::good(name, found),
            },
        );
    }
    findings
}

fn queue(machine: &Machine) -> Option<Finding> {
    let setting = "net.core.somaxconn";
    let (name, value) = (format!("sysctl: {setting}"), number(machine, setting)?);
    Some(match value < SHORT_QUEUE {
        true => Finding::note(
            &name,
            format!("{value}: a burst of connections to one server overflows"),
            &format!("sysctl -w {setting}=4096"),
        ),
        false => Finding::good(&name, value.to_string()),
    })
}

fn liberal(machine: &Machine) -> Option<Finding> {
    let setting = "net.netfilter.nf_conntrack_tcp_be_liberal";
    let found = match number(machine, setting)? {
        0 => "0: packets out of their connection's window are dropped".to_owned(),
        value => format!("{value}: packets out of their connection's window are let through"),
    };
    Some(Finding::good(&format!("sysctl: {setting}"), found))
}
