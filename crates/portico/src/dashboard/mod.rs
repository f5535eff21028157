//! `portico dashboard`: one page that shows Services and where their traffic goes, for the browser
//! of whoever runs it. It reads with the credentials of a kubeconfig, or of each visitor, from any
//! API server; it writes nothing.

mod answer;
mod changes;
mod sign_in;
mod stream;

use crate::client;
use crate::explain::Settings;
use crate::signals::Signals;
use answer::Site;
use anyhow::{Context, bail};
use clap::Args;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use sign_in::SignIn;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// More wait in the queue of the socket. A page keeps four open.
const MOST_CONNECTIONS: usize = 256;
/// For the head of a request to arrive.
const PATIENCE: Duration = Duration::from_secs(10);

#[derive(Args)]
#[command(rename_all = "kebab-case")]
pub struct Arguments {
    /// How to reach the API server [default: $KUBECONFIG, ~/.kube/config or the pod's own].
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Where to listen. Without TLS, so other machines should come through something that has it,
    /// such as kubectl port-forward.
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:9443")]
    listen: SocketAddr,
    /// Every visitor brings a token of the API server, instead of seeing what the kubeconfig may
    /// see.
    #[arg(long)]
    ask_for_token: bool,
    #[command(flatten)]
    settings: Settings,
}

pub fn run(arguments: Arguments) -> anyhow::Result<()> {
    crate::runtime()?.block_on(async {
        let mut signals = Signals::new()?;
        tokio::select! {
            result = serve(arguments) => result,
            () = signals.wait() => Ok(()),
        }
    })
}

async fn serve(arguments: Arguments) -> anyhow::Result<()> {
    if !arguments.ask_for_token && !arguments.listen.ip().is_loopback() {
        bail!(
            "--listen={} is open to others, who would see what the kubeconfig may see: add \
             --ask-for-token",
            arguments.listen
        );
    }
    let (client, sign_in) = match arguments.ask_for_token {
        true => (
            client::anonymous(arguments.kubeconfig).await?,
            SignIn::Token,
        ),
        false => (
            client::from_kubeconfig(arguments.kubeconfig).await?,
            SignIn::new_key()?,
        ),
    };
    let listener = TcpListener::bind(arguments.listen).await;
    let listener = listener.with_context(|| format!("cannot listen on {}", arguments.listen))?;
    crate::print(&format!(
        "http://{}/{}\n",
        listener.local_addr()?,
        sign_in.link()
    ));
    accept(
        listener,
        Arc::new(Site {
            client,
            sign_in,
            settings: arguments.settings,
        }),
    )
    .await;
    Ok(())
}

async fn accept(listener: TcpListener, site: Arc<Site>) {
    let mut connections = JoinSet::new();
    loop {
        while connections.len() >= MOST_CONNECTIONS {
            connections.join_next().await;
        }
        tokio::select! {
            accepted = listener.accept() => if let Ok((stream, _)) = accepted {
                connections.spawn(connection(stream, Arc::clone(&site)));
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn connection(stream: TcpStream, site: Arc<Site>) {
    let service = service_fn(move |request| {
        let site = Arc::clone(&site);
        async move { Ok::<_, std::convert::Infallible>(site.answer(&request).await) }
    });
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(PATIENCE);
    // A browser that goes away is no trouble.
    let _ = http.serve_connection(TokioIo::new(stream), service).await;
}
