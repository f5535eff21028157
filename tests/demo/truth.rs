//! What the tools say of the demo is true within seconds, and all of them say the same.

use crate::rig::{Demo, PATIENCE, good, shell};
use serde_json::Value;
use std::time::{Duration, Instant};

/// Within this time everything is told.
const SOON: Duration = Duration::from_secs(5);
const PORTICO: &str = env!("CARGO_BIN_EXE_portico");
const LAB: &str = "test-truth";

/// Who looks at the demo from outside, with its kubeconfig.
struct Operator(Demo);

impl Operator {
    /// What a command of `portico` answers as JSON, whatever its exit code is.
    fn asks(&self, command: &str) -> Value {
        let kubeconfig = &self.0.kubeconfig;
        let output = shell(&format!(
            "{PORTICO} {command} --kubeconfig {kubeconfig} --output json"
        ));
        let text = String::from_utf8_lossy(&output.stdout);
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{command}: {error}: {output:?}"))
    }

    fn exit_code(&self, command: &str) -> Option<i32> {
        let kubeconfig = &self.0.kubeconfig;
        let output = shell(&format!("{PORTICO} {command} --kubeconfig {kubeconfig}"));
        println!("{}", String::from_utf8_lossy(&output.stdout));
        output.status.code()
    }

    fn kubectl(&self, command: &str) -> String {
        good(&shell(&format!(
            "kubectl --kubeconfig {} {command}",
            self.0.kubeconfig
        )))
    }

    fn lab(&self, order: &str) {
        good(&shell(&format!("{PORTICO} lab --lab {LAB} {order}")));
    }

    /// How long it takes until something is so.
    fn until(&self, what: &str, is_so: impl Fn(&Self) -> bool) -> Duration {
        let began = Instant::now();
        while !is_so(self) {
            assert!(
                began.elapsed() < PATIENCE,
                "never: {what}\n{}",
                self.asks("status")
            );
        }
        println!("{:>5} ms until {what}", began.elapsed().as_millis());
        began.elapsed()
    }

    fn all_is_well(&self) {
        self.until("all is well", |it| it.asks("status")["verdict"] == "well");
        // One that joins later takes its share of the addresses.
        self.until("all nodes share addresses out", |it| {
            let nodes = it.asks("get nodes");
            let mut nodes = nodes.as_array().unwrap().iter();
            nodes.all(|node| {
                let members = node["report"]["announcing"]["members"].as_array();
                members.is_some_and(|members| members.len() == 3)
            })
        });
    }

    /// The node that answers for the demo's address, by `portico status`.
    fn owner(&self) -> String {
        let status = self.asks("status");
        let node = status["addresses"][0]["node"].as_str();
        node.unwrap_or_default().to_owned()
    }

    fn condition(&self) -> String {
        let path = "{.status.conditions[?(@.type==\"Announced\")].message}";
        self.kubectl(&format!("get service web -o 'jsonpath={path}'"))
    }

    /// A node stops to work; who has the address afterwards.
    fn loses(&self, order: &str, lost: &str) {
        self.lab(&format!("{order} {lost}"));
        let of = format!("node/{lost}");
        let named = self.until(&format!("status names {lost} ({order})"), |it| {
            let status = it.asks("status");
            let mut trouble = status["trouble"].as_array().unwrap().iter();
            trouble.any(|trouble| {
                let what = trouble["what"].as_str().unwrap_or_default();
                trouble["of"] == *of && what.starts_with("has not reported")
            })
        });
        assert!(named < SOON, "{named:?}");
        assert_eq!(self.exit_code("status"), Some(1), "degraded");
        let nodes = self.asks("get nodes");
        let shown = nodes.as_array().unwrap().iter();
        let silent: Vec<&Value> = shown.filter(|node| node["state"] == "silent").collect();
        assert_eq!(silent.len(), 1, "{nodes}");
        assert_eq!(silent[0]["name"], lost);
        self.all_say_the_same(lost);
    }

    /// The condition, `status`, `get` and `explain` name the same owner, and not this one.
    fn all_say_the_same(&self, lost: &str) {
        let owner = self.owner();
        assert!(!owner.is_empty() && owner != lost, "{owner}");
        let told = format!("{owner} answers for 192.0.2.200 since ");
        let named = self.until(&format!("the condition names {owner}"), |it| {
            it.condition().starts_with(&told)
        });
        assert!(named < SOON, "{named:?}");
        let condition = self.condition();
        assert!(
            condition.contains(&format!("before: {lost})")),
            "{condition}"
        );
        let services = self.asks("get services web");
        assert_eq!(services[0]["owners"][0]["node"], *owner);
        assert_eq!(services[0]["owners"][0]["before"], lost);
        let asked = "explain --from 203.0.113.9 --to 192.0.2.200:80 --no-kernel";
        assert_eq!(self.asks(asked)["node"], *owner);
    }
}

#[test]
fn what_is_said_is_true_within_seconds() {
    let operator = Operator(Demo::start(LAB));
    operator.all_is_well();

    operator.kubectl("create service clusterip fresh --tcp=80:8080");
    assert_eq!(
        operator.exit_code("status"),
        Some(0),
        "a change is no trouble"
    );
    let live = operator.until("a new Service is live on all nodes", |it| {
        let live = &it.asks("get services fresh")[0]["live"];
        live["on"] == 3 && live["of"] == 3
    });
    assert!(live < SOON, "{live:?}");

    let first = operator.owner();
    operator.loses("pause", &first);
    operator.lab(&format!("resume {first}"));
    operator.all_is_well();
    operator.until("the address is back", |it| it.owner() == first);

    operator.loses("kill", &first);
    let events = operator.kubectl("get events --field-selector reason=OwnerChanged");
    assert!(
        events.contains(&format!("and no longer {first}")),
        "{events}"
    );
    operator.lab(&format!("start {first}"));
    operator.all_is_well();

    let daemons = good(&shell(&format!(
        "ps -o pid=,args= --ppid {}",
        operator.0.child.id()
    )));
    let dns = daemons.lines().find(|line| line.contains(" dns "));
    let dns = dns.and_then(|line| line.split_whitespace().next()).unwrap();
    good(&shell(&format!("kill -KILL {dns}")));
    let told = operator.until("a dead DNS server is told", |it| {
        let status = it.asks("status");
        let mut trouble = status["trouble"].as_array().unwrap().iter();
        trouble.any(|trouble| {
            let what = trouble["what"].as_str().unwrap_or_default();
            what.starts_with("`portico dns`")
        })
    });
    assert!(told < SOON, "{told:?}");

    operator.kubectl("delete node node3");
    let told = operator.until("a removed node is told", |it| {
        let status = it.asks("status");
        let mut trouble = status["trouble"].as_array().unwrap().iter();
        trouble.any(|trouble| {
            let what = trouble["what"].as_str().unwrap_or_default();
            trouble["of"] == "node/node3" && what.contains("there is no Node of this name")
        })
    });
    assert!(told < SOON, "{told:?}");
}
