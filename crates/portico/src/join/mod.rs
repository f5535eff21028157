//! `portico join`: this machine becomes a node of the cluster that `portico up` runs on another.
//! What it needs is in the command that `portico token create` prints there. What it gets is a
//! token that is good for this node alone, and only while its Node is there.

mod credentials;
mod pin;
pub(crate) mod token;

use crate::client::{Reader, plain};
use crate::machine::{self, Machine};
use crate::signals::Signals;
use crate::up::{self, keeper::Keeper, notify};
use anyhow::{Context, bail};
use clap::Args;
use credentials::Folder;
use kube::{Client, Config};
use pin::Hash;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use tokio::time::sleep;

const DATA: &str = "/var/lib/portico/joined";
const NODES: &str = "/api/v1/nodes";
const NODE_TOKEN: &str = "/api/v1/namespaces/kube-system/serviceaccounts/portico-node/token";
/// On a Node: the ID of the token that it joined with.
const JOINED_WITH: &str = "portico.dev/joined-with";
/// How long this node's token is good; a machine that was off for longer has to join anew.
const LASTS: Duration = Duration::from_secs(7 * 24 * 3600);
/// It is exchanged for a new one when it is so old, and tried again so long after that failed.
const RENEWED: Duration = Duration::from_secs(24 * 3600);
const RETRY: Duration = Duration::from_secs(300);
/// A join token has 23 characters.
const LONGEST_TOKEN: u64 = 4096;
const LOOK: Duration = Duration::from_millis(100);
/// The time limit for the API server to take the version.
const ANSWER: Duration = Duration::from_secs(10);
const NODE: &str = "node";

#[derive(Args)]
#[command(rename_all = "kebab-case")]
pub(crate) struct Arguments {
    /// Where the API server is: https://ADDRESS:6443.
    #[arg(value_name = "URL")]
    server: http::Uri,
    /// A file with the join token that `portico token create` printed; - reads it from standard
    /// input. Not needed by a machine that has joined already.
    #[arg(long, value_name = "FILE", required_unless_present_any = ["joined", "token"])]
    token_file: Option<PathBuf>,
    /// The join token itself. Every user of this machine can read it in the list of processes, so
    /// --token-file is better.
    #[arg(long, value_name = "ID.SECRET", conflicts_with = "token_file")]
    token: Option<String>,
    /// The hash of the API server's CA certificate.
    #[arg(long, value_name = "sha256:HEX", required_unless_present = "joined")]
    ca_hash: Option<Hash>,
    /// Go on as the node that this machine became before.
    #[arg(long)]
    joined: bool,
    /// The name of this machine's Node [default: its hostname].
    #[arg(long, value_name = "NAME")]
    node_name: Option<String>,
    #[command(flatten)]
    machine: Machine,
    /// Where the credentials, and what the node remembers, are kept.
    #[arg(long, value_name = "DIR", default_value = DATA)]
    data_dir: PathBuf,
    /// More for `portico node`: -- --proxy-mode ipvs --cluster-cidr 10.244.0.0/16
    #[arg(last = true, value_name = "FLAGS")]
    node_flags: Vec<String>,
}

pub(crate) fn run(arguments: Arguments) -> anyhow::Result<()> {
    if !up::is_root() {
        bail!(
            "portico join changes rules of this machine, which only root may: run it again with \
             sudo"
        );
    }
    crate::logging::start();
    crate::runtime()?.block_on(async {
        let folder = Folder::open(&arguments.data_dir)?;
        let given = given(&arguments)?;
        match (folder.has_joined(), given) {
            (true, None) => {}
            (true, Some(given)) => check_credentials(&arguments, &folder, &given).await?,
            (false, Some(given)) => become_node(&arguments, &folder, &given).await?,
            (false, None) => bail!(
                "this machine has not joined: {} has no credentials",
                arguments.data_dir.display()
            ),
        }
        let mut signals = Signals::new()?;
        let mut keeper = Keeper::new(BTreeMap::from([(NODE, command(&arguments, &folder)?)]))?;
        let result = tokio::select! {
            result = keep(&mut keeper, &folder) => result,
            () = signals.wait() => Ok(()),
        };
        keeper.stop(&[NODE]);
        result
    })
}

/// Once: make sure who the server is, make the Node, get its token.
async fn become_node(arguments: &Arguments, folder: &Folder, given: &Given) -> anyhow::Result<()> {
    let name = node_name(arguments)?;
    let pinned = find_server(&arguments.server, given.ca_hash).await?;
    let reader = reader(&arguments.server, &pinned.authority, &given.token)?;
    let id = given.token.split('.').next().unwrap_or_default();
    let node = node_object(&arguments.machine, &name, pinned.own, id);
    match reader.create(NODES, &node).await {
        Ok(_) => tracing::info!(node = %name, "made the Node"),
        // It may be of an attempt with the same token that ended half way, which is for the API
        // server to say.
        Err(kube::Error::Api(status)) if status.code == 409 => {}
        Err(error) => return Err(refused(error)).context("cannot make the Node"),
    }
    let node_token = request_token(&reader, &name)
        .await
        .map_err(|error| match error {
            kube::Error::Api(status) if status.code == 403 => anyhow::anyhow!(
                "a Node {name} is there already: choose another --node-name, or delete it first \
                 (kubectl delete node {name})"
            ),
            error => refused(error).context("cannot get a token for the node"),
        })?;
    folder.keep(
        &arguments.server.to_string(),
        &pinned.authority,
        &name,
        &node_token,
    )?;
    tracing::info!(node = %name, "joined");
    Ok(())
}

/// For a machine that has joined before: what was given now has to be right, too, and a machine
/// whose Node was deleted since then becomes a node again.
async fn check_credentials(
    arguments: &Arguments,
    folder: &Folder,
    given: &Given,
) -> anyhow::Result<()> {
    let kept_in = arguments.data_dir.display();
    let name = folder.node_name()?;
    if let Some(asked) = arguments.node_name.as_ref().filter(|asked| **asked != name) {
        bail!(
            "this machine is the node {name} already, by {kept_in}: leave --node-name {asked} out, \
             or delete the Node and that folder to join under another name"
        );
    }
    let (server, authority, node_token) = folder.access()?;
    let pinned = find_server(&arguments.server, given.ca_hash).await?;
    if pinned.authority != authority {
        bail!(
            "this machine is a node of another cluster, at {server}, by {kept_in}: delete its Node \
             there and that folder, or give another --data-dir"
        );
    }
    let asking = reader(&arguments.server, &authority, &given.token)?;
    if let Err(error) = ask(&asking, "/version").await {
        return Err(refused(error)).context("cannot ask the API server with this token");
    }
    let own = reader(&arguments.server, &authority, &node_token)?;
    match ask(&own, &format!("{NODES}/{name}")).await {
        Ok(_) => {
            tracing::info!(node = %name, "this machine has joined already");
            Ok(())
        }
        Err(kube::Error::Api(status)) if matches!(status.code, 401 | 404) => {
            tracing::info!(node = %name, "the Node was deleted since this machine joined");
            become_node(arguments, folder, given).await
        }
        Err(error) => Err(plain(error)).context("cannot ask for the Node of this machine"),
    }
}

/// A request that says nothing of who may: a token that is not known is refused all the same.
async fn ask(reader: &Reader, path: &str) -> Result<Value, kube::Error> {
    let request = http::Request::get(path)
        .body(Vec::new())
        .map_err(kube::Error::HttpError)?;
    reader.client.request(request).await
}

/// The API server there, if its CA is the one with this hash. Nothing is sent to another.
async fn find_server(server: &http::Uri, hash: Hash) -> anyhow::Result<pin::Pinned> {
    let server = server.clone();
    tokio::task::spawn_blocking(move || pin::find(&server, hash)).await?
}

/// What `portico token create` printed.
struct Given {
    token: String,
    ca_hash: Hash,
}

/// Standard input can be read only once, so this is asked once. `None` with `--joined`.
fn given(arguments: &Arguments) -> anyhow::Result<Option<Given>> {
    let token = join_token(arguments)?;
    Ok(token
        .zip(arguments.ca_hash)
        .map(|(token, ca_hash)| Given { token, ca_hash }))
}

/// The join token, wherever it was given.
fn join_token(arguments: &Arguments) -> anyhow::Result<Option<String>> {
    let Some(path) = &arguments.token_file else {
        return Ok(arguments.token.clone());
    };
    let mut text = String::new();
    let read = match path.as_os_str() == "-" {
        true => std::io::stdin()
            .take(LONGEST_TOKEN)
            .read_to_string(&mut text),
        false => {
            File::open(path).and_then(|file| file.take(LONGEST_TOKEN).read_to_string(&mut text))
        }
    };
    read.with_context(|| format!("cannot read the token: --token-file {}", path.display()))?;
    match text.trim() {
        "" => bail!("there is no token in --token-file {}", path.display()),
        token => Ok(Some(token.to_owned())),
    }
}

fn refused(error: kube::Error) -> anyhow::Error {
    match error {
        kube::Error::Api(status) if status.code == 401 => {
            anyhow::anyhow!(
                "the API server does not take the token: it is wrong, or has expired. Make \
                 another with portico token create"
            )
        }
        error => plain(error),
    }
}

fn node_name(arguments: &Arguments) -> anyhow::Result<String> {
    match &arguments.node_name {
        Some(name) => Ok(name.clone()),
        None => Ok(std::fs::read_to_string("/proc/sys/kernel/hostname")?
            .trim()
            .to_lowercase()),
    }
}

fn node_object(machine: &Machine, name: &str, own: IpAddr, token_id: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {
            "name": name, "labels": {"kubernetes.io/hostname": name}, "annotations": {JOINED_WITH: token_id},
        },
        "spec": machine.spec(),
        "status": machine.status(name, own, ["PorticoJoin", "portico join runs"]),
    })
}

async fn request_token(reader: &Reader, node: &str) -> Result<String, kube::Error> {
    let bound = json!({"apiVersion": "v1", "kind": "Node", "name": node});
    let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
        "spec": {"boundObjectRef": bound, "expirationSeconds": LASTS.as_secs()}});
    let answer = reader.create(NODE_TOKEN, &request).await?;
    Ok(answer["status"]["token"]
        .as_str()
        .unwrap_or_default()
        .to_owned())
}

/// A reader that shows this token to the server whose certificate this CA signed.
fn reader(server: &http::Uri, authority: &[u8], token: &str) -> anyhow::Result<Reader> {
    let mut config = Config::new(server.clone());
    config.root_cert = Some(vec![authority.to_vec()]);
    config.auth_info.token = Some(token.to_owned().into());
    Ok(Reader {
        client: Client::try_from(config)?,
        authorization: None,
    })
}

fn command(arguments: &Arguments, folder: &Folder) -> anyhow::Result<Vec<String>> {
    let (kubeconfig, name) = (
        folder.kubeconfig().display().to_string(),
        folder.node_name()?,
    );
    let data = folder.node_data().display().to_string();
    let mut command: Vec<String> = [
        NODE,
        "--kubeconfig",
        &kubeconfig,
        "--hostname-override",
        &name,
        "--data-dir",
        &data,
    ]
    .map(str::to_owned)
    .into();
    command.extend(arguments.node_flags.iter().cloned());
    Ok(command)
}

/// The daemon runs, and its token stays young.
async fn keep(keeper: &mut Keeper, folder: &Folder) -> anyhow::Result<()> {
    keeper.start(NODE)?;
    notify::ready();
    let mut next = Instant::now();
    let mut told = None;
    loop {
        sleep(LOOK).await;
        keeper.restart_what_ended()?;
        if told.is_none_or(|next| next < Instant::now()) {
            told = Some(match tell_version(folder).await {
                Ok(()) => Instant::now() + RENEWED,
                Err(error) => {
                    tracing::warn!(
                        error = format!("{error:#}"),
                        "cannot write this Node's version"
                    );
                    Instant::now() + RETRY
                }
            });
        }
        if Instant::now() < next || folder.token_age().is_none_or(|age| age < RENEWED) {
            continue;
        }
        next = Instant::now() + RETRY;
        if let Err(error) = renew(folder).await {
            tracing::warn!(
                error = format!("{error:#}"),
                "cannot renew the token of this node, will try again"
            );
        }
    }
}

/// The program may be newer than it was when the Node was made.
async fn tell_version(folder: &Folder) -> anyhow::Result<()> {
    let (server, authority, token) = folder.access()?;
    let reader = reader(&server.parse()?, &authority, &token)?;
    let patch = json!({"status": {"nodeInfo": machine::node_info()}});
    let path = format!("{NODES}/{}/status", folder.node_name()?);
    let request = http::Request::patch(path)
        .header("content-type", "application/merge-patch+json")
        .body(serde_json::to_vec(&patch)?)?;
    let answer = reader.client.request::<Value>(request);
    match tokio::time::timeout(ANSWER, answer).await {
        Ok(Err(kube::Error::Api(status))) if status.code == 401 => bail!(
            "the API server does not know this node any more, so no change reaches it: was its \
             Node deleted, or was the machine off for a week? Run portico join with a new token"
        ),
        Ok(written) => written.map(drop).map_err(plain),
        Err(_) => bail!("no answer from {server} in {ANSWER:?}"),
    }
}

async fn renew(folder: &Folder) -> anyhow::Result<()> {
    let (server, authority, token) = folder.access()?;
    let reader = reader(&server.parse()?, &authority, &token)?;
    let token = request_token(&reader, &folder.node_name()?)
        .await
        .map_err(plain)?;
    folder.keep_token(&token)?;
    tracing::info!("renewed the token of this node");
    Ok(())
}
