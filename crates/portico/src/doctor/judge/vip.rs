//! The control plane's address on this machine. Pure.

use super::Finding;
use portico_vip::status::{Router, Status};

/// The priority by which a VRRP router says that the address is its own (RFC 9568, 5.2.4). Portico
/// never sends it, so another program does.
const OWN: u8 = 255;

pub(super) fn judge(vip: &Result<Status, String>) -> Vec<Finding> {
    match vip {
        Ok(status) => status.routers.iter().flat_map(router).collect(),
        Err(problem) => vec![Finding::warning(
            "portico vip",
            format!("it runs and does not answer: {problem}"),
            "portico vip status, with its --status-address",
        )],
    }
}

fn router(router: &Router) -> Vec<Finding> {
    let addresses: Vec<String> = router.addresses.iter().map(ToString::to_string).collect();
    let check = format!("address {}", addresses.join(", "));
    let look = format!(
        "tcpdump -eni {} ip proto 112 or ip6 proto 112",
        router.interface
    );
    let mut findings = Vec::new();
    if let Some(peer) = router.peers.iter().find(|peer| peer.priority == OWN) {
        let found = format!(
            "{} claims it with priority 255, which no portico vip does: a stranger, or a keepalived \
             that is set so",
            peer.address
        );
        findings.push(Finding::broken(&check, found, &look));
    }
    let dropped: u64 = router.strangers.values().sum();
    if let Some(stranger) = router.stranger.as_ref().filter(|_| dropped > 0) {
        let reasons: Vec<String> = router
            .strangers
            .iter()
            .map(|(reason, count)| format!("{reason} {count}"))
            .collect();
        let found = format!(
            "{dropped} adverts of strangers were dropped ({}), the last from {} at {:.0}: {}",
            reasons.join(", "),
            stranger.from,
            stranger.at,
            stranger.why
        );
        // Nodes of one group whose clocks or keys are not the same look like strangers too.
        findings.push(Finding::warning(&check, found, &look));
    }
    if findings.is_empty() {
        findings.push(match router.adverts.as_str() {
            "signed" => Finding::good(&check, "only signed adverts count"),
            adverts => Finding::note(
                &check,
                format!("adverts that count: {adverts}; whoever can send such ones can take it"),
                "portico vip --auth-key-file=FILE on all nodes, see docs/vip.md",
            ),
        });
    }
    findings
}
