//! The servers that were there last, on disk: a machine that boots while no API server answers
//! forwards to them all the same.

use super::discover::Found;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::PathBuf;

pub struct Remembered {
    path: PathBuf,
}

#[derive(Default, Serialize, Deserialize)]
struct File {
    servers: BTreeSet<SocketAddr>,
    cluster: Vec<SocketAddr>,
}

impl Remembered {
    pub fn new(path: PathBuf) -> Self {
        Self { path }
    }

    /// Nothing, where nothing can be read.
    pub fn read(&self) -> Found {
        let file = match fs::read(&self.path) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(io::Error::from),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(File::default()),
            Err(error) => Err(error),
        };
        let file = file.unwrap_or_else(|error| {
            tracing::warn!(path = %self.path.display(), %error, "cannot read which API servers there were");
            File::default()
        });
        Found {
            servers: file.servers,
            cluster: file.cluster,
        }
    }

    /// Only where something changed.
    pub fn write(&self, found: &Found) {
        let before = fs::read(&self.path).ok();
        let file = File {
            servers: found.servers.clone(),
            cluster: found.cluster.clone(),
        };
        let result = serde_json::to_vec_pretty(&file)
            .map_err(io::Error::from)
            .and_then(|bytes| {
                if before.as_ref() == Some(&bytes) {
                    return Ok(());
                }
                let folder = self.path.parent().ok_or(io::ErrorKind::InvalidInput)?;
                fs::create_dir_all(folder)?;
                let mut temporary = tempfile::NamedTempFile::new_in(folder)?;
                temporary.write_all(&bytes)?;
                temporary.as_file().sync_all()?;
                temporary.persist(&self.path)?;
                Ok(())
            });
        if let Err(error) = result {
            tracing::warn!(path = %self.path.display(), %error, "cannot remember which API servers there are");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let remembered = Remembered::new(folder.path().join("vip/servers.json"));
        assert_eq!(remembered.read(), Found::default());
        let found = Found {
            servers: ["[fd00::1]:6443".parse().unwrap()].into(),
            cluster: vec!["10.96.0.1:443".parse().unwrap()],
        };
        remembered.write(&found);
        assert_eq!(remembered.read(), found);
        fs::write(folder.path().join("vip/servers.json"), "not json").unwrap();
        assert_eq!(remembered.read(), Found::default());
    }
}
