//! Compute Engine in memory: resources, operations that take a while, references that hold what
//! they refer to.
//!
//! What the real one does and this one does too: a change answers with an operation, and is seen
//! once that is over; names are taken (409), absent (404) and in use (400); an address in use is
//! demoted, not lost; a pool takes one health check; lists come in pages.

mod rules;
mod store;

use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use serde_json::{Value, json};

use crate::discovery::{Discovery, Matched};
pub use store::Kind;
use store::{Key, Store};

/// An answer that is not 200.
struct Refusal {
    status: u16,
    reason: &'static str,
    message: String,
}

fn refuse<T>(status: u16, reason: &'static str, message: impl Into<String>) -> Result<T, Refusal> {
    Err(Refusal {
        status,
        reason,
        message: message.into(),
    })
}

/// The cloud.
pub struct Gce {
    discovery: Discovery,
    store: Mutex<Store>,
}

impl Default for Gce {
    fn default() -> Self {
        Self {
            discovery: Discovery::compute(),
            store: Mutex::default(),
        }
    }
}

impl Gce {
    pub const PROJECT: &str = "shop";
    pub const REGION: &str = "europe-west1";

    /// Requests and answers that are not as described are kept, for [`Gce::problems`].
    pub fn answer(&self, request: &Request<Bytes>) -> Response<Bytes> {
        let body = match request.body().is_empty() {
            true => Value::Null,
            false => serde_json::from_slice(request.body())
                .unwrap_or(Value::String("no JSON".to_owned())),
        };
        let (path, query) = (
            request.uri().path(),
            request.uri().query().unwrap_or_default(),
        );
        let relative = path.strip_prefix(self.discovery.base()).unwrap_or(path);
        let result = match self
            .discovery
            .check_request(request.method(), relative, query, &body)
        {
            Ok(matched) => self.perform(&matched, body),
            Err(problem) => {
                self.store().problems.push(problem.clone());
                refuse(400, "invalid", problem)
            }
        };
        match result {
            Ok(answer) => response(StatusCode::OK, &answer),
            Err(refusal) => response(
                StatusCode::from_u16(refusal.status).unwrap_or_default(),
                &error(&refusal),
            ),
        }
    }

    fn perform(&self, matched: &Matched, body: Value) -> Result<Value, Refusal> {
        let mut store = self.store();
        let answer = rules::perform(&mut store, matched, body)?;
        if let Err(problem) = self.discovery.check_answer(&matched.id, &answer) {
            store.problems.push(problem);
        }
        Ok(answer)
    }

    /// What was asked or answered otherwise than the vendor describes it. None of it may be there
    /// at the end of a test.
    pub fn problems(&self) -> Vec<String> {
        self.store().problems.clone()
    }

    /// All that is under way is over.
    pub fn settle(&self) {
        self.store().settle();
    }

    /// Makes operations end after this many requests.
    pub fn set_looks(&self, looks: u32) {
        self.store().looks = looks;
    }

    pub fn add_instance(&self, zone: &str, name: &str, tags: &[&str]) {
        let instance = json!({"name": name, "tags": {"items": tags}, "status": "RUNNING"});
        self.store()
            .put(Key::new(Kind::Instance, zone, name), instance);
    }

    pub fn remove_instance(&self, zone: &str, name: &str) {
        self.store().remove(&Key::new(Kind::Instance, zone, name));
    }

    /// Puts a resource, as another program would and without any check.
    pub fn put(&self, kind: Kind, name: &str, resource: Value) {
        self.store().put(Key::new(kind, "", name), resource);
    }

    pub fn get(&self, kind: Kind, name: &str) -> Option<Value> {
        self.store().get(&Key::new(kind, "", name)).cloned()
    }

    /// All of a kind, by name.
    pub fn all(&self, kind: Kind) -> Vec<(String, Value)> {
        self.store()
            .all(kind, "")
            .map(|(name, value)| (name.to_owned(), value.clone()))
            .collect()
    }

    fn store(&self) -> MutexGuard<'_, Store> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn response(status: StatusCode, body: &Value) -> Response<Bytes> {
    let mut response = Response::new(Bytes::from(body.to_string()));
    *response.status_mut() = status;
    response
}

fn error(refusal: &Refusal) -> Value {
    let Refusal {
        status,
        reason,
        message,
    } = refusal;
    json!({"error": {"code": status, "message": message,
        "errors": [{"domain": "global", "reason": reason, "message": message}]}})
}

#[cfg(test)]
mod tests;
