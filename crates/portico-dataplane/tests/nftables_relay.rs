//! The table that sends unknown connections on, on the kernel: what `nft` shows of it, that it is
//! repaired and goes.

#![expect(clippy::unwrap_used, reason = "tests")]

use portico_dataplane::nftables::relay::{Relay, RelayTable};
use portico_model::table::Family;
use portico_testbed::{Host, Testbed};
use std::process::Command;

fn list(host: &Host) -> String {
    let mut nft = Command::new("nft");
    nft.args(["-a", "list", "ruleset"]);
    host.run(nft, "").unwrap()
}

fn flush(host: &Host, what: &str) {
    let mut nft = Command::new("nft");
    nft.args(["flush", what]);
    host.run(nft, "").unwrap();
}

fn relay(family: Family, last: &str) -> Relay {
    let (at, network) = match family {
        Family::V4 => ("192.0.2.100:6443", "192.0.2."),
        Family::V6 => ("[2001:db8::100]:6443", "fe80::"),
    };
    Relay {
        frontends: vec![at.parse().unwrap()],
        to: format!("{network}{last}").parse().unwrap(),
        link: 1,
    }
}

#[test]
fn nft_shows_what_is_meant() {
    let bed = Testbed::new().unwrap();
    let host = bed.host("node").unwrap();
    for (family, rule) in [
        (
            Family::V4,
            "ip daddr 192.0.2.100 tcp dport 6443 tcp flags != syn / fin,syn,rst,ack ct state invalid,new ip ttl > 16 ip ttl set 16 \
             counter packets 0 bytes 0 dup to 192.0.2.1 device \"lo\" drop",
        ),
        (
            Family::V6,
            "ip6 daddr 2001:db8::100 tcp dport 6443 tcp flags != syn / fin,syn,rst,ack ct state invalid,new ip6 hoplimit > 16 \
             ip6 hoplimit set 16 counter packets 0 bytes 0 dup to fe80::1 device \"lo\" drop",
        ),
    ] {
        host.enter(|| RelayTable::open("relay", family).unwrap())
            .set(Some(&relay(family, "1")))
            .unwrap();
        let shown = list(&host);
        assert!(shown.contains(rule), "{shown}");
        assert!(
            shown.contains("type filter hook prerouting priority mangle"),
            "{shown}"
        );
    }
}

#[test]
fn it_is_kept_changed_repaired_and_removed() {
    let bed = Testbed::new().unwrap();
    let host = bed.host("node").unwrap();
    for family in Family::BOTH {
        let open = || host.enter(|| RelayTable::open("relay", family).unwrap());
        let (first, second) = (relay(family, "1"), relay(family, "2"));
        open().set(Some(&first)).unwrap();
        let before = list(&host);
        open().set(Some(&first)).unwrap();
        assert_eq!(
            list(&host),
            before,
            "what an earlier process left and is right stays"
        );

        open().set(Some(&second)).unwrap();
        let changed = list(&host);
        assert!(
            changed.contains(&second.to.to_string())
                && !changed.contains(&format!("to {} ", first.to)),
            "{changed}"
        );
        flush(&host, "ruleset");
        open().set(Some(&second)).unwrap();
        assert!(
            list(&host).contains(&second.to.to_string()),
            "it is put back"
        );

        open().set(None).unwrap();
        open().set(None).unwrap();
        assert_eq!(list(&host), "");
    }
}
