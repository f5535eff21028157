//! The Services that a node installs before the lists have come, where it forwards nothing yet:
//! those that everything else needs to start, and the static ones, one of which may be the way to
//! the API server.

use crate::objects::Object;
use crate::static_services::Change;
use portico_dataplane::Dataplane;
use std::collections::BTreeMap;

#[derive(Default)]
pub(super) struct BeforeLists {
    first: Vec<Object>,
    static_services: BTreeMap<String, Vec<Object>>,
    /// The kernel had no rules of ours at the start; read when it is first needed.
    is_fresh: Option<bool>,
    due: bool,
}

impl BeforeLists {
    pub(super) fn set_first(&mut self, objects: Vec<Object>) {
        self.due |= !objects.is_empty();
        self.first = objects;
    }

    pub(super) fn set_static(&mut self, change: &Change) {
        self.due = true;
        match change.version {
            Some(_) => self
                .static_services
                .insert(change.file.clone(), change.objects.clone()),
            None => self.static_services.remove(&change.file),
        };
    }

    /// What is to be installed now. Where an earlier process left rules these stay until everything
    /// is known: they are more than what we could put in their place.
    pub(super) fn take(&mut self, dataplane: &mut dyn Dataplane) -> Option<Vec<Object>> {
        if !std::mem::take(&mut self.due) {
            return None;
        }
        let is_fresh = || !dataplane.is_installed().unwrap_or(true);
        let is_fresh = *self.is_fresh.get_or_insert_with(is_fresh);
        is_fresh.then(|| {
            self.first
                .iter()
                .chain(self.static_services.values().flatten())
                .cloned()
                .collect()
        })
    }
}
