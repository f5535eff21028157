//! `portico dashboard`: one page that shows Services and where their traffic goes, for the browser
//! of the person who runs it. It reads with the credentials of a kubeconfig, or of each browser's
//! user, from any API server; it writes nothing.

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
use hyper::Request;
use hyper::body::Incoming;
use portico_client::access;
use portico_client::pages;
use sign_in::SignIn;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use tokio::net::TcpListener;

/// A page keeps four open.
const MOST_CONNECTIONS: usize = 256;

#[derive(Args)]
#[command(rename_all = "kebab-case")]
pub(crate) struct Arguments {
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

pub(crate) fn run(arguments: Arguments) -> anyhow::Result<()> {
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
            client::anonymous(arguments.kubeconfig.as_deref()).await?,
            SignIn::Token,
        ),
        false => (
            access::client(arguments.kubeconfig.as_deref()).await?,
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
    let site = Arc::new(Site {
        client,
        sign_in,
        settings: arguments.settings,
    });
    let answer = move |request: Request<Incoming>| {
        let site = Arc::clone(&site);
        async move { site.answer(&request).await }
    };
    match pages::serve(listener, MOST_CONNECTIONS, answer).await {}
}
