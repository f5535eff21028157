//! This machine as a Node: what `portico up` and `portico join` write where no kubelet does. Clouds
//! and health checks go by its addresses, its providerID and its version.

use clap::Args;
use serde_json::{Value, json};
use std::fs;
use std::net::IpAddr;

#[derive(Args, Clone, Default)]
#[command(rename_all = "kebab-case")]
#[group(id = "machine")]
pub(crate) struct Machine {
    /// The addresses of this machine for other nodes, InternalIPs of its Node [default: the one
    /// that the API server knows].
    #[arg(long, value_name = "IP,...", value_delimiter = ',')]
    pub node_address: Vec<IpAddr>,
    /// The addresses of this machine for clients outside, ExternalIPs of its Node.
    #[arg(long, value_name = "IP,...", value_delimiter = ',')]
    node_external_address: Vec<IpAddr>,
    /// What this machine is in its cloud, such as gce://PROJECT/ZONE/NAME: the providerID of its
    /// Node.
    #[arg(long, value_name = "ID")]
    provider_id: Option<String>,
}

impl Machine {
    pub(crate) fn is_described(&self) -> bool {
        !self.node_address.is_empty()
            || !self.node_external_address.is_empty()
            || self.provider_id.is_some()
    }

    pub(crate) fn spec(&self) -> Value {
        match &self.provider_id {
            Some(id) => json!({"providerID": id}),
            None => json!({}),
        }
    }

    /// `own` is its address if none is given; `reason` and `message` are for its condition.
    pub(crate) fn status(&self, name: &str, own: IpAddr, [reason, message]: [&str; 2]) -> Value {
        let own = match self.node_address.as_slice() {
            [] => &[own],
            given => given,
        };
        let of_type = |type_: &'static str, addresses: &[IpAddr]| -> Vec<Value> {
            let entry = |address| json!({"type": type_, "address": address});
            addresses.iter().map(entry).collect()
        };
        let mut addresses = of_type("InternalIP", own);
        addresses.extend(of_type("ExternalIP", &self.node_external_address));
        addresses.push(json!({"type": "Hostname", "address": name}));
        let ready =
            json!({"type": "Ready", "status": "True", "reason": reason, "message": message});
        json!({"addresses": addresses, "conditions": [ready], "nodeInfo": node_info()})
    }
}

/// The kubelet's field is the one that all tools show, so it has the version of this program, as
/// that of Kubernetes which it stands for.
pub(crate) fn node_info() -> Value {
    let read = |path: &str| {
        let text = fs::read_to_string(path).unwrap_or_default();
        text.trim().to_owned()
    };
    let version = version();
    json!({
        "architecture": architecture(std::env::consts::ARCH),
        "bootID": read("/proc/sys/kernel/random/boot_id"),
        "containerRuntimeVersion": "",
        "kernelVersion": read("/proc/sys/kernel/osrelease"),
        "kubeProxyVersion": version,
        "kubeletVersion": version,
        "machineID": read("/etc/machine-id"),
        "operatingSystem": std::env::consts::OS,
        "osImage": os_image(&read("/etc/os-release")),
        "systemUUID": "",
    })
}

/// As the API server writes its own.
fn version() -> String {
    let kubernetes = portico_apiserver::kubernetes_version();
    format!("{kubernetes}+portico-{}", env!("CARGO_PKG_VERSION"))
}

/// Go's names, which labels and images of Kubernetes have.
fn architecture(name: &str) -> &str {
    match name {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

fn os_image(release: &str) -> &str {
    let mut lines = release.lines();
    let name = lines.find_map(|line| line.strip_prefix("PRETTY_NAME="));
    name.unwrap_or_default().trim_matches('"')
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Arguments {
        #[command(flatten)]
        machine: Machine,
    }

    fn machine(arguments: &[&str]) -> Machine {
        let all = ["portico"].iter().chain(arguments);
        Arguments::parse_from(all).machine
    }

    #[test]
    fn a_node_says_what_was_asked_for() {
        let flags = [
            "--node-address=10.0.0.1,fd00::1",
            "--node-external-address=198.51.100.1",
            "--provider-id=gce://project/zone/one",
        ];
        let given = machine(&flags);
        assert!(given.is_described());
        assert_eq!(
            given.spec(),
            json!({"providerID": "gce://project/zone/one"})
        );
        let status = given.status("one", IpAddr::from([192, 0, 2, 1]), ["Up", "it runs"]);
        let addresses = json!([
            {"type": "InternalIP", "address": "10.0.0.1"},
            {"type": "InternalIP", "address": "fd00::1"},
            {"type": "ExternalIP", "address": "198.51.100.1"},
            {"type": "Hostname", "address": "one"},
        ]);
        assert_eq!(status["addresses"], addresses);
    }

    #[test]
    fn a_node_that_was_told_nothing_has_a_version_and_its_address() {
        let given = machine(&[]);
        assert!(!given.is_described());
        assert_eq!(given.spec(), json!({}));
        let status = given.status("one", IpAddr::from([192, 0, 2, 1]), ["Up", "it runs"]);
        assert_eq!(status["addresses"][0]["address"], "192.0.2.1");
        let version = status["nodeInfo"]["kubeletVersion"]
            .as_str()
            .unwrap_or_default();
        assert!(
            version.starts_with("v1.") && version.contains("+portico-"),
            "{version}"
        );
    }

    #[test]
    fn the_image_is_the_pretty_name() {
        let release = "ID=debian\nPRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\n";
        assert_eq!(os_image(release), "Debian GNU/Linux 12 (bookworm)");
        assert_eq!(os_image(""), "");
    }
}
