//! What is on disk: written whole or not at all, and a configuration only after HAProxy found
//! nothing wrong with it.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;
use tokio::time::timeout;

use super::settings::Settings;
use super::table::Table;

/// The time limit for HAProxy to read its configuration.
const CHECK: Duration = Duration::from_secs(30);

#[derive(Debug, thiserror::Error)]
pub enum FileError {
    #[error("cannot write {path}")]
    Write { path: PathBuf, source: io::Error },
    #[error("cannot read {path}: remove it to begin anew")]
    Read { path: PathBuf, source: io::Error },
    #[error("cannot run {program}: install HAProxy or set `program`")]
    Program { program: PathBuf, source: io::Error },
    #[error("HAProxy does not take the configuration: {0}")]
    Invalid(String),
}

/// There is either all of the old or all of the new, whatever happens.
pub(super) fn write(path: &Path, text: &str) -> Result<(), FileError> {
    let failed = |source| FileError::Write {
        path: path.to_owned(),
        source,
    };
    let new = path.with_extension("new");
    let written = || {
        let mut file = File::create(&new)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&new, path)?;
        path.parent()
            .map_or(Ok(()), |folder| File::open(folder)?.sync_all())
    };
    written().map_err(failed)
}

/// Makes the folders, and removes files that a killed process left half written.
pub(super) fn make_folders(settings: &Settings) -> Result<(), FileError> {
    let folders = [
        Some(settings.folder.as_path()),
        settings.master_socket.parent(),
    ];
    for path in folders.into_iter().flatten() {
        fs::create_dir_all(path).map_err(|source| FileError::Write {
            path: path.to_owned(),
            source,
        })?;
    }
    let written = [
        settings.config_path(),
        settings.table_path(),
        settings.state_path(),
    ];
    let left = written
        .iter()
        .map(|path| path.with_extension("new"))
        .chain([check_path(settings)]);
    left.for_each(|path| _ = fs::remove_file(path));
    Ok(())
}

/// `None` where there is no such file.
pub(super) fn read(path: &Path) -> Result<Option<String>, FileError> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(FileError::Read {
            path: path.to_owned(),
            source,
        }),
    }
}

/// What was wanted before.
pub(super) fn read_table(path: &Path) -> Result<Table, FileError> {
    let Some(text) = read(path)? else {
        return Ok(Table::default());
    };
    serde_json::from_str(&text).map_err(|error| FileError::Read {
        path: path.to_owned(),
        source: error.into(),
    })
}

fn check_path(settings: &Settings) -> PathBuf {
    settings.folder.join("haproxy.cfg.check")
}

/// HAProxy itself says whether it could use this.
pub(super) async fn check(settings: &Settings, text: &str) -> Result<(), FileError> {
    let path = check_path(settings);
    fs::write(&path, text).map_err(|source| FileError::Write {
        path: path.clone(),
        source,
    })?;
    let result = run(&settings.program, &["-c", "-q", "-f"], &path).await;
    _ = fs::remove_file(&path);
    result
}

/// A master and a worker that are on their own from now on: they stay when the controller goes, as
/// rules in a kernel do.
pub(super) async fn start(settings: &Settings) -> Result<(), FileError> {
    let (socket, pid) = (
        settings.master_socket.display().to_string(),
        settings.pid_path().display().to_string(),
    );
    run(
        &settings.program,
        &["-W", "-D", "-S", &socket, "-p", &pid, "-f"],
        &settings.config_path(),
    )
    .await
}

/// Whether the master that we started is alive, whatever it does.
pub(super) fn is_started(settings: &Settings) -> bool {
    let Ok(Some(pid)) = read(&settings.pid_path()) else {
        return false;
    };
    let name = fs::read_to_string(Path::new("/proc").join(pid.trim()).join("comm"));
    name.is_ok_and(|name| {
        name.trim()
            == settings
                .program
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
    })
}

async fn run(program: &Path, arguments: &[&str], config: &Path) -> Result<(), FileError> {
    let mut command = Command::new(program);
    command
        .args(arguments)
        .arg(config)
        .stdin(Stdio::null())
        .kill_on_drop(true);
    let ended = timeout(CHECK, command.output()).await;
    let output = ended
        .map_err(|_| FileError::Invalid(format!("no answer within {CHECK:?}")))?
        .map_err(|source| FileError::Program {
            program: program.to_owned(),
            source,
        })?;
    match output.status.success() {
        true => Ok(()),
        false => Err(FileError::Invalid(complaints(&String::from_utf8_lossy(
            &output.stderr,
        )))),
    }
}

/// The lines that say what is wrong.
fn complaints(text: &str) -> String {
    let alerts: Vec<&str> = text
        .lines()
        .filter(|line| line.contains("[ALERT]"))
        .map(str::trim)
        .take(3)
        .collect();
    if alerts.is_empty() {
        text.trim().to_owned()
    } else {
        alerts.join("; ")
    }
}
