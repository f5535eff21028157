//! The audit log: one line of JSON for each request, as `audit.k8s.io/v1` Events at level Metadata.
//!
//! One thread writes. Its queue is bounded: when the disk is slow requests wait, so no record is
//! lost. Bodies, tokens and headers never get here: [`Record`] has no place for them.

use super::rbac::{Action, Request};
use super::user::User;
use jiff::Timestamp;
use portico_api::status::ApiError;
use serde_json::{Map, Value, json};
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use tokio::sync::{mpsc, oneshot};

/// Requests that may wait for the writer before the next one has to.
const QUEUE: usize = 4096;
/// Bytes gathered for one write.
const BATCH: usize = 256 * 1024;

/// One request that was answered.
#[derive(Clone, Debug)]
pub(crate) struct Record<'a> {
    pub audit_id: &'a str,
    pub uri: &'a str,
    pub action: Action<'a>,
    /// Version of the resource's group, such as `v1`.
    pub version: &'a str,
    pub user: &'a User,
    pub impersonated: Option<&'a User>,
    pub source: &'a [IpAddr],
    pub user_agent: &'a str,
    pub code: u16,
    pub error: Option<&'a ApiError>,
    pub received: Timestamp,
    pub finished: Timestamp,
    /// Why it was allowed.
    pub reason: &'a str,
}

/// Where records go. Cloning gives another handle on the same file.
#[derive(Clone, Debug)]
pub(crate) struct AuditLog {
    queue: mpsc::Sender<Message>,
    lost: Arc<AtomicU64>,
}

/// The audit log cannot be opened.
#[derive(Debug, thiserror::Error)]
#[error("cannot open the audit log {path}: check --audit-log and that this user may write there", path = path.display())]
pub(crate) struct OpenError {
    path: PathBuf,
    #[source]
    source: io::Error,
}

#[derive(Debug)]
enum Message {
    Line(String),
    Flush(oneshot::Sender<()>),
}

impl AuditLog {
    /// Append to the file, making it readable by its owner alone if it is new.
    pub(crate) fn open(path: &Path) -> Result<Self, OpenError> {
        let fail = |source| OpenError {
            path: path.to_owned(),
            source,
        };
        let (queue, messages) = mpsc::channel(QUEUE);
        let lost = Arc::new(AtomicU64::new(0));
        let file = open(path).map_err(fail)?;
        let writer = Writer {
            path: path.to_owned(),
            file,
            torn: false,
            lost: lost.clone(),
        };
        thread::Builder::new()
            .name("audit".to_owned())
            .spawn(move || writer.run(messages))
            .map_err(fail)?;
        Ok(Self { queue, lost })
    }

    /// Write a record down; waits while the queue is full.
    pub(crate) async fn record(&self, record: &Record<'_>) {
        let line = format!("{}\n", record.event());
        if self.queue.send(Message::Line(line)).await.is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Wait until everything recorded so far is on disk.
    pub(crate) async fn flush(&self) {
        let (done, answer) = oneshot::channel();
        if self.queue.send(Message::Flush(done)).await.is_ok() {
            let _ended = answer.await;
        }
    }

    /// Records that could not be written because the disk refused them.
    #[cfg(test)]
    pub(crate) fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }
}

impl Record<'_> {
    fn event(&self) -> Value {
        let mut event = json!({
            "kind": "Event",
            "apiVersion": "audit.k8s.io/v1",
            "level": "Metadata",
            "auditID": self.audit_id,
            "stage": "ResponseComplete",
            "requestURI": without_secrets(self.uri),
            "verb": self.verb(),
            "user": self.user.info(),
            "responseStatus": self.status(),
            "requestReceivedTimestamp": format!("{:.6}", self.received),
            "stageTimestamp": format!("{:.6}", self.finished),
        });
        if let Some(user) = self.impersonated {
            event["impersonatedUser"] = user.info();
        }
        if !self.source.is_empty() {
            event["sourceIPs"] = self
                .source
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
                .into();
        }
        if !self.user_agent.is_empty() {
            event["userAgent"] = self.user_agent.into();
        }
        if let Action::Resource(request) = &self.action {
            event["objectRef"] = reference(request, self.version);
        }
        let decision = if self.error.is_some_and(|error| error.code == 403) {
            "forbid"
        } else {
            "allow"
        };
        if self.code != 401 {
            event["annotations"] = json!({"authorization.k8s.io/decision": decision, "authorization.k8s.io/reason": self.reason});
        }
        event
    }

    fn verb(&self) -> &str {
        match &self.action {
            Action::Resource(request) => request.verb,
            Action::NonResource { verb, .. } => verb,
        }
    }

    fn status(&self) -> Value {
        match self.error {
            None => json!({"metadata": {}, "code": self.code}),
            Some(error) => json!({
                "metadata": {}, "status": "Failure", "message": error.message, "reason": error.reason,
                "details": error.details, "code": error.code,
            }),
        }
    }
}

fn reference(request: &Request<'_>, version: &str) -> Value {
    let parts = [
        ("resource", request.resource),
        ("namespace", request.namespace),
        ("name", request.name),
        ("apiGroup", request.group),
        ("apiVersion", version),
        ("subresource", request.subresource),
    ];
    let parts = parts.into_iter().filter(|(_, text)| !text.is_empty());
    Value::Object(
        parts
            .map(|(key, text)| (key.to_owned(), text.into()))
            .collect::<Map<_, _>>(),
    )
}

/// Words in the name of a query parameter whose value is a credential.
const SECRET_WORDS: &[&str] = &[
    "token",
    "secret",
    "password",
    "passwd",
    "credential",
    "authorization",
    "signature",
    "apikey",
    "api_key",
];

/// Some clients put a token into the query; it must not get into the log, however its name is
/// written. A position in a list (`continue`) is no secret.
fn without_secrets(uri: &str) -> String {
    let Some((path, query)) = uri.split_once('?') else {
        return uri.to_owned();
    };
    let hide = |pair: &str| {
        let key = pair.split('=').next().unwrap_or_default();
        let name = crate::request::decode(key).to_lowercase();
        match SECRET_WORDS.iter().any(|word| name.contains(word)) {
            true => format!("{key}=..."),
            false => pair.to_owned(),
        }
    };
    format!(
        "{path}?{}",
        query.split('&').map(hide).collect::<Vec<_>>().join("&")
    )
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .create(true)
        .append(true)
        .mode(0o600)
        .open(path)
}

/// The thread's side.
struct Writer {
    path: PathBuf,
    file: File,
    /// A write broke off in the middle of a line.
    torn: bool,
    lost: Arc<AtomicU64>,
}

impl Writer {
    fn run(mut self, mut messages: mpsc::Receiver<Message>) {
        let mut batch = String::new();
        let mut next = messages.blocking_recv();
        while let Some(message) = next {
            if let Message::Line(line) = &message {
                batch.push_str(line);
            }
            let waiting = messages.try_recv();
            if batch.len() >= BATCH || waiting.is_err() || !matches!(message, Message::Line(_)) {
                self.write(&mut batch);
            }
            self.obey(message);
            next = waiting.ok().or_else(|| messages.blocking_recv());
        }
    }

    fn obey(&mut self, message: Message) {
        match message {
            Message::Line(_) => {}
            Message::Flush(done) => {
                if let Err(error) = self.file.sync_data() {
                    tracing::error!(%error, path = %self.path.display(), "cannot sync the audit log");
                }
                let _unheard = done.send(());
            }
        }
    }

    fn write(&mut self, batch: &mut String) {
        if batch.is_empty() {
            return;
        }
        if std::mem::take(&mut self.torn) {
            batch.insert(0, '\n');
        }
        if let Err(error) = self.file.write_all(batch.as_bytes()) {
            self.torn = true;
            let lines = batch.lines().filter(|line| !line.is_empty()).count();
            self.lost.fetch_add(lines as u64, Ordering::Relaxed);
            tracing::error!(%error, lines, path = %self.path.display(), "cannot write to the audit log");
        }
        batch.clear();
    }
}

#[cfg(test)]
mod tests;
