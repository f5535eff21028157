//! A server in a pod of the lab: it answers HTTP with its own name and the client's address.

use crate::Result;
use crate::host::Host;
use socket2::{Domain, Socket, Type};
use std::io;
use std::net::{Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// The time limit for a request to arrive and be answered.
const HTTP_PATIENCE: Duration = Duration::from_secs(10);
const MOST_HEAD: usize = 16 << 10;

impl Host {
    /// Answers HTTP on this port, whatever is asked for, one request a connection, until the bed is
    /// gone.
    pub fn serve_http(&self, port: u16) -> Result<()> {
        let registered = self.enter(|| bound(port)).and_then(|socket| {
            let _context = self.servers().enter();
            TcpListener::from_std(socket.into())
        });
        let listener = registered.map_err(self.failed(format!("serve HTTP on port {port}")))?;
        self.servers().spawn(serve(self.name().into(), listener));
        Ok(())
    }
}

fn bound(port: u16) -> io::Result<Socket> {
    let socket = Socket::new(Domain::IPV6, Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    socket.set_only_v6(false)?;
    socket.set_nonblocking(true)?;
    socket.bind(&SocketAddr::from((Ipv6Addr::UNSPECIFIED, port)).into())?;
    socket.listen(4096)?;
    Ok(socket)
}

async fn serve(host: Arc<str>, listener: TcpListener) {
    loop {
        if let Ok((stream, source)) = listener.accept().await {
            // IPv4 as IPv4, also where it came through an IPv6 socket.
            let source = SocketAddr::new(source.ip().to_canonical(), source.port());
            let answer = answer(stream, Arc::clone(&host), source);
            tokio::spawn(tokio::time::timeout(HTTP_PATIENCE, answer));
        }
    }
}

async fn answer(mut stream: TcpStream, host: Arc<str>, source: SocketAddr) -> io::Result<()> {
    let (mut head, mut buffer) = (Vec::new(), [0; 1024]);
    while !head.windows(4).any(|bytes| bytes == b"\r\n\r\n") {
        match stream.read(&mut buffer).await? {
            0 => return Ok(()),
            length if head.len() + length > MOST_HEAD => return Ok(()),
            length => head.extend_from_slice(&buffer[..length]),
        }
    }
    let body = format!("{host} answers {source}\n");
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {}\r\n",
        body.len()
    );
    stream
        .write_all(format!("{head}Connection: close\r\n\r\n{body}").as_bytes())
        .await?;
    stream.shutdown().await
}
