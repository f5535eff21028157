//! Reading objects: one, or a list in chunks at one revision.

use super::{Registry, key, load, prefix, read_error};
use crate::processor::{SHORT, TURN};
use crate::shares::Flow;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use portico_api::field::{self, Path};
use portico_api::kinds::Kind;
use portico_api::selector::{FieldSelector, LabelSelector};
use portico_api::status::{ApiError, Result};
use portico_store::{Entry, Range, ReadError, TxnError};
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How many entries are fetched in one go while filtering.
const CHUNK: usize = 1_000;
/// How many of them are looked at between two looks at the clock.
const BETWEEN_LOOKS: usize = 32;

/// What to list, and as of when.
#[derive(Clone, Debug)]
pub(crate) struct ListOptions {
    /// The user whose share the list counts for.
    pub flow: Flow,
    pub namespace: String,
    pub labels: LabelSelector,
    pub fields: FieldSelector,
    pub limit: usize,
    pub continue_token: String,
    pub version: Version,
}

impl ListOptions {
    /// Lists everything in a namespace, or everywhere if that is empty.
    pub(crate) fn all(flow: Flow, namespace: &str) -> Self {
        Self {
            flow,
            namespace: namespace.to_owned(),
            labels: LabelSelector::default(),
            fields: FieldSelector::default(),
            limit: 0,
            continue_token: String::new(),
            version: Version::default(),
        }
    }
}

/// As of when a list is wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Version {
    /// Everything that was written before the request.
    #[default]
    Newest,
    /// Whatever is at hand.
    Any,
    NotOlderThan(u64),
    Exactly(u64),
}

#[derive(Debug, Default)]
pub(crate) struct List {
    pub entries: Vec<Entry>,
    pub revision: u64,
    pub continue_token: Option<String>,
    pub remaining: Option<usize>,
}

impl Version {
    /// What is wrong with the query parameters `resourceVersion` and `resourceVersionMatch` of a
    /// list.
    pub(crate) fn problems(version: &str, matching: &str, continued: bool) -> Vec<field::Error> {
        let path = Path::new("resourceVersionMatch");
        let forbidden = |why: &str| field::Error::forbidden(&path, why);
        let mut errors = Vec::new();
        if matching.is_empty() {
            return errors;
        }
        if version.is_empty() {
            errors.push(forbidden(
                "resourceVersionMatch is forbidden unless resourceVersion is provided",
            ));
        }
        if continued {
            errors.push(forbidden(
                "resourceVersionMatch is forbidden when continue is provided",
            ));
        }
        if !matches!(matching, "Exact" | "NotOlderThan") {
            errors.push(field::Error::not_supported(
                &path,
                matching,
                &["Exact", "NotOlderThan", ""],
            ));
        }
        if (matching, version) == ("Exact", "0") {
            errors.push(forbidden(
                "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"",
            ));
        }
        errors
    }

    /// Reads the query parameters `resourceVersion` and `resourceVersionMatch` of a list, which
    /// have been checked.
    pub(crate) fn parse(
        version: &str,
        matching: &str,
        limited: bool,
        continued: bool,
    ) -> Result<Self> {
        let number = || {
            version.parse::<u64>().map_err(|_| {
                ApiError::bad_request(format!(
                    "Invalid value: {version:?}: the resourceVersion must be one that the server \
                     gave"
                ))
            })
        };
        match (matching, version) {
            ("", "") => Ok(Self::Newest),
            ("", "0") => Ok(Self::Any),
            // Before there was a match rule, a limited list from a version meant exactly that
            // version.
            ("", _) if limited && !continued => number().map(Self::Exactly),
            ("" | "NotOlderThan", _) => number().map(|number| {
                if number == 0 {
                    Self::Any
                } else {
                    Self::NotOlderThan(number)
                }
            }),
            _ => number().map(Self::Exactly),
        }
    }
}

impl Registry {
    pub(crate) async fn get(&self, kind: &dyn Kind, namespace: &str, name: &str) -> Result<Entry> {
        self.store.barrier().await.map_err(read_error)?;
        let key = key(kind, namespace, name);
        match self.store.get(&key) {
            Some(entry) => Ok(self.shown(kind, entry)),
            None if self
                .store
                .damaged()
                .iter()
                .any(|damaged| damaged.key == key) =>
            {
                Err(super::store_error(TxnError::Damaged { key }))
            }
            None => Err(ApiError::not_found(kind.info().subject(), name)),
        }
    }

    /// What a list cannot show, as a warning: a reader must not take it for deleted.
    pub(crate) fn missing(&self, kind: &dyn Kind, options: &ListOptions) -> Option<String> {
        let prefix = prefix(kind, &options.namespace);
        let damaged = self.store.damaged().iter();
        let keys = damaged.map(|damaged| damaged.key.as_str());
        let keys: Vec<&str> = keys.filter(|key| key.starts_with(&prefix)).collect();
        (!keys.is_empty()).then(|| {
            format!(
                "{} objects are damaged and not in this list: {}",
                keys.len(),
                keys.join(", ")
            )
        })
    }

    pub(crate) async fn list(&self, kind: &dyn Kind, options: &ListOptions) -> Result<List> {
        let prefix = prefix(kind, &options.namespace);
        let start = Start::parse(&options.continue_token, &prefix)?;
        let at = match start.revision {
            Some(revision) => Some(revision),
            None => self.await_version(options.version).await?,
        };
        let at = at.unwrap_or_else(|| self.store.revision());
        let mut list = List {
            revision: at,
            ..List::default()
        };
        if options.labels.is_empty() && options.fields.is_empty() {
            let range = Range {
                prefix: &prefix,
                after: start.after.as_deref(),
                limit: options.limit,
                at: Some(at),
            };
            let found = self
                .store
                .range(range)
                .map_err(|error| expired(error, &options.continue_token))?;
            list.remaining = found.more.then_some(found.remaining);
            let last = found.entries.last().filter(|_| found.more);
            list.continue_token = last.map(|entry| token(at, &entry.key, &prefix));
            list.entries = found
                .entries
                .into_iter()
                .map(|entry| self.shown(kind, entry))
                .collect();
            return Ok(list);
        }
        let mut search = Search {
            registry: self,
            kind,
            options,
            prefix: &prefix,
            after: start.after.map(Arc::from),
            fetched: VecDeque::new(),
            more: true,
            list,
        };
        let since = Instant::now();
        if search.go_on(since + SHORT)? {
            return Ok(search.list);
        }
        loop {
            let done = self
                .processor
                .go_on(&options.flow, since, || search.go_on(Instant::now() + TURN));
            if done.await?? {
                return Ok(search.list);
            }
        }
    }

    /// Wait until the wanted version is at hand; a revision to read at, or `None` for the newest.
    async fn await_version(&self, version: Version) -> Result<Option<u64>> {
        match version {
            Version::Any => Ok(None),
            Version::Newest => self.store.barrier().await.map(|_| None).map_err(read_error),
            Version::Exactly(revision) => self.reach(revision).await.map(|()| Some(revision)),
            Version::NotOlderThan(revision) => self.reach(revision).await.map(|()| None),
        }
    }

    async fn reach(&self, revision: u64) -> Result<()> {
        const PATIENCE: Duration = Duration::from_secs(3);
        if self.store.revision() >= revision {
            return Ok(());
        }
        let _ = tokio::time::timeout(PATIENCE, self.store.barrier()).await;
        match self.store.revision() {
            current if current < revision => Err(too_new(revision, current)),
            _ => Ok(()),
        }
    }
}

/// A look through a range for what selectors match, in steps.
struct Search<'a> {
    registry: &'a Registry,
    kind: &'a dyn Kind,
    options: &'a ListOptions,
    prefix: &'a str,
    /// The last key that was looked at.
    after: Option<Arc<str>>,
    fetched: VecDeque<Entry>,
    /// Is there more behind what was fetched?
    more: bool,
    list: List,
}

impl Search<'_> {
    /// Look on until then; true when it is done: the limit is reached and something follows, or
    /// there is no more.
    fn go_on(&mut self, until: Instant) -> Result<bool> {
        loop {
            if self.fetched.is_empty() && self.more {
                self.fetch()?;
            }
            for _ in 0..BETWEEN_LOOKS {
                let Some(entry) = self.fetched.pop_front() else {
                    break;
                };
                if self.is_full() {
                    let after = self.after.as_deref();
                    self.list.continue_token =
                        after.map(|after| token(self.list.revision, after, self.prefix));
                    return Ok(true);
                }
                self.look_at(entry)?;
            }
            if self.fetched.is_empty() && !self.more {
                return Ok(true);
            }
            if Instant::now() >= until {
                return Ok(false);
            }
        }
    }

    fn is_full(&self) -> bool {
        self.options.limit > 0 && self.list.entries.len() == self.options.limit
    }

    fn fetch(&mut self) -> Result<()> {
        let page = Range {
            prefix: self.prefix,
            after: self.after.as_deref(),
            limit: CHUNK,
            at: Some(self.list.revision),
        };
        let (entries, more) = self
            .registry
            .store
            .page(page)
            .map_err(|error| expired(error, &self.options.continue_token))?;
        self.more = more;
        self.fetched = entries.into();
        Ok(())
    }

    fn look_at(&mut self, entry: Entry) -> Result<()> {
        self.after = Some(Arc::clone(&entry.key));
        let entry = self.registry.shown(self.kind, entry);
        let ListOptions { labels, fields, .. } = self.options;
        if matches(self.kind, &entry, labels, fields)? {
            self.list.entries.push(entry);
        }
        Ok(())
    }
}

/// Does the object match both selectors?
pub(crate) fn matches(
    kind: &dyn Kind,
    entry: &Entry,
    labels: &LabelSelector,
    fields: &FieldSelector,
) -> Result<bool> {
    if labels.is_empty() && fields.is_empty() {
        return Ok(true);
    }
    if fields.rules_out(kind, &entry.value) {
        return Ok(false);
    }
    let object = load(entry)?;
    Ok(labels.matches(&object) && fields.matches(kind, &object))
}

/// Where a continued list goes on.
#[derive(Debug, Default, PartialEq)]
struct Start {
    revision: Option<u64>,
    after: Option<String>,
}

impl Start {
    fn parse(token: &str, prefix: &str) -> Result<Self> {
        if token.is_empty() {
            return Ok(Self::default());
        }
        let bad = || {
            ApiError::bad_request(
                "invalid continue token: continue key is not valid: use the one from the last list",
            )
        };
        let json = URL_SAFE_NO_PAD
            .decode(token.trim_end_matches('='))
            .map_err(|_| bad())?;
        let token: Value = serde_json::from_slice(&json).map_err(|_| bad())?;
        let start = token
            .get("start")
            .and_then(Value::as_str)
            .filter(|start| !start.is_empty())
            .ok_or_else(bad)?;
        let revision = token.get("rv").and_then(Value::as_i64).ok_or_else(bad)?;
        // A negative revision is an inconsistent continuation: go on from there, as of now.
        Ok(Self {
            revision: u64::try_from(revision).ok(),
            after: Some(format!("{prefix}{start}")),
        })
    }
}

fn token(revision: u64, after: &str, prefix: &str) -> String {
    encode_token(json!(revision), after.strip_prefix(prefix).unwrap_or(after))
}

fn encode_token(revision: Value, start: &str) -> String {
    URL_SAFE_NO_PAD
        .encode(json!({"v": "meta.k8s.io/v1", "rv": revision, "start": start}).to_string())
}

fn expired(error: ReadError, token: &str) -> ApiError {
    let ReadError::Compacted { .. } = error else {
        return read_error(error);
    };
    if token.is_empty() {
        return ApiError::expired("The resourceVersion for the provided list is too old.");
    }
    let mut error = ApiError::expired(
        "The provided continue parameter is too old to display a consistent list result. You can start a new list \
         without the continue parameter, or use the continue token in this response to retrieve the remainder of the \
         results. Continuing with the provided token results in an inconsistent list - objects that were created, \
         modified, or deleted between the time the first chunk was returned and now may show up in the list.",
    );
    let old = URL_SAFE_NO_PAD
        .decode(token)
        .ok()
        .and_then(|json| serde_json::from_slice::<Value>(&json).ok());
    if let Some(start) = old
        .as_ref()
        .and_then(|old| old.get("start"))
        .and_then(Value::as_str)
    {
        error.list_metadata = Some(json!({"continue": encode_token(json!(-1), start)}));
    }
    error
}

fn too_new(revision: u64, current: u64) -> ApiError {
    let mut error = ApiError::new(
        504,
        "Timeout",
        format!("Too large resource version: {revision}, current: {current}"),
    );
    let cause =
        json!([{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]);
    error.details.insert("causes".into(), cause);
    error.details.insert("retryAfterSeconds".into(), 1.into());
    error
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_lists() {
        let parse = |version, matching| Version::parse(version, matching, false, false);
        assert_eq!(parse("", ""), Ok(Version::Newest));
        assert_eq!(parse("0", ""), Ok(Version::Any));
        assert_eq!(parse("7", ""), Ok(Version::NotOlderThan(7)));
        assert_eq!(parse("7", "Exact"), Ok(Version::Exactly(7)));
        assert_eq!(
            Version::parse("7", "", true, false),
            Ok(Version::Exactly(7))
        );
        let table = [
            ("7", "", false, 0),
            ("7", "Exact", false, 0),
            ("0", "Exact", false, 1),
            ("", "Exact", false, 1),
            ("7", "Newest", false, 1),
            ("", "Newest", false, 2),
            ("7", "Exact", true, 1),
        ];
        for (version, matching, continued, count) in table {
            let found = Version::problems(version, matching, continued);
            assert_eq!(found.len(), count, "{version} {matching} {continued}");
        }
        assert_eq!(parse("x", "").map_err(|e| e.code), Err(400));
    }

    #[test]
    fn continue_tokens_round_trip() {
        let token = token(9, "services/a/b", "services/");
        let start = Start {
            revision: Some(9),
            after: Some("services/a/b".to_owned()),
        };
        assert_eq!(Start::parse(&token, "services/"), Ok(start));
        assert_eq!(
            Start::parse("abc", "services/").map_err(|e| e.code),
            Err(400)
        );
    }
}
