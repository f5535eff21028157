use super::*;
use crate::kinds::all;
use serde_json::json;

fn kind(plural: &str) -> Box<dyn Kind> {
    all()
        .into_iter()
        .find(|kind| kind.info().plural == plural)
        .unwrap()
}

#[test]
fn matching() {
    let pod = json!({"metadata": {"name": "a", "namespace": "n"}, "spec": {"nodeName": "x"}, "status": {"phase": "Running"}});
    let node = json!({"metadata": {"name": "a"}, "spec": {"unschedulable": true}});
    for (plural, object, selector, wanted) in [
        ("pods", &pod, "", true),
        ("pods", &pod, ",", true),
        ("pods", &pod, "metadata.name=a", true),
        ("pods", &pod, "metadata.name==a,metadata.namespace=n", true),
        ("pods", &pod, "metadata.name=a,metadata.namespace!=n", false),
        ("pods", &pod, "spec.nodeName=x", true),
        ("pods", &pod, "spec.host=x", true),
        ("pods", &pod, "spec.hostNetwork=false", true),
        ("pods", &pod, "status.phase!=Running", false),
        ("nodes", &node, "spec.unschedulable=true", true),
        ("endpoints", &pod, "metadata.name!=a", false),
        ("clusterroles", &node, "metadata.namespace=", true),
    ] {
        let kind = kind(plural);
        let parsed = FieldSelector::parse(&*kind, selector).unwrap();
        assert_eq!(parsed.matches(&*kind, object), wanted, "{selector}");
        let ruled_out = parsed.rules_out(&*kind, object.to_string().as_bytes());
        assert!(!(wanted && ruled_out), "{selector}");
    }
}

#[test]
fn what_need_not_be_read_to_be_ruled_out() {
    for (selector, stored, wanted) in [
        ("spec.nodeName=n1", r#"{"spec":{"nodeName":"n2"}}"#, true),
        ("spec.nodeName=n1", r#"{"spec":{"nodeName":"n1"}}"#, false),
        ("spec.nodeName=n1,status.phase=x", r#"{"spec":{}}"#, true),
        // It may be elsewhere in the object: that is for reading to find out.
        ("spec.nodeName=n1", r#"{"spec":{"nodeName":"n10"}}"#, false),
        ("spec.nodeName=", r#"{"spec":{}}"#, false),
        ("spec.nodeName!=n1", r#"{"spec":{"nodeName":"n1"}}"#, false),
        // Made up from what is not stored, or stored in other words.
        ("spec.hostNetwork=false", r#"{"spec":{}}"#, false),
        ("spec.host=n1", r#"{"spec":{}}"#, false),
    ] {
        let kind = kind("pods");
        let parsed = FieldSelector::parse(&*kind, selector).unwrap();
        assert_eq!(
            parsed.rules_out(&*kind, stored.as_bytes()),
            wanted,
            "{selector} {stored}"
        );
    }
}

#[test]
fn errors() {
    for (plural, selector, message) in [
        ("pods", "spec.x=a", "field label not supported: spec.x"),
        (
            "nodes",
            "metadata.namespace=a",
            "field label not supported: metadata.namespace",
        ),
        (
            "endpoints",
            "x=a",
            "\"x\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\"",
        ),
        ("pods", "a", "invalid selector: 'a'; can't understand 'a'"),
        (
            "pods",
            "metadata.name=a=b",
            "invalid field selector: unescaped character in value: =",
        ),
        (
            "pods",
            "metadata.name=\\a",
            "invalid field selector: invalid escape sequence: \\a",
        ),
    ] {
        let error = FieldSelector::parse(&*kind(plural), selector).unwrap_err();
        assert_eq!(
            (error.code, error.message.as_str()),
            (400, message),
            "{selector}"
        );
    }
}

#[test]
fn escapes() {
    let parsed = FieldSelector::parse(&*kind("pods"), "metadata.name=a\\,b\\=c\\\\").unwrap();
    assert_eq!(parsed.exact("metadata.name"), Some("a,b=c\\"));
    assert_eq!(parsed.exact("metadata.namespace"), None);
}

#[test]
fn the_name_that_is_left() {
    for (text, name) in [
        ("metadata.name=a", Some("a")),
        ("type=x,metadata.name==a.b", Some("a.b")),
        ("metadata.name!=a", None),
        ("metadata.name=", None),
        ("metadata.name=..", None),
        ("metadata.name=a/b", None),
        ("metadata.name=a%2fb", None),
        ("metadata.names=a", None),
        ("metadata.namespace=a", None),
        ("", None),
    ] {
        assert_eq!(only_name(text).as_deref(), name, "{text}");
    }
}

#[test]
fn terms_of_one_field_hold_together() {
    let pod = json!({"metadata": {"name": "b", "namespace": "n"}});
    for (selector, wanted) in [
        ("metadata.name!=a,metadata.name!=c", true),
        ("metadata.name!=a,metadata.name!=b", false),
        ("metadata.name=b,metadata.name!=a", true),
        ("metadata.name=a,metadata.name=b", false),
    ] {
        let kind = kind("pods");
        let parsed = FieldSelector::parse(&*kind, selector).unwrap();
        assert_eq!(parsed.matches(&*kind, &pod), wanted, "{selector}");
    }
    let many = vec!["metadata.name!=a"; crate::selector::MOST_TERMS + 1].join(",");
    let error = FieldSelector::parse(&*kind("pods"), &many).unwrap_err();
    assert!(error.code == 400 && error.message.starts_with("fieldSelector: has 10001 terms"));
}
