use super::*;
use crate::openstack::config::Config;

fn global(more: &str) -> Global {
    Config::parse(&format!("[Global]\nauth-url=http://k\n{more}"))
        .unwrap()
        .global
}

#[test]
fn a_password_is_for_a_project() {
    let body = body(&global(
        "username=u\npassword=p\ntenant-name=t\nuser-domain-name=d",
    ));
    let user = json!({"name": "u", "domain": {"name": "d"}, "password": "p"});
    let identity = json!({"methods": ["password"], "password": {"user": user}});
    let scope = json!({"project": {"name": "t", "domain": {"id": "default"}}});
    assert_eq!(
        body,
        json!({"auth": {"identity": identity, "scope": scope}})
    );
}

#[test]
fn an_application_credential_has_its_project() {
    let body = body(&global(
        "application-credential-id=i\napplication-credential-secret=s\ntenant-id=t",
    ));
    let identity = json!({"methods": ["application_credential"], "application_credential": {"id": "i", "secret": "s"}});
    assert_eq!(body, json!({"auth": {"identity": identity}}));
}

fn catalog() -> Vec<Service> {
    let endpoint = |interface: &str, region: &str, url: &str| json!({"interface": interface, "region": region, "url": url});
    let balancers = [
        endpoint("internal", "one", "http://inside/"),
        endpoint("public", "two", "http://two/v2"),
        endpoint("public", "one", "http://one/load-balancer/v2.0/"),
    ];
    serde_json::from_value(
        json!([{"type": "load-balancer", "endpoints": balancers}, {"type": "image", "endpoints": []}]),
    )
    .unwrap()
}

#[test]
fn endpoints_are_those_of_region_and_interface() {
    let of = |more: &str| {
        let global = global(&format!("username=u\npassword=p\n{more}"));
        endpoints(&catalog(), &global)
            .map(|found| found.load_balancer)
            .map_err(|error| error.to_string())
    };
    assert_eq!(of("region=one").as_deref(), Ok("http://one/load-balancer"));
    assert_eq!(of("").as_deref(), Ok("http://two"));
    assert_eq!(
        of("os-endpoint-type=internalURL").as_deref(),
        Ok("http://inside")
    );
    let missing = "tokens.create: credentials: the catalog has no public endpoint of type load-balancer \
                   in region three";
    assert_eq!(of("region=three"), Err(missing.to_owned()));
}
