//! Settings of the kernel without which IPVS does not do what Services need.

use crate::ApplyError;
use crate::ipvs::kernel::failed;
use std::fs;

const FOLDER: &str = "/proc/sys/net/ipv4";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Setting {
    pub path: &'static str,
    pub value: u32,
    /// Nothing works without it.
    pub needed: bool,
}

/// `kernel` is its version: major, minor.
pub(super) fn wanted(kernel: (u32, u32), strict_arp: bool) -> Vec<Setting> {
    let setting = |path, value| Setting {
        path,
        value,
        needed: false,
    };
    let mut wanted = vec![
        // Masquerading and filters see the connections of IPVS.
        Setting {
            path: "vs/conntrack",
            value: 1,
            needed: true,
        },
        // A flow to an endpoint that was removed goes to another with its next packet.
        setting("vs/expire_nodest_conn", 1),
        // So does a client that stays with its endpoint.
        setting("vs/expire_quiescent_template", 1),
        setting("ip_forward", 1),
    ];
    // Before 5.9 a connection from a port that was just used waits for a second.
    if ((4, 1)..(5, 9)).contains(&kernel) {
        wanted.push(setting("vs/conn_reuse_mode", 0));
    }
    if strict_arp {
        wanted.push(setting("conf/all/arp_ignore", 1));
        wanted.push(setting("conf/all/arp_announce", 2));
    }
    wanted
}

/// Set what differs.
pub(super) fn apply(strict_arp: bool) -> Result<(), ApplyError> {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    for setting in wanted(version(&release), strict_arp) {
        let path = format!("{FOLDER}/{}", setting.path);
        let is = fs::read_to_string(&path)
            .ok()
            .and_then(|text| text.trim().parse::<u32>().ok());
        if is == Some(setting.value) {
            continue;
        }
        match fs::write(&path, setting.value.to_string()) {
            Ok(()) => tracing::debug!(path, value = setting.value, "set"),
            Err(error) if setting.needed => {
                return Err(failed(
                    format!("setting {path} to {}", setting.value),
                    error,
                ));
            }
            Err(error) => tracing::warn!(path, value = setting.value, %error, "cannot be set"),
        }
    }
    Ok(())
}

/// `6.1.0-13-amd64`; what cannot be read is taken for new.
fn version(release: &str) -> (u32, u32) {
    let mut numbers = release
        .split(|c: char| !c.is_ascii_digit())
        .map_while(|number| number.parse().ok());
    (
        numbers.next().unwrap_or(u32::MAX),
        numbers.next().unwrap_or(0),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reuse_of_connections_is_left_alone_where_it_works() {
        let sets = |release, strict| -> Vec<&str> {
            wanted(version(release), strict)
                .into_iter()
                .map(|setting| setting.path)
                .collect()
        };
        assert!(sets("5.8.0-63-generic", false).contains(&"vs/conn_reuse_mode"));
        assert!(sets("4.19.0\n", false).contains(&"vs/conn_reuse_mode"));
        for release in [
            "5.9.0",
            "5.15.0-1",
            "6.1.176",
            "3.10.0-1160.el7",
            "",
            "what",
        ] {
            assert!(
                !sets(release, false).contains(&"vs/conn_reuse_mode"),
                "{release}"
            );
        }
        assert!(sets("6.1", true).contains(&"conf/all/arp_ignore"));
        assert!(!sets("6.1", false).contains(&"conf/all/arp_ignore"));
    }
}
