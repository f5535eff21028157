//! `portico version`: what this program is, and which API it serves.

use crate::output::{Output, Table};
use clap::Args;
use serde::Serialize;
use std::fmt;

#[derive(Args)]
#[command(rename_all = "kebab-case")]
pub(crate) struct Arguments {
    #[command(flatten)]
    output: Output,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Version {
    portico: &'static str,
    /// The version of the API that `portico apiserver` serves.
    kubernetes: String,
    architecture: &'static str,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    arguments.output.print(&Version {
        portico: env!("CARGO_PKG_VERSION"),
        kubernetes: portico_apiserver::kubernetes_version(),
        architecture: std::env::consts::ARCH,
    })
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = Table::new(["portico", "kubernetes api", "architecture"]);
        table.row([
            self.portico.to_owned(),
            self.kubernetes.clone(),
            self.architecture.to_owned(),
        ]);
        write!(f, "{table}")
    }
}
