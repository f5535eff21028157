use std::io::Write as _;
use std::sync::Mutex as StdMutex;

use bytes::Bytes;
use http::{Request, Response};

use super::*;
use crate::cloud::TransportError;

type Log = Arc<StdMutex<Vec<String>>>;

/// Answers like the agent, the instance and the STS, and notes what it is asked: method, path, the
/// header that matters.
fn server(log: Log, lifetime: SignedDuration) -> Arc<dyn Transport> {
    Arc::new(
        move |request: Request<Bytes>| -> Result<Response<Bytes>, TransportError> {
            let header = |name: &str| {
                request
                    .headers()
                    .get(name)
                    .map_or("", |value| value.to_str().unwrap())
                    .to_owned()
            };
            let proof = [header("x-aws-ec2-metadata-token"), header("authorization")].concat();
            let proof = proof.split('/').next().unwrap_or_default().to_owned();
            let path = request.uri().path();
            let body = String::from_utf8_lossy(request.body()).into_owned();
            log.lock().unwrap().push(
                format!("{} {path} {proof} {body}", request.method())
                    .trim()
                    .to_owned(),
            );
            let until = Timestamp::now() + lifetime;
            let given = format!(
                r#"{{"AccessKeyId":"K","SecretAccessKey":"S","Token":"T","Expiration":"{until}"}}"#
            );
            let answer = match path {
                "/latest/api/token" => "session".to_owned(),
                "/latest/meta-data/iam/security-credentials/" => "node-role\n".to_owned(),
                "/latest/meta-data/iam/security-credentials/node-role" | "/v1/credentials" => given,
                _ => format!(
                    "<R xmlns=\"x\"><Result><Credentials><AccessKeyId>STS</AccessKeyId><SecretAccessKey>S</SecretAccessKey>\
                 <SessionToken>T</SessionToken><Expiration>{until}</Expiration></Credentials></Result></R>"
                ),
            };
            Ok(Response::new(Bytes::from(answer)))
        },
    )
}

fn fetcher(source: Source, lifetime: SignedDuration) -> (Fetcher, Log) {
    let log = Log::default();
    let transport = server(Arc::clone(&log), lifetime);
    let client = client(Arc::clone(&transport), Arc::new(crate::cloud::Anonymous));
    (
        Fetcher::new(
            source,
            client,
            transport,
            "eu-west-1",
            "https://sts.test/".to_owned(),
        ),
        log,
    )
}

const HOUR: SignedDuration = SignedDuration::from_hours(1);

#[tokio::test]
async fn an_instance_asks_with_a_token_and_only_once() {
    let (fetcher, log) = fetcher(Source::Instance, HOUR);
    assert_eq!(fetcher.current().await.unwrap().key, "K");
    assert_eq!(fetcher.current().await.unwrap().key, "K");
    let calls = [
        "PUT /latest/api/token",
        "GET /latest/meta-data/iam/security-credentials/ session",
        "PUT /latest/api/token",
        "GET /latest/meta-data/iam/security-credentials/node-role session",
    ];
    assert_eq!(*log.lock().unwrap(), calls);
}

#[tokio::test]
async fn those_that_end_soon_are_fetched_again() {
    let (fetcher, log) = fetcher(Source::Instance, SignedDuration::from_mins(4));
    fetcher.current().await.unwrap();
    fetcher.current().await.unwrap();
    assert_eq!(log.lock().unwrap().len(), 8);
}

#[tokio::test]
async fn an_agent_is_shown_the_token_in_its_file() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    writeln!(file, "pod-token").unwrap();
    let url = "http://169.254.170.23/v1/credentials".to_owned();
    let (fetcher, log) = fetcher(
        Source::Container {
            url,
            token: None,
            token_file: Some(file.path().into()),
        },
        HOUR,
    );
    assert_eq!(fetcher.current().await.unwrap().key, "K");
    assert_eq!(*log.lock().unwrap(), ["GET /v1/credentials pod-token"]);
}

#[tokio::test]
async fn a_web_identity_becomes_a_role() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    write!(file, "jwt").unwrap();
    let (role, session) = ("arn:role".to_owned(), "portico".to_owned());
    let (fetcher, log) = fetcher(
        Source::WebIdentity {
            token_file: file.path().into(),
            role,
            session,
        },
        HOUR,
    );
    assert_eq!(fetcher.current().await.unwrap().key, "STS");
    let call = "POST /  \
             Action=AssumeRoleWithWebIdentity&Version=2011-06-15&RoleArn=arn%3Arole&RoleSessionName=portico&WebIdentityToken=jwt";
    assert_eq!(*log.lock().unwrap(), [call]);
    let (lost, _) = self::fetcher(
        Source::WebIdentity {
            token_file: "/nowhere".into(),
            role: String::new(),
            session: String::new(),
        },
        HOUR,
    );
    let error = lost.current().await.unwrap_err().to_string();
    assert!(
        error.starts_with("credentials: credentials: /nowhere"),
        "{error}"
    );
}

#[tokio::test]
async fn a_role_is_taken_on_with_other_credentials() {
    let keys = Credentials {
        key: "AKI".to_owned(),
        secret: "s".into(),
        token: None,
    };
    let base = Box::new(Source::Fixed(keys));
    let (fetcher, log) = fetcher(
        Source::Role {
            role: "arn:role".to_owned(),
            base,
        },
        HOUR,
    );
    assert_eq!(fetcher.current().await.unwrap().key, "STS");
    let call = &log.lock().unwrap()[0];
    assert!(
        call.starts_with("POST / AWS4-HMAC-SHA256 Credential=AKI Action=AssumeRole&"),
        "{call}"
    );
}

#[tokio::test]
async fn secrets_are_not_in_errors() {
    let error = given(br#"{"AccessKeyId": "K", "SecretAccessKey": "hush"}"#).unwrap_err();
    assert!(!format!("{error:?}").contains("hush"), "{error:?}");
}
