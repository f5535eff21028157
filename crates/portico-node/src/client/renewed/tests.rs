use super::super::{client, get};
use super::*;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, ServerConnection, StreamOwned};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::thread;
use tempfile::TempDir;

/// By renaming, as programs that replace certificates do.
fn put(folder: &Path, name: &str, text: &str) {
    let new = folder.join(format!("{name}.new"));
    fs::write(&new, text).unwrap();
    fs::set_permissions(&new, fs::Permissions::from_mode(0o700)).unwrap();
    fs::rename(new, folder.join(name)).unwrap();
}

fn kubeconfig(folder: &Path, server: &str, user: &str) -> ApiAccess {
    let text = format!(
        r#"{{"apiVersion":"v1","kind":"Config","current-context":"c","contexts":[{{"name":"c","context":{{"cluster":"c","user":"u"}}}}],
           "clusters":[{{"name":"c","cluster":{{"server":"{server}","certificate-authority":"ca"}}}}],"users":[{{"name":"u","user":{user}}}]}}"#
    );
    put(folder, "kubeconfig", &text);
    ApiAccess {
        kubeconfig: Some(folder.join("kubeconfig")),
        server: None,
    }
}

/// Answers requests, one on a connection, by what they say.
fn answer(stream: &mut (impl Read + Write), status: impl Fn(&str) -> u16) -> std::io::Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte)?;
        head.extend(byte);
    }
    let status = status(&String::from_utf8_lossy(&head));
    write!(
        stream,
        "HTTP/1.1 {status} X\r\nconnection: close\r\ncontent-length: 2\r\n\r\n{{}}"
    )
}

fn serve(mut each: impl FnMut(TcpStream) + Send + 'static) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || listener.incoming().for_each(|stream| each(stream.unwrap())));
    port
}

type Authority = CertifiedIssuer<'static, KeyPair>;

fn authority() -> Authority {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

fn certificate(authority: &Authority) -> (rcgen::Certificate, KeyPair) {
    let key = KeyPair::generate().unwrap();
    (
        CertificateParams::new(["127.0.0.1".to_owned()])
            .unwrap()
            .signed_by(&key, authority)
            .unwrap(),
        key,
    )
}

fn trusting(authority: &Authority) -> Arc<RootCertStore> {
    let mut trusted = RootCertStore::empty();
    trusted
        .add(CertificateDer::from(authority.der().to_vec()))
        .unwrap();
    Arc::new(trusted)
}

#[tokio::test]
async fn a_certificate_that_was_replaced_is_shown() {
    let (folder, ours, others) = (TempDir::new().unwrap(), authority(), authority());
    let (theirs, key) = certificate(&ours);
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let verifier = WebPkiClientVerifier::builder(trusting(&ours))
        .build()
        .unwrap();
    let config = ServerConfig::builder().with_client_cert_verifier(verifier);
    let config = Arc::new(
        config
            .with_single_cert(vec![theirs.der().clone()], key)
            .unwrap(),
    );
    let port = serve(move |stream| {
        let session = ServerConnection::new(config.clone()).unwrap();
        // Strangers are not let in.
        let _ = answer(&mut StreamOwned::new(session, stream), |_| 200);
    });
    let show = |authority: &Authority| {
        let (certificate, key) = certificate(authority);
        put(folder.path(), "cert", &certificate.pem());
        put(folder.path(), "key", &key.serialize_pem());
    };
    put(folder.path(), "ca", &ours.pem());
    let user = r#"{"client-certificate":"cert","client-key":"key"}"#;
    let access = kubeconfig(folder.path(), &format!("https://127.0.0.1:{port}"), user);
    let client = client(&access);
    let missing = chain(&get(&client, "/version").await.unwrap_err());
    assert!(missing.contains("cert"), "nothing is there yet: {missing}");
    show(&others);
    get(&client, "/version").await.unwrap_err();
    show(&ours);
    get(&client, "/version").await.unwrap();
    put(folder.path(), "cert", "half of one");
    get(&client, "/version").await.unwrap();
}

#[tokio::test]
async fn a_program_is_asked_again_for_who_we_are_when_the_server_does_not_know() {
    let folder = TempDir::new().unwrap();
    let port = serve(|mut stream| {
        let known = |head: &str| head.contains("Bearer new") || head.contains("bearer new");
        answer(&mut stream, |head| if known(head) { 200 } else { 401 }).unwrap();
    });
    put(folder.path(), "ca", "");
    let give = |token: &str| {
        let credential = format!(
            r#"{{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{{"token":"{token}"}}}}"#
        );
        put(
            folder.path(),
            "program",
            &format!("#!/bin/sh\necho '{credential}'\n"),
        );
    };
    let program = folder.path().join("program");
    let user = format!(
        r#"{{"exec":{{"apiVersion":"client.authentication.k8s.io/v1","command":"{}","interactiveMode":"Never"}}}}"#,
        program.display()
    );
    let access = kubeconfig(folder.path(), &format!("http://127.0.0.1:{port}"), &user);
    let client = client(&access);
    get(&client, "/version").await.unwrap_err();
    give("old");
    for _ in 0..2 {
        let refused = get(&client, "/version").await.unwrap_err().to_string();
        assert!(refused.contains("401"), "{refused}");
    }
    give("new");
    get(&client, "/version").await.unwrap();
}
