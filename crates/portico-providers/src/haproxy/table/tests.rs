use super::super::testing::{port, request, table};
use super::*;
use crate::{Host, Request};

fn settings() -> Settings {
    Settings::parse(
        "addresses: [192.0.2.10, 192.0.2.11, {bind: 10.0.0.5, publish: 203.0.113.5}, \
         '2001:db8::10']",
    )
    .unwrap()
}

fn ensure(table: &mut Table, request: &Request) -> Result<Vec<String>, String> {
    let desired = Desired::new(request, &settings()).unwrap();
    table
        .ensure(desired, &settings())
        .map_err(|error| error.to_string())?;
    Ok(table.sites[&request.service.uid]
        .addresses
        .iter()
        .map(ToString::to_string)
        .collect())
}

#[test]
fn nobody_gets_what_another_has() {
    let mut table = Table::default();
    let other_port = Request {
        ports: vec![port(443, 30443)],
        ..request("other")
    };
    assert_eq!(ensure(&mut table, &request("a")).unwrap(), ["192.0.2.10"]);
    assert_eq!(ensure(&mut table, &other_port).unwrap(), ["192.0.2.10"]);
    assert_eq!(ensure(&mut table, &request("b")).unwrap(), ["192.0.2.11"]);
    assert_eq!(ensure(&mut table, &request("c")).unwrap(), ["10.0.0.5"]);
    let error = ensure(&mut table, &request("d")).unwrap_err();
    assert!(
        error.contains("port 80 of 192.0.2.10 is that of shop/a"),
        "{error}"
    );
    // A Service keeps its address, also when another becomes free.
    table.sites.remove("uid-a");
    assert_eq!(ensure(&mut table, &request("b")).unwrap(), ["192.0.2.11"]);
    assert_eq!(ensure(&mut table, &request("d")).unwrap(), ["192.0.2.10"]);
}

#[test]
fn an_address_can_be_asked_for() {
    let mut table = Table::default();
    let asked = |ip: &str| Request {
        requested_ip: Some(ip.to_owned()),
        ..request("a")
    };
    assert_eq!(
        ensure(&mut table, &asked("203.0.113.5")).unwrap(),
        ["10.0.0.5"]
    );
    assert!(
        ensure(&mut table, &asked("192.0.2.99"))
            .unwrap_err()
            .contains("192.0.2.99 is not among")
    );
    let told = crate::Ingress {
        host: Host::Ip("192.0.2.11".parse().unwrap()),
        mode: IpMode::Proxy,
    };
    let told = Request {
        ingress: vec![told],
        ..request("b")
    };
    assert_eq!(
        ensure(&mut table, &told).unwrap(),
        ["192.0.2.11"],
        "the status says so"
    );
}

#[test]
fn each_family_has_its_address() {
    let mut table = Table::default();
    let both = Request {
        families: vec![Family::V6, Family::V4],
        require_all_families: true,
        ..request("a")
    };
    assert_eq!(
        ensure(&mut table, &both).unwrap(),
        ["2001:db8::10", "192.0.2.10"]
    );
    let only_v4 = Settings::parse("addresses: [192.0.2.10]").unwrap();
    let desired = Desired::new(&both, &only_v4).unwrap();
    let error = Table::default().ensure(desired, &only_v4).unwrap_err();
    assert!(
        matches!(
            error,
            ProviderError::Refused {
                reason: "NoAddress",
                ..
            }
        ),
        "{error:?}"
    );
}

#[test]
fn clients_are_told_how_packets_go() {
    let modes = |settings: &Settings, proxy: &str| {
        let annotations = [("portico.dev/proxy-protocol".to_owned(), proxy.to_owned())].into();
        let table = table(&[Request {
            annotations,
            ..request("a")
        }]);
        table.sites["uid-a"].balancer(settings).ingress[0].mode
    };
    let vip = Settings {
        ip_mode: IpMode::Vip,
        ..settings()
    };
    assert_eq!(
        (modes(&settings(), ""), modes(&vip, ""), modes(&vip, "v1")),
        (IpMode::Proxy, IpMode::Vip, IpMode::Proxy)
    );
    let mapped = Request {
        requested_ip: Some("10.0.0.5".to_owned()),
        ..request("a")
    };
    let mut table = Table::default();
    ensure(&mut table, &mapped).unwrap();
    let told = table.sites["uid-a"].balancer(&settings());
    assert_eq!(
        told.ingress[0].host,
        Host::Ip("203.0.113.5".parse().unwrap())
    );
}

#[test]
fn it_comes_back_from_disk_as_it_was() {
    let table = table(&[
        request("a"),
        Request {
            ports: vec![port(443, 30443)],
            affinity: Some(60),
            ..request("b")
        },
    ]);
    let text = serde_json::to_string(&table).unwrap();
    assert_eq!(serde_json::from_str::<Table>(&text).unwrap(), table);
}
