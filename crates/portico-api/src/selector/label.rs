//! Label selectors: `a=b,c!=d,e in (x,y),!f,g,h>3`, and their object form.

use crate::field::{Error, Path};
use crate::status::ApiError;
use crate::{names, object};
use serde_json::Value;
use std::collections::BTreeSet;
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
        let mut requirements = Parser::new(text).selector().map_err(ApiError::bad_request)?;
        requirements.sort_by(|a, b| a.key.cmp(&b.key));
        Ok(Self { requirements, nothing: false })
    }

    /// The object form: `matchLabels` and `matchExpressions`. An empty one selects everything, none at all nothing.
    pub fn from_object(selector: Option<&Value>) -> Result<Self, String> {
        let Some(selector) = selector.filter(|selector| !selector.is_null()) else {
            return Ok(Self { requirements: Vec::new(), nothing: true });
        };
        let mut requirements = Vec::new();
        for (key, value) in object::at(selector, "matchLabels").as_object().into_iter().flatten() {
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
            let values = object::items(expression, "values").iter().filter_map(Value::as_str).map(str::to_owned);
            requirements.push(Requirement::new(object::text(expression, "key"), operator, values.collect())?);
        }
        Ok(Self { requirements, nothing: false })
    }

    /// Selects everything.
    pub fn is_empty(&self) -> bool {
        self.requirements.is_empty() && !self.nothing
    }

    /// Do the labels of this object match?
    pub fn matches(&self, object: &Value) -> bool {
        self.matches_labels(object.get("metadata").and_then(|metadata| metadata.get("labels")).unwrap_or(&Value::Null))
    }

    pub fn matches_labels(&self, labels: &Value) -> bool {
        let meets =
            |requirement: &Requirement| requirement.matches(labels.get(&requirement.key).and_then(Value::as_str));
        !self.nothing && self.requirements.iter().all(meets)
    }
}

impl Requirement {
    fn new(key: &str, operator: Operator, values: Vec<String>) -> Result<Self, String> {
        let mut errors: Vec<String> = key_problem(key, "key").into_iter().collect();
        let values_path = Path::new("values");
        let wrong = |path: &Path, value: Value, message: &str| Error::invalid(path, value, message).to_string();
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
                let not_numbers = values.iter().enumerate().filter(|(_, value)| value.parse::<i64>().is_err());
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
                errors.push(wrong(&values_path.index(index).key(key), value.as_str().into(), &problems.join("; ")));
            }
        }
        match errors.as_slice() {
            [] => Ok(Self { key: key.to_owned(), operator, values }),
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
    (!problems.is_empty()).then(|| Error::invalid(&Path::new(path), key, problems.join("; ")).to_string())
}

impl fmt::Display for LabelSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, Requirement { key, operator, values }) in self.requirements.iter().enumerate() {
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

/// A symbol such as `!=`, or an identifier. `in` and `notin` are identifiers that stand where an operator is expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token<'a> {
    Identifier(&'a str),
    Symbol(&'a str),
    End,
}

impl<'a> Token<'a> {
    fn text(self) -> &'a str {
        match self {
            Self::Identifier(text) | Self::Symbol(text) => text,
            Self::End => "",
        }
    }
}

const SYMBOLS: &[char] = &['=', '!', '(', ')', ',', '>', '<'];
const BLANKS: &[char] = &[' ', '\t', '\r', '\n'];

struct Parser<'a> {
    rest: &'a str,
}

impl<'a> Parser<'a> {
    fn new(text: &'a str) -> Self {
        Self { rest: text }
    }

    fn peek(&self) -> Token<'a> {
        let text = self.rest.trim_start_matches(BLANKS);
        let length = match text.chars().next() {
            None => return Token::End,
            Some(first) if SYMBOLS.contains(&first) => {
                let length = if text.starts_with("==") || text.starts_with("!=") { 2 } else { 1 };
                return Token::Symbol(text.get(..length).unwrap_or_default());
            }
            Some(_) => text.find(|c| SYMBOLS.contains(&c) || BLANKS.contains(&c)).unwrap_or(text.len()),
        };
        Token::Identifier(text.get(..length).unwrap_or_default())
    }

    fn next(&mut self) -> Token<'a> {
        let token = self.peek();
        let text = self.rest.trim_start_matches(BLANKS);
        self.rest = text.get(token.text().len()..).unwrap_or_default();
        token
    }

    fn selector(&mut self) -> Result<Vec<Requirement>, String> {
        let mut requirements = Vec::new();
        if self.peek() == Token::End {
            return Ok(requirements);
        }
        loop {
            match self.peek() {
                Token::Identifier(_) | Token::Symbol("!") => {}
                other if requirements.is_empty() => {
                    return Err(format!("found '{}', expected: !, identifier, or 'end of string'", other.text()));
                }
                other => return Err(format!("found '{}', expected: identifier after ','", other.text())),
            }
            let requirement = self.requirement();
            requirements.push(requirement.map_err(|error| format!("unable to parse requirement: {error}"))?);
            match self.next() {
                Token::End => return Ok(requirements),
                Token::Symbol(",") => {}
                other => return Err(format!("found '{}', expected: ',' or 'end of string'", other.text())),
            }
        }
    }

    fn requirement(&mut self) -> Result<Requirement, String> {
        let absent = self.peek() == Token::Symbol("!");
        if absent {
            self.next();
        }
        let key = match self.next() {
            Token::Identifier(key) => key,
            other => return Err(format!("found '{}', expected: identifier", other.text())),
        };
        if let Some(problem) = key_problem(key, "<nil>") {
            return Err(problem);
        }
        if absent {
            return Requirement::new(key, Operator::DoesNotExist, Vec::new());
        }
        if matches!(self.peek(), Token::End | Token::Symbol(",")) {
            return Requirement::new(key, Operator::Exists, Vec::new());
        }
        let (operator, values) = match self.next() {
            Token::Identifier("in") => (Operator::In, self.values()?),
            Token::Identifier("notin") => (Operator::NotIn, self.values()?),
            Token::Symbol("=" | "==") => (Operator::In, self.value()?),
            Token::Symbol("!=") => (Operator::NotIn, self.value()?),
            Token::Symbol(">") => (Operator::GreaterThan, self.value()?),
            Token::Symbol("<") => (Operator::LessThan, self.value()?),
            other => {
                return Err(format!("found '{}', expected: in, notin, =, ==, !=, gt, lt", other.text()));
            }
        };
        Requirement::new(key, operator, values)
    }

    fn value(&mut self) -> Result<Vec<String>, String> {
        if matches!(self.peek(), Token::End | Token::Symbol(",")) {
            return Ok(vec![String::new()]);
        }
        match self.next() {
            Token::Identifier(value) => Ok(vec![value.to_owned()]),
            other => Err(format!("found '{}', expected: identifier", other.text())),
        }
    }

    /// `(a,b)`; nothing between commas or parentheses is the empty value.
    fn values(&mut self) -> Result<Vec<String>, String> {
        match self.next() {
            Token::Symbol("(") => {}
            other => return Err(format!("found '{}' expected: '('", other.text())),
        }
        let mut values = BTreeSet::new();
        loop {
            let value = match self.peek() {
                Token::Identifier(value) => {
                    self.next();
                    value
                }
                Token::Symbol("," | ")") => "",
                other => return Err(format!("found '{}', expected: ',', ')' or identifier", other.text())),
            };
            values.insert(value.to_owned());
            match self.next() {
                Token::Symbol(",") => {}
                Token::Symbol(")") => return Ok(values.into_iter().collect()),
                other => return Err(format!("found '{}', expected: ',' or ')'", other.text())),
            }
        }
    }
}

#[cfg(test)]
mod tests;
