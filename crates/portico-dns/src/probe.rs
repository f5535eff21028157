//! Asks one address whether it is fit: `GET /healthz`, and 200 is yes. A connection for each probe,
//! because what is asked for is also whether a new one can be made.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// What is read of an answer: the first line is enough.
const ENOUGH: usize = 64;

pub(crate) async fn probe(address: SocketAddr, patience: Duration) -> Result<(), String> {
    match tokio::time::timeout(patience, ask(address)).await {
        Err(_) => Err(format!("no answer within {patience:?}")),
        Ok(Err(error)) => Err(error.to_string()),
        Ok(Ok(line)) => judge(&line),
    }
}

async fn ask(address: SocketAddr) -> io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(address).await?;
    let request = format!(
        "GET /healthz HTTP/1.1\r\nHost: {address}\r\nUser-Agent: portico-dns\r\nConnection: \
         close\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await?;
    let mut line = Vec::with_capacity(ENOUGH);
    while !line.contains(&b'\n') && line.len() < ENOUGH {
        let mut some = [0; ENOUGH];
        match stream.read(&mut some).await? {
            0 => break,
            count => line.extend_from_slice(some.get(..count).unwrap_or_default()),
        }
    }
    Ok(line)
}

/// From a line such as `HTTP/1.1 200 OK`.
fn judge(line: &[u8]) -> Result<(), String> {
    let text = String::from_utf8_lossy(line);
    let first = text.lines().next().unwrap_or_default();
    let code = first
        .strip_prefix("HTTP/1.")
        .and_then(|rest| rest.split(' ').nth(1));
    match code {
        Some("200") => Ok(()),
        Some(code) => Err(format!("answered {}", code.escape_debug())),
        None => Err("the answer is not HTTP".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_200_is_good() {
        for (line, good) in [
            ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n", true),
            ("HTTP/1.0 200 OK\r\n", true),
            ("HTTP/1.1 503 Service Unavailable\r\n", false),
            ("HTTP/1.1 2000\r\n", false),
            ("SSH-2.0-OpenSSH\r\n", false),
            ("", false),
        ] {
            assert_eq!(judge(line.as_bytes()).is_ok(), good, "{line:?}");
        }
    }

    #[tokio::test]
    async fn a_closed_port_is_bad_and_says_why() {
        let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = taken.local_addr().unwrap();
        let silent = probe(address, Duration::from_millis(50)).await.unwrap_err();
        assert!(silent.contains("no answer within 50ms"), "{silent}");
        drop(taken);
        let closed = probe(address, Duration::from_secs(5)).await.unwrap_err();
        assert!(closed.contains("refused"), "{closed}");
    }
}
