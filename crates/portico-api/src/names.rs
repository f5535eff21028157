//! What names, labels and addresses may look like. Each check returns what is wrong, in Kubernetes'
//! words, or nothing.

use std::net::IpAddr;

const LABEL_TEXT: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', \
         and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', \
         regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const SUBDOMAIN_TEXT: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' \
         or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex \
         used for validation is \
         '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const QUALIFIED_TEXT: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
         alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for \
         validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const LABEL_VALUE_TEXT: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or \
         '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or \
         'my_value',  or '12345', regex used for validation is \
         '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";

fn at_most(name: &str, most: usize) -> Option<String> {
    (name.len() > most).then(|| format!("must be no more than {most} bytes"))
}

fn problems<const N: usize>(all: [Option<String>; N]) -> Vec<String> {
    all.into_iter().flatten().collect()
}

/// Does `text` begin and end with an `edge` character and have only `edge` or `middle` characters
/// between?
fn framed(text: &str, edge: fn(u8) -> bool, middle: &[u8]) -> bool {
    let bytes = text.as_bytes();
    match (bytes.first(), bytes.last()) {
        (Some(&first), Some(&last)) => {
            edge(first) && edge(last) && bytes.iter().all(|b| edge(*b) || middle.contains(b))
        }
        _ => false,
    }
}

fn lower(b: u8) -> bool {
    b.is_ascii_lowercase() || b.is_ascii_digit()
}

fn alphanumeric(b: u8) -> bool {
    b.is_ascii_alphanumeric()
}

/// A prefix (`generateName`) may end in a dash, since characters follow it. As in Kubernetes the
/// character before the dash is not looked at either; if it is wrong the generated name shows it.
fn masked(name: &str, prefix: bool) -> std::borrow::Cow<'_, str> {
    match name.strip_suffix('-') {
        Some(rest) if prefix && !rest.is_empty() => {
            let mut masked: String = rest.to_owned();
            masked.pop();
            masked.push('a');
            masked.into()
        }
        _ => name.into(),
    }
}

/// RFC 1123 label: a Namespace, a Service name, a port name.
pub fn dns_label(name: &str, prefix: bool) -> Vec<String> {
    let name = masked(name, prefix);
    problems([
        at_most(&name, 63),
        (!framed(&name, lower, b"-")).then(|| LABEL_TEXT.to_owned()),
    ])
}

/// RFC 1123 subdomain: the name of most objects.
pub fn dns_subdomain(name: &str, prefix: bool) -> Vec<String> {
    let name = masked(name, prefix);
    let good = name.split('.').all(|label| framed(label, lower, b"-"));
    problems([
        at_most(&name, 253),
        (!good).then(|| SUBDOMAIN_TEXT.to_owned()),
    ])
}

/// A name that may stand in a path: RBAC names.
pub fn path_segment(name: &str, prefix: bool) -> Vec<String> {
    if !prefix && (name == "." || name == "..") {
        return vec![format!("may not be '{name}'")];
    }
    ["/", "%"]
        .iter()
        .filter(|part| name.contains(**part))
        .map(|part| format!("may not contain '{part}'"))
        .collect()
}

/// `[prefix/]name`: label and annotation keys, finalizers, classes.
pub fn qualified_name(name: &str) -> Vec<String> {
    let (prefix, rest) = match name.split_once('/') {
        None => (None, name),
        Some((prefix, rest)) => (Some(prefix), rest),
    };
    let mut found = Vec::new();
    if rest.contains('/') {
        return vec![format!(
            "a qualified name {QUALIFIED_TEXT} with an optional DNS subdomain prefix and '/' \
             (e.g. 'example.com/MyName')"
        )];
    }
    match prefix {
        Some("") => found.push("prefix part must be non-empty".to_owned()),
        Some(prefix) => found.extend(
            dns_subdomain(prefix, false)
                .into_iter()
                .map(|text| format!("prefix part {text}")),
        ),
        None => {}
    }
    if rest.is_empty() {
        found.push("name part must be non-empty".to_owned());
    }
    found.extend(at_most(rest, 63).map(|text| format!("name part {text}")));
    if !framed(rest, alphanumeric, b"-_.") {
        found.push(format!("name part {QUALIFIED_TEXT}"));
    }
    found
}

/// What is wrong with the value of a label.
pub fn label_value(value: &str) -> Vec<String> {
    let good = value.is_empty() || framed(value, alphanumeric, b"-_.");
    problems([
        at_most(value, 63),
        (!good).then(|| LABEL_VALUE_TEXT.to_owned()),
    ])
}

/// An IANA service name: the name of a target port.
pub fn port_name(name: &str) -> Vec<String> {
    problems([
        (name.len() > 15).then(|| "must be no more than 15 characters long".to_owned()),
        (!name.bytes().all(|b| lower(b) || b == b'-')).then(|| {
            "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)".to_owned()
        }),
        (!name.bytes().any(|b| b.is_ascii_lowercase()))
            .then(|| "must contain at least one letter (a-z)".to_owned()),
        name.contains("--")
            .then(|| "must not contain consecutive hyphens".to_owned()),
        (name.starts_with('-') || name.ends_with('-'))
            .then(|| "must not begin or end with a hyphen".to_owned()),
    ])
}

/// What is wrong with the number of a port.
pub fn port_number(port: i64) -> Vec<String> {
    problems([
        (!(1..=65535).contains(&port)).then(|| "must be between 1 and 65535, inclusive".to_owned())
    ])
}

/// An address as it should be written: no leading zeros, no IPv4 inside IPv6.
pub fn address(text: &str) -> Result<IpAddr, String> {
    const WRONG: &str = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
    let ip: IpAddr =
        text.parse()
            .map_err(|_| match without_leading_zeros(text).parse::<IpAddr>() {
                Ok(_) => "must not have leading 0s".to_owned(),
                Err(_) => WRONG.to_owned(),
            })?;
    match ip {
        IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some() => {
            Err("must not be an IPv4-mapped IPv6 address".to_owned())
        }
        IpAddr::V6(_) if text.contains('%') => Err(WRONG.to_owned()),
        _ => Ok(ip),
    }
}

fn without_leading_zeros(text: &str) -> String {
    let short = |part: &str| match part.trim_start_matches('0') {
        "" if !part.is_empty() => "0".to_owned(),
        rest => rest.to_owned(),
    };
    text.split('.').map(short).collect::<Vec<_>>().join(".")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_and_subdomains() {
        for good in ["a", "1a", "a-b", &"x".repeat(63)] {
            assert_eq!(dns_label(good, false), Vec::<String>::new(), "{good}");
        }
        for bad in ["", "-a", "a-", "A", "a.b", "a_b", &"x".repeat(64)] {
            assert_eq!(dns_label(bad, false).len(), 1, "{bad}");
        }
        assert!(dns_label("web-", true).is_empty());
        assert!(dns_subdomain("a.b-c.d", false).is_empty());
        assert_eq!(dns_subdomain("a..b", false).len(), 1);
    }

    #[test]
    fn qualified_names() {
        for good in ["a", "A_b.c", "example.com/x"] {
            assert!(qualified_name(good).is_empty(), "{good}");
        }
        for bad in ["", "/a", "a/", "a/b/c", "Ex/a", "a b", "-a"] {
            assert!(!qualified_name(bad).is_empty(), "{bad}");
        }
    }

    #[test]
    fn addresses() {
        assert!(address("10.0.0.1").is_ok());
        assert!(address("2001:db8::1").is_ok());
        for bad in [
            "010.0.0.1",
            "::ffff:1.2.3.4",
            "1.2.3",
            "",
            "fe80::1%eth0",
            "1.2.3.4 ",
        ] {
            assert!(address(bad).is_err(), "{bad}");
        }
    }
}
