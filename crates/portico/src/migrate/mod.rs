//! `portico migrate`: what others were configured with, as Portico's objects and files. Reading
//! files is here; the rest is pure.

mod fields;
mod keepalived;
mod kube_proxy;
mod kube_vip;
mod metallb;
mod report;

use anyhow::{Context, bail, ensure};
use clap::{Args, ValueEnum};
use report::File;
use serde_json::Value;
use std::fs;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

#[derive(Args)]
#[command(rename_all = "kebab-case")]
pub(crate) struct Arguments {
    /// MetalLB's resources
    /// (`kubectl -n metallb-system get ipaddresspools,l2advertisements,… -o yaml`), or its old
    /// ConfigMap.
    #[arg(long, value_name = "FILE", num_args = 1..)]
    metallb: Vec<PathBuf>,
    /// A KubeProxyConfiguration, or the ConfigMap that has it
    /// (`kubectl -n kube-system get cm kube-proxy -o yaml`).
    #[arg(long, value_name = "FILE")]
    kube_proxy: Option<PathBuf>,
    /// A keepalived.conf.
    #[arg(long, value_name = "FILE")]
    keepalived: Option<PathBuf>,
    /// kube-vip's static pod or DaemonSet, and the ConfigMap `kubevip` of its cloud provider.
    #[arg(long, value_name = "FILE", num_args = 1..)]
    kube_vip: Vec<PathBuf>,
    /// Write each file into this folder, instead of printing all of them.
    #[arg(long, value_name = "DIR")]
    to: Option<PathBuf>,
    /// Fail where something has no equivalent.
    #[arg(long)]
    strict: bool,
    /// How to print.
    #[arg(long, short, value_enum, default_value = "yaml", conflicts_with = "to")]
    output: Output,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Output {
    /// The files, with remarks as comments.
    Yaml,
    /// Files, documents and remarks, for programs.
    Json,
}

pub(crate) fn run(arguments: Arguments) -> anyhow::Result<()> {
    let files = translate(&arguments)?;
    match (&arguments.to, arguments.output) {
        (Some(folder), _) => write(folder, &files)?,
        (None, Output::Json) => {
            crate::print(&format!("{}\n", serde_json::to_string_pretty(&files)?))
        }
        (None, Output::Yaml) => {
            let texts: Vec<String> = files.iter().map(File::print).collect();
            crate::print(&texts.join("---\n"));
        }
    }
    let warnings: usize = files.iter().map(File::warnings).sum();
    if warnings > 0 {
        let text =
            format!("{warnings} settings have no equivalent: look for WARNING in what was written");
        ensure!(!arguments.strict, "{text}");
        eprintln!("portico: {text}");
    }
    Ok(())
}

fn translate(arguments: &Arguments) -> anyhow::Result<Vec<File>> {
    let mut files = Vec::new();
    if !arguments.metallb.is_empty() {
        let read = vec![metallb::translate(documents(&arguments.metallb)?)];
        ensure_found("--metallb", "MetalLB", &arguments.metallb, &read)?;
        files.extend(read);
    }
    if let Some(path) = &arguments.kube_proxy {
        let read = documents(std::slice::from_ref(path))?;
        files.push(
            kube_proxy::translate(&read)
                .map_err(|problem| anyhow::anyhow!("{}: {problem}", path.display()))?,
        );
    }
    if let Some(path) = &arguments.keepalived {
        let text = read(path)?;
        files.extend(
            keepalived::translate(&text)
                .map_err(|problem| anyhow::anyhow!("{}: {problem}", path.display()))?,
        );
    }
    if !arguments.kube_vip.is_empty() {
        let read = kube_vip::translate(documents(&arguments.kube_vip)?);
        ensure_found("--kube-vip", "kube-vip", &arguments.kube_vip, &read)?;
        files.extend(read);
    }
    if files.is_empty() {
        bail!(
            "say what to read: --metallb FILE, --kube-proxy FILE, --keepalived FILE or --kube-vip \
             FILE"
        );
    }
    Ok(told_apart(files))
}

/// A file of another kind is a mistake of the caller, not a configuration without settings.
fn ensure_found(flag: &str, rival: &str, paths: &[PathBuf], files: &[File]) -> anyhow::Result<()> {
    if files.iter().any(|file| !file.documents.is_empty()) {
        return Ok(());
    }
    let paths: Vec<String> = paths
        .iter()
        .map(|path| path.display().to_string())
        .collect();
    let remarks = files.iter().flat_map(|file| &file.remarks);
    let reasons: Vec<String> = remarks
        .map(|remark| format!("\n  {}", remark.text()))
        .collect();
    bail!(
        "{flag} {}: there is nothing of {rival} in it that has an equivalent; portico migrate \
         --help says which resources are read{}",
        paths.join(" "),
        reasons.concat()
    )
}

/// Of two files with one name the later gets another.
fn told_apart(mut files: Vec<File>) -> Vec<File> {
    for at in 1..files.len() {
        let (before, rest) = files.split_at_mut(at);
        let Some(file) = rest.first_mut() else {
            continue;
        };
        let same = before
            .iter()
            .filter(|other| other.name == file.name)
            .count();
        if same > 0 {
            file.name = format!("{}-{}.yaml", file.name.trim_end_matches(".yaml"), same + 1);
        }
    }
    files
}

fn read(path: &Path) -> anyhow::Result<String> {
    match path == Path::new("-") {
        true => std::io::read_to_string(std::io::stdin()).context("cannot read the standard input"),
        false => {
            fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
        }
    }
}

/// Everything that files in YAML or JSON have, lists unfolded.
fn documents(paths: &[PathBuf]) -> anyhow::Result<Vec<Value>> {
    let mut out = Vec::new();
    for path in paths {
        let text = read(path)?;
        let found: Vec<Value> = serde_saphyr::from_multiple(&text)
            .with_context(|| format!("{} is no YAML", path.display()))?;
        for document in found {
            match (
                document.get("kind").and_then(Value::as_str),
                document.get("items"),
            ) {
                (Some(kind), Some(Value::Array(items))) if kind.ends_with("List") => {
                    out.extend(items.clone())
                }
                _ => out.push(document),
            }
        }
    }
    out.retain(|document| !document.is_null());
    Ok(out)
}

fn write(folder: &Path, files: &[File]) -> anyhow::Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    for file in files {
        let path = folder.join(&file.name);
        // There may be passwords in it.
        let mut options = fs::OpenOptions::new();
        let opened = options
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&path);
        let written = opened.and_then(|mut opened| opened.write_all(file.print().as_bytes()));
        written.with_context(|| format!("cannot write {}", path.display()))?;
        crate::print(&format!("{}: {}\n", path.display(), file.usage));
    }
    Ok(())
}

/// Every document of these files.
#[cfg(test)]
fn parsed(text: &str) -> Vec<Value> {
    serde_saphyr::from_multiple(text).expect("the example is YAML")
}
