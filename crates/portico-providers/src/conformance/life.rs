//! Calls as the controller makes them, and looks behind the provider: what steps are made of.

use futures_util::future::BoxFuture;
use tokio::time::{Instant, sleep, timeout_at};

use super::{Case, Support, World};
use crate::{Answer, Balancer, Node, Provider, ProviderError, Request};

/// Why a step is not ok.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    Failed(String),
    Skipped(String),
}

pub(super) type Verdict = Result<(), Stop>;

pub(super) fn fail<T>(reason: impl Into<String>) -> Result<T, Stop> {
    Err(Stop::Failed(reason.into()))
}

/// How often a call is repeated that succeeded: all are idempotent.
const TIMES: usize = 2;

pub(super) struct Tester<'a> {
    pub provider: &'a dyn Provider,
    pub world: Option<&'a dyn World>,
    pub case: &'a Case,
    /// What was there before.
    foreign: Vec<String>,
}

impl<'a> Tester<'a> {
    pub(super) async fn new(
        provider: &'a dyn Provider,
        world: Option<&'a dyn World>,
        case: &'a Case,
    ) -> Result<Tester<'a>, Stop> {
        let foreign = foreign(world).await?;
        Ok(Tester {
            provider,
            world,
            case,
            foreign,
        })
    }

    /// A step, and that it left others' things alone.
    pub(super) async fn watched(&self, step: impl Future<Output = Verdict>) -> Verdict {
        step.await?;
        self.spares_others().await
    }

    pub(super) async fn spares_others(&self) -> Verdict {
        let now = foreign(self.world).await?;
        if now != self.foreign {
            return fail(format!(
                "what is not the provider's was changed: {}",
                difference(&self.foreign, &now)
            ));
        }
        Ok(())
    }

    /// What exists, sorted. Nothing if that cannot be seen.
    pub(super) async fn owned(&self) -> Result<Vec<String>, Stop> {
        let Some(world) = self.world else {
            return Ok(Vec::new());
        };
        let mut lines = world.owned().await.map_err(Stop::Failed)?;
        lines.sort();
        Ok(lines)
    }

    /// Ensures until the load balancer is complete; then once more, which may change nothing, not
    /// even if everything is looked at.
    pub(super) async fn ensure(&self, request: &Request) -> Result<Balancer, Stop> {
        let first = self.settle(request).await?;
        let before = self.owned().await?;
        self.provider.forget(request);
        let second = self.settle(request).await?;
        if first != second {
            return fail(format!("a second ensure says {second:?} after {first:?}"));
        }
        self.expect_owned(&before, "a second ensure changed what there is")
            .await?;
        Ok(second)
    }

    /// Ensures until the load balancer is complete.
    pub(super) async fn settle(&self, request: &Request) -> Result<Balancer, Stop> {
        let deadline = self.deadline();
        loop {
            let balancer = self
                .patient("ensure", deadline, || self.provider.ensure(request))
                .await?;
            match balancer.pending {
                None => return Ok(balancer),
                Some(pending) if Instant::now() >= deadline => {
                    return fail(format!(
                        "it is not complete after {:?}: {pending}",
                        self.case.patience
                    ));
                }
                Some(_) => sleep(self.case.pause).await,
            }
        }
    }

    /// `update_nodes`, after which `ensure` has nothing to do.
    pub(super) async fn update(&self, request: &Request) -> Verdict {
        for _ in 0..TIMES {
            self.move_nodes(request).await?;
        }
        let before = self.owned().await?;
        self.provider.forget(request);
        self.settle(request).await?;
        self.expect_owned(&before, "ensure does not agree with update nodes")
            .await
    }

    pub(super) async fn move_nodes(&self, request: &Request) -> Verdict {
        self.patient("update nodes", self.deadline(), || {
            self.provider.update_nodes(request)
        })
        .await
    }

    pub(super) async fn delete(&self, request: &Request) -> Verdict {
        for _ in 0..TIMES {
            self.patient("delete", self.deadline(), || self.provider.delete(request))
                .await?;
        }
        Ok(())
    }

    pub(super) async fn describe(&self, request: &Request) -> Result<Option<Balancer>, Stop> {
        self.patient("describe", self.deadline(), || {
            self.provider.describe(request)
        })
        .await
    }

    pub(super) async fn expect_described(&self, request: &Request, balancer: &Balancer) -> Verdict {
        match self.describe(request).await? {
            Some(found) if found == *balancer => Ok(()),
            found => fail(format!("describe says {found:?}, ensure said {balancer:?}")),
        }
    }

    pub(super) async fn expect_owned(&self, before: &[String], problem: &str) -> Verdict {
        let now = self.owned().await?;
        if now == before {
            Ok(())
        } else {
            fail(format!("{problem}: {}", difference(before, &now)))
        }
    }

    pub(super) async fn expect_change(&self, before: &[String], what: &str) -> Verdict {
        let unseen = self.world.is_some() && self.owned().await? == before;
        if unseen {
            fail(format!("{what} changed nothing"))
        } else {
            Ok(())
        }
    }

    /// Nodes that should get traffic are in what exists, others are not, if the provider sends it
    /// to nodes.
    pub(super) async fn expect_nodes(&self, request: &Request) -> Verdict {
        if !self.provider.abilities().uses_nodes || self.world.is_none() {
            return Ok(());
        }
        let owned = self.owned().await?.join("\n");
        for node in &self.case.nodes {
            let wanted = request.nodes.contains(node);
            if wanted != is_mentioned(node, &owned) {
                let verb = if wanted { "is not" } else { "is still" };
                return fail(format!("node {} {verb} in what exists", node.name));
            }
        }
        Ok(())
    }

    /// A change of a Service that has a load balancer, and back. Its address stays.
    pub(super) async fn there_and_back(
        &self,
        base: &Request,
        changed: &[Request],
        support: &Support,
    ) -> Verdict {
        if let Support::Untested(reason) = support {
            return Err(Stop::Skipped(reason.clone()));
        }
        let balancer = self.ensure(base).await?;
        let at_first = self.owned().await?;
        for request in changed {
            let before = self.owned().await?;
            if *support == Support::Refused {
                self.expect_refusal(request, &before).await?;
                continue;
            }
            let now = self.ensure(request).await?;
            if now.ingress != balancer.ingress {
                return fail(format!(
                    "the address became {:?}, it was {:?}",
                    now.ingress, balancer.ingress
                ));
            }
            self.expect_described(request, &now).await?;
            if *support == Support::Full {
                self.expect_change(&before, "it").await?;
            }
        }
        self.ensure(base).await?;
        self.expect_owned(
            &at_first,
            "it is not as before after the change was taken back",
        )
        .await
    }

    pub(super) async fn expect_refusal(&self, request: &Request, before: &[String]) -> Verdict {
        let answer = timeout_at(self.deadline(), self.provider.ensure(request)).await;
        match answer {
            Ok(Err(ProviderError::Refused { .. })) => {}
            Ok(Err(error)) => return fail(format!("it should be refused, and not: {error}")),
            Ok(Ok(_)) => return fail("it should be refused, and was taken"),
            Err(_) => return fail("it should be refused, and there is no answer"),
        }
        self.expect_owned(before, "a refusal changed what there is")
            .await
    }

    fn deadline(&self) -> Instant {
        Instant::now() + self.case.patience
    }

    /// A call, again as long as the provider says that it takes time.
    async fn patient<'b, T>(
        &self,
        what: &str,
        deadline: Instant,
        call: impl Fn() -> Answer<'b, T>,
    ) -> Result<T, Stop> {
        loop {
            let after = match timeout_at(deadline, call()).await {
                Ok(Ok(answer)) => return Ok(answer),
                Ok(Err(ProviderError::RetryAfter { after, .. })) => after,
                Ok(Err(error)) => return fail(format!("{what}: {}", told(&error))),
                Err(_) => return fail(format!("{what}: no answer in {:?}", self.case.patience)),
            };
            if Instant::now() >= deadline {
                return fail(format!(
                    "{what}: still not done after {:?}",
                    self.case.patience
                ));
            }
            sleep(after.min(self.case.pause)).await;
        }
    }
}

fn told(error: &ProviderError) -> String {
    match error {
        ProviderError::Refused { reason, message } => format!("refused ({reason}): {message}"),
        error => error.to_string(),
    }
}

fn foreign(world: Option<&dyn World>) -> BoxFuture<'_, Result<Vec<String>, Stop>> {
    Box::pin(async move {
        let Some(world) = world else {
            return Ok(Vec::new());
        };
        let mut lines = world.foreign().await.map_err(Stop::Failed)?;
        lines.sort();
        Ok(lines)
    })
}

/// By its name, an address or the provider's own word for it.
fn is_mentioned(node: &Node, text: &str) -> bool {
    let id = node.provider_id.rsplit('/').next().unwrap_or_default();
    let addresses = node.addresses.iter().map(ToString::to_string);
    let words = addresses.chain([node.name.clone(), id.to_owned()]);
    words
        .filter(|word| !word.is_empty())
        .any(|word| is_word(&word, text))
}

/// Whether it is there other than as a part of a longer word.
fn is_word(word: &str, text: &str) -> bool {
    let end = |letter: Option<char>| !letter.is_some_and(char::is_alphanumeric);
    text.match_indices(word).any(|(at, _)| {
        end(text[..at].chars().next_back()) && end(text[at + word.len()..].chars().next())
    })
}

/// Lines that are only in one of two.
pub(super) fn difference(before: &[String], now: &[String]) -> String {
    let gone = before
        .iter()
        .filter(|line| !now.contains(line))
        .map(|line| format!("- {line}"));
    let new = now
        .iter()
        .filter(|line| !before.contains(line))
        .map(|line| format!("+ {line}"));
    let lines: Vec<String> = gone.chain(new).collect();
    if lines.is_empty() {
        format!("{} lines, there were {}", now.len(), before.len())
    } else {
        lines.join(", ")
    }
}
