use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;
use tokio::net::UnixListener;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use super::*;
use crate::conformance::{self, Case, Support, World};
use crate::{
    Endpoint, Family, HealthCheck, Host, Ingress, IpMode, Node, Port, Protocol, ServiceRef,
};

/// A provider that hands every call to the test, which answers it.
struct Scripted {
    calls: mpsc::Sender<Asked>,
    news: watch::Sender<News>,
}

struct Asked {
    what: &'static str,
    request: Request,
    answer: tokio::sync::oneshot::Sender<Result<Option<Balancer>, ProviderError>>,
}

impl Scripted {
    fn ask<'a>(&'a self, what: &'static str, request: &Request) -> Answer<'a, Option<Balancer>> {
        let request = request.clone();
        let ask = async move {
            let (answer, answered) = tokio::sync::oneshot::channel();
            self.calls
                .send(Asked {
                    what,
                    request,
                    answer,
                })
                .await
                .unwrap();
            answered
                .await
                .unwrap_or_else(|_| Err(ProviderError::Failed("no answer".to_owned())))
        };
        ask.boxed()
    }
}

impl Provider for Scripted {
    fn name(&self) -> &str {
        "scripted"
    }

    fn abilities(&self) -> Abilities {
        Abilities {
            uses_endpoints: true,
            needs_health_check_port: true,
            ..Abilities::default()
        }
    }

    fn describe<'a>(&'a self, request: &'a Request) -> Answer<'a, Option<Balancer>> {
        self.ask("describe", request)
    }

    fn ensure<'a>(&'a self, request: &'a Request) -> Answer<'a, Balancer> {
        async {
            self.ask("ensure", request)
                .await
                .map(Option::unwrap_or_default)
        }
        .boxed()
    }

    fn update_nodes<'a>(&'a self, request: &'a Request) -> Answer<'a, ()> {
        async { self.ask("update", request).await.map(drop) }.boxed()
    }

    fn delete<'a>(&'a self, request: &'a Request) -> Answer<'a, ()> {
        async { self.ask("delete", request).await.map(drop) }.boxed()
    }

    fn news(&self) -> Option<watch::Receiver<News>> {
        Some(self.news.subscribe())
    }
}

struct Rig {
    _folder: TempDir,
    socket: PathBuf,
    provider: Arc<Scripted>,
    calls: mpsc::Receiver<Asked>,
    runtime: Option<tokio::runtime::Runtime>,
    _stop: watch::Sender<bool>,
    stopped: Shutdown,
}

const SHORT: Patience = Patience {
    answer: Duration::from_secs(20),
    outage: Duration::from_secs(20),
};

impl Rig {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("plugin.sock");
        let (sender, calls) = mpsc::channel(16);
        let provider = Arc::new(Scripted {
            calls: sender,
            news: watch::Sender::default(),
        });
        let (stop, stopped) = watch::channel(false);
        Self {
            _folder: folder,
            socket,
            provider,
            calls,
            runtime: None,
            _stop: stop,
            stopped,
        }
    }

    /// In a runtime of its own, which can be ended like a process.
    fn serve(&mut self) {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let _ = std::fs::remove_file(&self.socket);
        let served = Served {
            provider: Arc::clone(&self.provider) as Arc<dyn Provider>,
            version: "1.2".to_owned(),
            can: Can {
                udp: Support::Refused,
                ..Can::everything()
            },
        };
        let listener = {
            let _inside = runtime.enter();
            UnixListener::bind(&self.socket).unwrap()
        };
        runtime.spawn(serve(served, listener));
        self.runtime = Some(runtime);
    }

    fn kill(&mut self) {
        let runtime = self.runtime.take().unwrap();
        // All of it is gone before anything else happens, as with a process.
        tokio::task::block_in_place(|| runtime.shutdown_timeout(SHORT.outage));
        std::fs::remove_file(&self.socket).unwrap();
    }

    async fn next_call(&mut self) -> Asked {
        let call = tokio::time::timeout(SHORT.outage, self.calls.recv()).await;
        call.expect("a call comes in time")
            .expect("the provider lives")
    }

    async fn plugin(&self) -> Arc<Plugin> {
        Arc::new(
            Plugin::start(&self.socket, SHORT, self.stopped.clone())
                .await
                .unwrap(),
        )
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Every field has a value that no other has.
fn full() -> Request {
    let map = |key: &str| {
        [(key.to_owned(), format!("{key} value"))]
            .into_iter()
            .collect()
    };
    Request {
        cluster: "cluster".to_owned(),
        service: ServiceRef {
            namespace: "shop".to_owned(),
            name: "web".to_owned(),
            uid: "u-1".to_owned(),
        },
        balancer_name: "au1".to_owned(),
        class: Some("example.com/class".to_owned()),
        labels: map("label"),
        annotations: map("annotation"),
        requested_ip: Some("192.0.2.9".to_owned()),
        families: vec![Family::V6, Family::V4],
        require_all_families: true,
        ports: vec![Port {
            name: "dns".to_owned(),
            protocol: Protocol::Udp,
            port: 53,
            node_port: 30053,
            app_protocol: Some("example.com/dns".to_owned()),
        }],
        local: true,
        selector: map("selector"),
        affinity: Some(600),
        source_ranges: vec![
            "198.51.100.0/24".parse().unwrap(),
            "2001:db8::/32".parse().unwrap(),
        ],
        health_check: Some(HealthCheck {
            port: 32000,
            path: "/healthz".to_owned(),
        }),
        nodes: vec![Node {
            name: "node-1".to_owned(),
            provider_id: "cloud://one".to_owned(),
            zone: "a".to_owned(),
            addresses: vec!["10.0.0.1".parse().unwrap(), "fd00::1".parse().unwrap()],
            version: "v1.36.4".to_owned(),
        }],
        endpoints: vec![Endpoint {
            address: "10.244.0.2".parse().unwrap(),
            port_name: "dns".to_owned(),
            protocol: Protocol::Sctp,
            port: 5353,
            node: Some("node-1".to_owned()),
        }],
        ingress: vec![Ingress {
            host: Host::Name("lb.example".to_owned()),
            mode: IpMode::Vip,
        }],
    }
}

fn made() -> Balancer {
    let address = Ingress {
        host: Host::Ip("192.0.2.1".parse().unwrap()),
        mode: IpMode::Proxy,
    };
    let name = Ingress {
        host: Host::Name("a.example".to_owned()),
        mode: IpMode::Vip,
    };
    Balancer {
        ingress: vec![address, name],
        pending: Some("warming up".to_owned()),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_arrives() {
    let mut rig = Rig::new();
    rig.serve();
    let plugin = rig.plugin().await;
    assert_eq!(
        (plugin.name(), plugin.version()),
        ("plugin:scripted", "1.2")
    );
    assert_eq!(plugin.abilities(), rig.provider.abilities());
    assert_eq!(plugin.can().udp, Support::Refused);
    let request = full();
    let caller = tokio::spawn(async move {
        assert_eq!(plugin.ensure(&request).await, Ok(made()));
        assert_eq!(plugin.describe(&request).await, Ok(None));
        assert_eq!(plugin.describe(&request).await, Ok(Some(made())));
        assert_eq!(plugin.update_nodes(&request).await, Ok(()));
        let after = Duration::from_secs(7);
        let late = ProviderError::RetryAfter {
            after,
            reason: "being built".to_owned(),
        };
        assert_eq!(plugin.delete(&request).await, Err(late));
        assert_eq!(plugin.ensure(&request).await, Err(ProviderError::Elsewhere));
    });
    let late = ProviderError::RetryAfter {
        after: Duration::from_secs(7),
        reason: "being built".to_owned(),
    };
    for (what, answer) in [
        ("ensure", Ok(Some(made()))),
        ("describe", Ok(None)),
        ("describe", Ok(Some(made()))),
        ("update", Ok(None)),
        ("delete", Err(late)),
        ("ensure", Err(ProviderError::Elsewhere)),
    ] {
        let asked = rig.next_call().await;
        assert_eq!((asked.what, &asked.request), (what, &full()));
        asked.answer.send(answer).unwrap();
    }
    caller.await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plugin_that_dies_in_the_middle_of_a_call_is_asked_again() {
    let mut rig = Rig::new();
    rig.serve();
    let plugin = rig.plugin().await;
    let mut news = plugin.news().unwrap();
    let caller = tokio::spawn(async move { plugin.ensure(&full()).await });
    let asked = rig.next_call().await;
    rig.kill();
    drop(asked);
    rig.serve();
    let asked = rig.next_call().await;
    assert_eq!((asked.what, &asked.request), ("ensure", &full()));
    asked.answer.send(Ok(Some(made()))).unwrap();
    assert_eq!(caller.await.unwrap(), Ok(made()));
    // That it was restarted is news: it may have lost everything.
    let heard = news.wait_for(|news| news.changed > 0);
    tokio::time::timeout(Duration::from_secs(20), heard)
        .await
        .unwrap()
        .unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plugin_that_starts_late_is_waited_for_and_its_news_is_heard() {
    let mut rig = Rig::new();
    let (socket, stopped) = (rig.socket.clone(), rig.stopped.clone());
    let waiting: JoinHandle<Result<Plugin, String>> =
        tokio::spawn(async move { Plugin::start(&socket, SHORT, stopped).await });
    tokio::task::yield_now().await;
    rig.serve();
    let plugin = waiting.await.unwrap().unwrap();
    let mut news = plugin.news().unwrap();
    let told = async {
        // The stream may be opened only now; what was before it is not news.
        while news.borrow().freed == 0 {
            rig.provider.news.send_modify(|news| news.freed += 1);
            let _ = tokio::time::timeout(Duration::from_millis(20), news.changed()).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), told)
        .await
        .unwrap();
    assert_eq!(news.borrow().changed, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_there_is_said_with_the_way_out() {
    let rig = Rig::new();
    let hasty = Patience {
        outage: Duration::from_millis(50),
        ..SHORT
    };
    let error = Plugin::start(&rig.socket, hasty, rig.stopped.clone())
        .await
        .unwrap_err();
    let expected = format!(
        "no plugin answers at {} (No such file or directory (os error 2)): see that it runs, and that this user may write to the \
         socket",
        rig.socket.display()
    );
    assert_eq!(error, expected);
    let error = Plugin::start(Path::new("plugin.sock"), hasty, rig.stopped.clone())
        .await
        .unwrap_err();
    assert_eq!(error, "plugin.sock is not the absolute path of a socket");
}

#[test]
fn what_is_too_new_is_refused() {
    let info = |needs_revision| wire::Info {
        name: "x".to_owned(),
        needs_revision,
        ..wire::Info::default()
    };
    assert_eq!(check_revision(&info(wire::REVISION)), Ok(()));
    assert!(
        check_revision(&info(wire::REVISION + 1))
            .unwrap_err()
            .contains("update Portico")
    );
}

#[test]
fn answers_that_make_no_sense_are_not_taken() {
    let wrong = |ip: &str, hostname: &str, mode: i32| {
        let ingress = vec![wire::Ingress {
            ip: ip.to_owned(),
            hostname: hostname.to_owned(),
            mode,
        }];
        balancer(wire::Balancer {
            ingress,
            pending: String::new(),
        })
        .unwrap_err()
        .to_string()
    };
    let begin = "the plugin's answer cannot be used: ingress: ";
    assert_eq!(
        wrong("", "", 0),
        format!("{begin}there is neither ip nor hostname")
    );
    assert_eq!(
        wrong("300.0.0.1", "", 0),
        format!("{begin}\"300.0.0.1\" is no address")
    );
    assert_eq!(
        wrong("", "a.example", 7),
        format!("{begin}mode 7 is not known")
    );
    assert_eq!(
        wrong("192.0.2.1", "a.example", 0),
        format!("{begin}there are both ip and hostname: make two of them")
    );
    let empty = balancer(wire::Balancer::default()).unwrap_err().to_string();
    assert_eq!(
        empty,
        format!("{begin}there is none, and nothing is pending")
    );
}

/// The suite finds the same through a socket as without one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn conformance_goes_through_the_socket() {
    use crate::conformance::tests::cloudlet::{Cloudlet, Flaw};

    for (flaw, failed) in [
        (Flaw::None, None),
        (
            Flaw::KeepsRanges,
            Some("source ranges are set, changed and cleared"),
        ),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("plugin.sock");
        let cloudlet = Cloudlet::new(flaw);
        let listener = UnixListener::bind(&socket).unwrap();
        let served = Served {
            provider: Arc::new(cloudlet.clone()),
            version: String::new(),
            can: Can::everything(),
        };
        let serving: JoinHandle<std::io::Result<Infallible>> =
            tokio::spawn(serve(served, listener));
        let (_stop, stopped) = watch::channel(false);
        let plugin = Plugin::start(&socket, SHORT, stopped).await.unwrap();
        let nodes = (1..=3)
            .map(|number| Node {
                name: format!("node-{number}"),
                ..Node::default()
            })
            .collect();
        let case = Case::new(nodes).can(plugin.can().clone());
        let report = conformance::run(&plugin, Some(&cloudlet as &dyn World), &case).await;
        let first = report.failed().next().map(|step| step.name.as_str());
        assert_eq!(first, failed, "{report}");
        serving.abort();
    }
}
