//! `portico controller`, `portico node` and `portico dns` with nothing but the rights of
//! `deploy/rbac`, and the node with nothing but the capabilities of the chart: a load balancer
//! comes to life and goes. What the server wrote down about it tells that nothing was refused, and
//! which rights nobody used.

use crate::common::client::MERGE;
use crate::common::{Client, PATIENCE, Server, Store, at, eventually, text};
use crate::deploy;
use crate::objects::{collection, documents};
use portico_testbed::{Host, Process, Testbed};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs;
use std::process::{Command, Stdio};

const PROGRAM: &str = env!("CARGO_BIN_EXE_portico");
const NAMESPACE: &str = "kube-system";
const SERVICES: &str = "/api/v1/namespaces/default/services";

/// What a right allows, as `verb group/resource`; with the name where it is for one object only.
type Rights = BTreeSet<String>;

fn objects(file: &str) -> Vec<Value> {
    let text = fs::read_to_string(deploy().join("rbac").join(file)).unwrap();
    documents(&text)
}

fn granted(objects: &[Value]) -> Rights {
    let mut rights = Rights::new();
    let list = |rule: &Value, key: &str| -> Vec<String> {
        serde_json::from_value(rule[key].clone()).unwrap_or_default()
    };
    for rule in objects
        .iter()
        .flat_map(|object| object["rules"].as_array().into_iter().flatten())
    {
        let names = list(rule, "resourceNames");
        for (group, resource) in list(rule, "apiGroups").iter().flat_map(|group| {
            let resources = list(rule, "resources").into_iter();
            resources
                .map(move |resource| (group, resource))
                .collect::<Vec<_>>()
        }) {
            for verb in list(rule, "verbs") {
                let names = if names.is_empty() {
                    vec![String::new()]
                } else {
                    names.clone()
                };
                rights.extend(
                    names
                        .iter()
                        .map(|name| right(&verb, group, &resource, name)),
                );
            }
        }
    }
    rights
}

fn right(verb: &str, group: &str, resource: &str, name: &str) -> String {
    format!("{verb} {group}/{resource} {name}")
        .trim()
        .to_owned()
}

/// What an account asked for, by the audit log; what was refused is told apart.
fn asked(audit: &str, user: &str, granted: &Rights) -> (Rights, Vec<String>) {
    let (mut used, mut refused) = (Rights::new(), Vec::new());
    for line in audit.lines() {
        let event: Value = serde_json::from_str(line).unwrap();
        let reference = &event["objectRef"];
        if text(&event, "user.username") != user || reference.is_null() {
            continue;
        }
        let resource = match text(reference, "subresource") {
            "" => text(reference, "resource").to_owned(),
            sub => format!("{}/{sub}", text(reference, "resource")),
        };
        let (verb, group) = (text(&event, "verb"), text(reference, "apiGroup"));
        if at(&event, "annotations")["authorization.k8s.io/decision"] == "forbid" {
            refused.push(line.to_owned());
        }
        let named = right(verb, group, &resource, text(reference, "name"));
        used.insert(if granted.contains(&named) {
            named
        } else {
            right(verb, group, &resource, "")
        });
    }
    (used, refused)
}

/// The program with the capabilities that the chart gives to nodes, and no others.
fn confined() -> Command {
    let manifest = fs::read_to_string(deploy().join("manifests/node.yaml")).unwrap();
    let objects = documents(&manifest);
    let daemons = objects
        .iter()
        .find(|object| text(object, "kind") == "DaemonSet")
        .unwrap();
    let given = at(
        daemons,
        "spec.template.spec.containers.0.securityContext.capabilities.add",
    );
    let given = given
        .as_array()
        .unwrap()
        .iter()
        .map(|name| format!(",+{}", name.as_str().unwrap().to_lowercase()));
    let mut command = Command::new("setpriv");
    command.args(["--no-new-privs", "--inh-caps=-all"]);
    command
        .arg(format!("--bounding-set=-all{}", given.collect::<String>()))
        .arg(PROGRAM);
    command
}

struct Rig {
    server: Server,
    admin: Client,
    node: Host,
}

impl Rig {
    /// The objects of a file, and a kubeconfig for its account.
    async fn install(&self, file: &str, account: &str) -> Vec<Value> {
        let objects = objects(file);
        for object in &objects {
            self.admin
                .post(&collection(object), object)
                .await
                .expect(201);
        }
        let path = format!("/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{account}/token");
        let request =
            json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
        let token = text(
            &self.admin.post(&path, &request).await.expect(201),
            "status.token",
        )
        .to_owned();
        let kubeconfig = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: test\n\
             clusters: [{{name: test, cluster: {{server: 'https://127.0.0.1:{}', certificate-authority: '{}'}}}}]\n\
             users: [{{name: account, user: {{token: {token}}}}}]\n\
             contexts: [{{name: test, context: {{cluster: test, user: account}}}}]\n",
            self.server.port,
            self.server.cert_dir().join("ca.crt").display(),
        );
        fs::write(self.server.dir().join(account), kubeconfig).unwrap();
        objects
    }

    fn run(&self, account: &str, arguments: &[&str]) -> Process {
        let log = fs::File::create(self.server.dir().join(format!("{account}.log"))).unwrap();
        let mut command = if account == "portico-node" {
            confined()
        } else {
            Command::new(PROGRAM)
        };
        command
            .args(arguments)
            .arg("--kubeconfig")
            .arg(self.server.dir().join(account));
        command
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log);
        self.node.spawn(command).unwrap()
    }

    async fn condition(&self, name: &str, kind: &str, reason: &str) {
        eventually(&format!("{name} is {kind} because of {reason}"), || async {
            let service = self.admin.get(&format!("{SERVICES}/{name}")).await.json();
            let conditions = at(&service, "status.conditions")
                .as_array()
                .cloned()
                .unwrap_or_default();
            let is = |held: &Value| text(held, "type") == kind && text(held, "reason") == reason;
            conditions.iter().any(is).then_some(())
        })
        .await;
    }

    async fn service(&self, name: &str, more: Value) {
        let mut spec = json!({"type": "LoadBalancer", "ports": [{"name": "http", "port": 80}]});
        spec.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        self.admin.create_service(name, spec).await.expect(201);
    }
}

#[test]
fn they_are_enough_and_no_more() {
    let bed = Testbed::new().unwrap();
    let (node, router) = (bed.host("node1").unwrap(), bed.host("router").unwrap());
    node.cable("eth0", &router, "eth0").unwrap();
    node.address("eth0", "172.30.0.11/24").unwrap();
    node.clone().enter(|| {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(story(node));
    });
}

async fn story(node: Host) {
    let dir = tempfile::TempDir::with_prefix("portico-audit-").unwrap();
    let audit = dir.path().join("audit.log");
    let server = Server::start(
        Store::Embedded,
        &[
            "--endpoint-slice-controller=false",
            &format!("--audit-log={}", audit.display()),
        ],
    )
    .await;
    let rig = Rig {
        admin: server.admin(),
        server,
        node,
    };
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node1"}});
    rig.admin.post("/api/v1/nodes", &node).await.expect(201);
    let of_controller = granted(&rig.install("controller.yaml", "portico-controller").await);
    let of_node = granted(&rig.install("node.yaml", "portico-node").await);
    let flags = [
        "--controllers=service-lb",
        "--cloud-provider=metal",
        "--metrics-bind-address=0",
    ];
    let mut controller = rig.run(
        "portico-controller",
        &[&["controller"], &flags[..]].concat(),
    );
    let data = format!("--data-dir={}", rig.server.dir().join("node").display());
    let flags = [
        "--hostname-override=node1",
        "--static-services=",
        "--cluster-cidr=10.244.0.0/16",
        &data,
    ];
    let _node = rig.run("portico-node", &[&["node"], &flags[..]].concat());
    let of_dns = granted(&rig.install("dns.yaml", "portico-dns").await);
    let flags = [
        "dns",
        "--zone=k8s.example.com",
        "--listen=127.0.0.1:5353",
        "--metrics-bind-address=none",
    ];
    let _dns = rig.run("portico-dns", &flags);

    // A load balancer that comes to life, one that has to wait, one that has to move, and all of
    // them go.
    let pools = "/apis/portico.dev/v1/addresspools";
    let pool = json!({"apiVersion": "portico.dev/v1", "kind": "AddressPool", "metadata": {"name": "public"},
        "spec": {"addresses": ["192.0.2.10-192.0.2.11"]}});
    rig.admin.post(pools, &pool).await.expect(201);
    rig.service("web", json!({})).await;
    rig.condition("web", "Programmed", "Programmed").await;
    rig.service("other", json!({"loadBalancerIP": "192.0.2.11"}))
        .await;
    rig.condition("other", "Programmed", "Programmed").await;
    rig.service("waits", json!({})).await;
    rig.condition("waits", "Allocated", "PoolExhausted").await;
    let less = json!({"spec": {"addresses": ["192.0.2.11-192.0.2.13"]}});
    rig.admin
        .patch(&format!("{pools}/public"), MERGE, &less)
        .await
        .expect(200);
    eventually("web has moved", || async {
        let service = rig.admin.get(&format!("{SERVICES}/web")).await.json();
        let address = text(&service, "status.loadBalancer.ingress.0.ip");
        (!["", "192.0.2.10"].contains(&address)).then_some(())
    })
    .await;
    rig.condition("waits", "Programmed", "Programmed").await;
    // Two Services with one address: the node tells that it cannot have both.
    let twice = json!({"type": "ClusterIP", "ports": [{"name": "http", "port": 80}], "externalIPs": ["192.0.2.11"]});
    rig.admin.create_service("twice", twice).await.expect(201);
    for name in ["web", "other", "waits"] {
        rig.admin.delete(&format!("{SERVICES}/{name}")).await;
    }
    eventually("no claim is left", || async {
        let blocks = rig
            .admin
            .get("/apis/portico.dev/v1/addressblocks")
            .await
            .expect(200);
        (blocks["items"] == json!([])).then_some(())
    })
    .await;
    rig.admin
        .get(&format!(
            "/api/v1/namespaces/{NAMESPACE}/secrets/portico-announce"
        ))
        .await
        .expect(200);

    eventually("the names of the cluster are known", || async {
        let user = format!("system:serviceaccount:{NAMESPACE}:portico-dns");
        let used = asked(&fs::read_to_string(&audit).unwrap(), &user, &of_dns).0;
        let mut left = of_dns.difference(&used);
        left.all(|right| DNS_MAY_REST.contains(&right.as_str()))
            .then_some(())
    })
    .await;

    // It gives its lease back.
    assert!(
        controller
            .terminate(PATIENCE)
            .is_some_and(|status| status.success())
    );

    for (account, granted, may_rest) in [
        ("portico-controller", &of_controller, CONTROLLER_MAY_REST),
        ("portico-node", &of_node, NODE_MAY_REST),
        ("portico-dns", &of_dns, DNS_MAY_REST),
    ] {
        let log = || fs::read_to_string(rig.server.dir().join(format!("{account}.log"))).unwrap();
        let user = format!("system:serviceaccount:{NAMESPACE}:{account}");
        let (used, refused) = asked(&fs::read_to_string(&audit).unwrap(), &user, granted);
        assert!(
            refused.is_empty(),
            "{account} was refused: {refused:#?}\n{}",
            log()
        );
        let left: Vec<&String> = granted
            .difference(&used)
            .filter(|right| !may_rest.contains(&right.as_str()))
            .collect();
        assert!(
            left.is_empty(),
            "rights of {account} that nobody used: {left:?}"
        );
    }
}

/// An Event that is told again is counted, if it is told again; a block is read again where
/// somebody else was faster. The right to create what an apply does not find is asked for without
/// being a request of its own.
const CONTROLLER_MAY_REST: &[&str] = &[
    "create /secrets portico-announce",
    "get portico.dev/addressblocks",
    "patch /events",
    "patch events.k8s.io/events",
];
const DNS_MAY_REST: &[&str] = &["create coordination.k8s.io/leases"];
/// A node that announces nothing asks for none of it.
const NODE_MAY_REST: &[&str] = &[
    "get /secrets portico-announce",
    "list portico.dev/addresspools",
    "list portico.dev/bgppeers",
    "watch portico.dev/addresspools",
    "watch portico.dev/bgppeers",
];
