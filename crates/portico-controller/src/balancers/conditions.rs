//! The four conditions of a Service with a load balancer, and what of them has to be written.

use std::fmt;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde_json::{Value, json};

/// The API takes more, but no reader wants it.
const MOST_LETTERS: usize = 1000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Aspect {
    /// It has an address.
    Allocated,
    /// All nodes forward its traffic.
    Programmed,
    /// The address attracts traffic.
    Announced,
    /// There is an endpoint that traffic can get to.
    Reachable,
}

impl Aspect {
    pub(super) const ALL: [Self; 4] = [
        Self::Allocated,
        Self::Programmed,
        Self::Announced,
        Self::Reachable,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Allocated => "Allocated",
            Self::Programmed => "Programmed",
            Self::Announced => "Announced",
            Self::Reachable => "Reachable",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Status {
    True,
    False,
    Unknown,
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Verdict {
    pub status: Status,
    /// One CamelCase word.
    pub reason: String,
    /// For people: what is the case, and where it is not good, what to do.
    pub message: String,
}

impl Verdict {
    pub(super) fn new(status: Status, reason: &str, message: impl Into<String>) -> Self {
        let message: String = message.into();
        Self {
            status,
            reason: reason.to_owned(),
            message: message.chars().take(MOST_LETTERS).collect(),
        }
    }
}

/// In the order of [`Aspect::ALL`].
pub(super) type Verdicts = [Verdict; 4];

/// What a Service says at the moment, of each aspect.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Present([Option<Held>; 4]);

#[derive(Clone, Debug, PartialEq)]
struct Held {
    verdict: Verdict,
    generation: Option<i64>,
    since: Timestamp,
}

impl Present {
    pub(super) fn of(service: &Service) -> Self {
        let conditions = service
            .status
            .as_ref()
            .and_then(|status| status.conditions.as_deref())
            .unwrap_or_default();
        Self(Aspect::ALL.map(|aspect| {
            conditions
                .iter()
                .find(|held| held.type_ == aspect.name())
                .map(Held::of)
        }))
    }

    pub(super) fn verdict(&self, aspect: Aspect) -> Option<&Verdict> {
        let at = Aspect::ALL.iter().position(|other| *other == aspect)?;
        self.0.get(at)?.as_ref().map(|held| &held.verdict)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.iter().all(Option::is_none)
    }

    /// How much the verdicts differ from what is there.
    pub(super) fn differ(&self, verdicts: &Verdicts, generation: Option<i64>) -> Difference {
        let pairs = self.0.iter().zip(verdicts);
        pairs
            .map(|(held, verdict)| Held::differs(held.as_ref(), verdict, generation))
            .max()
            .unwrap_or(Difference::None)
    }

    /// The conditions as they are to be written; those that are as they should be are left out.
    pub(super) fn patch(
        &self,
        verdicts: &Verdicts,
        generation: Option<i64>,
        now: Timestamp,
    ) -> Vec<Value> {
        let all = Aspect::ALL.iter().zip(&self.0).zip(verdicts);
        let different = all.filter(|((_, held), verdict)| {
            Held::differs(held.as_ref(), verdict, generation) != Difference::None
        });
        different
            .map(|((aspect, held), verdict)| {
                condition(*aspect, held.as_ref(), verdict, generation, now)
            })
            .collect()
    }
}

/// How much a difference matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Difference {
    None,
    /// Words of a condition that is good: goes with the next write.
    Wording,
    /// Words of one that is not good: is worth a write now and then.
    News,
    Change,
}

impl Held {
    fn of(condition: &Condition) -> Self {
        let status = match condition.status.as_str() {
            "True" => Status::True,
            "False" => Status::False,
            _ => Status::Unknown,
        };
        let verdict = Verdict {
            status,
            reason: condition.reason.clone(),
            message: condition.message.clone(),
        };
        Self {
            verdict,
            generation: condition.observed_generation,
            since: condition.last_transition_time.0,
        }
    }

    fn differs(held: Option<&Self>, verdict: &Verdict, generation: Option<i64>) -> Difference {
        let Some(held) = held else {
            return Difference::Change;
        };
        let (is, observed) = (&held.verdict, held.generation == generation);
        match () {
            () if is.status != verdict.status || is.reason != verdict.reason || !observed => {
                Difference::Change
            }
            () if is.message == verdict.message => Difference::None,
            () if is.status == Status::True => Difference::Wording,
            () => Difference::News,
        }
    }
}

fn condition(
    aspect: Aspect,
    held: Option<&Held>,
    verdict: &Verdict,
    generation: Option<i64>,
    now: Timestamp,
) -> Value {
    let since = held
        .filter(|held| held.verdict.status == verdict.status)
        .map_or(now, |held| held.since);
    let mut condition = json!({
        "type": aspect.name(),
        "status": verdict.status.to_string(),
        "reason": verdict.reason,
        "message": verdict.message,
        "lastTransitionTime": since.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
    });
    if let (Some(generation), Some(condition)) = (generation, condition.as_object_mut()) {
        condition.insert("observedGeneration".to_owned(), generation.into());
    }
    condition
}

/// Takes the conditions away.
pub(super) fn removal() -> Vec<Value> {
    Aspect::ALL
        .iter()
        .map(|aspect| json!({"type": aspect.name(), "$patch": "delete"}))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdicts(programmed: Verdict) -> Verdicts {
        let good = |reason: &str| Verdict::new(Status::True, reason, "good");
        [
            good("Allocated"),
            programmed,
            good("Layer2"),
            good("EndpointsReady"),
        ]
    }

    fn present(verdicts: &Verdicts, generation: Option<i64>, now: &str) -> Present {
        let conditions = Present::default().patch(verdicts, generation, now.parse().unwrap());
        Present::of(&serde_json::from_value(json!({"status": {"conditions": conditions}})).unwrap())
    }

    #[test]
    fn what_is_written_and_what_is_not() {
        let live = |message: &str| verdicts(Verdict::new(Status::True, "Programmed", message));
        let behind = |message: &str| verdicts(Verdict::new(Status::False, "NodesBehind", message));
        let cases = [
            (live("3 of 3"), live("3 of 3"), None, Difference::None),
            (live("3 of 3"), live("2 of 2"), None, Difference::Wording),
            (behind("1 of 3"), behind("2 of 3"), None, Difference::News),
            (live("3 of 3"), behind("2 of 3"), None, Difference::Change),
            (live("3 of 3"), live("3 of 3"), Some(2), Difference::Change),
        ];
        for (before, after, generation, expected) in cases {
            assert_eq!(
                present(&before, None, "2026-01-01T00:00:00Z").differ(&after, generation),
                expected
            );
        }
        assert_eq!(
            Present::default().differ(&live(""), None),
            Difference::Change
        );
    }

    #[test]
    fn the_time_is_that_of_the_last_change_of_status() {
        let before = verdicts(Verdict::new(Status::False, "NodesBehind", "1 of 3"));
        let present = present(&before, Some(1), "2026-01-01T00:00:00Z");
        let later: Timestamp = "2026-01-01T00:01:00Z".parse().unwrap();
        let same = present.patch(
            &verdicts(Verdict::new(Status::False, "ProviderFailed", "x")),
            Some(1),
            later,
        );
        assert_eq!(same.len(), 1, "{same:?}");
        assert_eq!(same[0]["lastTransitionTime"], "2026-01-01T00:00:00Z");
        assert_eq!(same[0]["observedGeneration"], 1);
        let other = present.patch(
            &verdicts(Verdict::new(Status::True, "Programmed", "x")),
            Some(1),
            later,
        );
        assert_eq!(other[0]["lastTransitionTime"], "2026-01-01T00:01:00Z");
    }

    #[test]
    fn messages_have_an_end() {
        assert_eq!(
            Verdict::new(Status::False, "X", "é".repeat(5000))
                .message
                .chars()
                .count(),
            MOST_LETTERS
        );
    }
}
