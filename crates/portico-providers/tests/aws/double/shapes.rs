//! The vendor's own description of its API (botocore's `service-2.json`): what the double is asked
//! and answers has to be in it.

use std::collections::BTreeSet;
use std::io::Read;
use std::path::PathBuf;

use roxmltree::{Document, Node};
use serde_json::Value;

/// A path of names that was in a call or in an answer, without the numbers of lists.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Seen {
    version: String,
    action: String,
    asked: bool,
    path: Vec<String>,
}

impl Seen {
    pub(super) fn of(version: &str, action: &str, fields: Vec<String>, answer: &str) -> Vec<Self> {
        let seen = |asked, path| Self {
            version: version.to_owned(),
            action: action.to_owned(),
            asked,
            path,
        };
        let split = |name: &String| name.split('.').map(str::to_owned).collect();
        let asked = fields
            .iter()
            .filter(|name| *name != "Action" && *name != "Version");
        let mut all: Vec<Self> = asked.map(|name| seen(true, split(name))).collect();
        let document = Document::parse(answer).unwrap();
        let root = document.root_element();
        if root
            .tag_name()
            .name()
            .ends_with(&format!("{action}Response"))
        {
            leaves(root, &mut Vec::new(), &mut |path| {
                all.push(seen(false, path))
            });
        }
        all
    }
}

fn leaves(node: Node<'_, '_>, path: &mut Vec<String>, found: &mut dyn FnMut(Vec<String>)) {
    let mut children = node.children().filter(Node::is_element).peekable();
    if children.peek().is_none() && !path.is_empty() {
        found(path.clone());
    }
    for child in children {
        path.push(child.tag_name().name().to_owned());
        leaves(child, path, found);
        path.pop();
    }
}

fn description(version: &str) -> Value {
    let service = match version {
        "2016-11-15" => "ec2",
        "2015-12-01" => "elbv2",
        _ => "elb",
    };
    let workspace = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target");
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| workspace.into(), PathBuf::from);
    let libraries = std::fs::read_dir(target.join("moto/lib"))
        .expect("make deps")
        .flatten();
    let file = format!("site-packages/botocore/data/{service}/{version}/service-2.json.gz");
    let path = libraries
        .map(|library| library.path().join(&file))
        .find(|path| path.exists())
        .expect("make deps");
    let mut text = String::new();
    flate2::read::GzDecoder::new(std::fs::File::open(path).unwrap())
        .read_to_string(&mut text)
        .unwrap();
    serde_json::from_str(&text).unwrap()
}

pub(super) fn check(seen: &BTreeSet<Seen>) {
    let mut problems = Vec::new();
    let versions: BTreeSet<&str> = seen.iter().map(|it| it.version.as_str()).collect();
    for version in versions {
        let api = Api {
            is_ec2: version == "2016-11-15",
            description: description(version),
        };
        let wrong = seen
            .iter()
            .filter(|it| it.version == version && !api.has(it));
        problems.extend(wrong.map(|it| format!("{it:?}")));
    }
    assert!(
        problems.is_empty(),
        "not in the vendor's description:\n{}",
        problems.join("\n")
    );
    assert!(seen.len() > 50, "only {} names were seen", seen.len());
}

struct Api {
    is_ec2: bool,
    description: Value,
}

impl Api {
    fn has(&self, seen: &Seen) -> bool {
        let operation = &self.description["operations"][&seen.action];
        let side = if seen.asked { "input" } else { "output" };
        let path: Vec<&str> = seen.path.iter().map(String::as_str).collect();
        let wrapper = operation["output"]["resultWrapper"].as_str();
        match (operation[side]["shape"].as_str(), path.as_slice()) {
            (None, path) => {
                !operation.is_null()
                    && path
                        .iter()
                        .all(|name| Some(*name) == wrapper || *name == "return")
            }
            (Some(shape), path) if seen.asked => self.fits(shape, path, true),
            (Some(shape), [first, rest @ ..]) if Some(*first) == wrapper => {
                self.fits(shape, rest, false)
            }
            (Some(shape), path) => self.fits(shape, path, false),
        }
    }

    fn fits(&self, shape: &str, path: &[&str], asked: bool) -> bool {
        let shape = &self.description["shapes"][shape];
        let [first, rest @ ..] = path else {
            return true;
        };
        match shape["type"].as_str() {
            Some("structure") => shape["members"].as_object().is_some_and(|members| {
                let named = members
                    .iter()
                    .find(|(name, member)| self.name(name, member, asked) == *first);
                named.is_some_and(|(_, member)| {
                    self.fits(member["shape"].as_str().unwrap_or_default(), rest, asked)
                })
            }),
            Some("list") => {
                let member = shape["member"]["shape"].as_str().unwrap_or_default();
                let item = shape["member"]["locationName"].as_str().unwrap_or("member");
                match (asked, self.is_ec2) {
                    // EC2 writes lists flat.
                    (true, true) => is_number(first) && self.fits(member, rest, asked),
                    (true, false) => {
                        *first == item
                            && rest.first().is_some_and(|number| is_number(number))
                            && self.fits(member, &rest[1..], asked)
                    }
                    (false, _) => *first == item && self.fits(member, rest, asked),
                }
            }
            // Something simple has nothing below it.
            _ => false,
        }
    }

    fn name(&self, name: &str, member: &Value, asked: bool) -> String {
        let location = member["locationName"].as_str();
        let capital = |text: &str| text[..1].to_uppercase() + &text[1..];
        match (asked, self.is_ec2) {
            (true, true) => match (member["queryName"].as_str(), location) {
                (Some(query), _) => query.to_owned(),
                (None, Some(location)) => capital(location),
                (None, None) => name.to_owned(),
            },
            _ => location.unwrap_or(name).to_owned(),
        }
    }
}

fn is_number(text: &str) -> bool {
    text.parse::<usize>().is_ok()
}
