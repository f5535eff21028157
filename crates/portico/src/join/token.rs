//! `portico token`: join tokens, each good for a while, with which another machine becomes a node
//! (`portico join`).

use super::pin::Hash;
use crate::client::{Access, Reader, plain};
use crate::output::{Output, Table};
use anyhow::{Context, bail};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use clap::{Args, Subcommand};
use jiff::{SignedDuration, Timestamp};
use portico_model::duration::parse as parse_duration;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::time::Duration;

const SECRETS: &str = "/api/v1/namespaces/kube-system/secrets";
const ACCOUNT: &str = "/api/v1/namespaces/kube-system/serviceaccounts/portico-node";
const MANAGER: &str = "portico-token";
const PREFIX: &str = "bootstrap-token-";
const TYPE: &str = "bootstrap.kubernetes.io/token";
const ID_LENGTH: usize = 6;
const SECRET_LENGTH: usize = 16;

#[derive(Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: TokenCommand,
}

#[derive(Subcommand)]
enum TokenCommand {
    /// Print the command that makes another machine a node.
    Create(Create),
    /// Show the tokens that there are, without their secrets.
    List(List),
    /// Make a token useless before its time.
    Delete(Delete),
}

#[derive(Args)]
struct Create {
    #[command(flatten)]
    access: Access,
    /// How long the token can be used: 30m, 2h.
    #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = duration)]
    ttl: Duration,
    /// Where other machines reach the API server [default: as the API server says itself].
    #[arg(long, value_name = "URL")]
    server: Option<String>,
}

#[derive(Args)]
struct List {
    #[command(flatten)]
    access: Access,
    #[command(flatten)]
    output: Output,
}

#[derive(Args)]
struct Delete {
    #[command(flatten)]
    access: Access,
    /// The part of the token before the dot.
    id: String,
}

fn duration(text: &str) -> Result<Duration, String> {
    parse_duration(text)
        .filter(|found| !found.is_zero())
        .ok_or_else(|| "write it like 30m or 2h".to_owned())
}

pub(crate) fn run(arguments: Arguments) -> anyhow::Result<()> {
    crate::runtime()?.block_on(async {
        match arguments.command {
            TokenCommand::Create(create) => {
                crate::print(&format!("{}\n", create.run().await?));
                Ok(())
            }
            TokenCommand::List(list) => list
                .output
                .print(&tokens(&list.access.reader().await?).await?),
            TokenCommand::Delete(delete) => {
                let reader = delete.access.reader().await?;
                match reader
                    .delete(&format!("{SECRETS}/{PREFIX}{}", delete.id))
                    .await?
                {
                    true => Ok(()),
                    false => bail!("there is no token {}: see portico token list", delete.id),
                }
            }
        }
    })
}

impl Create {
    /// The command to type on the other machine. The token comes by standard input: arguments stand
    /// in the list of processes, which every user can read.
    async fn run(&self) -> anyhow::Result<String> {
        let reader = self.access.reader().await?;
        let authority = self.access.authority().await?;
        let authority = authority
            .first()
            .context("the kubeconfig has no certificate-authority-data to pin")?;
        let server = match &self.server {
            Some(url) => url.clone(),
            None => advertised(&reader).await?,
        };
        remove_expired(&reader).await?;
        let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "portico-node", "namespace": "kube-system"}});
        reader.apply(ACCOUNT, MANAGER, "", &account).await?;
        let (id, secret) = (random(ID_LENGTH)?, random(SECRET_LENGTH)?);
        let end = Timestamp::now().saturating_add(SignedDuration::try_from(self.ttl)?)?;
        reader
            .create(SECRETS, &secret_object(&id, &secret, end))
            .await
            .map_err(plain)
            .context("cannot keep the token")?;
        Ok(format!(
            "echo {id}.{secret} | portico join {server} --token-file - --ca-hash {}",
            Hash::of(authority)
        ))
    }
}

fn secret_object(id: &str, secret: &str, end: Timestamp) -> Value {
    let end = end.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let data = [
        ("token-id", id),
        ("token-secret", secret),
        ("expiration", &end),
        ("usage-bootstrap-authentication", "true"),
        ("description", "made by portico token create"),
    ];
    let data: BTreeMap<&str, String> = data
        .into_iter()
        .map(|(key, text)| (key, STANDARD.encode(text)))
        .collect();
    json!({"apiVersion": "v1", "kind": "Secret", "type": TYPE, "data": data,
        "metadata": {"name": format!("{PREFIX}{id}"), "namespace": "kube-system"}})
}

/// The address of the API server behind the Service `kubernetes`.
async fn advertised(reader: &Reader) -> anyhow::Result<String> {
    let found: Option<Value> = reader
        .find("/api/v1/namespaces/default/endpoints/kubernetes")
        .await?;
    let found = found.unwrap_or_default();
    let subset = &found["subsets"][0];
    match (
        subset["addresses"][0]["ip"].as_str(),
        subset["ports"][0]["port"].as_u64(),
    ) {
        (Some(address), Some(port)) if address.contains(':') => {
            Ok(format!("https://[{address}]:{port}"))
        }
        (Some(address), Some(port)) => Ok(format!("https://{address}:{port}")),
        _ => bail!("the API server does not say where it is: give --server https://ADDRESS:PORT"),
    }
}

/// A Secret, as far as it is needed here.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Secret {
    metadata: portico_model::objects::Metadata,
    #[serde(rename = "type", default)]
    type_: String,
    #[serde(default)]
    data: BTreeMap<String, String>,
}

impl Secret {
    fn expiration(&self) -> Option<Timestamp> {
        String::from_utf8(STANDARD.decode(self.data.get("expiration")?).ok()?)
            .ok()?
            .parse()
            .ok()
    }
}

#[derive(Debug, PartialEq, Eq, Serialize)]
struct Tokens(Vec<Token>);

#[derive(Debug, PartialEq, Eq, Serialize)]
struct Token {
    id: String,
    expiration: String,
    usable: bool,
}

impl fmt::Display for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = Table::new(["id", "expiration", "usable"]);
        for Token {
            id,
            expiration,
            usable,
        } in &self.0
        {
            table.row([
                id.clone(),
                expiration.clone(),
                if *usable { "yes" } else { "no" }.to_owned(),
            ]);
        }
        write!(f, "{table}")
    }
}

async fn tokens(reader: &Reader) -> anyhow::Result<Tokens> {
    let now = Timestamp::now();
    let secrets: Vec<Secret> = reader.list(SECRETS).await?;
    let token = |secret: &Secret| {
        let end = secret.expiration();
        let id = secret
            .metadata
            .name
            .strip_prefix(PREFIX)
            .filter(|_| secret.type_ == TYPE)?
            .to_owned();
        let expiration = end.map(|end| end.to_string()).unwrap_or_default();
        Some(Token {
            id,
            expiration,
            usable: end.is_some_and(|end| now < end),
        })
    };
    Ok(Tokens(secrets.iter().filter_map(token).collect()))
}

async fn remove_expired(reader: &Reader) -> anyhow::Result<()> {
    for token in tokens(reader)
        .await?
        .0
        .into_iter()
        .filter(|token| !token.usable)
    {
        reader
            .delete(&format!("{SECRETS}/{PREFIX}{}", token.id))
            .await?;
    }
    Ok(())
}

/// Random letters and digits, from the system's source of random bytes.
fn random(length: usize) -> anyhow::Result<String> {
    const ALPHABET: &[u8; 36] = b"abcdefghijklmnopqrstuvwxyz0123456789";
    // Bytes beyond a multiple of the alphabet's length would make some characters likelier.
    const FAIR: u8 = 252;
    let mut source = File::open("/dev/urandom").context("no random numbers")?;
    let mut text = String::new();
    while text.len() < length {
        let mut byte = [0];
        source.read_exact(&mut byte).context("no random numbers")?;
        let character = ALPHABET
            .get(usize::from(byte[0]) % ALPHABET.len())
            .filter(|_| byte[0] < FAIR);
        text.extend(character.map(|character| char::from(*character)));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_have_their_form() {
        let (one, other) = (
            random(SECRET_LENGTH).unwrap(),
            random(SECRET_LENGTH).unwrap(),
        );
        assert_ne!(one, other);
        assert!(
            one.len() == SECRET_LENGTH
                && one
                    .bytes()
                    .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
        );
    }

    #[test]
    fn the_end_of_a_token_is_kept_in_its_secret() {
        let end: Timestamp = "2026-01-01T01:00:00Z".parse().unwrap();
        let secret: Secret =
            serde_json::from_value(secret_object("abcdef", "0123456789abcdef", end)).unwrap();
        assert_eq!(
            (secret.expiration(), secret.type_.as_str()),
            (Some(end), TYPE)
        );
        assert_eq!(secret.metadata.name, "bootstrap-token-abcdef");
    }
}
