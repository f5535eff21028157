//! What a request asks for: its path taken apart, and its query parameters.

use portico_api::status::ApiError;
use std::borrow::Cow;

/// Where a path leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// `/api/v1/namespaces/default/services/web/status`
    Resource(ResourcePath),
    /// Anything else: `/version`, `/apis`, `/openapi/v3`.
    Other,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ResourcePath {
    pub group: String,
    pub version: String,
    pub namespace: String,
    pub resource: String,
    pub name: String,
    pub subresource: String,
    /// The old `/api/v1/watch/...` form.
    pub watch: bool,
}

impl ResourcePath {
    /// Parse the path of an API resource; paths that name no resource are `Other`.
    pub(crate) fn parse(path: &str) -> Place {
        // Escapes are undone first: an escaped slash separates like any other.
        let path = decode(path);
        let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
        match parts.as_slice() {
            ["api", version, rest @ ..] if !rest.is_empty() => Self::resource("", version, rest),
            ["apis", group, version, rest @ ..] if !rest.is_empty() => {
                Self::resource(group, version, rest)
            }
            _ => Place::Other,
        }
    }

    /// Is there such a place? Objects lie in a namespace or not, as their kind says, and only some
    /// have parts.
    pub(crate) fn leads_to(&self, info: &portico_api::kinds::Info) -> bool {
        let namespaces = info.plural == "namespaces" && info.group.is_empty();
        let placed = match (info.namespaced, self.namespace.is_empty()) {
            (true, true) => self.name.is_empty(),
            (false, false) => namespaces,
            _ => true,
        };
        let part = match self.subresource.as_str() {
            "" => true,
            "status" => info.status,
            "finalize" => namespaces,
            "token" => info.plural == "serviceaccounts",
            _ => false,
        };
        placed && part
    }

    fn resource(group: &str, version: &str, rest: &[&str]) -> Place {
        let mut found = Self {
            group: group.to_owned(),
            version: version.to_owned(),
            ..Self::default()
        };
        let rest = match rest {
            ["watch", rest @ ..] if !rest.is_empty() => {
                found.watch = true;
                rest
            }
            _ => rest,
        };
        let (resource, rest) = match rest {
            // A namespace is both a place and an object: its own subresources are known by name.
            ["namespaces", name, "status" | "finalize"] if group.is_empty() => {
                found.namespace = (*name).to_owned();
                ("namespaces", &rest[1..])
            }
            ["namespaces", namespace, resource, rest @ ..] => {
                found.namespace = (*namespace).to_owned();
                (*resource, rest)
            }
            [resource, rest @ ..] => {
                if let ("namespaces", [name, ..]) = (*resource, rest) {
                    found.namespace = (*name).to_owned();
                }
                (*resource, rest)
            }
            [] => return Place::Other,
        };
        found.resource = resource.to_owned();
        match rest {
            [] => {}
            [name] => found.name = (*name).to_owned(),
            [name, subresource @ ..] => {
                found.name = (*name).to_owned();
                found.subresource = subresource.join("/");
            }
        }
        Place::Resource(found)
    }
}

/// The query parameters, in order.
#[derive(Debug, Default)]
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    pub(crate) fn parse(query: &str) -> Self {
        let pair = |part: &str| {
            let (key, value) = part.split_once('=').unwrap_or((part, ""));
            (decode_plus(key), decode_plus(value))
        };
        Self(
            query
                .split('&')
                .filter(|part| !part.is_empty())
                .map(pair)
                .collect(),
        )
    }

    pub(crate) fn get(&self, key: &str) -> Option<&str> {
        self.0
            .iter()
            .find(|(name, _)| name == key)
            .map(|(_, value)| value.as_str())
    }

    pub(crate) fn text(&self, key: &str) -> &str {
        self.get(key).unwrap_or_default()
    }

    pub(crate) fn all<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a str> {
        self.0
            .iter()
            .filter(move |(name, _)| name == key)
            .map(|(_, value)| value.as_str())
    }

    /// Kubernetes reads `watch`, `watch=1` and `watch=true` as true, `0` and `false` (in any case)
    /// as false.
    pub(crate) fn flag(&self, key: &str) -> bool {
        self.get(key)
            .is_some_and(|value| value != "0" && !value.eq_ignore_ascii_case("false"))
    }

    pub(crate) fn optional_flag(&self, key: &str) -> Option<bool> {
        self.get(key).map(|_| self.flag(key))
    }

    pub(crate) fn number(&self, key: &str) -> Result<Option<i64>, ApiError> {
        let Some(text) = self.get(key) else {
            return Ok(None);
        };
        text.parse().map(Some).map_err(|_| {
            ApiError::bad_request(format!(
                "the query parameter {key} must be a whole number, not {text:?}"
            ))
        })
    }
}

impl Query {
    /// A length of time as Go writes it (`1m30s`) must be one if it is there.
    pub(crate) fn duration(&self, key: &str) -> Result<(), ApiError> {
        match self.text(key) {
            "" => Ok(()),
            text if is_duration(text) => Ok(()),
            text => Err(ApiError::bad_request(format!(
                "invalid {key} specified in the request URL: {text:?}"
            ))),
        }
    }
}

fn is_duration(text: &str) -> bool {
    let mut rest = text.strip_prefix(['-', '+']).unwrap_or(text);
    if rest == "0" {
        return true;
    }
    while !rest.is_empty() {
        let number = rest.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
        let digits = &rest[..rest.len() - number.len()];
        let unit = number.trim_start_matches(|c: char| !c.is_ascii_digit() && c != '.');
        let name = &number[..number.len() - unit.len()];
        let good = digits.parse::<f64>().is_ok()
            && ["ns", "us", "µs", "μs", "ms", "s", "m", "h"].contains(&name);
        if !good {
            return false;
        }
        rest = unit;
    }
    !text.is_empty()
}

fn decode_plus(text: &str) -> String {
    decode(&text.replace('+', " ")).into_owned()
}

/// Percent-decoding; what is not a valid escape stays as it is.
pub(crate) fn decode(text: &str) -> Cow<'_, str> {
    if !text.contains('%') {
        return text.into();
    }
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let Some((&first, tail)) = rest.split_first() {
        let escaped = tail.get(..2).and_then(|hex| std::str::from_utf8(hex).ok());
        match (
            first,
            escaped.and_then(|hex| u8::from_str_radix(hex, 16).ok()),
        ) {
            (b'%', Some(byte)) => {
                out.push(byte);
                rest = &tail[2..];
            }
            _ => {
                out.push(first);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resource(path: &str) -> ResourcePath {
        match ResourcePath::parse(path) {
            Place::Resource(found) => found,
            Place::Other => panic!("{path} is not a resource path"),
        }
    }

    #[test]
    fn paths_are_taken_apart() {
        let table = [
            ("/api/v1/services", ("", "", "services", "", "")),
            ("/api/v1/namespaces", ("", "", "namespaces", "", "")),
            ("/api/v1/namespaces/a", ("", "a", "namespaces", "a", "")),
            (
                "/api/v1/namespaces/a/finalize",
                ("", "a", "namespaces", "a", "finalize"),
            ),
            (
                "/api/v1/namespaces/a/services/b/status",
                ("", "a", "services", "b", "status"),
            ),
            (
                "/apis/discovery.k8s.io/v1/endpointslices",
                ("discovery.k8s.io", "", "endpointslices", "", ""),
            ),
            ("/api/v1/nodes/n%20a", ("", "", "nodes", "n a", "")),
            ("/api/v1/nodes/n%2F1", ("", "", "nodes", "n", "1")),
        ];
        for (path, (group, namespace, plural, name, subresource)) in table {
            let found = resource(path);
            let got = (
                &*found.group,
                &*found.namespace,
                &*found.resource,
                &*found.name,
                &*found.subresource,
            );
            assert_eq!(got, (group, namespace, plural, name, subresource), "{path}");
        }
        assert!(resource("/api/v1/watch/services").watch);
        for other in ["/", "/api", "/api/v1", "/apis/x/v1", "/version"] {
            assert_eq!(ResourcePath::parse(other), Place::Other, "{other}");
        }
    }

    #[test]
    fn durations() {
        for (text, good) in [
            ("1s", true),
            ("1m30s", true),
            ("-1.5h", true),
            ("0", true),
            ("1", false),
            ("bad", false),
        ] {
            assert_eq!(is_duration(text), good, "{text}");
        }
    }

    #[test]
    fn places_that_exist() {
        let kinds = portico_api::kinds::all();
        let table = [
            ("/api/v1/configmaps", true),
            ("/api/v1/configmaps/a", false),
            ("/api/v1/namespaces/x/configmaps/a", true),
            ("/api/v1/namespaces/x/configmaps/a/status", false),
            ("/api/v1/namespaces/x/nodes/a", false),
            ("/api/v1/nodes/a/status", true),
            ("/api/v1/nodes/a/status/b", false),
            ("/api/v1/namespaces/x/finalize", true),
            ("/api/v1/nodes/a/finalize", false),
        ];
        for (path, exists) in table {
            let found = resource(path);
            let kind = kinds
                .iter()
                .find(|kind| kind.info().plural == found.resource)
                .expect("served");
            assert_eq!(found.leads_to(kind.info()), exists, "{path}");
        }
    }

    #[test]
    fn query_parameters() {
        let query = Query::parse("watch=1&labelSelector=a%3Db+c&limit=x&dryRun=All&dryRun=No&bare");
        assert!(query.flag("watch") && query.flag("bare") && !query.flag("nothing"));
        for (text, wanted) in [
            ("1", true),
            ("", true),
            ("no", true),
            ("0", false),
            ("false", false),
            ("False", false),
        ] {
            assert_eq!(
                Query::parse(&format!("watch={text}")).flag("watch"),
                wanted,
                "{text}"
            );
        }
        assert_eq!(query.text("labelSelector"), "a=b c");
        assert!(query.number("limit").is_err());
        assert_eq!(query.all("dryRun").collect::<Vec<_>>(), ["All", "No"]);
        assert_eq!(decode("100%"), "100%");
        assert_eq!(decode("%zz%41"), "%zzA");
    }
}
