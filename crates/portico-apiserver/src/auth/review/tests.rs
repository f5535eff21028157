use super::*;
use crate::auth::bootstrap;
use crate::auth::service_account::Objects;
use crate::auth::token_file::TokenFile;
use std::sync::Arc;

fn rbac() -> Rbac {
    let mut rbac = Rbac::default();
    bootstrap::objects()
        .iter()
        .for_each(|object| rbac.apply(object));
    rbac
}

fn asking(verb: &str, resource: &str) -> Value {
    json!({"spec": {"resourceAttributes": {"verb": verb, "resource": resource, "namespace": "shop"}}})
}

#[test]
fn may_i() {
    let viewer = User::new("vic", &[bootstrap::VIEWERS]);
    let yes = self_subject_access(&rbac(), &viewer, &asking("list", "services")).unwrap();
    assert_eq!(yes["status"]["allowed"], true);
    assert_eq!(
        yes["status"]["reason"],
        "RBAC: allowed by ClusterRoleBinding \"portico:viewer\" of ClusterRole \"portico:viewer\" \
         to Group \"portico:viewers\""
    );
    let no = self_subject_access(&rbac(), &viewer, &asking("create", "services")).unwrap();
    assert_eq!(no["status"], json!({"allowed": false}));
    let path = json!({"spec": {"nonResourceAttributes": {"verb": "get", "path": "/metrics"}}});
    assert_eq!(
        self_subject_access(&rbac(), &viewer, &path).unwrap()["status"]["allowed"],
        true
    );
}

#[test]
fn may_that_user() {
    let mut body = asking("get", "services");
    body["spec"]["groups"] = json!([bootstrap::VIEWERS]);
    assert_eq!(
        subject_access(&rbac(), &body).unwrap()["status"]["allowed"],
        true
    );
    body["spec"]["groups"] = json!(["others"]);
    assert_eq!(
        subject_access(&rbac(), &body).unwrap()["status"]["allowed"],
        false
    );
    assert_eq!(
        local_subject_access(&rbac(), "shop", &body).unwrap()["status"]["allowed"],
        false
    );
    assert_eq!(
        local_subject_access(&rbac(), "bank", &body)
            .unwrap_err()
            .code,
        422
    );
}

#[test]
fn questions_that_make_no_sense() {
    let user = User::new("vic", &[]);
    let both = json!({"spec": {"resourceAttributes": {}, "nonResourceAttributes": {}}});
    let named = json!({"metadata": {"name": "x"}, "spec": {"resourceAttributes": {}}});
    for body in [json!({}), both, named] {
        assert_eq!(
            self_subject_access(&rbac(), &user, &body).unwrap_err().code,
            422,
            "{body}"
        );
    }
    assert_eq!(
        subject_access(&rbac(), &asking("get", "services"))
            .unwrap_err()
            .code,
        422
    );
    assert_eq!(
        self_subject_rules(&rbac(), &user, &json!({"spec": {}}))
            .unwrap_err()
            .code,
        400
    );
}

#[test]
fn my_rules() {
    let body = json!({"spec": {"namespace": "shop"}});
    let plain = User::new("pat", &[]).authenticated();
    let answer = self_subject_rules(&rbac(), &plain, &body).unwrap();
    let rules = answer["status"]["resourceRules"].as_array().unwrap();
    assert!(rules.contains(
        &json!({"verbs": ["create"], "apiGroups": ["authentication.k8s.io"], "resources": ["selfsubjectreviews"]})
    ));
    assert!(
        !answer["status"]["nonResourceRules"]
            .as_array()
            .unwrap()
            .is_empty()
    );
    let root = self_subject_rules(&rbac(), &User::new("root", &["system:masters"]), &body).unwrap();
    assert_eq!(
        root["status"]["resourceRules"][0],
        json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]})
    );
}

struct Nothing;

impl Objects for Nothing {
    fn get(&self, _: &str, _: &str, _: &str) -> Option<Arc<Value>> {
        None
    }
}

#[test]
fn whose_token() {
    let authenticator = Authenticator {
        token_file: Some(TokenFile::parse("s3cret,ann,1,dev\n").unwrap()),
        tokens: None,
        audiences: vec!["https://me".to_owned()],
        objects: Arc::new(Nothing),
        own: None,
        anonymous: true,
    };
    let now = Timestamp::UNIX_EPOCH;
    let ask = |spec: Value| token(&authenticator, &json!({"spec": spec}), now);
    let good = ask(json!({"token": "s3cret"})).unwrap();
    assert_eq!(
        good["status"],
        json!({"authenticated": true, "audiences": ["https://me"],
            "user": {"username": "ann", "uid": "1", "groups": ["dev", "system:authenticated"]}})
    );
    for spec in [
        json!({"token": "wrong"}),
        json!({"token": "s3cret", "audiences": ["vault"]}),
    ] {
        let bad = ask(spec.clone()).unwrap();
        assert_eq!(bad["status"].get("authenticated"), None, "{spec}");
        assert!(!bad["status"]["error"].as_str().unwrap().contains("s3cret"));
    }
    assert_eq!(ask(json!({})).unwrap_err().code, 400);
    assert_eq!(
        self_subject(&User::new("ann", &[]), &json!({}), now)["status"]["userInfo"]["username"],
        "ann"
    );
}
