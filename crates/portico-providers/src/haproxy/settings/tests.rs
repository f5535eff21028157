use super::*;

#[test]
fn everything_can_be_written() {
    let text = "
addresses:
- 192.0.2.10
- bind: 10.0.0.5
  publish: 203.0.113.5
- bind: 10.0.0.6
  publish: lb.example.com
folder: /srv/haproxy
masterSocket: /run/haproxy-master.sock
program: /opt/haproxy
run: false
targets: endpoints
ipMode: VIP
connectTimeout: 500ms
idleTimeout: 1h
drainTimeout: 10m
healthCheck: {interval: 5s, timeout: 2s, rise: 1, fall: 2}
global: |
  maxconn 20000
defaults: |
  option tcplog
";
    let settings = Settings::parse(text).unwrap();
    let publish: Vec<&Host> = settings
        .addresses
        .iter()
        .map(|address| &address.publish)
        .collect();
    let name = Host::Name("lb.example.com".to_owned());
    assert_eq!(
        publish,
        [
            &Host::Ip("192.0.2.10".parse().unwrap()),
            &Host::Ip("203.0.113.5".parse().unwrap()),
            &name
        ]
    );
    assert_eq!(
        (settings.targets, settings.ip_mode, settings.run),
        (Targets::Endpoints, IpMode::Vip, false)
    );
    assert_eq!(settings.connect_timeout, Duration::from_millis(500));
    assert_eq!(
        (settings.health_check.rise, settings.global.as_str()),
        (1, "maxconn 20000\n")
    );
}

#[test]
fn what_is_wrong_is_said() {
    let cases = [
        ("{}", "addresses: name at least one"),
        ("addresses: [example]", "write an address"),
        (
            "addresses: [192.0.2.1]\nfolder: relative",
            "folder: write an absolute path",
        ),
        (
            "addresses: [192.0.2.1]\nmasterSocket: \"/run/a b\"",
            "masterSocket: write an absolute path",
        ),
        (
            "addresses: [192.0.2.1]\nidleTimeout: soon",
            "\"soon\" is no time",
        ),
        (
            "addresses: [192.0.2.1]\nidleTimeout: 0s",
            "\"0s\" is no time",
        ),
        ("addresses: [192.0.2.1]\nipMode: vip", "use Proxy or VIP"),
        (
            "addresses: [192.0.2.1]\ntargets: pods",
            "use nodes or endpoints",
        ),
        (
            "addresses: [192.0.2.1]\nhealthCheck: {rise: 0}",
            "at least 1",
        ),
        ("addresses: [192.0.2.1]\nadresses: []", "adresses"),
    ];
    for (text, expected) in cases {
        let error = Settings::parse(text).unwrap_err();
        assert!(error.contains(expected), "{text}: {error}");
    }
}
