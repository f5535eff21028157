//! Election of one active replica by a Lease, as the Kubernetes components do it: the holder of the
//! Lease renews it; the others take it when it has not been renewed for its whole duration, by
//! their own clock since they saw it change.
//!
//! [`Election`] decides and touches nothing; [`lead`] reads and writes the Lease and runs the work
//! while it is held.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta},
};
use kube::{Api, Client, api::PostParams};
use tracing::{debug, info, warn};

use crate::Shutdown;

/// Which Lease, and how patient its candidates are.
#[derive(Clone, Debug)]
pub struct LeaseOptions {
    /// The namespace of the Lease.
    pub namespace: String,
    /// The name of the Lease.
    pub name: String,
    /// Different for each replica, for example host name and process.
    pub identity: String,
    /// How long the others leave a Lease alone that is not renewed.
    pub lease_duration: Duration,
    /// After how long without a renewal the holder stops its work; shorter than the duration.
    pub renew_deadline: Duration,
    /// How often the Lease is renewed or asked for.
    pub retry_period: Duration,
}

impl LeaseOptions {
    /// With the times that the components of Kubernetes use.
    pub fn new(namespace: &str, name: &str, identity: &str) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
            identity: identity.into(),
            lease_duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
        }
    }
}

/// What to do about the Lease now.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// There is none.
    Create(Box<Lease>),
    /// Take it or renew it.
    Replace(Box<Lease>),
    /// Another replica holds it.
    Wait,
}

/// What one replica knows about the Lease.
#[derive(Debug)]
pub struct Election {
    identity: String,
    lease_duration: Duration,
    seen: Option<(Option<LeaseSpec>, Instant)>,
}

impl Election {
    /// For a replica that has seen nothing yet.
    pub fn new(identity: &str, lease_duration: Duration) -> Self {
        Self {
            identity: identity.into(),
            lease_duration,
            seen: None,
        }
    }

    /// `now` measures how long the Lease has not changed, `clock` is what is written into it:
    /// clocks of two machines are never compared.
    pub fn step(&mut self, lease: Option<&Lease>, now: Instant, clock: Timestamp) -> Step {
        let Some(lease) = lease else {
            return Step::Create(Box::new(Lease {
                spec: Some(self.taken(None, clock)),
                ..Lease::default()
            }));
        };
        let since = self.unchanged_since(lease, now);
        let spec = lease.spec.as_ref();
        let holder = spec
            .and_then(|spec| spec.holder_identity.as_deref())
            .unwrap_or_default();
        if holder.is_empty() || holder == self.identity || now >= since + self.duration_of(spec) {
            return Step::Replace(Box::new(Lease {
                spec: Some(self.taken(spec, clock)),
                ..lease.clone()
            }));
        }
        Step::Wait
    }

    /// The Lease as it is given up: free for the next one at once.
    pub fn released(&self, lease: &Lease, clock: Timestamp) -> Option<Lease> {
        let spec = lease
            .spec
            .as_ref()
            .filter(|spec| spec.holder_identity.as_ref() == Some(&self.identity))?;
        let spec = LeaseSpec {
            holder_identity: Some(String::new()),
            lease_duration_seconds: Some(1),
            renew_time: Some(MicroTime(clock)),
            ..spec.clone()
        };
        Some(Lease {
            spec: Some(spec),
            ..lease.clone()
        })
    }

    fn unchanged_since(&mut self, lease: &Lease, now: Instant) -> Instant {
        match &self.seen {
            Some((spec, since)) if *spec == lease.spec => *since,
            _ => {
                self.seen = Some((lease.spec.clone(), now));
                now
            }
        }
    }

    /// The duration that the holder promised counts, not one's own.
    fn duration_of(&self, spec: Option<&LeaseSpec>) -> Duration {
        let seconds = spec
            .and_then(|spec| spec.lease_duration_seconds)
            .and_then(|seconds| u64::try_from(seconds).ok());
        seconds.map_or(self.lease_duration, Duration::from_secs)
    }

    fn taken(&self, before: Option<&LeaseSpec>, clock: Timestamp) -> LeaseSpec {
        let before = before.cloned().unwrap_or_default();
        let is_renewal = before.holder_identity.as_ref() == Some(&self.identity);
        let transitions = before.lease_transitions.unwrap_or(0);
        let taken_over = !is_renewal && before.acquire_time.is_some();
        LeaseSpec {
            holder_identity: Some(self.identity.clone()),
            lease_duration_seconds: Some(
                i32::try_from(self.lease_duration.as_secs().max(1)).unwrap_or(i32::MAX),
            ),
            acquire_time: before
                .acquire_time
                .filter(|_| is_renewal)
                .or(Some(MicroTime(clock))),
            renew_time: Some(MicroTime(clock)),
            lease_transitions: Some(if taken_over {
                transitions.saturating_add(1)
            } else {
                transitions
            }),
            ..before
        }
    }
}

/// Runs `work` whenever this replica holds the Lease, until `shutdown`. Work that loses the Lease
/// is dropped where it stands, and the replica stands for election again.
pub async fn lead<W: Future<Output = ()>>(
    client: Client,
    options: LeaseOptions,
    mut shutdown: Shutdown,
    mut work: impl FnMut(Shutdown) -> W,
) {
    let api = Api::namespaced(client, &options.namespace);
    let mut candidate = Candidate {
        election: Election::new(&options.identity, options.lease_duration),
        api,
        options,
    };
    loop {
        tokio::select! {
            () = candidate.acquire() => {}
            _ = shutdown.wait_for(|stop| *stop) => return,
        }
        info!(
            lease = candidate.options.name,
            identity = candidate.options.identity,
            "leading"
        );
        let ended = tokio::select! {
            () = work(shutdown.clone()) => true,
            () = candidate.renew_until_lost() => false,
        };
        if ended {
            return candidate.release().await;
        }
        warn!(lease = candidate.options.name, "lost the lease");
    }
}

struct Candidate {
    api: Api<Lease>,
    options: LeaseOptions,
    election: Election,
}

#[derive(Debug, PartialEq)]
enum Attempt {
    Held,
    HeldByAnother,
    /// No answer, or another write was faster: the next try tells.
    Unknown,
}

impl Candidate {
    async fn acquire(&mut self) {
        while self.attempt().await != Attempt::Held {
            tokio::time::sleep(self.options.retry_period).await;
        }
    }

    async fn renew_until_lost(&mut self) {
        let mut renewed = Instant::now();
        while renewed.elapsed() < self.options.renew_deadline {
            tokio::time::sleep(self.options.retry_period).await;
            let asked = Instant::now();
            let left = self
                .options
                .renew_deadline
                .saturating_sub(renewed.elapsed());
            match tokio::time::timeout(left, self.attempt()).await {
                Ok(Attempt::Held) => renewed = asked,
                Ok(Attempt::HeldByAnother) => return,
                Ok(Attempt::Unknown) | Err(_) => {}
            }
        }
    }

    /// Tries once to take or renew the Lease.
    async fn attempt(&mut self) -> Attempt {
        match self.try_once().await {
            Ok(attempt) => attempt,
            Err(error) => {
                debug!(lease = self.options.name, %error, "cannot write the lease");
                Attempt::Unknown
            }
        }
    }

    async fn try_once(&mut self) -> kube::Result<Attempt> {
        let lease = self.api.get_opt(&self.options.name).await?;
        match self
            .election
            .step(lease.as_ref(), Instant::now(), Timestamp::now())
        {
            Step::Wait => return Ok(Attempt::HeldByAnother),
            Step::Replace(lease) => {
                self.api
                    .replace(&self.options.name, &PostParams::default(), &lease)
                    .await?;
            }
            Step::Create(mut lease) => {
                lease.metadata = ObjectMeta {
                    name: Some(self.options.name.clone()),
                    ..ObjectMeta::default()
                };
                self.api.create(&PostParams::default(), &lease).await?;
            }
        }
        Ok(Attempt::Held)
    }

    async fn release(&self) {
        let release = async {
            let lease = self.api.get_opt(&self.options.name).await?;
            if let Some(released) =
                lease.and_then(|lease| self.election.released(&lease, Timestamp::now()))
            {
                self.api
                    .replace(&self.options.name, &PostParams::default(), &released)
                    .await?;
            }
            Ok::<(), kube::Error>(())
        };
        match tokio::time::timeout(self.options.retry_period, release).await {
            Ok(Ok(())) => info!(lease = self.options.name, "released"),
            _ => warn!(
                lease = self.options.name,
                "could not release the lease; it expires by itself"
            ),
        }
    }
}

#[cfg(test)]
mod tests;
