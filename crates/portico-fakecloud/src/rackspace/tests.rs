use http::Method;

use super::*;

struct Client {
    cloud: Rackspace,
}

impl Client {
    fn new() -> Self {
        Self {
            cloud: Rackspace::default(),
        }
    }

    fn ask(&self, method: Method, path: &str, body: Value) -> (u16, Value) {
        let text = if body.is_null() {
            Bytes::new()
        } else {
            Bytes::from(body.to_string())
        };
        let url = format!("https://ord.loadbalancers.test/v1.0/110011/{path}");
        let request = Request::builder()
            .method(method)
            .uri(url)
            .header("x-auth-token", "token-1")
            .body(text)
            .unwrap();
        let answer = self.cloud.answer(&request);
        (
            answer.status().as_u16(),
            serde_json::from_slice(answer.body()).unwrap_or_default(),
        )
    }

    fn create(&self, port: u16, vip: Value) -> (u16, Value) {
        let value = json!({"name": "a", "protocol": "TCP", "port": port, "virtualIps": [vip]});
        self.ask(
            Method::POST,
            "loadbalancers",
            json!({ "loadBalancer": value }),
        )
    }
}

#[test]
fn what_is_not_described_is_kept() {
    let client = Client::new();
    let value = json!({"name": "a", "protocol": "TCP", "prot": 80, "virtualIps": [{"type": "PUBLIC"}], "id": 1});
    assert_eq!(
        client
            .ask(
                Method::POST,
                "loadbalancers",
                json!({ "loadBalancer": value })
            )
            .0,
        400
    );
    assert_eq!(
        client.ask(Method::PATCH, "loadbalancers", Value::Null).0,
        400
    );
    let problems = client.cloud.problems().join("\n");
    for part in [
        "loadBalancer.prot does not exist",
        "id is written by the server alone",
        "PATCH",
    ] {
        assert!(problems.contains(part), "{problems}");
    }
}

#[test]
fn a_write_takes_a_while_and_keeps_others_out() {
    let client = Client::new();
    let (status, answer) = client.create(80, json!({"type": "PUBLIC"}));
    assert_eq!(
        (status, &answer["loadBalancer"]["status"]),
        (202, &json!("BUILD"))
    );
    let one = format!("loadbalancers/{}", answer["loadBalancer"]["id"]);
    let node = json!({"nodes": [{"address": "10.0.0.1", "port": 80, "condition": "ENABLED"}]});
    assert_eq!(
        client
            .ask(Method::POST, &format!("{one}/nodes"), node.clone())
            .0,
        422
    );
    assert_eq!(
        client.ask(Method::GET, &one, Value::Null).1["loadBalancer"]["status"],
        "ACTIVE"
    );
    assert_eq!(
        client
            .ask(Method::POST, &format!("{one}/nodes"), node.clone())
            .0,
        202
    );
    assert_eq!(client.ask(Method::DELETE, &one, Value::Null).0, 400);
    client.cloud.settle();
    assert_eq!(
        client.ask(Method::POST, &format!("{one}/nodes"), node).0,
        422
    );
    assert_eq!(client.ask(Method::DELETE, &one, Value::Null).0, 202);
    client.cloud.settle();
    assert_eq!(
        (client.cloud.all(), client.cloud.problems()),
        (vec![], vec![])
    );
}

#[test]
fn an_address_is_shared_by_ports_and_goes_with_the_last() {
    let client = Client::new();
    let answer = client
        .create(80, json!({"type": "PUBLIC", "ipVersion": "IPV4"}))
        .1;
    let vip = json!({"id": answer["loadBalancer"]["virtualIps"][0]["id"]});
    assert_eq!(client.create(80, vip.clone()).0, 400);
    let other = client.create(81, vip.clone()).1;
    assert_eq!(
        other["loadBalancer"]["virtualIps"],
        answer["loadBalancer"]["virtualIps"]
    );
    client.cloud.settle();
    let path = format!(
        "loadbalancers?id={}&id={}",
        answer["loadBalancer"]["id"], other["loadBalancer"]["id"]
    );
    assert_eq!(client.ask(Method::DELETE, &path, Value::Null).0, 202);
    client.cloud.settle();
    assert_eq!(client.create(82, vip).0, 400);
    assert_eq!(client.cloud.problems(), Vec::<String>::new());
}

#[test]
fn lists_come_in_pages() {
    let client = Client::new();
    let ids: Vec<u64> = (1..=3)
        .map(|port| client.cloud.add("foreign", port))
        .collect();
    let page = |query: &str| {
        let answer = client
            .ask(Method::GET, &format!("loadbalancers?{query}"), Value::Null)
            .1;
        answer["loadBalancers"]
            .as_array()
            .unwrap()
            .iter()
            .map(|it| it["id"].as_u64().unwrap())
            .collect::<Vec<_>>()
    };
    assert_eq!(page("limit=2"), ids[..2]);
    assert_eq!(page(&format!("limit=2&marker={}", ids[2])), ids[2..]);
    assert_eq!(page(&format!("marker={}", ids[2] + 1)), Vec::<u64>::new());
}
