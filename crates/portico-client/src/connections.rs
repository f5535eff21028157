//! Bounds on connections, for every server of Portico: the table decides, this part has the lock
//! and the clock.
//!
//! A server asks [`Connections::enter`] for each connection that it accepts, ends the connection
//! when [`Guest::ended`] returns, and says when requests begin and end.

mod table;

pub use table::{Limits, Reason};

use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use table::{Id, Table};
use tokio::sync::Notify;

/// How often connections are looked at whose time may be up.
const SWEEP: Duration = Duration::from_secs(1);

type Report = Box<dyn Fn(Reason) + Send + Sync>;

/// The connections of one server.
pub struct Connections {
    table: Mutex<Table<Arc<Notify>>>,
    /// Hears of every connection that is refused or ended for want of room or time.
    report: Report,
}

impl Connections {
    /// Connections within these limits; `report` is told why each one is refused or closed.
    pub fn new(limits: Limits, report: impl Fn(Reason) + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self {
            table: Mutex::new(Table::new(limits)),
            report: Box::new(report),
        })
    }

    /// A place for a connection from there, if there is one.
    pub fn enter(self: &Arc<Self>, peer: IpAddr) -> Option<Guest> {
        let ended = Arc::new(Notify::new());
        let entered = self
            .lock()
            .enter(peer.to_canonical(), Arc::clone(&ended), Instant::now());
        match entered {
            Ok((id, other)) => {
                if let Some((other, reason)) = other {
                    self.close(&other, reason);
                }
                Some(Guest {
                    connections: Arc::clone(self),
                    id,
                    ended,
                })
            }
            Err(reason) => {
                (self.report)(reason);
                None
            }
        }
    }

    /// End the connection that can be missed most easily: the process has no room for another.
    pub fn make_room(&self) {
        let oldest = self.lock().end_oldest();
        if let Some(oldest) = oldest {
            self.close(&oldest, Reason::Full);
        }
    }

    /// End connections whose time is up, until dropped.
    pub async fn sweep(&self) -> std::convert::Infallible {
        loop {
            tokio::time::sleep(SWEEP).await;
            let overdue = self.lock().overdue(Instant::now());
            for (ended, reason) in overdue {
                self.close(&ended, reason);
            }
        }
    }

    /// How many there are, and how many of those are strangers.
    pub fn count(&self) -> (usize, usize) {
        let table = self.lock();
        (table.count(), table.strangers())
    }

    fn close(&self, ended: &Notify, reason: Reason) {
        (self.report)(reason);
        ended.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, Table<Arc<Notify>>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A connection that is counted until it is dropped.
pub struct Guest {
    connections: Arc<Connections>,
    id: Id,
    ended: Arc<Notify>,
}

impl Guest {
    /// Returns when the connection has to end.
    pub async fn ended(&self) {
        self.ended.notified().await;
    }

    /// A request began, from this identity if it is known. It ends when the result is dropped.
    pub fn request(self: &Arc<Self>, identity: Option<&str>) -> UnderWay {
        let crowded = self.connections.lock().begin(self.id, identity);
        if let Some(ended) = crowded {
            self.connections.close(&ended, Reason::Identity);
        }
        UnderWay {
            guest: Arc::clone(self),
            answer: None,
        }
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.connections.lock().leave(self.id);
    }
}

/// A request that is under way until its answer has been sent.
pub struct UnderWay {
    guest: Arc<Guest>,
    answer: Option<(Instant, u64)>,
}

impl UnderWay {
    /// The answer is on its way: if it is not taken in this time, the connection ends.
    pub fn sending(&mut self, patience: Duration) {
        let until = Instant::now() + patience;
        self.answer = self.guest.connections.lock().sending(self.guest.id, until);
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let Guest {
            connections, id, ..
        } = &*self.guest;
        connections.lock().end(*id, self.answer, Instant::now());
    }
}
