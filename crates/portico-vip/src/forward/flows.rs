//! Ends connections through a virtual address to servers that are gone. A client whose server is
//! gone would wait for minutes; this way its next packet is answered with a reset, and it connects
//! anew to a server that lives.

use super::Wanted;
use portico_dataplane::conntrack::Conntrack;
use portico_model::table::{Family, Protocol};
use std::collections::BTreeSet;
use std::net::SocketAddr;

#[derive(Default)]
pub(super) struct Flows {
    /// Opened when first needed; belongs to the network namespace of the calling thread.
    conntrack: Option<Conntrack>,
    /// Servers whose connections were ended already.
    gone: BTreeSet<SocketAddr>,
}

impl Flows {
    /// Ends connections to servers that the rules no longer lead to.
    pub(super) fn end(&mut self, wanted: &Wanted) {
        let gone: BTreeSet<SocketAddr> = wanted.gone().into_iter().collect();
        for server in gone.difference(&self.gone) {
            let same_family =
                |address: &&std::net::IpAddr| Family::of(**address) == Family::of(server.ip());
            for address in wanted.addresses.iter().filter(same_family) {
                let frontend = SocketAddr::new(*address, wanted.port);
                match end(&mut self.conntrack, *server, frontend) {
                    Ok(0) => {}
                    Ok(ended) => {
                        tracing::info!(%server, ended, "ended connections to a server that is gone")
                    }
                    Err(error) => {
                        tracing::warn!(%server, %error, "cannot end connections to a server that is gone")
                    }
                }
            }
        }
        self.gone = gone;
    }
}

fn end(
    conntrack: &mut Option<Conntrack>,
    server: SocketAddr,
    frontend: SocketAddr,
) -> std::io::Result<usize> {
    let tracker = match conntrack {
        Some(tracker) => tracker,
        None => conntrack.insert(Conntrack::open()?),
    };
    tracker.end_served_by(server, frontend, Protocol::Tcp)
}
