use super::*;
use crate::auth::User;
use crate::auth::certificate::ClientCertificate;
use rustls::ClientConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::{TlsAcceptor, TlsConnector};

const DAY: i64 = 24 * 60 * 60;

fn options(dir: &TempDir) -> Options {
    Options {
        dir: dir.path().join("pki"),
        local: ([127, 0, 0, 1], 6443).into(),
        addresses: vec![
            "10.96.0.1".parse().unwrap(),
            "0.0.0.0".parse().unwrap(),
            "fd00::1".parse().unwrap(),
        ],
        names: Vec::new(),
        cert_file: None,
        key_file: None,
        client_ca_file: None,
    }
}

fn later(days: i64) -> Timestamp {
    Timestamp::from_second(Timestamp::now().as_second() + days * DAY).unwrap()
}

fn content(options: &Options, name: &str) -> String {
    fs::read_to_string(options.dir.join(name)).unwrap()
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

const FILES: [&str; 9] = [
    "ca.crt",
    "ca.key",
    "apiserver.crt",
    "apiserver.key",
    "admin.crt",
    "admin.key",
    "sa.key",
    "sa.pub",
    "admin.kubeconfig",
];

fn changed_by(options: &Options, now: Timestamp) -> Vec<&'static str> {
    let before = FILES.map(|name| content(options, name));
    Pki::prepare(options, now).unwrap();
    FILES
        .into_iter()
        .zip(before)
        .filter(|(name, before)| content(options, name) != *before)
        .map(|(name, _)| name)
        .collect()
}

#[test]
fn made_once_and_kept() {
    let dir = TempDir::new().unwrap();
    let options = options(&dir);
    let pki = Pki::prepare(&options, later(0)).unwrap();
    assert_eq!(changed_by(&options, later(1)), Vec::<&str>::new());
    for name in [
        "ca.key",
        "apiserver.key",
        "admin.key",
        "sa.key",
        "admin.kubeconfig",
    ] {
        assert_eq!(mode(&options.dir.join(name)), 0o600, "{name}");
    }
    assert_eq!(mode(&options.dir), 0o700);
    assert!(!format!("{pki:?}").contains("PRIVATE KEY"));
    assert!(crate::auth::service_account::Tokens::new(pki.token_key(), "https://me", &[]).is_ok());
    assert!(
        fs::read_dir(&options.dir).unwrap().all(|file| !file
            .unwrap()
            .path()
            .to_string_lossy()
            .ends_with(".new"))
    );
}

#[test]
fn certificates_are_renewed_and_keys_stay() {
    let dir = TempDir::new().unwrap();
    let mut options = options(&dir);
    Pki::prepare(&options, later(0)).unwrap();
    assert_eq!(changed_by(&options, later(365 - 31)), Vec::<&str>::new());
    assert_eq!(
        changed_by(&options, later(365 - 29)),
        ["apiserver.crt", "admin.crt", "admin.kubeconfig"]
    );
    options.addresses.push("192.0.2.7".parse().unwrap());
    assert_eq!(changed_by(&options, later(365 - 29)), ["apiserver.crt"]);
    options.local.set_port(7443);
    assert_eq!(changed_by(&options, later(365 - 29)), ["admin.kubeconfig"]);
    assert!(content(&options, "admin.kubeconfig").contains("server: https://127.0.0.1:7443\n"));
    fs::remove_file(options.dir.join("admin.key")).unwrap();
    let missing = FILES
        .iter()
        .filter(|name| !options.dir.join(name).exists())
        .count();
    assert_eq!(missing, 1);
    Pki::prepare(&options, later(365 - 29)).unwrap();
    Server::new(&Pki::prepare(&options, later(365 - 29)).unwrap()).unwrap();
}

#[test]
fn a_loose_mode_is_tightened() {
    let dir = TempDir::new().unwrap();
    let options = options(&dir);
    Pki::prepare(&options, later(0)).unwrap();
    let key = options.dir.join("ca.key");
    fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).unwrap();
    Pki::prepare(&options, later(0)).unwrap();
    assert_eq!(mode(&key), 0o600);
}

#[test]
fn a_directory_open_to_others_is_refused_and_a_wrong_one_is_not_filled() {
    let dir = TempDir::new().unwrap();
    let options = options(&dir);
    assert!(issuer(&options.dir, later(0)).is_err());
    assert!(!options.dir.exists());
    fs::create_dir(&options.dir).unwrap();
    fs::set_permissions(&options.dir, fs::Permissions::from_mode(0o777)).unwrap();
    let error = Pki::prepare(&options, later(0)).unwrap_err().to_string();
    assert!(error.contains("chmod go-w"), "{error}");
    fs::set_permissions(&options.dir, fs::Permissions::from_mode(0o755)).unwrap();
    Pki::prepare(&options, later(0)).unwrap();
    assert_eq!(mode(&options.dir), 0o755);
}

#[test]
fn errors_name_the_file_and_the_way_out() {
    let broken = |name: &str, text: Option<&str>| {
        let dir = TempDir::new().unwrap();
        let options = options(&dir);
        Pki::prepare(&options, later(0)).unwrap();
        match text {
            Some(text) => fs::write(options.dir.join(name), text).unwrap(),
            None => fs::remove_file(options.dir.join(name)).unwrap(),
        }
        Pki::prepare(&options, later(0)).unwrap_err().to_string()
    };
    for (name, text, remedy) in [
        ("ca.key", None, "put the key back"),
        ("ca.key", Some("junk"), "move the file away"),
        ("ca.crt", Some("junk"), "start a new CA"),
        ("sa.key", Some(""), "move the file away"),
    ] {
        let error = broken(name, text);
        assert!(
            error.contains(name) && error.contains(remedy),
            "{name}: {error}"
        );
    }
    let other = rcgen::KeyPair::generate().unwrap().serialize_pem();
    let error = broken("ca.key", Some(&other));
    assert!(error.contains("does not belong to ca.key"), "{error}");
    let dir = TempDir::new().unwrap();
    Pki::prepare(&options(&dir), later(0)).unwrap();
    let error = Pki::prepare(&options(&dir), later(3651))
        .unwrap_err()
        .to_string();
    assert!(error.contains("the CA has expired"), "{error}");
}

#[test]
fn files_given_by_flags_are_used_instead() {
    let (dir, other) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let given = options(&other);
    Pki::prepare(&given, later(0)).unwrap();
    let with_server = Options {
        cert_file: Some(given.dir.join("apiserver.crt")),
        key_file: Some(given.dir.join("apiserver.key")),
        ..options(&dir)
    };
    let pki = Pki::prepare(&with_server, later(0)).unwrap();
    assert_eq!(pki.server_certificates, content(&given, "apiserver.crt"));
    assert!(!with_server.dir.join("apiserver.key").exists());
    assert!(content(&with_server, "admin.kubeconfig").contains("tls-server-name: "));
    Server::new(&pki).unwrap();

    let all = Options {
        client_ca_file: Some(given.dir.join("ca.crt")),
        ..with_server.clone()
    };
    let all = Options {
        dir: dir.path().join("second"),
        ..all
    };
    let pki = Pki::prepare(&all, later(0)).unwrap();
    assert_eq!(pki.kubeconfig, None);
    assert!(!all.dir.join("ca.key").exists());
    Server::new(&pki).unwrap();

    let half = Options {
        key_file: None,
        ..with_server.clone()
    };
    assert!(matches!(
        Pki::prepare(&half, later(0)),
        Err(Error::HalfAPair)
    ));
    let mismatched = Options {
        key_file: Some(given.dir.join("admin.key")),
        ..with_server
    };
    let error = Server::new(&Pki::prepare(&mismatched, later(0)).unwrap())
        .unwrap_err()
        .to_string();
    assert!(error.contains("admin.key"), "{error}");
}

/// The certificate and key a client presents.
type Identity = Option<(String, String)>;

fn client(authority: &str, identity: Identity) -> ClientConfig {
    let mut roots = rustls::RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_slice(authority.as_bytes()).unwrap())
        .unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap();
    let builder = builder.with_root_certificates(roots);
    let mut config = match identity {
        None => builder.with_no_client_auth(),
        Some((certificate, key)) => {
            let chain = vec![CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()];
            builder
                .with_client_auth_cert(
                    chain,
                    PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap(),
                )
                .unwrap()
        }
    };
    config.alpn_protocols = vec![b"h2".to_vec()];
    config
}

/// Connects over loopback; the user that the server takes the client for.
async fn handshake(
    server: &Server,
    client: ClientConfig,
    name: &str,
) -> std::result::Result<Option<User>, String> {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let connect = tokio::spawn(async move {
        let stream = TcpStream::connect(address).await.unwrap();
        let mut stream = TlsConnector::from(Arc::new(client))
            .connect(name, stream)
            .await
            .map_err(|e| e.to_string())?;
        stream.write_all(b"x").await.map_err(|e| e.to_string())?;
        // In TLS 1.3 the server's refusal arrives after the handshake.
        let mut answer = [0];
        stream
            .read_exact(&mut answer)
            .await
            .map(drop)
            .map_err(|e| e.to_string())
    });
    let (stream, _) = listener.accept().await.unwrap();
    let accepted = TlsAcceptor::from(server.config.clone())
        .accept(stream)
        .await
        .map_err(|e| e.to_string());
    let user = match accepted {
        Err(error) => Err(error),
        Ok(mut stream) => {
            assert_eq!(stream.get_ref().1.alpn_protocol(), Some(b"h2".as_slice()));
            let certificate = stream
                .get_ref()
                .1
                .peer_certificates()
                .and_then(|chain| chain.first())
                .cloned();
            let _ = stream.write_all(b"y").await;
            let _ = stream.flush().await;
            Ok(certificate.map(|der| {
                ClientCertificate::parse(&der)
                    .unwrap()
                    .user(later(0))
                    .unwrap()
                    .clone()
            }))
        }
    };
    let heard = connect.await.unwrap();
    user.and_then(|user| heard.map(|()| user))
}

#[tokio::test]
async fn a_real_handshake_tells_who_it_is() {
    let dir = TempDir::new().unwrap();
    let options = options(&dir);
    let pki = Pki::prepare(&options, later(0)).unwrap();
    let server = Server::new(&pki).unwrap();
    let authority = content(&options, "ca.crt");
    let admin = Some((
        content(&options, "admin.crt"),
        content(&options, "admin.key"),
    ));
    let user = handshake(&server, client(&authority, admin), "127.0.0.1")
        .await
        .unwrap()
        .unwrap();
    assert_eq!(
        (user.name.as_str(), user.groups),
        ("kubernetes-admin", vec!["system:masters".to_owned()])
    );

    let issuer = issuer(&options.dir, later(0)).unwrap();
    let many = issuer
        .client(
            "system:node:n1",
            &["system:nodes", "zone:a", "zone:b"],
            later(0),
        )
        .unwrap();
    assert!(!format!("{many:?} {issuer:?}").contains("PRIVATE KEY"));
    let node = handshake(
        &server,
        client(&authority, Some((many.certificate, many.key))),
        "kubernetes.default.svc",
    )
    .await;
    let node = node.unwrap().unwrap();
    assert_eq!(node.groups, ["system:nodes", "zone:a", "zone:b"]);
    assert_eq!(node.node(), Some("n1"));

    for name in [
        "localhost",
        "10.96.0.1",
        "fd00::1",
        "::1",
        "kubernetes.default.svc.cluster.local",
    ] {
        assert_eq!(
            handshake(&server, client(&authority, None), name).await,
            Ok(None),
            "{name}"
        );
    }
    assert!(
        handshake(&server, client(&authority, None), "example.com")
            .await
            .is_err()
    );
}

#[tokio::test]
async fn wrong_client_certificates_do_not_connect() {
    let (dir, other) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let (options, foreign) = (options(&dir), options(&other));
    let server = Server::new(&Pki::prepare(&options, later(0)).unwrap()).unwrap();
    Pki::prepare(&foreign, later(0)).unwrap();
    let authority = content(&options, "ca.crt");
    let stranger = (
        content(&foreign, "admin.crt"),
        content(&foreign, "admin.key"),
    );
    let own = issuer(&options.dir, later(0)).unwrap();
    let expired = own.client("ann", &[], later(-400)).unwrap();
    let not_yet = own.client("ann", &[], later(2)).unwrap();
    // A server certificate is not good for clients.
    let server_pair = (
        content(&options, "apiserver.crt"),
        content(&options, "apiserver.key"),
    );
    for pair in [
        stranger,
        (expired.certificate, expired.key),
        (not_yet.certificate, not_yet.key),
        server_pair,
    ] {
        assert!(
            handshake(&server, client(&authority, Some(pair)), "localhost")
                .await
                .is_err()
        );
    }
}

#[tokio::test]
async fn a_renewed_certificate_is_presented_without_a_restart() {
    let dir = TempDir::new().unwrap();
    let mut options = options(&dir);
    let server = Server::new(&Pki::prepare(&options, later(0)).unwrap()).unwrap();
    let authority = content(&options, "ca.crt");
    options.names.push("portico.example".to_owned());
    let renewed = Pki::prepare(&options, later(0)).unwrap();
    assert!(
        handshake(&server, client(&authority, None), "portico.example")
            .await
            .is_err()
    );
    server.replace(&renewed).unwrap();
    assert_eq!(
        handshake(&server, client(&authority, None), "portico.example").await,
        Ok(None)
    );
}

#[test]
fn a_certificate_stops_naming_its_user_when_it_ends() {
    let dir = TempDir::new().unwrap();
    Pki::prepare(&options(&dir), later(0)).unwrap();
    let issued = issuer(&options(&dir).dir, later(0))
        .unwrap()
        .client("ann", &["dev"], later(0))
        .unwrap();
    let der = CertificateDer::from_pem_slice(issued.certificate.as_bytes()).unwrap();
    let certificate = ClientCertificate::parse(&der).unwrap();
    assert_eq!(
        certificate.user(later(364)).map(|user| user.name.as_str()),
        Ok("ann")
    );
    assert!(certificate.user(later(366)).is_err());
    assert!(ClientCertificate::parse(b"junk").is_err());
}

#[test]
fn a_clock_before_the_first_day_of_the_ca_is_told_with_the_way_out() {
    let dir = tempfile::tempdir().unwrap();
    let options = options(&dir);
    Pki::prepare(&options, later(0)).unwrap();
    let before = FILES.map(|name| content(&options, name));
    let error = Pki::prepare(&options, later(-2)).unwrap_err();
    assert!(matches!(error, Error::Clock { .. }), "{error:?}");
    let text = error.to_string();
    assert!(
        text.contains("this machine's clock says") && text.contains("set the clock"),
        "{text}"
    );
    // No certificate was issued that no server would accept.
    assert_eq!(FILES.map(|name| content(&options, name)), before);
    Pki::prepare(&options, later(0)).unwrap();
}
