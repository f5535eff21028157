use super::*;
use crate::Port;

fn of(annotations: &[(&str, &str)]) -> Result<Options, ProviderError> {
    let port = |protocol, port| Port {
        name: String::new(),
        protocol,
        port,
        node_port: 30000 + port,
        app_protocol: None,
    };
    Options::of(&Request {
        annotations: annotations
            .iter()
            .map(|(name, value)| (format!("{PREFIX}{name}"), (*value).into()))
            .collect(),
        ports: vec![
            port(Protocol::Udp, 53),
            port(Protocol::Tcp, 80),
            port(Protocol::Tcp, 81),
        ],
        ..Request::default()
    })
}

#[test]
fn without_annotations_all_is_usual() {
    let options = of(&[]).unwrap();
    assert_eq!(
        (
            options.protocol.as_str(),
            options.new_kind(),
            options.protocols.len()
        ),
        ("tcp", REGIONAL, 0)
    );
    assert_eq!(options.sticky, StickySessions::default());
    let check = options.check;
    assert_eq!(
        (check.check_interval_seconds, check.response_timeout_seconds),
        (3, 5)
    );
    assert_eq!(
        (
            check.unhealthy_threshold,
            check.healthy_threshold,
            check.protocol.as_str()
        ),
        (3, 5, "")
    );
}

#[test]
fn a_check_of_ones_own_has_to_be_asked_for() {
    let own = [
        ("healthcheck-port", "81"),
        ("healthcheck-protocol", "http"),
        ("healthcheck-path", "/up"),
    ];
    assert_eq!(of(&own).unwrap().check.port, 0);
    let mut own = own.to_vec();
    own.push(("override-health-check", "yes"));
    let check = of(&own).unwrap().check;
    assert_eq!(
        (check.port, check.protocol.as_str(), check.path.as_deref()),
        (30081, "http", Some("/up"))
    );
    // The first TCP port, by TCP.
    let check = of(&[("override-health-check", "")]).unwrap().check;
    assert_eq!(
        (check.port, check.protocol.as_str(), check.path),
        (30080, "tcp", None)
    );
}

#[test]
fn mistakes_are_refused() {
    let table: [(&[(&str, &str)], &str); 12] = [
        (
            &[("protocol", "sctp")],
            "protocol: \"sctp\" is none of tcp, http, https, http2",
        ),
        (&[("http-ports", "80,x")], "http-ports: \"x\" is no port"),
        (
            &[("http-ports", "80"), ("tls-ports", "80")],
            "tls-ports: \"80\" is named by another annotation too, or twice",
        ),
        (
            &[("size-unit", "0")],
            "size-unit: \"0\" is not a number from 1 to 100",
        ),
        (
            &[("healthcheck-healthy-threshold", "11")],
            "healthcheck-healthy-threshold: \"11\" is not a number from 2 to 10",
        ),
        (
            &[("enable-proxy-protocol", "1")],
            "enable-proxy-protocol: \"1\" is not true or false",
        ),
        (
            &[("type", "GLOBAL")],
            "type: \"GLOBAL\" is none of REGIONAL, REGIONAL_NETWORK",
        ),
        (
            &[("name", "-x")],
            "name: \"-x\" is not a name of letters, digits, dots and dashes, with 220 at most",
        ),
        (
            &[("sticky-sessions-type", "cookies")],
            "sticky-sessions-cookie-name",
        ),
        (
            &[("override-health-check", ""), ("healthcheck-port", "53")],
            "healthcheck-port: \"53\" is a UDP port, and checks ask by TCP",
        ),
        (
            &[("override-health-check", ""), ("healthcheck-port", "9")],
            "healthcheck-port: \"9\" is no port of the Service",
        ),
        (
            &[("certificate-id", "c"), ("tls-passthrough", "true")],
            "tls-passthrough and a certificate exclude each other",
        ),
    ];
    for (annotations, expected) in table {
        let Err(ProviderError::Refused {
            reason: "InvalidAnnotation",
            message,
        }) = of(annotations)
        else {
            panic!("{annotations:?}: {:?}", of(annotations));
        };
        assert!(message.ends_with(expected), "{message}");
    }
}
