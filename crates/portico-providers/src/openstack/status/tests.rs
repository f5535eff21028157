use super::*;
use crate::openstack::config::Config;
use crate::openstack::options;

fn balancer(status: &str) -> LoadBalancer {
    serde_json::from_value(serde_json::json!({
        "id": "lb", "name": "shop", "provisioning_status": status,
        "vip_address": "10.0.0.9", "vip_port_id": "port", "vip_subnet_id": "sub",
        "additional_vips": [{"subnet_id": "six", "ip_address": "fd00::9", "port_id": "port"}],
    }))
    .unwrap()
}

fn options(annotations: &[(&str, &str)]) -> (Request, Options) {
    let annotations = annotations
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect();
    let request = Request {
        annotations,
        families: vec![Family::V4],
        ..Request::default()
    };
    let config = Config::parse("[Global]\nauth-url=http://k\nusername=u\npassword=p").unwrap();
    let options = Options::of(&request, &config).unwrap();
    (request, options)
}

fn said(annotations: &[(&str, &str)], floating: Option<&str>) -> String {
    let (request, options) = options(annotations);
    let found = described(
        &balancer("ACTIVE"),
        floating.map(|ip| ip.parse().unwrap()),
        &request,
        &options,
    );
    let ingress: Vec<String> = found
        .ingress
        .iter()
        .map(|it| format!("{:?} {:?}", it.host, it.mode))
        .collect();
    format!(
        "{}{}",
        ingress.join(", "),
        found
            .pending
            .map(|reason| format!("; {reason}"))
            .unwrap_or_default()
    )
}

#[test]
fn the_status_has_the_address_that_clients_use() {
    assert_eq!(said(&[], Some("198.51.100.1")), "Ip(198.51.100.1) Vip");
    assert_eq!(
        said(&[], None),
        "; load balancer shop (lb) has no floating IP yet"
    );
    assert_eq!(
        said(&[(options::INTERNAL, "true")], None),
        "Ip(10.0.0.9) Vip"
    );
}

/// In place of a made-up name, which was there only to keep nodes from taking the short way.
#[test]
fn with_the_proxy_protocol_the_mode_says_so() {
    let proxy = ("loadbalancer.openstack.org/proxy-protocol", "true");
    assert_eq!(
        said(&[proxy], Some("198.51.100.1")),
        "Ip(198.51.100.1) Proxy"
    );
    let name = ("loadbalancer.openstack.org/hostname", "shop.test");
    assert_eq!(
        said(&[proxy, name], Some("198.51.100.1")),
        "Name(\"shop.test\") Vip"
    );
}

#[test]
fn what_cannot_change_is_refused_with_the_way_out() {
    let (request, options) = options(&[(options::INTERNAL, "true")]);
    let moved = Request {
        requested_ip: Some("10.0.0.10".to_owned()),
        ..request.clone()
    };
    let error = check_unchangeable(&balancer("ACTIVE"), &moved, &options)
        .unwrap_err()
        .to_string();
    assert!(error.ends_with(
        "has the address 10.0.0.9, not 10.0.0.10: delete and create the Service to change it"
    ));
    let both = Request {
        families: vec![Family::V4, Family::V6],
        require_all_families: true,
        ..request
    };
    assert!(check_unchangeable(&balancer("ACTIVE"), &both, &options).is_ok());
    let narrow = LoadBalancer {
        additional_vips: Vec::new(),
        ..balancer("ACTIVE")
    };
    assert!(check_unchangeable(&narrow, &both, &options).is_err());
}
