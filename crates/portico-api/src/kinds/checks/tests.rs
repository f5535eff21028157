use super::*;
use serde_json::json;

#[test]
fn networks() {
    for good in [
        "10.0.0.0/8",
        "0.0.0.0/0",
        "::/0",
        "2001:db8::/64",
        "10.1.2.3/32",
        "fd00::1/128",
    ] {
        assert!(cidr(good).is_ok(), "{good}");
    }
    for bad in [
        "10.0.0.0",
        "10.0.0.1/8",
        "10.0.0.0/33",
        "10.0.0.0/08",
        "::ffff:10.0.0.0/104",
        "x/8",
        "1.2.3.4/-1",
    ] {
        assert!(cidr(bad).is_err(), "{bad}");
    }
}

#[test]
fn serving_addresses() {
    let path = Path::new("ip");
    for good in ["10.0.0.1", "2001:db8::1", "224.1.0.1", "fd00::1"] {
        assert!(endpoint_address(good, &path).is_empty(), "{good}");
    }
    for bad in [
        "0.0.0.0",
        "::",
        "127.1.1.1",
        "::1",
        "169.254.1.1",
        "fe80::1",
        "224.0.0.5",
        "ff02::1",
        "x",
        "01.2.3.4",
    ] {
        assert_eq!(endpoint_address(bad, &path).len(), 1, "{bad}");
    }
}

#[test]
fn quantities() {
    assert_eq!(quantity(&json!("300m")), quantity(&json!("0.3")));
    assert_eq!(quantity(&json!("1Ki")), quantity(&json!(1024)));
    assert_eq!(quantity(&json!("1e3")), quantity(&json!("1k")));
    assert_eq!(quantity(&json!("x")), None);
}

#[test]
fn singular_and_plural() {
    for (given, wanted) in [
        (json!({"a": 1}), json!({"a": 1, "as": [1]})),
        (json!({"as": [1, 2]}), json!({"a": 1, "as": [1, 2]})),
        (json!({"a": 3, "as": [1, 2]}), json!({"a": 3, "as": [3]})),
        (json!({"a": 1, "as": [1, 2]}), json!({"a": 1, "as": [1, 2]})),
        (json!({}), json!({})),
    ] {
        let mut object = given;
        in_step(object::map(&mut object), "a", "as", None);
        assert_eq!(object, wanted);
    }
}

#[test]
fn keys_of_data() {
    for good in ["a", "A_b-c.d", "..."].iter().take(2) {
        assert!(data_key(good).is_empty(), "{good}");
    }
    for bad in ["", ".", "..", "..a", "a b", &"x".repeat(254)] {
        assert!(!data_key(bad).is_empty(), "{bad}");
    }
}
