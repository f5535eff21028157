use http::Method;

use super::*;

const PROJECT: &str = "/compute/v1/projects/shop";

fn ask(cloud: &Gce, method: Method, path: &str, body: Value) -> (u16, Value) {
    let body = if body.is_null() {
        Bytes::new()
    } else {
        Bytes::from(body.to_string())
    };
    let uri = format!("https://compute.googleapis.com{PROJECT}/{path}");
    let answer = cloud.answer(
        &Request::builder()
            .method(method)
            .uri(uri)
            .body(body)
            .unwrap(),
    );
    (
        answer.status().as_u16(),
        serde_json::from_slice(answer.body()).unwrap(),
    )
}

/// A change, and the end of its operation.
fn change(cloud: &Gce, method: Method, path: &str, body: Value) -> u16 {
    let status = ask(cloud, method, path, body).0;
    cloud.settle();
    status
}

#[test]
fn an_operation_takes_a_while() {
    let cloud = Gce::default();
    let firewall = json!({"name": "a", "network": "x", "allowed": [{"IPProtocol": "tcp"}]});
    let (status, operation) = ask(&cloud, Method::POST, "global/firewalls", firewall.clone());
    assert_eq!((status, &operation["status"]), (200, &json!("PENDING")));
    let wait = format!(
        "global/operations/{}/wait",
        operation["name"].as_str().unwrap()
    );
    assert_eq!(
        ask(&cloud, Method::POST, "global/firewalls", firewall).0,
        409
    );
    assert_eq!(
        ask(&cloud, Method::POST, &wait, Value::Null).1["status"],
        "DONE"
    );
    assert_eq!(
        ask(&cloud, Method::GET, "global/firewalls/a", Value::Null).1["name"],
        "a"
    );
    assert_eq!(cloud.problems(), Vec::<String>::new());
}

#[test]
fn what_is_used_is_not_deleted() {
    let cloud = Gce::default();
    let check = "https://compute.googleapis.com/compute/v1/projects/shop/global/httpHealthChecks/c";
    assert_eq!(
        change(
            &cloud,
            Method::POST,
            "global/httpHealthChecks",
            json!({"name": "c"})
        ),
        200
    );
    let pool = json!({"name": "p", "healthChecks": [check]});
    let pools = format!("regions/{}/targetPools", Gce::REGION);
    assert_eq!(change(&cloud, Method::POST, &pools, pool), 200);
    let (status, error) = ask(
        &cloud,
        Method::DELETE,
        "global/httpHealthChecks/c",
        Value::Null,
    );
    assert_eq!(
        (status, &error["error"]["errors"][0]["reason"]),
        (400, &json!("resourceInUseByAnotherResource"))
    );
    assert_eq!(
        change(&cloud, Method::DELETE, &format!("{pools}/p"), Value::Null),
        200
    );
    assert_eq!(
        change(
            &cloud,
            Method::DELETE,
            "global/httpHealthChecks/c",
            Value::Null
        ),
        200
    );
    assert_eq!(
        ask(
            &cloud,
            Method::DELETE,
            "global/httpHealthChecks/c",
            Value::Null
        )
        .0,
        404
    );
}

#[test]
fn an_unknown_field_is_remembered_as_a_problem() {
    let cloud = Gce::default();
    assert_eq!(
        change(
            &cloud,
            Method::POST,
            "global/firewalls",
            json!({"name": "a", "sourceRange": []})
        ),
        400
    );
    assert_eq!(
        cloud.problems(),
        ["compute.firewalls.insert: sourceRange does not exist"]
    );
}

#[test]
fn lists_come_in_pages() {
    let cloud = Gce::default();
    (0..250).for_each(|number| cloud.add_instance("z", &format!("n{number:03}"), &[]));
    let (mut token, mut names) = (String::new(), Vec::new());
    loop {
        let query = if token.is_empty() {
            String::new()
        } else {
            format!("&pageToken={token}")
        };
        let page = ask(
            &cloud,
            Method::GET,
            &format!("zones/z/instances?maxResults=500{query}"),
            Value::Null,
        )
        .1;
        names.extend(
            page["items"]
                .as_array()
                .unwrap()
                .iter()
                .map(|item| item["name"].clone()),
        );
        match page["nextPageToken"].as_str() {
            Some(next) => next.clone_into(&mut token),
            None => break,
        }
    }
    assert_eq!(names.len(), 250);
}
