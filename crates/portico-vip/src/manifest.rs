//! How to have `portico vip` run on a node: a static pod for the kubelet, and a unit for systemd.

use crate::config::{DRAIN, Given, Span};
use serde_json::{Value, json};
use std::path::Path;

/// What the manifests are made from.
pub struct Manifest<'a> {
    /// The settings that were given, as flags or in a file.
    pub given: &'a Given,
    /// The configuration file, which is mounted into the pod.
    pub config_file: Option<&'a Path>,
    /// The image of the static pod.
    pub image: &'a str,
    /// The program on the node, for systemd.
    pub program: &'a Path,
}

impl Manifest<'_> {
    /// The arguments after `portico`: the settings as flags, one each.
    fn arguments(&self) -> Vec<String> {
        let mut arguments = vec!["vip".to_owned()];
        arguments.extend(
            self.config_file
                .map(|path| format!("--config={}", path.display())),
        );
        let Ok(Value::Object(settings)) = serde_json::to_value(self.given) else {
            return arguments;
        };
        for (name, value) in settings {
            arguments.push(format!("--{}={}", flag(&name), text(&value)));
        }
        arguments
    }

    /// The static pod for `/etc/kubernetes/manifests`.
    pub fn static_pod(&self) -> String {
        let mut files: Vec<&Path> = self.config_file.into_iter().collect();
        let given = self.given;
        let read = [
            &given.kubeconfig,
            &given.ca_file,
            &given.password_file,
            &given.auth_key_file,
        ];
        files.extend(read.into_iter().flatten().map(|path| path.as_path()));
        let mut volumes = vec![
            json!({"name": "run", "hostPath": {"path": "/run/portico", "type": "DirectoryOrCreate"}}),
            json!({"name": "xtables-lock", "hostPath": {"path": "/run/xtables.lock", "type": "FileOrCreate"}}),
            json!({"name": "data", "hostPath": {"path": data_dir(given), "type": "DirectoryOrCreate"}}),
        ];
        let mut mounts = vec![
            json!({"name": "run", "mountPath": "/run/portico"}),
            json!({"name": "xtables-lock", "mountPath": "/run/xtables.lock"}),
            json!({"name": "data", "mountPath": data_dir(given)}),
        ];
        for (n, file) in files.iter().enumerate() {
            let name = format!("file-{n}");
            volumes.push(json!({"name": name, "hostPath": {"path": file, "type": "File"}}));
            mounts.push(json!({"name": name, "mountPath": file, "readOnly": true}));
        }
        let pod = json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "portico-vip", "namespace": "kube-system", "labels": {"app.kubernetes.io/name": "portico-vip"}},
            "spec": {
                "hostNetwork": true,
                "dnsPolicy": "Default",
                "priorityClassName": "system-node-critical",
                "terminationGracePeriodSeconds": seconds_to_stop(given),
                "containers": [{
                    "name": "portico-vip",
                    "image": self.image,
                    "command": ["portico"],
                    "args": self.arguments(),
                    "securityContext": {
                        "allowPrivilegeEscalation": false,
                        "readOnlyRootFilesystem": true,
                        "capabilities": {"drop": ["ALL"], "add": ["NET_ADMIN", "NET_RAW", "SYS_NICE"]},
                    },
                    "resources": {"requests": {"cpu": "20m", "memory": "32Mi"}},
                    "volumeMounts": mounts,
                }],
                "volumes": volumes,
            },
        });
        // A tree of texts, numbers and lists always serialises.
        serde_saphyr::to_string(&pod).unwrap_or_default()
    }

    /// The unit for `/etc/systemd/system/portico-vip.service`.
    pub fn systemd_unit(&self) -> String {
        let words: Vec<String> = self
            .arguments()
            .iter()
            .map(|argument| quoted(argument))
            .collect();
        let program = self.program.display();
        let data = data_dir(self.given);
        format!(
            "[Unit]\n\
             Description=The virtual address of the control plane (Portico)\n\
             Wants=network-online.target\n\
             After=network-online.target\n\
             \n\
             [Service]\n\
             ExecStart={program} {}\n\
             Restart=always\n\
             RestartSec=1\n\
             TimeoutStopSec={}\n\
             KillMode=mixed\n\
             OOMScoreAdjust=-998\n\
             AmbientCapabilities=CAP_NET_ADMIN CAP_NET_RAW CAP_SYS_NICE\n\
             CapabilityBoundingSet=CAP_NET_ADMIN CAP_NET_RAW CAP_SYS_NICE CAP_DAC_READ_SEARCH\n\
             NoNewPrivileges=true\n\
             ProtectSystem=strict\n\
             ProtectHome=read-only\n\
             PrivateTmp=true\n\
             ReadWritePaths=/run {data}\n\
             ExecStartPre=+/bin/mkdir -p /run/portico {data}\n\
             \n\
             [Install]\n\
             WantedBy=multi-user.target\n",
            words.join(" "),
            seconds_to_stop(self.given)
        )
    }
}

/// The address goes to another, and what is in flight ends.
fn seconds_to_stop(given: &Given) -> u64 {
    27 + given.drain.map_or(DRAIN, |Span(drain)| drain).as_secs()
}

fn data_dir(given: &Given) -> String {
    given
        .data_dir
        .as_ref()
        .map_or("/var/lib/portico/vip".to_owned(), |path| {
            path.display().to_string()
        })
}

/// Fields of the file are lists where a flag can be repeated.
fn flag(field: &str) -> String {
    let singular = match field {
        "addresses" => "address",
        "nodeIps" => "nodeIp",
        "unicastPeers" => "unicastPeer",
        "apiServers" => "apiServer",
        other => other,
    };
    let mut flag = String::new();
    for c in singular.chars() {
        if c.is_ascii_uppercase() {
            flag.push('-');
        }
        flag.push(c.to_ascii_lowercase());
    }
    flag
}

fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(items) => items.iter().map(text).collect::<Vec<_>>().join(","),
        other => other.to_string(),
    }
}

/// As systemd reads words.
fn quoted(word: &str) -> String {
    let word = word.replace('%', "%%").replace('$', "$$");
    match word.contains([' ', '"', '\'', '\\', ';']) {
        true => format!("\"{}\"", word.replace('\\', "\\\\").replace('"', "\\\"")),
        false => word,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{FromArgMatches, Parser};

    #[derive(Parser)]
    struct Flags {
        #[command(flatten)]
        given: Given,
    }

    fn given() -> Given {
        let flags = "vip --address 172.16.64.58,fd00::58 --unicast-peer 10.0.0.1 --unicast-peer 10.0.0.2 --interval 100ms \
                     --preempt=false --forward direct --kubeconfig /etc/kubernetes/admin.conf --status-address none";
        Flags::parse_from(flags.split_whitespace()).given
    }

    #[test]
    fn flags_survive_the_manifest() {
        let given = given();
        let manifest = Manifest {
            given: &given,
            config_file: None,
            image: "portico",
            program: Path::new("/usr/bin/portico"),
        };
        let arguments = manifest.arguments();
        let command = <Flags as clap::CommandFactory>::command();
        let again = Flags::from_arg_matches(&command.get_matches_from(&arguments)).unwrap();
        assert_eq!(again.given, given, "{arguments:?}");
    }

    #[test]
    fn the_pod_has_what_it_reads_and_little_else() {
        let given = given();
        let manifest = Manifest {
            given: &given,
            config_file: None,
            image: "img:1",
            program: Path::new("/usr/bin/portico"),
        };
        let pod: Value = serde_saphyr::from_str(&manifest.static_pod()).unwrap();
        let container = &pod["spec"]["containers"][0];
        assert_eq!(container["image"], "img:1");
        assert_eq!(
            container["securityContext"]["capabilities"]["drop"],
            json!(["ALL"])
        );
        assert_eq!(
            container["volumeMounts"].as_array().unwrap().len(),
            pod["spec"]["volumes"].as_array().unwrap().len()
        );
        assert!(pod.to_string().contains("/etc/kubernetes/admin.conf"));
        assert!(
            manifest
                .systemd_unit()
                .contains("ExecStart=/usr/bin/portico vip --address=172.16.64.58,fd00::58 ")
        );
    }

    #[test]
    fn words_are_quoted_for_systemd() {
        assert_eq!(quoted("--a=b"), "--a=b");
        assert_eq!(quoted("--a=b c"), "\"--a=b c\"");
        assert_eq!(quoted("50%$"), "50%%$$");
    }
}
