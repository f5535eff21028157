use std::sync::atomic::{AtomicU32, Ordering};

use futures_util::future::BoxFuture;
use http::{Method, Request};
use prometheus_client::registry::Registry;
use secrecy::SecretString;
use serde_json::json;

use super::*;
use crate::ProviderError;
use crate::cloud::faults::{Faulty, no_waits};
use crate::cloud::{Header, Token, TokenSource, Tokens};
use crate::conformance::{Fault, FaultPlan};

const URL: &str = "http://cloud.test/things";

/// Counts what it hands out, as `token-1`, `token-2`, ...
#[derive(Default)]
struct Numbers(AtomicU32);

impl TokenSource for Numbers {
    fn fetch(&self) -> BoxFuture<'_, Result<Token, CallError>> {
        let number = self.0.fetch_add(1, Ordering::Relaxed) + 1;
        let secret = SecretString::from(format!("token-{number}"));
        Box::pin(async move {
            Ok(Token {
                secret,
                lifetime: Duration::from_secs(3600),
            })
        })
    }
}

/// Errors as `{"code": ..., "message": ...}`; `Busy` is throttling.
const DIALECT: Dialect = Dialect {
    read: |body| {
        let said: serde_json::Value = serde_json::from_slice(body).ok()?;
        Some((
            said["code"].as_str()?.to_owned(),
            said["message"].as_str()?.to_owned(),
        ))
    },
    is_throttled: |_, code| code == "Busy",
};

fn client(transport: impl Transport + 'static) -> (Client, Arc<FaultPlan>) {
    let plan = Arc::new(FaultPlan::default());
    let setup = Setup {
        provider: "test",
        transport: Arc::new(Faulty::over(Arc::new(transport), Arc::clone(&plan))),
        authorize: Arc::new(Tokens::new(Numbers::default(), Header::Bearer)),
        dialect: DIALECT,
        pace: no_waits().0,
        metrics: CallMetrics::default(),
    };
    (Client::new(setup), plan)
}

fn answer(status: u16, body: impl Into<Bytes>) -> Result<Response<Bytes>, TransportError> {
    Ok(Response::builder()
        .status(status)
        .body(body.into())
        .unwrap())
}

fn working(_: Request<Bytes>) -> Result<Response<Bytes>, TransportError> {
    answer(200, r#"{"name": "a"}"#)
}

#[tokio::test]
async fn reads_get_over_every_fault_and_writes_only_over_those_that_did_nothing() {
    let (client, plan) = client(working);
    for fault in Fault::ALL.into_iter().filter(|fault| !fault.is_crash()) {
        for (method, safe) in [(Method::GET, true), (Method::POST, false)] {
            plan.set(Some((0, fault)));
            let result = client
                .send(Call::new("things.do", method.clone(), URL))
                .await;
            let refused = matches!(fault, Fault::Unreachable | Fault::TooMany);
            assert_eq!(result.is_ok(), safe || refused, "{method} {fault:?}");
            assert_eq!(
                plan.calls().len(),
                if safe || refused { 2 } else { 1 },
                "{method} {fault:?}"
            );
        }
        // One that may be repeated is.
        plan.set(Some((0, fault)));
        assert!(
            client
                .send(Call::put("things.set", URL).repeatable())
                .await
                .is_ok(),
            "{fault:?}"
        );
    }
}

#[tokio::test]
async fn an_outage_ends_the_tries() {
    let (client, plan) = client(|_| Err(TransportError::Lost("reset".to_owned())));
    let error = client.send(Call::get("things.get", URL)).await.unwrap_err();
    assert_eq!(error.to_string(), "things.get: no answer: reset");
    assert_eq!(plan.calls().len(), 5);
}

#[tokio::test]
async fn errors_are_in_the_vendors_words() {
    let (client, _) = client(|_| {
        answer(
            400,
            r#"{"code": "BadName", "message": "the name is too long"}"#,
        )
    });
    let error = client
        .send(Call::post("things.make", URL).json(&json!({})))
        .await
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "things.make: the name is too long (400 BadName)"
    );
    assert!(error.is(400) && error.is_code("BadName") && !error.is_not_found());
    assert_eq!(
        ProviderError::from(error),
        ProviderError::Failed("things.make: the name is too long (400 BadName)".into())
    );
}

#[tokio::test]
async fn what_a_stranger_answers_is_shown_in_short() {
    let (client, _) = client(|_| answer(403, "<html>proxy says no</html>".repeat(100)));
    let error = client
        .send(Call::get("things.get", URL))
        .await
        .unwrap_err()
        .to_string();
    assert!(
        error.starts_with("things.get: <html>proxy says no</html><html>") && error.len() < 400,
        "{error}"
    );
}

#[tokio::test]
async fn throttling_in_the_vendors_way_is_waited_out() {
    let busy = AtomicU32::new(0);
    let (client, plan) = client(move |_| match busy.fetch_add(1, Ordering::Relaxed) {
        0..2 => answer(400, r#"{"code": "Busy", "message": "slower"}"#),
        _ => answer(200, "{}"),
    });
    assert!(client.send(Call::post("things.make", URL)).await.is_ok());
    assert_eq!(plan.calls().len(), 3);
}

#[tokio::test]
async fn a_wait_longer_than_the_client_has_is_the_services() {
    let (client, plan) = client(|_| {
        let answer = Response::builder().status(429).header("retry-after", "120");
        Ok(answer.body(Bytes::from_static(b"slower")).unwrap())
    });
    let error = ProviderError::from(client.send(Call::get("things.get", URL)).await.unwrap_err());
    let ProviderError::RetryAfter { after, .. } = error else {
        panic!("{error:?}")
    };
    assert_eq!((after.as_secs(), plan.calls().len()), (120, 1));
}

#[tokio::test]
async fn a_token_is_fetched_once_and_again_when_it_is_refused() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let notes = Arc::clone(&seen);
    let (client, _) = client(move |request: Request<Bytes>| {
        let token = request.headers()["authorization"]
            .to_str()
            .unwrap()
            .to_owned();
        let status = if token == "Bearer token-1" && notes.lock().unwrap().len() >= 2 {
            401
        } else {
            200
        };
        notes.lock().unwrap().push(token);
        answer(status, "{}")
    });
    for _ in 0..3 {
        assert!(client.send(Call::post("things.make", URL)).await.is_ok());
    }
    let tokens: Vec<String> = seen
        .lock()
        .unwrap()
        .iter()
        .map(|token| token.replace("Bearer token-", ""))
        .collect();
    assert_eq!(tokens, ["1", "1", "1", "2"]);
}

#[tokio::test]
async fn a_token_that_is_never_accepted_is_an_error() {
    let (client, plan) = client(|_| answer(401, "who are you?"));
    assert!(
        client
            .send(Call::get("things.get", URL))
            .await
            .unwrap_err()
            .is(401)
    );
    assert_eq!(plan.calls().len(), 2);
}

#[tokio::test]
async fn calls_are_counted_by_operation_and_answer() {
    let (client, plan) = client(working);
    let mut registry = Registry::default();
    client.setup.metrics.register(&mut registry);
    plan.set(Some((0, Fault::Unreachable)));
    client.send(Call::get("things.get", URL)).await.unwrap();
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
    for line in [
        r#"portico_cloud_requests_total{provider="test",operation="things.get",code="0"} 1"#,
        r#"portico_cloud_requests_total{provider="test",operation="things.get",code="200"} 1"#,
        r#"portico_cloud_request_seconds_count{provider="test",operation="things.get"} 2"#,
    ] {
        assert!(text.contains(line), "{text}");
    }
}

#[test]
fn a_request_as_it_is_built() {
    let call = Call::post("x", URL)
        .query("page token", "a/b=c")
        .query("n", "1")
        .form([("Action", "Do It"), ("x", "~é")]);
    let request = call.request().unwrap();
    assert_eq!(
        request.uri().to_string(),
        "http://cloud.test/things?page%20token=a%2Fb%3Dc&n=1"
    );
    assert_eq!(
        request.body(),
        &Bytes::from_static(b"Action=Do+It&x=~%C3%A9")
    );
}

#[test]
fn secrets_are_not_shown() {
    let mut request = Request::new(Bytes::new());
    Header::Bearer
        .add(&SecretString::from("hush"), &mut request)
        .unwrap();
    assert!(!format!("{request:?}").contains("hush"));
    let error = Header::Bearer
        .add(&SecretString::from("hush\n"), &mut request)
        .unwrap_err();
    assert!(!format!("{error} {error:?}").contains("hush"), "{error:?}");
}
