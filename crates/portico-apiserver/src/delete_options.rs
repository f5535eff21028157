//! How an object is to be deleted: from the body of the request or, without one, from its query.

use crate::decode;
use crate::registry::{DeleteOptions, Dependents};
use crate::request::Query;
use portico_api::field::{self, Errors, Path};
use portico_api::object;
use portico_api::status::{ApiError, Result};
use serde_json::{Map, Value};

/// A body says it all: with one, the query does not count.
pub(crate) fn parse(content_type: &str, body: &[u8], query: &Query) -> Result<DeleteOptions> {
    let options = match body {
        [] => from_query(query)?,
        body => decode::delete_options(content_type, body)?,
    };
    let (dependents, mut errors) = dependents(&options);
    let dry_run: Vec<&str> = object::items(&options, "dryRun")
        .iter()
        .filter_map(Value::as_str)
        .collect();
    errors.extend(decode::dry_run_problems(&dry_run));
    if !errors.is_empty() {
        return Err(ApiError::invalid(
            "meta.k8s.io",
            "DeleteOptions",
            "",
            &errors,
        ));
    }
    let text = |path: &str| object::at(&options, path).as_str().map(str::to_owned);
    Ok(DeleteOptions {
        uid: text("preconditions.uid"),
        resource_version: text("preconditions.resourceVersion"),
        dry_run: !dry_run.is_empty(),
        dependents,
        guard: None,
    })
}

fn from_query(query: &Query) -> Result<Value> {
    let mut options = Map::new();
    let mut preconditions = Map::new();
    query.number("gracePeriodSeconds")?;
    if let Some(policy) = query.get("propagationPolicy") {
        options.insert("propagationPolicy".into(), policy.into());
    }
    if let Some(orphan) = query.optional_flag("orphanDependents") {
        options.insert("orphanDependents".into(), orphan.into());
    }
    for key in ["uid", "resourceVersion"] {
        preconditions.extend(query.get(key).map(|value| (key.to_owned(), value.into())));
    }
    options.insert("preconditions".into(), preconditions.into());
    options.insert(
        "dryRun".into(),
        query.all("dryRun").collect::<Vec<_>>().into(),
    );
    Ok(options.into())
}

/// What becomes of the objects that name the deleted one as their owner.
fn dependents(options: &Value) -> (Option<Dependents>, Errors) {
    let path = Path::new("propagationPolicy");
    let mut errors = Errors::new();
    let orphan = object::at(options, "orphanDependents").as_bool();
    let policy = object::at(options, "propagationPolicy").as_str();
    if let (Some(_), Some(policy)) = (orphan, policy) {
        let why = "orphanDependents and deletionPropagation cannot be both set";
        errors.push(field::Error::invalid(&path, policy, why));
    }
    let dependents = match (orphan, policy) {
        (Some(true), _) | (_, Some("Orphan")) => Some(Dependents::Orphan),
        (Some(false), _) | (_, Some("Background")) => Some(Dependents::Background),
        (_, Some("Foreground")) => Some(Dependents::Foreground),
        (None, None) => None,
        (None, Some(other)) => {
            errors.push(field::Error::not_supported(
                &path,
                other,
                &["Foreground", "Background", "Orphan", "nil"],
            ));
            None
        }
    };
    (dependents, errors)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from(body: &str, query: &str) -> Result<DeleteOptions> {
        parse("application/json", body.as_bytes(), &Query::parse(query))
    }

    #[test]
    fn the_query_counts_only_without_a_body() {
        let options = from(
            "",
            "dryRun=All&uid=u&resourceVersion=7&propagationPolicy=Orphan",
        )
        .expect("good");
        assert!(options.dry_run);
        assert_eq!(options.uid.as_deref(), Some("u"));
        assert_eq!(options.resource_version.as_deref(), Some("7"));
        assert_eq!(options.dependents, Some(Dependents::Orphan));
        assert!(
            !from(r#"{"gracePeriodSeconds":0}"#, "dryRun=All")
                .expect("good")
                .dry_run
        );
    }

    #[test]
    fn what_happens_to_dependents() {
        let table = [
            ("{}", "", None),
            (r#"{"orphanDependents":true}"#, "", Some(Dependents::Orphan)),
            (
                r#"{"orphanDependents":false}"#,
                "",
                Some(Dependents::Background),
            ),
            (
                r#"{"propagationPolicy":"Foreground"}"#,
                "",
                Some(Dependents::Foreground),
            ),
            ("", "orphanDependents=no", Some(Dependents::Orphan)),
            ("", "orphanDependents=0", Some(Dependents::Background)),
        ];
        for (body, query, wanted) in table {
            assert_eq!(
                from(body, query).expect("good").dependents,
                wanted,
                "{body}{query}"
            );
        }
    }

    #[test]
    fn mistakes() {
        let table = [
            ("", "gracePeriodSeconds=x", 400),
            ("{", "", 400),
            (r#"{"propagationPolicy":""}"#, "", 422),
            ("", "propagationPolicy=", 422),
            ("", "propagationPolicy=Bad", 422),
            (
                r#"{"propagationPolicy":"Orphan","orphanDependents":true}"#,
                "",
                422,
            ),
            (r#"{"dryRun":["Some"]}"#, "", 422),
        ];
        for (body, query, code) in table {
            assert_eq!(
                from(body, query).map_err(|error| error.code).err(),
                Some(code),
                "{body}{query}"
            );
        }
    }
}
