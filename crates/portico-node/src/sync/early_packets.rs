//! Packets that came before their Service: how long each waits for one, and what the kernel is told
//! to do with it. The kernel holds the packets, in a queue that is bounded there.

use portico_dataplane::early_packets::{Answer, EarlyPacket};
use portico_model::table::{ForwardingTable, Frontend, Outcome};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// A change takes milliseconds from the API server's answer, and a client sends the first packet of
/// a connection again after a second.
const PATIENCE: Duration = Duration::from_millis(200);

/// In the order in which they came.
#[derive(Default)]
pub(super) struct EarlyPackets(VecDeque<(EarlyPacket, Instant)>);

impl EarlyPackets {
    pub(super) fn arrive(&mut self, early_packet: EarlyPacket, now: Instant) {
        self.0.push_back((early_packet, now + PATIENCE));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// When the first packet has waited long enough.
    pub(super) fn due(&self) -> Option<Instant> {
        self.0.front().map(|(_, until)| *until)
    }

    /// The packets that need not wait any longer, each with what the kernel is to do; `installed` is
    /// what the kernel has, if that is known. A packet to a Service without endpoints goes on, since
    /// looking it up again would lead back here.
    pub(super) fn answers(
        &mut self,
        installed: Option<&ForwardingTable>,
        now: Instant,
    ) -> Vec<(u32, Answer)> {
        let mut answers = Vec::new();
        self.0.retain(|(early_packet, until)| {
            let found = installed.and_then(|table| table.find(&early_packet.to));
            let answer = match found {
                Some((_, _, frontend)) if is_guarded(installed, frontend) => Some(Answer::Drop),
                Some((_, _, frontend)) if is_served(frontend) => Some(Answer::Again),
                Some(_) => Some(Answer::On),
                None => (*until <= now).then_some(Answer::On),
            };
            answers.extend(answer.map(|answer| (early_packet.id, answer)));
            answer.is_none()
        });
        answers
    }
}

/// Senders are looked at before a packet gets here, and this one came before there was anything to
/// look for. The next one of its sender is judged as it should be.
fn is_guarded(installed: Option<&ForwardingTable>, frontend: &Frontend) -> bool {
    let has_dmz =
        |table: &ForwardingTable| !table.rules.dmz.v4.is_empty() || !table.rules.dmz.v6.is_empty();
    frontend.sources.is_some() || installed.is_some_and(has_dmz)
}

/// Without endpoints for those inside there are none for anybody.
fn is_served(frontend: &Frontend) -> bool {
    matches!(frontend.inside, Outcome::Cluster | Outcome::Local)
}
