//! A real browser (Debian's chromium), driven through chromedriver by the WebDriver protocol.

use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(30);
/// The name of an element in the protocol.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";
/// As root and without a display; and it talks to nobody but the page.
const FLAGS: [&str; 9] = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
];

pub(crate) struct Browser {
    driver: Child,
    port: u16,
    session: String,
    _profile: tempfile::TempDir,
}

impl Browser {
    pub(crate) fn start() -> Self {
        let mut driver = Command::new("chromedriver")
            .arg("--port=0")
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn();
        let driver_ref = driver
            .as_mut()
            .expect("chromedriver is installed: make deps");
        let lines = BufReader::new(driver_ref.stdout.take().unwrap()).lines();
        let port = lines.map_while(Result::ok).find_map(|line| {
            line.strip_suffix('.')?
                .split("on port ")
                .nth(1)?
                .parse()
                .ok()
        });
        let profile = tempfile::tempdir().unwrap();
        let mut browser = Self {
            driver: driver.unwrap(),
            port: port.expect("chromedriver says where it listens"),
            session: String::new(),
            _profile: profile,
        };
        let profile = format!("--user-data-dir={}", browser._profile.path().display());
        let flags: Vec<&str> = FLAGS.into_iter().chain([profile.as_str()]).collect();
        let options = json!({"binary": "/usr/bin/chromium", "args": flags});
        let wanted = json!({"capabilities": {"alwaysMatch": {"browserName": "chrome", "goog:chromeOptions": options}}});
        let made = browser.call("POST", "/session", Some(wanted));
        browser.session = format!(
            "/session/{}",
            made["sessionId"].as_str().expect("a session")
        );
        browser
    }

    pub(crate) fn open(&self, address: &str) {
        self.command("/url", json!({"url": address}));
    }

    pub(crate) fn resize(&self, width: u32, height: u32) {
        self.command("/window/rect", json!({"width": width, "height": height}));
    }

    /// Light or dark, as the system of the visitor is.
    pub(crate) fn prefer(&self, scheme: &str) {
        let features = json!([{"name": "prefers-color-scheme", "value": scheme}]);
        let call = json!({"cmd": "Emulation.setEmulatedMedia", "params": {"features": features}});
        self.command("/goog/cdp/execute", call);
    }

    /// What a script returns.
    pub(crate) fn script(&self, text: &str) -> Value {
        self.command("/execute/sync", json!({"script": text, "args": []}))
    }

    /// Waits until a script returns something true, and gives it.
    pub(crate) fn until(&self, what: &str, script: &str) -> Value {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let found = self.script(script);
            if !matches!(found, Value::Null | Value::Bool(false)) && found != "" {
                return found;
            }
            assert!(
                Instant::now() < deadline,
                "{what}: never; the page says:\n{}",
                self.script("return document.body.innerText")
            );
        }
    }

    fn element(&self, selector: &str) -> String {
        let found = self.command(
            "/element",
            json!({"using": "css selector", "value": selector}),
        );
        found[ELEMENT]
            .as_str()
            .unwrap_or_else(|| panic!("there is no {selector}"))
            .to_owned()
    }

    pub(crate) fn type_into(&self, selector: &str, text: &str) {
        let element = self.element(selector);
        self.command(&format!("/element/{element}/clear"), json!({}));
        self.command(&format!("/element/{element}/value"), json!({"text": text}));
    }

    /// Presses keys where the focus is; `\u{e004}` is the tabulator, `\u{e007}` Enter.
    pub(crate) fn press(&self, keys: &str) {
        let presses = keys.chars().flat_map(|key| {
            [
                json!({"type": "keyDown", "value": key}),
                json!({"type": "keyUp", "value": key}),
            ]
        });
        let presses: Vec<Value> = presses.collect();
        self.command(
            "/actions",
            json!({"actions": [{"type": "key", "id": "keyboard", "actions": presses}]}),
        );
    }

    /// What a screen reader says of an element: its role and its name.
    pub(crate) fn spoken(&self, selector: &str) -> (String, String) {
        let element = self.element(selector);
        let ask = |what| {
            let answer = self.call(
                "GET",
                &format!("{}/element/{element}/{what}", self.session),
                None,
            );
            answer.as_str().unwrap_or_default().to_owned()
        };
        (ask("computedrole"), ask("computedlabel"))
    }

    pub(crate) fn screenshot(&self, to: &Path) {
        use base64::Engine;
        let picture = self.call("GET", &format!("{}/screenshot", self.session), None);
        let bytes = base64::engine::general_purpose::STANDARD
            .decode(picture.as_str().unwrap())
            .unwrap();
        std::fs::write(to, bytes).unwrap();
    }

    fn command(&self, path: &str, body: Value) -> Value {
        self.call("POST", &format!("{}{path}", self.session), Some(body))
    }

    /// One request; its value.
    fn call(&self, method: &str, path: &str, body: Option<Value>) -> Value {
        let body = body.map(|body| body.to_string()).unwrap_or_default();
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost:{}\r\nConnection: \
             close\r\nContent-Length: {}\r\n\r\n",
            self.port,
            body.len()
        );
        stream.write_all((head + &body).as_bytes()).unwrap();
        let (status, body) = answer(BufReader::new(stream));
        let value: Value = serde_json::from_slice(&body).unwrap();
        assert!(status.contains(" 200 "), "{method} {path}: {value}");
        value["value"].clone()
    }
}

/// The first line and the body. The driver keeps connections open whatever it is asked, so it is
/// read to its length.
fn answer(mut stream: BufReader<TcpStream>) -> (String, Vec<u8>) {
    let mut lines = stream
        .by_ref()
        .lines()
        .map(Result::unwrap)
        .take_while(|line| !line.is_empty());
    let status = lines.next().expect("an answer of HTTP");
    let lengths = lines.filter_map(|line| {
        line.to_lowercase()
            .strip_prefix("content-length:")?
            .trim()
            .parse()
            .ok()
    });
    let mut body = vec![0; lengths.last().expect("the length of the answer")];
    stream.read_exact(&mut body).unwrap();
    (status, body)
}

impl Drop for Browser {
    fn drop(&mut self) {
        if !self.session.is_empty() && !std::thread::panicking() {
            self.call("DELETE", &self.session.clone(), None);
        }
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}
