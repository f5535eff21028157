//! One case against one server: its namespace, the answers so far, what it created.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{LazyLock, Mutex};
use std::time::Duration;

use bytes::Bytes;
use hyper::HeaderMap;
use regex::Regex;
use serde_json::{Map, Value, json};

use crate::common::client::{JSON, MERGE};
use crate::common::{Answer, Client, Watch};
use crate::matching::{causes, differences, edited, lookup, pair, plain};

static REFERENCE: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"\$\{([^}]+)\}").unwrap());
static REPEATED: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"^(.)\*(\d+)$").unwrap());

/// Addresses and ports from the low end of each range, which dynamic allocation avoids.
/// A case gives back what it took once it has cleaned up, so no two cases hold the same.
pub(crate) struct Picks {
    free: Mutex<BTreeMap<&'static str, VecDeque<Value>>>,
}

impl Picks {
    pub(crate) fn new() -> Self {
        let free = BTreeMap::from([
            (
                "ip4",
                (16..256).map(|n| json!(format!("10.96.0.{n}"))).collect(),
            ),
            (
                "ip6",
                (16..256)
                    .map(|n| json!(format!("fd00:10:96::{n:x}")))
                    .collect(),
            ),
            ("port", (30000..30086).map(|port| json!(port)).collect()),
        ]);
        Self {
            free: Mutex::new(free),
        }
    }

    fn take(&self, kind: &str) -> Option<Value> {
        let mut free = self.free.lock().unwrap();
        Some(
            free.get_mut(kind)?
                .pop_front()
                .expect("enough addresses and ports for all cases that run"),
        )
    }

    fn give_back(&self, kind: &str, pick: Value) {
        self.free
            .lock()
            .unwrap()
            .get_mut(kind)
            .expect("a known kind")
            .push_back(pick);
    }
}

/// Why a case cannot go on: the differences found, or a value it refers to is not there.
type Stopped = Vec<String>;

pub(crate) struct Run<'a> {
    client: &'a Client,
    picks: &'a Picks,
    namespace: String,
    answers: BTreeMap<String, Value>,
    picked: BTreeMap<String, Value>,
    created: Vec<String>,
}

impl<'a> Run<'a> {
    pub(crate) fn new(client: &'a Client, picks: &'a Picks, namespace: String) -> Self {
        let (answers, picked, created) = Default::default();
        Self {
            client,
            picks,
            namespace,
            answers,
            picked,
            created,
        }
    }

    /// Runs all steps; the differences, none when the case passes.
    pub(crate) async fn case(mut self, case: &Value) -> Vec<String> {
        let outcome = self.run(case).await;
        self.clean().await;
        for (reference, pick) in std::mem::take(&mut self.picked) {
            let kind = reference.split('.').next().unwrap_or_default();
            self.picks.give_back(kind, pick);
        }
        outcome.err().unwrap_or_default()
    }

    async fn run(&mut self, case: &Value) -> Result<(), Stopped> {
        let body =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.namespace}});
        let answer = self
            .send(
                "POST",
                "/api/v1/namespaces",
                &[],
                Some((JSON, body.to_string().into())),
            )
            .await?;
        if answer.status != 201 {
            return Err(vec![format!(
                "cannot create a namespace: {} {}",
                answer.status,
                answer.text()
            )]);
        }
        self.steps(&case["steps"]).await
    }

    async fn steps(&mut self, steps: &Value) -> Result<(), Stopped> {
        for (n, step) in steps
            .as_array()
            .map_or(&[][..], Vec::as_slice)
            .iter()
            .enumerate()
        {
            let found = if step["watch"].is_string() {
                Box::pin(self.watch(step)).await?
            } else {
                self.step(step).await?
            };
            if !found.is_empty() {
                let name = step["as"]
                    .as_str()
                    .map_or_else(|| format!("step {}", n + 1), str::to_owned);
                return Err(found.iter().map(|line| format!("{name}: {line}")).collect());
            }
        }
        Ok(())
    }

    async fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: Option<(&str, Bytes)>,
    ) -> Result<Answer, Stopped> {
        self.client
            .try_call(method, path, headers, body)
            .await
            .map_err(|error| vec![format!("{method} {path}: {error}")])
    }

    // Filling in ${references}

    fn value(&mut self, reference: &str) -> Result<Value, Stopped> {
        if reference == "ns" {
            return Ok(json!(self.namespace));
        }
        if let Some(repeated) = REPEATED.captures(reference) {
            return Ok(json!(repeated[1].repeat(repeated[2].parse().unwrap())));
        }
        if let Some(pick) = self.picked.get(reference) {
            return Ok(pick.clone());
        }
        let (head, path) = reference.split_once('.').unwrap_or((reference, ""));
        if let Some(pick) = self.picks.take(head) {
            self.picked.insert(reference.to_owned(), pick.clone());
            return Ok(pick);
        }
        let found = self
            .answers
            .get(head)
            .map_or(Value::Null, |answer| lookup(answer, path));
        if found.is_null() {
            Err(vec![format!("nothing to put in for ${{{reference}}}")])
        } else {
            Ok(found)
        }
    }

    fn fill(&mut self, value: &Value) -> Result<Value, Stopped> {
        Ok(match value {
            Value::Object(map) => {
                let mut filled = Map::new();
                for (key, value) in map {
                    filled.insert(self.fill_text(key, str::to_owned)?, self.fill(value)?);
                }
                Value::Object(filled)
            }
            Value::Array(items) => Value::Array(
                items
                    .iter()
                    .map(|item| self.fill(item))
                    .collect::<Result<_, _>>()?,
            ),
            Value::String(text) => match REFERENCE.captures(text) {
                Some(found) if found[0].len() == text.len() => self.value(&found[1])?,
                _ => Value::String(self.fill_text(text, str::to_owned)?),
            },
            other => other.clone(),
        })
    }

    fn fill_text(&mut self, text: &str, quote: impl Fn(&str) -> String) -> Result<String, Stopped> {
        let (mut filled, mut rest) = (String::new(), text);
        while let Some(found) = REFERENCE.captures(rest) {
            let all = found.get(0).unwrap();
            filled += &rest[..all.start()];
            filled += &quote(&plain(&self.value(&found[1])?));
            rest = &rest[all.end()..];
        }
        Ok(filled + rest)
    }

    fn path(&mut self, path: &str) -> Result<String, Stopped> {
        let path = self.fill_text(path, percent_encoded)?;
        let absolute = path.starts_with('/');
        Ok(if absolute {
            path
        } else {
            format!("/api/v1/namespaces/{}/{path}", self.namespace)
        })
    }

    fn headers(&mut self, step: &Value) -> Result<Vec<(String, String)>, Stopped> {
        let headers = self.fill(&step["headers"])?;
        Ok(headers
            .as_object()
            .into_iter()
            .flatten()
            .map(|(name, value)| (name.clone(), plain(value)))
            .collect())
    }

    // Plain steps

    async fn step(&mut self, step: &Value) -> Result<Vec<String>, Stopped> {
        let method = step["method"].as_str().unwrap();
        let path = self.path(step["path"].as_str().unwrap())?;
        let headers = self.headers(step)?;
        let headers: Vec<_> = headers
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .collect();
        let body = self
            .body(step)?
            .map(|body| (step["type"].as_str().unwrap_or(JSON), Bytes::from(body)));
        let answer = self.send(method, &path, &headers, body).await?;
        let body = decoded(&answer);
        if let Some(name) = step["as"].as_str() {
            self.answers.insert(name.to_owned(), body.clone());
        }
        if matches!(method, "POST" | "PUT" | "PATCH") && matches!(answer.status, 200 | 201) {
            self.remember(method, &path, &body);
        }
        self.answered(step, answer.status, &answer.headers, &body)
    }

    fn body(&mut self, step: &Value) -> Result<Option<String>, Stopped> {
        if let Some(raw) = step["raw"].as_str() {
            return Ok(Some(self.fill_text(raw, str::to_owned)?));
        }
        if let Some(name) = step["edit"].as_str() {
            let set = self.fill(&step["set"])?;
            let answer = self
                .answers
                .get(name)
                .ok_or_else(|| vec![format!("no answer {name} to edit")])?;
            return Ok(Some(
                edited(answer, set.as_object().unwrap_or(&Map::new())).to_string(),
            ));
        }
        match step.get("body") {
            Some(body) => Ok(Some(self.fill(body)?.to_string())),
            None => Ok(None),
        }
    }

    /// Compares one answer with what its step expects.
    fn answered(
        &mut self,
        step: &Value,
        status: u16,
        headers: &HeaderMap,
        body: &Value,
    ) -> Result<Vec<String>, Stopped> {
        let expect = &step["expect"];
        let wanted = expect["status"].as_u64().unwrap_or(200);
        if wanted == 500 && (400..500).contains(&status) {
            return Ok(vec![]); // the recorded server blamed itself for the client's mistake; saying so is right
        }
        if wanted != u64::from(status) {
            let message = body["message"].as_str().unwrap_or_default();
            return Ok(vec![
                format!("status: expected {wanted}, got {status} {message}")
                    .trim_end()
                    .to_owned(),
            ]);
        }
        let mut found = vec![];
        if let Some(reason) = expect["reason"].as_str() {
            differences(
                &json!(reason),
                &json!(body["reason"].as_str().unwrap_or_default()),
                "reason",
                &mut found,
            );
        }
        if let Some(wanted) = expect["causes"].as_array() {
            let (want, got) = (wanted.iter().map(pair).collect(), causes(body));
            found.extend(
                got.difference(&want)
                    .map(|cause| format!("cause not expected: {cause:?}")),
            );
            found.extend(
                want.difference(&got)
                    .map(|cause| format!("cause missing: {cause:?}")),
            );
        }
        for (name, want) in expect["headers"].as_object().into_iter().flatten() {
            let got = headers.get(name).map_or(Value::Null, |value| {
                json!(String::from_utf8_lossy(value.as_bytes()))
            });
            differences(&self.fill(want)?, &got, name, &mut found);
        }
        for (path, want) in expect["body"].as_object().into_iter().flatten() {
            differences(&self.fill(want)?, &lookup(body, path), path, &mut found);
        }
        Ok(found)
    }

    // Watch steps

    /// Opens a watch, runs the inner steps, then compares the events that arrived.
    async fn watch(&mut self, step: &Value) -> Result<Vec<String>, Stopped> {
        let path = self.path(step["watch"].as_str().unwrap())?;
        let headers = self.headers(step)?;
        let headers: Vec<_> = headers
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .collect();
        let opened = self.client.try_watch(&path, &headers).await;
        let mut watch = match opened.map_err(|error| vec![format!("watch {path}: {error}")])? {
            Ok(watch) => watch,
            Err(answer) => {
                return self.answered(step, answer.status, &answer.headers, &decoded(&answer));
            }
        };
        self.steps(&step["steps"]).await?;
        let expect = &step["expect"];
        let wanted = expect["events"].as_array().cloned().unwrap_or_default();
        let ends = expect["ends"].as_bool().unwrap_or_default();
        if expect["status"].as_u64().unwrap_or(200) != 200 {
            return Ok(vec![format!(
                "status: expected {}, got 200",
                expect["status"]
            )]);
        }
        let (events, ended) = events(&mut watch, wanted.len(), ends).await;
        let mut found = vec![];
        if events.len() != wanted.len() {
            let seen: Vec<_> = events
                .iter()
                .map(|event| {
                    format!(
                        "{} {}",
                        event["type"],
                        lookup(event, "object.metadata.name")
                    )
                })
                .collect();
            found.push(format!(
                "events: expected {}, got {}: {seen:?}",
                wanted.len(),
                events.len()
            ));
        }
        for (n, (want, event)) in wanted.iter().zip(&events).enumerate() {
            for (path, value) in want.as_object().into_iter().flatten() {
                let value = self.fill(value)?;
                differences(
                    &value,
                    &lookup(event, path),
                    &format!("event {} {path}", n + 1),
                    &mut found,
                );
            }
        }
        if ends && !ended {
            found.push("watch: expected the server to end it".to_owned());
        }
        Ok(found)
    }

    // Cleaning up

    fn remember(&mut self, method: &str, path: &str, body: &Value) {
        let path = path.split('?').next().unwrap_or_default();
        let name = lookup(body, "metadata.name");
        let Some(name) = name
            .as_str()
            .filter(|name| !name.is_empty() && body["kind"] != "Status")
        else {
            return;
        };
        let path = match method {
            "POST" => format!("{path}/{name}"),
            _ => path.trim_end_matches("/status").to_owned(),
        };
        if !self.created.contains(&path) {
            self.created.push(path);
        }
    }

    /// Deletes what the case created, and its namespace; nothing here is part of the verdict.
    async fn clean(&mut self) {
        let own = format!("/api/v1/namespaces/{}", self.namespace);
        for path in self.created.iter().rev().chain([&own]) {
            let Ok(answer) = self.client.try_call("DELETE", path, &[], None).await else {
                return;
            };
            let body = answer.json();
            if !lookup(&body, "metadata.finalizers").is_null() {
                let patch = json!({"metadata": {"finalizers": null}}).to_string();
                let _ = self
                    .client
                    .try_call("PATCH", path, &[], Some((MERGE, patch.into())))
                    .await;
            }
            if body["kind"] == "Namespace" && !lookup(&body, "spec.finalizers").is_null() {
                self.finalize(path, &lookup(&body, "metadata.name")).await;
            }
        }
    }

    /// Where no controller finishes the deletion of a namespace, finishes it.
    async fn finalize(&self, path: &str, name: &Value) {
        let body = json!({
            "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}, "spec": {"finalizers": []}
        });
        let body = Some((JSON, body.to_string().into()));
        let _ = self
            .client
            .try_call("PUT", &format!("{path}/finalize"), &[], body)
            .await;
    }
}

/// Reads that many events, then sees that no more follow; whether the server ended the watch.
/// A server may repeat bookmarks at will: a run of them counts as one.
async fn events(watch: &mut Watch, count: usize, ends: bool) -> (Vec<Value>, bool) {
    let mut events: Vec<Value> = vec![];
    loop {
        let enough = events.len() == count && !ends;
        match watch
            .within(Duration::from_millis(if enough { 150 } else { 4000 }))
            .await
        {
            None => return (events, false),
            Some(None) => return (events, true),
            Some(Some(event)) => {
                let repeated = event["type"] == "BOOKMARK"
                    && events.last().is_some_and(|last| last["type"] == "BOOKMARK");
                if !repeated {
                    events.push(event);
                }
            }
        }
    }
}

/// The answer as an object; anything else becomes `{"text": ...}`.
fn decoded(answer: &Answer) -> Value {
    let body = answer.json();
    if body.is_object() {
        body
    } else {
        json!({"text": answer.text()})
    }
}

fn percent_encoded(text: &str) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                encoded.push(char::from(byte))
            }
            _ => encoded += &format!("%{byte:02X}"),
        }
    }
    encoded
}
