//! ConfigMaps, Secrets and ServiceAccounts.

use super::*;

#[test]
fn config_maps() {
    let good = json!({"data": {"a.b": "x"}, "binaryData": {"c": "AA=="}});
    assert_eq!(
        Value::from(cells(
            "configmaps",
            &create("configmaps", good.clone()).unwrap()
        )),
        json!(["a", 2, "10m"])
    );
    refuses(
        "configmaps",
        &good,
        &[
            ("data", json!({"a b": ""}), "data[a b]", INVALID),
            ("data", json!({"c": ""}), "data[c]", INVALID),
            (
                "binaryData",
                json!({"..": "AA=="}),
                "binaryData[..]",
                INVALID,
            ),
            (
                "data",
                json!({"a": "x".repeat(1 << 20)}),
                "[]",
                "FieldValueTooLong",
            ),
        ],
    );
}

#[test]
fn immutable_ones_stay_so() {
    let old = create("configmaps", json!({"data": {"a": "x"}, "immutable": true})).unwrap();
    update(
        "configmaps",
        with(&old, &[("metadata.labels", json!({"a": "b"}))]),
        &old,
    )
    .unwrap();
    for (path, value, field) in [
        ("data", json!({"a": "y"}), "data"),
        ("immutable", Value::Null, "immutable"),
    ] {
        let found = update("configmaps", with(&old, &[(path, value)]), &old);
        assert_eq!(found, Err(vec![(field.to_owned(), FORBIDDEN)]));
    }
    let old = create(
        "secrets",
        json!({"stringData": {"a": "x"}, "immutable": true}),
    )
    .unwrap();
    let found = update(
        "secrets",
        with(&old, &[("stringData", json!({"a": "y"}))]),
        &old,
    );
    assert_eq!(found, Err(vec![("data".to_owned(), FORBIDDEN)]));
}

#[test]
fn secrets() {
    let secret = create(
        "secrets",
        json!({"data": {"a": "AA==", "b": "AA=="}, "stringData": {"b": "hello"}}),
    )
    .unwrap();
    assert_eq!(secret["data"], json!({"a": "AA==", "b": "aGVsbG8="}));
    assert_eq!(
        (secret.get("stringData"), &secret["type"]),
        (None, &json!("Opaque"))
    );
    assert_eq!(
        Value::from(cells("secrets", &secret)),
        json!(["a", "Opaque", 2, "10m"])
    );
    let found = update(
        "secrets",
        with(&secret, &[("type", json!("other"))]),
        &secret,
    );
    assert_eq!(found, Err(vec![("type".to_owned(), INVALID)]));
}

#[test]
fn secrets_of_a_type() {
    for (kind, data, fields) in [
        (
            "kubernetes.io/tls",
            json!({"tls.crt": "a"}),
            vec![("data[tls.key]", REQUIRED)],
        ),
        (
            "kubernetes.io/tls",
            json!({"tls.crt": "a", "tls.key": ""}),
            vec![],
        ),
        (
            "kubernetes.io/basic-auth",
            json!({}),
            vec![("data[username]", REQUIRED), ("data[password]", REQUIRED)],
        ),
        ("kubernetes.io/basic-auth", json!({"username": ""}), vec![]),
        (
            "kubernetes.io/ssh-auth",
            json!({"ssh-privatekey": ""}),
            vec![("data[ssh-privatekey]", REQUIRED)],
        ),
        (
            "kubernetes.io/dockercfg",
            json!({}),
            vec![("data[.dockercfg]", REQUIRED)],
        ),
        (
            "kubernetes.io/dockerconfigjson",
            json!({".dockerconfigjson": "{"}),
            vec![("data[.dockerconfigjson]", INVALID)],
        ),
        (
            "kubernetes.io/dockerconfigjson",
            json!({".dockerconfigjson": "{}"}),
            vec![],
        ),
        (
            "kubernetes.io/service-account-token",
            json!({}),
            vec![(
                "metadata.annotations[kubernetes.io/service-account.name]",
                REQUIRED,
            )],
        ),
        ("example.com/any", json!({}), vec![]),
    ] {
        let found = create("secrets", json!({"type": kind, "stringData": data}))
            .err()
            .unwrap_or_default();
        let wanted: Vec<Cause> = fields
            .into_iter()
            .map(|(field, reason)| (field.to_owned(), reason))
            .collect();
        assert_eq!(found, wanted, "{kind} {data}");
    }
}

#[test]
fn service_accounts() {
    let account = create(
        "serviceaccounts",
        json!({"secrets": [{"name": "s", "namespace": "other"}]}),
    )
    .unwrap();
    assert_eq!(account["secrets"], json!([{"name": "s"}]));
    assert_eq!(cells("serviceaccounts", &account), ["a", "10m"]);
}
