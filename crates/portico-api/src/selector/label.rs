//! Label selectors: `a=b,c!=d,e in (x,y),!f,g,h>3`, and their object form.

mod parse;

use crate::field::{Error, Path};
use crate::status::ApiError;
use crate::{names, object};
use serde_json::Value;
use std::fmt;

/// Requirements that labels must meet, all of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelSelector {
    requirements: Vec<Requirement>,
    nothing: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Requirement {
    key: String,
    operator: Operator,
    values: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
    GreaterThan,
    LessThan,
}

impl LabelSelector {
    /// Parse the `labelSelector` of a request. No text selects everything.
    pub fn parse(text: &str) -> Result<Self, ApiError> {
        let mut requirements = parse::requirements(text).map_err(ApiError::bad_request)?;
        requirements.sort_by(|a, b| a.key.cmp(&b.key));
        Ok(Self {
            requirements,
            nothing: false,
        })
    }

    /// The object form: `matchLabels` and `matchExpressions`. An empty one selects everything, none
    /// at all nothing.
    pub fn from_object(selector: Option<&Value>) -> Result<Self, String> {
        let Some(selector) = selector.filter(|selector| !selector.is_null()) else {
            return Ok(Self {
                requirements: Vec::new(),
                nothing: true,
            });
        };
        let mut requirements = Vec::new();
        for (key, value) in object::at(selector, "matchLabels")
            .as_object()
            .into_iter()
            .flatten()
        {
            let values = vec![value.as_str().unwrap_or_default().to_owned()];
            requirements.push(Requirement::new(key, Operator::In, values)?);
        }
        for expression in object::items(selector, "matchExpressions") {
            let operator = match object::text(expression, "operator") {
                "In" => Operator::In,
                "NotIn" => Operator::NotIn,
                "Exists" => Operator::Exists,
                "DoesNotExist" => Operator::DoesNotExist,
                other => return Err(format!("{other:?} is not a valid label selector operator")),
            };
            let values = object::items(expression, "values")
                .iter()
                .filter_map(Value::as_str)
                .map(str::to_owned);
            requirements.push(Requirement::new(
                object::text(expression, "key"),
                operator,
                values.collect(),
            )?);
        }
        Ok(Self {
            requirements,
            nothing: false,
        })
    }

    /// Selects everything.
    pub fn is_empty(&self) -> bool {
        self.requirements.is_empty() && !self.nothing
    }

    /// Do the labels of this object match?
    pub fn matches(&self, object: &Value) -> bool {
        self.matches_labels(
            object
                .get("metadata")
                .and_then(|metadata| metadata.get("labels"))
                .unwrap_or(&Value::Null),
        )
    }

    pub fn matches_labels(&self, labels: &Value) -> bool {
        let meets = |requirement: &Requirement| {
            requirement.matches(labels.get(&requirement.key).and_then(Value::as_str))
        };
        !self.nothing && self.requirements.iter().all(meets)
    }
}

impl Requirement {
    fn new(key: &str, operator: Operator, values: Vec<String>) -> Result<Self, String> {
        let mut errors: Vec<String> = key_problem(key, "key").into_iter().collect();
        let values_path = Path::new("values");
        let wrong = |path: &Path, value: Value, message: &str| {
            Error::invalid(path, value, message).to_string()
        };
        match operator {
            Operator::In | Operator::NotIn if values.is_empty() => errors.push(wrong(
                &values_path,
                Value::Array(Vec::new()),
                "for 'in', 'notin' operators, values set can't be empty",
            )),
            Operator::Exists | Operator::DoesNotExist if !values.is_empty() => errors.push(wrong(
                &values_path,
                values.clone().into(),
                "values set must be empty for exists and does not exist",
            )),
            Operator::GreaterThan | Operator::LessThan => {
                let not_numbers = values
                    .iter()
                    .enumerate()
                    .filter(|(_, value)| value.parse::<i64>().is_err());
                errors.extend(not_numbers.map(|(index, value)| {
                    let message = "for 'Gt', 'Lt' operators, the value must be an integer";
                    wrong(&values_path.index(index), value.as_str().into(), message)
                }));
            }
            _ => {}
        }
        for (index, value) in values.iter().enumerate() {
            let problems = names::label_value(value);
            if !problems.is_empty() {
                errors.push(wrong(
                    &values_path.index(index).key(key),
                    value.as_str().into(),
                    &problems.join("; "),
                ));
            }
        }
        match errors.as_slice() {
            [] => Ok(Self {
                key: key.to_owned(),
                operator,
                values,
            }),
            [one] => Err(one.clone()),
            many => Err(format!("[{}]", many.join(", "))),
        }
    }

    fn matches(&self, label: Option<&str>) -> bool {
        match self.operator {
            Operator::In => label.is_some_and(|label| self.has(label)),
            Operator::NotIn => !label.is_some_and(|label| self.has(label)),
            Operator::Exists => label.is_some(),
            Operator::DoesNotExist => label.is_none(),
            Operator::GreaterThan => self.compare(label).is_some_and(std::cmp::Ordering::is_gt),
            Operator::LessThan => self.compare(label).is_some_and(std::cmp::Ordering::is_lt),
        }
    }

    fn has(&self, label: &str) -> bool {
        self.values.iter().any(|value| value == label)
    }

    /// How a label compares with the wanted number; a label that is no number does not.
    fn compare(&self, label: Option<&str>) -> Option<std::cmp::Ordering> {
        let wanted: i64 = self.values.first()?.parse().ok()?;
        Some(label?.parse::<i64>().ok()?.cmp(&wanted))
    }
}

fn key_problem(key: &str, path: &str) -> Option<String> {
    let problems = names::qualified_name(key);
    (!problems.is_empty())
        .then(|| Error::invalid(&Path::new(path), key, problems.join("; ")).to_string())
}

impl fmt::Display for LabelSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (
            index,
            Requirement {
                key,
                operator,
                values,
            },
        ) in self.requirements.iter().enumerate()
        {
            f.write_str(if index > 0 { "," } else { "" })?;
            let joined = values.join(",");
            match (operator, values.len()) {
                (Operator::In, 1) => write!(f, "{key}={joined}")?,
                (Operator::NotIn, 1) => write!(f, "{key}!={joined}")?,
                (Operator::In, _) => write!(f, "{key} in ({joined})")?,
                (Operator::NotIn, _) => write!(f, "{key} notin ({joined})")?,
                (Operator::Exists, _) => write!(f, "{key}")?,
                (Operator::DoesNotExist, _) => write!(f, "!{key}")?,
                (Operator::GreaterThan, _) => write!(f, "{key}>{joined}")?,
                (Operator::LessThan, _) => write!(f, "{key}<{joined}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
