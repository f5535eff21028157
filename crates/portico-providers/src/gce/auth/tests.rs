use std::sync::Mutex;

use bytes::Bytes;
use http::{Request, Response};

use super::*;
use crate::cloud::faults::no_waits;
use crate::cloud::{Anonymous, CallMetrics, Setup, Transport, TransportError};
use crate::gce::api::DIALECT;

/// Answers every request with a token, and keeps what was asked.
#[derive(Default)]
struct Google(Mutex<Vec<(String, String)>>);

impl Google {
    fn answer(&self, request: &Request<Bytes>) -> Result<Response<Bytes>, TransportError> {
        let flavor = request
            .headers()
            .get("metadata-flavor")
            .map_or("", |value| value.to_str().unwrap());
        let body = String::from_utf8(request.body().to_vec()).unwrap();
        self.0.lock().unwrap().push((
            format!("{} {} {flavor}", request.method(), request.uri()),
            body,
        ));
        Ok(Response::new(Bytes::from_static(
            br#"{"access_token": "hush", "expires_in": 3599, "token_type": "Bearer"}"#,
        )))
    }
}

fn client(google: &Arc<Google>) -> Arc<Client> {
    let google = Arc::clone(google);
    let transport: Arc<dyn Transport> =
        Arc::new(move |request: Request<Bytes>| google.answer(&request));
    let (pace, metrics) = (no_waits().0, CallMetrics::default());
    let authorize = Arc::new(Anonymous);
    Arc::new(Client::new(Setup {
        provider: "gce",
        transport,
        authorize,
        dialect: DIALECT,
        pace,
        metrics,
    }))
}

#[tokio::test]
async fn the_machine_asks_its_metadata_server() {
    let google = Arc::new(Google::default());
    let token = Metadata::new(client(&google), None).fetch().await.unwrap();
    assert_eq!(
        (token.secret.expose_secret(), token.lifetime.as_secs()),
        ("hush", 3599)
    );
    let asked = google.0.lock().unwrap().clone();
    let path = "computeMetadata/v1/instance/service-accounts/default/token";
    assert_eq!(
        asked[0].0,
        format!("GET http://metadata.google.internal/{path} Google")
    );
    assert!(!format!("{token:?}").contains("hush"));
}

/// A key file as Google's console gives it, with a key that openssl makes.
fn key_file() -> String {
    let mut openssl = std::process::Command::new("openssl");
    let made = openssl
        .args([
            "genpkey",
            "-algorithm",
            "RSA",
            "-pkeyopt",
            "rsa_keygen_bits:2048",
        ])
        .output()
        .unwrap();
    let key = String::from_utf8(made.stdout).unwrap();
    json!({
        "type": "service_account", "project_id": "shop", "private_key_id": "key-1", "private_key": key,
        "client_email": "portico@shop.iam.gserviceaccount.com", "token_uri": "https://oauth2.googleapis.com/token",
    })
    .to_string()
}

#[tokio::test]
async fn a_service_account_signs_what_it_asks_with() {
    let google = Arc::new(Google::default());
    let account = ServiceAccount::parse(client(&google), &key_file()).unwrap();
    assert_eq!(account.project, "shop");
    assert_eq!(
        account.fetch().await.unwrap().secret.expose_secret(),
        "hush"
    );
    let (asked, body) = google.0.lock().unwrap()[0].clone();
    assert_eq!(asked, "POST https://oauth2.googleapis.com/token ");
    assert!(
        body.starts_with(
            "grant_type=urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Ajwt-bearer&assertion="
        ),
        "{body}"
    );
    let assertion = body.rsplit('=').next().unwrap();
    let (signed, signature) = assertion.rsplit_once('.').unwrap();
    let public = ring::signature::UnparsedPublicKey::new(
        &ring::signature::RSA_PKCS1_2048_8192_SHA256,
        account.key.public().as_ref(),
    );
    public
        .verify(
            signed.as_bytes(),
            &URL_SAFE_NO_PAD.decode(signature).unwrap(),
        )
        .unwrap();
    let claims = URL_SAFE_NO_PAD
        .decode(signed.split_once('.').unwrap().1)
        .unwrap();
    let claims: serde_json::Value = serde_json::from_slice(&claims).unwrap();
    assert_eq!(claims["iss"], "portico@shop.iam.gserviceaccount.com");
    assert_eq!(
        claims["exp"].as_i64().unwrap() - claims["iat"].as_i64().unwrap(),
        3600
    );
}

#[test]
fn a_key_that_cannot_be_used_is_named_and_not_shown() {
    let google = Arc::new(Google::default());
    let error = |text: &str| ServiceAccount::parse(client(&google), text).err().unwrap();
    assert_eq!(
        error("{\"type\": \"hush"),
        "is no service account key: line 1 column 14"
    );
    assert_eq!(
        error(r#"{"type": "authorized_user"}"#),
        "has credentials of type \"authorized_user\", and only service_account is known"
    );
    let text = json!({"type": "service_account", "private_key": "hush"}).to_string();
    assert_eq!(error(&text), "private_key is no PEM text of a PKCS#8 key");
}
