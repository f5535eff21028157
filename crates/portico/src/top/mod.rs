//! `portico top`: the fleet in a terminal. The API server is watched, not polled; nodes are asked
//! for their metrics where they can be reached.

mod metrics;
mod screen;
mod state;
#[cfg(test)]
mod tests;
mod view;

use crate::fetch;
use crate::fleet::{self, AllNews, LONGEST_DOUBT, News};
use crate::output::{Format, Output, Table};
use anyhow::{Context, bail, ensure};
use clap::Args;
use futures_util::StreamExt;
use jiff::Timestamp;
use metrics::Measured;
use portico_client::access;
use portico_view::text::few;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use screen::{Action, Screen};
use serde::Serialize;
use state::{NodeRow, ServiceRow, State};
use std::fmt;
use std::io::IsTerminal;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

/// The time limit for the lists of a start.
const PATIENCE: Duration = Duration::from_secs(20);
const A_MOMENT: Duration = Duration::from_millis(200);
/// For a node's metrics, and between two looks at them.
const METRICS_PATIENCE: Duration = Duration::from_secs(2);
const LOOK: Duration = Duration::from_secs(2);

#[derive(Args)]
#[command(rename_all = "kebab-case")]
pub(crate) struct Arguments {
    /// How to reach the API server [default: $KUBECONFIG, ~/.kube/config or the pod's own].
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Print everything once and exit.
    #[arg(long)]
    once: bool,
    /// Show only Services with this in their name, type, address or problem.
    #[arg(long, value_name = "TEXT", default_value = "")]
    filter: String,
    /// Where nodes show their metrics (`portico node --metrics-bind-address`).
    #[arg(long, value_name = "PORT", default_value_t = 10249)]
    metrics_port: u16,
    #[command(flatten)]
    output: Output,
}

pub(crate) fn run(arguments: Arguments) -> anyhow::Result<()> {
    let screen = Screen {
        filter: arguments.filter.clone(),
        ..Screen::default()
    };
    let machine_readable = arguments.output.output != Format::Table;
    crate::runtime()?.block_on(async {
        let client = access::client(arguments.kubeconfig.as_deref()).await?;
        let mut news = fleet::follow(&client);
        let state = first(&mut news).await?;
        if arguments.once || machine_readable {
            let state = measured(state, arguments.metrics_port).await;
            return arguments.output.print(&Picture {
                services: screen.services(&state),
                nodes: screen.nodes(&state),
            });
        }
        ensure!(
            std::io::stdout().is_terminal(),
            "this is no terminal: use --once"
        );
        let mut terminal = ratatui::try_init().context("cannot use the terminal")?;
        let ended = live(&mut terminal, state, screen, news, arguments.metrics_port).await;
        ratatui::restore();
        ended
    })
}

/// Waits until every kind has been listed once.
async fn first(news: &mut AllNews) -> anyhow::Result<State> {
    let (mut state, deadline) = (State::default(), Instant::now() + PATIENCE);
    while !state.is_complete() {
        match timeout_at(deadline, news.next()).await {
            Ok(Some(told)) => take(&mut state, told),
            _ => {
                let why = state
                    .trouble()
                    .map(str::to_owned)
                    .unwrap_or_else(|| format!("no answer within {PATIENCE:?}"));
                bail!("cannot list what the API server has: {why}");
            }
        }
    }
    // Reports that are there come as soon as the rest; of a node whose report is late it is known
    // soon whether it lives.
    take_for(&mut state, news, A_MOMENT).await;
    if let Some(doubt) = state.doubt().filter(|doubt| *doubt <= LONGEST_DOUBT) {
        take_for(&mut state, news, doubt).await;
    }
    Ok(state)
}

async fn take_for(state: &mut State, news: &mut AllNews, time: Duration) {
    let until = Instant::now() + time;
    while let Ok(Some(told)) = timeout_at(until, news.next()).await {
        take(state, told);
    }
    state.set_clock(Timestamp::now());
}

fn take(state: &mut State, told: News) {
    state.set_clock(Timestamp::now());
    state.apply(told);
}

type Looks = JoinSet<(String, Result<Measured, String>)>;

fn look(addresses: Vec<(String, SocketAddr)>) -> Looks {
    let mut looks = JoinSet::new();
    for (node, at) in addresses {
        looks.spawn(async move {
            let answer = fetch::get(at, "/metrics", METRICS_PATIENCE).await;
            let measured = match answer {
                Ok(answer) if answer.code == 200 => Ok(Measured::parse(&answer.body)),
                Ok(answer) => Err(format!("{at} answers {}", answer.code)),
                Err(error) => Err(format!("{at}: {error:#}")),
            };
            (node, measured)
        });
    }
    looks
}

async fn measured(mut state: State, port: u16) -> State {
    state.set_clock(Timestamp::now());
    for (node, measured) in look(state.metrics_addresses(port)).join_all().await {
        state.measure(&node, measured);
    }
    state
}

/// Draws after every change and key press, until the user quits.
async fn live(
    terminal: &mut DefaultTerminal,
    mut state: State,
    mut screen: Screen,
    mut news: AllNews,
    port: u16,
) -> anyhow::Result<()> {
    let mut keys = keys();
    let mut looks = look(state.metrics_addresses(port));
    let mut again = tokio::time::interval(LOOK);
    again.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        state.set_clock(Timestamp::now());
        terminal
            .draw(|frame| view::draw(frame, &state, &screen))
            .context("cannot draw")?;
        tokio::select! {
            Some(told) = news.next() => {
                take(&mut state, told);
                // A burst is one picture.
                while let Some(Some(told)) = futures_util::FutureExt::now_or_never(news.next()) {
                    state.apply(told);
                }
            }
            key = keys.recv() => match key {
                Some(Key::Pressed(code)) => {
                    let rows = screen.services(&state).len();
                    if screen.key(code, rows) == Action::Leave {
                        return Ok(());
                    }
                }
                Some(Key::Resized) => {}
                Some(Key::Interrupted) | None => return Ok(()),
            },
            Some(Ok((node, measured))) = looks.join_next() => state.measure(&node, measured),
            _ = again.tick(), if looks.is_empty() => looks = look(state.metrics_addresses(port)),
        }
    }
}

enum Key {
    Pressed(KeyCode),
    Resized,
    Interrupted,
}

/// What is typed, from a thread of its own: reading a terminal waits.
fn keys() -> mpsc::Receiver<Key> {
    let (sender, receiver) = mpsc::channel(16);
    std::thread::spawn(move || {
        while let Ok(event) = event::read() {
            let key = match event {
                Event::Key(key) if key.kind == KeyEventKind::Release => continue,
                Event::Key(key)
                    if key.modifiers.contains(KeyModifiers::CONTROL)
                        && key.code == KeyCode::Char('c') =>
                {
                    Key::Interrupted
                }
                Event::Key(key) => Key::Pressed(key.code),
                Event::Resize(..) => Key::Resized,
                _ => continue,
            };
            if sender.blocking_send(key).is_err() {
                return;
            }
        }
    });
    receiver
}

/// What `--once` prints.
#[derive(Serialize)]
struct Picture {
    services: Vec<ServiceRow>,
    nodes: Vec<NodeRow>,
}

impl fmt::Display for Picture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = Table::new([
            "service",
            "type",
            "address",
            "ports",
            "ready",
            "conditions",
            "connections",
            "problem",
        ]);
        for row in &self.services {
            table.row([
                row.name.clone(),
                row.type_.clone(),
                few(&row.addresses, 2),
                few(&row.ports, 3),
                format!("{}/{}", row.ready, row.endpoints),
                view::conditions(row),
                view::count(row.connections),
                row.problem.clone(),
            ]);
        }
        writeln!(f, "{table}")?;
        let mut table = Table::new([
            "node",
            "address",
            "installed",
            "median",
            "99%",
            "connections",
            "problem",
        ]);
        for row in &self.nodes {
            table.row([
                row.name.clone(),
                row.address.clone(),
                row.installed.clone(),
                row.median.clone(),
                row.slowest.clone(),
                view::count(row.connections),
                row.problem.clone(),
            ]);
        }
        write!(f, "{table}")
    }
}
