//! The control plane of the cluster: an API server in its own host, and writing objects to it.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use portico_testbed::cluster::SERVICE_RANGES;
use portico_testbed::{Cluster, Process};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::common::Client;
use crate::objects::{api_version, everywhere, merge, path};

const TOKEN: &str = "admin-token";
const PORT: u16 = 6443;
const PATIENCE: Duration = Duration::from_secs(60);
/// Writes that meet others are tried again this often.
const CONFLICTS: usize = 20;

/// An API error: the status and what it says.
#[derive(Debug)]
pub(crate) struct Refused(pub u16, pub String);

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "HTTP {}: {}",
            self.0,
            self.1.chars().take(400).collect::<String>()
        )
    }
}

/// A running API server.
pub(crate) struct Control {
    client: Client,
    pub kubeconfig: PathBuf,
    _programs: Vec<Process>,
}

/// The command with its output going to a file.
pub(crate) fn logged(mut command: Command, log: &Path) -> Command {
    let out = File::options().create(true).append(true).open(log).unwrap();
    command
        .stdin(Stdio::null())
        .stdout(out.try_clone().unwrap())
        .stderr(out);
    command
}

impl Control {
    /// Starts Portico's API server, or a kube-apiserver with its etcd where `KUBE_APISERVER` names
    /// one. Whoever calls this is inside the host `cp`, as all requests are sent from where the
    /// caller is.
    pub(crate) async fn start(cluster: &Cluster, dir: &Path) -> Self {
        let (host, address) = (
            cluster.host("cp").unwrap(),
            cluster.addresses.of("cp", "ip").unwrap().to_string(),
        );
        fs::write(
            dir.join("tokens.csv"),
            format!("{TOKEN},admin,1,system:masters\n"),
        )
        .unwrap();
        let commands = match std::env::var("KUBE_APISERVER") {
            Ok(program) => vec![etcd(dir), kube_apiserver(&program, &address, dir)],
            Err(_) => vec![apiserver(&address, dir)],
        };
        let start = |(name, command)| host.spawn(logged(command, &dir.join(name))).unwrap();
        let programs = commands.into_iter().map(start).collect();
        let client = Client::new(&format!("{address}:{PORT}"), TOKEN, None);
        let kubeconfig = write_kubeconfig(&address, dir);
        let control = Self {
            client,
            kubeconfig,
            _programs: programs,
        };
        control.ready(&dir.join("apiserver.log")).await;
        control
    }

    /// Waits until the server answers and the namespace `default` is there.
    async fn ready(&self, log: &Path) {
        let deadline = Instant::now() + PATIENCE;
        for path in ["/readyz", "/api/v1/namespaces/default"] {
            while !self
                .client
                .try_call("GET", path, &[], None)
                .await
                .is_ok_and(|answer| answer.status == 200)
            {
                let told = || fs::read_to_string(log).unwrap_or_default();
                assert!(
                    Instant::now() < deadline,
                    "the API server does not start:\n{}",
                    told()
                );
                sleep(Duration::from_millis(20)).await;
            }
        }
    }

    async fn request(
        &self,
        method: &str,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Value, Refused> {
        let body = body.map(|body| ("application/json", body.to_string().into()));
        let answer = self.client.call(method, path, &[], body).await;
        match answer.status {
            200..300 => Ok(answer.json()),
            status => Err(Refused(status, answer.text())),
        }
    }

    /// All objects of a kind.
    pub(crate) async fn list(&self, kind: &str) -> Result<Vec<Value>, Refused> {
        let mut list = self.request("GET", &everywhere(kind), None).await?;
        let mut items: Vec<Value> =
            serde_json::from_value(list["items"].take()).unwrap_or_default();
        items.iter_mut().for_each(|item| item["kind"] = json!(kind));
        Ok(items)
    }

    /// Creates or replaces an object; a status in it is written through `/status`. The object as it
    /// is then.
    pub(crate) async fn apply(&self, object: &Value) -> Result<Value, Refused> {
        let mut object = object.clone();
        let kind = object["kind"].as_str().unwrap().to_owned();
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        let namespace = object["metadata"]["namespace"]
            .as_str()
            .unwrap_or("default")
            .to_owned();
        let status = object
            .as_object_mut()
            .and_then(|object| object.remove("status"));
        if object["apiVersion"].is_null() {
            object["apiVersion"] = json!(api_version(&kind));
        }
        let (all, one) = (path(&kind, &namespace, ""), path(&kind, &namespace, &name));
        let deadline = Instant::now() + Duration::from_secs(10);
        let current = loop {
            match self.create_or_replace(&all, &one, &mut object).await {
                // Somebody else's address or port is about to be free, or somebody else was faster.
                Err(Refused(status, text))
                    if (matches!(status, 404 | 409) || text.contains("already allocated"))
                        && Instant::now() < deadline =>
                {
                    sleep(Duration::from_millis(50)).await;
                }
                outcome => break outcome?,
            }
        };
        match status {
            Some(status) => self.put_status(&one, current, status).await,
            None => Ok(current),
        }
    }

    async fn create_or_replace(
        &self,
        all: &str,
        one: &str,
        object: &mut Value,
    ) -> Result<Value, Refused> {
        match self.request("GET", one, None).await {
            Ok(current) => {
                object["metadata"]["resourceVersion"] =
                    current["metadata"]["resourceVersion"].clone();
                self.request("PUT", one, Some(object)).await
            }
            Err(Refused(404, _)) => {
                merge(object, &json!({"metadata": {"resourceVersion": null}}));
                self.request("POST", all, Some(object)).await
            }
            Err(error) => Err(error),
        }
    }

    async fn put_status(
        &self,
        path: &str,
        mut object: Value,
        status: Value,
    ) -> Result<Value, Refused> {
        for _ in 0..CONFLICTS {
            object["status"] = status.clone();
            match self
                .request("PUT", &format!("{path}/status"), Some(&object))
                .await
            {
                Err(Refused(409, _)) => object = self.request("GET", path, None).await?,
                outcome => return outcome,
            }
        }
        Err(Refused(409, format!("conflicts on the status of {path}")))
    }

    /// A merge patch, also of the status.
    pub(crate) async fn patch(
        &self,
        kind: &str,
        namespace: &str,
        name: &str,
        patch: &Value,
    ) -> Result<Value, Refused> {
        let path = path(kind, namespace, name);
        let mut main = patch.clone();
        let status = main.as_object_mut().and_then(|main| main.remove("status"));
        for _ in 0..CONFLICTS {
            let mut object = self.request("GET", &path, None).await?;
            if main != json!({}) {
                merge(&mut object, &main);
                match self.request("PUT", &path, Some(&object)).await {
                    Err(Refused(409, _)) => continue,
                    outcome => object = outcome?,
                }
            }
            return match &status {
                Some(patch) => {
                    let mut status = object["status"].clone();
                    merge(&mut status, patch);
                    self.put_status(&path, object, status).await
                }
                None => Ok(object),
            };
        }
        Err(Refused(409, format!("conflicts on {path}")))
    }

    /// Deletes an object, which may be gone already.
    pub(crate) async fn delete(
        &self,
        kind: &str,
        namespace: &str,
        name: &str,
    ) -> Result<(), Refused> {
        match self
            .request("DELETE", &path(kind, namespace, name), None)
            .await
        {
            Ok(_) | Err(Refused(404, _)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Brings a Node back to what it was, also one that is being deleted.
    pub(crate) async fn reset_node(&self, wanted: &Value) -> Result<(), Refused> {
        let path = path("Node", "", wanted["metadata"]["name"].as_str().unwrap());
        for _ in 0..CONFLICTS {
            let mut node = match self.request("GET", &path, None).await {
                Err(Refused(404, _)) => return self.apply(wanted).await.map(drop),
                outcome => outcome?,
            };
            let leaving = !node["metadata"]["deletionTimestamp"].is_null();
            merge(
                &mut node,
                &json!({"metadata": {"finalizers": null, "annotations": null}}),
            );
            if !leaving {
                node["metadata"]["labels"] = wanted["metadata"]["labels"].clone();
                node["spec"] = wanted["spec"].clone();
            }
            match self.request("PUT", &path, Some(&node)).await {
                Ok(node) if !leaving => {
                    let mut status = node["status"].clone();
                    merge(&mut status, &wanted["status"]);
                    return self.put_status(&path, node, status).await.map(drop);
                }
                Ok(_) | Err(Refused(404 | 409, _)) => sleep(Duration::from_millis(20)).await,
                Err(error) => return Err(error),
            }
        }
        Err(Refused(409, format!("conflicts on {path}")))
    }
}

fn apiserver(address: &str, dir: &Path) -> (&'static str, Command) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_portico"));
    command
        .arg("apiserver")
        .arg(format!("--data-dir={}", dir.join("data").display()))
        .arg(format!("--bind-address={address}"))
        .arg(format!("--advertise-address={address}"))
        .arg(format!("--secure-port={PORT}"))
        .arg(format!(
            "--token-auth-file={}",
            dir.join("tokens.csv").display()
        ))
        .arg(format!("--service-cluster-ip-range={SERVICE_RANGES}"));
    ("apiserver.log", command)
}

fn etcd(dir: &Path) -> (&'static str, Command) {
    let mut command = Command::new(std::env::var("ETCD").unwrap_or("etcd".to_owned()));
    command
        .arg(format!("--data-dir={}", dir.join("etcd").display()))
        .arg("--unsafe-no-fsync");
    ("etcd.log", command)
}

fn kube_apiserver(program: &str, address: &str, dir: &Path) -> (&'static str, Command) {
    let key = dir.join("sa.key");
    let made = Command::new("openssl")
        .args(["genrsa", "-out"])
        .arg(&key)
        .arg("2048")
        .output()
        .unwrap();
    assert!(
        made.status.success(),
        "{}",
        String::from_utf8_lossy(&made.stderr)
    );
    let mut command = Command::new(program);
    command
        .args([
            "--etcd-servers=http://127.0.0.1:2379",
            "--authorization-mode=RBAC",
        ])
        .args([
            "--disable-admission-plugins=ServiceAccount",
            "--endpoint-reconciler-type=none",
        ])
        .args([
            "--service-account-issuer=https://kubernetes.default.svc",
            "--enable-priority-and-fairness=false",
        ])
        .arg(format!("--bind-address={address}"))
        .arg(format!("--advertise-address={address}"))
        .arg(format!("--secure-port={PORT}"))
        .arg(format!("--cert-dir={}", dir.join("certs").display()))
        .arg(format!("--service-account-key-file={}", key.display()))
        .arg(format!(
            "--service-account-signing-key-file={}",
            key.display()
        ))
        .arg(format!(
            "--token-auth-file={}",
            dir.join("tokens.csv").display()
        ))
        .arg(format!("--service-cluster-ip-range={SERVICE_RANGES}"));
    ("apiserver.log", command)
}

fn write_kubeconfig(address: &str, dir: &Path) -> PathBuf {
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "lab",
        "clusters": [{"name": "lab", "cluster": {
            "server": format!("https://{address}:{PORT}"), "insecure-skip-tls-verify": true,
        }}],
        "users": [{"name": "lab", "user": {"token": TOKEN}}],
        "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": "lab"}}],
    });
    let path = dir.join("kubeconfig");
    fs::write(&path, config.to_string()).unwrap();
    path
}
