//! The writes of a plan against a server that answers as each case says.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
};

use super::*;

type Answers = fn(method: &str, path: &str) -> (u16, Value);

/// A server and the requests it has seen, as `METHOD last-part-of-path`.
struct Fake {
    client: Client,
    seen: Arc<Mutex<Vec<String>>>,
}

impl Fake {
    async fn start(answers: Answers) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let seen = Arc::new(Mutex::new(Vec::new()));
        let log = seen.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, answers, log.clone()));
            }
        });
        Self {
            client: Client::try_from(kube::Config::new(url.parse().unwrap())).unwrap(),
            seen,
        }
    }

    async fn apply(&self, plan: Plan, endpoints: EndpointsPlan) -> Applied {
        apply(self.client.clone(), "shop", plan, endpoints).await
    }

    fn seen(&self) -> Vec<String> {
        let mut seen = self.seen.lock().unwrap().clone();
        seen.sort();
        seen
    }
}

async fn serve(stream: TcpStream, answers: Answers, log: Arc<Mutex<Vec<String>>>) {
    let mut stream = BufReader::new(stream);
    while let Some((method, path, body)) = request(&mut stream).await {
        log.lock()
            .unwrap()
            .push(format!("{method} {}", path.rsplit('/').next().unwrap()));
        let (status, answer) = answers(&method, &path);
        let answer = if answer.is_null() {
            body
        } else {
            answer.to_string()
        };
        let head = format!(
            "HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
            answer.len()
        );
        stream
            .write_all(format!("{head}{answer}").as_bytes())
            .await
            .unwrap();
    }
}

async fn request(stream: &mut BufReader<TcpStream>) -> Option<(String, String, String)> {
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        stream
            .read_line(&mut line)
            .await
            .ok()
            .filter(|read| *read > 0)?;
        if line.trim().is_empty() {
            break;
        }
        lines.push(line.trim().to_lowercase());
    }
    let length = lines
        .iter()
        .find_map(|line| line.strip_prefix("content-length: ")?.parse().ok())
        .unwrap_or(0);
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.ok()?;
    let mut first = lines.first()?.split(' ');
    let method = first.next()?.to_uppercase();
    let path = first.next()?.split('?').next()?.to_string();
    Some((method, path, String::from_utf8(body).ok()?))
}

fn slice(name: &str) -> EndpointSlice {
    let meta = match name {
        "" => json!({"generateName": "web-"}),
        name => json!({"name": name, "uid": format!("uid-{name}"), "resourceVersion": "1"}),
    };
    serde_json::from_value(json!({"metadata": meta, "addressType": "IPv4"})).unwrap()
}

fn whole_plan() -> Plan {
    Plan {
        create: vec![slice("")],
        update: vec![slice("u")],
        delete: vec![slice("d")],
    }
}

fn endpoints() -> EndpointsPlan {
    EndpointsPlan::Create(Box::new(
        serde_json::from_value(json!({"metadata": {"name": "web"}})).unwrap(),
    ))
}

fn failure(code: u16, reason: &str) -> (u16, Value) {
    (
        code,
        json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason}),
    )
}

fn echo(method: &str) -> (u16, Value) {
    match method {
        "DELETE" => (
            200,
            json!({"kind": "Status", "apiVersion": "v1", "status": "Success"}),
        ),
        _ => (200, Value::Null),
    }
}

fn names(applied: &Applied) -> Vec<&'static str> {
    let name = |written: &Written<EndpointSlice>| match written {
        Written::Created(_) => "created",
        Written::Updated(_) => "updated",
        Written::Deleted(_) => "deleted",
        Written::Missing(_) => "missing",
    };
    applied.slices.iter().map(name).collect()
}

#[tokio::test]
async fn everything_is_written_in_order() {
    let fake = Fake::start(|method, _| echo(method)).await;
    let applied = fake.apply(whole_plan(), endpoints()).await;
    assert!(applied.error.is_none(), "{:?}", applied.error);
    assert_eq!(names(&applied), ["created", "updated", "deleted"]);
    assert_eq!(applied.endpoints.len(), 1);
    assert_eq!(
        fake.seen(),
        ["DELETE d", "POST endpoints", "POST endpointslices", "PUT u"]
    );
}

#[tokio::test]
async fn nothing_is_deleted_after_a_failure_and_endpoints_are_written_all_the_same() {
    let fake = Fake::start(|method, _| {
        if method == "PUT" {
            failure(409, "Conflict")
        } else {
            echo(method)
        }
    })
    .await;
    let applied = fake.apply(whole_plan(), endpoints()).await;
    assert!(
        applied.error.as_ref().is_some_and(ApplyError::is_conflict),
        "{:?}",
        applied.error
    );
    assert_eq!(
        names(&applied),
        ["created"],
        "what was written is known in spite of the failure"
    );
    assert_eq!(applied.endpoints.len(), 1);
    assert_eq!(
        fake.seen(),
        ["POST endpoints", "POST endpointslices", "PUT u"]
    );
}

#[tokio::test]
async fn objects_that_are_gone_are_known_to_be_gone() {
    let fake = Fake::start(|method, _| {
        if method == "POST" {
            echo(method)
        } else {
            failure(404, "NotFound")
        }
    })
    .await;
    let applied = fake.apply(whole_plan(), EndpointsPlan::Keep).await;
    assert!(applied.error.is_none());
    assert_eq!(names(&applied), ["created", "missing", "deleted"]);
}

#[tokio::test]
async fn a_namespace_on_its_way_out_is_no_error() {
    let fake = Fake::start(|_, _| {
        let (code, mut status) = failure(403, "Forbidden");
        status["details"] = json!({"causes": [{"reason": "NamespaceTerminating"}]});
        (code, status)
    })
    .await;
    let applied = fake
        .apply(
            Plan {
                create: vec![slice("")],
                ..Plan::default()
            },
            endpoints(),
        )
        .await;
    assert!(applied.error.is_none() && applied.slices.is_empty() && applied.endpoints.is_empty());
}

#[tokio::test]
async fn other_refusals_are_errors() {
    let fake = Fake::start(|_, _| failure(403, "Forbidden")).await;
    let applied = fake
        .apply(
            Plan {
                create: vec![slice("")],
                ..Plan::default()
            },
            EndpointsPlan::Keep,
        )
        .await;
    let error = applied.error.unwrap();
    assert!(!error.is_conflict());
    assert_eq!(error.to_string(), "cannot create EndpointSlice web-");
}
