//! Answers in XML, as far as they are needed: elements by name, and lists of `member` or `item`.

use roxmltree::{Document, Node};
use serde::de::Error as _;

use crate::cloud::{CallError, Problem, Reply};

/// An element. What is not there is empty.
#[derive(Clone, Copy)]
pub struct Xml<'a> {
    node: Option<Node<'a, 'a>>,
}

impl<'a> Xml<'a> {
    /// What a function makes of the whole answer.
    pub fn read<T>(reply: &Reply, read: impl FnOnce(Xml<'_>) -> T) -> Result<T, CallError> {
        let wrong = |error: String| {
            CallError::new(
                reply.operation,
                Problem::Decode(serde_json::Error::custom(error)),
            )
        };
        let text = std::str::from_utf8(&reply.body).map_err(|error| wrong(error.to_string()))?;
        let document = Document::parse(text).map_err(|error| wrong(error.to_string()))?;
        Ok(read(Xml {
            node: Some(document.root_element()),
        }))
    }

    /// The first element of that name, however deep.
    pub fn find(self, name: &str) -> Option<Self> {
        let found = self
            .node?
            .descendants()
            .find(|node| node.tag_name().name() == name)?;
        Some(Xml { node: Some(found) })
    }

    /// The first element of this name, empty where there is none.
    pub fn child(self, name: &str) -> Self {
        Xml {
            node: self.node.and_then(|node| {
                node.children()
                    .find(|child| child.tag_name().name() == name)
            }),
        }
    }

    /// The text of a child.
    pub fn text(self, name: &str) -> String {
        self.child(name).own_text()
    }

    /// The text of the element; empty where it has none.
    pub fn own_text(self) -> String {
        self.node
            .and_then(|node| node.text())
            .unwrap_or_default()
            .trim()
            .to_owned()
    }

    /// The text of a child as a number.
    pub fn number<T: std::str::FromStr>(self, name: &str) -> Option<T> {
        self.text(name).parse().ok()
    }

    /// The elements of a list that is a child.
    pub fn list(self, name: &str) -> impl Iterator<Item = Xml<'a>> + use<'a> {
        self.child(name).items()
    }

    /// The elements of a list (`member` or `item`).
    pub fn items(self) -> impl Iterator<Item = Xml<'a>> + use<'a> {
        let children = self.node.into_iter().flat_map(|node| node.children());
        children
            .filter(Node::is_element)
            .map(|node| Xml { node: Some(node) })
    }

    /// The elements of a list, however deep it is.
    pub fn all(self, name: &str) -> impl Iterator<Item = Xml<'a>> + use<'a> {
        self.find(name).into_iter().flat_map(Xml::items)
    }
}

/// The vendor's code and message in an answer that is an error.
pub(super) fn error(body: &[u8]) -> Option<(String, String)> {
    let document = Document::parse(std::str::from_utf8(body).ok()?).ok()?;
    let error = Xml {
        node: Some(document.root_element()),
    }
    .find("Error")?;
    Some((error.text("Code"), error.text("Message"))).filter(|(code, _)| !code.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_kinds_of_errors() {
        let elb = b"<ErrorResponse xmlns=\"http://x/\"><Error><Type>Sender</Type><Code>LoadBalancerNotFound</Code>\
                    <Message>One &amp; all</Message></Error><RequestId>1</RequestId></ErrorResponse>";
        assert_eq!(
            error(elb),
            Some(("LoadBalancerNotFound".to_owned(), "One & all".to_owned()))
        );
        let ec2 = b"<?xml version=\"1.0\"?><Response><Errors><Error><Code>AuthFailure</Code><Message>no</Message>\
                    </Error></Errors></Response>";
        assert_eq!(
            error(ec2),
            Some(("AuthFailure".to_owned(), "no".to_owned()))
        );
        assert_eq!(error(b"<html>a proxy</html>"), None);
        assert_eq!(error(b"not XML"), None);
    }
}
