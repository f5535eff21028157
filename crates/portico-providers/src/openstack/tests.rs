use super::*;

#[test]
fn all_three_ways_to_tell_a_mistake_are_read() {
    let read = |text: &str| (DIALECT.read)(text.as_bytes()).unwrap();
    let octavia = r#"{"faultcode": "Client", "faultstring": "is immutable", "debuginfo": null}"#;
    assert_eq!(read(octavia), (String::new(), "is immutable".to_owned()));
    let neutron =
        r#"{"NeutronError": {"type": "OverQuota", "message": "Quota exceeded", "detail": ""}}"#;
    assert_eq!(
        read(neutron),
        ("OverQuota".to_owned(), "Quota exceeded".to_owned())
    );
    let keystone = r#"{"error": {"code": 401, "message": "not you", "title": "Unauthorized"}}"#;
    assert_eq!(
        read(keystone),
        ("Unauthorized".to_owned(), "not you".to_owned())
    );
    assert_eq!((DIALECT.read)(b"<html>"), None);
}
