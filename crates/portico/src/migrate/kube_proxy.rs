//! kube-proxy's configuration becomes that of `portico node`, which reads the same format: what
//! counts is kept, the rest is named. Pure.

use super::report::{Document, File, Remark};
use portico_node::config::{self, Arguments, Surroundings};
use serde_json::{Map, Value};

const USAGE: &str = "the configuration of `portico node --config`. In a cluster, put it into the ConfigMap that the DaemonSet mounts, \
                     and change the DaemonSet's image";
/// Where kubeadm has it.
const KEY: &str = "config.conf";

/// Translates a `KubeProxyConfiguration`, or a ConfigMap that has one.
pub(super) fn translate(documents: &[Value]) -> Result<File, String> {
    let mut file = File {
        name: "node.yaml".to_owned(),
        usage: USAGE.to_owned(),
        ..File::default()
    };
    let mut found = None;
    for document in documents {
        match document
            .get("kind")
            .and_then(Value::as_str)
            .unwrap_or_default()
        {
            "KubeProxyConfiguration" => found = Some(document.clone()),
            "ConfigMap" => found = Some(from_config_map(document, &mut file)?),
            kind => file.note(format!(
                "{kind} is not read: it has no settings of kube-proxy"
            )),
        }
    }
    let tree = found.ok_or("there is no KubeProxyConfiguration, and no ConfigMap that has one")?;
    let document = configuration(tree)?;
    file.documents.push(document);
    Ok(file)
}

fn from_config_map(map: &Value, file: &mut File) -> Result<Value, String> {
    let data = map
        .get("data")
        .and_then(Value::as_object)
        .cloned()
        .unwrap_or_default();
    let mut configuration = None;
    for (key, value) in &data {
        let text = value.as_str().unwrap_or_default();
        match key.as_str() {
            "kubeconfig.conf" => file.note(
                "kubeconfig.conf of the ConfigMap is used as it is: keep it mounted where \
                 clientConnection.kubeconfig says",
            ),
            _ if key == KEY || text.contains("KubeProxyConfiguration") => {
                configuration =
                    Some(serde_saphyr::from_str(text).map_err(|error| format!("{key}: {error}"))?);
            }
            _ => file.warn(format!("ConfigMap: {key} is not read")),
        }
    }
    configuration.ok_or_else(|| format!("the ConfigMap has no {KEY}"))
}

fn configuration(mut tree: Value) -> Result<Document, String> {
    let mut remarks = Vec::new();
    let mode = tree.get("mode").and_then(Value::as_str).unwrap_or_default();
    if mode.is_empty() && tree.is_object() {
        tree["mode"] = "iptables".into();
        remarks.push(Remark::Note(
            "mode was left to kube-proxy, which means iptables. Take nftables, Portico's default: \
             a change costs the same however many Services there are. Node ports then answer on \
             the Node's addresses, and not on 127.0.0.1"
                .to_owned(),
        ));
    }
    // JSON is valid YAML. The reader that the node daemon uses decides which fields are understood.
    let loaded = config::interpret(
        &Arguments::default(),
        Some(("the configuration".into(), tree.to_string())),
        &Surroundings {
            node_name: None,
            hostname: "node".to_owned(),
        },
    )
    .map_err(|error| error.to_string())?;
    remarks.extend(
        loaded
            .warnings
            .iter()
            .map(|warning| Remark::Warning(warning.clone())),
    );
    let mut vain = Vec::new();
    let content = kept(&tree, &loaded.config.resolved, "", &mut vain).unwrap_or_default();
    if !vain.is_empty() {
        remarks.push(Remark::Note(format!(
            "left out, since they change nothing here: {}",
            vain.join(", ")
        )));
    }
    Ok(Document { remarks, content })
}

/// What was written, as far as it is understood and counts; the rest of what is understood goes to
/// `vain`.
fn kept(written: &Value, understood: &Value, path: &str, vain: &mut Vec<String>) -> Option<Value> {
    if config::fields_without_effect().any(|field| field == path) {
        vain.extend((!written.is_null()).then(|| path.to_owned()));
        return None;
    }
    match (written, understood) {
        (Value::Null, _) | (_, Value::Null) => None,
        (Value::Object(written), Value::Object(understood)) => {
            let mut both = Map::new();
            for (key, value) in written {
                let path = if path.is_empty() {
                    key.clone()
                } else {
                    format!("{path}.{key}")
                };
                let Some(understood) = understood.get(key) else {
                    continue;
                };
                both.extend(kept(value, understood, &path, vain).map(|value| (key.clone(), value)));
            }
            (!both.is_empty()).then_some(Value::Object(both))
        }
        (written, _) => Some(written.clone()),
    }
}

#[cfg(test)]
mod tests;
