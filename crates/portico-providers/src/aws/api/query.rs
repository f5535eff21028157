//! A call as the query protocol writes it: an action and its fields in a form, lists as numbered
//! fields.

use std::collections::BTreeMap;

use crate::cloud::Call;

/// The parameters of a call.
pub struct Query {
    /// `service.Action`
    operation: &'static str,
    repeatable: bool,
    fields: Vec<(String, String)>,
}

impl Query {
    /// A call that changes nothing, which can be repeated.
    pub fn read(operation: &'static str) -> Self {
        Self {
            operation,
            repeatable: true,
            fields: Vec::new(),
        }
    }

    /// A call that changes something.
    pub fn write(operation: &'static str) -> Self {
        Self {
            operation,
            repeatable: false,
            fields: Vec::new(),
        }
    }

    /// A second time does what the first did.
    pub fn repeatable(self) -> Self {
        Self {
            repeatable: true,
            ..self
        }
    }

    /// Adds a parameter.
    pub fn set(mut self, name: impl Into<String>, value: impl ToString) -> Self {
        self.fields.push((name.into(), value.to_string()));
        self
    }

    /// Adds a parameter, if there is a value.
    pub fn set_some(self, name: &str, value: Option<impl ToString>) -> Self {
        match value {
            Some(value) => self.set(name, value),
            None => self,
        }
    }

    /// `name.1`, `name.2`, ...
    pub fn list(self, name: &str, values: impl IntoIterator<Item = impl ToString>) -> Self {
        let numbered = values.into_iter().zip(1..);
        numbered.fold(self, |query, (value, number)| {
            query.set(format!("{name}.{number}"), value)
        })
    }

    /// Adds a list as [`Query::list`] does, with a field of each element.
    pub fn list_of(
        self,
        name: &str,
        field: &str,
        values: impl IntoIterator<Item = impl ToString>,
    ) -> Self {
        let numbered = values.into_iter().zip(1..);
        numbered.fold(self, |query, (value, number)| {
            query.set(format!("{name}.{number}.{field}"), value)
        })
    }

    /// A list of keys with values, such as tags.
    pub fn pairs(self, name: &str, pairs: &BTreeMap<String, String>) -> Self {
        self.list_of(name, "Key", pairs.keys())
            .list_of(name, "Value", pairs.values())
    }

    /// Filters of EC2: all of them have to hold, with any of their values.
    pub fn filters(self, filters: &[(&str, &[&str])]) -> Self {
        filters
            .iter()
            .zip(1..)
            .fold(self, |query, ((name, values), number)| {
                let query = query.set(format!("Filter.{number}.Name"), name);
                query.list(&format!("Filter.{number}.Value"), values.iter())
            })
    }

    /// The call, to the service at this address.
    pub fn call(&self, url: &str, version: &str) -> Call {
        let action = self.operation.rsplit('.').next().unwrap_or_default();
        let fields = self
            .fields
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()));
        let call = Call::post(self.operation, url).form(
            [("Action", action), ("Version", version)]
                .into_iter()
                .chain(fields),
        );
        if self.repeatable {
            call.repeatable()
        } else {
            call
        }
    }
}
