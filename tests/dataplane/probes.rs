//! Probes: each sends real packets and says what it saw, in the words that scenarios expect.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use futures_util::stream::{self, StreamExt};
use portico_testbed::Ask as _;
use portico_testbed::cluster::extra_sources;
use portico_testbed::flow::{Answer, Conversation};
use portico_testbed::uml::is_inside;
use portico_testbed::{Cluster, Failure, Flow, Host, Protocol};
use serde_json::{Value, json};

use crate::common::random::Random;
use crate::scenario::Probe;
use crate::{http, stray};

/// Flows and choices that are kept from one step to the next.
#[derive(Default)]
pub(crate) struct Kept {
    /// With the endpoint that answered first, if one did.
    flows: HashMap<String, (Conversation, Option<String>)>,
    choices: HashMap<String, BTreeMap<Option<IpAddr>, String>>,
}

/// A probe that may run beside others.
pub(crate) async fn observe(cluster: &Cluster, probe: &Probe, recorded: &Value) -> Value {
    match probe.kind.as_str() {
        "connect" => connect(cluster, probe, recorded).await,
        "http" => http::get(cluster, probe, patience(recorded)).await,
        "stray-segment" => stray::segment(cluster, probe).await,
        "sysctl" => match host(cluster, &probe.from).read_sysctl(&probe.name) {
            Ok(value) => json!({"value": value}),
            Err(error) => json!({"fail": format!("{error}: {}", error.source)}),
        },
        kind => panic!("unknown kind of probe: {kind}"),
    }
}

impl Kept {
    /// Any probe.
    pub(crate) async fn observe(
        &mut self,
        cluster: &Cluster,
        probe: &Probe,
        recorded: &Value,
    ) -> Value {
        match probe.kind.as_str() {
            "open" => self.open(cluster, probe).await,
            "existing-connection" => self.existing_connection(probe).await,
            "udp-after-endpoint-change" => self.udp_after_endpoint_change(probe).await,
            "affinity" => self.affinity(cluster, probe).await,
            _ => observe(cluster, probe, recorded).await,
        }
    }

    /// Opens a TCP connection or a UDP flow and keeps it; `backend` asks for a certain endpoint.
    async fn open(&mut self, cluster: &Cluster, probe: &Probe) -> Value {
        let mut flow = flow(cluster, probe);
        flow.patience = Duration::from_secs(if flow.protocol == Protocol::Udp { 1 } else { 2 });
        let mut last = Value::Null;
        for attempt in 0..80 {
            flow.source_port = probe.sport.map_or(0, |port| port + attempt);
            let (answer, conversation) = match host(cluster, &probe.from).open(&flow).await {
                Ok(opened) => opened,
                Err(failure) => {
                    if probe.keepfailed && flow.protocol == Protocol::Udp {
                        flow.source_port = probe.sport.unwrap_or(0);
                        let kept = host(cluster, &probe.from).open_unanswered(&flow).await;
                        let kept = kept.unwrap_or_else(|failure| {
                            panic!("cannot keep {}: {failure}", probe.id)
                        });
                        self.flows.insert(probe.id.clone(), (kept, None));
                    }
                    return json!({"fail": failure.to_string()});
                }
            };
            last = json!({
                "reach": reached(probe, [&answer.seen.host]),
                "source": source(cluster, &probe.from, &answer),
            });
            if probe
                .backend
                .as_ref()
                .is_none_or(|wanted| *wanted == answer.seen.host)
            {
                self.flows
                    .insert(probe.id.clone(), (conversation, Some(answer.seen.host)));
                break;
            }
        }
        last
    }

    async fn existing_connection(&mut self, probe: &Probe) -> Value {
        let Some((conversation, first)) = self.flows.get_mut(&probe.id) else {
            return json!({"state": "not open"});
        };
        match conversation.again(Duration::from_millis(1500)).await {
            Ok(seen) => {
                json!({"state": "alive", "sameBackend": first.as_ref() == Some(&seen.host)})
            }
            Err(failure) => json!({"state": failure.to_string()}),
        }
    }

    /// Sends again from the same port and sees who answers now.
    async fn udp_after_endpoint_change(&mut self, probe: &Probe) -> Value {
        let Some((conversation, _)) = self.flows.get_mut(&probe.id) else {
            return json!({"fail": "not open"});
        };
        let mut outcomes = Vec::new();
        for _ in 0..probe.n.unwrap_or(3) {
            outcomes.push(conversation.again(Duration::from_millis(800)).await);
        }
        let (seen, failures) = split(outcomes);
        let mut observed = json!({});
        if !seen.is_empty() {
            observed["reach"] = reached(probe, seen.iter().map(|seen| &seen.host));
            let ports: BTreeSet<_> = seen.iter().map(|seen| seen.port).collect();
            if let (1, Some(port), true) = (
                ports.len(),
                ports.first(),
                seen.iter().all(|seen| seen.host != "lb"),
            ) {
                observed["port"] = json!(port);
            }
        }
        note_failures(&mut observed, &failures);
        observed
    }

    /// Several clients ask again and again: does each stay with its endpoint?
    async fn affinity(&mut self, cluster: &Cluster, probe: &Probe) -> Value {
        let flow = flow(cluster, probe);
        let mut clients: Vec<Option<IpAddr>> = match probe.sources.unwrap_or(1) {
            0 | 1 => vec![None],
            many => {
                let all = extra_sources(&probe.from, flow.to.is_ipv6());
                all.take(many)
                    .map(|text| Some(text.parse().unwrap()))
                    .collect()
            }
        };
        let mut random = Random::seeded(Random::fresh_seed());
        let mut answered: BTreeMap<Option<IpAddr>, Vec<String>> = BTreeMap::new();
        let mut failures = BTreeSet::new();
        // One round after the other: the first decides. Shuffled, so that taking turns does not
        // pass for remembering.
        for _ in 0..probe.n.unwrap_or(10) {
            for place in (1..clients.len()).rev() {
                clients.swap(place, random.below(place + 1));
            }
            let asking = clients.iter().map(|&source| {
                let flow = Flow {
                    source,
                    ..flow.clone()
                };
                async move { (source, host(cluster, &probe.from).ask(&flow).await) }
            });
            for (client, outcome) in stream::iter(asking)
                .buffer_unordered(16)
                .collect::<Vec<_>>()
                .await
            {
                match outcome {
                    Ok(answer) => answered.entry(client).or_default().push(answer.seen.host),
                    Err(failure) => drop(failures.insert(failure)),
                }
            }
        }
        let same = |hosts: &Vec<String>| hosts.iter().all(|host| *host == hosts[0]);
        let mut observed = json!({
            "sticky": !answered.is_empty() && answered.values().all(same),
            "reach": reached(probe, answered.values().flatten()),
        });
        let choice: BTreeMap<_, _> = answered
            .into_iter()
            .map(|(client, mut hosts)| (client, hosts.remove(0)))
            .collect();
        if let Some(earlier) = &probe.compare {
            observed["same"] = json!(self.choices.get(earlier) == Some(&choice));
        }
        if let Some(name) = &probe.save {
            self.choices.insert(name.clone(), choice);
        }
        note_failures(&mut observed, &failures);
        observed
    }
}

async fn connect(cluster: &Cluster, probe: &Probe, recorded: &Value) -> Value {
    let flow = Flow {
        patience: patience(recorded),
        ..flow(cluster, probe)
    };
    let times = probe.n.unwrap_or_else(|| attempts(recorded));
    let at_once = if flow.protocol == Protocol::Sctp {
        8
    } else {
        24
    };
    let asking = (0..times).map(|_| host(cluster, &probe.from).ask(&flow));
    let (answers, failures) = split(
        stream::iter(asking)
            .buffer_unordered(at_once)
            .collect()
            .await,
    );
    let mut observed = json!({});
    if !answers.is_empty() {
        describe_answers(cluster, probe, &answers, &mut observed);
    }
    note_failures(&mut observed, &failures);
    observed
}

fn describe_answers(cluster: &Cluster, probe: &Probe, answers: &[Answer], observed: &mut Value) {
    let mut sources: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    let mut ports: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for answer in answers {
        let name = answer.seen.host.as_str();
        sources
            .entry(name)
            .or_default()
            .insert(source(cluster, &probe.from, answer));
        ports
            .entry(name)
            .or_default()
            .insert(answer.seen.port.to_string());
        *counts.entry(name).or_default() += 1;
    }
    observed["reach"] = reached(probe, answers.iter().map(|answer| &answer.seen.host));
    observed["source"] = one_or_each(&sources);
    if !sources.contains_key("lb") {
        observed["port"] = one_or_each(&ports);
        if let Some(port) = observed["port"]
            .as_str()
            .and_then(|text| text.parse::<u16>().ok())
        {
            observed["port"] = json!(port);
        }
    }
    if let (Some(share), Some(least)) = (probe.min_share, counts.values().min()) {
        let even = (least * counts.len()) as f64 >= share * answers.len() as f64;
        observed["spread"] = json!(if even { "even" } else { "uneven" });
    }
}

/// So many that to miss one of the expected endpoints is a matter of one in a million.
fn attempts(recorded: &Value) -> usize {
    match (&recorded["reach"], recorded.get("fail")) {
        (Value::Array(endpoints), _) if endpoints.len() <= 1 => 12,
        (Value::Array(endpoints), _) => {
            let k = endpoints.len() as f64;
            ((k * 1e6).ln() / -(1.0 - 1.0 / k).ln()).ceil() as usize
        }
        (Value::Null, Some(_)) => 3,
        _ => 60,
    }
}

fn patience(recorded: &Value) -> Duration {
    Duration::from_millis(match recorded["fail"] == "timeout" {
        true => 1300,
        false if is_inside() => 10_000,
        false => 3500,
    })
}

fn host<'a>(cluster: &'a Cluster, name: &str) -> &'a Host {
    cluster
        .host(name)
        .unwrap_or_else(|| panic!("no host {name}"))
}

/// What the probe asks for.
pub(crate) fn flow(cluster: &Cluster, probe: &Probe) -> Flow {
    let protocol = match probe.proto.as_deref() {
        None | Some("tcp") => Protocol::Tcp,
        Some("udp") => Protocol::Udp,
        Some("sctp") => Protocol::Sctp,
        Some(protocol) => panic!("unknown protocol {protocol}"),
    };
    // As when the scenarios were recorded.
    let mut flow = Flow {
        heeds_sending: true,
        ..Flow::new(protocol, address(cluster, &probe.to))
    };
    flow.mark = mark(probe);
    flow.source = probe.src.as_ref().map(|text| text.parse().unwrap());
    flow
}

/// The mark that leads through the node that the probe names.
pub(crate) fn mark(probe: &Probe) -> Option<u32> {
    probe
        .via
        .as_ref()
        .map(|node| node.trim_start_matches("node").parse().unwrap())
}

/// `node1:80`, `node1/alt6:80`, `10.0.0.1:80` or `[fd00::1]:80`.
pub(crate) fn address(cluster: &Cluster, text: &str) -> SocketAddr {
    let (name, port) = text
        .rsplit_once(':')
        .unwrap_or_else(|| panic!("no port in {text}"));
    let (name, which) = name.split_once('/').unwrap_or((name, "ip"));
    match cluster.addresses.of(name, which) {
        Some(address) => SocketAddr::new(address, port.parse().unwrap()),
        None => text
            .parse()
            .unwrap_or_else(|_| panic!("no host or address {text}")),
    }
}

/// Whose address the endpoint saw: a node's, the client's own, or somebody else's.
fn source(cluster: &Cluster, from: &str, answer: &Answer) -> String {
    let seen = answer.seen.source.ip();
    match cluster.addresses.owner(seen) {
        Some(owner) if owner.starts_with("node") => owner.to_owned(),
        owner if seen == answer.local || owner == Some(from) => "own".to_owned(),
        Some(owner) => owner.to_owned(),
        None => format!("other:{seen}"),
    }
}

/// The names, or the word `among` where any of those would do.
fn reached<'a>(probe: &Probe, hosts: impl IntoIterator<Item = &'a String>) -> Value {
    let hosts: BTreeSet<_> = hosts.into_iter().collect();
    let any =
        |among: &Vec<String>| !hosts.is_empty() && hosts.iter().all(|host| among.contains(host));
    if probe.among.as_ref().is_some_and(any) {
        json!("among")
    } else {
        json!(hosts)
    }
}

/// The one value, or each host's where they differ.
fn one_or_each(values: &BTreeMap<&str, BTreeSet<String>>) -> Value {
    let joined: BTreeMap<_, _> = values
        .iter()
        .map(|(host, of_host)| (*host, of_host.iter().cloned().collect::<Vec<_>>().join("/")))
        .collect();
    let distinct: BTreeSet<_> = joined.values().collect();
    if distinct.len() == 1 {
        json!(distinct.first())
    } else {
        json!(joined)
    }
}

fn split<T>(outcomes: Vec<Result<T, Failure>>) -> (Vec<T>, BTreeSet<Failure>) {
    let (mut good, mut bad) = (Vec::new(), BTreeSet::new());
    for outcome in outcomes {
        match outcome {
            Ok(value) => good.push(value),
            Err(failure) => drop(bad.insert(failure)),
        }
    }
    (good, bad)
}

fn note_failures(observed: &mut Value, failures: &BTreeSet<Failure>) {
    if !failures.is_empty() {
        let mut texts: Vec<_> = failures.iter().map(Failure::to_string).collect();
        texts.sort();
        observed["fail"] = json!(texts.join("/"));
    }
}
