use super::*;
use std::collections::HashMap;

/// Objects by kind and name, namespaces left aside except in the key.
#[derive(Default)]
struct Known(HashMap<(String, String, String), Arc<Value>>);

impl Known {
    fn with(mut self, kind: &str, namespace: &str, name: &str, object: Value) -> Self {
        self.0.insert(
            (kind.into(), namespace.into(), name.into()),
            Arc::new(object),
        );
        self
    }
}

impl Objects for Known {
    fn get(&self, kind: &str, namespace: &str, name: &str) -> Option<Arc<Value>> {
        self.0
            .get(&(kind.into(), namespace.into(), name.into()))
            .cloned()
    }
}

const ISSUER: &str = "https://kubernetes.default.svc.cluster.local";

fn tokens() -> Tokens {
    Tokens::new(
        &rcgen::KeyPair::generate().unwrap().serialize_pem(),
        ISSUER,
        &[],
    )
    .unwrap()
}

fn account() -> Value {
    json!({"metadata": {"name": "web", "namespace": "shop", "uid": "u-1"}})
}

fn known() -> Known {
    Known::default().with("ServiceAccount", "shop", "web", account())
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn mint(tokens: &Tokens, audiences: &[String], bound: Option<(&str, &str, &str)>) -> String {
    let grant = Grant {
        namespace: "shop",
        name: "web",
        uid: "u-1",
        audiences,
        seconds: 3600,
        bound,
    };
    tokens.mint(&grant, at(1_000_000)).unwrap()
}

fn ours() -> Vec<String> {
    vec![ISSUER.to_owned()]
}

#[test]
fn a_token_comes_back_as_its_account() {
    let tokens = tokens();
    let token = mint(&tokens, &ours(), None);
    assert!(tokens.claims_to_be_ours(&token));
    let found = tokens
        .authenticate(&token, &[], &known(), at(1_000_010))
        .unwrap();
    assert_eq!(found.user.name, "system:serviceaccount:shop:web");
    assert_eq!(found.user.uid, "u-1");
    assert_eq!(
        found.user.groups,
        ["system:serviceaccounts", "system:serviceaccounts:shop"]
    );
    assert!(found.user.extra[CREDENTIAL_ID][0].starts_with("JTI="));
    assert_eq!(found.audiences, ours());
    assert!(!format!("{tokens:?}").contains("PRIVATE"));
}

#[test]
fn times_have_a_minute_of_leeway() {
    let tokens = tokens();
    let token = mint(&tokens, &ours(), None);
    let cases = [
        (1_000_000 + 3600 + 60, None),
        (1_000_000 + 3600 + 61, Some(Error::Expired)),
        (1_000_000 - 60, None),
        (1_000_000 - 61, Some(Error::NotYet)),
    ];
    for (now, error) in cases {
        assert_eq!(
            tokens.authenticate(&token, &[], &known(), at(now)).err(),
            error,
            "{now}"
        );
    }
}

#[test]
fn tampered_tokens_are_refused() {
    let tokens = tokens();
    let token = mint(&tokens, &ours(), None);
    let parts: Vec<&str> = token.split('.').collect();
    let [header, payload, signature] = parts.as_slice() else {
        panic!()
    };
    let claims = decode(payload).unwrap();
    let changed = |key: &str, value: Value| {
        let mut claims = claims.clone();
        claims[key] = value;
        encode(claims.to_string().as_bytes())
    };
    let header_with = |header: Value| encode(header.to_string().as_bytes());
    let flipped = format!(
        "{}{}",
        if signature.starts_with('A') { "B" } else { "A" },
        &signature[1..]
    );
    let cases = [
        (format!("{header}.{payload}.{flipped}"), Error::Signature),
        (
            format!(
                "{header}.{}.{signature}",
                changed("sub", "system:serviceaccount:kube-system:root".into())
            ),
            Error::Signature,
        ),
        (
            format!("{header}.{}.{signature}", changed("exp", 9_000_000.into())),
            Error::Signature,
        ),
        (
            format!(
                "{header}.{}.{signature}",
                changed("iss", "https://elsewhere".into())
            ),
            Error::NotOurs,
        ),
        (format!("{header}.{payload}."), Error::Signature),
        (
            format!(
                "{}.{payload}.{signature}",
                header_with(json!({"alg": "none"}))
            ),
            Error::Signature,
        ),
        (
            format!("{}.{payload}.", header_with(json!({"alg": "none"}))),
            Error::Signature,
        ),
        (
            format!(
                "{}.{payload}.{signature}",
                header_with(json!({"alg": "HS256"}))
            ),
            Error::Signature,
        ),
        (
            format!(
                "{}.{payload}.{signature}",
                header_with(json!({"alg": "ES256", "kid": "x"}))
            ),
            Error::Signature,
        ),
        (format!("{payload}.{signature}"), Error::NotOurs),
        ("..".to_owned(), Error::NotOurs),
        (String::new(), Error::NotOurs),
    ];
    for (token, error) in cases {
        assert_eq!(
            tokens.authenticate(&token, &[], &known(), at(1_000_010)),
            Err(error),
            "{token}"
        );
    }
    let other = self::tokens();
    assert_eq!(
        other.authenticate(&token, &[], &known(), at(1_000_010)),
        Err(Error::Signature)
    );
}

#[test]
fn audiences_must_meet() {
    let tokens = tokens();
    let token = mint(&tokens, &["vault".to_owned()], None);
    let check = |wanted: &[String]| tokens.authenticate(&token, wanted, &known(), at(1_000_010));
    assert!(matches!(check(&[]), Err(Error::Audience { .. })));
    assert_eq!(
        check(&["vault".to_owned(), "x".to_owned()])
            .unwrap()
            .audiences,
        ["vault"]
    );
}

#[test]
fn a_token_dies_with_its_account_and_what_it_is_bound_to() {
    let tokens = tokens();
    let token = mint(&tokens, &ours(), Some(("Pod", "web-1", "p-1")));
    let pod = json!({"metadata": {"uid": "p-1"}});
    let deleted = |at: &str| json!({"metadata": {"uid": "u-1", "deletionTimestamp": at}});
    let cases = [
        (known().with("Pod", "shop", "web-1", pod.clone()), true),
        (known(), false),
        (
            known().with("Pod", "shop", "web-1", json!({"metadata": {"uid": "p-2"}})),
            false,
        ),
        (
            Known::default().with("Pod", "shop", "web-1", pod.clone()),
            false,
        ),
        (
            known().with("Pod", "shop", "web-1", pod.clone()).with(
                "ServiceAccount",
                "shop",
                "web",
                json!({"metadata": {"uid": "u-2"}}),
            ),
            false,
        ),
        (
            known().with("Pod", "shop", "web-1", pod.clone()).with(
                "ServiceAccount",
                "shop",
                "web",
                deleted("1970-01-12T13:45:00Z"),
            ),
            false,
        ),
        (
            known().with("Pod", "shop", "web-1", pod).with(
                "ServiceAccount",
                "shop",
                "web",
                deleted("1970-01-12T13:46:40Z"),
            ),
            true,
        ),
    ];
    for (at_case, (objects, good)) in cases.into_iter().enumerate() {
        let found = tokens.authenticate(&token, &[], &objects, at(1_000_010));
        assert_eq!(found.is_ok(), good, "{at_case}: {found:?}");
        if let Ok(found) = found {
            assert_eq!(
                found.user.extra["authentication.kubernetes.io/pod-name"],
                ["web-1"]
            );
        }
    }
}

#[test]
fn token_requests() {
    let tokens = tokens();
    let answer = |request: Value| tokens.answer(&request, &account(), &known(), at(1_000_000));
    let made = answer(json!({"kind": "TokenRequest", "spec": {"expirationSeconds": 600}})).unwrap();
    assert_eq!(
        made["status"]["expirationTimestamp"],
        "1970-01-12T13:56:40Z"
    );
    assert_eq!(made["spec"]["audiences"], json!([ISSUER]));
    let token = made["status"]["token"].as_str().unwrap();
    assert!(
        tokens
            .authenticate(token, &[], &known(), at(1_000_010))
            .is_ok()
    );
    let bound = |kind: &str, name: &str| json!({"spec": {"boundObjectRef": {"apiVersion": "v1", "kind": kind, "name": name}}});
    let cases = [
        (json!({"spec": {"expirationSeconds": 599}}), 422),
        (json!({"spec": {"expirationSeconds": 1_i64 << 33}}), 422),
        (json!({"metadata": {"name": "other"}}), 422),
        (json!({"metadata": {"uid": "other"}}), 409),
        (bound("ConfigMap", "x"), 400),
        (bound("Secret", "x"), 404),
    ];
    for (request, code) in cases {
        assert_eq!(answer(request.clone()).unwrap_err().code, code, "{request}");
    }
}

#[test]
fn a_key_of_another_kind_is_refused() {
    let other = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519)
        .unwrap()
        .serialize_pem();
    for key in [
        "",
        "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n",
        other.as_str(),
    ] {
        assert!(Tokens::new(key, ISSUER, &[]).is_err());
    }
}

#[test]
fn key_set_holds_the_public_key() {
    let tokens = tokens();
    let set = tokens.key_set();
    let part = |name: &str| {
        URL_SAFE_NO_PAD
            .decode(set["keys"][0][name].as_str().unwrap())
            .unwrap()
    };
    assert_eq!(
        [vec![4], part("x"), part("y")].concat(),
        tokens.key.public_key().as_ref()
    );
}
