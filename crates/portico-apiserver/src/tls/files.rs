//! The certificate directory: private, locked while it is worked on, every file written whole or
//! not at all.

use super::certificate::{self, Issuer, Purpose};
use super::error::{Error, Result};
use super::kubeconfig;
use jiff::Timestamp;
use rcgen::KeyPair;
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Write};
use std::net::SocketAddr;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Replacing a CA takes planning: tell half a year before.
const WARN_SECONDS: i64 = 180 * 24 * 60 * 60;

/// The users who may read a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Private = 0o600,
    Public = 0o644,
}

/// The certificate directory. Holds a lock, so that two servers starting at once make one CA.
#[derive(Debug)]
pub(super) struct Directory {
    root: PathBuf,
    _lock: File,
}

impl Directory {
    pub(super) fn open(root: &Path) -> Result<Self> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(root)
            .map_err(Error::file("create", root))?;
        // A directory that was there before keeps its mode, but other users must not be able to put
        // keys into it.
        if mode_of(root)? & 0o022 != 0 {
            return Err(Error::content(
                root,
                "others may write to this directory",
                "run: chmod go-w on it",
            ));
        }
        let path = root.join(".lock");
        let lock = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(Mode::Private as u32)
            .open(&path)
            .map_err(Error::file("open", &path))?;
        lock.lock().map_err(Error::file("lock", &path))?;
        Ok(Self {
            root: root.to_owned(),
            _lock: lock,
        })
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// The key in a file; made if there is none, never replaced.
    pub(super) fn key(&self, name: &str) -> Result<KeyPair> {
        let path = self.path(name);
        let Some(pem) = read_if_there(&path)? else {
            let fail = |source| Error::Issue {
                subject: name.to_owned(),
                source,
            };
            let key = KeyPair::generate().map_err(fail)?;
            write(&path, key.serialize_pem().as_bytes(), Mode::Private)?;
            return Ok(key);
        };
        make_private(&path)?;
        KeyPair::from_pem(&pem).map_err(|error| {
            Error::content(
                &path,
                error,
                "put back the PKCS#8 PEM key, or move the file away to have a new one made",
            )
        })
    }

    /// The CA; made if there is none, never replaced.
    pub(super) fn authority(&self, now: Timestamp) -> Result<Issuer> {
        let (path, key_path) = (self.path("ca.crt"), self.path("ca.key"));
        let certificate = read_if_there(&path)?;
        if certificate.is_some() && !key_path.exists() {
            let remedy = "put the key back, or move ca.crt away to start a new CA (clients must then \
                          get it)";
            return Err(Error::content(&key_path, "the CA's key is missing", remedy));
        }
        let key = self.key("ca.key")?;
        let certificate = match certificate {
            Some(found) => found,
            None => {
                let made = certificate::authority(&key, now)?;
                write(&path, made.as_bytes(), Mode::Public)?;
                made
            }
        };
        self.check_authority(&path, &certificate, &key, now)?;
        let wrong = |error| {
            Error::content(
                &path,
                error,
                "put back the CA certificate, or move ca.crt and ca.key away",
            )
        };
        Issuer::new(certificate, key).map_err(wrong)
    }

    fn check_authority(&self, path: &Path, pem: &str, key: &KeyPair, now: Timestamp) -> Result<()> {
        let remedy =
            "move ca.crt and ca.key away to start a new CA, and hand the new ca.crt to the clients";
        match certificate::validity(pem) {
            None => Err(Error::content(path, "it is not a PEM certificate", remedy)),
            // A certificate that is issued now would not be valid for clients with the right time.
            Some((begin, _)) if now.as_second() < begin => Err(Error::Clock {
                path: path.to_owned(),
                begin: Timestamp::from_second(begin).unwrap_or_default(),
                now,
            }),
            Some((_, end)) if end <= now.as_second() => {
                Err(Error::content(path, "the CA has expired", remedy))
            }
            Some(_) if !certificate::is_for_key(pem, key) => Err(Error::content(
                path,
                "it does not belong to ca.key",
                "put back the pair that was made together",
            )),
            Some((_, end)) => {
                if end - now.as_second() < WARN_SECONDS {
                    tracing::warn!(path = %path.display(), "the CA expires within half a year; {remedy}");
                }
                Ok(())
            }
        }
    }

    /// `NAME.crt` and `NAME.key`: the key stays, the certificate is renewed when it will not do any
    /// more.
    pub(super) fn certificate(
        &self,
        authority: &Issuer,
        name: &str,
        purpose: &Purpose,
        now: Timestamp,
    ) -> Result<()> {
        let key = self.key(&format!("{name}.key"))?;
        let path = self.path(&format!("{name}.crt"));
        let found = read_if_there(&path)?;
        if found.is_some_and(|pem| {
            certificate::still_good(&pem, &authority.certificate, &key, purpose, now)
        }) {
            return Ok(());
        }
        write(
            &path,
            authority.sign(purpose, &key, now)?.as_bytes(),
            Mode::Public,
        )
    }

    /// `admin.kubeconfig`, rewritten only when it says something else. A server certificate from
    /// elsewhere vouches for itself and is reached by the name it carries.
    pub(super) fn write_kubeconfig(
        &self,
        local: SocketAddr,
        server_certificates: &str,
        foreign_server: bool,
    ) -> Result<PathBuf> {
        let (authority, server_name) = if foreign_server {
            (
                server_certificates.to_owned(),
                certificate::dns_names(server_certificates)
                    .into_iter()
                    .next(),
            )
        } else {
            (read(&self.path("ca.crt"))?, None)
        };
        let (certificate, key) = (
            read(&self.path("admin.crt"))?,
            read(&self.path("admin.key"))?,
        );
        let wanted = kubeconfig::Kubeconfig {
            server: &format!("https://{local}"),
            server_name: server_name.as_deref().filter(|name| !name.contains('*')),
            authority: &authority,
            user: "kubernetes-admin",
            certificate: &certificate,
            key: &key,
        };
        self.keep("admin.kubeconfig", &wanted.render(), Mode::Private)?;
        Ok(self.path("admin.kubeconfig"))
    }

    /// Make a file say `text`.
    pub(super) fn keep(&self, name: &str, text: &str, mode: Mode) -> Result<()> {
        let path = self.path(name);
        if read_if_there(&path)?.as_deref() == Some(text) {
            return if mode == Mode::Private {
                make_private(&path)
            } else {
                Ok(())
            };
        }
        write(&path, text.as_bytes(), mode)
    }
}

fn mode_of(path: &Path) -> Result<u32> {
    Ok(fs::metadata(path)
        .map_err(Error::file("look at", path))?
        .permissions()
        .mode()
        & 0o777)
}

fn make_private(path: &Path) -> Result<()> {
    if mode_of(path)? & 0o077 == 0 {
        return Ok(());
    }
    fs::set_permissions(path, Permissions::from_mode(Mode::Private as u32))
        .map_err(Error::file("make private", path))
}

pub(super) fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).map_err(Error::file("read", path))
}

fn read_if_there(path: &Path) -> Result<Option<String>> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::file("read", path)(error)),
    }
}

/// Write beside, sync, rename, sync the directory: after a crash the file is the old one or the new
/// one.
fn write(path: &Path, content: &[u8], mode: Mode) -> Result<()> {
    let beside = path.with_added_extension("new");
    write_synced(&beside, content, mode).map_err(Error::file("write", &beside))?;
    let sync_parent = || {
        path.parent()
            .map_or(Ok(()), |parent| File::open(parent)?.sync_all())
    };
    fs::rename(&beside, path)
        .and_then(|()| sync_parent())
        .map_err(Error::file("write", path))
}

fn write_synced(path: &Path, content: &[u8], mode: Mode) -> io::Result<()> {
    // Left behind by a crash; opening it again would keep its mode.
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new()
        .create_new(true)
        .write(true)
        .mode(mode as u32)
        .open(path)?;
    file.write_all(content)?;
    file.sync_all()
}
