//! A door into the lab: connections to a port of this machine's loopback go on to a host inside.

use portico_netns::Host;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::JoinSet;

/// More wait in the queue of the socket.
const MOST_CONNECTIONS: usize = 256;

pub(crate) struct Relay {
    listener: TcpListener,
    pub address: SocketAddr,
}

impl Relay {
    pub(crate) async fn bind(port: u16) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await?;
        let address = listener.local_addr()?;
        Ok(Self { listener, address })
    }

    /// Until dropped, with all connections.
    pub(crate) async fn run(self, host: Host, to: SocketAddr) {
        let mut connections = JoinSet::new();
        loop {
            while connections.len() >= MOST_CONNECTIONS {
                connections.join_next().await;
            }
            tokio::select! {
                accepted = self.listener.accept() => if let Ok((stream, _)) = accepted {
                    connections.spawn(pass(stream, host.clone(), to));
                },
                Some(_) = connections.join_next() => {}
            }
        }
    }
}

/// A connection from inside a host.
pub(crate) async fn connect(host: &Host, to: SocketAddr) -> io::Result<TcpStream> {
    let socket = host.enter(|| {
        if to.is_ipv4() {
            TcpSocket::new_v4()
        } else {
            TcpSocket::new_v6()
        }
    })?;
    socket.connect(to).await
}

async fn pass(mut outside: TcpStream, host: Host, to: SocketAddr) {
    if let Ok(mut inside) = connect(&host, to).await {
        // Either side may go at any time: that is the end of the connection, and no trouble.
        let _ = copy_bidirectional(&mut outside, &mut inside).await;
    }
}
