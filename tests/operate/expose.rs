//! `portico expose` with real HTTP servers: one dies, and its endpoint goes; it comes back, and so
//! does the endpoint. In a network namespace, because endpoints cannot have loopback addresses.

use crate::common::{Server, Store, eventually};
use crate::rig::at;
use portico_testbed::Testbed;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpSocket;
use tokio::task::JoinHandle;

const FIRST: &str = "172.30.0.11:8080";
const SECOND: &str = "172.30.0.12:8080";
const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";

fn in_namespace<F: Future<Output = ()>>(story: impl FnOnce() -> F) {
    let bed = Testbed::new().unwrap();
    let (machine, other) = (bed.host("machine").unwrap(), bed.host("other").unwrap());
    machine.cable("eth0", &other, "eth0").unwrap();
    machine.address("eth0", "172.30.0.11/24").unwrap();
    machine.address("eth0", "172.30.0.12/24").unwrap();
    machine.enter(|| {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(story());
    });
}

/// An HTTP server whose `/healthz` is good.
struct Web(JoinHandle<()>);

impl Web {
    fn start(address: &str) -> Self {
        let address: SocketAddr = address.parse().unwrap();
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_reuseaddr(true).unwrap();
        socket.bind(address).unwrap();
        let listener = socket.listen(64).unwrap();
        Self(tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut request = vec![0; 1024];
                let count = stream.read(&mut request).await.unwrap_or(0);
                let is_check = request[..count].starts_with(b"GET /healthz ");
                let answer = if is_check {
                    "HTTP/1.1 200 OK\r\n\r\n"
                } else {
                    "HTTP/1.1 404 Not Found\r\n\r\n"
                };
                let _ = stream.write_all(answer.as_bytes()).await;
            }
        }))
    }

    async fn stop(self) {
        self.0.abort();
        let _ = self.0.await;
    }
}

/// Who is ready, as nodes are told.
async fn ready(server: &Server) -> Vec<String> {
    let list = server
        .admin()
        .get(&format!(
            "{SLICES}?labelSelector=kubernetes.io/service-name%3Dweb"
        ))
        .await
        .expect(200);
    let slices = list["items"].as_array().unwrap().iter();
    let endpoints =
        slices.flat_map(|slice| slice["endpoints"].as_array().cloned().unwrap_or_default());
    let ready = endpoints.filter(|endpoint| endpoint["conditions"]["ready"] == true);
    ready
        .map(|endpoint| endpoint["addresses"][0].as_str().unwrap().to_owned())
        .collect()
}

async fn becomes(server: &Server, what: &str, wanted: &[&str]) {
    eventually(what, || async {
        (ready(server).await == wanted).then_some(())
    })
    .await;
}

/// The machine is no node of the cluster.
const RANGES: &str = "--health-check-ranges=cluster,172.30.0.0/24";
const TO: &str = "--to=172.30.0.11:8080,172.30.0.12:8080";
const SOON: [&str; 4] = [
    "--interval=200ms",
    "--timeout=200ms",
    "--rise=2",
    "--fall=2",
];

#[test]
fn a_server_that_dies_gets_no_traffic_until_it_is_back() {
    in_namespace(|| async {
        let server = Server::start(Store::Embedded, &[RANGES]).await;
        let (_first, second) = (Web::start(FIRST), Web::start(SECOND));
        let arguments = [
            &["expose", "web", "--port=80", TO, "--health=http:/healthz"][..],
            &SOON,
        ]
        .concat();
        let ran = at(&server, &arguments).await;
        assert!(ran.expect(0).contains("default/web"), "{}", ran.out);
        assert!(
            ran.out.contains("172.30.0.11:8080   to be checked"),
            "{}",
            ran.out
        );
        becomes(&server, "both are ready", &["172.30.0.11", "172.30.0.12"]).await;
        let status = at(&server, &["status"]).await;
        let only = "Trouble (1):\n  nodes: there are no nodes";
        assert!(status.expect(2).contains(only), "{}", status.out);

        second.stop().await;
        becomes(&server, "the one that died is not ready", &["172.30.0.11"]).await;
        let shown = at(&server, &["get", "endpoints", "web", "--output=json"])
            .await
            .json(0);
        let down = shown
            .as_array()
            .unwrap()
            .iter()
            .find(|one| one["address"] == SECOND)
            .unwrap();
        assert!(
            down["trouble"].as_str().unwrap().contains("refused"),
            "{down}"
        );
        let table = at(&server, &["get", "services"]).await;
        assert!(
            table
                .expect(0)
                .lines()
                .any(|line| line.starts_with("web ") && line.contains("1 of 2")),
            "{}",
            table.out
        );

        // To say the same again changes nothing that the checks found out.
        at(&server, &arguments).await.expect(0);
        assert_eq!(ready(&server).await, ["172.30.0.11"]);

        let _second = Web::start(SECOND);
        becomes(&server, "it is back", &["172.30.0.11", "172.30.0.12"]).await;
        let shown = at(&server, &["get", "endpoints", "web", "--output=json"])
            .await
            .json(0);
        assert!(
            shown
                .as_array()
                .unwrap()
                .iter()
                .all(|one| one["trouble"] == Value::Null),
            "{shown}"
        );
    });
}

#[test]
fn the_person_on_call_is_told_which_server_fails_and_why() {
    in_namespace(|| async {
        let server = Server::start(Store::Embedded, &[RANGES]).await;
        let _web = Web::start(FIRST);
        let arguments = [
            &[
                "expose",
                "web",
                "--port=80",
                "--to=172.30.0.11:8080",
                "--health=http:/no-such-page",
            ][..],
            &SOON,
        ];
        at(&server, &arguments.concat()).await.expect(0);
        let told = eventually("the check has failed", || async {
            let ran = at(&server, &["status"]).await;
            ran.out.contains("answered 404").then_some(ran)
        })
        .await;
        assert!(
            told.expect(2)
                .contains("service/default/web: none of 1 endpoints is ready"),
            "{}",
            told.out
        );
        assert!(
            told.out.contains("→ portico get endpoints web -n default"),
            "{}",
            told.out
        );
    });
}

#[test]
fn it_changes_and_goes_and_leaves_others_alone() {
    in_namespace(|| async {
        let server = Server::start(Store::Embedded, &["--expose-health-checks=false"]).await;
        let admin = server.admin();
        let shown = at(
            &server,
            &["expose", "web", "--port=80", TO, "--public", "-o", "json"],
        )
        .await
        .json(0);
        assert_eq!(shown["service"]["spec"]["type"], "NodePort");
        let address = shown["service"]["spec"]["clusterIP"].clone();
        assert_eq!(
            ready(&server).await,
            ["172.30.0.11", "172.30.0.12"],
            "without a check they are taken for fit"
        );
        // Another port is another slice, and the address stays.
        let shown = at(
            &server,
            &[
                "expose",
                "web",
                "--port=81/udp",
                "--to=172.30.0.12:9090",
                "-o",
                "json",
            ],
        )
        .await
        .json(0);
        assert_eq!(
            (
                &shown["service"]["spec"]["clusterIP"],
                &shown["service"]["spec"]["type"]
            ),
            (&address, &"ClusterIP".into())
        );
        assert_eq!(shown["service"]["spec"]["ports"][0]["protocol"], "UDP");
        let slices = admin.get(SLICES).await.expect(200);
        let names: Vec<&str> = slices["items"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| one["metadata"]["name"].as_str().unwrap())
            .collect();
        assert!(
            names.contains(&"web-ipv4-9090") && !names.contains(&"web-ipv4-8080"),
            "{names:?}"
        );

        let refused = at(&server, &["expose", "kubernetes", "--port=80", TO]).await;
        assert!(
            refused.err.contains("was not made by portico expose"),
            "{}",
            refused.err
        );
        let refused = at(&server, &["expose", "kubernetes", "--delete"]).await;
        assert_eq!(refused.code, 1);
        let wrong = at(
            &server,
            &["expose", "web", "--port=80", "--to=localhost:80"],
        )
        .await;
        assert!(wrong.err.contains("ADDRESS:PORT"), "{}", wrong.err);
        let wrong = at(
            &server,
            &[
                "expose",
                "web",
                "--port=80",
                TO,
                "--health=tcp",
                "--timeout=9s",
            ],
        )
        .await;
        assert!(
            wrong.err.contains("longer than the interval"),
            "{}",
            wrong.err
        );

        assert!(
            at(&server, &["expose", "web", "--delete"])
                .await
                .expect(0)
                .contains("default/web is gone")
        );
        assert!(
            at(&server, &["expose", "web", "--delete"])
                .await
                .expect(0)
                .contains("is not there")
        );
        assert!(ready(&server).await.is_empty());
        admin
            .get("/api/v1/namespaces/default/services/web")
            .await
            .expect(404);
        admin
            .get("/api/v1/namespaces/default/services/kubernetes")
            .await
            .expect(200);
    });
}

/// A server that counts who connects.
fn counting(address: &str) -> (Arc<AtomicUsize>, JoinHandle<()>) {
    let listener = std::net::TcpListener::bind(address).unwrap();
    listener.set_nonblocking(true).unwrap();
    let listener = tokio::net::TcpListener::from_std(listener).unwrap();
    let count = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&count);
    let task = tokio::spawn(async move {
        while listener.accept().await.is_ok() {
            counted.fetch_add(1, Ordering::SeqCst);
        }
    });
    (count, task)
}

/// The attack: a slice asks for the machine's own services, and for the cloud's metadata, which
/// trust whoever reaches them.
#[test]
fn checks_reach_nothing_outside_of_the_ranges() {
    let bed = Testbed::new().unwrap();
    let (machine, other) = (bed.host("machine").unwrap(), bed.host("other").unwrap());
    machine.cable("eth0", &other, "eth0").unwrap();
    for address in [
        "172.30.0.11/24",
        "169.254.169.254/32",
        "100.100.100.200/32",
        "198.51.100.7/24",
    ] {
        machine.address("eth0", address).unwrap();
    }
    machine.enter(|| {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let mut server = Server::start(Store::Embedded, &[RANGES]).await;
            let victims = [
                "169.254.169.254",
                "100.100.100.200",
                "198.51.100.7",
            ];
            let counts = victims.map(|address| counting(&format!("{address}:80")));
            let (allowed, _task) = counting("172.30.0.11:80");
            let endpoints: Vec<Value> = victims
                .iter()
                .chain(&["172.30.0.11"])
                .map(|address| json!({"addresses": [address], "conditions": {"ready": false}}))
                .collect();
            let slice = json!({
                "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
                "metadata": {"name": "evil", "namespace": "default",
                    "labels": {"kubernetes.io/service-name": "web", "portico.dev/health-checked": "true"},
                    "annotations": {"portico.dev/health-check": "tcp interval=100ms timeout=100ms rise=1 fall=1"}},
                "ports": [{"name": "", "port": 80, "protocol": "TCP"}], "endpoints": endpoints,
            });
            // An API server that checks less could have link-local addresses in slices too.
            let made = server.admin().post(SLICES, &slice).await;
            let refused = made.status != 201;
            let slice = if refused {
                let mut slice = slice;
                slice["endpoints"].as_array_mut().unwrap().remove(0);
                slice
            } else {
                slice
            };
            if refused {
                server.admin().post(SLICES, &slice).await.expect(201);
            }
            let path = format!("{SLICES}/evil");
            let told = eventually("the slice says what is not asked, and who is fit", || async {
                let slice = server.admin().get(&path).await.expect(200);
                let told = slice["metadata"]["annotations"]["portico.dev/health-failing"].clone();
                let last = slice["endpoints"].as_array().unwrap().last().cloned();
                let ready = last.is_some_and(|one| one["conditions"]["ready"] == true);
                told.as_str().filter(|_| ready).map(str::to_owned)
            })
            .await;
            for address in &victims[usize::from(refused)..] {
                assert!(told.contains(&format!("{address}: not asked: ")), "{told}");
            }
            assert!(told.contains("--health-check-ranges"), "{told}");
            // The good one was asked many times meanwhile.
            eventually("twenty rounds", || async {
                (allowed.load(Ordering::SeqCst) > 20).then_some(())
            })
            .await;
            let asked: usize = counts
                .iter()
                .map(|(count, _)| count.load(Ordering::SeqCst))
                .sum();
            println!(
                "{} probes of the server in the ranges, {asked} of those outside",
                allowed.load(Ordering::SeqCst)
            );
            assert_eq!(asked, 0);
            server.stop().await;
        });
    });
}
