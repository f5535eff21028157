//! What a line of a watch says. Nearly all of them are an object that can be read, so a line is
//! taken for that first, in one pass; what turns out to be something else is read again, part by
//! part.

use super::{Metadata, Note};
use crate::client::RequestError;
use crate::objects::{Kind, Object};
use serde::Deserialize;
use serde_json::value::RawValue;
use std::borrow::Cow;

#[derive(Debug, PartialEq)]
pub(super) enum Event {
    /// It is there, or it changed.
    Applied(Object),
    Deleted(Metadata),
    /// An object that cannot be read, and why.
    Unreadable(Metadata, String),
    /// Bookmarks, and whatever else there may be one day.
    Other(Metadata),
}

impl Event {
    /// What has been told with it, all that came before included; may be empty.
    pub(super) fn revision(&self) -> &str {
        match self {
            Self::Applied(object) => &object.metadata().resource_version,
            Self::Deleted(metadata) | Self::Unreadable(metadata, _) | Self::Other(metadata) => {
                &metadata.resource_version
            }
        }
    }
}

#[derive(Deserialize)]
struct Line<'a, T> {
    #[serde(rename = "type", borrow)]
    what: Cow<'a, str>,
    object: T,
}

/// An error is also what the server says is one.
pub(super) fn read(kind: Kind, line: &[u8]) -> Result<Event, RequestError> {
    match str::from_utf8(line)
        .ok()
        .and_then(|line| at_once(kind, line))
    {
        Some(event) => Ok(event),
        None => in_parts(kind, line),
    }
}

/// `None` where it is not as expected.
fn at_once(kind: Kind, line: &str) -> Option<Event> {
    fn typed<'a, T: Deserialize<'a>>(
        line: &'a str,
        object: fn(T) -> Object,
    ) -> Option<(Cow<'a, str>, Object)> {
        let line: Line<'_, T> = serde_json::from_str(line).ok()?;
        Some((line.what, object(line.object)))
    }
    let (what, object) = match kind {
        Kind::Service => typed(line, Object::Service),
        Kind::Slice => typed(line, Object::Slice),
        Kind::Node => typed(line, Object::Node),
        Kind::Cidr => typed(line, Object::Cidr),
        Kind::Pod => typed(line, Object::Pod),
        Kind::Partition => typed(line, Object::Partition),
    }?;
    match what.as_ref() {
        "ADDED" | "MODIFIED" => Some(Event::Applied(object)),
        "DELETED" => Some(Event::Deleted(object.metadata().into())),
        "ERROR" => None,
        _ => Some(Event::Other(object.metadata().into())),
    }
}

fn in_parts(kind: Kind, line: &[u8]) -> Result<Event, RequestError> {
    let line: Line<'_, &RawValue> = serde_json::from_slice(line).map_err(RequestError::Decode)?;
    let json = line.object.get();
    let note: Note = serde_json::from_str(json).unwrap_or_default();
    match line.what.as_ref() {
        "ADDED" | "MODIFIED" => Ok(match kind.decode(json) {
            Ok(object) => Event::Applied(object),
            Err(error) => Event::Unreadable(note.metadata, error.to_string()),
        }),
        "DELETED" => Ok(Event::Deleted(note.metadata)),
        "ERROR" => Err(RequestError::Status {
            code: note.code,
            message: note.message,
        }),
        _ => Ok(Event::Other(note.metadata)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERVICE: &str = r#"{"kind":"Service","metadata":{"name":"a","namespace":"b","uid":"c","resourceVersion":"7",
        "labels":{"app":"x"},"managedFields":[{"f":{}}]},"spec":{"clusterIP":"10.0.0.1","ports":[{"port":80}]}}"#;
    const SLICE: &str = r#"{"metadata":{"name":"\u0061\n","resourceVersion":"8"},"addressType":"IPv4","ports":null,
        "endpoints":[{"addresses":["10.1.0.1"],"conditions":{"ready":true}}]}"#;
    const BOOKMARK: &str = r#"{"metadata":{"resourceVersion":"9","creationTimestamp":null},"spec":{},"status":{"loadBalancer":{}}}"#;
    /// For every kind.
    const BAD: &str =
        r#"{"metadata":{"name":"bad","namespace":"b","resourceVersion":"10"},"spec":7,"ports":7}"#;
    const NAMELESS: &str = r#"{"metadata":{"name":7,"resourceVersion":"11"}}"#;
    const STATUS: &str =
        r#"{"kind":"Status","metadata":{},"status":"Failure","message":"too old","code":410}"#;
    const OBJECTS: [&str; 12] = [
        SERVICE,
        SLICE,
        BOOKMARK,
        BAD,
        NAMELESS,
        STATUS,
        "{}",
        "null",
        "[]",
        "7",
        "\"x\"",
        r#"{"metadata":"#,
    ];

    fn lines() -> impl Iterator<Item = String> {
        let types = [
            "\"ADDED\"",
            "\"MODIFIED\"",
            "\"DELETED\"",
            "\"BOOKMARK\"",
            "\"ERROR\"",
            r#""A\u0044DED""#,
            "\"\"",
            "7",
        ];
        let line = |what: &str, object: &str| {
            [
                format!(r#"{{"type":{what},"object":{object}}}"#),
                format!(r#"{{"object":{object},"type":{what}}}"#),
                format!(
                    r#" {{ "more":[{{}}], "type" : {what}, "x":"\"", "object" : {object} , "y":null}} "#
                ),
                format!(r#"{{"type":{what},"object":{object},"object":{object}}}"#),
                format!(r#"{{"type":{what},"object":{object}}}}}"#),
                format!(r#"{{"type":{what}}}"#),
                format!(r#"{{"object":{object}}}"#),
                format!("[{what},{object}]"),
            ]
        };
        types.into_iter().flat_map(move |what| {
            OBJECTS
                .into_iter()
                .flat_map(move |object| line(what, object))
        })
    }

    #[test]
    fn at_once_says_the_same_as_in_parts() {
        let mut count = 0;
        for (kind, line) in Kind::ALL
            .into_iter()
            .flat_map(|kind| lines().map(move |line| (kind, line)))
        {
            if let Some(event) = at_once(kind, &line) {
                assert_eq!(
                    event,
                    in_parts(kind, line.as_bytes()).unwrap(),
                    "{kind:?} {line}"
                );
                count += 1;
            }
        }
        assert!(count > 500, "{count}");
    }

    #[test]
    fn what_comes_every_day_is_read_at_once() {
        for (kind, object) in [(Kind::Service, SERVICE), (Kind::Slice, SLICE)] {
            for what in ["ADDED", "MODIFIED", "DELETED", "BOOKMARK"] {
                for object in [object, BOOKMARK] {
                    let line = format!(r#"{{"type":"{what}","object":{object}}}"#);
                    assert!(at_once(kind, &line).is_some(), "{kind:?} {line}");
                }
            }
        }
    }

    #[test]
    fn events_are_told_apart() {
        let read = |what: &str, object: &str| {
            read(
                Kind::Service,
                format!(r#"{{"type":"{what}","object":{object}}}"#).as_bytes(),
            )
        };
        let metadata = |namespace: &str, name: &str, uid: &str, revision: &str| {
            let [namespace, name, uid, resource_version] =
                [namespace, name, uid, revision].map(str::to_owned);
            Metadata {
                namespace,
                name,
                uid,
                resource_version,
            }
        };
        let applied = read("MODIFIED", SERVICE).unwrap();
        assert_eq!(
            applied,
            Event::Applied(Kind::Service.decode(SERVICE).unwrap())
        );
        assert_eq!(applied.revision(), "7");
        assert_eq!(
            read("DELETED", SERVICE).unwrap(),
            Event::Deleted(metadata("b", "a", "c", "7"))
        );
        assert_eq!(
            read("DELETED", BAD).unwrap(),
            Event::Deleted(metadata("b", "bad", "", "10"))
        );
        assert_eq!(
            read("BOOKMARK", BOOKMARK).unwrap(),
            Event::Other(metadata("", "", "", "9"))
        );
        assert_eq!(read("TOMORROW", BAD).unwrap().revision(), "10");
        let bad = read("ADDED", BAD).unwrap();
        assert!(
            matches!(&bad, Event::Unreadable(about, _) if *about == metadata("b", "bad", "", "10")),
            "{bad:?}"
        );
        for what in ["ADDED", "DELETED", "BOOKMARK"] {
            assert_eq!(read(what, NAMELESS).unwrap().revision(), "", "{what}");
        }
        for object in [STATUS, r#"{"message":"too old","code":410}"#] {
            let error = read("ERROR", object).unwrap_err();
            assert!(
                matches!(&error, RequestError::Status { code: 410, message } if message == "too old"),
                "{error}"
            );
        }
        assert!(matches!(
            read("ADDED", r#"{"metadata":"#),
            Err(RequestError::Decode(_))
        ));
        let latin1 = [
            b"{\"type\":\"ADDED\",\"object\":{\"x\":\"",
            &[0xe9][..],
            b"\"}}",
        ]
        .concat();
        assert!(matches!(
            super::read(Kind::Service, &latin1),
            Err(RequestError::Decode(_))
        ));
    }
}
