//! Request bodies: JSON, YAML or protobuf to a checked object.

use portico_api::bounds;
use portico_api::codec::{self, conform, json, proto};
use portico_api::field::{self, Path};
use portico_api::gates::Gates;
use portico_api::kinds::Kind;
use portico_api::object;
use portico_api::schema::schema;
use portico_api::status::{ApiError, Result};
use serde_json::Value;

/// What to do about fields that are unknown or that are there twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FieldValidation {
    Ignore,
    Warn,
    Strict,
}

impl FieldValidation {
    pub(crate) fn parse(text: &str) -> (Self, Option<field::Error>) {
        match text {
            "" | "Warn" => (Self::Warn, None),
            "Ignore" => (Self::Ignore, None),
            "Strict" => (Self::Strict, None),
            other => {
                let known = &["", "Ignore", "Strict", "Warn"];
                let error =
                    field::Error::not_supported(&Path::new("fieldValidation"), other, known);
                (Self::Warn, Some(error))
            }
        }
    }
}

/// `dryRun` can only say `All`.
pub(crate) fn dry_run_problems(values: &[&str]) -> Option<field::Error> {
    let wrong = values.iter().any(|value| *value != "All");
    wrong.then(|| field::Error::not_supported(&Path::new("dryRun"), values.to_vec(), &["All"]))
}

#[derive(Debug)]
pub(crate) struct Decoded {
    pub object: Value,
    pub warnings: Vec<String>,
}

/// The encodings of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Encoding {
    Json,
    Yaml,
    Protobuf,
}

impl Encoding {
    pub(crate) fn of(content_type: &str) -> Result<Self> {
        if content_type.is_empty() {
            return Ok(Self::Json);
        }
        match media_type(content_type).to_ascii_lowercase().as_str() {
            "application/json" => Ok(Self::Json),
            "application/yaml" => Ok(Self::Yaml),
            "application/vnd.kubernetes.protobuf" => Ok(Self::Protobuf),
            _ => Err(ApiError::new(
                415,
                "UnsupportedMediaType",
                "the body of the request was in an unknown format - accepted media types include: application/json, \
                 application/yaml, application/vnd.kubernetes.protobuf",
            )),
        }
    }
}

/// `application/json; charset=utf-8` without its parameters.
pub(crate) fn media_type(content_type: &str) -> &str {
    content_type.split(';').next().unwrap_or_default().trim()
}

/// The type a body must be of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Expected<'a> {
    pub api_version: &'a str,
    pub kind: &'a str,
    pub schema: &'a str,
}

impl Expected<'_> {
    fn refuse(&self, found: &str, version: &str, why: impl std::fmt::Display) -> ApiError {
        let found = if found.is_empty() { self.kind } else { found };
        let version = if version.is_empty() {
            self.api_version
        } else {
            version
        };
        let version = version.rsplit('/').next().unwrap_or(version);
        ApiError::bad_request(format!(
            "{found} in version {version:?} cannot be handled as a {}: {why}",
            self.kind
        ))
    }
}

/// Decode a body for this kind.
pub(crate) fn body(
    kind: &dyn Kind,
    content_type: &str,
    body: &[u8],
    validation: FieldValidation,
) -> Result<Decoded> {
    let info = kind.info();
    let api_version = info.api_version();
    typed(
        Expected {
            api_version: &api_version,
            kind: info.kind,
            schema: info.schema,
        },
        content_type,
        body,
        validation,
    )
}

/// Decode a body of any known type.
pub(crate) fn typed(
    expected: Expected<'_>,
    content_type: &str,
    body: &[u8],
    validation: FieldValidation,
) -> Result<Decoded> {
    let (value, duplicates) = match Encoding::of(content_type)? {
        Encoding::Protobuf => return protobuf(expected, body),
        Encoding::Json => {
            json::parse(body).map_err(|error| unrecognised(expected.kind, &error, body))?
        }
        Encoding::Yaml => yaml(body).map_err(|error| unrecognised(expected.kind, &error, body))?,
    };
    check_kind(expected, &value)?;
    let (object, unknown) = conform(schema(), expected.schema, value)
        .map_err(|error| expected.refuse("", "", error))?;
    let warnings =
        lenient(validation, &unknown, &duplicates).map_err(|why| expected.refuse("", "", why))?;
    Ok(Decoded { object, warnings })
}

/// The object of a server-side apply.
pub(crate) fn applied(
    expected: Expected<'_>,
    value: Value,
    duplicates: &[String],
    validation: FieldValidation,
) -> Result<Decoded> {
    let (kind, version) = (
        object::text(&value, "kind"),
        object::text(&value, "apiVersion"),
    );
    if (kind, version) != (expected.kind, expected.api_version) {
        return Err(ApiError::bad_request(format!(
            "invalid object type: {version}, Kind={kind}"
        )));
    }
    let (object, unknown) = conform(schema(), expected.schema, value)
        .map_err(|error| expected.refuse("", "", error))?;
    let warnings =
        lenient(validation, &unknown, duplicates).map_err(|why| expected.refuse("", "", why))?;
    Ok(Decoded { object, warnings })
}

/// The result of a patch, which is checked again as a body is, but blamed on the patch.
pub(crate) fn patched(
    kind: &dyn Kind,
    value: Value,
    validation: FieldValidation,
) -> Result<Decoded> {
    bounds::check(&value).map_err(|error| blame_patch(error.to_string()))?;
    let (object, unknown) = conform(schema(), kind.info().schema, value)
        .map_err(|error| blame_patch(error.to_string()))?;
    let warnings = lenient(validation, &unknown, &[]).map_err(blame_patch)?;
    Ok(Decoded { object, warnings })
}

/// A JSON or merge patch writes the whole document, so it must leave it one of this kind.
pub(crate) fn check_patched_kind(kind: &dyn Kind, value: &Value) -> Result<()> {
    let info = kind.info();
    let (name, version) = (
        object::text(value, "kind"),
        object::text(value, "apiVersion"),
    );
    // Of another type than text: that is for the decoder to refuse.
    let given = |key: &str| value.get(key).is_some_and(Value::is_string);
    if value
        .get("apiVersion")
        .is_none_or(|version| version.is_null() || version == "")
    {
        return Err(ApiError::bad_request(
            "the patched object has no apiVersion",
        ));
    }
    let other_kind = given("kind") && !name.is_empty() && name != info.kind;
    if other_kind || given("apiVersion") && version != info.api_version() {
        let why = format!(
            "the patched object is a {name} of {version}, not a {} of {}",
            info.kind,
            info.api_version()
        );
        return Err(blame_patch(why));
    }
    Ok(())
}

/// Turns the client's spelling into the stored one, with defaults.
pub(crate) fn inward(
    kind: &dyn Kind,
    mut object: Value,
    old: Option<&Value>,
    patched: bool,
    gates: &Gates,
) -> Result<Value> {
    let errors = kind.to_stored(&mut object, old, patched);
    if !errors.is_empty() {
        let info = kind.info();
        return Err(ApiError::invalid(
            info.group,
            info.kind,
            object::name(&object),
            &errors,
        ));
    }
    portico_api::kinds::metadata::drop_repeated_owners(&mut object);
    kind.default(&mut object, gates);
    Ok(object)
}

/// The object must say the same name and namespace as the path.
pub(crate) fn check_place(object: &Value, namespace: &str, name: &str) -> Result<()> {
    let found = object::name(object);
    if found != name {
        return Err(ApiError::bad_request(format!(
            "the name of the object ({found}) does not match the name on the URL ({name})"
        )));
    }
    let found = object::namespace(object);
    if !namespace.is_empty() && found != namespace && name != namespace {
        return Err(ApiError::bad_request(format!(
            "the namespace of the object ({found}) does not match the namespace on the URL \
             ({namespace})"
        )));
    }
    Ok(())
}

/// YAML as JSON, and the keys that are given twice, of which the last one counts.
pub(crate) fn yaml(bytes: &[u8]) -> std::result::Result<(Value, Vec<String>), String> {
    use serde_saphyr::{DuplicateKeyPolicy, Error};
    let text = std::str::from_utf8(bytes).map_err(|error| error.to_string())?;
    let error = match yaml_value(text, DuplicateKeyPolicy::Error) {
        Ok(value) => return within_bounds(value).map(|value| (value, Vec::new())),
        Err(error) => error,
    };
    let Error::DuplicateMappingKey { key, .. } = error.without_snippet() else {
        return Err(error.to_string());
    };
    let value = yaml_value(text, DuplicateKeyPolicy::LastWins)
        .map_err(|error| error.to_string())
        .and_then(within_bounds)?;
    // Most YAML that programs send is JSON, for which the paths are known.
    let duplicates = json::parse(bytes)
        .map(|(_, duplicates)| duplicates)
        .unwrap_or_default();
    Ok((
        value,
        if duplicates.is_empty() {
            vec![key.clone().unwrap_or_default()]
        } else {
            duplicates
        },
    ))
}

fn yaml_value(
    text: &str,
    duplicate_keys: serde_saphyr::DuplicateKeyPolicy,
) -> std::result::Result<Value, serde_saphyr::Error> {
    let options = serde_saphyr::options! {
        duplicate_keys: duplicate_keys,
        budget: serde_saphyr::budget! { max_depth: bounds::MOST_DEPTH },
    };
    serde_saphyr::from_str_with_options(text, options)
}

/// A few bytes of YAML can stand for much: an alias repeats what it refers to.
fn within_bounds(value: Value) -> std::result::Result<Value, String> {
    match bounds::check(&value) {
        Ok(()) => Ok(value),
        Err(error) => Err(error.to_string()),
    }
}

/// What is given twice in a patch: warnings, or in strict mode an error that blames the patch.
pub(crate) fn patch_duplicates(body: &[u8], validation: FieldValidation) -> Result<Vec<String>> {
    let duplicates = json::parse(body)
        .map(|(_, duplicates)| duplicates)
        .unwrap_or_default();
    lenient(validation, &[], &duplicates).map_err(blame_patch)
}

fn blame_patch(why: String) -> ApiError {
    ApiError::invalid(
        "",
        "",
        "",
        &[field::Error::invalid(&Path::new("patch"), "", why)],
    )
}

fn protobuf(expected: Expected<'_>, body: &[u8]) -> Result<Decoded> {
    let envelope =
        proto::open(body).map_err(|error| unrecognised(expected.kind, &error, b"protobuf"))?;
    check_kind(
        expected,
        &serde_json::json!({"apiVersion": envelope.api_version, "kind": envelope.kind}),
    )?;
    let object = proto::decode(schema(), expected.schema, body)
        .map_err(|error| expected.refuse("", "", error))?;
    Ok(Decoded {
        object,
        warnings: Vec::new(),
    })
}

/// The options of a delete, which clients send under many versions: only what they say counts.
pub(crate) fn delete_options(content_type: &str, body: &[u8]) -> Result<Value> {
    let bad = |error: &dyn std::fmt::Display| {
        ApiError::bad_request(format!("the delete options cannot be read: {error}"))
    };
    let value = match Encoding::of(content_type)? {
        Encoding::Protobuf => {
            return proto::decode(schema(), "DeleteOptions", body).map_err(|error| bad(&error));
        }
        Encoding::Json => json::parse(body).map_err(|error| bad(&error))?.0,
        Encoding::Yaml => yaml(body).map_err(|error| bad(&error))?.0,
    };
    let kind = object::text(&value, "kind");
    if !matches!(kind, "" | "DeleteOptions") {
        return Err(bad(&format!("the kind must be DeleteOptions, not {kind}")));
    }
    conform(schema(), "DeleteOptions", value)
        .map(|(value, _)| value)
        .map_err(|error| bad(&error))
}

fn check_kind(expected: Expected<'_>, value: &Value) -> Result<()> {
    let (kind, version) = (
        object::text(value, "kind"),
        object::text(value, "apiVersion"),
    );
    if !version.is_empty() && version != expected.api_version {
        return Err(expected.refuse(
            kind,
            version,
            format!("no kind {kind:?} is registered for version {version:?}"),
        ));
    }
    if !kind.is_empty() && kind != expected.kind {
        return Err(expected.refuse(kind, version, "the kind does not fit the path"));
    }
    Ok(())
}

fn unrecognised(kind: &str, error: &dyn std::fmt::Display, body: &[u8]) -> ApiError {
    let start = String::from_utf8_lossy(&body[..body.len().min(30)]);
    let start = if body.is_empty() {
        "<empty>".into()
    } else {
        start
    };
    ApiError::bad_request(format!(
        "the object provided is unrecognized (must be of type {kind}): couldn't get version/kind; \
         json parse error: {error} ({start})"
    ))
}

fn lenient(
    validation: FieldValidation,
    unknown: &[String],
    duplicates: &[String],
) -> std::result::Result<Vec<String>, String> {
    let problems = codec::strict_problems(unknown, duplicates);
    match (validation, codec::strict_error(&problems)) {
        (FieldValidation::Ignore, _) => Ok(Vec::new()),
        (FieldValidation::Strict, Some(error)) => Err(error),
        _ => Ok(problems),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn of_a_key_that_is_given_twice_in_yaml_the_last_counts() {
        for (text, value, duplicates) in [
            ("a: 1\nb: 2", json!({"a": 1, "b": 2}), vec![]),
            ("a: 1\na: 2", json!({"a": 2}), vec!["a"]),
            (
                r#"{"a": {"b": 1, "b": 2}}"#,
                json!({"a": {"b": 2}}),
                vec!["a.b"],
            ),
            (
                r#"{"a": {"b": 1}, "a": {"c": 2}}"#,
                json!({"a": {"c": 2}}),
                vec!["a"],
            ),
        ] {
            let duplicates = duplicates.into_iter().map(str::to_owned).collect();
            assert_eq!(yaml(text.as_bytes()), Ok((value, duplicates)), "{text}");
        }
        assert!(yaml(b"{").is_err());
    }

    /// An alias repeats what it refers to: a line each makes a value deeper, or twice as large.
    #[test]
    fn yaml_stays_within_the_bounds_on_a_small_stack() {
        let chain = |length: usize| {
            let lines = (1..length).map(|n| format!("a{n}: &a{n} {{x: *a{}}}\n", n - 1));
            format!("a0: &a0 {{}}\n{}", lines.collect::<String>())
        };
        let doubling = (1..40).map(|n| format!("a{n}: &a{n} [*a{}, *a{}]\n", n - 1, n - 1));
        let long = format!(
            "a: &a {}\nb: [{}]",
            "x".repeat(100_000),
            ["*a"; 50].join(", ")
        );
        let bodies = [
            chain(100),
            chain(5_000),
            format!("a0: &a0 x\n{}", doubling.collect::<String>()),
            long,
            format!("{}{}", "[".repeat(65), "]".repeat(65)),
        ];
        let walk = move || {
            let nested = format!("{}{}", "[".repeat(64), "]".repeat(64));
            assert!(yaml(nested.as_bytes()).is_ok());
            for body in bodies {
                assert!(yaml(body.as_bytes()).is_err(), "{}", &body[..40]);
            }
        };
        let thread = std::thread::Builder::new()
            .stack_size(1024 * 1024)
            .spawn(walk);
        thread.unwrap().join().unwrap();
    }

    #[test]
    fn a_patch_must_leave_an_object_of_its_kind() {
        let kinds = portico_api::kinds::all();
        let kind = kinds
            .iter()
            .find(|kind| kind.info().kind == "Endpoints")
            .unwrap()
            .as_ref();
        for (object, want) in [
            (json!({"apiVersion": "v1", "kind": "Endpoints"}), None),
            (json!({"apiVersion": "v1"}), None),
            (json!({"apiVersion": "v1", "kind": ""}), None),
            (json!({"kind": "Endpoints"}), Some(400)),
            (json!({"apiVersion": "", "kind": "Endpoints"}), Some(400)),
            (json!({"apiVersion": "v2", "kind": "Endpoints"}), Some(422)),
            (json!({"apiVersion": "v1", "kind": "Pod"}), Some(422)),
        ] {
            assert_eq!(
                check_patched_kind(kind, &object)
                    .err()
                    .map(|error| error.code),
                want,
                "{object}"
            );
        }
    }
}
