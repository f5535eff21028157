//! A double of the cloud in memory, for what takes too many calls for a server, and for rules of
//! the vendor that `moto` does not keep: names are unique and short, groups in use cannot be
//! deleted (those of balancers not even for a while after), numbers have bounds, lists come in
//! small pages, targets leave slowly. Whatever it is asked and answers has to be in the vendor's
//! description.

mod classic;
mod ec2;
mod network;
mod shapes;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use http::{Request, Response};
use portico_providers::aws::auth::{Credentials, Source};
use portico_providers::aws::{Aws, Config, Parts};
use portico_providers::cloud::faults::no_waits;
use portico_providers::cloud::{CallMetrics, Sent, Transport, TransportError};
use portico_providers::conformance::{self, Fault, FaultPlan, World};
use portico_providers::{Node, Provider};

pub(super) const VPC: &str = "vpc-1";
/// `i-1` and so on.
const INSTANCES: usize = 999;

/// How slow and how narrow it is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Manners {
    /// Elements in a page.
    pub page: usize,
    /// How often a group is held after its balancer is gone.
    pub held: usize,
    /// For how many looks a balancer is being provisioned.
    pub provisioning: usize,
}

impl Default for Manners {
    fn default() -> Self {
        Self {
            page: 2,
            held: 2,
            provisioning: 2,
        }
    }
}

pub(super) fn node(number: usize) -> Node {
    let (name, provider_id) = (
        format!("node-i-{number}"),
        format!("aws:///us-east-1a/i-{number}"),
    );
    Node {
        name,
        provider_id,
        ..Node::default()
    }
}

pub(super) fn nodes() -> Vec<Node> {
    (1..=3).map(node).collect()
}

pub(super) type Tags = BTreeMap<String, String>;
/// What the vendor answers: XML inside of the result, or a code and a message.
pub(super) type Answer = Result<String, (&'static str, String)>;

#[derive(Default)]
pub(super) struct State {
    pub manners: Manners,
    numbers: usize,
    pub groups: BTreeMap<String, ec2::Group>,
    pub balancers: BTreeMap<String, network::Balancer>,
    pub listeners: BTreeMap<String, network::Listener>,
    pub targets: BTreeMap<String, network::Targets>,
    pub classics: BTreeMap<String, classic::Classic>,
    /// Groups whose balancers are gone, and how often they cannot be deleted yet.
    pub held: BTreeMap<String, usize>,
}

impl State {
    /// A name that was never given.
    pub(super) fn id(&mut self, prefix: &str) -> String {
        self.numbers += 1;
        format!("{prefix}{:016x}", self.numbers)
    }

    pub(super) fn hold(&mut self, groups: &[String]) {
        self.held.extend(
            groups
                .iter()
                .map(|group| (group.clone(), self.manners.held)),
        );
    }
}

/// The fields of a call.
pub(super) struct Fields(BTreeMap<String, String>);

impl Fields {
    pub(super) fn get(&self, name: &str) -> &str {
        self.0.get(name).map_or("", String::as_str)
    }

    pub(super) fn number(&self, name: &str) -> u32 {
        self.get(name).parse().unwrap_or(0)
    }

    pub(super) fn list(&self, name: &str) -> Vec<String> {
        (1..)
            .map_while(|number| self.0.get(&format!("{name}.{number}")).cloned())
            .collect()
    }

    pub(super) fn list_of(&self, name: &str, field: &str) -> Vec<String> {
        (1..)
            .map_while(|number| self.0.get(&format!("{name}.{number}.{field}")).cloned())
            .collect()
    }

    pub(super) fn pairs(&self, name: &str) -> Tags {
        self.list_of(name, "Key")
            .into_iter()
            .zip(self.list_of(name, "Value"))
            .collect()
    }
}

pub(super) fn element(name: &str, content: impl std::fmt::Display) -> String {
    format!("<{name}>{content}</{name}>")
}

pub(super) fn elements(
    list: &str,
    item: &str,
    contents: impl IntoIterator<Item = String>,
) -> String {
    element(
        list,
        contents
            .into_iter()
            .map(|content| element(item, content))
            .collect::<String>(),
    )
}

pub(super) fn refuse<T>(
    code: &'static str,
    message: impl Into<String>,
) -> Result<T, (&'static str, String)> {
    Err((code, message.into()))
}

/// One page of a list, and the mark of the next.
pub(super) fn page(
    manners: Manners,
    all: Vec<String>,
    mark: &str,
) -> (Vec<String>, Option<String>) {
    let start = mark.parse().unwrap_or(0);
    let next = (start + manners.page < all.len()).then(|| (start + manners.page).to_string());
    (
        all.into_iter().skip(start).take(manners.page).collect(),
        next,
    )
}

pub(super) fn within(
    name: &str,
    value: u32,
    range: std::ops::RangeInclusive<u32>,
) -> Result<(), (&'static str, String)> {
    if range.contains(&value) {
        Ok(())
    } else {
        refuse(
            "ValidationError",
            format!("{name} = {value} is not in {range:?}"),
        )
    }
}

pub(super) fn is_instance(id: &str) -> bool {
    id.strip_prefix("i-")
        .and_then(|number| number.parse().ok())
        .is_some_and(|number| (1..=INSTANCES).contains(&number))
}

#[derive(Default)]
pub(super) struct Cloud {
    pub state: Mutex<State>,
    /// Names in calls and answers, where they are looked up later.
    seen: Option<Mutex<BTreeSet<shapes::Seen>>>,
    writes: Mutex<Vec<String>>,
}

impl Cloud {
    fn answer(&self, request: &Request<Bytes>) -> (u16, String) {
        let body = String::from_utf8_lossy(request.body()).into_owned();
        let decode = |text: &str| {
            let text = text.replace('+', " ");
            percent_encoding::percent_decode_str(&text)
                .decode_utf8_lossy()
                .into_owned()
        };
        let pairs = body.split('&').filter_map(|pair| pair.split_once('='));
        let fields = Fields(
            pairs
                .map(|(name, value)| (decode(name), decode(value)))
                .collect(),
        );
        let (action, version) = (
            fields.get("Action").to_owned(),
            fields.get("Version").to_owned(),
        );
        if !action.starts_with("Describe") {
            self.writes.lock().unwrap().push(action.clone());
        }
        let state = &mut *self.state.lock().unwrap();
        let is_ec2 = version == "2016-11-15";
        let result = match version.as_str() {
            "2016-11-15" => ec2::answer(state, &action, &fields),
            "2015-12-01" => network::answer(state, &action, &fields),
            "2012-06-01" => classic::answer(state, &action, &fields),
            _ => refuse("InvalidAction", format!("there is no version {version}")),
        };
        let answer = match result {
            Ok(result) if is_ec2 => (200, element(&format!("{action}Response"), result)),
            Ok(result) => (
                200,
                element(
                    &format!("{action}Response"),
                    element(&format!("{action}Result"), result),
                ),
            ),
            Err((code, message)) => {
                let error = element(
                    "Error",
                    element("Code", code) + &element("Message", message),
                );
                let wrapped = if is_ec2 {
                    element("Response", element("Errors", error))
                } else {
                    element("ErrorResponse", error)
                };
                (400, wrapped)
            }
        };
        if let Some(seen) = &self.seen {
            let names = fields.0.into_keys().collect();
            seen.lock()
                .unwrap()
                .extend(shapes::Seen::of(&version, &action, names, &answer.1));
        }
        answer
    }

    /// As if somebody else had made everything.
    pub(super) fn forget_tags(&self) {
        let state = &mut *self.state.lock().unwrap();
        network::forget_tags(state);
        classic::forget_tags(state);
    }

    /// Everything that was asked and answered is in the vendor's description of its API.
    pub(super) fn finish(&self) {
        shapes::check(&self.seen.as_ref().expect("names were kept").lock().unwrap());
    }
}

/// The cloud, and faults on the way there.
#[derive(Clone)]
pub(super) struct Lab {
    pub cloud: Arc<Cloud>,
    plan: Arc<FaultPlan>,
}

impl Lab {
    pub(super) fn new() -> Self {
        Self::of(Cloud::default())
    }

    /// With names kept for [`Cloud::finish`].
    pub(super) fn described() -> Self {
        Self::of(Cloud {
            seen: Some(Mutex::default()),
            ..Cloud::default()
        })
    }

    /// As quick and wide as nobody's cloud is.
    pub(super) fn quick() -> Self {
        let lab = Self::new();
        lab.cloud.state.lock().unwrap().manners = Manners {
            page: 400,
            held: 0,
            provisioning: 0,
        };
        lab
    }

    fn of(cloud: Cloud) -> Self {
        let lab = Self {
            cloud: Arc::new(cloud),
            plan: Arc::default(),
        };
        ec2::furnish(&mut lab.cloud.state.lock().unwrap());
        lab
    }

    pub(super) fn provider(&self) -> Aws {
        self.provider_over(Arc::new(self.clone()))
    }

    pub(super) fn provider_over(&self, transport: Arc<dyn Transport>) -> Aws {
        let (pace, poll) = no_waits();
        Aws::new(Parts {
            transport,
            config: Config::default(),
            source: Source::Fixed(Credentials {
                key: "AKID".to_owned(),
                secret: "s".into(),
                token: None,
            }),
            region: "us-east-1".to_owned(),
            vpc: VPC.to_owned(),
            cluster: "conformance".to_owned(),
            pace,
            poll,
            metrics: CallMetrics::default(),
        })
    }

    /// Names of the calls since the last look.
    pub(super) fn take_calls(&self) -> Vec<String> {
        let calls = self.plan.calls();
        self.plan.set(None);
        calls
    }

    pub(super) fn take_writes(&self) -> Vec<String> {
        std::mem::take(&mut *self.cloud.writes.lock().unwrap())
    }
}

impl Transport for Lab {
    fn send(&self, request: Request<Bytes>) -> Sent<'_> {
        let body = String::from_utf8_lossy(request.body()).into_owned();
        let action = body
            .split('&')
            .find_map(|pair| pair.strip_prefix("Action="))
            .unwrap_or_default();
        let fault = self.plan.next(action);
        async move {
            // As on a real connection, others get their turn meanwhile.
            tokio::task::yield_now().await;
            let answered = || {
                let (status, body) = self.cloud.answer(&request);
                Response::builder()
                    .status(status)
                    .body(Bytes::from(body))
                    .map_err(|error| TransportError::Lost(error.to_string()))
            };
            let Some(fault) = fault else {
                return answered();
            };
            if fault.arrives() {
                answered()?;
            }
            let says = |status: u16, text: &str| {
                Ok(Response::builder()
                    .status(status)
                    .body(Bytes::from(text.to_owned()))
                    .unwrap())
            };
            match fault {
                Fault::Unreachable => Err(TransportError::Connect("refused by a test".to_owned())),
                Fault::Timeout => Err(TransportError::Timeout(Duration::from_secs(30))),
                // The vendor's way to say 429.
                Fault::TooMany => says(
                    400,
                    &element(
                        "ErrorResponse",
                        element("Error", element("Code", "Throttling")),
                    ),
                ),
                Fault::ServerError | Fault::ServerErrorAfter => says(500, "a test says no"),
                Fault::LostResponse => Err(TransportError::Lost("reset by a test".to_owned())),
                Fault::CrashBefore | Fault::CrashAfter => self.plan.crash().await,
            }
        }
        .boxed()
    }
}

impl World for Lab {
    fn owned(&self) -> BoxFuture<'_, Result<Vec<String>, String>> {
        async { Ok(self.lines(true)) }.boxed()
    }

    fn foreign(&self) -> BoxFuture<'_, Result<Vec<String>, String>> {
        async { Ok(self.lines(false)) }.boxed()
    }
}

impl conformance::Lab for Lab {
    fn start(&self) -> BoxFuture<'_, Arc<dyn Provider>> {
        async { Arc::new(self.provider()) as Arc<dyn Provider> }.boxed()
    }

    fn plan(&self) -> &FaultPlan {
        &self.plan
    }
}

impl Lab {
    fn lines(&self, owned: bool) -> Vec<String> {
        let state = self.cloud.state.lock().unwrap();
        let mut lines = network::lines(&state);
        lines.extend(classic::lines(&state));
        lines.extend(ec2::lines(&state));
        lines
            .into_iter()
            .filter(|(is_owned, _)| *is_owned == owned)
            .map(|(_, line)| line)
            .collect()
    }
}

/// Whether it is a Service's.
pub(super) fn is_owned(tags: &Tags) -> bool {
    tags.contains_key("kubernetes.io/service-name")
}
