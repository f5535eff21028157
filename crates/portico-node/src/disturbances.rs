//! Tells when another program changes our nftables rules.

use portico_dataplane::nftables::Watch;
use std::io;
use tokio::io::unix::AsyncFd;

pub(crate) struct Disturbances {
    watch: AsyncFd<Watch>,
}

impl Disturbances {
    pub(crate) fn new(watch: Watch) -> io::Result<Self> {
        Ok(Self {
            watch: watched(watch)?,
        })
    }

    /// Returns when another program changed our tables, or when notifications were lost.
    pub(crate) async fn next(&mut self) -> io::Result<()> {
        loop {
            let mut ready = self.watch.readable().await?;
            // What comes after this makes it ready again.
            ready.clear_ready();
            if self.watch.get_ref().touched()? {
                return Ok(());
            }
        }
    }
}

#[expect(
    unsafe_code,
    reason = "the runtime has to be promised that the descriptor stays open"
)]
fn watched(watch: Watch) -> io::Result<AsyncFd<Watch>> {
    // SAFETY: a `Watch` owns its descriptor, always returns the same one, and closes it only when
    // dropped.
    unsafe { AsyncFd::register(watch) }.map_err(io::Error::from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::own_network;
    use portico_dataplane::Dataplane;
    use portico_dataplane::nftables::{Nftables, Table};
    use portico_model::table::ForwardingTable;
    use std::process::Command;
    use std::time::Duration;
    use tokio::time::timeout;

    fn nft(words: &str) {
        assert!(
            Command::new("nft")
                .args(words.split(' '))
                .status()
                .unwrap()
                .success(),
            "nft {words}"
        );
    }

    #[tokio::test]
    async fn others_are_noticed_and_we_are_not() {
        own_network();
        let mut nftables = Nftables::open(Table::NODE).unwrap();
        let mut disturbances = Disturbances::new(nftables.watch().unwrap()).unwrap();
        let mut next = async || {
            timeout(Duration::from_secs(10), disturbances.next())
                .await
                .unwrap()
                .unwrap()
        };
        nftables.replace(&ForwardingTable::default()).unwrap();
        nft("add table ip other");
        nft("add table ip portico-not");
        // Were one of the above noticed, there would be one too many.
        nft("delete table ip portico");
        next().await;
        nftables.replace(&ForwardingTable::default()).unwrap();
        nft("flush ruleset");
        next().await;
        assert!(
            timeout(Duration::from_millis(50), disturbances.next())
                .await
                .is_err()
        );
    }
}
