use http::Method;

use super::*;

fn ask(cloud: &DigitalOcean, method: Method, path: &str, body: Value) -> (u16, Value) {
    let body = if body.is_null() {
        Bytes::new()
    } else {
        Bytes::from(body.to_string())
    };
    let uri = format!("https://api.digitalocean.com/v2/{path}");
    let answer = cloud.answer(
        &Request::builder()
            .method(method)
            .uri(uri)
            .body(body)
            .unwrap(),
    );
    (
        answer.status().as_u16(),
        serde_json::from_slice(answer.body()).unwrap_or_default(),
    )
}

fn balancer(fields: Value) -> Value {
    let rule = json!({"entry_protocol": "tcp", "entry_port": 80, "target_protocol": "tcp", "target_port": 30080});
    let mut body =
        json!({"name": "a", "region": "fra1", "droplet_ids": [], "forwarding_rules": [rule]});
    fields
        .as_object()
        .unwrap()
        .iter()
        .for_each(|(name, value)| body[name] = value.clone());
    body
}

#[test]
fn a_load_balancer_takes_a_while() {
    let cloud = DigitalOcean::default();
    let (status, made) = ask(&cloud, Method::POST, "load_balancers", balancer(json!({})));
    assert_eq!(
        (status, &made["load_balancer"]["status"]),
        (202, &json!("new"))
    );
    let path = format!(
        "load_balancers/{}",
        made["load_balancer"]["id"].as_str().unwrap()
    );
    cloud.settle();
    let found = ask(&cloud, Method::GET, &path, Value::Null).1["load_balancer"].take();
    assert_eq!(
        (&found["status"], found["ip"].as_str().unwrap().is_empty()),
        (&json!("active"), false)
    );
    assert_eq!(ask(&cloud, Method::DELETE, &path, Value::Null).0, 204);
    assert_eq!(ask(&cloud, Method::DELETE, &path, Value::Null).0, 404);
    assert_eq!(cloud.problems(), Vec::<String>::new());
}

#[test]
fn a_put_replaces_everything_but_what_cannot_change() {
    let cloud = DigitalOcean::default();
    let first = balancer(json!({"size_unit": 3, "firewall": {"allow": ["ip:192.0.2.1"]}}));
    let made = ask(&cloud, Method::POST, "load_balancers", first).1;
    let path = format!(
        "load_balancers/{}",
        made["load_balancer"]["id"].as_str().unwrap()
    );
    let (status, now) = ask(&cloud, Method::PUT, &path, balancer(json!({"name": "b"})));
    let now = &now["load_balancer"];
    assert_eq!(
        (status, &now["name"], &now["size_unit"]),
        (200, &json!("b"), &json!(1))
    );
    assert_eq!(now["firewall"], json!({"allow": [], "deny": []}));
    assert_eq!(
        ask(
            &cloud,
            Method::PUT,
            &path,
            balancer(json!({"network": "INTERNAL"}))
        )
        .0,
        422
    );
    assert_eq!(cloud.problems(), Vec::<String>::new());
}

#[test]
fn what_the_real_one_refuses_is_refused() {
    let cloud = DigitalOcean::default();
    let rule = |entry: &str, target: &str| json!({"forwarding_rules": [{"entry_protocol": entry, "entry_port": 1, "target_protocol": target, "target_port": 2}]});
    for fields in [
        json!({"droplet_ids": [7]}),
        json!({"name": "-"}),
        json!({"region": "nyc3"}),
        json!({"firewall": {"allow": ["192.0.2.0/24"]}}),
        json!({"health_check": {"check_interval_seconds": 2}}),
        json!({"sticky_sessions": {"type": "cookies"}}),
        rule("udp", "tcp"),
        rule("https", "http"),
    ] {
        assert_eq!(
            ask(
                &cloud,
                Method::POST,
                "load_balancers",
                balancer(fields.clone())
            )
            .0,
            422,
            "{fields}"
        );
    }
    assert_eq!(cloud.problems(), Vec::<String>::new());
    assert_eq!(
        ask(
            &cloud,
            Method::POST,
            "load_balancers",
            balancer(json!({"tags": ["a"]}))
        )
        .0,
        422
    );
    assert_eq!(
        cloud.problems().len(),
        1,
        "a field that is not described is remembered"
    );
}

#[test]
fn lists_come_in_pages() {
    let cloud = DigitalOcean::default();
    (0..30).for_each(|number| cloud.put(&format!("n{number}"), &json!({})));
    let count = |query: &str| {
        let page = ask(
            &cloud,
            Method::GET,
            &format!("load_balancers{query}"),
            Value::Null,
        )
        .1;
        (
            page["load_balancers"].as_array().unwrap().len(),
            page["links"]["pages"]["next"].is_string(),
        )
    };
    assert_eq!((count(""), count("?page=2")), ((20, true), (10, false)));
    assert_eq!(count("?per_page=200"), (30, false));
}
