//! keepalived.conf becomes the configuration of `portico vip`, and files of static Services. Pure.

mod instance;
mod servers;
mod syntax;
#[cfg(test)]
mod tests;

use super::report::{Document, File};
use instance::{Globals, Instance};
use serde_json::json;
use servers::VirtualServer;
use std::collections::BTreeSet;
use std::net::IpAddr;
use syntax::Statement;

/// Where `portico vip` reads a password from, unless it is told otherwise.
const PASSWORD_FILE: &str = "/etc/portico/vip.password";
const USAGE: &str = "save as /etc/portico/vip.yaml on every node that has the address, and run `portico vip --config /etc/portico/vip.yaml` \
                     (`portico vip manifest --config …` prints a static pod and a systemd unit)";

/// The files that come of a configuration, or what is wrong with its syntax.
pub(super) fn translate(text: &str) -> Result<Vec<File>, String> {
    let statements = syntax::parse(text)?;
    let mut about = File::default();
    let mut globals = Globals::default();
    let (mut instances, mut virtual_servers) = (Vec::new(), Vec::new());
    for statement in &statements {
        match statement.keyword() {
            "global_defs" => globals.read(statement.block(), &mut about.remarks),
            "vrrp_script" => globals.script(statement),
            "vrrp_instance" => instances.push(statement),
            "virtual_server" => virtual_servers.push(statement),
            "vrrp_sync_group" => about.warn(format!(
                "line {}: {}: addresses move one by one here. One instance with all addresses \
                 moves them together",
                statement.line,
                statement.text()
            )),
            "include" | "includer" | "includem" | "includew" | "includeb" | "includea" => about
                .warn(format!(
                    "line {}: {}: other files are not read; put their text in this place",
                    statement.line,
                    statement.text()
                )),
            _ => about.warn(lost(statement)),
        }
    }
    let mut servers = Vec::new();
    for statement in virtual_servers {
        match VirtualServer::read(statement) {
            Ok(server) => servers.push(server),
            Err(problem) => about.warn(format!(
                "line {}: {}: {problem}",
                statement.line,
                statement.text()
            )),
        }
    }
    let instances: Vec<Instance> = instances
        .into_iter()
        .map(|statement| Instance::read(statement, &globals))
        .collect();
    let (of_services, vips): (Vec<_>, Vec<_>) = instances
        .into_iter()
        .partition(|instance| instance.is_for_services(&servers));
    let mut files = vip_files(vips, &mut servers, about);
    files.extend(service_file(servers, &of_services));
    Ok(files)
}

/// What has no equivalent, with its line.
fn lost(statement: &Statement) -> String {
    format!(
        "line {}: {} has no equivalent",
        statement.line,
        statement.text()
    )
}

fn vip_files(
    mut instances: Vec<Instance>,
    servers: &mut Vec<VirtualServer>,
    about: File,
) -> Vec<File> {
    // One `portico vip` runs on a node: the instance that is for API servers first.
    instances.sort_by_key(|instance| !instance.is_for_api_servers(servers));
    let mut files = Vec::new();
    for (number, mut instance) in instances.into_iter().enumerate() {
        instance.take_api_servers(servers);
        let mut file = File {
            usage: USAGE.to_owned(),
            name: "vip.yaml".to_owned(),
            ..File::default()
        };
        if number > 0 {
            file.name = format!("vip-{}.yaml", super::report::object_name(&instance.name));
            file.warn(
                "one `portico vip` runs on a node: use this on nodes that do not use another \
                 of these files, or as load-balancer addresses of Services (AddressPools, \
                 docs/metal.md)",
            );
        }
        let (remarks, content) = instance.finish();
        file.documents.push(Document { remarks, content });
        files.push(file);
    }
    match files.first_mut() {
        Some(first) => first.remarks.splice(0..0, about.remarks).for_each(drop),
        None if about.remarks.is_empty() => {}
        None => files.push(File {
            name: "vip.yaml".to_owned(),
            usage: "there is no vrrp_instance".to_owned(),
            ..about
        }),
    }
    files
}

/// Addresses of `instances` are only those of Services, so that nodes announce them.
fn service_file(servers: Vec<VirtualServer>, instances: &[Instance]) -> Option<File> {
    let mut file = File {
        name: "services.yaml".to_owned(),
        usage: "save into /run/portico/services on nodes with `portico node` (static Services, \
                docs/node.md), or kubectl apply -f services.yaml"
            .to_owned(),
        ..File::default()
    };
    let announced: BTreeSet<IpAddr> = instances
        .iter()
        .flat_map(|instance| instance.addresses().iter().copied())
        .collect();
    for instance in instances {
        file.note(format!(
            "vrrp_instance {}: the nodes choose by themselves which of them answers for its \
             addresses; priorities, ids and passwords of VRRP are not needed",
            instance.name
        ));
    }
    if !announced.is_empty() {
        file.usage = "kubectl apply -f services.yaml, after keepalived is stopped".to_owned();
        file.documents.push(Document {
            remarks: Vec::new(),
            content: json!({
                "apiVersion": "portico.dev/v1",
                "kind": "AddressPool",
                "metadata": {"name": "keepalived"},
                "spec": {
                    "addresses": announced.iter().map(|address| format!("{address}-{address}")).collect::<Vec<_>>(),
                    "autoAssign": false,
                },
            }),
        });
    }
    for server in servers {
        file.documents.extend(server.finish(&announced));
    }
    file.check_objects();
    (!file.documents.is_empty()).then_some(file)
}
