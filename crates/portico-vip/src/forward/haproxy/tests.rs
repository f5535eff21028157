use super::*;
use crate::servers::Server;

fn settings() -> HaproxySettings {
    HaproxySettings {
        own_addresses: ["172.16.64.35", "fd00:64::35"]
            .map(|text| text.parse().unwrap())
            .to_vec(),
        ca_file: Some("/etc/kubernetes/pki/ca.crt".into()),
        ..HaproxySettings::default()
    }
}

fn routes(servers: &[(&str, bool)]) -> Vec<Route> {
    let server = |(text, healthy): &(&str, bool)| Server {
        address: text.parse().unwrap(),
        healthy: *healthy,
        gone: !healthy,
    };
    let wanted = Wanted {
        addresses: vec!["172.16.64.58".parse().unwrap()],
        port: 6443,
        servers: servers.iter().map(server).collect(),
        cluster: vec![],
        closing: false,
    };
    wanted.routes().collect()
}

fn text(settings: &HaproxySettings, routes: &[Route]) -> String {
    Config::new(settings, routes).text(Path::new("/run/portico/haproxy/haproxy.sock"))
}

#[test]
fn the_configuration_has_the_servers_with_their_checks() {
    let text = text(
        &settings(),
        &routes(&[("172.16.64.35:6443", true), ("172.16.64.48:6443", false)]),
    );
    for line in [
        "    bind 172.16.64.35:16443\n",
        "    server 172.16.64.35_6443 172.16.64.35:6443\n",
        "    server 172.16.64.48_6443 172.16.64.48:6443 disabled\n",
        "    default-server check check-ssl verify required ca-file \
         \"/etc/kubernetes/pki/ca.crt\" inter 500ms fall 1 rise 2\n",
        "    http-check send meth GET uri /readyz ver HTTP/1.1 hdr Host kubernetes\n",
        "    use_backend unchecked if { nbsrv(apiservers) eq 0 }\n",
    ] {
        assert!(text.contains(line), "{line}{text}");
    }
    assert!(
        !text.contains("fd00"),
        "no address of a family that is not served"
    );
    assert_eq!(text.matches("    server ").count(), 4, "in both sections");
}

#[test]
fn who_is_out_makes_no_other_configuration() {
    let (settings, socket) = (settings(), Path::new("/s"));
    let of = |servers: &[(&str, bool)]| Config::new(&settings, &routes(servers)).text(socket);
    let all = of(&[("172.16.64.35:6443", true), ("172.16.64.48:6443", true)]);
    let one = of(&[("172.16.64.35:6443", true), ("172.16.64.48:6443", false)]);
    assert_ne!(all, one);
    assert_eq!(without_states(&one), all);
    assert_ne!(without_states(&of(&[("172.16.64.35:6443", true)])), all);
    assert_eq!(
        of(&[("172.16.64.35:6443", false), ("172.16.64.48:6443", false)]),
        all,
        "none is out where all are"
    );
}

#[test]
fn paths_stay_one_word() {
    let strange = HaproxySettings {
        ca_file: Some("/a b/$c\"\\.crt".into()),
        ..settings()
    };
    let text = text(&strange, &routes(&[("172.16.64.35:6443", true)]));
    assert!(
        text.contains(r#"ca-file "/a b/\$c\"\\.crt" inter"#),
        "{text}"
    );
}
