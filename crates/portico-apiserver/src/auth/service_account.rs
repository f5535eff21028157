//! Service-account tokens: JWTs signed with the server's own ECDSA P-256 key (ES256).
//!
//! A token is good while its signature, issuer, audience and times are, and while the
//! ServiceAccount it names (and the object it is bound to) still exists with the same uid.

mod request;
#[cfg(test)]
mod tests;

use super::join;
use super::user::{self, CREDENTIAL_ID, User};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::Timestamp;
use portico_api::object;
use ring::rand::{SecureRandom, SystemRandom};
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair,
    UnparsedPublicKey,
};
use serde_json::{Value, json};
use std::fmt;
use std::sync::Arc;

/// Clocks may differ by this many seconds.
const LEEWAY: i64 = 60;

/// Where the objects that tokens speak of are found.
pub(crate) trait Objects: Send + Sync {
    /// The `ServiceAccount`, `Pod`, `Secret` or `Node` of that name; `namespace` is "" for a Node.
    fn get(&self, kind: &str, namespace: &str, name: &str) -> Option<Arc<Value>>;
}

/// Signs and checks tokens.
pub(crate) struct Tokens {
    key: EcdsaKeyPair,
    key_id: String,
    issuer: String,
    /// Audiences that mean this server; also what a token is for when its request names none.
    audiences: Vec<String>,
    random: SystemRandom,
}

impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tokens")
            .field("issuer", &self.issuer)
            .field("key_id", &self.key_id)
            .finish_non_exhaustive()
    }
}

/// Why a token does not authenticate. Holds no part of the token.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Error {
    #[error("not a token of this server")]
    NotOurs,
    #[error("invalid signature")]
    Signature,
    #[error("service account token claims could not be validated")]
    Claims,
    #[error("token audiences {found:?} is invalid for the target audiences {wanted:?}")]
    Audience {
        found: Vec<String>,
        wanted: Vec<String>,
    },
    #[error("service account token has expired")]
    Expired,
    #[error("service account token is not valid yet")]
    NotYet,
    #[error("service account token has been invalidated")]
    Gone,
}

/// The signing key cannot be used.
#[derive(Debug, thiserror::Error)]
#[error(
    "the service-account key (sa.key) cannot be used: it must be an ECDSA P-256 key in PKCS#8 PEM"
)]
pub(crate) struct BadKey;

/// The ServiceAccount that a token is for, and the object it is bound to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grant<'a> {
    pub namespace: &'a str,
    pub name: &'a str,
    pub uid: &'a str,
    pub audiences: &'a [String],
    pub seconds: i64,
    /// Kind, name and uid of a Pod, Secret or Node.
    pub bound: Option<(&'a str, &'a str, &'a str)>,
}

/// A token that was checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Authenticated {
    pub user: User,
    /// Those of the wanted audiences the token is for.
    pub audiences: Vec<String>,
}

impl Tokens {
    /// `key` is PKCS#8 PEM. The issuer is a URL such as
    /// `https://kubernetes.default.svc.cluster.local`.
    pub(crate) fn new(key: &str, issuer: &str, audiences: &[String]) -> Result<Self, BadKey> {
        use rustls::pki_types::{PrivatePkcs8KeyDer, pem::PemObject};
        let random = SystemRandom::new();
        let der = PrivatePkcs8KeyDer::from_pem_slice(key.as_bytes()).map_err(|_| BadKey)?;
        let key = EcdsaKeyPair::from_pkcs8(
            &ECDSA_P256_SHA256_FIXED_SIGNING,
            der.secret_pkcs8_der(),
            &random,
        )
        .map_err(|_| BadKey)?;
        let public_key_der = subject_public_key_info(key.public_key().as_ref());
        let key_id = encode(ring::digest::digest(&ring::digest::SHA256, &public_key_der).as_ref());
        let audiences = if audiences.is_empty() {
            vec![issuer.to_owned()]
        } else {
            audiences.to_vec()
        };
        Ok(Self {
            key,
            key_id,
            issuer: issuer.to_owned(),
            audiences,
            random,
        })
    }

    /// Sign a token.
    pub(crate) fn mint(
        &self,
        grant: &Grant<'_>,
        now: Timestamp,
    ) -> Result<String, ring::error::Unspecified> {
        let now = now.as_second();
        let mut kubernetes = json!({
            "namespace": grant.namespace,
            "serviceaccount": {"name": grant.name, "uid": grant.uid},
        });
        if let Some((kind, name, uid)) = grant.bound {
            kubernetes[kind.to_lowercase()] = json!({"name": name, "uid": uid});
        }
        let claims = json!({
            "aud": grant.audiences,
            "exp": now + grant.seconds,
            "iat": now,
            "iss": self.issuer,
            "jti": self.unique_id()?,
            "kubernetes.io": kubernetes,
            "nbf": now,
            "sub": user::service_account_name(grant.namespace, grant.name),
        });
        let header = json!({"alg": "ES256", "kid": self.key_id, "typ": "JWT"});
        let signed = format!(
            "{}.{}",
            encode(header.to_string().as_bytes()),
            encode(claims.to_string().as_bytes())
        );
        let signature = self.key.sign(&self.random, signed.as_bytes())?;
        Ok(format!("{signed}.{}", encode(signature.as_ref())))
    }

    /// Check a token for the given audiences, or for this server if there are none.
    pub(crate) fn authenticate(
        &self,
        token: &str,
        wanted: &[String],
        objects: &dyn Objects,
        now: Timestamp,
    ) -> Result<Authenticated, Error> {
        let claims = self.verified_claims(token)?;
        let audiences = self.common_audiences(&claims, wanted)?;
        check_times(&claims, now.as_second())?;
        Ok(Authenticated {
            user: user_of(&claims, objects, now)?,
            audiences,
        })
    }

    /// Does the token say, unverified, that this server issued it?
    pub(crate) fn claims_to_be_ours(&self, token: &str) -> bool {
        let payload = token.split('.').nth(1).and_then(decode);
        payload.is_some_and(|payload| object::text(&payload, "iss") == self.issuer)
    }

    /// The public key as a JSON Web Key Set, for `/openid/v1/jwks`.
    pub(crate) fn key_set(&self) -> Value {
        // An uncompressed point: one byte of format, then both coordinates.
        let point = self.key.public_key().as_ref();
        let (x, y) = point
            .get(1..)
            .unwrap_or_default()
            .split_at_checked(32)
            .unwrap_or_default();
        json!({"keys": [{
            "use": "sig", "kty": "EC", "crv": "P-256", "alg": "ES256",
            "kid": self.key_id, "x": encode(x), "y": encode(y),
        }]})
    }

    /// The answer of `/.well-known/openid-configuration`.
    pub(crate) fn discovery(&self, key_set_url: &str) -> Value {
        json!({
            "issuer": self.issuer,
            "jwks_uri": key_set_url,
            "response_types_supported": ["id_token"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": ["ES256"],
        })
    }

    fn verified_claims(&self, token: &str) -> Result<Value, Error> {
        let (signed, signature) = token.rsplit_once('.').ok_or(Error::NotOurs)?;
        let (header, payload) = signed.split_once('.').ok_or(Error::NotOurs)?;
        let (header, claims) = decode(header).zip(decode(payload)).ok_or(Error::NotOurs)?;
        if object::text(&claims, "iss") != self.issuer {
            return Err(Error::NotOurs);
        }
        // Only the algorithm of the key: a token may not choose how it is checked.
        let (algorithm, key_id) = (object::text(&header, "alg"), object::text(&header, "kid"));
        if algorithm != "ES256"
            || !(key_id.is_empty() || key_id == self.key_id)
            || header.get("crit").is_some()
        {
            return Err(Error::Signature);
        }
        let signature = URL_SAFE_NO_PAD
            .decode(signature)
            .map_err(|_| Error::Signature)?;
        UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, self.key.public_key().as_ref())
            .verify(signed.as_bytes(), &signature)
            .map_err(|_| Error::Signature)?;
        Ok(claims)
    }

    fn common_audiences(&self, claims: &Value, wanted: &[String]) -> Result<Vec<String>, Error> {
        let found = match object::at(claims, "aud") {
            Value::String(one) => vec![one.clone()],
            list => user::texts(list),
        };
        let wanted = if wanted.is_empty() {
            &self.audiences
        } else {
            wanted
        };
        let common: Vec<String> = found
            .iter()
            .filter(|audience| wanted.contains(audience))
            .cloned()
            .collect();
        if common.is_empty() {
            Err(Error::Audience {
                found,
                wanted: wanted.to_vec(),
            })
        } else {
            Ok(common)
        }
    }

    /// A random UUID.
    fn unique_id(&self) -> Result<String, ring::error::Unspecified> {
        let mut bytes = [0u8; 16];
        self.random.fill(&mut bytes)?;
        let bits =
            (u128::from_be_bytes(bytes) & !(0xf << 76) & !(0x3 << 62)) | 0x4 << 76 | 0x2 << 62;
        let hex = format!("{bits:032x}");
        let ends = [0..8, 8..12, 12..16, 16..20, 20..32];
        Ok(ends
            .into_iter()
            .filter_map(|range| hex.get(range))
            .collect::<Vec<_>>()
            .join("-"))
    }
}

fn check_times(claims: &Value, now: i64) -> Result<(), Error> {
    let seconds = |key| {
        object::at(claims, key)
            .as_f64()
            .map(|seconds| seconds as i64)
    };
    // A token that never ends is none of ours.
    let end = seconds("exp").ok_or(Error::Claims)?;
    let start = seconds("nbf")
        .into_iter()
        .chain(seconds("iat"))
        .max()
        .unwrap_or(0);
    if now > end.saturating_add(LEEWAY) {
        Err(Error::Expired)
    } else if now < start.saturating_sub(LEEWAY) {
        Err(Error::NotYet)
    } else {
        Ok(())
    }
}

fn user_of(claims: &Value, objects: &dyn Objects, now: Timestamp) -> Result<User, Error> {
    // The claim's name has a dot in it, so it is no path.
    let kubernetes = claims.get("kubernetes.io").ok_or(Error::Claims)?;
    let namespace = object::text(kubernetes, "namespace");
    let account = object::at(kubernetes, "serviceaccount");
    let (name, uid) = (object::text(account, "name"), object::text(account, "uid"));
    let subject = object::text(claims, "sub");
    if user::split_service_account(subject) != Some((namespace, name)) || uid.is_empty() {
        return Err(Error::Claims);
    }
    still_there(objects, "ServiceAccount", namespace, account, now)?;
    let mut user = User {
        uid: uid.to_owned(),
        ..User::service_account(namespace, name)
    };
    let id = object::text(claims, "jti");
    if !id.is_empty() {
        user.extra
            .insert(CREDENTIAL_ID.to_owned(), vec![format!("JTI={id}")]);
    }
    let node = kubernetes
        .get("node")
        .filter(|_| kubernetes.get("pod").is_none());
    if let Some(node) =
        node.and_then(|node| join::node_of(namespace, name, object::text(node, "name")))
    {
        (user.name, user.groups) = (node.name, node.groups);
    }
    let bound = [
        ("secret", "Secret", namespace),
        ("pod", "Pod", namespace),
        ("node", "Node", ""),
    ];
    for (claim, kind, namespace) in bound {
        let Some(reference) = kubernetes.get(claim) else {
            continue;
        };
        // A pod's token tells the node the pod is on, for information.
        let informative = claim == "node" && kubernetes.get("pod").is_some();
        if !informative {
            still_there(objects, kind, namespace, reference, now)?;
        }
        if claim != "secret" {
            for part in ["name", "uid"] {
                let key = format!("authentication.kubernetes.io/{claim}-{part}");
                user.extra
                    .insert(key, vec![object::text(reference, part).to_owned()]);
            }
        }
    }
    Ok(user)
}

/// Does the object a token refers to exist with the same uid, and is not long gone but for its
/// finalizers?
fn still_there(
    objects: &dyn Objects,
    kind: &str,
    namespace: &str,
    reference: &Value,
    now: Timestamp,
) -> Result<(), Error> {
    let found = objects
        .get(kind, namespace, object::text(reference, "name"))
        .ok_or(Error::Gone)?;
    let deleted = object::text(&found, "metadata.deletionTimestamp");
    let leaving = !deleted.is_empty()
        && deleted.parse::<Timestamp>().map_or(true, |deleted| {
            deleted.as_second() < now.as_second() - LEEWAY
        });
    let same = object::text(&found, "metadata.uid") == object::text(reference, "uid");
    if same && !leaving {
        Ok(())
    } else {
        Err(Error::Gone)
    }
}

/// The DER of a P-256 public key: a fixed header and the point.
fn subject_public_key_info(point: &[u8]) -> Vec<u8> {
    const HEADER: [u8; 26] = [
        0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08,
        0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
    ];
    [HEADER.as_slice(), point].concat()
}

fn encode(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

fn decode(part: &str) -> Option<Value> {
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).ok()?).ok()
}
