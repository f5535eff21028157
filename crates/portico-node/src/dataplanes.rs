//! Which dataplane a mode has, and what the others leave behind. The only place that names them.

use crate::config::{Config, Mode};
use crate::sync::Flows;
use portico_dataplane::{ApplyError, Dataplane};
use portico_model::table::Change;
use std::io;

pub fn open(config: &Config) -> Result<Box<dyn Dataplane>, ApplyError> {
    Err(ApplyError::Limit(format!("{} is not there yet", config.mode.name())))
}

/// Remove what kube-proxy or we ourselves in another mode left behind.
pub fn remove_others(mode: Mode) -> Result<(), ApplyError> {
    let _ = mode;
    Ok(())
}

/// Remove the rules of all modes.
pub fn remove_all() -> Result<(), ApplyError> {
    Ok(())
}

pub fn flows() -> Box<dyn Flows> {
    struct None;
    impl Flows for None {
        fn end(&mut self, _: &[Change]) -> usize {
            0
        }
    }
    Box::new(None)
}

/// Tells when somebody else changes our rules.
pub struct Disturbances;

impl Disturbances {
    pub async fn next(&mut self) -> io::Result<()> {
        std::future::pending().await
    }
}

pub fn disturbances(mode: Mode) -> Option<Disturbances> {
    (mode == Mode::Nftables).then_some(Disturbances)
}
