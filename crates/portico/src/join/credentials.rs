//! What a machine that joined keeps: how it reaches the API server, and its token. For its owner
//! alone.

use anyhow::Context;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::fs::{self, DirBuilder, File};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

pub(super) struct Folder(PathBuf);

/// What was agreed on when the machine joined.
#[derive(Serialize, Deserialize)]
struct Joined {
    server: String,
    node: String,
    /// The CA, DER.
    authority: Vec<u8>,
}

impl Folder {
    pub(super) fn open(path: &Path) -> anyhow::Result<Self> {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
        made.with_context(|| format!("cannot make {}", path.display()))?;
        Ok(Self(path.canonicalize()?))
    }

    /// The last file that is written says so.
    pub(super) fn has_joined(&self) -> bool {
        self.joined().exists()
    }

    pub(super) fn kubeconfig(&self) -> PathBuf {
        self.0.join("kubeconfig")
    }

    pub(super) fn node_data(&self) -> PathBuf {
        self.0.join("node")
    }

    fn joined(&self) -> PathBuf {
        self.0.join("joined.json")
    }

    fn token(&self) -> PathBuf {
        self.0.join("token")
    }

    pub(super) fn keep(
        &self,
        server: &str,
        authority: &[u8],
        node: &str,
        token: &str,
    ) -> anyhow::Result<()> {
        self.keep_token(token)?;
        let pem = pem(authority);
        write(&self.0.join("ca.crt"), pem.as_bytes())?;
        let kubeconfig = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "joined",
            "clusters": [{"name": "joined", "cluster": {"server": server, "certificate-authority": self.0.join("ca.crt")}}],
            "users": [{"name": node, "user": {"tokenFile": self.token()}}],
            "contexts": [{"name": "joined", "context": {"cluster": "joined", "user": node}}],
        });
        write(
            &self.kubeconfig(),
            serde_json::to_string_pretty(&kubeconfig)?.as_bytes(),
        )?;
        let joined = Joined {
            server: server.to_owned(),
            node: node.to_owned(),
            authority: authority.to_vec(),
        };
        write(&self.joined(), serde_json::to_string(&joined)?.as_bytes())
    }

    /// Readers see the old one or the new one.
    pub(super) fn keep_token(&self, token: &str) -> anyhow::Result<()> {
        write(&self.token(), token.as_bytes())
    }

    pub(super) fn token_age(&self) -> Option<Duration> {
        fs::metadata(self.token())
            .ok()?
            .modified()
            .ok()?
            .elapsed()
            .ok()
    }

    pub(super) fn node_name(&self) -> anyhow::Result<String> {
        Ok(self.read()?.node)
    }

    /// The API server's URL, its CA, and this node's token.
    pub(super) fn access(&self) -> anyhow::Result<(String, Vec<u8>, String)> {
        let joined = self.read()?;
        let token =
            fs::read_to_string(self.token()).context("cannot read the token of this node")?;
        Ok((joined.server, joined.authority, token))
    }

    fn read(&self) -> anyhow::Result<Joined> {
        let path = self.joined();
        let text = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let advice = || {
            format!(
                "{} is damaged: remove it, delete the Node, and join again",
                path.display()
            )
        };
        serde_json::from_slice(&text).with_context(advice)
    }
}

/// All or nothing, for the owner alone.
fn write(path: &Path, content: &[u8]) -> anyhow::Result<()> {
    let new = path.with_extension("new");
    let write = || {
        let mut file: File = File::options()
            .create(true)
            .truncate(true)
            .write(true)
            .mode(0o600)
            .open(&new)?;
        file.write_all(content)?;
        file.sync_all()?;
        fs::rename(&new, path)
    };
    write().with_context(|| format!("cannot write {}", path.display()))
}

fn pem(der: &[u8]) -> String {
    use base64::Engine;
    let text = base64::engine::general_purpose::STANDARD.encode(der);
    let lines: Vec<String> = text
        .as_bytes()
        .chunks(64)
        .map(|line| String::from_utf8_lossy(line).into_owned())
        .collect();
    format!(
        "-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n",
        lines.join("\n")
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn what_is_kept_is_found_again_and_is_nobody_elses() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::open(&dir.path().join("joined")).unwrap();
        assert!(!folder.has_joined() && folder.node_name().is_err());
        folder
            .keep("https://192.0.2.1:6443", b"der", "n2", "secret")
            .unwrap();
        assert!(folder.has_joined());
        assert_eq!(
            folder.access().unwrap(),
            (
                "https://192.0.2.1:6443".to_owned(),
                b"der".to_vec(),
                "secret".to_owned()
            )
        );
        folder.keep_token("newer").unwrap();
        assert_eq!(folder.access().unwrap().2, "newer");
        for file in fs::read_dir(&folder.0).unwrap() {
            let file = file.unwrap();
            assert_eq!(
                file.metadata().unwrap().permissions().mode() & 0o777,
                0o600,
                "{:?}",
                file.path()
            );
        }
        assert!(
            !fs::read_to_string(folder.kubeconfig())
                .unwrap()
                .contains("newer"),
            "it names the file of the token"
        );
    }
}
