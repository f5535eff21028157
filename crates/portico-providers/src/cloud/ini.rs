//! Configuration files as the cloud controllers of Kubernetes read them: sections with keys, a key
//! several times for several values, names without regard to case. A reader asks for the keys it
//! knows; the other keys are named as unknown.

use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IniError {
    #[error("line {line}: neither a [section] nor a key = value: {text:?}")]
    Line { line: usize, text: String },
    #[error("[{section}] {key} = {value:?}: {problem}")]
    Value {
        section: String,
        key: String,
        value: String,
        problem: String,
    },
    #[error("not known: {0} (known in [{1}]: {2})")]
    Unknown(String, String, String),
}

/// A file. A section `[Name "sub"]` is called `name "sub"`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ini {
    sections: BTreeMap<String, Section>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Section {
    name: String,
    values: BTreeMap<String, Vec<String>>,
}

impl Ini {
    pub(crate) fn parse(text: &str) -> Result<Self, IniError> {
        let (mut ini, mut section) = (Self::default(), String::new());
        for (number, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with([';', '#']) {
                continue;
            }
            if let Some(name) = line
                .strip_prefix('[')
                .and_then(|line| line.strip_suffix(']'))
            {
                section = section_name(name);
                ini.section_mut(&section);
                continue;
            }
            // A key alone is a true one.
            let (key, value) = line.split_once('=').unwrap_or((line, "true"));
            let key = key.trim().to_lowercase();
            if key.is_empty() || key.contains(char::is_whitespace) {
                return Err(IniError::Line {
                    line: number + 1,
                    text: line.to_owned(),
                });
            }
            ini.section_mut(&section)
                .values
                .entry(key)
                .or_default()
                .push(unquote(value));
        }
        Ok(ini)
    }

    fn section_mut(&mut self, name: &str) -> &mut Section {
        let new = || Section {
            name: name.to_owned(),
            values: BTreeMap::new(),
        };
        self.sections.entry(name.to_owned()).or_insert_with(new)
    }

    /// The section of this name (in lower case); one that is not there is empty.
    pub(crate) fn section(&self, name: &str) -> Section {
        self.sections.get(name).cloned().unwrap_or_else(|| Section {
            name: name.to_owned(),
            values: BTreeMap::new(),
        })
    }

    pub(crate) fn section_names(&self) -> impl Iterator<Item = &str> {
        self.sections.keys().map(String::as_str)
    }
}

impl Section {
    /// All values of a key, also those of one line with commas between.
    pub(crate) fn all(&self, key: &str) -> Vec<String> {
        let values = self
            .values
            .get(key)
            .into_iter()
            .flatten()
            .flat_map(|value| value.split(','));
        values
            .map(str::trim)
            .filter(|value| !value.is_empty())
            .map(str::to_owned)
            .collect()
    }

    /// The last value of a key, if it is not empty.
    pub(crate) fn get(&self, key: &str) -> Option<&str> {
        let value = self
            .values
            .get(key)
            .and_then(|values| values.last())
            .map(String::as_str);
        value.filter(|value| !value.is_empty())
    }

    pub(crate) fn bool(&self, key: &str) -> Result<Option<bool>, IniError> {
        let parse = |value: &str| match value.to_lowercase().as_str() {
            "true" | "yes" | "on" | "1" => Ok(true),
            "false" | "no" | "off" | "0" => Ok(false),
            _ => Err(self.wrong(key, "is not true or false")),
        };
        self.get(key).map(parse).transpose()
    }

    pub(crate) fn number<T: std::str::FromStr>(&self, key: &str) -> Result<Option<T>, IniError> {
        let parse = |value: &str| {
            value
                .parse()
                .map_err(|_| self.wrong(key, "is not a number that fits"))
        };
        self.get(key).map(parse).transpose()
    }

    /// The error that the value of a key is wrong.
    pub(crate) fn wrong(&self, key: &str, problem: &str) -> IniError {
        IniError::Value {
            section: self.name.clone(),
            key: key.to_owned(),
            value: self.get(key).unwrap_or_default().to_owned(),
            problem: problem.to_owned(),
        }
    }

    /// A key that is not known is a mistake of spelling.
    pub(crate) fn only(&self, known: &[&str]) -> Result<(), IniError> {
        let known: BTreeSet<&str> = known.iter().copied().collect();
        let unknown: Vec<&str> = self
            .values
            .keys()
            .map(String::as_str)
            .filter(|key| !known.contains(key))
            .collect();
        if unknown.is_empty() {
            return Ok(());
        }
        let known: Vec<&str> = known.into_iter().collect();
        Err(IniError::Unknown(
            unknown.join(", "),
            self.name.clone(),
            known.join(", "),
        ))
    }
}

fn section_name(text: &str) -> String {
    match text.trim().split_once(char::is_whitespace) {
        Some((name, sub)) => format!("{} {}", name.to_lowercase(), sub.trim()),
        None => text.trim().to_lowercase(),
    }
}

/// A value ends where a comment begins, unless it is quoted.
fn unquote(text: &str) -> String {
    let text = text.trim();
    if let Some(quoted) = text.strip_prefix('"')
        && let Some((value, _)) = quoted.split_once('"')
    {
        return value.to_owned();
    }
    let comment = text
        .find(" ;")
        .or_else(|| text.find(" #"))
        .unwrap_or(text.len());
    text[..comment].trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "; of the cloud\n[Global]\nProject-ID = shop ; here\nnode-tags = a, b\nnode-tags=c\nmultizone\n\
                        secret = \"x ; y\"\nempty =\n\n[LoadBalancerClass \"Fast\"]\nfloating-network-id = 1\n";

    #[test]
    fn sections_keys_and_values() {
        let ini = Ini::parse(TEXT).unwrap();
        let global = ini.section("global");
        assert_eq!(global.get("project-id"), Some("shop"));
        assert_eq!(global.all("node-tags"), ["a", "b", "c"]);
        assert_eq!(global.bool("multizone"), Ok(Some(true)));
        assert_eq!(
            (
                global.get("secret"),
                global.get("empty"),
                global.get("absent")
            ),
            (Some("x ; y"), None, None)
        );
        assert_eq!(
            ini.section("loadbalancerclass \"Fast\"")
                .number("floating-network-id"),
            Ok(Some(1))
        );
        assert_eq!(ini.section("absent").get("x"), None);
        assert_eq!(
            ini.section_names().collect::<Vec<_>>(),
            ["global", "loadbalancerclass \"Fast\""]
        );
    }

    #[test]
    fn mistakes_are_named() {
        let error = |result: Result<(), IniError>| result.unwrap_err().to_string();
        let text = "[global]\nnot a key\n";
        assert_eq!(
            Ini::parse(text).unwrap_err().to_string(),
            "line 2: neither a [section] nor a key = value: \"not a key\""
        );
        let global = Ini::parse("[global]\nprojct-id = a\nflag = maybe")
            .unwrap()
            .section("global");
        let unknown = error(global.only(&["project-id", "flag"]));
        assert_eq!(
            unknown,
            "not known: projct-id (known in [global]: flag, project-id)"
        );
        let value = error(global.bool("flag").map(drop));
        assert_eq!(value, "[global] flag = \"maybe\": is not true or false");
    }
}
