//! What a Service says to a provider in annotations of one prefix, and how mistakes in them are
//! told. Pure.

use std::ops::RangeInclusive;
use std::str::FromStr;

use crate::{ProviderError, Request};

/// Annotations of a Service, by names without the prefix. One that is empty says nothing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Annotations<'a> {
    pub request: &'a Request,
    pub prefix: &'static str,
}

impl Annotations<'_> {
    pub(crate) fn text(&self, name: &str) -> Option<String> {
        let value = self
            .request
            .annotations
            .get(&format!("{}{name}", self.prefix));
        value
            .map(|value| value.trim().to_owned())
            .filter(|value| !value.is_empty())
    }

    /// The value as a list with commas between.
    pub(crate) fn list(&self, name: &str) -> Vec<String> {
        let text = self.text(name).unwrap_or_default();
        text.split(',')
            .map(str::trim)
            .filter(|value| !value.is_empty())
            .map(str::to_owned)
            .collect()
    }

    pub(crate) fn bool(&self, name: &str) -> Result<Option<bool>, ProviderError> {
        let parse = |value: String| {
            value
                .to_lowercase()
                .parse()
                .map_err(|_| self.wrong(name, &value, "is not true or false"))
        };
        self.text(name).map(parse).transpose()
    }

    pub(crate) fn number<T: FromStr>(&self, name: &str) -> Result<Option<T>, ProviderError> {
        let parse = |value: String| {
            value
                .parse()
                .map_err(|_| self.wrong(name, &value, "is not a number that fits"))
        };
        self.text(name).map(parse).transpose()
    }

    pub(crate) fn number_in(
        &self,
        name: &str,
        range: RangeInclusive<u32>,
    ) -> Result<Option<u32>, ProviderError> {
        let bounds = || format!("is not a number from {} to {}", range.start(), range.end());
        let parse = |value: String| {
            let number = value.parse().ok().filter(|number| range.contains(number));
            number.ok_or_else(|| self.wrong(name, &value, &bounds()))
        };
        self.text(name).map(parse).transpose()
    }

    pub(crate) fn wrong(&self, name: &str, value: &str, problem: &str) -> ProviderError {
        refused(
            "InvalidAnnotation",
            format!("annotation {}{name}: {value:?} {problem}", self.prefix),
        )
    }
}

pub(crate) fn refused(reason: &'static str, message: impl Into<String>) -> ProviderError {
    ProviderError::Refused {
        reason,
        message: message.into(),
    }
}
