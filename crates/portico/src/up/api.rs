//! The API server that was just started, as its first client sees it.

use kube::Client;
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

pub(super) async fn client(kubeconfig: Kubeconfig) -> anyhow::Result<Client> {
    let config =
        kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    Ok(Client::try_from(config)?)
}

pub(super) async fn is_ready(client: &Client) -> bool {
    let Ok(request) = http::Request::get("/readyz").body(Vec::new()) else {
        return false;
    };
    client
        .request_text(request)
        .await
        .is_ok_and(|text| text == "ok")
}

/// Credentials that the server made, in a file of their own, for clients that reach it at another
/// address.
pub(super) fn write_kubeconfig(made: &Path, server: &str, to: &Path) -> anyhow::Result<Kubeconfig> {
    let mut kubeconfig = Kubeconfig::read_from(made)?;
    for cluster in kubeconfig
        .clusters
        .iter_mut()
        .filter_map(|named| named.cluster.as_mut())
    {
        cluster.server = Some(server.to_owned());
    }
    let text =
        serde_json::to_string_pretty(&serde_json::to_value(&kubeconfig).map(without_nulls)?)?;
    fs::write(to, text)?;
    fs::set_permissions(to, fs::Permissions::from_mode(0o600))?;
    Ok(kubeconfig)
}

/// What is not said is not written.
fn without_nulls(mut value: Value) -> Value {
    match &mut value {
        Value::Object(fields) => {
            fields.retain(|_, field| !field.is_null());
            fields
                .values_mut()
                .for_each(|field| *field = without_nulls(field.take()));
        }
        Value::Array(items) => items
            .iter_mut()
            .for_each(|item| *item = without_nulls(item.take())),
        _ => {}
    }
    value
}
