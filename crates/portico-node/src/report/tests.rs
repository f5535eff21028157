//! Reports as an API server gets them.

use super::*;
use crate::config::ApiAccess;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

/// Requests as method, last part of the path, and body.
type Requests = mpsc::UnboundedReceiver<(String, String, Value)>;

/// A server that answers by the method and the last part of the path.
async fn serve(answer: fn(&str, &str, usize) -> (u16, Value)) -> (Client, Requests) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (sender, requests) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        let mut count = 0;
        while let Ok((stream, _)) = listener.accept().await {
            let mut stream = BufReader::new(stream);
            while let Some((method, path, body)) = request(&mut stream).await {
                let name = path.rsplit('/').next().unwrap().to_owned();
                let (code, answer) = if path == NODES {
                    three_nodes()
                } else {
                    let answer = answer(&method, &name, count);
                    count += 1;
                    let _ = sender.send((method, name, body));
                    answer
                };
                let answer = answer.to_string();
                let head = format!(
                    "HTTP/1.1 {code} X\r\ncontent-length: {}\r\n\r\n",
                    answer.len()
                );
                stream
                    .write_all(format!("{head}{answer}").as_bytes())
                    .await
                    .unwrap();
            }
        }
    });
    let access = ApiAccess {
        server: Some(url),
        kubeconfig: None,
    };
    (client::client(&access), requests)
}

/// The answer to a list of one of them.
fn three_nodes() -> (u16, Value) {
    let list = json!({"items": [{}], "metadata": {"continue": "x", "remainingItemCount": 2}});
    (200, list)
}

async fn request(stream: &mut BufReader<TcpStream>) -> Option<(String, String, Value)> {
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
        lines.push(line);
    }
    let length = lines.iter().find_map(|line| {
        line.to_lowercase()
            .strip_prefix("content-length: ")?
            .trim()
            .parse()
            .ok()
    });
    let mut body = vec![0; length.unwrap_or(0)];
    stream.read_exact(&mut body).await.ok()?;
    let mut first = lines.first()?.split(' ');
    let (method, path) = (first.next()?.to_owned(), first.next()?.to_owned());
    Some((
        method,
        path,
        serde_json::from_slice(&body).unwrap_or_default(),
    ))
}

struct Rig {
    installed: watch::Sender<Option<Installed>>,
    announcing: watch::Sender<Option<Announcing>>,
    requests: Requests,
}

impl Rig {
    async fn start(answer: fn(&str, &str, usize) -> (u16, Value)) -> Self {
        let (client, requests) = serve(answer).await;
        let (installed, receiver) = watch::channel(None);
        let (announcing, announced) = watch::channel(None);
        let about = About {
            mode: "nftables",
            healthz_port: Some(10256),
        };
        let recent = Recent::default();
        recent.saw(Duration::from_micros(1500));
        tokio::spawn(send(
            client,
            "node1".into(),
            about,
            receiver,
            announced,
            recent,
            AlignedTimer::by_chance(),
        ));
        Self {
            installed,
            announcing,
            requests,
        }
    }

    fn reach(&self, services: u64, slices: u64) {
        self.installed.send_replace(Some(Installed {
            services,
            slices,
            ..Installed::default()
        }));
    }

    async fn request(&mut self) -> (String, String, Value) {
        let next = tokio::time::timeout(Duration::from_secs(20), self.requests.recv());
        next.await.expect("a request in time").unwrap()
    }

    async fn report(&mut self) -> NodeReport {
        let (method, name, body) = self.request().await;
        assert_eq!(
            (method.as_str(), name.as_str()),
            ("PATCH", "portico-node-node1")
        );
        let text = body
            .pointer("/metadata/annotations/portico.dev~1report")
            .unwrap()
            .as_str()
            .unwrap();
        serde_json::from_str(text).unwrap()
    }
}

#[tokio::test]
async fn a_change_is_told_with_what_changed_silently() {
    let mut rig = Rig::start(|_, _, _| (200, json!({}))).await;
    rig.reach(5, 6);
    let first = rig.report().await;
    assert_eq!(
        (
            first.services.as_str(),
            first.slices.as_str(),
            first.healthz_port
        ),
        ("5", "6", Some(10256))
    );
    assert_eq!(first.mode, "nftables");
    assert_eq!(first.programming.unwrap().last_micros, 1500);
    rig.reach(5, 7);
    rig.announcing.send_replace(Some(Announcing {
        members: vec!["node1".into()],
        ..Announcing::default()
    }));
    let second = rig.report().await;
    assert_eq!(
        (second.slices.as_str(), second.announcing.unwrap().members),
        ("7", vec!["node1".to_owned()])
    );
    rig.reach(9, 10);
    assert_eq!(rig.report().await.services, "9");
}

#[tokio::test]
async fn many_changes_are_few_reports() {
    let mut rig = Rig::start(|_, _, _| (200, json!({}))).await;
    rig.reach(1, 1);
    rig.report().await;
    let began = std::time::Instant::now();
    for version in 2..=500 {
        rig.reach(version, 1);
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    while rig.report().await.services != "500" {}
    let most = began.elapsed().as_millis() / 500 + 2;
    assert!(rig.requests.is_empty() && most < 20, "{most}");
}

#[tokio::test]
async fn a_lease_that_is_not_there_is_made_with_its_node_as_the_owner() {
    let mut rig = Rig::start(|method, name, count| match (method, name) {
        ("PATCH", _) if count == 0 => (404, json!({"message": "no such lease"})),
        ("GET", "node1") => (200, json!({"metadata": {"uid": "u1"}})),
        _ => (200, json!({})),
    })
    .await;
    rig.reach(5, 6);
    assert_eq!(rig.request().await.0, "PATCH");
    assert_eq!(rig.request().await.0, "GET");
    let (method, name, lease) = rig.request().await;
    assert_eq!((method.as_str(), name.as_str()), ("POST", "leases"));
    assert_eq!(lease["metadata"]["name"], "portico-node-node1");
    assert_eq!(lease["metadata"]["ownerReferences"][0]["uid"], "u1");
    assert_eq!(lease["spec"]["leaseDurationSeconds"], 3);
}

#[tokio::test]
async fn a_server_that_does_not_let_us_is_not_asked_again_soon() {
    let mut rig = Rig::start(|_, _, _| (403, json!({"message": "no"}))).await;
    rig.reach(5, 6);
    rig.request().await;
    rig.reach(7, 8);
    tokio::time::sleep(Duration::from_millis(1500)).await;
    assert!(rig.requests.try_recv().is_err());
}

#[tokio::test]
async fn a_small_cluster_is_told_often_that_a_node_lives() {
    let mut rig = Rig::start(|_, _, _| (200, json!({}))).await;
    rig.reach(5, 6);
    rig.report().await;
    let began = std::time::Instant::now();
    for _ in 0..3 {
        assert_eq!(rig.report().await.services, "5", "nothing changed");
    }
    assert!(began.elapsed() < Duration::from_secs(20), "{began:?}");
}
