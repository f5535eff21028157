//! What others see of Portico: `kubectl`, `curl`, `dig`, `nft` and Prometheus look at the demo,
//! where everything runs as on real machines. What they are shown has names that say what it is;
//! every metric stands in docs/reference/metrics.md (`make docs` writes it).
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test may panic and print"
)]

#[path = "observability/lab.rs"]
mod lab;
#[path = "observability/metrics.rs"]
mod metrics;
#[path = "demo/rig.rs"]
#[allow(dead_code, reason = "the demo's own tests use more of it")]
mod rig;

use lab::Lab;

/// The control plane's address, which nobody else in the lab has, and where the demo's DNS answers.
const VIP: &str = "192.0.2.50";
const DNS: &str = "192.0.2.2";

#[test]
fn everything_has_a_sensible_name() {
    let lab = Lab::start("test-observability");
    let _vip = lab.daemon("cp", &format!("vip {}", lab.vip_flags(VIP)));
    // In this mode it has one name of its own.
    let _old = lab.daemon(
        "router",
        &format!(
            "node --master=http://127.0.0.1:1 --proxy-mode=iptables {}",
            lab.aside()
        ),
    );

    kubectl(&lab);
    curl(&lab);
    dig(&lab);
    nft(&lab);
    tutorial(&lab);
    metrics::every_page_is_good_and_documented(&lab);
}

fn kubectl(lab: &Lab) {
    let services = lab.kubectl(
        "get services -o wide",
        &["LoadBalancer", "192.0.2.200", "web-public", "NodePort"],
    );
    assert!(!services.contains("<pending>"), "{services}");
    lab.kubectl("get nodes", &["node1", "node2", "node3"]);
    lab.kubectl("get addresspools", &["FREE-IPV4", "demo"]);
    lab.kubectl(
        "describe service web",
        &[
            "LoadBalancer Ingress:",
            "192.0.2.200",
            "EnsuredLoadBalancer",
        ],
    );
    let conditions = "get service web -o jsonpath={range\\ .status.conditions[*]}{.type}={.status}\\ \
                      {.reason}\\;{end}";
    let wanted = [
        "Allocated=True Allocated",
        "Programmed=True Programmed",
        "Announced=True Layer2",
        "Reachable=True EndpointsReady",
    ];
    lab.kubectl(conditions, &wanted);
    lab.kubectl(
        "-n kube-system get leases",
        &["portico-controller", "portico-node-node1"],
    );
    lab.kubectl(
        "explain addresspool.spec.addresses",
        &["AddressPool", "addresses"],
    );
}

fn curl(lab: &Lab) {
    lab.on(
        "client",
        "curl -sS --max-time 5 http://192.0.2.200/",
        &["web-"],
    );
    lab.on(
        "client",
        "curl -sS --max-time 5 -i http://192.0.2.11:10256/healthz",
        &["200 OK", "lastUpdated"],
    );
    lab.on(
        "client",
        &format!("curl -sSk --max-time 5 https://{VIP}:6443/version"),
        &["gitVersion", "portico"],
    );
    lab.on(
        "cp",
        "curl -sS 127.0.0.1:10253/nodes",
        &["node1", "given", "192.0.2.11:10256 is good"],
    );
    lab.on(
        "cp",
        "curl -sS 127.0.0.1:10246/status",
        &["\"role\": \"owner\"", VIP],
    );
}

fn dig(lab: &Lab) {
    let ask = |question: &str, wanted: &[&str]| {
        lab.on("client", &format!("dig @{DNS} +time=2 {question}"), wanted)
    };
    ask(
        "web.default.svc.demo.example A",
        &["status: NOERROR", "192.0.2.200", "aa"],
    );
    ask("node1.node.demo.example A +short", &["192.0.2.11"]);
    ask(
        "demo.example SOA +short",
        &["ns.demo.example. hostmaster.demo.example."],
    );
    ask("nobody.default.svc.demo.example A", &["status: NXDOMAIN"]);
}

fn nft(lab: &Lab) {
    let rules = lab.on(
        "node1",
        "nft list ruleset",
        &["table ip portico", "192.0.2.200", "default/web"],
    );
    let tables: Vec<&str> = rules
        .lines()
        .filter(|line| line.starts_with("table "))
        .collect();
    assert!(
        tables.iter().all(|table| table.contains(" portico ")),
        "{tables:?}"
    );
    for name in [
        "map frontends",
        "map endpoints",
        "chain services",
        "default/web-public",
        "default/web-internal",
    ] {
        assert!(rules.contains(name), "{name} is not in\n{rules}");
    }
}

/// What docs/tutorial.md lets its reader type while the demo runs.
fn tutorial(lab: &Lab) {
    lab.on(
        "node1",
        "nft list map ip portico frontends",
        &["default/web"],
    );
    lab.kubectl(
        "create service loadbalancer second --tcp=80:8080",
        &["created"],
    );
    let reachable =
        "get service second -o jsonpath={.status.conditions[?(@.type==\"Reachable\")].reason}";
    lab.kubectl(reachable, &["NoEndpoints"]);
    lab.kubectl(
        r#"patch service second --patch {"spec":{"selector":{"app":"web"}}}"#,
        &["patched"],
    );
    lab.kubectl(reachable, &["EndpointsReady"]);
    let address = lab.kubectl(
        "get service second -o jsonpath={.status.loadBalancer.ingress[0].ip}",
        &["192.0.2."],
    );
    lab.on(
        "client",
        &format!("curl -sS --max-time 5 http://{address}/"),
        &["web-"],
    );
}
