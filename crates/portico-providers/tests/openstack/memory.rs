//! Keystone, Neutron and Octavia in memory, for what would take the real ones hours. They behave as
//! the real ones were seen to: a write makes a load balancer pending for a while, writes meanwhile
//! are answered with 409, what was deleted goes later, and what can be said only once cannot be
//! said again.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{Method, Request, Response};
use portico_providers::cloud::{Transport, TransportError};
use serde_json::{Value, json};

use super::raw::{Tree, floating_line, is_ours};

pub(crate) const URL: &str = "http://memory.test";
/// Valid whatever happens.
pub(crate) const ROOT: &str = "root";
/// For how many requests a load balancer is pending.
const PENDING: u64 = 2;

type Things = BTreeMap<String, Value>;
type Answer = Result<(u16, Value), (u16, String)>;

#[derive(Default)]
pub(crate) struct Memory {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Counts requests: time.
    now: u64,
    things: BTreeMap<&'static str, Things>,
    made: u64,
    /// The one that counts.
    token: u64,
    /// So many load balancers end in `ERROR`.
    failing: u32,
}

impl Memory {
    /// Tokens that were given out are no longer good.
    pub(crate) fn expire(&self) {
        self.state.lock().unwrap().token += 1;
    }

    /// The next load balancers end in `ERROR`.
    pub(crate) fn fail_next(&self, count: u32) {
        self.state.lock().unwrap().failing = count;
    }

    /// Load balancers and floating IPs of the test's Services, or of others, without a call: time
    /// stands still.
    pub(crate) fn lines(&self, ours: bool) -> Vec<String> {
        let mut state = self.state.lock().unwrap();
        let mut lines = Vec::new();
        for balancer in state
            .list("loadbalancers", &[])
            .into_iter()
            .filter(|it| is_ours(it) == ours)
        {
            let of = [pair("loadbalancer_id", balancer["id"].as_str().unwrap())];
            let mut all = |collection| state.list(collection, &of);
            let (listeners, pools) = (all("listeners"), all("pools"));
            let (members, monitors) = (all("members"), all("healthmonitors"));
            lines.extend(
                Tree {
                    balancer,
                    listeners,
                    pools,
                    members,
                    monitors,
                }
                .lines(),
            );
        }
        lines.extend(
            state
                .all("floatingips")
                .values()
                .filter(|ip| is_ours(ip) == ours)
                .map(floating_line),
        );
        lines
    }

    /// As somebody with another client would.
    pub(crate) fn change(&self, collection: &'static str, change: impl Fn(&mut Value)) {
        self.state
            .lock()
            .unwrap()
            .all(collection)
            .values_mut()
            .for_each(change);
    }
}

pub(crate) fn transport(memory: &Arc<Memory>) -> Arc<dyn Transport> {
    let memory = Arc::clone(memory);
    Arc::new(
        move |request: Request<Bytes>| -> Result<Response<Bytes>, TransportError> {
            Ok(memory.state.lock().unwrap().answer(&request))
        },
    )
}

impl State {
    fn all(&mut self, collection: &'static str) -> &mut Things {
        self.things.entry(collection).or_default()
    }

    fn answer(&mut self, request: &Request<Bytes>) -> Response<Bytes> {
        self.pass_time();
        let path = request.uri().path().trim_start_matches('/').to_owned();
        if path == "v3/auth/tokens" {
            return self.log_in();
        }
        let token = request
            .headers()
            .get("x-auth-token")
            .and_then(|token| token.to_str().ok())
            .unwrap_or_default();
        let answer = if token == ROOT || token == format!("token-{}", self.token) {
            self.route(request, &path)
        } else {
            Err((401, "who are you?".to_owned()))
        };
        let (status, body) =
            answer.unwrap_or_else(|(status, fault)| (status, json!({ "faultstring": fault })));
        Response::builder()
            .status(status)
            .body(Bytes::from(body.to_string()))
            .unwrap()
    }

    fn log_in(&self) -> Response<Bytes> {
        let service = |kind: &str| json!({"type": kind, "endpoints": [{"interface": "public", "region": "r", "url": URL}]});
        let (issued, ends) = ("2026-01-01T00:00:00.000000Z", "2026-01-01T01:00:00.000000Z");
        let catalog = [service("load-balancer"), service("network")];
        let body = json!({"token": {"issued_at": issued, "expires_at": ends, "catalog": catalog}});
        let answer = Response::builder()
            .status(201)
            .header("x-subject-token", format!("token-{}", self.token));
        answer.body(Bytes::from(body.to_string())).unwrap()
    }

    fn pass_time(&mut self) {
        self.now += 1;
        let now = self.now;
        let due = |it: &Value| it["until"].as_u64().is_some_and(|until| until <= now);
        let ended = |it: &Value| it["provisioning_status"] == "PENDING_DELETE";
        let balancers = self.all("loadbalancers");
        let gone: Vec<String> = balancers
            .iter()
            .filter(|(_, it)| due(it) && ended(it))
            .map(|(id, _)| id.clone())
            .collect();
        for balancer in balancers.values_mut().filter(|it| due(it) && !ended(it)) {
            balancer["provisioning_status"] = if balancer["fails"] == true {
                "ERROR"
            } else {
                "ACTIVE"
            }
            .into();
            balancer["until"] = Value::Null;
        }
        for id in gone {
            self.all("loadbalancers").remove(&id);
            for collection in ["listeners", "pools", "healthmonitors", "members"] {
                self.all(collection)
                    .retain(|_, it| it["loadbalancer_id"] != id.as_str());
            }
            // The port goes with it, and so it is no longer anybody's.
            let attached = self
                .all("floatingips")
                .values_mut()
                .filter(|ip| ip["port_id"] == format!("port-{id}"));
            attached.for_each(|ip| ip["port_id"] = Value::Null);
        }
    }

    fn route(&mut self, request: &Request<Bytes>, path: &str) -> Answer {
        let query: Vec<(String, String)> =
            request.uri().query().map(parse_query).unwrap_or_default();
        let body: Value = serde_json::from_slice(request.body()).unwrap_or_default();
        let path = path
            .trim_start_matches("v2.0/")
            .trim_start_matches("lbaas/");
        let parts: Vec<&str> = path.split('/').collect();
        let collection = [
            "loadbalancers",
            "listeners",
            "pools",
            "healthmonitors",
            "floatingips",
            "networks",
            "subnets",
        ];
        let Some(collection) = collection.into_iter().find(|name| *name == parts[0]) else {
            return Err((404, format!("no {path}")));
        };
        let name = collection.trim_end_matches('s');
        match (request.method(), &parts[1..]) {
            (&Method::GET, []) => Ok((200, json!({ collection: self.list(collection, &query) }))),
            (&Method::GET, [id, "members"]) => Ok((
                200,
                json!({"members": self.list("members", &[("pool_id".to_owned(), (*id).to_owned())])}),
            )),
            (&Method::PUT, [id, "members"]) => self.set_members(id, &body["members"]),
            (&Method::GET, [id]) => Ok((200, json!({ name: self.one(collection, id)?.clone() }))),
            (&Method::POST, []) => self
                .create(collection, body[name].clone())
                .map(|made| (201, json!({ name: made }))),
            (&Method::PUT, [id]) => self
                .update(collection, id, &body[name])
                .map(|made| (200, json!({ name: made }))),
            (&Method::DELETE, [id]) => {
                self.delete(collection, id, query.contains(&pair("cascade", "true")))
            }
            _ => Err((405, format!("{} {path}", request.method()))),
        }
    }

    fn list(&mut self, collection: &'static str, query: &[(String, String)]) -> Vec<Value> {
        let is_one = |it: &Value| {
            query.iter().all(|(name, value)| match name.as_str() {
                "tags" => it["tags"]
                    .as_array()
                    .is_some_and(|tags| tags.contains(&json!(value))),
                "load_balancer_id" => it["loadbalancer_id"] == value.as_str(),
                name => it[name] == value.as_str(),
            })
        };
        self.all(collection)
            .values()
            .filter(|it| is_one(it))
            .cloned()
            .collect()
    }

    fn one(&mut self, collection: &'static str, id: &str) -> Result<&mut Value, (u16, String)> {
        self.all(collection)
            .get_mut(id)
            .ok_or_else(|| (404, format!("{collection} {id} not found")))
    }

    fn id(&mut self) -> String {
        self.made += 1;
        format!("id-{:06}", self.made)
    }

    /// Only one write at a time.
    fn lock(&mut self, balancer: &str, status: &str) -> Result<(), (u16, String)> {
        let until = self.now + PENDING;
        let it = self.one("loadbalancers", balancer)?;
        if it["provisioning_status"]
            .as_str()
            .is_some_and(|status| status.starts_with("PENDING"))
        {
            return Err((
                409,
                format!("Load Balancer {balancer} is immutable and cannot be updated."),
            ));
        }
        (it["provisioning_status"], it["until"]) = (status.into(), until.into());
        Ok(())
    }

    fn create(&mut self, collection: &'static str, mut new: Value) -> Result<Value, (u16, String)> {
        let id = self.id();
        new["id"] = id.clone().into();
        match collection {
            "loadbalancers" => return Ok(self.create_balancer(&id, new)),
            "floatingips" => self.check_floating(&new)?,
            "healthmonitors" => {
                let pool = self
                    .one("pools", new["pool_id"].as_str().unwrap_or_default())?
                    .clone();
                new["loadbalancer_id"] = pool["loadbalancer_id"].clone();
                self.lock(pool["loadbalancer_id"].as_str().unwrap(), "PENDING_UPDATE")?;
                self.all("pools")
                    .get_mut(pool["id"].as_str().unwrap())
                    .unwrap()["healthmonitor_id"] = id.clone().into();
            }
            _ => {
                let balancer = new["loadbalancer_id"]
                    .as_str()
                    .unwrap_or_default()
                    .to_owned();
                let port = |it: &Value| {
                    (
                        it["protocol"] == "UDP",
                        it["protocol_port"].clone(),
                        it["loadbalancer_id"].clone(),
                    )
                };
                if collection == "listeners"
                    && self
                        .all("listeners")
                        .values()
                        .any(|it| port(it) == port(&new))
                {
                    return Err((
                        409,
                        "Another Listener on this Load Balancer is already using protocol_port"
                            .to_owned(),
                    ));
                }
                self.lock(&balancer, "PENDING_UPDATE")?;
            }
        }
        if collection == "floatingips" && new["floating_ip_address"].is_null() {
            new["floating_ip_address"] = format!("198.51.100.{}", self.made % 250 + 1).into();
        }
        self.all(collection).insert(id, new.clone());
        Ok(new)
    }

    /// With everything that is in it.
    fn create_balancer(&mut self, id: &str, mut new: Value) -> Value {
        let listeners = new
            .as_object_mut()
            .unwrap()
            .remove("listeners")
            .unwrap_or_else(|| json!([]));
        for mut listener in listeners.as_array().cloned().unwrap_or_default() {
            let mut pool = listener
                .as_object_mut()
                .unwrap()
                .remove("default_pool")
                .unwrap();
            let (members, monitor) = (pool["members"].take(), pool["healthmonitor"].take());
            let (listener_id, pool_id, monitor_id) = (self.id(), self.id(), self.id());
            let mut put = |collection, id: &str, mut it: Value| {
                (it["id"], it["loadbalancer_id"]) = (id.into(), new["id"].clone());
                self.all(collection).insert(id.to_owned(), it);
            };
            listener["default_pool_id"] = pool_id.clone().into();
            if !monitor.is_null() {
                pool["healthmonitor_id"] = monitor_id.clone().into();
                put(
                    "healthmonitors",
                    &monitor_id,
                    with(monitor, "pool_id", &pool_id),
                );
            }
            put("listeners", &listener_id, listener);
            put("pools", &pool_id, pool);
            for member in members.as_array().cloned().unwrap_or_default() {
                let id = self.id();
                self.all("members").insert(
                    id,
                    with(
                        with(member, "pool_id", &pool_id),
                        "loadbalancer_id",
                        new["id"].as_str().unwrap(),
                    ),
                );
            }
        }
        new["fails"] = (self.failing > 0).into();
        self.failing = self.failing.saturating_sub(1);
        (new["provisioning_status"], new["until"]) =
            ("PENDING_CREATE".into(), (self.now + PENDING).into());
        (new["vip_port_id"], new["created_at"]) = (
            format!("port-{id}").into(),
            format!("{:06}", self.now).into(),
        );
        if new["vip_address"].is_null() {
            new["vip_address"] = format!("10.20.0.{}", self.made % 250 + 1).into();
        }
        self.all("loadbalancers").insert(id.to_owned(), new.clone());
        self.with_tree(new)
    }

    /// The answer to a create has everything in it.
    fn with_tree(&mut self, mut balancer: Value) -> Value {
        let of = [pair("loadbalancer_id", balancer["id"].as_str().unwrap())];
        let monitors = self.list("healthmonitors", &of);
        let mut pools = self.list("pools", &of);
        for pool in &mut pools {
            let monitor = monitors
                .iter()
                .find(|monitor| monitor["pool_id"] == pool["id"])
                .cloned();
            pool["healthmonitor"] = monitor.unwrap_or_default();
        }
        (balancer["listeners"], balancer["pools"]) =
            (self.list("listeners", &of).into(), pools.into());
        balancer
    }

    fn check_floating(&mut self, new: &Value) -> Result<(), (u16, String)> {
        let taken = self
            .all("floatingips")
            .values()
            .any(|ip| !ip["port_id"].is_null() && ip["port_id"] == new["port_id"]);
        if taken {
            Err((409, "the port has a floating IP already".to_owned()))
        } else {
            Ok(())
        }
    }

    fn update(
        &mut self,
        collection: &'static str,
        id: &str,
        fields: &Value,
    ) -> Result<Value, (u16, String)> {
        let it = self.one(collection, id)?.clone();
        for fixed in [
            "protocol",
            "protocol_port",
            "type",
            "vip_address",
            "loadbalancer_id",
        ] {
            if !fields[fixed].is_null() {
                return Err((400, format!("Unknown attribute: {fixed}")));
            }
        }
        if let Some(balancer) = it["loadbalancer_id"].as_str() {
            self.lock(balancer, "PENDING_UPDATE")?;
        }
        let it = self.one(collection, id)?;
        fields
            .as_object()
            .unwrap()
            .iter()
            .for_each(|(name, value)| it[name] = value.clone());
        Ok(it.clone())
    }

    fn set_members(&mut self, pool: &str, members: &Value) -> Answer {
        let balancer = self.one("pools", pool)?["loadbalancer_id"]
            .as_str()
            .unwrap()
            .to_owned();
        self.lock(&balancer, "PENDING_UPDATE")?;
        self.all("members").retain(|_, it| it["pool_id"] != pool);
        for member in members.as_array().cloned().unwrap_or_default() {
            let id = self.id();
            self.all("members").insert(
                id,
                with(with(member, "pool_id", pool), "loadbalancer_id", &balancer),
            );
        }
        Ok((202, Value::Null))
    }

    fn delete(&mut self, collection: &'static str, id: &str, cascade: bool) -> Answer {
        let it = self.one(collection, id)?.clone();
        match (collection, it["loadbalancer_id"].as_str()) {
            ("loadbalancers", _) => {
                if !cascade
                    && self
                        .all("listeners")
                        .values()
                        .any(|it| it["loadbalancer_id"] == id)
                {
                    return Err((400, "it has children".to_owned()));
                }
                self.lock(id, "PENDING_DELETE")?;
                return Ok((204, Value::Null));
            }
            (_, Some(balancer)) => self.lock(balancer, "PENDING_UPDATE")?,
            _ => {}
        }
        self.all(collection).remove(id);
        match collection {
            "pools" => {
                self.all("members").retain(|_, it| it["pool_id"] != id);
                self.all("healthmonitors")
                    .retain(|_, it| it["pool_id"] != id);
            }
            "healthmonitors" => {
                let pools = self
                    .all("pools")
                    .values_mut()
                    .filter(|pool| pool["healthmonitor_id"] == id);
                pools.for_each(|pool| pool["healthmonitor_id"] = Value::Null);
            }
            _ => {}
        }
        Ok((204, Value::Null))
    }
}

fn with(mut it: Value, name: &str, value: &str) -> Value {
    it[name] = value.into();
    it
}

fn pair(name: &str, value: &str) -> (String, String) {
    (name.to_owned(), value.to_owned())
}

fn parse_query(query: &str) -> Vec<(String, String)> {
    let decode = |text: &str| {
        percent_encoding::percent_decode_str(text)
            .decode_utf8_lossy()
            .into_owned()
    };
    let parts = query.split('&').filter_map(|part| part.split_once('='));
    parts
        .map(|(name, value)| (decode(name), decode(value)))
        .collect()
}
