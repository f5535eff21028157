//! Objects that this controller both watches and writes.
//!
//! A watch lags behind: planning from it alone right after a write would repeat the write. So what
//! the server answered to a write is remembered at once, and older news from the watch is ignored
//! until the watch has caught up. This relies on two promises of the API: resource versions of one
//! kind are numbers that grow, and a list shows every write that was answered before the list
//! began.

use portico_view::key_of;
use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    sync::Arc,
};

use k8s_openapi::{Metadata, apimachinery::pkg::apis::meta::v1::ObjectMeta};

use super::ObjectKey;

pub(super) struct Cache<K> {
    objects: BTreeMap<ObjectKey, Entry<K>>,
    by_service: BTreeMap<ObjectKey, BTreeSet<ObjectKey>>,
    service_of: fn(&K) -> Option<ObjectKey>,
    /// Uids of own deletions that the watch has not shown yet.
    deleted: HashSet<String>,
    /// The newest version in the watch since the last list began: all up to it has been shown.
    newest: u64,
    /// Counts lists, so that the answer to a write can be told to be older than a list.
    epoch: u64,
    listing: Option<Listing>,
}

struct Entry<K> {
    object: Arc<K>,
    version: u64,
    /// Written by this controller and not seen in the watch yet.
    written: bool,
}

#[derive(Default)]
struct Listing {
    keys: BTreeSet<ObjectKey>,
    uids: HashSet<String>,
}

impl<K: Metadata<Ty = ObjectMeta>> Cache<K> {
    pub(super) fn new(service_of: fn(&K) -> Option<ObjectKey>) -> Self {
        Self {
            objects: BTreeMap::new(),
            by_service: BTreeMap::new(),
            service_of,
            deleted: HashSet::new(),
            newest: 0,
            epoch: 0,
            listing: None,
        }
    }

    pub(super) fn epoch(&self) -> u64 {
        self.epoch
    }

    pub(super) fn of_service(&self, service: &ObjectKey) -> impl Iterator<Item = &K> {
        let keys = self.by_service.get(service).into_iter().flatten();
        keys.filter_map(|key| self.objects.get(key))
            .map(|entry| &*entry.object)
    }

    /// The watch starts over with a list.
    pub(super) fn begin_list(&mut self) {
        self.epoch += 1;
        self.newest = 0;
        self.listing = Some(Listing::default());
        self.objects
            .values_mut()
            .for_each(|entry| entry.written = false);
    }

    /// The list is complete: forgets what it did not contain and returns the Services concerned.
    pub(super) fn finish_list(&mut self) -> Vec<ObjectKey> {
        let Some(listing) = self.listing.take() else {
            return Vec::new();
        };
        self.deleted.retain(|uid| listing.uids.contains(uid));
        let is_gone =
            |(key, entry): &(&ObjectKey, &Entry<K>)| !entry.written && !listing.keys.contains(*key);
        let gone: Vec<ObjectKey> = self
            .objects
            .iter()
            .filter(is_gone)
            .map(|(key, _)| key.clone())
            .collect();
        gone.iter().filter_map(|key| self.remove(key)).collect()
    }

    /// The watch shows an object. Returns the Services for which this is news.
    pub(super) fn observe(&mut self, object: impl Into<Arc<K>>) -> Vec<ObjectKey> {
        let object = object.into();
        let (key, uid, version) = identity(&*object);
        self.newest = self.newest.max(version);
        if let Some(listing) = &mut self.listing {
            listing.keys.insert(key.clone());
            listing.uids.insert(uid.clone());
        }
        if self.deleted.contains(&uid) {
            return Vec::new();
        }
        match self.objects.get_mut(&key) {
            Some(entry) if entry.written && version < entry.version => Vec::new(),
            Some(entry) if entry.version == version => {
                entry.written = false;
                Vec::new()
            }
            _ => self.replace(
                key,
                Entry {
                    object,
                    version,
                    written: false,
                },
            ),
        }
    }

    /// The watch shows that an object is gone. Returns the Service for which this is news.
    pub(super) fn observe_deleted(&mut self, object: &K) -> Option<ObjectKey> {
        let (key, uid, version) = identity(object);
        self.newest = self.newest.max(version);
        self.deleted.remove(&uid);
        let entry = self.objects.get(&key)?;
        let is_older = entry.written && version < entry.version;
        if is_older { None } else { self.remove(&key) }
    }

    /// The server answered a write with this object; `epoch` is that of the plan behind the write.
    pub(super) fn wrote(&mut self, mut object: K, epoch: u64) {
        let (key, _, version) = identity(&object);
        // Half the size of the object; a server keeps them when an update leaves them out.
        object.metadata_mut().managed_fields = None;
        // The watch has shown this write already, or will: it was not necessarily answered before
        // the list began.
        if version > self.newest && epoch == self.epoch {
            self.replace(
                key,
                Entry {
                    object: Arc::new(object),
                    version,
                    written: true,
                },
            );
        }
    }

    /// The server answered a write with "deleted" or "there is no such object".
    pub(super) fn removed(&mut self, object: &K) {
        let (key, uid, _) = identity(object);
        let is_known = self
            .objects
            .get(&key)
            .is_some_and(|entry| entry.object.metadata().uid.as_ref() == Some(&uid));
        if is_known {
            self.remove(&key);
            self.deleted.insert(uid);
        }
    }

    fn replace(&mut self, key: ObjectKey, entry: Entry<K>) -> Vec<ObjectKey> {
        let before = self.remove(&key);
        let after = (self.service_of)(&entry.object);
        if let Some(service) = &after {
            self.by_service
                .entry(service.clone())
                .or_default()
                .insert(key.clone());
        }
        self.objects.insert(key, entry);
        before.into_iter().chain(after).collect()
    }

    fn remove(&mut self, key: &ObjectKey) -> Option<ObjectKey> {
        let entry = self.objects.remove(key)?;
        let service = (self.service_of)(&entry.object)?;
        if let Some(keys) = self.by_service.get_mut(&service) {
            keys.remove(key);
            if keys.is_empty() {
                self.by_service.remove(&service);
            }
        }
        Some(service)
    }
}

fn identity<K: Metadata<Ty = ObjectMeta>>(object: &K) -> (ObjectKey, String, u64) {
    let meta = object.metadata();
    let version = meta
        .resource_version
        .as_deref()
        .and_then(|version| version.parse().ok())
        .unwrap_or(0);
    (key_of(meta), meta.uid.clone().unwrap_or_default(), version)
}

#[cfg(test)]
mod tests;
