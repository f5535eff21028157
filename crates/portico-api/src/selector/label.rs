//! Label selectors: `a=b,c!=d,e in (x,y),!f,g,h>3`, and their object form.

mod parse;

use crate::field::{Error, Path};
use crate::status::ApiError;
use crate::{names, object};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Requirements that labels must meet, all of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelSelector {
    requirements: Vec<Requirement>,
    /// The same, put together by key: what is matched against.
    wanted: BTreeMap<String, Wanted>,
    /// How many keys must be there.
    needed: usize,
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
        super::check_terms(
            "labelSelector",
            requirements.iter().map(Requirement::terms).sum(),
        )?;
        requirements.sort_by(|a, b| a.key.cmp(&b.key));
        Ok(Self::of(requirements))
    }

    fn of(requirements: Vec<Requirement>) -> Self {
        let mut wanted: BTreeMap<String, Wanted> = BTreeMap::new();
        for requirement in &requirements {
            wanted
                .entry(requirement.key.clone())
                .or_default()
                .add(requirement);
        }
        Self {
            needed: wanted.values().filter(|wanted| wanted.present).count(),
            wanted,
            requirements,
            nothing: false,
        }
    }

    /// The object form: `matchLabels` and `matchExpressions`. An empty one selects everything, none
    /// at all nothing.
    pub fn from_object(selector: Option<&Value>) -> Result<Self, String> {
        let Some(selector) = selector.filter(|selector| !selector.is_null()) else {
            return Ok(Self {
                nothing: true,
                ..Self::default()
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
        Ok(Self::of(requirements))
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

    /// The time that this takes grows with the number of labels, and hardly with that of
    /// requirements.
    pub fn matches_labels(&self, labels: &Value) -> bool {
        let labels = || {
            let all = labels.as_object().into_iter().flatten();
            all.filter_map(|(key, value)| Some((key, value.as_str()?)))
        };
        let mut found = 0;
        !self.nothing
            && (self.wanted.is_empty()
                || labels().all(|(key, value)| {
                    let Some(wanted) = self.wanted.get(key) else {
                        return true;
                    };
                    found += usize::from(wanted.present);
                    wanted.allows(value)
                }) && found == self.needed)
    }
}

/// What the requirements of one key come to together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Wanted {
    /// The label must be there.
    present: bool,
    /// It must not.
    absent: bool,
    /// It must have one of these values.
    among: Option<BTreeSet<String>>,
    /// It must have none of these.
    others: BTreeSet<String>,
    /// Or it must be a number between these.
    greater: Option<i64>,
    less: Option<i64>,
}

impl Wanted {
    fn add(&mut self, requirement: &Requirement) {
        let values = requirement.values.iter();
        let number = || requirement.values.first()?.parse::<i64>().ok();
        self.present |= !matches!(
            requirement.operator,
            Operator::NotIn | Operator::DoesNotExist
        );
        match requirement.operator {
            Operator::In => {
                let allowed = |value: &&String| {
                    self.among
                        .as_ref()
                        .is_none_or(|among| among.contains(*value))
                };
                self.among = Some(values.filter(allowed).cloned().collect());
            }
            Operator::NotIn => self.others.extend(values.cloned()),
            Operator::Exists => {}
            Operator::DoesNotExist => self.absent = true,
            Operator::GreaterThan => self.greater = self.greater.max(number()),
            Operator::LessThan => {
                self.less = [self.less, number()].into_iter().flatten().min();
            }
        }
    }

    /// May the label, which is there, have this value?
    fn allows(&self, label: &str) -> bool {
        let among = self
            .among
            .as_ref()
            .is_none_or(|among| among.contains(label));
        let number = || label.parse::<i64>().ok();
        among
            && !self.absent
            && !self.others.contains(label)
            && self
                .greater
                .is_none_or(|least| number().is_some_and(|number| number > least))
            && self
                .less
                .is_none_or(|most| number().is_some_and(|number| number < most))
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

    fn terms(&self) -> usize {
        self.values.len().max(1)
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
