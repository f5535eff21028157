//! The zone: names with what stands at them, changed name by name. Whether a name is there, is
//! empty (there are only names below it), or is not there at all, is kept up to date with every
//! change.

mod content;
pub(crate) mod names;

pub(crate) use content::address;
pub(crate) use content::{Content, Families, Lists, Member, Node, Nodes, Target, Wanted};
pub(crate) use names::{Key, Origin};

use hickory_proto::rr::rdata::{NS, SOA};
use hickory_proto::rr::{Name, RData, Record, RecordType};
use std::borrow::Borrow;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

/// Secondaries that hear no NOTIFY ask so often.
const REFRESH: i32 = 300;
const RETRY: i32 = 60;
/// And go on for a week when no primary answers.
const EXPIRE: i32 = 7 * 24 * 3600;

/// What does not come from the API.
#[derive(Clone, Debug)]
pub struct Settings {
    pub origin: Origin,
    /// The servers of the zone, the first is the primary; with addresses where they are in the
    /// zone.
    pub servers: Vec<(Name, Vec<IpAddr>)>,
    pub hostmaster: Name,
    pub ttl: u32,
    pub negative_ttl: u32,
}

#[derive(Debug, Default)]
struct Entry {
    content: Option<Arc<Content>>,
    /// How many names with a content are right or further below.
    below: u32,
}

/// A change of the zone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Patch {
    /// This stands at a name now, or nothing does.
    Set(Key, Option<Content>),
    /// These nodes are fit now, with addresses in this port partition or in none.
    Shared(Option<Arc<str>>, Arc<[Member]>),
}

pub enum Found<'a> {
    /// There is no such name.
    Missing,
    /// There are only names below it.
    Empty,
    Content(&'a Content),
}

pub struct Zone {
    settings: Arc<Settings>,
    serial: u32,
    /// Everything is known that the zone is made from.
    complete: bool,
    names: HashMap<Key, Entry>,
    shared: Lists,
}

impl Zone {
    pub fn new(settings: Settings, serial: u32) -> Self {
        let mut zone = Self {
            serial,
            complete: false,
            names: HashMap::from([(Key::origin(), Entry::default())]),
            shared: Lists::new(),
            settings: Arc::new(settings),
        };
        for (name, addresses) in zone.settings.servers.clone() {
            if let Some(asked) = zone.settings.origin.find(&name) {
                zone.set(
                    Key::from_bytes(asked.key()),
                    Some(Content::Addresses(addresses.into())),
                );
            }
        }
        zone
    }

    pub fn origin(&self) -> &Origin {
        &self.settings.origin
    }

    pub fn ttl(&self) -> u32 {
        self.settings.ttl
    }

    pub fn serial(&self) -> u32 {
        self.serial
    }

    pub fn is_complete(&self) -> bool {
        self.complete
    }

    pub fn complete(&mut self) {
        self.complete = true;
    }

    /// How many names have a content.
    pub fn len(&self) -> usize {
        self.names
            .get(&[][..])
            .map_or(0, |entry| entry.below as usize)
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Serials follow the clock, so that one from before a restart is never seen again; the caller
    /// sees to it that there is at most one a second.
    pub fn renew(&mut self, seconds: u64) {
        self.serial = next_serial(self.serial, seconds);
    }

    /// Whether anything is otherwise than before.
    pub fn apply(&mut self, patch: Patch) -> bool {
        match patch {
            Patch::Set(key, content) => self.set(key, content),
            Patch::Shared(partition, members) if members.is_empty() => {
                self.shared.remove(&partition).is_some()
            }
            Patch::Shared(partition, members) => {
                let before = self.shared.insert(partition, members.clone());
                before.as_ref() != Some(&members)
            }
        }
    }

    fn set(&mut self, key: Key, content: Option<Content>) -> bool {
        let before = self
            .names
            .get(&key)
            .and_then(|entry| entry.content.as_deref());
        if before == content.as_ref() {
            return false;
        }
        match (before.is_some(), content.is_some()) {
            (false, true) => self.count(key.borrow(), |below| below.saturating_add(1)),
            (true, false) => self.count(key.borrow(), |below| below.saturating_sub(1)),
            _ => {}
        }
        self.names.entry(key.clone()).or_default().content = content.map(Arc::new);
        self.forget(key.borrow());
        true
    }

    /// Counts the names below each name above this one, which exist because of them.
    fn count(&mut self, key: &[u8], change: impl Fn(u32) -> u32) {
        let above = std::iter::successors(names::parent(key), |key| names::parent(key));
        for key in above {
            let entry = match self.names.get_mut(key) {
                Some(entry) => entry,
                None => self.names.entry(Key::from_bytes(key)).or_default(),
            };
            entry.below = change(entry.below);
        }
    }

    /// Names that nothing keeps are not there; the origin always is.
    fn forget(&mut self, key: &[u8]) {
        for key in
            std::iter::successors(Some(key), |key| names::parent(key)).filter(|key| !key.is_empty())
        {
            if self
                .names
                .get(key)
                .is_some_and(|entry| entry.content.is_none() && entry.below == 0)
            {
                self.names.remove(key);
            }
        }
    }

    pub fn find(&self, key: &[u8]) -> Found<'_> {
        match self.names.get(key) {
            None => Found::Missing,
            Some(entry) => entry
                .content
                .as_deref()
                .map_or(Found::Empty, Found::Content),
        }
    }

    pub fn wanted<'a>(&'a self, content: &'a Content) -> Wanted<'a> {
        Wanted {
            content,
            shared: &self.shared,
        }
    }

    pub fn soa(&self) -> Record {
        soa(&self.settings, self.serial, self.settings.ttl)
    }

    /// The SOA of a negative answer (RFC 2308).
    pub fn negative_soa(&self) -> Record {
        soa(
            &self.settings,
            self.serial,
            self.settings.negative_ttl.min(self.settings.ttl),
        )
    }

    pub fn servers(&self) -> Vec<RData> {
        self.settings
            .servers
            .iter()
            .map(|(name, _)| RData::NS(NS(name.clone())))
            .collect()
    }

    /// The addresses of the zone's servers that are in the zone.
    pub fn glue(&self) -> Vec<(Name, IpAddr)> {
        let of = |(name, addresses): &(Name, Vec<IpAddr>)| -> Vec<(Name, IpAddr)> {
            addresses.iter().map(|ip| (name.clone(), *ip)).collect()
        };
        self.settings.servers.iter().flat_map(of).collect()
    }

    /// The zone as it is now; later changes do not touch it.
    pub fn snapshot(&self) -> Snapshot {
        let with_content =
            |(key, entry): (&Key, &Entry)| Some((key.clone(), entry.content.clone()?));
        let mut names: Vec<_> = self.names.iter().filter_map(with_content).collect();
        names.sort_unstable_by(|one, other| one.0.cmp(&other.0));
        Snapshot {
            settings: self.settings.clone(),
            serial: self.serial,
            names,
            shared: self.shared.clone(),
        }
    }
}

/// Later than the last one, and what the clock says where that is later.
pub(crate) fn next_serial(last: u32, seconds: u64) -> u32 {
    let clock = seconds as u32;
    // The sequence space of RFC 1982: later is less than half of it ahead.
    let is_later = clock != last && clock.wrapping_sub(last) < 1 << 31;
    if is_later {
        clock
    } else {
        last.wrapping_add(1)
    }
}

fn soa(settings: &Settings, serial: u32, ttl: u32) -> Record {
    let primary = settings
        .servers
        .first()
        .map_or_else(|| settings.origin.name().clone(), |(name, _)| name.clone());
    let data = SOA::new(
        primary,
        settings.hostmaster.clone(),
        serial,
        REFRESH,
        RETRY,
        EXPIRE,
        settings.negative_ttl,
    );
    Record::from_rdata(settings.origin.name().clone(), ttl, RData::SOA(data))
}

/// A zone at one moment, for transfers.
pub struct Snapshot {
    settings: Arc<Settings>,
    serial: u32,
    names: Vec<(Key, Arc<Content>)>,
    shared: Lists,
}

impl Snapshot {
    pub fn serial(&self) -> u32 {
        self.serial
    }

    /// All records as RFC 5936 wants them: the SOA first and last.
    pub fn records(&self) -> impl Iterator<Item = Record> + '_ {
        let soa = || std::iter::once_with(|| soa(&self.settings, self.serial, self.settings.ttl));
        let origin = self.settings.origin.name();
        let servers = self.settings.servers.iter();
        let servers = servers.map(|(name, _)| {
            Record::from_rdata(
                origin.clone(),
                self.settings.ttl,
                RData::NS(NS(name.clone())),
            )
        });
        soa()
            .chain(servers)
            .chain(
                self.names
                    .iter()
                    .flat_map(|(key, content)| self.at(key, content)),
            )
            .chain(soa())
    }

    fn at(&self, key: &Key, content: &Content) -> Vec<Record> {
        let name = self.settings.origin.full(key.borrow());
        let wanted = Wanted {
            content,
            shared: &self.shared,
        };
        let records = |kind: &RecordType| wanted.records(*kind);
        let data = content.types().iter().flat_map(records);
        data.map(|data| Record::from_rdata(name.clone(), self.settings.ttl, data))
            .collect()
    }
}

#[cfg(test)]
mod tests;
