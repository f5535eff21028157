//! What a migration comes to: files with documents, and remarks on everything that is not as it
//! was. Pure.

use portico_api::field::Error;
use portico_api::gates::Gates;
use portico_api::kinds;
use serde::Serialize;
use serde_json::{Value, json};

/// A remark on something that was written down before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase", tag = "level", content = "text")]
pub(super) enum Remark {
    /// It is taken care of in another way, or by itself.
    Note(String),
    /// It has no equivalent: the reader of the report has to decide what replaces it.
    Warning(String),
}

impl Remark {
    fn comment(&self) -> String {
        let (level, text) = match self {
            Self::Note(text) => ("note", text),
            Self::Warning(text) => ("WARNING", text),
        };
        format!("# {level}: {}\n", text.replace('\n', " "))
    }

    pub(super) fn text(&self) -> &str {
        match self {
            Self::Note(text) | Self::Warning(text) => text,
        }
    }

    pub(super) fn is_warning(&self) -> bool {
        matches!(self, Self::Warning(_))
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct Document {
    pub remarks: Vec<Remark>,
    pub content: Value,
}

/// One file of the result.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct File {
    pub name: String,
    /// What to do with it.
    #[serde(rename = "use")]
    pub usage: String,
    /// About what is in none of the documents.
    pub remarks: Vec<Remark>,
    pub documents: Vec<Document>,
}

impl File {
    pub(super) fn note(&mut self, text: impl Into<String>) {
        self.remarks.push(Remark::Note(text.into()));
    }

    pub(super) fn warn(&mut self, text: impl Into<String>) {
        self.remarks.push(Remark::Warning(text.into()));
    }

    pub(super) fn warnings(&self) -> usize {
        let of_documents = self.documents.iter().flat_map(|document| &document.remarks);
        self.remarks
            .iter()
            .chain(of_documents)
            .filter(|remark| remark.is_warning())
            .count()
    }

    /// As YAML with comments.
    pub(super) fn print(&self) -> String {
        let mut text = format!("# {}: {}\n", self.name, self.usage);
        text.extend(self.remarks.iter().map(Remark::comment));
        for (number, document) in self.documents.iter().enumerate() {
            if number > 0 {
                text.push_str("---\n");
            }
            text.extend(document.remarks.iter().map(Remark::comment));
            // A tree of texts, numbers and lists always serialises.
            text.push_str(&serde_saphyr::to_string(&document.content).unwrap_or_default());
        }
        if self.documents.is_empty() {
            text.push_str("# Nothing is left to write down.\n");
        }
        text
    }

    /// Checks objects by the API's own rules, so that invalid ones are found before they are
    /// applied.
    pub(super) fn check_objects(&mut self) {
        for document in &mut self.documents {
            let problems = problems(&document.content);
            document.remarks.extend(problems.iter().map(|problem| {
                Remark::Warning(format!("the API server will refuse this: {problem}"))
            }));
        }
    }
}

fn problems(object: &Value) -> Vec<String> {
    let known = kinds::all().into_iter().find(|kind| {
        let info = kind.info();
        let version = if info.group.is_empty() {
            info.version.to_owned()
        } else {
            format!("{}/{}", info.group, info.version)
        };
        object.get("kind") == Some(&json!(info.kind))
            && object.get("apiVersion") == Some(&json!(version))
    });
    let Some(kind) = known else { return Vec::new() };
    let (gates, mut object) = (Gates::default(), object.clone());
    kind.default(&mut object, &gates);
    kind.validate_create(&object, &gates)
        .iter()
        .map(Error::to_string)
        .collect()
}

/// A name that the API takes, from one that people gave.
pub(super) fn object_name(text: &str) -> String {
    let lower = text.to_ascii_lowercase();
    let kept: String = lower
        .chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() || c == '.' {
                c
            } else {
                '-'
            }
        })
        .collect();
    kept.trim_matches(['-', '.']).to_owned()
}

/// A password that was written in plain text, as a Secret where nodes look for it.
pub(super) fn password_secret(name: &str, password: &str) -> Document {
    let content = json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "namespace": "kube-system"},
        "stringData": {"password": password},
    });
    let remark = Remark::Note(
        "the password was in plain text: it belongs into a Secret, and this file to nobody else"
            .to_owned(),
    );
    Document {
        remarks: vec![remark],
        content,
    }
}
