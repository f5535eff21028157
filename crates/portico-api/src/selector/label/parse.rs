//! The grammar of label selectors in a request.

use super::{Operator, Requirement, key_problem};
use std::collections::BTreeSet;

pub(super) fn requirements(text: &str) -> Result<Vec<Requirement>, String> {
    Parser { rest: text }.selector()
}

/// A symbol such as `!=`, or an identifier. `in` and `notin` are identifiers that stand where an
/// operator is expected.
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
    fn peek(&self) -> Token<'a> {
        let text = self.rest.trim_start_matches(BLANKS);
        let length = match text.chars().next() {
            None => return Token::End,
            Some(first) if SYMBOLS.contains(&first) => {
                let length = if text.starts_with("==") || text.starts_with("!=") {
                    2
                } else {
                    1
                };
                return Token::Symbol(text.get(..length).unwrap_or_default());
            }
            Some(_) => text
                .find(|c| SYMBOLS.contains(&c) || BLANKS.contains(&c))
                .unwrap_or(text.len()),
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
                    return Err(format!(
                        "found '{}', expected: !, identifier, or 'end of string'",
                        other.text()
                    ));
                }
                other => {
                    return Err(format!(
                        "found '{}', expected: identifier after ','",
                        other.text()
                    ));
                }
            }
            let requirement = self.requirement();
            requirements.push(
                requirement.map_err(|error| format!("unable to parse requirement: {error}"))?,
            );
            match self.next() {
                Token::End => return Ok(requirements),
                Token::Symbol(",") => {}
                other => {
                    return Err(format!(
                        "found '{}', expected: ',' or 'end of string'",
                        other.text()
                    ));
                }
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
                return Err(format!(
                    "found '{}', expected: in, notin, =, ==, !=, gt, lt",
                    other.text()
                ));
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
                other => {
                    return Err(format!(
                        "found '{}', expected: ',', ')' or identifier",
                        other.text()
                    ));
                }
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
