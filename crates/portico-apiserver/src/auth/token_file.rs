//! Static bearer tokens from a file: `token,user,uid,"group1,group2"` on each line.
//!
//! Tokens are not kept. A keyed digest of each is, with a key made at start: finding one then takes
//! no time that tells anything about the tokens, and nothing that is printed can give one away.

use super::user::User;
use ring::hmac;
use std::collections::HashMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// The tokens of a `--token-auth-file`.
pub(crate) struct TokenFile {
    key: hmac::Key,
    users: HashMap<Vec<u8>, User>,
}

impl fmt::Debug for TokenFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenFile")
            .field("tokens", &self.users.len())
            .finish_non_exhaustive()
    }
}

/// What is wrong with a token file. Names the line, never what stands in it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("cannot read the token file {path}: check --token-auth-file", path = path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("token file, line {line}: {what}; a line is token,user,uid,\"group1,group2\"")]
    Line { line: usize, what: &'static str },
    #[error("no random numbers to be had from the system")]
    NoRandom,
}

impl TokenFile {
    pub(crate) fn read(path: &Path) -> Result<Self, Error> {
        let text = std::fs::read_to_string(path).map_err(|source| Error::Read {
            path: path.to_owned(),
            source,
        })?;
        Self::parse(&text)
    }

    pub(crate) fn parse(text: &str) -> Result<Self, Error> {
        let key = hmac::Key::generate(hmac::HMAC_SHA256, &ring::rand::SystemRandom::new())
            .map_err(|_| Error::NoRandom)?;
        let mut file = Self {
            key,
            users: HashMap::new(),
        };
        for (number, line) in text
            .lines()
            .enumerate()
            .filter(|(_, line)| !line.trim().is_empty())
        {
            file.add(line).map_err(|what| Error::Line {
                line: number + 1,
                what,
            })?;
        }
        Ok(file)
    }

    /// The user of this token.
    pub(crate) fn user(&self, token: &str) -> Option<&User> {
        self.users.get(&self.digest(token))
    }

    fn digest(&self, token: &str) -> Vec<u8> {
        hmac::sign(&self.key, token.as_bytes()).as_ref().to_vec()
    }

    fn add(&mut self, line: &str) -> Result<(), &'static str> {
        let fields = fields(line)?;
        let [token, name, uid, more @ ..] = fields.as_slice() else {
            return Err("fewer than three columns");
        };
        if token.is_empty() {
            return Err("the token is empty");
        }
        if name.is_empty() {
            return Err("the user is empty");
        }
        let groups = more
            .first()
            .map(String::as_str)
            .unwrap_or_default()
            .split(',');
        let groups = groups
            .filter(|group| !group.is_empty())
            .map(str::to_owned)
            .collect();
        let user = User {
            name: name.clone(),
            uid: uid.clone(),
            groups,
            ..User::default()
        };
        match self.users.insert(self.digest(token), user) {
            Some(_) => Err("the token stands on an earlier line too"),
            None => Ok(()),
        }
    }
}

/// The columns of one CSV line; a column in quotes may hold commas, and quotes written twice.
fn fields(line: &str) -> Result<Vec<String>, &'static str> {
    let mut fields = Vec::new();
    let mut rest = Some(line);
    while let Some(text) = rest {
        let (field, after) = match text.strip_prefix('"') {
            Some(quoted) => quoted_field(quoted)?,
            None => plain_field(text)?,
        };
        fields.push(field);
        rest = after;
    }
    Ok(fields)
}

fn plain_field(text: &str) -> Result<(String, Option<&str>), &'static str> {
    let (field, rest) = match text.split_once(',') {
        Some((field, rest)) => (field, Some(rest)),
        None => (text, None),
    };
    if field.contains('"') {
        Err("a quote inside a column that has none around it")
    } else {
        Ok((field.to_owned(), rest))
    }
}

fn quoted_field(mut text: &str) -> Result<(String, Option<&str>), &'static str> {
    let mut field = String::new();
    loop {
        let (part, rest) = text.split_once('"').ok_or("a quote is not closed")?;
        field.push_str(part);
        match rest.chars().next() {
            None => return Ok((field, None)),
            Some(',') => return Ok((field, rest.get(1..))),
            Some('"') => {
                field.push('"');
                text = rest.get(1..).unwrap_or_default();
            }
            Some(_) => return Err("text after a closing quote"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_name_users() {
        let text = "t0ken-a,ann,1\n\nt0ken-b,bob,2,\"dev,ops\"\n\"to\"\"ken,c\",cy,3,one,ignored\n";
        let file = TokenFile::parse(text).unwrap();
        assert_eq!(
            file.user("t0ken-a"),
            Some(&User {
                uid: "1".into(),
                ..User::new("ann", &[])
            })
        );
        assert_eq!(
            file.user("t0ken-b"),
            Some(&User {
                uid: "2".into(),
                ..User::new("bob", &["dev", "ops"])
            })
        );
        assert_eq!(
            file.user("to\"ken,c").map(|user| user.name.as_str()),
            Some("cy")
        );
        for wrong in ["", "t0ken", "t0ken-A", "t0ken-a ", "ann"] {
            assert_eq!(file.user(wrong), None, "{wrong}");
        }
        assert_eq!(format!("{file:?}"), "TokenFile { tokens: 3, .. }");
    }

    #[test]
    fn errors_name_the_line_and_not_the_token() {
        let cases = [
            ("a,b,c\nsecret,ann\n", 2, "fewer than three columns"),
            ("\n\n,ann,1\n", 3, "the token is empty"),
            ("secret,,1\n", 1, "the user is empty"),
            ("secret,ann,1,\"dev\n", 1, "a quote is not closed"),
            ("secret,ann,1,\"dev\"x\n", 1, "text after a closing quote"),
            (
                "sec\"ret,ann,1\n",
                1,
                "a quote inside a column that has none around it",
            ),
            (
                "secret,ann,1\nsecret,bob,2\n",
                2,
                "the token stands on an earlier line too",
            ),
        ];
        for (text, wanted_line, wanted) in cases {
            let error = TokenFile::parse(text).unwrap_err();
            assert!(
                matches!(error, Error::Line { line, what } if line == wanted_line && what == wanted),
                "{text:?}"
            );
            assert!(!format!("{error} {error:?}").contains("sec"), "{text:?}");
        }
    }

    #[test]
    fn a_missing_file_is_named() {
        let error = TokenFile::read(Path::new("/nowhere/tokens.csv")).unwrap_err();
        assert!(error.to_string().contains("/nowhere/tokens.csv"));
    }
}
