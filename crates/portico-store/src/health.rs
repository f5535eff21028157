//! Whether the store takes writes, and if not, why: told by the engine, asked by the server.

use tokio::sync::watch;

use crate::Outage;

#[derive(Clone, Debug)]
enum State {
    Writable,
    /// No write succeeds now; reads do, and writes may again.
    Blocked(Outage),
    /// No write will ever succeed: the store has to be opened again, by another process.
    Lost(Outage),
}

#[derive(Debug)]
pub(crate) struct Health(watch::Sender<State>);

impl Default for Health {
    fn default() -> Self {
        Self(watch::Sender::new(State::Writable))
    }
}

impl Health {
    pub(crate) fn writable(&self) -> Result<(), Outage> {
        match &*self.0.borrow() {
            State::Writable => Ok(()),
            State::Blocked(outage) | State::Lost(outage) => Err(outage.clone()),
        }
    }

    pub(crate) fn set_writable(&self) {
        let changed = self.0.send_if_modified(|state| {
            let blocked = matches!(state, State::Blocked(_));
            if blocked {
                *state = State::Writable;
            }
            blocked
        });
        if changed {
            tracing::info!("the store takes writes again");
        }
    }

    pub(crate) fn set_blocked(&self, outage: &Outage) {
        let changed = self.0.send_if_modified(|state| {
            let writable = matches!(state, State::Writable);
            if writable {
                *state = State::Blocked(outage.clone());
            }
            writable
        });
        if changed {
            tracing::error!("the store takes no writes: {outage}");
        }
    }

    pub(crate) fn set_lost(&self, outage: &Outage) {
        tracing::error!("the store cannot go on: {outage}");
        self.0.send_replace(State::Lost(outage.clone()));
    }

    /// Waits until the store is lost.
    pub(crate) async fn lost(&self) -> Outage {
        let mut states = self.0.subscribe();
        loop {
            if let State::Lost(outage) = &*states.borrow_and_update() {
                return outage.clone();
            }
            if states.changed().await.is_err() {
                // Only when `self` is gone, which this borrows.
                std::future::pending::<()>().await;
            }
        }
    }
}
