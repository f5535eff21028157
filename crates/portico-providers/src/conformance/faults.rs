//! Every call that a provider makes to its server goes wrong once, in every way; the controller
//! tries again; and in the end there is what there would have been: nothing twice, nothing left.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::future::BoxFuture;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout_at};

use super::life::{Stop, Tester, Verdict, difference, fail};
use super::sample;
use super::{Case, Report, Support, World};
use crate::{Protocol, Provider, ProviderError, Request};

/// What happens to one call that a provider makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The connection fails; the call does not arrive.
    Unreachable,
    /// No answer comes in time; the call does not arrive. (The layer need not let the time pass.)
    Timeout,
    /// 429: the call is not looked at.
    TooMany,
    /// 500 or 503, and nothing happened.
    ServerError,
    /// 500 or 503, and it happened nevertheless.
    ServerErrorAfter,
    /// It happened, and the connection breaks before the answer.
    LostResponse,
    /// The program ends before the call. The layer waits for [`FaultPlan::crash`], which never
    /// returns.
    CrashBefore,
    /// The program ends after the call.
    CrashAfter,
}

impl Fault {
    /// Every fault.
    pub const ALL: [Self; 8] = [
        Self::Unreachable,
        Self::Timeout,
        Self::TooMany,
        Self::ServerError,
        Self::ServerErrorAfter,
        Self::LostResponse,
        Self::CrashBefore,
        Self::CrashAfter,
    ];

    /// Whether the server sees the call.
    pub fn arrives(self) -> bool {
        matches!(
            self,
            Self::ServerErrorAfter | Self::LostResponse | Self::CrashAfter
        )
    }

    /// Whether the program ends with it.
    pub fn is_crash(self) -> bool {
        matches!(self, Self::CrashBefore | Self::CrashAfter)
    }
}

/// Which call goes wrong, and how. Shared between the test and the layer that makes calls.
#[derive(Debug, Default)]
pub struct FaultPlan {
    state: Mutex<State>,
    crashed: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// What was called, as the layer names it.
    calls: Vec<String>,
    fault: Option<(usize, Fault)>,
    /// Calls do not count, and do not go wrong.
    quiet: bool,
}

impl FaultPlan {
    /// Asked before each call. `what` names it for people (`POST /firewalls`).
    pub fn next(&self, what: &str) -> Option<Fault> {
        let mut state = self.state();
        if state.quiet {
            return None;
        }
        let number = state.calls.len();
        state.calls.push(what.to_owned());
        state
            .fault
            .take_if(|(at, _)| *at == number)
            .map(|(_, fault)| fault)
    }

    /// Simulates the end of the program: the task that calls this is dropped.
    pub async fn crash<T>(&self) -> T {
        self.crashed.notify_one();
        std::future::pending().await
    }

    /// Counts anew. Call `at` goes wrong, if any.
    pub fn set(&self, fault: Option<(usize, Fault)>) {
        *self.state() = State {
            fault,
            ..State::default()
        };
    }

    fn be_quiet(&self, quiet: bool) {
        self.state().quiet = quiet;
    }

    /// The calls so far, as operations.
    pub fn calls(&self) -> Vec<String> {
        self.state().calls.clone()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Where a provider can be started, and its calls go wrong.
pub trait Lab: World {
    /// A provider as after a start of the program: it remembers nothing.
    fn start(&self) -> BoxFuture<'_, Arc<dyn Provider>>;

    /// What the layer below that provider asks.
    fn plan(&self) -> &FaultPlan;
}

/// What a provider knows when a call begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Knows {
    /// What it did before.
    Everything,
    /// Nothing: the program starts before each call.
    Nothing,
}

/// Runs one life without faults, to count calls; then one for each call and fault. All of it for a
/// provider that remembers what it may, and for one that starts before each call. A line of the
/// report is a call.
pub async fn with_faults(lab: &dyn Lab, case: &Case) -> Report {
    let mut report = Report::default();
    for knows in [Knows::Everything, Knows::Nothing] {
        if !each_call_fails(lab, case, knows, &mut report).await {
            break;
        }
    }
    lab.plan().set(None);
    report
}

/// Whether more can be tried.
async fn each_call_fails(lab: &dyn Lab, case: &Case, knows: Knows, report: &mut Report) -> bool {
    let plan = lab.plan();
    plan.set(None);
    let clean = live(lab, case, knows).await;
    let calls = plan.calls();
    let how = if knows == Knows::Nothing {
        "started before each call, "
    } else {
        ""
    };
    report.add(
        format!("{how}without a fault"),
        clean.as_ref().map(|_| ()).map_err(Stop::clone),
    );
    let Ok(stages) = clean else { return false };
    for (at, name) in calls.iter().enumerate() {
        let mut verdict = Ok(());
        for fault in Fault::ALL {
            plan.set(Some((at, fault)));
            let lived = live(lab, case, knows)
                .await
                .and_then(|found| same(&stages, &found));
            if let Err(Stop::Failed(reason)) = lived {
                verdict = fail(format!("{fault:?}: {reason}"));
                break;
            }
        }
        let spoiled = verdict.is_err();
        report.add(format!("{how}call {at}, {name}"), verdict);
        // What is left would be found again in every other life.
        if spoiled && !lab.owned().await.is_ok_and(|left| left.is_empty()) {
            return false;
        }
    }
    true
}

/// How many of each kind of thing there were at each stage.
type Stages = Vec<BTreeMap<String, usize>>;

fn same(wanted: &Stages, found: &Stages) -> Verdict {
    match wanted
        .iter()
        .zip(found)
        .position(|(wanted, found)| wanted != found)
    {
        None => Ok(()),
        Some(at) => fail(format!(
            "there are {:?} where there should be {:?}",
            found[at], wanted[at]
        )),
    }
}

/// Runs one life from ensure to delete, and returns what there is after each stage.
async fn live(lab: &dyn Lab, case: &Case, knows: Knows) -> Result<Stages, Stop> {
    let mut life = Life {
        lab,
        case,
        provider: lab.start().await,
    };
    let base = sample::service(case, 1);
    let more_nodes = sample::on_nodes(case, base.clone(), 3);
    let mut changed = sample::with_port(more_nodes.clone(), "more", Protocol::Tcp);
    if case.can.local == Support::Full {
        changed = sample::local(changed);
    }
    if case.can.source_ranges == Support::Full {
        changed = sample::from(changed, &["192.0.2.0/24"]);
    }
    let others = sorted(lab.foreign().await)?;
    let mut stages = Stages::new();
    let story = [
        (Call::Ensure, &base),
        (Call::Describe, &base),
        (Call::UpdateNodes, &more_nodes),
        (Call::Ensure, &changed),
        (Call::Ensure, &base),
    ];
    for (call, request) in story {
        if knows == Knows::Nothing {
            life.provider = lab.start().await;
        }
        life.until_done(call, request).await?;
        stages.push(kinds(&sorted(lab.owned().await)?));
        lab.plan().be_quiet(true);
        life.is_idle(request).await?;
        lab.plan().be_quiet(false);
    }
    if knows == Knows::Nothing {
        life.provider = lab.start().await;
    }
    life.until_done(Call::Delete, &base).await?;
    let left = sorted(lab.owned().await)?;
    if !left.is_empty() {
        return fail(format!("delete left {}", difference(&[], &left)));
    }
    let now = sorted(lab.foreign().await)?;
    if now != others {
        return fail(format!(
            "what is not the provider's was changed: {}",
            difference(&others, &now)
        ));
    }
    Ok(stages)
}

fn sorted(lines: Result<Vec<String>, String>) -> Result<Vec<String>, Stop> {
    let mut lines = lines.map_err(Stop::Failed)?;
    lines.sort();
    Ok(lines)
}

/// By the first word of each line.
fn kinds(lines: &[String]) -> BTreeMap<String, usize> {
    let mut kinds = BTreeMap::new();
    for line in lines {
        *kinds
            .entry(
                line.split_whitespace()
                    .next()
                    .unwrap_or_default()
                    .to_owned(),
            )
            .or_default() += 1;
    }
    kinds
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Call {
    Ensure,
    Describe,
    UpdateNodes,
    Delete,
}

struct Life<'a> {
    lab: &'a dyn Lab,
    case: &'a Case,
    provider: Arc<dyn Provider>,
}

impl Life<'_> {
    /// Acts as the controller does: what failed is tried again, after failed nodes all is ensured,
    /// and one that starts ensures.
    async fn until_done(&mut self, mut call: Call, request: &Request) -> Verdict {
        let (deadline, mut last) = (Instant::now() + self.case.patience, String::new());
        loop {
            let answer = tokio::select! {
                answer = timeout_at(deadline, ask(&*self.provider, call, request)) => Some(answer),
                () = self.lab.plan().crashed.notified() => None,
            };
            match answer {
                Some(Ok(Ok(true))) => return Ok(()),
                Some(Ok(Ok(false))) => {}
                Some(Ok(Err(ProviderError::Refused { reason, message }))) => {
                    return fail(format!(
                        "{call:?}: a fault became a refusal ({reason}): {message}"
                    ));
                }
                Some(Ok(Err(error))) => last = format!(", at last because of: {error}"),
                Some(Err(_)) => {
                    return fail(format!(
                        "{call:?}: not done after {:?}{last}",
                        self.case.patience
                    ));
                }
                None => self.provider = self.lab.start().await,
            }
            if call == Call::UpdateNodes {
                call = Call::Ensure;
            }
            sleep(self.case.pause).await;
        }
    }

    /// One more `ensure` finds everything as it should be, and `describe` says the same.
    async fn is_idle(&self, request: &Request) -> Verdict {
        let tester = Tester::new(&*self.provider, Some(self.lab), self.case).await?;
        let balancer = tester.ensure(request).await?;
        tester.expect_described(request, &balancer).await
    }
}

/// Whether it is complete.
async fn ask(
    provider: &dyn Provider,
    call: Call,
    request: &Request,
) -> Result<bool, ProviderError> {
    match call {
        Call::Ensure => provider
            .ensure(request)
            .await
            .map(|balancer| balancer.pending.is_none()),
        Call::Describe => provider
            .describe(request)
            .await
            .map(|found| found.is_some()),
        Call::UpdateNodes => provider.update_nodes(request).await.map(|()| true),
        Call::Delete => provider.delete(request).await.map(|()| true),
    }
}
