//! Kernel settings that forwarding depends on. What is wanted is decided from the settings alone;
//! applying reads first, writes what differs, and goes on where the kernel does not let it (in a
//! network namespace most are read-only).

use std::fs;
use std::io;
use std::path::Path;
use std::thread;
use std::time::Duration;

/// No more than this is reserved for connections because of the number of cores.
const MOST_BY_CORES: u64 = 1 << 20;
const IP_FORWARD: &str = "proc/sys/net/ipv4/ip_forward";
const ROUTE_LOCALNET: &str = "proc/sys/net/ipv4/conf/all/route_localnet";
const BE_LIBERAL: &str = "proc/sys/net/netfilter/nf_conntrack_tcp_be_liberal";

/// What the operator decided; zero and `false` leave the kernel's value alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// Connections to track for each core; zero leaves the limit alone, whatever `conntrack_min`
    /// says.
    pub conntrack_max_per_core: u32,
    /// The least number of connections to track.
    pub conntrack_min: u32,
    /// How long an idle established TCP connection is tracked.
    pub tcp_established_timeout: Duration,
    /// How long a TCP connection in CLOSE_WAIT is tracked.
    pub tcp_close_wait_timeout: Duration,
    /// Whether segments outside the window are valid.
    pub tcp_be_liberal: bool,
    /// How long an unanswered UDP flow is tracked.
    pub udp_timeout: Duration,
    /// How long an answered UDP flow is tracked.
    pub udp_stream_timeout: Duration,
    /// Pass packets on that are for others, as those for endpoints on other machines are. IPv6 is
    /// left as it is: switching it on takes away the routes that the node learned from routers.
    pub forward: bool,
    /// Node ports answer on 127.0.0.1 (iptables).
    pub loopback_node_ports: bool,
}

/// One setting of the kernel and the value that it has to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setting {
    /// Below the root of the file system.
    pub path: &'static str,
    /// The value to write.
    pub value: u64,
    /// A larger value is left as it is.
    pub at_least: bool,
}

impl Setting {
    fn exactly(path: &'static str, value: u64) -> Self {
        Self {
            path,
            value,
            at_least: false,
        }
    }

    fn at_least(path: &'static str, value: u64) -> Self {
        Self {
            path,
            value,
            at_least: true,
        }
    }

    fn is_met_by(&self, now: u64) -> bool {
        now == self.value || self.at_least && now > self.value
    }
}

/// What the kernel should have, in the order of setting it.
pub fn wanted(settings: &Settings, cores: usize) -> Vec<Setting> {
    let mut wanted = Vec::new();
    if settings.forward {
        wanted.push(Setting::exactly(IP_FORWARD, 1));
    }
    if let Some(most) = tracked_connections(settings, cores) {
        wanted.push(Setting::at_least(
            "proc/sys/net/netfilter/nf_conntrack_max",
            most,
        ));
        // Chains of four entries on average when full.
        wanted.push(Setting::at_least(
            "sys/module/nf_conntrack/parameters/hashsize",
            most / 4,
        ));
    }
    let timeouts = [
        (
            "proc/sys/net/netfilter/nf_conntrack_tcp_timeout_established",
            settings.tcp_established_timeout,
        ),
        (
            "proc/sys/net/netfilter/nf_conntrack_tcp_timeout_close_wait",
            settings.tcp_close_wait_timeout,
        ),
        (
            "proc/sys/net/netfilter/nf_conntrack_udp_timeout",
            settings.udp_timeout,
        ),
        (
            "proc/sys/net/netfilter/nf_conntrack_udp_timeout_stream",
            settings.udp_stream_timeout,
        ),
    ];
    let given = timeouts
        .into_iter()
        .filter(|(_, timeout)| timeout.as_secs() > 0);
    wanted.extend(given.map(|(path, timeout)| Setting::exactly(path, timeout.as_secs())));
    if settings.tcp_be_liberal {
        wanted.push(Setting::exactly(BE_LIBERAL, 1));
    }
    if settings.loopback_node_ports {
        wanted.push(Setting::exactly(ROUTE_LOCALNET, 1));
    }
    wanted
}

fn tracked_connections(settings: &Settings, cores: usize) -> Option<u64> {
    let by_cores = u64::from(settings.conntrack_max_per_core).saturating_mul(cores as u64);
    match by_cores {
        0 => None,
        _ if by_cores > MOST_BY_CORES => Some(MOST_BY_CORES),
        _ => Some(by_cores.max(settings.conntrack_min.into())),
    }
}

/// What became of one setting.
#[derive(Debug)]
pub enum Outcome {
    /// It had the value already.
    AlreadyRight,
    /// It has been written.
    Written,
    /// The log says so too.
    Refused(io::Error),
}

/// Set what differs, below `root` (`/`). The connection tracker's settings exist once it is in use:
/// call this after the rules are installed.
pub fn apply(root: &Path, wanted: &[Setting]) -> Vec<Outcome> {
    wanted
        .iter()
        .map(|setting| apply_one(root, setting))
        .collect()
}

fn apply_one(root: &Path, setting: &Setting) -> Outcome {
    let (path, value) = (root.join(setting.path), setting.value);
    let before = read(&path);
    if before.as_ref().is_ok_and(|now| setting.is_met_by(*now)) {
        return Outcome::AlreadyRight;
    }
    match before.and_then(|before| fs::write(&path, value.to_string()).map(|()| before)) {
        Ok(before) => {
            tracing::info!(path = %path.display(), before, value, "kernel setting changed");
            Outcome::Written
        }
        Err(error) => {
            tracing::warn!(path = %path.display(), value, %error, "kernel setting left as it is");
            Outcome::Refused(error)
        }
    }
}

fn read(path: &Path) -> io::Result<u64> {
    fs::read_to_string(path)?
        .trim()
        .parse()
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "not a number"))
}

/// Whether the connection tracker takes segments outside the window for valid, whether Portico or
/// another program set that.
pub fn tcp_is_liberal(root: &Path) -> bool {
    read(&root.join(BE_LIBERAL)).is_ok_and(|value| value != 0)
}

/// The machine's cores, also where this process may use only some of them: the connection tracker
/// is the machine's.
pub fn cores() -> usize {
    let online = fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
    match count(&online) {
        0 => thread::available_parallelism().map_or(1, usize::from),
        cores => cores,
    }
}

/// How many numbers a list like `0-3,8` has; 0 if it is not such a list.
fn count(list: &str) -> usize {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        last.checked_sub(first)?.checked_add(1)
    };
    list.trim()
        .split(',')
        .map(range)
        .sum::<Option<usize>>()
        .unwrap_or(0)
}

#[cfg(test)]
mod tests;
