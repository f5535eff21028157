//! Rackspace's Cloud Load Balancers in memory: one port each, addresses that several share, and
//! changes that take a while.
//!
//! What the real one does (documentation, and the source of its server) and this one does too:
//! after a write a load balancer is not ACTIVE for a while, and writes meanwhile are answered with
//! 422; a port is taken once on an address, but for TCP beside UDP; an address lives as long as a
//! load balancer has it; bounds of nodes, items and ids; all or nothing is deleted; lists come in
//! pages.

mod rules;
mod store;

use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use serde_json::{Value, json};

use crate::discovery::Discovery;
use store::Store;

/// An answer that is not good.
struct Refusal {
    status: u16,
    message: String,
}

fn refuse<T>(status: u16, message: impl Into<String>) -> Result<T, Refusal> {
    Err(Refusal {
        status,
        message: message.into(),
    })
}

/// The cloud.
pub struct Rackspace {
    discovery: Discovery,
    store: Mutex<Store>,
}

impl Default for Rackspace {
    fn default() -> Self {
        Self {
            discovery: Discovery::load_balancers(),
            store: Mutex::default(),
        }
    }
}

impl Rackspace {
    pub const URL: &str = "https://identity.test";
    pub const USER: &str = "shop";
    pub const KEY: &str = "hush";

    /// Requests and answers that are not as described are kept, for [`Rackspace::problems`].
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
        let token = request
            .headers()
            .get("x-auth-token")
            .and_then(|token| token.to_str().ok())
            .unwrap_or_default();
        let path = path.trim_start_matches('/');
        let mut store = self.store();
        let result = match self
            .discovery
            .check_request(request.method(), path, query, &body)
        {
            Ok(matched) => {
                rules::perform(&mut store, &matched, body, token).inspect(|(_, answer)| {
                    store
                        .problems
                        .extend(self.discovery.check_answer(&matched.id, answer).err());
                })
            }
            Err(problem) => {
                store.problems.push(problem.clone());
                refuse(400, problem)
            }
        };
        match result {
            Ok((status, answer)) => response(status, &answer),
            Err(Refusal { status, message }) => {
                response(status, &json!({"code": status, "message": message}))
            }
        }
    }

    /// What was asked or answered otherwise than it is described. None of it may be there at the
    /// end of a test.
    pub fn problems(&self) -> Vec<String> {
        self.store().problems.clone()
    }

    /// All that is under way is over.
    pub fn settle(&self) {
        self.store().settle();
    }

    /// Makes changes end after this many requests.
    pub fn set_looks(&self, looks: u32) {
        self.store().looks = looks;
    }

    /// Sets how many load balancers fit into the account.
    pub fn set_quota(&self, quota: usize) {
        self.store().quota = quota;
    }

    /// Tokens that were given out are no longer good.
    pub fn expire(&self) {
        self.store().token += 1;
    }

    /// Load balancers that are created from now on end in ERROR, or no longer do.
    pub fn set_broken(&self, broken: bool) {
        self.store().broken = broken;
    }

    /// All that are not deleted, with all that they have.
    pub fn all(&self) -> Vec<Value> {
        self.store()
            .balancers
            .values()
            .map(|balancer| balancer.value.clone())
            .collect()
    }

    /// Changes a load balancer, as another program would and without any check.
    pub fn change(&self, id: u64, change: impl FnOnce(&mut Value)) {
        if let Some(balancer) = self.store().balancers.get_mut(&id) {
            change(&mut balancer.value);
        }
    }

    /// Adds a load balancer of another user, and returns its id.
    pub fn add(&self, name: &str, port: u16) -> u64 {
        let mut store = self.store();
        let value = json!({"name": name, "protocol": "TCP", "port": port, "virtualIps": [{"type": "PUBLIC"}]});
        let id = rules::insert(&mut store, value).unwrap_or_default();
        store.settle();
        id
    }

    pub fn remove(&self, id: u64) {
        self.store().balancers.remove(&id);
    }

    fn store(&self) -> MutexGuard<'_, Store> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn response(status: u16, body: &Value) -> Response<Bytes> {
    let text = if body.is_null() {
        String::new()
    } else {
        body.to_string()
    };
    let mut response = Response::new(Bytes::from(text));
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or_default();
    response
}

#[cfg(test)]
mod tests;
