//! Portico's node daemon does it: the virtual address is a frontend of the node's own dataplane, as
//! a static Service that is written into a file for it. It is in force when the node says so.

use super::route::Route;
use super::{ForwardError, Forwarder, Wanted};
use portico_model::static_services::{INSTALLED, Installed, version};
use portico_model::table::Family;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs::{self, File, TryLockError};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

const FILE: &str = "portico-vip.json";
/// The node takes some milliseconds. Where it takes longer another way is better; there is more
/// time while another is in force.
const PATIENCE: Duration = Duration::from_millis(500);
const PATIENCE_AT_FIRST: Duration = Duration::from_secs(1);

pub(super) struct Node {
    folder: PathBuf,
    in_force: bool,
}

/// What the node daemon that serves this folder says, if there is one.
pub(super) fn daemon(folder: &Path) -> Option<Installed> {
    let note = || serde_json::from_slice(&fs::read(folder.join(INSTALLED)).ok()?).ok();
    is_served(folder).then(note)?
}

/// Whether a node daemon has the folder locked. Asking takes the lock for a moment where it is
/// free.
fn is_served(folder: &Path) -> bool {
    let lock = File::open(folder).map(|folder| folder.try_lock_shared());
    matches!(lock, Ok(Err(TryLockError::WouldBlock)))
}

impl Node {
    pub(super) fn new(folder: &Path) -> Self {
        Self {
            folder: folder.to_owned(),
            in_force: false,
        }
    }

    fn path(&self) -> PathBuf {
        self.folder.join(FILE)
    }

    /// The path of the file while it is written.
    fn new_path(&self) -> PathBuf {
        self.folder.join(format!(".{FILE}.new"))
    }

    fn failed(&self, doing: &str, source: io::Error) -> ForwardError {
        ForwardError::Io {
            doing: format!("{doing} {}", self.path().display()),
            source,
        }
    }

    /// All at once: the node never reads half of it.
    fn write(&self, text: &str) -> Result<(), ForwardError> {
        if fs::read(self.path()).is_ok_and(|there| there == text.as_bytes()) {
            return Ok(());
        }
        fs::write(self.new_path(), text)
            .and_then(|()| fs::rename(self.new_path(), self.path()))
            .map_err(|error| self.failed("writing", error))
    }

    fn wait_until_in_force(&self, version: Option<&str>) -> Result<(), ForwardError> {
        let unfit = |text: &str| {
            Err(ForwardError::Unfit(format!(
                "the node daemon {text} {}",
                self.path().display()
            )))
        };
        let deadline = Instant::now()
            + if self.in_force {
                PATIENCE
            } else {
                PATIENCE_AT_FIRST
            };
        loop {
            if !is_served(&self.folder) {
                return unfit("is not there to serve");
            }
            // Between two contents of the note there may be none.
            let installed = daemon(&self.folder).unwrap_or_default();
            if installed.files.get(FILE).map(String::as_str) == version {
                return Ok(());
            }
            if Instant::now() > deadline {
                return unfit("does not install");
            }
            thread::sleep(Duration::from_millis(2));
        }
    }
}

impl Forwarder for Node {
    fn name(&self) -> &'static str {
        "portico"
    }

    fn apply(&mut self, wanted: &Wanted) -> Result<(), ForwardError> {
        let text = services(&wanted.routes().collect::<Vec<_>>());
        self.write(&text)?;
        self.wait_until_in_force(Some(&version(text.as_bytes())))?;
        self.in_force = true;
        Ok(())
    }

    fn rules(&mut self) -> Result<Vec<String>, ForwardError> {
        let text =
            fs::read_to_string(self.path()).map_err(|error| self.failed("reading", error))?;
        let mode = daemon(&self.folder)
            .map(|installed| installed.mode)
            .unwrap_or_else(|| "nobody".to_owned());
        let about = format!(
            "# {}, served by the node daemon ({mode})",
            self.path().display()
        );
        Ok([about]
            .into_iter()
            .chain(text.lines().map(str::to_owned))
            .collect())
    }

    /// The node daemon removes the rules, so the caller waits for it; without one there is nothing
    /// to wait for.
    fn remove(&mut self) -> Result<(), ForwardError> {
        // Only there after a crash.
        _ = fs::remove_file(self.new_path());
        match fs::remove_file(self.path()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            removed => removed.map_err(|error| self.failed("removing", error))?,
        }
        if is_served(&self.folder) {
            self.wait_until_in_force(None)
        } else {
            Ok(())
        }
    }
}

/// A Service with the virtual addresses, and slices with the servers that get connections; an
/// object a line.
fn services(routes: &[Route]) -> String {
    let frontends: Vec<SocketAddr> = routes
        .iter()
        .flat_map(|route| route.frontends.clone())
        .collect();
    let addresses: Vec<IpAddr> = frontends.iter().map(SocketAddr::ip).collect();
    let port = frontends.first().map_or(0, SocketAddr::port);
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "vip"},
        "spec": {"externalIPs": addresses, "ports": [{"name": "https", "port": port, "protocol": "TCP"}]}});
    let objects = match addresses.is_empty() {
        true => Vec::new(),
        false => [service]
            .into_iter()
            .chain(routes.iter().flat_map(slices))
            .collect(),
    };
    let lines: Vec<String> = objects.iter().map(Value::to_string).collect();
    format!(
        "{{\"apiVersion\": \"v1\", \"kind\": \"List\", \"items\": [\n{}\n]}}\n",
        lines.join(",\n")
    )
}

/// A slice has one port.
fn slices(route: &Route) -> Vec<Value> {
    let mut by_port: BTreeMap<u16, Vec<IpAddr>> = BTreeMap::new();
    for server in &route.eligible {
        by_port.entry(server.port()).or_default().push(server.ip());
    }
    let family = if route.family == Family::V4 {
        "IPv4"
    } else {
        "IPv6"
    };
    let slice = |(port, servers): (u16, Vec<IpAddr>)| {
        let endpoint = |server| json!({"addresses": [server], "conditions": {"ready": true}});
        let endpoints: Vec<Value> = servers.into_iter().map(endpoint).collect();
        json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": family,
            "metadata": {"name": format!("vip-{}-{port}", family.to_lowercase()), "labels": {"kubernetes.io/service-name": "vip"}},
            "ports": [{"name": "https", "port": port, "protocol": "TCP"}], "endpoints": endpoints})
    };
    by_port.into_iter().map(slice).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::servers::Server;

    #[test]
    fn a_service_with_slices_of_who_gets_connections() {
        let server = |text: &str, healthy| Server {
            address: text.parse().unwrap(),
            healthy,
            gone: !healthy,
        };
        let wanted = Wanted {
            addresses: ["192.0.2.100", "fd00::100"]
                .map(|text| text.parse().unwrap())
                .to_vec(),
            port: 6443,
            servers: vec![
                server("192.0.2.1:6443", true),
                server("192.0.2.2:6444", true),
                server("192.0.2.3:6443", false),
                server("[fd00::1]:6443", true),
            ],
            cluster: vec![],
            closing: false,
        };
        let text = services(&wanted.routes().collect::<Vec<_>>());
        let value: Value = serde_json::from_str(&text).unwrap();
        let items = value["items"].as_array().unwrap();
        assert_eq!(
            items[0]["spec"]["externalIPs"],
            json!(["192.0.2.100", "fd00::100"])
        );
        let brief: Vec<Value> = items[1..]
            .iter()
            .map(|slice| {
                json!([
                    slice["addressType"],
                    slice["ports"][0]["port"],
                    slice["endpoints"][0]["addresses"][0]
                ])
            })
            .collect();
        assert_eq!(
            brief,
            [
                json!(["IPv4", 6443, "192.0.2.1"]),
                json!(["IPv4", 6444, "192.0.2.2"]),
                json!(["IPv6", 6443, "fd00::1"])
            ]
        );
        assert_eq!(text.lines().count(), 6, "an object a line");
        let nothing: Value = serde_json::from_str(&services(&[])).unwrap();
        assert_eq!(nothing["items"], json!([]));
    }

    #[test]
    fn without_a_daemon_it_is_no_way() {
        let folder = tempfile::tempdir().unwrap();
        let mut node = Node::new(folder.path());
        assert_eq!(daemon(folder.path()), None);
        let wanted = Wanted {
            addresses: vec![],
            port: 6443,
            servers: vec![],
            cluster: vec![],
            closing: false,
        };
        let problem = node.apply(&wanted).unwrap_err().to_string();
        assert!(
            problem.starts_with("the node daemon is not there to serve"),
            "{problem}"
        );
        let lock = File::open(folder.path()).unwrap();
        lock.lock().unwrap();
        let problem = node.apply(&wanted).unwrap_err().to_string();
        assert!(
            problem.starts_with("the node daemon does not install"),
            "{problem}"
        );
        drop(lock);
        node.remove().unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
