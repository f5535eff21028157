use super::*;
use clap::Parser;

#[derive(Parser)]
struct Program {
    #[command(flatten)]
    arguments: Arguments,
}

fn config(flags: &[&str]) -> Result<Config, String> {
    let all = ["dns", "--zone=K8s.Example.com"].iter().chain(flags);
    let program = Program::try_parse_from(all).map_err(|error| error.to_string())?;
    program
        .arguments
        .resolve()
        .map_err(|error| error.to_string())
}

#[test]
fn what_is_not_said_has_a_good_value() {
    let config = config(&[]).unwrap();
    assert_eq!(config.zone.origin.name().to_ascii(), "k8s.example.com.");
    assert_eq!(
        config.zone.hostmaster.to_ascii(),
        "hostmaster.k8s.example.com."
    );
    assert_eq!(config.zone.servers[0].0.to_ascii(), "ns.k8s.example.com.");
    assert_eq!(config.index.healthz_port, 10256);
    assert!(
        config.allow_transfer.is_empty()
            && config.notify.is_empty()
            && !config.index.cluster_services
    );
    let addresses: Vec<String> = config
        .listen
        .iter()
        .map(|listen| listen.address.to_string())
        .collect();
    assert_eq!(addresses, ["0.0.0.0:53", "[::]:53"]);
    assert!(config.listen[1].optional && !config.listen[0].optional);
}

#[test]
fn flags_mean_what_they_say() {
    let config = config(&[
        "--listen=192.0.2.53,[2001:db8::53]:5353",
        "--allow-transfer=192.0.2.7,198.51.100.0/24",
        "--ns=ns1.k8s.example.com=192.0.2.53",
        "--ns=ns1.k8s.example.com=2001:db8::53,ns.example.net",
        "--hostmaster=dns.team@example.com",
        "--cluster-services",
        "--node-addresses=InternalIP",
        "--probe-interval=500ms",
        "--metrics-bind-address=none",
    ])
    .unwrap();
    let addresses: Vec<String> = config
        .listen
        .iter()
        .map(|listen| listen.address.to_string())
        .collect();
    assert_eq!(addresses, ["192.0.2.53:53", "[2001:db8::53]:5353"]);
    assert_eq!(
        config.notify,
        ["192.0.2.7:53".parse().unwrap()],
        "single addresses are told"
    );
    assert_eq!(config.zone.servers.len(), 2);
    assert_eq!(config.zone.servers[0].1.len(), 2);
    assert_eq!(config.zone.hostmaster.to_ascii(), "dns\\.team.example.com.");
    assert!(config.index.cluster_services && config.metrics.is_none());
    assert_eq!(config.checks.interval, Duration::from_millis(500));
}

#[test]
fn what_cannot_be_is_told() {
    for (flag, word) in [
        ("--listen=here", "not an IP address"),
        (
            "--allow-transfer=10.0.0.0/40",
            "neither an IP address nor a CIDR",
        ),
        ("--ns=ns1.k8s.example.com", "needs its address"),
        ("--ns=ns1.example.net=192.0.2.1", "outside the zone"),
        (
            "--ns=a.svc.k8s.example.com=192.0.2.1",
            "where Services and nodes have their names",
        ),
        ("--ns=a b", "not the name of a server"),
        ("--hostmaster=a@b c", "not a mail address"),
        ("--metrics-bind-address=x", "--metrics-bind-address"),
        ("--probe-interval=0s", "longer than nothing"),
        ("--probe-interval=soon", "not a duration"),
        ("--ttl=4294967295", "--ttl"),
    ] {
        let error = config(&[flag]).unwrap_err();
        assert!(error.contains(word), "{flag}: {error}");
    }
}
