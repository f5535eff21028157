//! Runs the endpoint-slice controller against the API server of the current kubeconfig.
//!
//! `--no-endpoints` leaves the older Endpoints objects alone; `--leader-elect` takes part in an
//! election.

use std::{error::Error, process};

use portico_client::lease::{LeaseOptions, lead};
use portico_controller::{
    cluster::Cluster,
    endpoints::{Options, run},
};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
        .init();
    let has = |flag: &str| std::env::args().any(|argument| argument == flag);
    let options = Options {
        write_endpoints: !has("--no-endpoints"),
        ..Options::default()
    };
    let client = kube::Client::try_default().await?;
    let cluster = Cluster::new(client.clone());
    let (stop, shutdown) = tokio::sync::watch::channel(false);
    tokio::spawn(async move {
        let _ = tokio::signal::ctrl_c().await;
        let _ = stop.send(true);
    });
    if has("--leader-elect") {
        let lease = LeaseOptions::new(
            "default",
            "portico-endpoints",
            &format!("example-{}", process::id()),
        );
        lead(client, lease, shutdown, |shutdown| {
            run(cluster.clone(), options.clone(), shutdown)
        })
        .await;
    } else {
        run(cluster, options.clone(), shutdown).await;
    }
    tracing::info!(counters = ?options.counters, "done");
    Ok(())
}
