//! Who had an address when: address events of several hosts, with the time.

use portico_dataplane::netlink::{Message, Socket};
use portico_testbed::Host;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const GROUPS: [u32; 2] = [5, 9];

#[derive(Clone, Debug)]
struct Change {
    at: Instant,
    host: usize,
    has: bool,
}

/// Watches hosts until it is dropped.
pub(crate) struct Timeline {
    changes: Arc<Mutex<Vec<Change>>>,
    stop: Arc<AtomicBool>,
    news: Mutex<Receiver<()>>,
}

impl Timeline {
    /// None of the hosts has the address yet.
    pub(crate) fn watch(hosts: &[Host], address: IpAddr) -> Self {
        let (changes, stop): (Arc<Mutex<Vec<Change>>>, Arc<AtomicBool>) = Default::default();
        let (sender, news) = mpsc::channel();
        for (number, host) in hosts.iter().enumerate() {
            let socket = host.enter(|| {
                let socket = Socket::open(libc::NETLINK_ROUTE).unwrap();
                GROUPS.iter().for_each(|group| socket.join(*group).unwrap());
                socket
            });
            let (changes, stop, sender) = (changes.clone(), stop.clone(), sender.clone());
            std::thread::spawn(move || listen(socket, number, address, &changes, &stop, &sender));
        }
        Self {
            changes,
            stop,
            news: Mutex::new(news),
        }
    }

    /// Who has it now, by their place in the list.
    pub(crate) fn holders(&self) -> Vec<usize> {
        let changes = self.changes.lock().unwrap();
        let mut holders = Vec::new();
        changes
            .iter()
            .for_each(|change| apply(&mut holders, change));
        holders
    }

    /// Waits until exactly these have it.
    pub(crate) fn wait_for(&self, wanted: &[usize], patience: Duration) {
        let deadline = Instant::now() + patience;
        let news = self.news.lock().unwrap();
        while self.holders() != wanted {
            let left = deadline.saturating_duration_since(Instant::now());
            let told = news.recv_timeout(left);
            assert!(
                told.is_ok() || self.holders() == wanted,
                "{:?} have it, not {wanted:?}: {self:?}",
                self.holders()
            );
        }
    }

    /// The longest times, between the first owner and now, for which more than one had it, and for
    /// which none did.
    pub(crate) fn longest_overlap_and_gap(&self) -> (Duration, Duration) {
        let changes = self.changes.lock().unwrap();
        let (mut holders, mut overlap, mut gap) = (Vec::new(), Duration::ZERO, Duration::ZERO);
        let ends = changes
            .iter()
            .skip(1)
            .map(|change| change.at)
            .chain([Instant::now()]);
        for (change, end) in changes.iter().zip(ends) {
            apply(&mut holders, change);
            let time = end - change.at;
            match holders.len() {
                0 => gap = gap.max(time),
                1 => {}
                _ => overlap = overlap.max(time),
            }
        }
        (overlap, gap)
    }
}

impl Drop for Timeline {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

impl std::fmt::Debug for Timeline {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let changes = self.changes.lock().unwrap();
        let Some(first) = changes.first() else {
            return f.write_str("nobody ever had it");
        };
        changes.iter().try_for_each(|change| {
            let verb = if change.has { "has" } else { "lost" };
            write!(
                f,
                "\n{:?}: host {} {verb} it",
                change.at - first.at,
                change.host + 1
            )
        })
    }
}

fn apply(holders: &mut Vec<usize>, change: &Change) {
    holders.retain(|host| *host != change.host);
    if change.has {
        holders.push(change.host);
        holders.sort_unstable();
    }
}

fn listen(
    mut socket: Socket,
    host: usize,
    address: IpAddr,
    changes: &Mutex<Vec<Change>>,
    stop: &AtomicBool,
    news: &Sender<()>,
) {
    let mut had = false;
    while !stop.load(Ordering::Relaxed) {
        let read = socket.notifications(|message| {
            if let Some(has) = change_of(&message, address).filter(|has| *has != had) {
                had = has;
                changes.lock().unwrap().push(Change {
                    at: Instant::now(),
                    host,
                    has,
                });
                let _ = news.send(());
            }
        });
        read.expect("address events can be read");
        std::thread::sleep(Duration::from_micros(500));
    }
}

fn change_of(message: &Message, address: IpAddr) -> Option<bool> {
    let octets = match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    };
    let is_it = message
        .attributes(8)
        .any(|attribute| attribute.kind == libc::IFA_ADDRESS && attribute.data == octets);
    match message.kind {
        libc::RTM_NEWADDR => is_it.then_some(true),
        libc::RTM_DELADDR => is_it.then_some(false),
        _ => None,
    }
}
