//! Acting as another user: the `Impersonate-*` headers, each of which must be allowed by the verb
//! `impersonate`.

use super::rbac::{Rbac, Request};
use super::user::{self, ANONYMOUS, UNAUTHENTICATED, User};
use portico_api::status::{ApiError, Result};

const USER: &str = "impersonate-user";
const GROUP: &str = "impersonate-group";
const UID: &str = "impersonate-uid";
const EXTRA: &str = "impersonate-extra-";
const PREFIX: &str = "impersonate-";
const AUTHENTICATION: &str = "authentication.k8s.io";

/// The user that `requestor` acts as; `None` without such headers. `headers` are all headers of the
/// request, names in lower case; those that begin with `impersonate-` must not reach anything
/// behind this.
///
/// A client sends such a header to have other rights than its own, mostly fewer. One that cannot be
/// used is therefore refused, where kube-apiserver ignores some of them (an empty user, a name that
/// is not known, a second user) and goes on with all rights of the caller.
pub(crate) fn impersonated<'a>(
    rbac: &Rbac,
    requestor: &User,
    headers: impl Iterator<Item = (&'a str, &'a [u8])>,
) -> Result<Option<User>> {
    let Some(wanted) = wanted(headers)? else {
        return Ok(None);
    };
    let check = |request: Request<'_>| {
        let action = Request {
            verb: "impersonate",
            ..request
        }
        .into();
        let decision = rbac.decide(requestor, &action);
        if decision.allowed {
            Ok(())
        } else {
            Err(action.forbidden(requestor, &decision))
        }
    };
    match user::split_service_account(&wanted.name) {
        Some((namespace, name)) => {
            check(Request {
                resource: "serviceaccounts",
                namespace,
                name,
                ..Request::default()
            })?;
        }
        None => check(Request {
            resource: "users",
            name: &wanted.name,
            ..Request::default()
        })?,
    }
    for name in &wanted.groups {
        check(Request {
            resource: "groups",
            name,
            ..Request::default()
        })?;
    }
    for (key, values) in &wanted.extra {
        for name in values {
            let resource = "userextras";
            check(Request {
                group: AUTHENTICATION,
                resource,
                subresource: key,
                name,
                ..Request::default()
            })?;
        }
    }
    if !wanted.uid.is_empty() {
        check(Request {
            group: AUTHENTICATION,
            resource: "uids",
            name: &wanted.uid,
            ..Request::default()
        })?;
    }
    Ok(Some(with_default_groups(wanted)))
}

/// What the headers ask for.
fn wanted<'a>(headers: impl Iterator<Item = (&'a str, &'a [u8])>) -> Result<Option<User>> {
    let mut wanted = User::default();
    let mut any = false;
    for (name, value) in headers.filter(|(name, _)| name.starts_with(PREFIX)) {
        any = true;
        let value =
            std::str::from_utf8(value).map_err(|_| unusable(name, "must be text in UTF-8"))?;
        match name {
            USER => only(&mut wanted.name, name, value)?,
            UID => only(&mut wanted.uid, name, value)?,
            GROUP => wanted.groups.push(value.to_owned()),
            name => {
                let key = name
                    .strip_prefix(EXTRA)
                    .ok_or_else(|| unusable(name, "is not known"))?;
                let values = wanted.extra.entry(unescape(key)).or_default();
                values.push(value.to_owned());
            }
        }
    }
    match (wanted.name.is_empty(), any) {
        (true, true) => Err(ApiError::bad_request(
            "requested groups, uid or extra fields without impersonating a user",
        )),
        (true, false) => Ok(None),
        (false, _) => Ok(Some(wanted)),
    }
}

/// A header that has one value is refused if it is sent twice, since either could be meant.
fn only(slot: &mut String, name: &str, value: &str) -> Result<()> {
    if value.is_empty() {
        return Err(unusable(name, "must not be empty"));
    }
    if !slot.is_empty() {
        return Err(unusable(name, "may be sent only once"));
    }
    value.clone_into(slot);
    Ok(())
}

fn unusable(name: &str, why: &str) -> ApiError {
    ApiError::bad_request(format!("the header {name} {why}"))
}

/// Groups that were not asked for but come with the kind of user.
fn with_default_groups(mut user: User) -> User {
    if let (true, Some((namespace, name))) = (
        user.groups.is_empty(),
        user::split_service_account(&user.name),
    ) {
        user.groups = User::service_account(namespace, name).groups;
    }
    if user.name == ANONYMOUS && !user.is_in(UNAUTHENTICATED) {
        user.groups.push(UNAUTHENTICATED.to_owned());
    }
    user.authenticated()
}

/// Undo percent-encoding; a key that is not encoded well stays as it is.
fn unescape(key: &str) -> String {
    let decode = || {
        let mut bytes = Vec::with_capacity(key.len());
        let mut rest = key.as_bytes();
        while let Some((&byte, tail)) = rest.split_first() {
            rest = tail;
            if byte == b'%' {
                let (digits, tail) = rest.split_at_checked(2)?;
                let digits = std::str::from_utf8(digits)
                    .ok()
                    .filter(|d| d.bytes().all(|b| b.is_ascii_hexdigit()))?;
                bytes.push(u8::from_str_radix(digits, 16).ok()?);
                rest = tail;
            } else {
                bytes.push(byte);
            }
        }
        String::from_utf8(bytes).ok()
    };
    decode().unwrap_or_else(|| key.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn rbac() -> Rbac {
        let mut rbac = Rbac::default();
        rbac.apply(&json!({"kind": "ClusterRole", "metadata": {"name": "support"}, "rules": [
            {"verbs": ["impersonate"], "apiGroups": [""], "resources": ["users"], "resourceNames": ["ann"]},
            {"verbs": ["impersonate"], "apiGroups": [""], "resources": ["groups"], "resourceNames": ["dev"]},
            {"verbs": ["impersonate"], "apiGroups": [""], "resources": ["serviceaccounts"]},
            {"verbs": ["impersonate"], "apiGroups": [AUTHENTICATION], "resources": ["userextras/example.com/team"]},
        ]}));
        rbac.apply(&json!({"kind": "ClusterRoleBinding", "metadata": {"name": "support"},
            "roleRef": {"kind": "ClusterRole", "name": "support"}, "subjects": [{"kind": "User", "name": "sue"}]}));
        rbac
    }

    type Headers<'a> = &'a [(&'a str, &'a str)];

    fn act(headers: Headers<'_>) -> Result<Option<User>> {
        let headers = headers
            .iter()
            .map(|(name, value)| (*name, value.as_bytes()));
        impersonated(&rbac(), &User::new("sue", &[]), headers)
    }

    #[test]
    fn allowed() {
        let cases: &[(Headers, &str, &[&str])] = &[
            (&[(USER, "ann")], "ann", &["system:authenticated"]),
            (
                &[(USER, "ann"), (GROUP, "dev")],
                "ann",
                &["dev", "system:authenticated"],
            ),
            (
                &[(USER, "system:serviceaccount:shop:web")],
                "system:serviceaccount:shop:web",
                &[
                    "system:serviceaccounts",
                    "system:serviceaccounts:shop",
                    "system:authenticated",
                ],
            ),
        ];
        for (headers, name, groups) in cases {
            assert_eq!(
                act(headers).unwrap(),
                Some(User::new(name, groups)),
                "{headers:?}"
            );
        }
        assert_eq!(act(&[("accept", "*/*")]).unwrap(), None);
        let extra = act(&[
            (USER, "ann"),
            ("impersonate-extra-example.com%2Fteam", "blue"),
        ])
        .unwrap()
        .unwrap()
        .extra;
        assert_eq!(
            extra,
            [("example.com/team".to_owned(), vec!["blue".to_owned()])].into()
        );
    }

    #[test]
    fn refused() {
        let cases: &[(Headers, u16)] = &[
            (&[(USER, "bob")], 403),
            (&[(USER, "ann"), (GROUP, "system:masters")], 403),
            (&[(USER, "ann"), (GROUP, "dev"), (GROUP, "ops")], 403),
            (&[(USER, "ann"), (UID, "7")], 403),
            (&[(USER, "ann"), ("impersonate-extra-scope", "all")], 403),
            (&[(GROUP, "dev")], 400),
            (&[(UID, "7")], 400),
            (&[("impersonate-extra-scope", "all")], 400),
            (&[(USER, "")], 400),
            (&[(USER, ""), (USER, "ann")], 400),
            (&[(USER, "ann"), (USER, "ann")], 400),
            (&[(USER, "ann"), (UID, "")], 400),
            (&[(USER, "ann"), (UID, "7"), (UID, "8")], 400),
            (&[(USER, "ann"), ("impersonate-groups", "dev")], 400),
            (&[("impersonate-", "x")], 400),
            (&[(USER, "j\u{f6}rg")], 403),
        ];
        for (headers, code) in cases {
            assert_eq!(act(headers).unwrap_err().code, *code, "{headers:?}");
        }
        let bytes: [(&str, &[u8]); 1] = [(USER, b"\xff\xfe")];
        let error = impersonated(&rbac(), &User::new("sue", &[]), bytes.into_iter()).unwrap_err();
        assert_eq!(
            (error.code, error.message.as_str()),
            (400, "the header impersonate-user must be text in UTF-8")
        );
        let text = act(&[(USER, "bob")]).unwrap_err().message;
        assert_eq!(
            text,
            "users \"bob\" is forbidden: User \"sue\" cannot impersonate resource \"users\" in \
             API group \"\" at the cluster scope"
        );
    }
}
