//! A BGPPeer becomes a BgpPeer. Pure.

use super::super::report::{Document, File, Remark, object_name, password_secret};
use super::Resource;
use super::selectors::one_of;
use serde_json::{Map, Value, json};

/// Fields that mean the same.
const SAME: &[&str] = &[
    "myASN",
    "peerASN",
    "peerAddress",
    "peerPort",
    "sourceAddress",
    "routerID",
    "holdTime",
    "keepaliveTime",
    "connectTime",
];

/// The peer, and a Secret for its password; nothing where there can be none, which is told.
pub(super) fn translate(mut peer: Resource, file: &mut File) -> Vec<Document> {
    let (mut spec, mut remarks, mut out) = (Map::new(), Vec::new(), Vec::new());
    for key in SAME {
        let value = peer.fields.take(key);
        if !value.is_null() {
            spec.insert((*key).to_owned(), value);
        }
    }
    if let Some(problem) = unreachable(&mut peer, &mut spec) {
        file.warn(format!("{} is not translated: {problem}", peer.title()));
        return Vec::new();
    }
    let title = peer.title();
    if let Some(selector) = one_of(
        &format!("{title}: nodeSelectors"),
        peer.fields.list("nodeSelectors"),
        &mut remarks,
    ) {
        spec.insert("nodeSelector".to_owned(), selector);
    }
    if peer.fields.switch("ebgpMultiHop") == Some(true) {
        match spec.get("myASN") == spec.get("peerASN") {
            true => remarks.push(Remark::Note(
                "ebgpMultiHop is left out: an internal session may have any number of hops"
                    .to_owned(),
            )),
            false => drop(spec.insert("ebgpMultiHop".to_owned(), true.into())),
        }
    }
    match peer.fields.switch("enableGracefulRestart") {
        Some(value) => drop(spec.insert("gracefulRestart".to_owned(), value.into())),
        None => remarks.push(Remark::Note(
            "gracefulRestart is on unless you set it to false: the router keeps routes while a \
             node's daemon restarts"
                .to_owned(),
        )),
    }
    for both in ["disableMP", "dualStackAddressFamily"] {
        if let Some(value) = peer.fields.text(both) {
            remarks.push(Remark::Note(format!(
                "{both}: {value} is left out: addresses of both families go over either session"
            )));
        }
    }
    if let Some(profile) = peer.fields.text("bfdProfile") {
        remarks.push(Remark::Warning(format!(
            "bfdProfile: {profile} has no equivalent: a dead router is noticed after holdTime, so \
             make that short (at least 3s)"
        )));
    }
    if let Some(vrf) = peer.fields.text("vrf") {
        remarks.push(Remark::Warning(format!(
            "vrf: {vrf} has no equivalent: the session is made in the node's main table"
        )));
    }
    out.extend(password(&mut peer, &mut spec, &mut remarks));
    remarks.extend(peer.left());
    let content = json!({
        "apiVersion": "portico.dev/v1",
        "kind": "BgpPeer",
        "metadata": peer.metadata(),
        "spec": spec,
    });
    out.push(Document { remarks, content });
    out
}

/// What of it Portico has no session for.
fn unreachable(peer: &mut Resource, spec: &mut Map<String, Value>) -> Option<String> {
    match peer.fields.text("dynamicASN").as_deref() {
        Some("internal") => drop(spec.insert(
            "peerASN".to_owned(),
            spec.get("myASN").cloned().unwrap_or_default(),
        )),
        Some(mode) => {
            return Some(format!(
                "dynamicASN: {mode}: the number of the router's AS has to be known; give peerASN"
            ));
        }
        None => {}
    }
    let interface = peer.fields.text("interface")?;
    Some(format!(
        "interface: {interface}: a session needs the address of the router; give peerAddress"
    ))
}

/// Where the password is, or a Secret for the one that was written into the peer.
fn password(
    peer: &mut Resource,
    spec: &mut Map<String, Value>,
    remarks: &mut Vec<Remark>,
) -> Option<Document> {
    if let Some(name) = peer.fields.text("passwordSecret.name") {
        let namespace = peer
            .fields
            .text("passwordSecret.namespace")
            .unwrap_or_else(|| peer.namespace.clone());
        remarks.push(Remark::Note(format!(
            "nodes read the password from the Secret {namespace}/{name}: it has to stay when \
             MetalLB goes, and nodes need the right to read it (deploy/rbac/node.yaml)"
        )));
        spec.insert(
            "passwordSecret".to_owned(),
            json!({"name": name, "namespace": namespace, "key": "password"}),
        );
        return None;
    }
    let password = peer.fields.text("password")?;
    let name = format!("portico-bgp-{}", object_name(&peer.name));
    spec.insert("passwordSecret".to_owned(), json!({"name": name}));
    Some(password_secret(&name, &password))
}
