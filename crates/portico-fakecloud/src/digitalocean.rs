//! DigitalOcean in memory: load balancers, and the droplets and certificates that they refer to.
//!
//! What the real one does and this one does too: a load balancer is `new` for a while and has no
//! address until it is `active`; a PUT replaces everything, what is not said becomes the default,
//! and what cannot change is refused (422); names may be there twice; lists come in pages of 20, or
//! of up to 200.

mod rules;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use serde_json::{Value, json};

use crate::openapi::OpenApi;

/// An answer that is an error.
struct Refusal {
    status: u16,
    id: &'static str,
    message: String,
}

/// The cloud.
pub struct DigitalOcean {
    api: OpenApi,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// By id.
    balancers: BTreeMap<String, Value>,
    droplets: BTreeSet<u64>,
    /// Name and id.
    certificates: Vec<(String, String)>,
    /// How many requests each of those that are `new` has to wait for.
    waits: BTreeMap<String, u32>,
    looks: u32,
    /// Whether what becomes ready fails instead.
    fails: bool,
    numbers: u64,
    problems: Vec<String>,
}

impl Default for DigitalOcean {
    fn default() -> Self {
        let state = State {
            balancers: BTreeMap::new(),
            droplets: BTreeSet::new(),
            certificates: Vec::new(),
            waits: BTreeMap::new(),
            looks: 2,
            fails: false,
            numbers: 0,
            problems: Vec::new(),
        };
        Self {
            api: OpenApi::digitalocean(),
            state: Mutex::new(state),
        }
    }
}

impl DigitalOcean {
    pub const REGION: &str = "fra1";

    /// Requests and answers that are not as described are kept, for [`DigitalOcean::problems`].
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
        let mut state = self.state();
        let matched = match self.api.check_request(request.method(), path, query, &body) {
            Ok(matched) => matched,
            Err(problem) => {
                state.problems.push(problem.clone());
                let refusal = Refusal {
                    status: 422,
                    id: "unprocessable_entity",
                    message: problem,
                };
                return response(422, &error(&refusal));
            }
        };
        state.tick();
        let (status, answer) = match rules::perform(&mut state, &matched, body) {
            Ok(answer) => answer,
            Err(refusal) => (refusal.status, error(&refusal)),
        };
        if let Err(problem) = self.api.check_answer(&matched.id, status, &answer) {
            state.problems.push(problem);
        }
        response(status, &answer)
    }

    /// What was asked or answered otherwise than the vendor describes it. None of it may be there
    /// at the end of a test.
    pub fn problems(&self) -> Vec<String> {
        self.state().problems.clone()
    }

    /// All that is new is ready.
    pub fn settle(&self) {
        let mut state = self.state();
        state.waits.values_mut().for_each(|wait| *wait = 1);
        state.tick();
    }

    /// Makes load balancers ready after this many requests.
    pub fn set_looks(&self, looks: u32) {
        self.state().looks = looks;
    }

    /// Makes load balancers errored in place of active, or not.
    pub fn set_failing(&self, fails: bool) {
        self.state().fails = fails;
    }

    pub fn add_droplet(&self, id: u64) {
        self.state().droplets.insert(id);
    }

    pub fn add_certificate(&self, name: &str, id: &str) {
        self.state()
            .certificates
            .push((name.to_owned(), id.to_owned()));
    }

    /// Changes fields of the load balancer with this name, as another program would and without any
    /// check.
    pub fn put(&self, name: &str, fields: &Value) {
        let mut state = self.state();
        let known = state
            .balancers
            .values()
            .find(|balancer| balancer["name"] == name)
            .cloned();
        let mut balancer = known.unwrap_or_else(|| rules::of_others(&mut state, name));
        for (name, value) in fields.as_object().into_iter().flatten() {
            balancer[name] = value.clone();
        }
        state.balancers.insert(
            balancer["id"].as_str().unwrap_or_default().to_owned(),
            balancer,
        );
    }

    /// Removes the load balancer with this name, as another program would.
    pub fn remove(&self, name: &str) {
        self.state()
            .balancers
            .retain(|_, balancer| balancer["name"] != name);
    }

    /// All load balancers, by id.
    pub fn all(&self) -> Vec<Value> {
        self.state().balancers.values().cloned().collect()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    /// Time passes with each request.
    fn tick(&mut self) {
        self.waits
            .values_mut()
            .for_each(|wait| *wait = wait.saturating_sub(1));
        let ready: Vec<String> = self
            .waits
            .iter()
            .filter(|(_, wait)| **wait == 0)
            .map(|(id, _)| id.clone())
            .collect();
        for id in ready {
            self.waits.remove(&id);
            let number = self.number();
            if let Some(balancer) = self.balancers.get_mut(&id) {
                rules::finish(balancer, number, self.fails);
            }
        }
    }
}

fn response(status: u16, body: &Value) -> Response<Bytes> {
    let body = if body.is_null() {
        Bytes::new()
    } else {
        Bytes::from(body.to_string())
    };
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or_default();
    response
}

fn error(refusal: &Refusal) -> Value {
    json!({"id": refusal.id, "message": refusal.message})
}

#[cfg(test)]
mod tests;
