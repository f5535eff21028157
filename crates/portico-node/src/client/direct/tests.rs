use super::*;
use rcgen::generate_simple_self_signed;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{ClientConfig, RootCertStore, ServerConfig, ServerConnection, StreamOwned};
use std::net::TcpListener;
use std::sync::mpsc;
use std::thread;

#[test]
fn a_request_says_what_the_layers_put_in() {
    let get = Request::get("https://me:secret@[fd00::1]:6443/api/v1/pods?watch=1")
        .header("authorization", "Bearer x");
    let sent = String::from_utf8(head(&get.body(Body::empty()).unwrap()).unwrap()).unwrap();
    assert_eq!(
        sent,
        "GET /api/v1/pods?watch=1 HTTP/1.1\r\nhost: [fd00::1]:6443\r\nauthorization: Bearer \
         x\r\n\r\n"
    );
    let post = Request::post("https://a/b").body(Body::empty()).unwrap();
    assert!(head(&post).is_err());
}

/// How a server ends a connection.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Goodbye {
    Said,
    /// Whoever is between the two could have done it.
    Unsaid,
}

/// Answers one request with what it is given, a part at a time, and ends when there is no more to
/// come.
struct Server {
    url: String,
    parts: mpsc::Sender<&'static str>,
    connector: HttpsConnector<HttpConnector>,
}

impl Server {
    fn start(tls: bool, goodbye: Goodbye) -> Server {
        let certified = generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let certificate = certified.cert.der().clone();
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(
            certified.signing_key.serialize_der(),
        ));
        let mut trusted = RootCertStore::empty();
        trusted.add(certificate.clone()).unwrap();
        let theirs = ServerConfig::builder()
            .with_no_client_auth()
            .with_single_cert(vec![certificate], key)
            .unwrap();
        let ours = ClientConfig::builder()
            .with_root_certificates(trusted)
            .with_no_client_auth();
        let mut http = HttpConnector::new();
        http.enforce_http(false);
        let listener = TcpListener::bind("localhost:0").unwrap();
        let scheme = if tls { "https" } else { "http" };
        let url = format!(
            "{scheme}://localhost:{}/",
            listener.local_addr().unwrap().port()
        );
        let (parts, to_send) = mpsc::channel();
        thread::spawn(move || {
            let (mut socket, _) = listener.accept().unwrap();
            match tls {
                false => answer(&mut socket, &to_send),
                true => {
                    let session = ServerConnection::new(Arc::new(theirs)).unwrap();
                    let mut stream = StreamOwned::new(session, socket);
                    answer(&mut stream, &to_send);
                    if goodbye == Goodbye::Said {
                        stream.conn.send_close_notify();
                        stream.flush().unwrap();
                    }
                }
            }
        });
        Server {
            url,
            parts,
            connector: HttpsConnector::from((http, ours)),
        }
    }

    fn send(&self, part: &'static str) {
        self.parts.send(part).unwrap();
    }

    async fn ask(&self) -> Response<Full<Bytes>> {
        let request = Request::get(&self.url).body(Body::empty()).unwrap();
        Direct(self.connector.clone())
            .oneshot(request)
            .await
            .unwrap()
    }
}

fn answer(stream: &mut (impl Read + Write), parts: &mpsc::Receiver<&'static str>) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        head.extend(byte);
    }
    for part in parts {
        stream.write_all(part.as_bytes()).unwrap();
        stream.flush().unwrap();
    }
}

/// Waits for what is read.
fn waiting(answer: &Response<Full<Bytes>>) -> Connection {
    let connection = connection(answer).unwrap();
    connection.socket.set_nonblocking(false).unwrap();
    connection
}

fn rest(mut connection: Connection) -> io::Result<String> {
    let mut body = Vec::new();
    connection.is_readable(true);
    loop {
        match connection.next(&mut [0; 3])? {
            Arrival::Data(data) => body.extend(data),
            Arrival::Nothing => panic!("it waits"),
            Arrival::End => return Ok(String::from_utf8(body).unwrap()),
        }
    }
}

#[tokio::test]
async fn a_body_that_breaks_off_is_not_one_that_ends() {
    let chunked = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n";
    for (tls, goodbye, parts, is_whole) in [
        (false, Goodbye::Unsaid, [chunked, "0\r\n\r\n"], true),
        (false, Goodbye::Unsaid, [chunked, ""], false),
        (
            false,
            Goodbye::Unsaid,
            ["HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\n", "ab"],
            false,
        ),
        (
            false,
            Goodbye::Unsaid,
            ["HTTP/1.1 200 OK\r\n\r\n", "ab"],
            true,
        ),
        (true, Goodbye::Unsaid, [chunked, "0\r\n\r\n"], true),
        (true, Goodbye::Unsaid, [chunked, ""], false),
        (true, Goodbye::Said, [chunked, ""], false),
        (
            true,
            Goodbye::Unsaid,
            ["HTTP/1.1 200 OK\r\n\r\n", "ab"],
            false,
        ),
        (true, Goodbye::Said, ["HTTP/1.1 200 OK\r\n\r\n", "ab"], true),
    ] {
        let server = Server::start(tls, goodbye);
        parts.into_iter().for_each(|part| server.send(part));
        let answer = server.ask().await;
        drop(server.parts);
        let read = rest(waiting(&answer));
        assert_eq!(
            read.ok().as_deref(),
            is_whole.then_some("ab"),
            "{tls} {goodbye:?} {parts:?}"
        );
    }
}

#[tokio::test]
async fn what_came_is_read_without_asking_for_more() {
    for tls in [false, true] {
        let server = Server::start(tls, Goodbye::Said);
        server.send("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n");
        let mut connection = waiting(&server.ask().await);
        let mut scratch = [0; 1024];
        for round in 0..3 {
            server.send("2\r\nab\r\n");
            connection.is_readable(false);
            assert_eq!(
                connection.next(&mut scratch).unwrap(),
                Arrival::Data("ab".into()),
                "{tls} {round}"
            );
            // The socket waits for more: whoever asked it would not come back.
            assert_eq!(
                connection.next(&mut scratch).unwrap(),
                Arrival::Nothing,
                "{tls} {round}"
            );
        }
    }
}

#[tokio::test]
async fn a_refusal_has_a_body_and_no_connection() {
    for tls in [false, true] {
        let server = Server::start(tls, Goodbye::Unsaid);
        server.send("HTTP/1.1 410 Gone\r\ncontent-length: 3\r\n\r\n");
        server.send("old");
        let answer = server.ask().await;
        assert!(connection(&answer).is_none());
        let body = http_body_util::BodyExt::collect(answer.into_body())
            .await
            .unwrap()
            .to_bytes();
        assert_eq!(body, "old", "{tls}");
    }
}
