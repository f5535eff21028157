//! The key by which nodes know each other's heartbeats: out of a file, or the Secret that the
//! controller makes.

use crate::client;
use k8s_openapi::api::core::v1::Secret;
use kube::Client;
use portico_client::error::chain;
use portico_client::wait::fraction;
use std::path::{Path, PathBuf};
use std::time::Duration;

const SECRET: &str = "/api/v1/namespaces/kube-system/secrets/portico-announce";
const FIELD: &str = "key";
/// Shorter ones can be guessed.
const SHORTEST: usize = 16;
/// The time between tries.
const RETRY: Duration = Duration::from_secs(2);

/// Reads it, however long that takes: the controller may come after us.
pub(super) async fn read(client: Client, file: Option<PathBuf>) -> Vec<u8> {
    let mut told = String::new();
    loop {
        let read = match &file {
            Some(path) => of_file(path).await,
            None => of_secret(&client).await,
        };
        match read.and_then(long_enough) {
            Ok(key) => return key,
            Err(problem) if problem != told => {
                tracing::warn!(
                    problem,
                    "without the key of heartbeats nothing is announced at layer 2, will try again"
                );
                told = problem;
            }
            Err(_) => {}
        }
        tokio::time::sleep(RETRY.mul_f64(0.5 + fraction())).await;
    }
}

async fn of_file(path: &Path) -> Result<Vec<u8>, String> {
    tokio::fs::read(path)
        .await
        .map_err(|error| format!("--announce-key-file={}: {error}", path.display()))
}

async fn of_secret(client: &Client) -> Result<Vec<u8>, String> {
    let which =
        "the Secret kube-system/portico-announce (of portico controller --cloud-provider=metal)";
    let body = client::get(client, SECRET)
        .await
        .map_err(|error| format!("{which}: {}", chain(&error)))?;
    let secret: Secret =
        serde_json::from_slice(&body).map_err(|error| format!("{which}: {}", chain(&error)))?;
    let key = secret.data.and_then(|mut data| data.remove(FIELD));
    key.map(|key| key.0)
        .ok_or_else(|| format!("{which} has no {FIELD:?}"))
}

fn long_enough(key: Vec<u8>) -> Result<Vec<u8>, String> {
    match key.len() {
        length if length < SHORTEST => Err(format!(
            "the key has {length} bytes; give it at least {SHORTEST}"
        )),
        _ => Ok(key),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_can_be_guessed_is_none() {
        assert!(
            long_enough(vec![7; 15])
                .unwrap_err()
                .contains("at least 16")
        );
        assert_eq!(long_enough(vec![7; 16]), Ok(vec![7; 16]));
    }

    #[tokio::test]
    async fn a_file_that_is_not_there_is_named() {
        let error = of_file(Path::new("/nowhere/key")).await.unwrap_err();
        assert!(
            error.starts_with("--announce-key-file=/nowhere/key: "),
            "{error}"
        );
    }
}
