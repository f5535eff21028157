use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::*;

/// Answers requests on loopback, each with what `answer` says to its number; gives the heads of the
/// requests by connection.
async fn serve(
    answers: &'static [&'static str],
    expected: usize,
) -> (String, tokio::task::JoinHandle<Vec<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/x", listener.local_addr().unwrap());
    let server = tokio::spawn(async move {
        let (mut connections, mut number) = (Vec::new(), 0);
        while number < expected {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut heads = Vec::new();
            let mut buffer = vec![0; 4096];
            while number < expected {
                let length = stream.read(&mut buffer).await.unwrap_or(0);
                if length == 0 {
                    break;
                }
                heads.push(String::from_utf8_lossy(&buffer[..length]).into_owned());
                stream
                    .write_all(answers[number % answers.len()].as_bytes())
                    .await
                    .unwrap();
                number += 1;
            }
            connections.push(heads);
        }
        connections
    });
    (url, server)
}

fn get(url: &str) -> Request<Bytes> {
    Request::get(url).body(Bytes::new()).unwrap()
}

fn http(close: bool) -> Http {
    Http::new(&HttpOptions {
        close,
        ..HttpOptions::default()
    })
    .unwrap()
}

const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

#[tokio::test]
async fn a_connection_is_kept_unless_it_is_not_to_be() {
    for (close, connections) in [(false, 1), (true, 2)] {
        let (url, server) = serve(&[OK], 2).await;
        let http = http(close);
        for _ in 0..2 {
            assert_eq!(http.send(get(&url)).await.unwrap().into_body(), "ok");
        }
        drop(http);
        let seen = server.await.unwrap();
        assert_eq!(seen.len(), connections, "{seen:?}");
        assert_eq!(seen[0][0].contains("connection: close"), close, "{seen:?}");
        assert!(seen[0][0].contains("user-agent: portico/"), "{seen:?}");
    }
}

#[tokio::test]
async fn whether_the_server_saw_the_request_is_known() {
    let closed = TcpListener::bind("127.0.0.1:0")
        .await
        .unwrap()
        .local_addr()
        .unwrap();
    let error = http(false)
        .send(get(&format!("http://{closed}/")))
        .await
        .unwrap_err();
    assert!(
        matches!(&error, TransportError::Connect(text) if text.contains("refused")),
        "{error:?}"
    );
    let (url, _server) = serve(&["HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nha"], 1).await;
    let error = http(false).send(get(&url)).await.unwrap_err();
    assert!(matches!(error, TransportError::Lost(_)), "{error:?}");
}

#[tokio::test]
async fn an_answer_that_is_too_long_is_refused() {
    let (url, _server) = serve(&[OK], 1).await;
    let http = Http {
        most_bytes: 1,
        ..http(false)
    };
    assert_eq!(
        http.send(get(&url)).await.unwrap_err(),
        TransportError::TooLong(1)
    );
}

#[test]
fn roots_that_cannot_be_read_are_named() {
    let options = HttpOptions {
        ca_file: Some("/does/not/exist.pem".into()),
        ..HttpOptions::default()
    };
    let error = Http::new(&options).err().unwrap().to_string();
    assert!(
        error.starts_with("cannot read certificates from /does/not/exist.pem: "),
        "{error}"
    );
}
