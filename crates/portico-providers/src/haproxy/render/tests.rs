use super::super::testing::{port, request, settings, table};
use super::*;
use crate::{Family, Request};

fn site_text(request: Request) -> String {
    let text = render(&table(&[request]), &settings()).text;
    text.split_once("\n# shop/").unwrap().1.to_owned()
}

#[test]
fn a_service_is_a_section_for_each_port() {
    let text = site_text(request("web"));
    let expected = "web
listen portico_shop_web_80_b019ce16 from portico
    bind 192.0.2.10:80
    balance leastconn
    timeout client 600000ms
    timeout server 600000ms
    option httpchk
    http-check send meth GET uri /healthz ver HTTP/1.1 hdr Host portico
    http-check expect status 200
    server 10.0.0.1_30080 10.0.0.1:30080 check port 10256 inter 2000ms fastinter 500ms rise 2 fall 3
    server 10.0.0.2_30080 10.0.0.2:30080 check port 10256 inter 2000ms fastinter 500ms rise 2 fall 3
    # servers: check port 10256 inter 2000ms fastinter 500ms rise 2 fall 3
";
    assert_eq!(text, expected);
}

#[test]
fn options_are_lines() {
    let annotations = [("portico.dev/proxy-protocol".to_owned(), "v1".to_owned())].into();
    let ranges = (0..40)
        .map(|n| format!("10.0.{n}.7/24").parse().unwrap())
        .collect();
    let families = vec![Family::V4, Family::V6];
    let text = site_text(Request {
        annotations,
        affinity: Some(60),
        source_ranges: ranges,
        families,
        ..request("web")
    });
    assert!(
        text.contains("    bind 192.0.2.10:80\n    bind [2001:db8::10]:80\n"),
        "{text}"
    );
    assert_eq!(
        text.matches("    acl allowed src 10.0.").count(),
        2,
        "{text}"
    );
    assert!(
        text.contains(" 10.0.31.0/24\n")
            && text.contains("tcp-request connection reject if !allowed\n"),
        "{text}"
    );
    assert!(
        text.contains(
            "stick-table type ipv6 size 200k expire 60s peers portico_peers\n    stick on src\n"
        ),
        "{text}"
    );
    assert!(text.contains("fall 3 send-proxy\n"), "{text}");
}

#[test]
fn only_servers_leave_the_generation_alone() {
    let generation =
        |request: &Request| render(&table(std::slice::from_ref(request)), &settings()).generation;
    let first = request("web");
    let fewer = Request {
        nodes: first.nodes[..1].to_vec(),
        ..first.clone()
    };
    assert_eq!(generation(&first), generation(&fewer));
    let others = [
        request("other"),
        Request {
            ports: vec![port(81, 30080)],
            ..first.clone()
        },
        Request {
            affinity: Some(10),
            ..first.clone()
        },
        Request {
            source_ranges: vec!["10.0.0.0/8".parse().unwrap()],
            ..first.clone()
        },
        Request {
            health_check: None,
            ..first.clone()
        },
    ];
    for other in others {
        assert_ne!(generation(&first), generation(&other), "{other:?}");
    }
    // Another node port makes other servers, not another section.
    assert_eq!(
        generation(&first),
        generation(&Request {
            ports: vec![port(80, 30081)],
            ..first.clone()
        })
    );
}
