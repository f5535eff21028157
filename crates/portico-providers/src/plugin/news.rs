//! What a plugin says on its own accord, and that it was restarted.

use std::time::Duration;

use portico_client::wait::Backoff;
use tokio::sync::watch;
use tonic::{Code, Status};
use tracing::{debug, info, warn};

use super::client::Client;
use super::messages::{Info, NewsKind};
use crate::News;
use portico_controller::Shutdown;

/// The pauses before a stream that ended is opened again.
const SHORTEST: Duration = Duration::from_millis(50);
const LONGEST: Duration = Duration::from_secs(2);

/// Runs until the program ends or the receiver is dropped.
pub(super) async fn follow(
    client: Client,
    info: Info,
    news: watch::Sender<News>,
    mut shutdown: Shutdown,
) {
    tokio::select! {
        () = listen(&client, &info, &news) => debug!("the plugin has no news"),
        () = news.closed() => {}
        _ = shutdown.wait_for(|stop| *stop) => {}
    }
    // The sender is kept, since receivers would take a closed channel for news.
    news.closed().await;
}

/// Returns only if the plugin has none to tell.
async fn listen(client: &Client, info: &Info, news: &watch::Sender<News>) {
    let mut backoff = Backoff::new(SHORTEST, LONGEST);
    loop {
        let ended = hear(client, news, &mut backoff).await;
        if ended.code() == Code::Unimplemented {
            return;
        }
        debug!(%ended, "the plugin's news ended");
        backoff.wait().await;
        if let Ok(now) = client.info().await {
            came_back(info, &now, news);
        }
    }
}

async fn hear(client: &Client, news: &watch::Sender<News>, backoff: &mut Backoff) -> Status {
    let mut stream = match client.news().await {
        Ok(stream) => stream,
        Err(status) => return status,
    };
    backoff.reset();
    loop {
        match stream.message().await {
            Ok(Some(item)) => news.send_modify(|news| match item.kind() {
                NewsKind::Freed => news.freed += 1,
                NewsKind::Changed => news.changed += 1,
                NewsKind::Unspecified => {}
            }),
            Ok(None) => return Status::ok("the plugin closed it"),
            Err(status) => return status,
        }
    }
}

/// A plugin that was away may be another one, and may have lost what it had.
fn came_back(before: &Info, now: &Info, news: &watch::Sender<News>) {
    info!(
        plugin = now.name,
        version = now.version,
        "the plugin is back, everything is ensured again"
    );
    if now.abilities != before.abilities {
        warn!(
            plugin = now.name,
            "the plugin has other abilities than before: restart the controller"
        );
    }
    news.send_modify(|news| news.changed += 1);
}
