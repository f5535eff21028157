mod announcing;
mod checks;
mod early_packets;
mod reports;
mod static_files;

use super::comparison::CALM;
use super::*;
use portico_model::index::NodePortSetting;
use portico_model::objects::{
    EndpointSlice, Node, NodeAddress, Pod, Port, Service, SliceEndpoint, SlicePort,
};
use portico_model::table::{ForwardingTable, NodeRules, Ports};
use std::collections::VecDeque;
use std::io;
use std::sync::Mutex;

/// What a dataplane was asked for.
#[derive(Clone, Debug, PartialEq)]
enum Call {
    Replace(usize),
    Apply(usize),
    Tend,
}

/// A dataplane in memory. It checks what it is told as the kernel would, and fails when the script
/// says so.
#[derive(Default)]
struct Kernel {
    rules: NodeRules,
    ports: Ports,
    calls: Vec<Call>,
    failures: VecDeque<bool>,
    /// What it finds to be different when it next succeeds.
    drift: Vec<String>,
    installed_before: bool,
    due: Option<Instant>,
    depends_on_addresses: bool,
    undisturbed: bool,
}

#[derive(Clone, Default)]
struct Fake(Arc<Mutex<Kernel>>);

impl Fake {
    fn calls(&self) -> Vec<Call> {
        std::mem::take(&mut self.0.lock().unwrap().calls)
    }

    fn fail(&self, script: &[bool]) {
        self.0.lock().unwrap().failures = script.iter().copied().collect();
    }
}

impl Kernel {
    fn result(&mut self) -> Result<Report, ApplyError> {
        match self.failures.pop_front() {
            Some(true) => Err(ApplyError::Kernel {
                doing: "sending".to_owned(),
                source: io::Error::from_raw_os_error(libc::ENOBUFS),
            }),
            _ => Ok(Report {
                drift: std::mem::take(&mut self.drift),
                ..Report::default()
            }),
        }
    }
}

impl Dataplane for Fake {
    fn name(&self) -> &'static str {
        "fake"
    }

    fn replace(&mut self, table: &ForwardingTable) -> Result<Report, ApplyError> {
        let mut kernel = self.0.lock().unwrap();
        kernel.calls.push(Call::Replace(table.ports.len()));
        let report = kernel.result()?;
        (kernel.rules, kernel.ports) = (table.rules.clone(), table.ports.clone());
        Ok(report)
    }

    fn apply(&mut self, rules: &NodeRules, changes: &[Change]) -> Result<Report, ApplyError> {
        let mut kernel = self.0.lock().unwrap();
        kernel.calls.push(Call::Apply(changes.len()));
        let report = kernel.result()?;
        assert_eq!(kernel.rules, *rules, "new rules need a replace");
        for change in changes {
            assert_ne!(change.before, change.after);
            assert_eq!(
                kernel.ports.get(&change.key),
                change.before.as_ref(),
                "{}",
                change.key
            );
            match &change.after {
                Some(port) => kernel.ports.insert(change.key.clone(), Arc::clone(port)),
                None => kernel.ports.remove(&change.key),
            };
        }
        Ok(report)
    }

    fn is_undisturbed(&mut self) -> bool {
        self.0.lock().unwrap().undisturbed
    }

    fn depends_on_addresses(&self) -> bool {
        self.0.lock().unwrap().depends_on_addresses
    }

    fn due(&self) -> Option<Instant> {
        self.0.lock().unwrap().due
    }

    fn tend(&mut self, now: Instant) -> Result<Report, ApplyError> {
        let mut kernel = self.0.lock().unwrap();
        assert!(kernel.due.take().is_some_and(|due| due <= now));
        kernel.calls.push(Call::Tend);
        kernel.result()
    }

    fn is_installed(&mut self) -> Result<bool, ApplyError> {
        Ok(self.0.lock().unwrap().installed_before)
    }

    fn remove(&mut self) -> Result<(), ApplyError> {
        Ok(())
    }
}

#[derive(Clone, Default)]
struct FakeFlows(Arc<Mutex<Vec<Change>>>);

impl Flows for FakeFlows {
    fn changed(&mut self, changes: &[Change], _: &ForwardingTable, _: Instant) -> Ended {
        self.0.lock().unwrap().extend_from_slice(changes);
        Ended {
            v4: changes.len(),
            v6: 0,
        }
    }

    fn check(&mut self, _: &ForwardingTable) -> Ended {
        Ended::default()
    }

    fn check_due(&mut self, _: &ForwardingTable, _: Instant) -> Ended {
        Ended::default()
    }

    fn due(&self) -> Option<Instant> {
        None
    }
}

struct Rig {
    syncer: Syncer,
    kernel: Fake,
    ended: FakeFlows,
    now: Instant,
}

fn parts(kernel: &Fake, ended: &FakeFlows, now: Instant) -> Parts {
    Parts {
        settings: Settings {
            node_name: "node1".into(),
            own_address: None,
            detect_local: DetectLocal::ClusterCidr(Vec::new()),
            node_ports: NodePortSetting::Primary,
            masquerade_all: false,
            masquerade_mark: 0x4000,
            external_ips: true,
            load_balancer_ip_mode: true,
        },
        dataplane: Box::new(kernel.clone()),
        flows: Box::new(ended.clone()),
        monitor: Monitor::new(Duration::from_secs(60), &Family::BOTH),
        metrics: Arc::new(Metrics::new("nftables")),
        period: Duration::from_secs(30),
        timer: AlignedTimer::from(now),
        report: watch::Sender::default(),
        announcing: false,
        edge: false,
        journal: None,
        door: None,
        free: || {},
    }
}

impl Rig {
    fn new() -> Self {
        let (kernel, ended, now) = (Fake::default(), FakeFlows::default(), Instant::now());
        Self {
            syncer: Syncer::new(parts(&kernel, &ended, now), now),
            kernel,
            ended,
            now,
        }
    }

    /// With one Service of one endpoint.
    fn installed() -> Self {
        let mut rig = Self::new();
        rig.apply(service("a", "10.0.0.1"));
        rig.apply(slice("a", &["10.1.0.1"]));
        rig.lists_are_done();
        assert_eq!(rig.kernel.calls(), [Call::Replace(1)]);
        rig.ended.0.lock().unwrap().clear();
        rig
    }

    fn take(&mut self, input: Input) {
        self.syncer.take(input, self.now);
    }

    fn apply(&mut self, object: Object) {
        self.take(Input::Apply(object, self.now));
    }

    fn lists_are_done(&mut self) -> Vec<FollowUp> {
        for kind in [
            Kind::Service,
            Kind::Slice,
            Kind::Node,
            Kind::Pod,
            Kind::Partition,
        ] {
            let names = match kind {
                Kind::Service => self.syncer.cluster.index.service_names(),
                Kind::Pod => self.syncer.cluster.index.pod_names(),
                _ => self.syncer.cluster.index.slice_names(),
            };
            let names = names.iter().map(|key| Name::new(kind, key)).collect();
            self.take(Input::Listed(kind, names));
        }
        self.step()
    }

    fn step(&mut self) -> Vec<FollowUp> {
        self.syncer.step(self.now)
    }

    /// Go to the moment at which the loop would wake up by itself.
    fn wake(&mut self) -> Vec<FollowUp> {
        self.now = self.now.max(self.syncer.deadline().unwrap());
        self.step()
    }

    fn is_in_sync(&self) -> bool {
        self.kernel.0.lock().unwrap().ports == self.syncer.cluster.index.table().ports
    }
}

fn service(name: &str, address: &str) -> Object {
    let mut service = Service::default();
    service.metadata.name = name.to_owned();
    service.metadata.namespace = "default".to_owned();
    service.spec.type_ = "ClusterIP".to_owned();
    service.spec.cluster_ip = address.to_owned();
    service.spec.cluster_ips = vec![address.to_owned()];
    service.spec.ports = vec![Port {
        protocol: "TCP".to_owned(),
        port: 80,
        ..Port::default()
    }];
    Object::Service(Box::new(service))
}

fn slice(service: &str, addresses: &[&str]) -> Object {
    let mut slice = EndpointSlice {
        address_type: "IPv4".to_owned(),
        ..EndpointSlice::default()
    };
    slice.metadata.name = format!("{service}-1");
    slice.metadata.namespace = "default".to_owned();
    slice
        .metadata
        .labels
        .insert("kubernetes.io/service-name".to_owned(), service.to_owned());
    let port = SlicePort {
        name: Some(String::new()),
        protocol: Some("TCP".to_owned()),
        port: Some(8080),
    };
    slice.ports = Some(vec![port]);
    let endpoint = |address: &&str| SliceEndpoint {
        addresses: vec![(*address).to_owned()],
        ..SliceEndpoint::default()
    };
    slice.endpoints = Some(addresses.iter().map(endpoint).collect());
    Object::Slice(Box::new(slice))
}

fn node(address: &str) -> Object {
    let mut node = Node::default();
    node.metadata.name = "node1".to_owned();
    node.status.addresses = vec![NodeAddress {
        type_: "InternalIP".to_owned(),
        address: address.to_owned(),
    }];
    Object::Node(Box::new(node))
}

#[test]
fn nothing_is_installed_before_everything_is_listed() {
    let mut rig = Rig::new();
    rig.apply(service("a", "10.0.0.1"));
    rig.step();
    rig.take(Input::Listed(
        Kind::Service,
        HashSet::from([service("a", "").name()]),
    ));
    rig.step();
    assert_eq!(rig.kernel.calls(), []);
    assert_eq!(rig.syncer.deadline(), None);
    let follow_ups = rig.lists_are_done();
    assert_eq!(rig.kernel.calls(), [Call::Replace(1)]);
    assert!(follow_ups.contains(&FollowUp::Installed));
}

fn pod(name: &str, address: &str) -> Object {
    let mut pod = Pod::default();
    pod.metadata.namespace = "default".to_owned();
    pod.metadata.name = name.to_owned();
    pod.spec.node_name = "node1".to_owned();
    pod.status.pod_ip = address.to_owned();
    Object::Pod(Box::new(pod))
}

fn narrow(service: Object) -> Object {
    let Object::Service(mut service) = service else {
        panic!("no Service")
    };
    let visibility = portico_model::objects::VISIBILITY.to_owned();
    let annotations = &mut service.metadata.annotations;
    annotations.insert(visibility, "namespace".to_owned());
    Object::Service(service)
}

/// What an earlier process left stays until it is known which pods may use what: a table without
/// pods would shut all of them out.
#[test]
fn a_first_table_waits_for_the_pods_of_the_node() {
    let mut rig = Rig::new();
    rig.apply(narrow(service("a", "10.0.0.1")));
    rig.apply(pod("one", "10.1.0.1"));
    for kind in [Kind::Service, Kind::Slice, Kind::Node, Kind::Partition] {
        let names = HashSet::from([service("a", "").name()]);
        rig.take(Input::Listed(kind, names));
    }
    rig.step();
    assert_eq!(rig.kernel.calls(), []);
    rig.take(Input::Listed(
        Kind::Pod,
        HashSet::from([pod("one", "").name()]),
    ));
    rig.step();
    assert_eq!(rig.kernel.calls(), [Call::Replace(1)]);
    // A pod that is gone is shut out by the next batch, and one that a list does not have as well.
    let sources = |rig: &Rig| {
        let table = rig.syncer.cluster.table();
        let (_, port) = table.ports.iter().next().unwrap();
        port.frontends[0].sources.as_ref().unwrap().len()
    };
    rig.apply(pod("two", "10.1.0.2"));
    rig.step();
    assert_eq!(
        (rig.kernel.calls(), sources(&rig)),
        (vec![Call::Apply(1)], 2)
    );
    let gone = Input::Delete(pod("two", "").name(), rig.now);
    rig.take(gone);
    rig.step();
    assert_eq!(
        (rig.kernel.calls(), sources(&rig)),
        (vec![Call::Apply(1)], 1)
    );
    rig.take(Input::Listed(Kind::Pod, HashSet::new()));
    rig.step();
    assert_eq!(
        (rig.kernel.calls(), sources(&rig)),
        (vec![Call::Apply(1)], 0)
    );
}

#[test]
fn a_burst_becomes_one_batch() {
    let mut rig = Rig::installed();
    for number in 0..100 {
        rig.apply(service(&format!("s{number}"), &format!("10.0.1.{number}")));
        rig.apply(slice("a", &[&format!("10.1.0.{number}")]));
    }
    rig.step();
    assert_eq!(rig.kernel.calls(), [Call::Apply(101)]);
    assert!(rig.is_in_sync());
    rig.apply(slice("a", &["10.1.0.99"]));
    rig.step();
    assert_eq!(rig.kernel.calls(), [], "what changes nothing costs nothing");
}

#[test]
fn after_an_error_everything_is_compared() {
    let mut rig = Rig::installed();
    rig.kernel.fail(&[true, false]);
    rig.apply(slice("a", &["10.1.0.2"]));
    rig.step();
    assert_eq!(rig.kernel.calls(), [Call::Apply(1), Call::Replace(1)]);
    assert!(rig.is_in_sync());
}

#[test]
fn a_kernel_that_keeps_failing_is_not_hammered() {
    let mut rig = Rig::installed();
    let before = rig
        .syncer
        .cluster
        .index
        .table()
        .ports
        .iter()
        .next()
        .map(|(_, port)| port.clone());
    rig.kernel.fail(&[true, true, true, false]);
    rig.apply(slice("a", &["10.1.0.2"]));
    rig.step();
    assert_eq!(rig.kernel.calls(), [Call::Apply(1), Call::Replace(1)]);
    rig.apply(slice("a", &["10.1.0.3"]));
    rig.apply(service("b", "10.0.0.2"));
    rig.step();
    assert_eq!(rig.kernel.calls(), [], "not before the time has come");
    rig.wake();
    rig.wake();
    assert_eq!(rig.kernel.calls(), [Call::Replace(2), Call::Replace(2)]);
    assert!(rig.is_in_sync());
    // Flows are ended for all that changed meanwhile, seen from what the kernel had.
    let ended = rig.ended.0.lock().unwrap();
    let after = rig.syncer.cluster.index.table().ports.clone();
    let of_a = ended
        .iter()
        .find(|change| &*change.key.service.name == "a")
        .unwrap();
    assert_eq!((ended.len(), of_a.before.clone()), (2, before));
    assert_eq!(of_a.after.as_ref(), after.get(&of_a.key));
}

#[test]
fn new_rules_are_compared_as_a_whole() {
    let mut rig = Rig::installed();
    rig.apply(node("172.30.0.11"));
    rig.take(Input::Addresses(vec!["172.30.0.11".parse().unwrap()]));
    let follow_ups = rig.step();
    assert_eq!(rig.kernel.calls(), [Call::Replace(1)]);
    let listed = NodePortAddresses::Listed(vec!["172.30.0.11".parse().unwrap()]);
    assert!(
        matches!(&follow_ups[..], [FollowUp::NodePortAddresses(now)] if now.v4 == listed),
        "{follow_ups:?}"
    );
}

#[test]
fn drift_is_looked_for_from_time_to_time() {
    let mut rig = Rig::installed();
    let before = rig.now;
    rig.wake();
    assert_eq!(rig.now, before + Duration::from_secs(30));
    assert_eq!(rig.kernel.calls(), [Call::Replace(1)]);
    rig.kernel.0.lock().unwrap().undisturbed = true;
    rig.wake();
    assert_eq!(rig.now, before + Duration::from_secs(60));
    assert_eq!(rig.kernel.calls(), [], "nobody was there");
}

#[test]
fn a_disturbance_is_repaired_at_once_but_not_for_ever() {
    let mut rig = Rig::installed();
    rig.now += Duration::from_secs(1);
    rig.take(Input::Disturbed);
    rig.step();
    assert_eq!(rig.kernel.calls(), [Call::Replace(1)]);
    let repaired = rig.now;
    rig.take(Input::Disturbed);
    rig.take(Input::Disturbed);
    rig.step();
    assert_eq!(rig.kernel.calls(), []);
    rig.wake();
    assert_eq!(
        (rig.now, rig.kernel.calls()),
        (repaired + CALM, vec![Call::Replace(1)])
    );
}

#[test]
fn what_had_to_wait_is_done_when_it_is_due() {
    let mut rig = Rig::installed();
    rig.kernel.0.lock().unwrap().due = Some(rig.now + Duration::from_secs(10));
    rig.step();
    assert_eq!(rig.kernel.calls(), []);
    rig.wake();
    assert_eq!(rig.kernel.calls(), [Call::Tend]);
    rig.kernel.0.lock().unwrap().due = Some(rig.now);
    rig.kernel.fail(&[true]);
    rig.step();
    rig.wake();
    assert_eq!(
        rig.kernel.calls(),
        [Call::Tend, Call::Replace(1)],
        "what the kernel has then is not known"
    );
}

#[test]
fn addresses_that_matter_are_compared_with_at_once() {
    let address = |last| Input::Addresses(vec![IpAddr::from([192, 0, 2, last])]);
    let mut rig = Rig::installed();
    rig.take(address(1));
    rig.step();
    assert_eq!(rig.kernel.calls(), []);
    rig.kernel.0.lock().unwrap().depends_on_addresses = true;
    rig.take(address(1));
    rig.step();
    assert_eq!(rig.kernel.calls(), [], "they are the same");
    rig.take(address(2));
    rig.step();
    assert_eq!(rig.kernel.calls(), [Call::Replace(1)]);
}

#[test]
fn differences_are_somebody_elses_only_if_nothing_of_ours_failed() {
    let mut rig = Rig::installed();
    let drift = |rig: &Rig| rig.kernel.0.lock().unwrap().drift = vec!["chain gone".to_owned()];
    let repairs = |rig: &Rig, count: u32| {
        let text = rig.syncer.parts.metrics.text();
        assert!(
            text.contains(&format!("portico_drift_repairs_total {count}\n")),
            "{text}"
        );
    };
    drift(&rig);
    rig.kernel.fail(&[true, false]);
    rig.apply(slice("a", &["10.1.0.2"]));
    rig.step();
    repairs(&rig, 0);
    drift(&rig);
    rig.wake();
    repairs(&rig, 1);
}

#[test]
fn a_list_deletes_what_is_gone() {
    let mut rig = Rig::installed();
    rig.apply(service("b", "10.0.0.2"));
    rig.step();
    rig.take(Input::Listed(
        Kind::Service,
        HashSet::from([service("b", "").name()]),
    ));
    rig.step();
    assert!(rig.is_in_sync());
    let kernel = rig.kernel.0.lock().unwrap();
    assert_eq!(
        kernel
            .ports
            .keys()
            .map(|key| key.service.name.as_ref())
            .collect::<Vec<_>>(),
        ["b"]
    );
}

#[test]
fn first_things_are_first_on_an_empty_node() {
    let mut rig = Rig::new();
    rig.apply(service("tail", "10.0.0.9"));
    rig.take(Input::First(vec![
        service("kubernetes", "10.0.0.1"),
        slice("kubernetes", &["172.30.0.1"]),
    ]));
    rig.step();
    assert_eq!(rig.kernel.calls(), [Call::Replace(1)]);
    rig.apply(service("kubernetes", "10.0.0.1"));
    rig.lists_are_done();
    assert_eq!(rig.kernel.calls(), [Call::Replace(2)]);
}

#[test]
fn a_node_that_forwards_already_keeps_what_it_has() {
    let mut rig = Rig::new();
    rig.kernel.0.lock().unwrap().installed_before = true;
    rig.take(Input::First(vec![service("kubernetes", "10.0.0.1")]));
    rig.step();
    assert_eq!(rig.kernel.calls(), []);
}

#[test]
fn what_was_known_last_counts_until_there_is_a_list() {
    let mut rig = Rig::new();
    rig.take(Input::Remembered(vec![
        service("a", "10.0.0.1"),
        slice("a", &["10.1.0.1"]),
        service("old", "10.0.0.2"),
    ]));
    rig.step();
    assert_eq!(rig.kernel.calls(), [Call::Replace(2)]);
    rig.apply(service("a", "10.0.0.1"));
    rig.take(Input::Listed(
        Kind::Service,
        HashSet::from([service("a", "").name()]),
    ));
    rig.step();
    assert_eq!(rig.kernel.calls(), [Call::Apply(1)]);
    assert!(rig.is_in_sync());
    rig.take(Input::Remembered(vec![service("old", "10.0.0.2")]));
    rig.step();
    assert_eq!(rig.kernel.calls(), [], "too late to matter");
}

/// The API server answered while what was known last was being read.
#[test]
fn what_was_known_last_is_older_than_what_was_heard() {
    let mut rig = Rig::new();
    rig.apply(service("moved", "10.0.0.7"));
    rig.syncer
        .take(Input::Delete(service("gone", "").name(), rig.now), rig.now);
    rig.apply(slice("moved", &["10.1.0.1"]));
    rig.take(Input::Listed(
        Kind::Slice,
        HashSet::from([slice("moved", &[]).name()]),
    ));
    let old = [
        service("moved", "10.0.0.1"),
        service("gone", "10.0.0.2"),
        service("same", "10.0.0.3"),
    ];
    let old_slices = ["moved", "same"].map(|name| slice(name, &["10.1.0.9"]));
    rig.take(Input::Remembered(
        old.into_iter().chain(old_slices).collect(),
    ));
    rig.step();
    let kernel = rig.kernel.0.lock().unwrap();
    let found = kernel.ports.iter().map(|(key, port)| {
        let endpoints = port
            .cluster
            .iter()
            .map(|endpoint| endpoint.address.to_string())
            .collect::<Vec<_>>();
        (
            &*key.service.name,
            port.frontends[0].address.unwrap().to_string(),
            endpoints,
        )
    });
    let expected = [
        ("moved", "10.0.0.7", vec!["10.1.0.1"]),
        ("same", "10.0.0.3", vec![]),
    ];
    assert_eq!(
        found.collect::<Vec<_>>(),
        expected.map(|(name, address, endpoints)| (
            name,
            address.to_owned(),
            endpoints.into_iter().map(str::to_owned).collect()
        ))
    );
}

#[test]
fn the_own_address_counts_as_one_of_the_node() {
    let (kernel, ended, now) = (Fake::default(), FakeFlows::default(), Instant::now());
    let mut parts = parts(&kernel, &ended, now);
    parts.settings.own_address = Some("172.30.0.99".parse().unwrap());
    let mut syncer = Syncer::new(parts, now);
    syncer.take(
        Input::Addresses(vec![
            "172.30.0.99".parse().unwrap(),
            "172.30.0.11".parse().unwrap(),
        ]),
        now,
    );
    for object in [None, Some(node("172.30.0.11"))] {
        object.into_iter().for_each(|object| syncer.apply(&object));
        syncer.step(now);
        let listed = NodePortAddresses::Listed(vec!["172.30.0.99".parse().unwrap()]);
        assert_eq!(syncer.cluster.index.table().rules.node_ports.v4, listed);
        assert_eq!(
            syncer.cluster.index.eligible(),
            syncer.cluster.node.is_some(),
            "to know the address is not to know the node"
        );
    }
}

#[test]
fn addresses_that_never_change_are_told() {
    let (kernel, ended, now) = (Fake::default(), FakeFlows::default(), Instant::now());
    let mut parts = parts(&kernel, &ended, now);
    parts.settings.node_ports = NodePortSetting::Networks {
        networks: Vec::new(),
        loopback: true,
    };
    let told = Syncer::new(parts, now).step(now);
    let all = NodePortAddresses::AllLocal { loopback: true };
    assert!(
        matches!(&told[..], [FollowUp::NodePortAddresses(addresses)] if addresses.v4 == all),
        "{told:?}"
    );
}

#[test]
fn new_node_ports_are_told_once() {
    let mut rig = Rig::installed();
    let Object::Service(mut service) = service("b", "10.0.0.2") else {
        unreachable!()
    };
    service.spec.type_ = "NodePort".to_owned();
    service.spec.ports[0].node_port = 30080;
    rig.apply(Object::Service(service.clone()));
    let told = rig.step();
    assert!(
        matches!(&told[..], [FollowUp::NodePorts(new)] if new.len() == 1 && new[0].port == 30080),
        "{told:?}"
    );
    rig.apply(slice("b", &["10.1.0.5"]));
    assert_eq!(rig.step(), []);
}

#[test]
fn metrics_tell_what_happened() {
    let mut rig = Rig::installed();
    let Object::Slice(mut changed) = slice("a", &["10.1.0.2"]) else {
        unreachable!()
    };
    changed.metadata.annotations.insert(
        crate::objects::TRIGGER_TIME.to_owned(),
        "2020-01-01T00:00:00Z".to_owned(),
    );
    rig.apply(Object::Slice(changed));
    rig.step();
    let text = rig.syncer.parts.metrics.text();
    for line in [
        "kubeproxy_sync_proxy_rules_endpoint_changes_total 1",
        "kubeproxy_sync_proxy_rules_endpoint_changes_pending 0",
        "kubeproxy_sync_partial_proxy_rules_duration_seconds_count{ip_family=\"IPv4\"} 1",
        "kubeproxy_network_programming_duration_seconds_bucket{le=\"+Inf\",ip_family=\"IPv4\"} 1",
        "portico_service_programming_duration_seconds_count 1",
        "portico_service_programming_slowest_seconds{namespace=\"default\",service=\"a\"}",
    ] {
        assert!(text.contains(line), "{line} is not in\n{text}");
    }
}

#[test]
fn what_changed_nothing_does_not_count_as_slow_later() {
    let mut rig = Rig::installed();
    let long_ago = Instant::now() - Duration::from_secs(3600);
    rig.take(Input::Apply(service("a", "10.0.0.1"), long_ago));
    rig.step();
    assert!(
        rig.syncer
            .parts
            .metrics
            .text()
            .contains("kubeproxy_sync_proxy_rules_service_changes_pending 0")
    );
    rig.take(Input::Apply(service("a", "10.0.0.5"), Instant::now()));
    rig.step();
    let text = rig.syncer.parts.metrics.text();
    assert!(
        text.contains("portico_service_programming_duration_seconds_bucket{le=\"26.2144\"} 1"),
        "{text}"
    );
}

#[test]
fn a_kernel_that_keeps_failing_makes_the_node_unhealthy() {
    let (kernel, ended, now) = (Fake::default(), FakeFlows::default(), Instant::now());
    let monitor = Monitor::new(Duration::ZERO, &Family::BOTH);
    let mut syncer = Syncer::new(
        Parts {
            monitor: monitor.clone(),
            ..parts(&kernel, &ended, now)
        },
        now,
    );
    Kind::ALL
        .into_iter()
        .for_each(|kind| syncer.listed(kind, &HashSet::new()));
    kernel.fail(&[true]);
    syncer.step(now);
    assert!(!monitor.healthy());
    syncer.step(syncer.deadline().unwrap());
    assert!(monitor.healthy());
}

#[test]
fn nothing_to_begin_with_is_not_installed() {
    let mut rig = Rig::new();
    rig.take(Input::First(Vec::new()));
    assert_eq!(rig.kernel.calls(), []);
}

#[test]
fn memory_is_given_back_once_when_it_is_quiet_after_much_work() {
    let mut rig = Rig::installed();
    let (now, half) = (rig.now, QUIET / 2);
    let mut is_quiet = |inputs, now| {
        rig.syncer
            .step_and_free(inputs, now)
            .contains(&FollowUp::Quiet)
    };
    assert!(
        !is_quiet(SMALL_STEP, now) && !is_quiet(0, now + QUIET),
        "little was done"
    );
    assert!(
        !is_quiet(SMALL_STEP + 1, now)
            && !is_quiet(SMALL_STEP + 1, now + half)
            && !is_quiet(1, now + QUIET)
    );
    assert!(is_quiet(1, now + half + QUIET) && !is_quiet(1, now + 2 * QUIET));
    rig.syncer.step_and_free(SMALL_STEP + 1, now);
    assert_eq!(
        rig.syncer.deadline(),
        Some(now + QUIET),
        "nothing else wakes the loop before that"
    );
}

#[tokio::test]
async fn the_loop_drains_what_waits_and_ends_with_its_senders() {
    let (kernel, ended) = (Fake::default(), FakeFlows::default());
    let (inputs, received) = mpsc::channel(64);
    let (follow_ups, mut followed) = mpsc::channel(64);
    for number in 0..10 {
        let object = service(&format!("s{number}"), &format!("10.0.0.{number}"));
        inputs
            .send(Input::Apply(object, Instant::now()))
            .await
            .unwrap();
    }
    let names: HashSet<Name> = (0..10)
        .map(|number| service(&format!("s{number}"), "").name())
        .collect();
    for kind in [
        Kind::Service,
        Kind::Slice,
        Kind::Node,
        Kind::Pod,
        Kind::Partition,
    ] {
        inputs
            .send(Input::Listed(kind, names.clone()))
            .await
            .unwrap();
    }
    let parts = parts(&kernel, &ended, Instant::now());
    let sources = Sources {
        access: ApiAccess {
            kubeconfig: None,
            server: Some("http://127.0.0.1:1".to_owned()),
        },
        node: "node1".into(),
        answered: Arc::default(),
        early_packets: None,
        inputs: received,
    };
    let looping = tokio::task::spawn_blocking(move || run(parts, sources, follow_ups));
    let mut seen = Vec::new();
    while !seen.contains(&FollowUp::Installed) {
        seen.push(
            tokio::time::timeout(Duration::from_secs(10), followed.recv())
                .await
                .unwrap()
                .unwrap(),
        );
    }
    assert_eq!(kernel.calls(), [Call::Replace(10)]);
    drop(inputs);
    tokio::time::timeout(Duration::from_secs(10), looping)
        .await
        .unwrap()
        .unwrap()
        .unwrap();
}
