//! The cluster as it is seen from here. Pure.

use super::super::facts::{Cluster, Node};
use super::Finding;

/// Seconds that clocks may be apart. The header has whole ones, and takes its time.
const CLOSE: i64 = 3;
/// From here certificates and leases are judged wrongly.
const FAR: i64 = 30;

pub(super) fn judge(cluster: &Result<Cluster, String>) -> Vec<Finding> {
    let cluster = match cluster {
        Ok(cluster) => cluster,
        Err(problem) => {
            return vec![Finding::broken(
                "API server",
                problem.as_str(),
                "kubectl get --raw /readyz, with the same --kubeconfig",
            )];
        }
    };
    let mut findings: Vec<Finding> = cluster.ahead.map(clock).into_iter().collect();
    findings.extend(cluster.nodes.iter().map(node));
    if cluster.nodes.is_empty() {
        findings.push(Finding::warning(
            "nodes",
            "the API server knows none",
            "kubectl get nodes",
        ));
    }
    findings
}

fn clock(ahead: i64) -> Finding {
    let found = match ahead {
        0 => "as the API server's".to_owned(),
        1.. => format!("{ahead} s behind the API server's"),
        _ => format!("{} s ahead of the API server's", ahead.unsigned_abs()),
    };
    let fix = "chronyc makestep, or timedatectl set-ntp true";
    match ahead.abs() {
        apart if apart <= CLOSE => Finding::good("clock", found),
        apart if apart < FAR => Finding::warning("clock", found, fix),
        _ => Finding::broken("clock", found, fix),
    }
}

fn node(node: &Node) -> Finding {
    let check = format!("node {}", node.name);
    let at = node
        .healthz
        .map(|at| format!(" at {at}"))
        .unwrap_or_default();
    let logs = format!(
        "kubectl -n kube-system logs daemonset/portico-node, or journalctl -u portico on {}",
        node.name
    );
    match &node.answer {
        Ok(200) if !node.trouble.is_empty() => {
            Finding::broken(&check, format!("cannot install: {}", node.trouble), &logs)
        }
        Ok(200) => match &node.reports {
            Ok(true) => Finding::good(&check, format!("healthy{at}")),
            Err(why) => Finding::note(
                &check,
                format!(
                    "healthy{at}; whether it reports cannot be told, because the Leases of \
                     kube-system cannot be listed from here: {why}"
                ),
                "run portico doctor with the kubeconfig of an administrator",
            ),
            Ok(false) => Finding::warning(
                &check,
                format!(
                    "healthy{at}, and does not report: is that kube-proxy, or are Leases in \
                 kube-system forbidden to it?"
                ),
                "kubectl apply -f deploy/rbac/node.yaml",
            ),
        },
        Ok(503) => Finding::broken(
            &check,
            format!("not fit{at}: its changes wait, or it is about to be deleted"),
            &logs,
        ),
        Ok(code) => Finding::broken(
            &check,
            format!("its health{at} is answered with {code}: by somebody else?"),
            &logs,
        ),
        Err(problem) => Finding::broken(
            &check,
            format!("its health{at} is not told: {problem}"),
            &logs,
        ),
    }
}
