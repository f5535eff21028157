//! `dig` of BIND, and what it prints.

use crate::common::eventually;
use crate::rig::{ZONE, program};
use tokio::process::Command;

pub(crate) struct Dig {
    pub port: u16,
}

/// What dig made of an answer.
#[derive(Debug)]
pub(crate) struct Reply {
    pub status: String,
    /// `qr aa rd`
    pub flags: String,
    /// The data of the answers, sorted.
    pub answers: Vec<String>,
    /// All of it, with one space between words.
    pub text: String,
}

impl Dig {
    /// With these arguments, beside where to ask.
    pub(crate) async fn run(&self, arguments: &[&str]) -> String {
        let output = Command::new(program("dig", "bind9-dnsutils"))
            .args([
                "@127.0.0.1",
                "-p",
                &self.port.to_string(),
                "+tries=2",
                "+time=3",
                "+nocookie",
            ])
            .args(arguments)
            .output()
            .await
            .unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// A name below the zone; empty is the zone itself, and one that ends with a dot is a whole
    /// name.
    pub(crate) async fn ask(&self, name: &str, kind: &str, options: &[&str]) -> Reply {
        let name = match name {
            "" => ZONE.to_owned(),
            name if name.ends_with('.') => name.to_owned(),
            name => format!("{name}.{ZONE}"),
        };
        let mut arguments = vec![name.as_str(), kind];
        arguments.extend(options);
        Reply::read(&self.run(&arguments).await)
    }

    /// The sorted data of the answers.
    pub(crate) async fn answers(&self, name: &str, kind: &str) -> Vec<String> {
        self.ask(name, kind, &[]).await.answers
    }

    pub(crate) async fn awaits(&self, name: &str, kind: &str, wanted: &[&str]) {
        let mut wanted = wanted.to_vec();
        wanted.sort_unstable();
        let what = format!("{name} {kind} is {wanted:?}");
        eventually(&what, || async {
            (self.answers(name, kind).await == wanted).then_some(())
        })
        .await;
    }
}

impl Reply {
    fn read(text: &str) -> Self {
        let after = |word: &str| {
            text.split(word)
                .nth(1)
                .and_then(|rest| rest.split([',', ';', '\n']).next())
        };
        let section = text
            .split(";; ANSWER SECTION:\n")
            .nth(1)
            .and_then(|rest| rest.split("\n\n").next());
        let spaced = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        let data = |line: &str| {
            line.split_whitespace()
                .skip(4)
                .collect::<Vec<_>>()
                .join(" ")
        };
        let mut answers: Vec<String> = section.unwrap_or_default().lines().map(data).collect();
        answers.sort();
        Self {
            status: after("status: ").unwrap_or("none").to_owned(),
            flags: after("flags: ").unwrap_or_default().to_owned(),
            answers,
            text: text.lines().map(spaced).collect::<Vec<_>>().join("\n"),
        }
    }

    pub(crate) fn has(&self, text: &str) -> bool {
        self.text.contains(text)
    }
}
