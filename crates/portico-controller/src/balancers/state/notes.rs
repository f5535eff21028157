//! What people are told in Events, with the reasons that users of Kubernetes know.

use super::State;
use super::steps::{Asked, Call, Called};
use crate::balancers::service::Facts;
use crate::provider::{Balancer, Host, ProviderError};
use portico_model::key::ObjectKey;
use portico_view::Owner;

/// The reason of the note that another node answers for an address.
pub(crate) const OWNER_CHANGED: &str = "OwnerChanged";

/// What is to become an Event of a Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Note {
    pub key: ObjectKey,
    pub uid: String,
    pub warning: bool,
    pub reason: &'static str,
    pub message: String,
}

impl State {
    pub(super) fn tell_begin(&mut self, key: &ObjectKey, facts: &Facts, call: Call, asked: &Asked) {
        let nobody = self.abilities.uses_nodes && asked.nodes.is_empty();
        if nobody && matches!(call, Call::Ensure | Call::UpdateNodes) {
            self.note(
                key,
                true,
                "UnAvailableLoadBalancer",
                "no node may get traffic of load balancers".to_owned(),
            );
        }
        let Some(entry) = self.services.get_mut(key) else {
            return;
        };
        match call {
            // A call that is pending has its Event already.
            Call::Ensure if entry.memory.is_pending() => {}
            // A controller that starts and finds everything in place has nothing to tell.
            Call::Ensure if facts.ingress.is_empty() || entry.memory.made.is_some() => {
                entry.run.ensuring = true;
                self.note(
                    key,
                    false,
                    "EnsuringLoadBalancer",
                    format!("asking {}", self.provider),
                );
            }
            Call::Delete => self.note(
                key,
                false,
                "DeletingLoadBalancer",
                format!("asking {}", self.provider),
            ),
            _ => {}
        }
    }

    pub(super) fn tell_end(&mut self, key: &ObjectKey, call: Call, result: &Called) {
        let ensuring = self
            .services
            .get(key)
            .is_some_and(|entry| entry.run.ensuring);
        match (result, call) {
            (Ok(balancer), Call::Ensure) if ensuring => {
                self.note(key, false, "EnsuredLoadBalancer", hosts(balancer.as_ref()));
            }
            (Ok(_), Call::UpdateNodes) => {
                self.note(
                    key,
                    false,
                    "UpdatedLoadBalancer",
                    "told of other nodes".to_owned(),
                );
            }
            (Ok(_), Call::Delete) => self.note(
                key,
                false,
                "DeletedLoadBalancer",
                "nothing of it is left".to_owned(),
            ),
            (Ok(_), _) | (Err(ProviderError::Elsewhere | ProviderError::RetryAfter { .. }), _) => {}
            (Err(error), Call::UpdateNodes) => {
                self.note(key, true, "UpdateLoadBalancerFailed", error.to_string())
            }
            (Err(error), Call::DeleteOrphan) => {
                self.note(key, true, "DeleteLoadBalancerFailed", error.to_string())
            }
            (Err(error), Call::Delete) => {
                self.note(
                    key,
                    true,
                    "SyncLoadBalancerFailed",
                    format!("cannot delete: {error}"),
                );
            }
            (Err(error), Call::Ensure | Call::Resync) => {
                self.note(key, true, "SyncLoadBalancerFailed", error.to_string());
            }
        }
    }

    /// An address is another node's now.
    pub(super) fn tell_move(&mut self, key: &ObjectKey, before: &str, owner: &Owner) {
        let message = format!("{owner}, and no longer {before}");
        self.note(key, false, OWNER_CHANGED, message);
    }

    fn note(&mut self, key: &ObjectKey, warning: bool, reason: &'static str, message: String) {
        let entry = self.services.get(key);
        let uid = entry.and_then(|entry| {
            let of_facts = entry.facts.as_ref().map(|facts| facts.uid());
            of_facts.or_else(|| {
                entry
                    .orphans
                    .last()
                    .map(|request| request.service.uid.as_str())
            })
        });
        let uid = uid.unwrap_or_default().to_owned();
        self.notes.push(Note {
            key: key.clone(),
            uid,
            warning,
            reason,
            message,
        });
    }
}

fn hosts(balancer: Option<&Balancer>) -> String {
    let ingress = balancer
        .map(|balancer| balancer.ingress.as_slice())
        .unwrap_or_default();
    let hosts = ingress.iter().map(|ingress| match &ingress.host {
        Host::Ip(address) => address.to_string(),
        Host::Name(name) => name.clone(),
    });
    let hosts: Vec<String> = hosts.collect();
    if hosts.is_empty() {
        "without an address so far".to_owned()
    } else {
        hosts.join(", ")
    }
}
