//! What can go wrong with certificates, each with the file and the way out.

use jiff::Timestamp;
use std::io;
use std::path::{Path, PathBuf};

pub(crate) type Result<T> = std::result::Result<T, Error>;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("--tls-cert-file and --tls-private-key-file go together: give both or neither")]
    HalfAPair,
    #[error("cannot {action} {path}: check that the path exists and that this user may use it", path = path.display())]
    File {
        action: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("{path} is not usable: {what}; {remedy}", path = path.display())]
    Content {
        path: PathBuf,
        what: String,
        remedy: &'static str,
    },
    #[error(
        "this machine's clock says {now:.0}, and the CA in {path} begins at {begin:.0}: set the \
         clock (timedatectl set-ntp true, chronyc makestep) and start again; only if the clock is \
         right, and the CA was made with a wrong one, move ca.crt and ca.key away to have a new CA",
        path = path.display()
    )]
    Clock {
        path: PathBuf,
        begin: Timestamp,
        now: Timestamp,
    },
    #[error("cannot make a certificate for {subject:?}")]
    Issue {
        subject: String,
        #[source]
        source: rcgen::Error,
    },
    #[error("cannot configure TLS")]
    Tls(#[from] rustls::Error),
}

impl Error {
    pub(super) fn file(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::File {
            action,
            path,
            source,
        }
    }

    pub(super) fn content(path: &Path, what: impl ToString, remedy: &'static str) -> Self {
        Self::Content {
            path: path.to_owned(),
            what: what.to_string(),
            remedy,
        }
    }
}
