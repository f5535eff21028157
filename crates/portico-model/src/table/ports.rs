//! The ports of a table, found by their Service. A change looks for its Service among thousands: in
//! a tree of names it would meet twenty others first, each of them elsewhere in memory.

use crate::hash::Map;
use crate::key::ObjectKey;
use crate::table::{Family, PortKey, Protocol, ServicePort};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

type Entry = (PortKey, Arc<ServicePort>);

/// The service ports of a table, each shared with what was handed out.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Ports {
    /// Those of each Service, sorted; no Service has none.
    services: Map<ObjectKey, Vec<Entry>>,
    count: usize,
}

impl Ports {
    /// The service port with this key.
    pub fn get(&self, key: &PortKey) -> Option<&Arc<ServicePort>> {
        let ports = self.of(&key.service);
        ports.get(place(ports, key).ok()?).map(|(_, port)| port)
    }

    /// Whether there is a service port with this key.
    pub fn contains_key(&self, key: &PortKey) -> bool {
        self.get(key).is_some()
    }

    /// Of one Service, sorted.
    pub fn of(&self, service: &ObjectKey) -> &[Entry] {
        self.services
            .get(service)
            .map(Vec::as_slice)
            .unwrap_or_default()
    }

    /// Returns what the port was before.
    pub fn insert(&mut self, key: PortKey, port: Arc<ServicePort>) -> Option<Arc<ServicePort>> {
        let ports = self.services.entry(key.service.clone()).or_default();
        let place = place(ports, &key);
        if let Some((_, old)) = place.ok().and_then(|place| ports.get_mut(place)) {
            return Some(std::mem::replace(old, port));
        }
        // Most Services have one port and never get another.
        ports.reserve_exact(1);
        ports.insert(place.unwrap_or_else(|place| place), (key, port));
        self.count += 1;
        None
    }

    /// Removes the service port, and returns what it was.
    pub fn remove(&mut self, key: &PortKey) -> Option<Arc<ServicePort>> {
        let ports = self.services.get_mut(&key.service)?;
        let (_, port) = ports.remove(place(ports, key).ok()?);
        if ports.is_empty() {
            self.services.remove(&key.service);
        }
        self.count -= 1;
        Some(port)
    }

    /// How many service ports there are.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// All of them, sorted, which takes a while where there are many.
    #[expect(clippy::disallowed_methods, reason = "they are sorted")]
    pub fn iter(&self) -> impl Iterator<Item = (&PortKey, &Arc<ServicePort>)> {
        let mut services: Vec<_> = self.services.iter().collect();
        services.sort_unstable_by_key(|(name, _)| *name);
        services
            .into_iter()
            .flat_map(|(_, ports)| ports)
            .map(|(key, port)| (key, port))
    }

    /// The keys in the order of [`iter`](Ports::iter).
    pub fn keys(&self) -> impl Iterator<Item = &PortKey> {
        self.iter().map(|(key, _)| key)
    }

    /// A sorted copy, for callers that go through all ports often.
    pub fn to_tree(&self) -> BTreeMap<PortKey, Arc<ServicePort>> {
        self.iter()
            .map(|(key, port)| (key.clone(), Arc::clone(port)))
            .collect()
    }
}

impl FromIterator<Entry> for Ports {
    fn from_iter<I: IntoIterator<Item = Entry>>(entries: I) -> Self {
        let mut ports = Self::default();
        for (key, port) in entries {
            ports.insert(key, port);
        }
        ports
    }
}

impl<const N: usize> From<[Entry; N]> for Ports {
    fn from(entries: [Entry; N]) -> Self {
        Self::from_iter(entries)
    }
}

impl fmt::Debug for Ports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

/// Where the port is among those of its Service, or belongs.
fn place(ports: &[Entry], key: &PortKey) -> Result<usize, usize> {
    fn in_service(key: &PortKey) -> (&str, Protocol, Family) {
        (&key.port, key.protocol, key.family)
    }
    ports.binary_search_by(|(other, _)| in_service(other).cmp(&in_service(key)))
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "the order makes no difference")]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn key((namespace, name, port, protocol, family): (u8, u8, u8, u8, bool)) -> PortKey {
        let text =
            |number: u8| -> Arc<str> { ["", "a", "ab", "b"][usize::from(number % 4)].into() };
        PortKey {
            service: ObjectKey {
                namespace: text(namespace),
                name: text(name),
            },
            port: text(port),
            protocol: [Protocol::Tcp, Protocol::Udp, Protocol::Sctp][usize::from(protocol % 3)],
            family: if family { Family::V6 } else { Family::V4 },
        }
    }

    proptest! {
        #[test]
        fn holds_what_a_tree_holds(steps in proptest::collection::vec((any::<(u8, u8, u8, u8, bool)>(), any::<Option<u16>>()), 0..200)) {
            let (mut ports, mut tree) = (Ports::default(), BTreeMap::new());
            for (number, health_check) in steps {
                let key = key(number);
                match health_check {
                    Some(_) => {
                        let port = Arc::new(ServicePort { health_check, ..ServicePort::default() });
                        prop_assert_eq!(ports.insert(key.clone(), port.clone()), tree.insert(key.clone(), port));
                    }
                    None => prop_assert_eq!(ports.remove(&key), tree.remove(&key)),
                }
                prop_assert_eq!(ports.get(&key), tree.get(&key));
                prop_assert_eq!((ports.len(), ports.is_empty()), (tree.len(), tree.is_empty()));
                let of_service = tree.iter().filter(|(other, _)| other.service == key.service);
                prop_assert!(ports.of(&key.service).iter().map(|(key, port)| (key, port)).eq(of_service));
            }
            prop_assert!(ports.iter().eq(tree.iter()));
            prop_assert_eq!(&ports.to_tree(), &tree);
            prop_assert!(ports.services.values().all(|ports| !ports.is_empty()));
            prop_assert_eq!(ports, tree.into_iter().collect());
        }
    }
}
