//! Signature version 4: what proves to the cloud that a request was made with a secret, without
//! sending it. Pure.

use bytes::Bytes;
use http::Request;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST, HeaderName, HeaderValue};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use ring::{digest, hmac};
use secrecy::{ExposeSecret, SecretString};

/// An access key, with its secret.
#[derive(Clone, Debug)]
pub struct Credentials {
    /// The id of the access key.
    pub key: String,
    /// The secret of the access key.
    pub secret: SecretString,
    /// The token of a session; credentials that do not expire have none.
    pub token: Option<SecretString>,
}

/// What a signature is good for, beside a day.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scope<'a> {
    pub region: &'a str,
    pub service: &'a str,
}

const ALGORITHM: &str = "AWS4-HMAC-SHA256";
const DATE: HeaderName = HeaderName::from_static("x-amz-date");
const TOKEN: HeaderName = HeaderName::from_static("x-amz-security-token");

/// Adds the date, the token of the session and the signature over all that the cloud looks at.
pub(crate) fn sign(
    request: &mut Request<Bytes>,
    credentials: &Credentials,
    scope: Scope<'_>,
    now: Timestamp,
) {
    let time = now
        .to_zoned(TimeZone::UTC)
        .strftime("%Y%m%dT%H%M%SZ")
        .to_string();
    insert(request, DATE, &time, false);
    if let Some(token) = &credentials.token {
        insert(request, TOKEN, token.expose_secret(), true);
    }
    let headers = signed_headers(request);
    let names = headers
        .iter()
        .map(|(name, _)| name.as_str())
        .collect::<Vec<_>>()
        .join(";");
    let canonical = canonical(request, &headers, &names);
    let day = &time[..8];
    let limits = format!("{day}/{}/{}/aws4_request", scope.region, scope.service);
    let text = format!(
        "{ALGORITHM}\n{time}\n{limits}\n{}",
        hash(canonical.as_bytes())
    );
    let first = format!("AWS4{}", credentials.secret.expose_secret());
    let key = [day, scope.region, scope.service, "aws4_request"]
        .iter()
        .fold(first.into_bytes(), |key, part| mac(&key, part.as_bytes()));
    let signature = hex(&mac(&key, text.as_bytes()));
    let proof = format!(
        "{ALGORITHM} Credential={}/{limits}, SignedHeaders={names}, Signature={signature}",
        credentials.key
    );
    insert(request, AUTHORIZATION, &proof, true);
}

/// What is no header value would not be accepted either.
fn insert(request: &mut Request<Bytes>, name: HeaderName, value: &str, secret: bool) {
    if let Ok(mut value) = HeaderValue::try_from(value) {
        value.set_sensitive(secret);
        request.headers_mut().insert(name, value);
    }
}

/// Sorted by name.
fn signed_headers(request: &Request<Bytes>) -> Vec<(String, String)> {
    let host = request
        .uri()
        .authority()
        .map(|authority| authority.as_str().to_owned())
        .unwrap_or_default();
    let matters = |name: &HeaderName| *name == CONTENT_TYPE || name.as_str().starts_with("x-amz-");
    let others = request.headers().iter().filter(|(name, _)| matters(name));
    let text = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).trim().to_owned();
    let others = others.map(|(name, value)| (name.as_str().to_owned(), text(value)));
    let mut headers: Vec<(String, String)> =
        others.chain([(HOST.as_str().to_owned(), host)]).collect();
    headers.sort();
    headers
}

fn canonical(request: &Request<Bytes>, headers: &[(String, String)], names: &str) -> String {
    let mut query: Vec<&str> = request
        .uri()
        .query()
        .unwrap_or_default()
        .split('&')
        .collect();
    query.sort_unstable_by_key(|pair| pair.split_once('=').unwrap_or((pair, "")));
    let headers: String = headers
        .iter()
        .map(|(name, value)| format!("{name}:{value}\n"))
        .collect();
    let (method, path, query) = (request.method(), request.uri().path(), query.join("&"));
    format!(
        "{method}\n{path}\n{query}\n{headers}\n{names}\n{}",
        hash(request.body())
    )
}

fn mac(key: &[u8], text: &[u8]) -> Vec<u8> {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text)
        .as_ref()
        .to_vec()
}

pub(crate) fn hash(bytes: &[u8]) -> String {
    hex(digest::digest(&digest::SHA256, bytes).as_ref())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The vendor's test suite for signers: the same secret, time and scope for all requests.
    fn signature(
        method: &str,
        uri: &str,
        kind: Option<&str>,
        body: &'static str,
        token: Option<&str>,
    ) -> String {
        let mut request = Request::builder()
            .method(method)
            .uri(format!("https://example.amazonaws.com{uri}"));
        if let Some(kind) = kind {
            request = request.header(CONTENT_TYPE, kind);
        }
        let mut request = request.body(Bytes::from_static(body.as_bytes())).unwrap();
        let credentials = Credentials {
            key: "AKIDEXAMPLE".to_owned(),
            secret: "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY".into(),
            token: token.map(SecretString::from),
        };
        let scope = Scope {
            region: "us-east-1",
            service: "service",
        };
        sign(
            &mut request,
            &credentials,
            scope,
            "2015-08-30T12:36:00Z".parse().unwrap(),
        );
        let proof = request.headers()[AUTHORIZATION]
            .to_str()
            .unwrap()
            .to_owned();
        assert!(request.headers()[AUTHORIZATION].is_sensitive());
        assert!(proof.starts_with(
            "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request, "
        ));
        proof.rsplit_once("Signature=").unwrap().1.to_owned()
    }

    #[test]
    fn the_vendors_examples() {
        let form = Some("application/x-www-form-urlencoded");
        for (name, found, expected) in [
            (
                "get-vanilla",
                signature("GET", "/", None, "", None),
                "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31",
            ),
            (
                "get-vanilla-query-order-key-case",
                signature("GET", "/?Param2=value2&Param1=value1", None, "", None),
                "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500",
            ),
            (
                "post-vanilla",
                signature("POST", "/", None, "", None),
                "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b",
            ),
            (
                "post-x-www-form-urlencoded",
                signature("POST", "/", form, "Param1=value1", None),
                "ff11897932ad3f4e8b18135d722051e5ac45fc38421b1da7b9d196a0fe09473a",
            ),
        ] {
            assert_eq!(found, expected, "{name}");
        }
    }

    #[test]
    fn a_sessions_token_is_signed_too() {
        assert_ne!(
            signature("GET", "/", None, "", Some("t")),
            signature("GET", "/", None, "", None)
        );
    }
}
