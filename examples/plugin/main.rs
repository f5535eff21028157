//! A plugin for `portico controller --cloud-provider=plugin:SOCKET` that forwards by nftables on
//! this machine: `cargo run -p portico-providers --example plugin -- /run/portico/nft.sock`.

mod nft;

use portico_providers::plugin::{Served, serve};
use std::path::PathBuf;
use std::sync::Arc;
use tokio::net::UnixListener;

#[tokio::main(flavor = "current_thread")]
async fn main() -> std::io::Result<()> {
    let usage =
        || std::io::Error::other("where to listen is missing: plugin /run/portico/nft.sock");
    let socket = PathBuf::from(std::env::args_os().nth(1).ok_or_else(usage)?);
    // What a plugin before this one left behind.
    let _ = std::fs::remove_file(&socket);
    let listener = UnixListener::bind(&socket)?;
    let version = env!("CARGO_PKG_VERSION").to_owned();
    let never = serve(
        Served {
            provider: Arc::<nft::Nft>::default(),
            version,
            can: nft::Nft::can(),
        },
        listener,
    )
    .await?;
    match never {}
}
