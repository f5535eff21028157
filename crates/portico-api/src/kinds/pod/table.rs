//! The row of a pod: how many containers are ready, and one word for what holds it up.

use crate::kinds::{Column, table};
use crate::object;
use serde_json::Value;

pub(super) const COLUMNS: &[Column] = &[
    table::NAME,
    table::column("Ready", "How many containers are ready."),
    table::column("Status", "The state of the containers in one word."),
    table::column(
        "Restarts",
        "How often containers were restarted, and how long ago last.",
    ),
    table::AGE,
    table::wide("IP", "The first address."),
    table::wide("Node", "The node it runs on."),
    table::wide(
        "Nominated Node",
        "The node it will run on once there is room.",
    ),
    table::wide(
        "Readiness Gates",
        "How many of the extra conditions for readiness are met.",
    ),
];

pub(super) fn row(pod: &Value, now: i64) -> Vec<Value> {
    let summary = Summary::of(pod);
    let none = |path: &str| Value::from(table::or(object::text(pod, path), "<none>"));
    vec![
        object::name(pod).into(),
        format!("{}/{}", summary.ready, summary.total).into(),
        summary.reason.into(),
        restarts(summary.restarts, &summary.last_restart, now).into(),
        table::age(pod, now),
        none("status.podIP"),
        none("spec.nodeName"),
        none("status.nominatedNodeName"),
        readiness_gates(pod).into(),
    ]
}

#[derive(Default)]
struct Summary {
    total: usize,
    ready: usize,
    reason: String,
    restarts: i64,
    last_restart: String,
}

impl Summary {
    fn of(pod: &Value) -> Self {
        let mut summary = Self {
            reason: phase_reason(pod).to_owned(),
            ..Self::default()
        };
        summary.total = object::items(pod, "spec.containers").len()
            + object::items(pod, "spec.initContainers")
                .iter()
                .filter(|one| is_sidecar(one))
                .count();
        let initializing = summary.init_containers(pod);
        if !initializing || condition(pod, "Initialized") == Some("True") {
            summary.containers(pod);
        }
        let terminal = ["Succeeded", "Failed"].contains(&object::text(pod, "status.phase"));
        if !object::text(pod, "metadata.deletionTimestamp").is_empty() {
            if object::text(pod, "status.reason") == "NodeLost" {
                "Unknown".clone_into(&mut summary.reason);
            } else if !terminal {
                "Terminating".clone_into(&mut summary.reason);
            }
        }
        summary
    }

    /// Go through the init containers up to the first that has not done its part; is there one?
    fn init_containers(&mut self, pod: &Value) -> bool {
        let specs = object::items(pod, "spec.initContainers");
        for (index, status) in object::items(pod, "status.initContainerStatuses")
            .iter()
            .enumerate()
        {
            self.count_restarts(status);
            let name = object::text(status, "name");
            let sidecar = specs
                .iter()
                .any(|spec| object::text(spec, "name") == name && is_sidecar(spec));
            let ended = object::at(status, "state.terminated");
            if ended.is_object() && exit_code(ended) == 0 {
                continue;
            }
            if sidecar && object::at(status, "started") == true {
                self.ready += usize::from(object::at(status, "ready") == true);
                continue;
            }
            self.reason = match object::text(status, "state.waiting.reason") {
                _ if ended.is_object() => format!("Init:{}", ended_reason(ended)),
                "" | "PodInitializing" => format!("Init:{index}/{}", specs.len()),
                waiting => format!("Init:{waiting}"),
            };
            return true;
        }
        false
    }

    fn containers(&mut self, pod: &Value) {
        self.restarts = 0;
        self.last_restart.clear();
        let specs = object::items(pod, "spec.initContainers");
        for status in object::items(pod, "status.initContainerStatuses") {
            let name = object::text(status, "name");
            if specs
                .iter()
                .any(|spec| object::text(spec, "name") == name && is_sidecar(spec))
            {
                self.count_restarts(status);
            }
        }
        let (mut running, mut failure) = (false, String::new());
        for status in object::items(pod, "status.containerStatuses").iter().rev() {
            self.count_restarts(status);
            let ended = object::at(status, "state.terminated");
            let waiting = object::text(status, "state.waiting.reason");
            if !waiting.is_empty() {
                waiting.clone_into(&mut self.reason);
            } else if ended.is_object() {
                self.reason = ended_reason(ended);
                if exit_code(ended) != 0 {
                    failure.clone_from(&self.reason);
                }
            } else if object::at(status, "ready") == true
                && object::at(status, "state.running").is_object()
            {
                running = true;
                self.ready += 1;
            }
        }
        if self.reason == "Completed" {
            match (
                running,
                condition(pod, "Ready") == Some("True"),
                failure.is_empty(),
            ) {
                (true, true, _) => "Running".clone_into(&mut self.reason),
                (_, _, false) => self.reason = failure,
                (true, ..) => "NotReady".clone_into(&mut self.reason),
                _ => {}
            }
        }
    }

    fn count_restarts(&mut self, status: &Value) {
        self.restarts += object::at(status, "restartCount")
            .as_i64()
            .unwrap_or_default();
        let ended = object::text(status, "lastState.terminated.finishedAt");
        let seconds = table::seconds_since_1970;
        if seconds(ended) > seconds(&self.last_restart) {
            ended.clone_into(&mut self.last_restart);
        }
    }
}

fn phase_reason(pod: &Value) -> &str {
    const GATED: &str = "SchedulingGated";
    let gated = object::items(pod, "status.conditions").iter().any(|one| {
        object::text(one, "type") == "PodScheduled" && object::text(one, "reason") == GATED
    });
    match gated {
        true => GATED,
        false => table::or(
            object::text(pod, "status.reason"),
            object::text(pod, "status.phase"),
        ),
    }
}

fn is_sidecar(container: &Value) -> bool {
    object::text(container, "restartPolicy") == "Always"
}

fn exit_code(ended: &Value) -> i64 {
    object::at(ended, "exitCode").as_i64().unwrap_or_default()
}

fn ended_reason(ended: &Value) -> String {
    match (
        object::text(ended, "reason"),
        object::at(ended, "signal").as_i64().unwrap_or_default(),
    ) {
        ("", 0) => format!("ExitCode:{}", exit_code(ended)),
        ("", signal) => format!("Signal:{signal}"),
        (reason, _) => reason.to_owned(),
    }
}

fn condition<'a>(pod: &'a Value, kind: &str) -> Option<&'a str> {
    let conditions = object::items(pod, "status.conditions");
    conditions
        .iter()
        .find(|one| object::text(one, "type") == kind)
        .map(|one| object::text(one, "status"))
}

fn restarts(count: i64, last: &str, now: i64) -> String {
    match table::seconds_since_1970(last) {
        Some(then) if count != 0 => format!(
            "{count} ({} ago)",
            table::human_duration(now.saturating_sub(then))
        ),
        _ => count.to_string(),
    }
}

fn readiness_gates(pod: &Value) -> String {
    let gates = object::items(pod, "spec.readinessGates");
    let met = |gate: &&Value| condition(pod, object::text(gate, "conditionType")) == Some("True");
    match gates.len() {
        0 => "<none>".to_owned(),
        total => format!("{}/{total}", gates.iter().filter(met).count()),
    }
}
