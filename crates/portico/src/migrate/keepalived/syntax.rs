//! The syntax of keepalived.conf: words, blocks, comments, definitions. Pure.

use std::collections::BTreeMap;
use std::iter::Peekable;
use std::vec::IntoIter;

/// `word word … { … }`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Statement {
    pub line: usize,
    pub words: Vec<String>,
    pub block: Option<Vec<Self>>,
}

impl Statement {
    pub(super) fn keyword(&self) -> &str {
        self.word(0)
    }

    /// The word at a place, or nothing.
    pub(super) fn word(&self, place: usize) -> &str {
        self.words.get(place).map_or("", String::as_str)
    }

    pub(super) fn block(&self) -> &[Self] {
        self.block.as_deref().unwrap_or_default()
    }

    /// As it was written, on one line.
    pub(super) fn text(&self) -> String {
        let words = self.words.join(" ");
        if self.block.is_some() {
            format!("{words} {{…}}")
        } else {
            words
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Word(String),
    Open,
    Close,
    End,
}

type Tokens = Peekable<IntoIter<(usize, Token)>>;

pub(super) fn parse(text: &str) -> Result<Vec<Statement>, String> {
    let mut tokens = tokens(text)?.into_iter().peekable();
    let statements = block(&mut tokens, None)?;
    Ok(statements)
}

/// Statements up to the brace that ends the block, or to the end of the file.
fn block(tokens: &mut Tokens, opened: Option<usize>) -> Result<Vec<Statement>, String> {
    let mut out = Vec::new();
    let mut words = Vec::new();
    let mut at = 0;
    while let Some((line, token)) = tokens.next() {
        match token {
            Token::Word(word) => {
                at = if words.is_empty() { line } else { at };
                words.push(word);
            }
            // The brace of a block may stand on the next line.
            Token::End if next_is_open(tokens) => {}
            Token::End => flush(&mut out, &mut words, at),
            Token::Open => {
                let inner = block(tokens, Some(line))?;
                out.push(Statement {
                    line: at,
                    words: std::mem::take(&mut words),
                    block: Some(inner),
                });
            }
            Token::Close => {
                flush(&mut out, &mut words, at);
                return match opened {
                    Some(_) => Ok(out),
                    None => Err(format!("line {line}: there is a }} without its {{")),
                };
            }
        }
    }
    match opened {
        Some(line) => Err(format!("line {line}: the {{ has no }}")),
        None => {
            flush(&mut out, &mut words, at);
            Ok(out)
        }
    }
}

fn next_is_open(tokens: &mut Tokens) -> bool {
    while matches!(tokens.peek(), Some((_, Token::End))) {
        tokens.next();
    }
    matches!(tokens.peek(), Some((_, Token::Open)))
}

fn flush(out: &mut Vec<Statement>, words: &mut Vec<String>, line: usize) {
    if !words.is_empty() {
        out.push(Statement {
            line,
            words: std::mem::take(words),
            block: None,
        });
    }
}

fn tokens(text: &str) -> Result<Vec<(usize, Token)>, String> {
    let mut definitions: BTreeMap<String, String> = BTreeMap::new();
    let mut out = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let (number, trimmed) = (index + 1, line.trim());
        if let Some((name, value)) = definition(trimmed) {
            definitions.insert(name.to_owned(), expand(value, &definitions));
            continue;
        }
        let continued = line.trim_end().ends_with('\\');
        let line = line.trim_end().trim_end_matches('\\');
        let words = words(&expand(line, &definitions))
            .map_err(|problem| format!("line {number}: {problem}"))?;
        out.extend(words.into_iter().map(|token| (number, token)));
        if !continued {
            out.push((number, Token::End));
        }
    }
    Ok(out)
}

/// `$NAME=value`.
fn definition(line: &str) -> Option<(&str, &str)> {
    let (name, value) = line.strip_prefix('$')?.split_once('=')?;
    let plain = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    plain.then(|| (name, value.trim()))
}

/// With definitions in the place of `$NAME` and `${NAME}`.
fn expand(text: &str, definitions: &BTreeMap<String, String>) -> String {
    let mut out = text.to_owned();
    // The longest name first: it may begin with another.
    for (name, value) in definitions.iter().rev() {
        out = out
            .replace(&format!("${{{name}}}"), value)
            .replace(&format!("${name}"), value);
    }
    out
}

fn words(line: &str) -> Result<Vec<Token>, String> {
    let (mut out, mut rest) = (Vec::new(), line.trim_start());
    while let Some(first) = rest.chars().next() {
        let (token, after) = match first {
            '#' | '!' => break,
            '{' => (Token::Open, &rest[1..]),
            '}' => (Token::Close, &rest[1..]),
            quote @ ('"' | '\'') => {
                let (word, after) = rest[1..]
                    .split_once(quote)
                    .ok_or_else(|| format!("the {quote} is not closed"))?;
                (Token::Word(word.to_owned()), after)
            }
            _ => {
                let end = rest
                    .find(|c: char| c.is_whitespace() || c == '{' || c == '}' || c == '#')
                    .unwrap_or(rest.len());
                let (word, after) = rest.split_at(end);
                (Token::Word(word.to_owned()), after)
            }
        };
        out.push(token);
        rest = after.trim_start();
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(statements: &[Statement]) -> String {
        let one = |statement: &Statement| {
            let block = statement
                .block
                .as_ref()
                .map(|block| format!("{{{}}}", shown(block)))
                .unwrap_or_default();
            format!("{}:{}{block}", statement.line, statement.words.join("|"))
        };
        statements.iter().map(one).collect::<Vec<_>>().join(";")
    }

    #[test]
    fn every_way_to_write_it() {
        let table = [
            ("a b\n", "1:a|b"),
            ("# c\n! d\na b # c\n", "3:a|b"),
            ("a {\n  b c\n}\n", "1:a{2:b|c}"),
            ("a\n{\n b\n}\nc", "1:a{3:b};5:c"),
            ("a { b c }", "1:a{1:b|c}"),
            ("a { b { c } d }", "1:a{1:b{1:c};1:d}"),
            ("script \"/bin/x -y\" 'z !'\n", "1:script|/bin/x -y|z !"),
            (
                "$IF=eth0\ninterface $IF\ndev ${IF}.7",
                "2:interface|eth0;3:dev|eth0.7",
            ),
            ("a \\\n b\nc", "1:a|b;3:c"),
            ("a {\n}\n", "1:a{}"),
            ("", ""),
        ];
        for (text, expected) in table {
            assert_eq!(shown(&parse(text).unwrap()), expected, "{text}");
        }
    }

    #[test]
    fn what_is_open_is_told_with_its_line() {
        for (text, problem) in [
            ("a {\n b", "line 1: the { has no }"),
            ("a\n}", "line 2: there is a } without its {"),
            ("script \"x", "line 1: the \" is not closed"),
        ] {
            assert_eq!(parse(text).unwrap_err(), problem);
        }
    }
}
