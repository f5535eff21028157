use super::*;
use crate::config::ApiAccess;
use futures_util::{StreamExt, stream};
use http_body_util::StreamBody;
use hyper::body::Frame;
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::sync::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time::timeout;

const PATIENCE: Duration = Duration::from_secs(20);

/// What the fake API server does with a request.
enum Reply {
    Answer(u16, Value),
    /// Events, and then the end of the stream.
    Stream(Vec<Value>),
    /// Events, half an event, and a connection that breaks.
    Broken(Vec<Value>),
    /// Events, and then silence.
    Open(Vec<Value>),
}

/// Answers requests one after the other from a script; the last reply stays.
struct Server {
    url: String,
    requests: mpsc::UnboundedReceiver<String>,
}

impl Server {
    async fn start(script: Vec<Reply>) -> Self {
        Self::start_as(&[("one", "9000")], script).await
    }

    /// With the identity and revision that the server reports each time; the last stays.
    async fn start_as(identities: &[(&str, &str)], script: Vec<Reply>) -> Self {
        let identity = |(uid, revision): &(&str, &str)| json!({"metadata": {"resourceVersion": revision}, "items": [{"metadata": {"uid": uid}}]});
        let identities = Arc::new(Mutex::new(
            identities.iter().map(identity).collect::<VecDeque<Value>>(),
        ));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (sender, requests) = mpsc::unbounded_channel();
        let script = Arc::new(Mutex::new(VecDeque::from(script)));
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                tokio::spawn(serve(
                    stream,
                    Arc::clone(&script),
                    Arc::clone(&identities),
                    sender.clone(),
                ));
            }
        });
        Self { url, requests }
    }

    async fn request(&mut self) -> String {
        timeout(PATIENCE, self.requests.recv())
            .await
            .unwrap()
            .unwrap()
    }

    fn follow(&self, kind: Kind) -> mpsc::UnboundedReceiver<Seen> {
        let (sender, seen) = mpsc::unbounded_channel();
        let access = ApiAccess {
            server: Some(self.url.clone()),
            kubeconfig: None,
        };
        let (told, mut news) = mpsc::channel(1);
        let listener = Listener {
            news: told,
            answered: Arc::default(),
        };
        tokio::spawn(async move {
            let client = client::client(&access);
            follow(client, kind, "node1".into(), listener).await
        });
        tokio::spawn(async move {
            while let Some(news) = news.recv().await {
                news.into_iter()
                    .filter_map(Seen::of)
                    .for_each(|seen| _ = sender.send(seen));
            }
        });
        seen
    }
}

async fn serve(
    mut stream: TcpStream,
    script: Arc<Mutex<VecDeque<Reply>>>,
    identities: Arc<Mutex<VecDeque<Value>>>,
    requests: mpsc::UnboundedSender<String>,
) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    let head = String::from_utf8(head).unwrap();
    let path = head.split(' ').nth(1).unwrap();
    let reply = if path == list_of_one("default", "kubernetes") {
        let mut identities = identities.lock().unwrap();
        let next = if identities.len() > 1 {
            identities.pop_front()
        } else {
            identities.front().cloned()
        };
        Reply::Answer(200, next.unwrap())
    } else {
        let _ = requests.send(path.to_owned());
        script
            .lock()
            .unwrap()
            .pop_front()
            .unwrap_or(Reply::Open(Vec::new()))
    };
    let (status, body, chunked) = match &reply {
        Reply::Answer(status, body) => (*status, body.to_string(), false),
        Reply::Stream(events) | Reply::Broken(events) | Reply::Open(events) => (
            200,
            events.iter().map(|event| format!("{event}\n")).collect(),
            true,
        ),
    };
    let length = if chunked {
        "transfer-encoding: chunked".to_owned()
    } else {
        format!("content-length: {}", body.len())
    };
    let head = format!(
        "HTTP/1.1 {status} X\r\ncontent-type: application/json\r\nconnection: \
         close\r\n{length}\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    if !chunked {
        return stream.write_all(body.as_bytes()).await.unwrap();
    }
    let chunk = |text: &str| format!("{:x}\r\n{text}\r\n", text.len());
    if !body.is_empty() {
        stream.write_all(chunk(&body).as_bytes()).await.unwrap();
    }
    match reply {
        Reply::Stream(_) => stream.write_all(b"0\r\n\r\n").await.unwrap(),
        Reply::Broken(_) => stream
            .write_all(chunk("{\"type\":\"ADDED\",\"obj").as_bytes())
            .await
            .unwrap(),
        _ => std::future::pending().await,
    }
}

#[derive(Debug, PartialEq)]
enum Seen {
    Apply(String, String),
    Delete(String),
    Listed(Vec<String>),
}

impl Seen {
    fn of(news: News) -> Option<Self> {
        match news {
            News::Apply(object) => {
                let metadata = object.metadata();
                Some(Self::Apply(
                    metadata.name.clone(),
                    metadata.resource_version.clone(),
                ))
            }
            News::Delete(name) => Some(Self::Delete(name.name)),
            News::Listed(_, names) => {
                let mut names: Vec<String> = names.into_iter().map(|name| name.name).collect();
                names.sort();
                Some(Self::Listed(names))
            }
            News::Reached(..) | News::Denied(_) => None,
        }
    }
}

async fn seen(receiver: &mut mpsc::UnboundedReceiver<Seen>, count: usize) -> Vec<Seen> {
    let mut all = Vec::new();
    while all.len() < count {
        all.push(timeout(PATIENCE, receiver.recv()).await.unwrap().unwrap());
    }
    all
}

fn service(name: &str, revision: &str) -> Value {
    json!({"metadata": {"name": name, "namespace": "default", "resourceVersion": revision, "managedFields": [{"a": 1}]},
           "spec": {"ports": [{"port": 80}]}})
}

fn page(items: &[Value], revision: &str, next: &str) -> Reply {
    Reply::Answer(
        200,
        json!({"metadata": {"resourceVersion": revision, "continue": next}, "items": items}),
    )
}

fn event(what: &str, object: Value) -> Value {
    json!({"type": what, "object": object})
}

fn apply(name: &str, revision: &str) -> Seen {
    Seen::Apply(name.to_owned(), revision.to_owned())
}

fn listed(names: &[&str]) -> Seen {
    Seen::Listed(names.iter().map(|name| (*name).to_owned()).collect())
}

#[tokio::test]
async fn lists_page_by_page_and_watches_from_there() {
    let added = vec![
        event("ADDED", service("c", "9")),
        event("DELETED", service("a", "10")),
    ];
    let mut server = Server::start(vec![
        page(&[service("a", "1")], "7", "more=&"),
        page(&[service("b", "2")], "7", ""),
        Reply::Open(added),
    ])
    .await;
    let mut receiver = server.follow(Kind::Service);
    let first = server.request().await;
    assert!(
        first.starts_with(
            "/api/v1/services?labelSelector=%21service.kubernetes.io%2Fservice-proxy-name"
        ),
        "{first}"
    );
    assert!(
        first.contains("fieldSelector=spec.clusterIP%21%3DNone") && first.contains("limit=500"),
        "{first}"
    );
    assert!(server.request().await.contains("continue=more%3D%26"));
    let watch = server.request().await;
    assert!(
        watch.contains("watch=1")
            && watch.contains("resourceVersion=7")
            && watch.contains("allowWatchBookmarks"),
        "{watch}"
    );
    let expected = [
        apply("a", "1"),
        apply("b", "2"),
        listed(&["a", "b"]),
        apply("c", "9"),
        Seen::Delete("a".to_owned()),
    ];
    assert_eq!(seen(&mut receiver, 5).await, expected);
}

#[tokio::test]
async fn resumes_from_the_last_revision_after_a_broken_connection() {
    let mut server = Server::start(vec![
        page(&[], "7", ""),
        Reply::Broken(vec![event("ADDED", service("a", "8"))]),
        Reply::Stream(vec![event(
            "BOOKMARK",
            json!({"metadata": {"resourceVersion": "20"}}),
        )]),
        Reply::Open(vec![event("MODIFIED", service("a", "21"))]),
    ])
    .await;
    let mut receiver = server.follow(Kind::Service);
    server.request().await;
    assert!(server.request().await.contains("resourceVersion=7&"));
    assert!(
        server.request().await.contains("resourceVersion=8&"),
        "half an event does not count"
    );
    assert!(
        server.request().await.contains("resourceVersion=20&"),
        "a bookmark counts"
    );
    assert_eq!(
        seen(&mut receiver, 3).await,
        [listed(&[]), apply("a", "8"), apply("a", "21")]
    );
}

#[tokio::test]
async fn a_server_with_another_history_is_listed() {
    let (broken, same) = (|| Reply::Broken(Vec::new()), ("one", "1000"));
    let refused = Reply::Answer(504, json!({"message": "too large"}));
    let cases = [
        ("an older state", broken(), [same, ("one", "30")]),
        (
            "another store that is farther",
            broken(),
            [same, ("two", "5000")],
        ),
        ("it says so itself", refused, [same, same]),
    ];
    for (case, refusal, identities) in cases {
        let script = vec![
            page(&[service("a", "1000")], "1000", ""),
            refusal,
            page(&[service("b", "30")], "30", ""),
            Reply::Open(Vec::new()),
        ];
        let mut server = Server::start_as(&identities, script).await;
        let mut receiver = server.follow(Kind::Service);
        let expected = [
            apply("a", "1000"),
            listed(&["a"]),
            apply("b", "30"),
            listed(&["b"]),
        ];
        assert_eq!(seen(&mut receiver, 4).await, expected, "{case}");
        for _ in 0..3 {
            server.request().await;
        }
        assert!(
            server.request().await.contains("resourceVersion=30&"),
            "{case}"
        );
    }
}

#[tokio::test]
async fn lists_again_when_history_is_gone() {
    let gone = json!({"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"});
    for refusal in [
        Reply::Answer(410, gone.clone()),
        Reply::Stream(vec![event("ERROR", gone)]),
    ] {
        let mut server = Server::start(vec![
            page(&[service("a", "1"), service("b", "2")], "7", ""),
            refusal,
            page(&[service("b", "30")], "31", ""),
            Reply::Open(Vec::new()),
        ])
        .await;
        let mut receiver = server.follow(Kind::Service);
        let expected = [
            apply("a", "1"),
            apply("b", "2"),
            listed(&["a", "b"]),
            apply("b", "30"),
            listed(&["b"]),
        ];
        assert_eq!(seen(&mut receiver, 5).await, expected);
        for _ in 0..3 {
            server.request().await;
        }
        assert!(server.request().await.contains("resourceVersion=31&"));
    }
}

#[tokio::test]
async fn one_bad_object_does_not_hide_the_others() {
    let bad = json!({"metadata": {"name": "bad", "namespace": "default", "resourceVersion": "5"}, "spec": {"ports": "all"}});
    let mut server = Server::start(vec![
        page(&[bad.clone(), service("a", "1")], "7", ""),
        Reply::Stream(vec![
            event("MODIFIED", bad),
            event("MODIFIED", service("a", "8")),
        ]),
        Reply::Open(Vec::new()),
    ])
    .await;
    let mut receiver = server.follow(Kind::Service);
    // It is named, so that what is known of it stays.
    assert_eq!(
        seen(&mut receiver, 3).await,
        [apply("a", "1"), listed(&["a", "bad"]), apply("a", "8")]
    );
    server.request().await;
    server.request().await;
    assert!(server.request().await.contains("resourceVersion=8&"));
}

#[tokio::test]
async fn goes_on_without_what_the_server_does_not_have() {
    for (status, kind) in [(404, Kind::Cidr), (403, Kind::Cidr), (403, Kind::Pod)] {
        let mut server = Server::start(vec![Reply::Answer(status, json!({"message": "no"}))]).await;
        let mut receiver = server.follow(kind);
        assert_eq!(seen(&mut receiver, 1).await, [listed(&[])]);
        let own = "/api/v1/pods?fieldSelector=spec.nodeName%3Dnode1&";
        let asked = server.request().await;
        assert_eq!(asked.starts_with(own), kind == Kind::Pod, "{asked}");
    }
}

/// As while rights are written anew.
#[tokio::test]
async fn what_is_known_stays_when_it_is_refused_later() {
    for status in [404, 403] {
        let refused = || Reply::Answer(status, json!({"message": "no"}));
        let script = vec![
            page(&[service("a", "1")], "7", ""),
            refused(),
            refused(),
            page(&[service("b", "8")], "9", ""),
        ];
        let mut server = Server::start(script).await;
        let mut receiver = server.follow(Kind::Cidr);
        assert_eq!(
            seen(&mut receiver, 4).await,
            [
                apply("a", "1"),
                listed(&["a"]),
                apply("b", "8"),
                listed(&["b"])
            ]
        );
        for _ in 0..4 {
            server.request().await;
        }
        assert!(server.request().await.contains("resourceVersion=9&"));
    }
}

#[tokio::test]
async fn tries_again_when_the_server_fails() {
    let server = Server::start(vec![
        Reply::Answer(500, json!({"message": "no"})),
        Reply::Answer(200, json!("what?")),
        page(&[service("a", "1")], "7", "next"),
        Reply::Answer(503, json!({})),
        page(&[service("a", "1")], "7", ""),
    ])
    .await;
    let mut receiver = server.follow(Kind::Service);
    assert_eq!(
        seen(&mut receiver, 3).await,
        [apply("a", "1"), apply("a", "1"), listed(&["a"])]
    );
}

/// A watcher whose news are not read yet, and a stream of these parts, which is then silent.
fn silent_after(
    parts: &[&'static str],
) -> (
    Watcher,
    EventStream<impl Body<Data = Bytes, Error = std::io::Error> + Unpin + use<>>,
    mpsc::Receiver<Vec<News>>,
) {
    let (told, news) = mpsc::channel(8);
    let watcher = Watcher {
        client: client::client(&ApiAccess::default()),
        kind: Kind::Service,
        url: String::new(),
        revision: Some("7".to_owned()),
        listed: true,
        lost: false,
        identity: String::new(),
        listener: Listener {
            news: told,
            answered: Arc::default(),
        },
    };
    let frames: Vec<_> = parts
        .iter()
        .map(|part| Ok::<_, std::io::Error>(Frame::data(Bytes::from_static(part.as_bytes()))))
        .collect();
    let body = StreamBody::new(stream::iter(frames).chain(stream::pending()));
    (watcher, EventStream::new(Kind::Service, body), news)
}

#[tokio::test(start_paused = true)]
async fn a_server_that_does_not_end_a_watch_in_time_is_dead() {
    let bookmark =
        "{\"type\":\"BOOKMARK\",\"object\":{\"metadata\":{\"resourceVersion\":\"20\"}}}\n";
    for (parts, revision) in [(&[][..], "7"), (&[bookmark], "20")] {
        let (mut watcher, events, _news) = silent_after(parts);
        let ends_by = Instant::now() + OVERTIME;
        let result = watcher.follow_events(events, ends_by).await;
        assert!(matches!(result, Err(RequestError::Timeout)), "{result:?}");
        assert_eq!(watcher.revision.as_deref(), Some(revision), "to go on from");
        assert!(Instant::now() >= ends_by, "however silent it is before");
    }
}

#[tokio::test]
async fn what_came_before_an_error_counts() {
    let added = "{\"type\":\"ADDED\",\"object\":{\"metadata\":{\"name\":\"a\",\"resourceVersion\":\"8\"}}}\n\
                 {\"type\":\"ERROR\",\"object\":{\"code\":410,\"message\":\"too old\"}}\n";
    let (mut watcher, events, mut news) = silent_after(&[added]);
    let result = watcher
        .follow_events(events, Instant::now() + OVERTIME)
        .await;
    assert!(result.is_err_and(|error| error.is_gone()));
    assert_eq!(watcher.revision.as_deref(), Some("8"));
    let told = news.try_recv().unwrap();
    assert!(
        matches!(&told[..], [News::Apply(_), News::Reached(_, 8)]),
        "{told:?}"
    );
}

#[tokio::test]
async fn a_null_list_is_empty() {
    let server = Server::start(vec![Reply::Answer(
        200,
        json!({"metadata": {"resourceVersion": "1"}, "items": null}),
    )])
    .await;
    assert_eq!(
        seen(&mut server.follow(Kind::Slice), 1).await,
        [listed(&[])]
    );
}
