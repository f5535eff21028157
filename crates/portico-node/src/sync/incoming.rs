//! What the loop waits for: news of the API server, which tasks on its own thread read; packets that
//! come before their Service; inputs from other threads; and the time. What is there together
//! becomes one batch.

use super::{Door, Input, Sources};
use crate::client;
use crate::objects::Kind;
use crate::watch::{self, Listener, News};
use portico_client::wait::sleep_until;
use portico_dataplane::early_packets::{Answer, EarlyPacket, EarlyPacketQueue};
use std::convert::Infallible;
use std::future::pending;
use std::io;
use std::time::Instant;
use tokio::io::unix::AsyncFd;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

/// So many inputs become one batch at most; what is there beyond that waits for the next.
const MOST_INPUTS: usize = 16 << 10;
/// Parts of lists and of watches that wait for the loop.
const NEWS: usize = 16;

pub(super) struct Incoming {
    news: mpsc::Receiver<Vec<News>>,
    inputs: mpsc::Receiver<Input>,
    early: PacketQueue,
    /// One for each kind. They do not end.
    followers: JoinSet<Infallible>,
}

impl Incoming {
    /// Starts to follow the API server, with tasks of the calling runtime.
    pub(super) fn new(sources: Sources) -> io::Result<Self> {
        let (told, news) = mpsc::channel(NEWS);
        let listener = Listener {
            news: told,
            answered: sources.answered,
        };
        let client = client::client(&sources.access);
        let mut followers = JoinSet::new();
        for kind in Kind::ALL {
            let node = sources.node.clone();
            followers.spawn(watch::follow(client.clone(), kind, node, listener.clone()));
        }
        Ok(Self {
            news,
            inputs: sources.inputs,
            early: PacketQueue::new(sources.early_packets)?,
            followers,
        })
    }

    /// Waits until something comes in or the time has come. `None` when every sender of inputs is
    /// gone.
    pub(super) async fn next(
        &mut self,
        deadline: Option<Instant>,
    ) -> io::Result<Option<Vec<Input>>> {
        let mut batch = Vec::new();
        tokio::select! {
            biased;
            // It does not end while the followers have its sender.
            Some(news) = self.news.recv() => add(news, &mut batch),
            count = self.inputs.recv_many(&mut batch, MOST_INPUTS) => {
                if count == 0 {
                    return Ok(None);
                }
            }
            packets = self.early.next() => batch.extend(packets?.into_iter().map(Input::Early)),
            () = sleep_until(deadline) => {}
            Some(ended) = self.followers.join_next() => match ended {
                Ok(never) => match never {},
                Err(panic) => return Err(io::Error::other(panic)),
            },
        }
        while batch.len() < MOST_INPUTS
            && let Ok(news) = self.news.try_recv()
        {
            add(news, &mut batch);
        }
        while batch.len() < MOST_INPUTS
            && let Ok(input) = self.inputs.try_recv()
        {
            batch.push(input);
        }
        Ok(Some(batch))
    }
}

fn add(news: Vec<News>, batch: &mut Vec<Input>) {
    let now = Instant::now();
    batch.extend(news.into_iter().filter_map(|news| input(news, now)));
}

/// How far the watches of other kinds are is not reported.
fn input(news: News, heard: Instant) -> Option<Input> {
    match news {
        News::Apply(object) => Some(Input::Apply(object, heard)),
        News::Delete(name) => Some(Input::Delete(name, heard)),
        News::Listed(kind, names) => Some(Input::Listed(kind, names)),
        News::Denied(kind) => Some(Input::Denied(kind)),
        News::Reached(kind @ (Kind::Service | Kind::Slice), version) => {
            Some(Input::Reached(kind, version))
        }
        News::Reached(..) => None,
    }
}

/// Packets that came before their Service, where the kernel can hold them.
struct PacketQueue(Option<AsyncFd<EarlyPacketQueue>>);

impl PacketQueue {
    fn new(early_packets: Option<EarlyPacketQueue>) -> io::Result<Self> {
        Ok(Self(early_packets.map(watched).transpose()?))
    }

    async fn next(&self) -> io::Result<Vec<EarlyPacket>> {
        let Some(early_packets) = &self.0 else {
            return pending().await;
        };
        let mut ready = early_packets.readable().await?;
        // What comes after this makes it ready again.
        ready.clear_ready();
        Ok(early_packets
            .get_ref()
            .early_packets()
            .unwrap_or_else(|error| {
                tracing::warn!(%error, "cannot tell which packets came before their Service");
                Vec::new()
            }))
    }
}

#[expect(
    unsafe_code,
    reason = "the runtime has to be promised that the descriptor stays open"
)]
fn watched(early_packets: EarlyPacketQueue) -> io::Result<AsyncFd<EarlyPacketQueue>> {
    // SAFETY: an `EarlyPacketQueue` shares its descriptor with its clones, always returns the same one, and
    // the descriptor is closed only when the last of them is dropped.
    unsafe { AsyncFd::register(early_packets) }.map_err(io::Error::from)
}

impl Door for EarlyPacketQueue {
    fn answer(&self, answers: Vec<(u32, Answer)>) {
        if let Err(error) = Self::answer(self, answers) {
            tracing::warn!(%error, "cannot answer packets that came before their Service");
        }
    }
}
