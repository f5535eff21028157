//! managedFields: which manager owns which fields of an object, and how that changes.

use super::fieldset::Set;
use super::merge::reconcile;
use super::shape::Shape;
use crate::schema::Schema;
use serde_json::{Map, Value};
use std::borrow::Cow;

/// More managers than this that do not apply are summed up, the oldest first.
const MOST_UPDATERS: usize = 10;

/// A longer list of entries is taken for malformed: every change is compared with every entry.
const MOST_ENTRIES: usize = 1000;

/// The manager under which old ones are summed up.
const ANCIENT: &str = "ancient-changes";

/// The owner of fields: an entry of managedFields without time and fields.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Manager<'a> {
    pub name: Cow<'a, str>,
    pub applies: bool,
    pub subresource: Cow<'a, str>,
}

/// An entry of managedFields. All are of the version that is served; others are dropped on reading.
#[derive(Clone, Debug)]
pub(super) struct Entry<'a> {
    pub manager: Manager<'a>,
    pub time: Option<Cow<'a, str>>,
    pub set: Set<'a>,
}

/// All entries of one object, one for each manager.
#[derive(Clone, Debug, Default)]
pub(super) struct Entries<'a>(pub Vec<Entry<'a>>);

impl Manager<'_> {
    /// How a conflict names it: `"kubectl" with subresource "status" using v1`.
    pub(super) fn describe(&self, api_version: &str) -> String {
        let mut text = format!("{:?}", self.name);
        if !self.subresource.is_empty() {
            text.push_str(&format!(" with subresource {:?}", self.subresource));
        }
        if !self.applies {
            text.push_str(&format!(" using {api_version}"));
        }
        text
    }
}

impl<'a> Entries<'a> {
    /// Read managedFields; `None` if they are malformed.
    pub(super) fn decode(
        schema: &'a Schema,
        shape: Shape<'a>,
        api_version: &str,
        managed: Option<&'a Value>,
    ) -> Option<Self> {
        let mut entries = Self::default();
        let managed = managed.and_then(Value::as_array);
        if managed.is_some_and(|managed| managed.len() > MOST_ENTRIES) {
            return None;
        }
        for value in managed.into_iter().flatten() {
            let text = |name: &str| value.get(name).and_then(Value::as_str).unwrap_or_default();
            let applies = match text("operation") {
                "Apply" => true,
                "Update" => false,
                _ => return None,
            };
            if text("apiVersion").is_empty() || text("fieldsType") != "FieldsV1" {
                return None;
            }
            let set = match value.get("fieldsV1") {
                None | Some(Value::Null) => Set::default(),
                Some(fields) => Set::from_json(fields)?,
            };
            // Fields of a version that is not served any more have no owner.
            if text("apiVersion") != api_version {
                continue;
            }
            let manager = Manager {
                name: text("manager").into(),
                applies,
                subresource: text("subresource").into(),
            };
            entries.change(manager, |entry| {
                entry.time = value.get("time").and_then(Value::as_str).map(Cow::Borrowed);
                entry.set = reconcile(schema, shape, set);
            });
        }
        Some(entries)
    }

    /// managedFields, in the order that Kubernetes gives them; `None` if no field has an owner.
    pub(super) fn encode(mut self, api_version: &str) -> Option<Value> {
        self.0.sort_by(|a, b| {
            let key = |entry: &Entry<'a>| (!entry.manager.applies, entry.time.clone());
            key(a)
                .cmp(&key(b))
                .then_with(|| a.manager.name.cmp(&b.manager.name))
                .then_with(|| a.manager.cmp(&b.manager))
        });
        let entries: Vec<Value> = self
            .0
            .iter()
            .map(|entry| entry.encode(api_version))
            .collect();
        (!entries.is_empty()).then_some(Value::Array(entries))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Change the entry of a manager, which is made if it is not there.
    pub(super) fn change(&mut self, manager: Manager<'a>, change: impl FnOnce(&mut Entry<'a>)) {
        if let Some(entry) = self.0.iter_mut().find(|entry| entry.manager == manager) {
            return change(entry);
        }
        let mut entry = Entry {
            manager,
            time: None,
            set: Set::default(),
        };
        change(&mut entry);
        self.0.push(entry);
    }

    /// Take fields from all managers, but for one.
    pub(super) fn take(&mut self, fields: &Set<'_>, except: Option<&Manager<'_>>) {
        for entry in self
            .0
            .iter_mut()
            .filter(|entry| Some(&entry.manager) != except)
        {
            entry.set = std::mem::take(&mut entry.set).difference(fields);
        }
    }

    /// Managers that own nothing are no managers.
    pub(super) fn drop_empty(&mut self) {
        self.0.retain(|entry| !entry.set.is_empty());
    }

    /// Sum up the oldest updaters while there are too many.
    pub(super) fn cap(&mut self) {
        let updaters = self.0.iter().filter(|entry| !entry.manager.applies).count();
        if updaters <= MOST_UPDATERS {
            return;
        }
        let (mut updates, applies): (Vec<_>, Vec<_>) = std::mem::take(&mut self.0)
            .into_iter()
            .partition(|entry| !entry.manager.applies);
        self.0 = applies;
        updates.sort_by(|a, b| a.time.cmp(&b.time).then_with(|| a.manager.cmp(&b.manager)));
        let rest = updates.split_off(updates.len() - MOST_UPDATERS + 1);
        let ancient = Manager {
            name: ANCIENT.into(),
            applies: false,
            subresource: "".into(),
        };
        let (mut time, mut set) = (None, Set::default());
        for old in updates {
            time = old.time;
            set = set.union(old.set);
        }
        self.0.extend(rest);
        self.change(ancient, |entry| {
            entry.time = entry.time.take().max(time);
            entry.set = std::mem::take(&mut entry.set).union(set);
        });
    }
}

impl Entry<'_> {
    fn encode(&self, api_version: &str) -> Value {
        let mut map = Map::new();
        let mut put = |name: &str, text: &str| {
            if !text.is_empty() {
                map.insert(name.to_owned(), text.into());
            }
        };
        put("manager", &self.manager.name);
        put(
            "operation",
            if self.manager.applies {
                "Apply"
            } else {
                "Update"
            },
        );
        put("apiVersion", api_version);
        put("time", self.time.as_deref().unwrap_or_default());
        put("fieldsType", "FieldsV1");
        put("subresource", &self.manager.subresource);
        map.insert("fieldsV1".to_owned(), self.set.to_json());
        Value::Object(map)
    }
}

/// Whether managedFields as sent ask to forget all owners: an empty list, or one empty entry.
pub(super) fn is_reset(managed: Option<&Value>) -> bool {
    match managed.and_then(Value::as_array).map(Vec::as_slice) {
        Some([]) => true,
        Some([only]) => only.as_object().is_some_and(Map::is_empty),
        _ => false,
    }
}
