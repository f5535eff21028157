//! Packets that come before their Service, as the loop gets and answers them.

use crate::sync::Door;
use portico_dataplane::doorstep::{Answer, Doorstep, Visitor};
use std::io;
use tokio::io::unix::AsyncFd;

pub struct Arrivals {
    doorstep: AsyncFd<Doorstep>,
}

impl Arrivals {
    pub fn new(doorstep: Doorstep) -> io::Result<Arrivals> {
        Ok(Arrivals { doorstep: watched(doorstep)? })
    }

    /// Wait for somebody to come.
    pub async fn next(&mut self) -> io::Result<Vec<Visitor>> {
        loop {
            let mut ready = self.doorstep.readable().await?;
            // What comes after this makes it ready again.
            ready.clear_ready();
            let visitors = self.doorstep.get_ref().visitors()?;
            if !visitors.is_empty() {
                return Ok(visitors);
            }
        }
    }
}

#[expect(unsafe_code, reason = "the runtime has to be promised that the descriptor stays open")]
fn watched(doorstep: Doorstep) -> io::Result<AsyncFd<Doorstep>> {
    // SAFETY: a `Doorstep` owns its descriptor, always returns the same one, and closes it only when dropped.
    unsafe { AsyncFd::register(doorstep) }.map_err(io::Error::from)
}

pub fn door(doorstep: Doorstep) -> Box<dyn Door> {
    Box::new(doorstep)
}

impl Door for Doorstep {
    fn answer(&self, answers: Vec<(u32, Answer)>) {
        if let Err(error) = Doorstep::answer(self, answers) {
            tracing::warn!(%error, "cannot answer packets that came before their Service");
        }
    }
}
