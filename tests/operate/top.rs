//! `portico top`: once as a table, and live on a terminal.

use crate::common::{Client, PATIENCE, Server, Store};
use crate::rig::at;
use serde_json::json;
use std::io::{Read, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

async fn with_objects() -> (Server, Client) {
    let server = Server::start(Store::Embedded, &[]).await;
    let client = server.admin();
    let ports = json!({"ports": [{"port": 80}]});
    client.create_service("web", ports).await.expect(201);
    let slice = json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {"name": "web-1", "labels": {"kubernetes.io/service-name": "web"}},
        "ports": [{"port": 8080}],
        "endpoints": [{"addresses": ["10.244.1.10"], "conditions": {"ready": true}}, {"addresses": ["10.244.1.11"], "conditions": {"ready": false}}],
    });
    client
        .post(
            "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices",
            &slice,
        )
        .await
        .expect(201);
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}});
    client.post("/api/v1/nodes", &node).await.expect(201);
    (server, client)
}

#[tokio::test]
async fn once_is_a_table_or_for_programs() {
    let (server, _) = with_objects().await;
    let table = at(&server, &["top", "--once"]).await;
    let line = table
        .expect(0)
        .lines()
        .find(|line| line.starts_with("default/web "))
        .unwrap();
    assert!(
        line.contains("80/tcp") && line.contains("1/2"),
        "{}",
        table.out
    );
    assert!(table.out.contains("does not report"), "{}", table.out);
    let json = at(&server, &["top", "-o", "json", "--filter", "web"])
        .await
        .json(0);
    assert_eq!(
        (&json["services"][0]["name"], &json["services"][0]["ready"]),
        (&"default/web".into(), &1.into())
    );
    assert_eq!(
        (
            json["services"].as_array().unwrap().len(),
            &json["nodes"][0]["name"]
        ),
        (1, &"n1".into())
    );
    let nowhere = at(&server, &["top"]).await;
    assert!(
        nowhere.code == 1 && nowhere.err.contains("this is no terminal: use --once"),
        "{}",
        nowhere.err
    );
}

/// The command on a terminal of its own.
struct OnTerminal {
    child: Child,
    keys: ChildStdin,
    shown: Arc<Mutex<String>>,
}

impl OnTerminal {
    fn start(command: &str) -> Self {
        let line = format!("stty rows 40 cols 150 && exec {command}");
        let mut child = Command::new("script")
            .args(["-qfec", &line, "/dev/null"])
            .env("TERM", "xterm-256color")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (keys, mut out) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let shown = Arc::new(Mutex::new(String::new()));
        let told = Arc::clone(&shown);
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = out.read(&mut bytes) {
                told.lock()
                    .unwrap()
                    .push_str(&String::from_utf8_lossy(&bytes[..count]));
            }
        });
        Self { child, keys, shown }
    }

    fn wait_for(&self, text: &str) {
        let deadline = Instant::now() + PATIENCE;
        while !self.shown.lock().unwrap().contains(text) {
            assert!(
                Instant::now() < deadline,
                "{text:?} is not shown:\n{:?}",
                self.shown.lock().unwrap()
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
        self.keys.flush().unwrap();
    }
}

impl Drop for OnTerminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_terminal_follows_what_happens() {
    let (server, client) = with_objects().await;
    let kubeconfig = server.kubeconfig().display().to_string();
    let mut terminal = OnTerminal::start(&format!(
        "{} top --kubeconfig {kubeconfig}",
        env!("CARGO_BIN_EXE_portico")
    ));
    terminal.wait_for("default/web");
    terminal.wait_for("CONDITIONS");
    client
        .create_service("zebra", json!({"ports": [{"port": 81}]}))
        .await
        .expect(201);
    terminal.wait_for("default/zebra");
    // Only what is new on the screen is drawn: a word that was not there comes as a whole.
    terminal.press("/zeb\rs");
    terminal.wait_for("health");
    terminal.press("q");
    let deadline = Instant::now() + PATIENCE;
    let ended = loop {
        if let Some(ended) = terminal.child.try_wait().unwrap() {
            break ended;
        }
        assert!(Instant::now() < deadline, "q does not end it");
        std::thread::sleep(Duration::from_millis(20));
    };
    assert!(ended.success(), "{ended}");
    // The terminal is as it was.
    terminal.wait_for("\u{1b}[?1049l");
}
