use super::*;
use crate::auth::service_account::Grant;
use serde_json::{Value, json};

struct OneAccount;

impl Objects for OneAccount {
    fn get(&self, kind: &str, _: &str, name: &str) -> Option<Arc<Value>> {
        (kind == "ServiceAccount" && name == "web")
            .then(|| Arc::new(json!({"metadata": {"uid": "u"}})))
    }
}

fn authenticator(anonymous: bool) -> Authenticator {
    let key = rcgen::KeyPair::generate().unwrap().serialize_pem();
    let audiences = vec!["https://me".to_owned()];
    Authenticator {
        token_file: Some(TokenFile::parse("s3cret,ann,1,dev\n").unwrap()),
        tokens: Some(Tokens::new(&key, "https://me", &audiences).unwrap()),
        audiences,
        objects: Arc::new(OneAccount),
        own: Some(("own-secret".to_owned(), User::new("portico:own", &[]))),
        anonymous,
    }
}

fn now() -> Timestamp {
    Timestamp::from_second(1_000_000).unwrap()
}

fn with_header(authenticator: &Authenticator, header: &[u8]) -> Result<User, u16> {
    let credentials = Credentials {
        authorization: Some(header),
        ..Credentials::default()
    };
    authenticator
        .authenticate(&credentials, now())
        .map_err(|error| error.code)
}

#[test]
fn only_no_credentials_at_all_are_anonymous() {
    let open = authenticator(true);
    assert_eq!(
        open.authenticate(&Credentials::default(), now()).unwrap(),
        User::anonymous()
    );
    assert_eq!(
        authenticator(false)
            .authenticate(&Credentials::default(), now())
            .unwrap_err()
            .code,
        401
    );
    for wrong in [
        "Bearer wrong",
        "Bearer",
        "Bearer ",
        "Basic YTpi",
        "s3cret",
        "Bearer a.b.c",
    ] {
        assert_eq!(with_header(&open, wrong.as_bytes()), Err(401), "{wrong}");
    }
    assert_eq!(with_header(&open, b"Bearer \xff"), Err(401));
    for wrong in [certificate::Error::Nameless, certificate::Error::Unreadable] {
        let credentials = Credentials {
            certificate: Some(&Err(wrong)),
            authorization: Some(b"Bearer s3cret"),
        };
        assert_eq!(
            open.authenticate(&credentials, now()).unwrap_err().code,
            401
        );
    }
}

#[test]
fn the_servers_own_clients_have_a_token_of_their_own() {
    let authenticator = authenticator(true);
    assert_eq!(
        with_header(&authenticator, b"Bearer own-secret").map(|user| user.name),
        Ok("portico:own".to_owned())
    );
    assert_eq!(with_header(&authenticator, b"Bearer own-secre"), Err(401));
}

#[test]
fn tokens_of_both_kinds() {
    let authenticator = authenticator(false);
    for good in ["Bearer s3cret", "bearer s3cret", "Bearer  s3cret "] {
        let user = with_header(&authenticator, good.as_bytes()).unwrap();
        assert_eq!(
            (user.name.as_str(), user.groups),
            (
                "ann",
                vec!["dev".to_owned(), "system:authenticated".to_owned()]
            )
        );
    }
    let grant = Grant {
        namespace: "shop",
        name: "web",
        uid: "u",
        audiences: &authenticator.audiences,
        seconds: 600,
        bound: None,
    };
    let token = authenticator
        .tokens
        .as_ref()
        .unwrap()
        .mint(&grant, now())
        .unwrap();
    let user = with_header(&authenticator, format!("Bearer {token}").as_bytes()).unwrap();
    assert_eq!(user.name, "system:serviceaccount:shop:web");
    assert!(user.is_in("system:authenticated"));
}

#[test]
fn nothing_printed_holds_a_secret() {
    let credentials = Credentials {
        authorization: Some(b"Bearer s3cret"),
        ..Credentials::default()
    };
    let printed = format!("{credentials:?} {:?}", authenticator(true));
    assert!(
        !printed.contains("s3cret") && !printed.contains("115, 51"),
        "{printed}"
    );
}
