//! `portico backup`, `portico restore` and `portico store`: what a store holds, as a file and back,
//! and what is left of a damaged one. What a backup is and how a store is made of one is in
//! `portico-store`; here are the flags and the files.

use crate::client::Access;
use anyhow::{Context, bail};
use bytes::Bytes;
use clap::{Args, Subcommand};
use http_body_util::BodyExt;
use kube::client::Body;
use portico_store::{Backup, EtcdOptions, EtcdTls, Report, Restored};
use std::fs::{self, File, OpenOptions};
use std::io::{BufReader, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Where the API server has its store below `--data-dir`.
pub(crate) const STORE: &str = "store";

#[derive(Args)]
#[command(rename_all = "kebab-case")]
pub(crate) struct BackupArguments {
    /// Where to. It has every Secret: keep it as you keep those.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    access: Access,
}

/// Where an API server keeps its objects; its flags.
#[derive(Args)]
#[command(rename_all = "kebab-case")]
#[group(id = "place", required = true, multiple = true)]
pub(crate) struct Place {
    /// The directory that the API server gets as --data-dir (`portico up`: its own, and `api`
    /// below it).
    #[arg(long, value_name = "DIR", conflicts_with = "etcd_servers")]
    data_dir: Option<PathBuf>,
    /// The etcd that it keeps its objects in: http://HOST:PORT,...
    #[arg(long, value_name = "URL,...", value_delimiter = ',')]
    etcd_servers: Vec<String>,
}

#[derive(Args)]
#[command(rename_all = "kebab-case")]
pub(crate) struct RestoreArguments {
    /// What `portico backup` wrote.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    place: Place,
    /// Where in etcd.
    #[arg(long, value_name = "PATH", default_value = "/portico")]
    etcd_prefix: String,
    /// The CA of etcd's certificates.
    #[arg(long, value_name = "FILE")]
    etcd_cafile: Option<PathBuf>,
    /// The certificate to show to etcd.
    #[arg(long, value_name = "FILE", requires = "etcd_keyfile")]
    etcd_certfile: Option<PathBuf>,
    /// Its key.
    #[arg(long, value_name = "FILE", requires = "etcd_certfile")]
    etcd_keyfile: Option<PathBuf>,
    /// Take the place of a store that is there. The file of an embedded one is kept beside it.
    #[arg(long)]
    replace: bool,
}

#[derive(Args)]
pub(crate) struct StoreArguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
#[command(rename_all = "kebab-case")]
enum What {
    /// Look at every value of the embedded store, or at a backup, and name what is damaged. Changes
    /// nothing; ends with 1 if something is wrong.
    Check {
        /// The directory that the API server gets as --data-dir; the server is stopped.
        #[arg(long, value_name = "DIR", required_unless_present = "backup")]
        data_dir: Option<PathBuf>,
        /// A backup.
        #[arg(long, value_name = "FILE", conflicts_with = "data_dir")]
        backup: Option<PathBuf>,
    },
    /// Go on with what can be read of a damaged embedded store, and let go of the rest. The file is
    /// kept beside the new one.
    Repair {
        /// The directory that the API server gets as --data-dir; the server is stopped.
        #[arg(long, value_name = "DIR")]
        data_dir: PathBuf,
    },
}

pub(crate) fn backup(arguments: &BackupArguments) -> anyhow::Result<()> {
    crate::runtime()?.block_on(async {
        let answer = arguments.access.reader().await?.get("/backup").await?;
        let (head, body) = answer.into_parts();
        if !head.status.is_success() {
            let text = body.collect().await?.to_bytes();
            bail!("the API server makes no backup: {}", said(&text));
        }
        for warning in head.headers.get_all(http::header::WARNING) {
            eprintln!("portico: {}", warning.to_str().unwrap_or_default());
        }
        let new = arguments.file.with_added_extension("new");
        let written = write(&new, body).await;
        let backup = written.and_then(|()| read(&new)).inspect_err(|_| {
            // An unfinished file is removed, so that it is not taken for a backup.
            let _ = fs::remove_file(&new);
        })?;
        fs::rename(&new, &arguments.file)
            .and_then(|()| File::open(parent(&arguments.file))?.sync_all())
            .with_context(|| format!("cannot write {}", arguments.file.display()))?;
        crate::print(&format!(
            "{}: {} entries at revision {}\n",
            arguments.file.display(),
            backup.entries.len(),
            backup.revision
        ));
        Ok(())
    })
}

/// Writes a file for its owner alone, which is on the disk when this returns.
async fn write(path: &Path, mut body: Body) -> anyhow::Result<()> {
    let failed = || format!("cannot write {}", path.display());
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    let mut file = options.open(path).with_context(failed)?;
    while let Some(frame) = body.frame().await {
        let frame = frame.context("the backup broke off: try again")?;
        if let Ok(data) = frame.into_data() {
            file.write_all(&data).with_context(failed)?;
        }
    }
    file.sync_all().with_context(failed)
}

fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// The message of a Status, or the text as it is.
fn said(body: &Bytes) -> String {
    let status: Option<serde_json::Value> = serde_json::from_slice(body).ok();
    let message = status
        .as_ref()
        .and_then(|status| status["message"].as_str());
    message.map_or_else(|| String::from_utf8_lossy(body).into_owned(), str::to_owned)
}

fn read(path: &Path) -> anyhow::Result<Backup> {
    let failed = || format!("cannot use {}", path.display());
    let file = File::open(path).with_context(failed)?;
    Backup::read(BufReader::new(file)).with_context(failed)
}

pub(crate) fn restore(arguments: RestoreArguments) -> anyhow::Result<()> {
    let backup = read(&arguments.file)?;
    let entries = backup.entries.len();
    let (place, revision, kept) = match &arguments.place.data_dir {
        Some(dir) => {
            let dir = dir.join(STORE);
            let Restored { revision, kept, .. } =
                portico_store::restore(&dir, backup, arguments.replace)?;
            (dir.display().to_string(), revision, kept)
        }
        None => {
            let options = arguments.etcd();
            let place = format!("the etcd prefix {}", options.prefix);
            let restored = portico_store::restore_to_etcd(options, backup, arguments.replace);
            (place, crate::runtime()?.block_on(restored)?, None)
        }
    };
    let kept = kept.map_or(String::new(), |kept| {
        format!("; the old store is kept as {}", kept.display())
    });
    crate::print(&format!(
        "{entries} entries are in {place}, which goes on at revision {revision}{kept}\n"
    ));
    Ok(())
}

impl RestoreArguments {
    fn etcd(&self) -> EtcdOptions {
        let identity = self.etcd_certfile.clone().zip(self.etcd_keyfile.clone());
        EtcdOptions {
            endpoints: self.place.etcd_servers.clone(),
            prefix: format!("{}/", self.etcd_prefix.trim_end_matches('/')),
            tls: self.etcd_cafile.clone().map(|ca| EtcdTls {
                ca,
                identity,
                server_name: None,
            }),
            ..EtcdOptions::default()
        }
    }
}

/// Ends with 1 if something is wrong.
pub(crate) fn store(arguments: &StoreArguments) -> anyhow::Result<u8> {
    match &arguments.what {
        What::Check {
            backup: Some(file), ..
        } => {
            let backup = read(file)?;
            crate::print(&format!(
                "{} is good: {} entries at revision {}\n",
                file.display(),
                backup.entries.len(),
                backup.revision
            ));
            Ok(0)
        }
        What::Check { data_dir, .. } => {
            let dir = data_dir.as_deref().unwrap_or(Path::new("."));
            let report = portico_store::check(&dir.join(STORE))?;
            crate::print(&describe(&report));
            Ok(u8::from(!report.is_well()))
        }
        What::Repair { data_dir } => {
            let Restored {
                revision,
                entries,
                kept,
            } = portico_store::repair(&data_dir.join(STORE))?;
            crate::print(&match kept {
                None => "nothing is damaged, nothing was changed\n".to_owned(),
                Some(kept) => format!(
                    "the store goes on with {entries} entries at revision {revision}; the damaged \
                     file is kept as {}\n",
                    kept.display()
                ),
            });
            Ok(0)
        }
    }
}

fn describe(report: &Report) -> String {
    let mut text = format!(
        "{}: {} entries are good at revision {}\n",
        report.path.display(),
        report.readable,
        report.revision
    );
    for damaged in &report.damaged {
        text.push_str(&format!("damaged: {}: {}\n", damaged.key, damaged.what));
    }
    if let Some(problem) = &report.problem {
        text.push_str(&format!("the file: {problem}\n"));
    }
    if !report.is_well() {
        text.push_str(
            "the way out: portico restore of a backup, or portico store repair to go on without \
             what is damaged\n",
        );
    }
    text
}
