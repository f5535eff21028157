use super::*;
use serde_json::json;

fn matches(selector: &str, labels: Value) -> bool {
    LabelSelector::parse(selector)
        .unwrap()
        .matches(&json!({"metadata": {"labels": labels}}))
}

#[test]
fn matching() {
    for (selector, labels, wanted) in [
        ("", json!({}), true),
        (" ", json!({}), true),
        ("a=b", json!({"a": "b"}), true),
        ("a==b", json!({"a": "b"}), true),
        ("a=b", json!({"a": "c"}), false),
        ("a=b", json!({}), false),
        ("a=", json!({"a": ""}), true),
        ("a=,b", json!({"a": "", "b": "x"}), true),
        ("a!=b", json!({"a": "b"}), false),
        ("a!=b", json!({}), true),
        ("a in (b, c)", json!({"a": "c"}), true),
        ("a in (b,c)", json!({}), false),
        ("a in ()", json!({"a": ""}), true),
        ("a in (,b)", json!({"a": ""}), true),
        ("a notin (b,c)", json!({"a": "c"}), false),
        ("a notin (b)", json!({}), true),
        ("a", json!({"a": "x"}), true),
        ("!a", json!({"a": "x"}), false),
        ("! a", json!({}), true),
        ("n>3", json!({"n": "7"}), true),
        ("n>3", json!({"n": "x"}), false),
        ("n<3", json!({"n": "2"}), true),
        ("n<3", json!({}), false),
        ("in in (in)", json!({"in": "in"}), true),
        ("a=notin", json!({"a": "notin"}), true),
        (
            "example.com/a in (x),b!=y, !c",
            json!({"example.com/a": "x"}),
            true,
        ),
    ] {
        assert_eq!(
            matches(selector, labels.clone()),
            wanted,
            "{selector} on {labels}"
        );
    }
    assert!(!LabelSelector::parse("a").unwrap().matches(&json!({})));
}

#[test]
fn errors() {
    for (selector, message) in [
        (
            "a===b",
            "unable to parse requirement: found '=', expected: identifier",
        ),
        (
            ",",
            "found ',', expected: !, identifier, or 'end of string'",
        ),
        ("a,", "found '', expected: identifier after ','"),
        (
            "!",
            "unable to parse requirement: found '', expected: identifier",
        ),
        (
            "a b",
            "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt",
        ),
        ("!a=b", "found '=', expected: ',' or 'end of string'"),
        (
            "a in b",
            "unable to parse requirement: found 'b' expected: '('",
        ),
        (
            "a in (",
            "unable to parse requirement: found '', expected: ',', ')' or identifier",
        ),
        (
            "a in (b",
            "unable to parse requirement: found '', expected: ',' or ')'",
        ),
        (
            "a in (b c)",
            "unable to parse requirement: found 'c', expected: ',' or ')'",
        ),
        (
            "a in (=)",
            "unable to parse requirement: found '=', expected: ',', ')' or identifier",
        ),
        ("a=b=c", "found '=', expected: ',' or 'end of string'"),
        (
            "a>b",
            "unable to parse requirement: values[0]: Invalid value: \"b\": for 'Gt', 'Lt' \
             operators, the value must be an integer",
        ),
    ] {
        let error = LabelSelector::parse(selector).unwrap_err();
        assert_eq!(
            (error.code, error.message.as_str()),
            (400, message),
            "{selector}"
        );
    }
    for selector in ["-a", "a/b/c", "a=-", "a in (b,-)", "é", "a\0b", "a=ü"] {
        assert_eq!(
            LabelSelector::parse(selector).unwrap_err().code,
            400,
            "{selector}"
        );
    }
}

#[test]
fn printing() {
    for (selector, text) in [
        ("b, a==x", "a=x,b"),
        ("a notin (y,x),!b", "a notin (x,y),!b"),
        ("n > 1", "n>1"),
    ] {
        assert_eq!(LabelSelector::parse(selector).unwrap().to_string(), text);
    }
}

#[test]
fn object_form() {
    let labels = json!({"a": "x", "b": "y"});
    for (selector, wanted) in [
        (Some(json!({})), true),
        (None, false),
        (Some(json!({"matchLabels": {"a": "x"}})), true),
        (Some(json!({"matchLabels": {"a": "y"}})), false),
        (
            Some(
                json!({"matchExpressions": [{"key": "b", "operator": "In", "values": ["y", "z"]}]}),
            ),
            true,
        ),
        (
            Some(json!({"matchExpressions": [{"key": "b", "operator": "DoesNotExist"}]})),
            false,
        ),
    ] {
        let parsed = LabelSelector::from_object(selector.as_ref()).unwrap();
        assert_eq!(parsed.matches_labels(&labels), wanted, "{selector:?}");
    }
    for bad in [
        json!({"matchExpressions": [{"key": "b", "operator": "Is"}]}),
        json!({"matchLabels": {"-": "x"}}),
    ] {
        assert!(LabelSelector::from_object(Some(&bad)).is_err(), "{bad}");
    }
}

#[test]
fn requirements_of_one_key_hold_together() {
    for (selector, labels, wanted) in [
        ("a in (x,y),a in (y,z)", json!({"a": "y"}), true),
        ("a in (x,y),a in (y,z)", json!({"a": "x"}), false),
        ("a=x,a=y", json!({"a": "x"}), false),
        ("a!=x,a!=y", json!({"a": "y"}), false),
        ("a!=x,a!=y", json!({"a": "z"}), true),
        ("a!=x,a!=y", json!({}), true),
        ("a,a!=x", json!({}), false),
        ("a,a!=x", json!({"a": "y"}), true),
        ("a,!a", json!({"a": "y"}), false),
        ("a,!a", json!({}), false),
        ("n>3,n>5,n<9,n<7", json!({"n": "6"}), true),
        ("n>3,n>5,n<9,n<7", json!({"n": "4"}), false),
        ("n>3,n>5,n<9,n<7", json!({"n": "8"}), false),
        ("n>3,n>5,n<9,n<7", json!({}), false),
        ("a=x,b=y", json!({"a": "x", "c": "y"}), false),
        ("a=x,b=y", json!({"a": "x", "b": "y", "c": "z"}), true),
    ] {
        assert_eq!(
            matches(selector, labels.clone()),
            wanted,
            "{selector} on {labels}"
        );
    }
}

#[test]
fn terms_have_a_bound() {
    let keys = |count: usize| -> String {
        let keys: Vec<String> = (0..count).map(|n| format!("k{n}")).collect();
        keys.join(",")
    };
    let most = crate::selector::MOST_TERMS;
    assert!(LabelSelector::parse(&keys(most)).is_ok());
    let many = LabelSelector::parse(&keys(most + 1)).unwrap_err();
    assert_eq!(many.code, 400);
    assert!(many.message.starts_with("labelSelector: has 10001 terms"));
    let set = format!("a in ({})", keys(most + 1));
    assert_eq!(LabelSelector::parse(&set).unwrap_err().code, 400);
}
