//! Draws the fleet: Services above, endpoints of the chosen one, nodes below.

use super::screen::Screen;
use super::state::{EndpointRow, NodeRow, ServiceRow, State};
use portico_view::EndpointState;
use portico_view::text::few;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Block, Cell, Row, Table, TableState};

const KEYS: &str = "q quit   ↑↓ choose   / filter   s sort";

pub(super) fn draw(frame: &mut Frame, state: &State, screen: &Screen) {
    let nodes = screen.nodes(state);
    let height = u16::try_from(nodes.len())
        .unwrap_or(u16::MAX)
        .saturating_add(3)
        .min(frame.area().height / 3);
    let [head, services, endpoints, below, foot] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Min(5),
        Constraint::Percentage(25),
        Constraint::Length(height.max(4)),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    let rows = screen.services(state);
    frame.render_widget(
        Line::from(title(&rows, &nodes, state)).style(Modifier::BOLD),
        head,
    );
    draw_services(frame, services, &rows, screen);
    let chosen = rows.get(screen.chosen.min(rows.len().saturating_sub(1)));
    let name = chosen.map(|row| row.name.as_str()).unwrap_or_default();
    draw_endpoints(frame, endpoints, name, &state.endpoints(name));
    draw_nodes(frame, below, &nodes);
    let filter = match (screen.typing, screen.filter.as_str()) {
        (false, "") => String::new(),
        (typing, filter) => format!("   /{filter}{}", if typing { "▏" } else { "" }),
    };
    frame.render_widget(
        Line::from(format!("{KEYS} ({}){filter}", screen.order.name())),
        foot,
    );
}

fn title(services: &[ServiceRow], nodes: &[NodeRow], state: &State) -> String {
    let sick = services
        .iter()
        .filter(|row| !row.problem.is_empty())
        .count();
    let trouble = state
        .trouble()
        .map(|trouble| format!("   the API server is away: {trouble}"))
        .unwrap_or_default();
    let reporting = nodes.iter().filter(|node| node.reports).count();
    format!(
        "portico top   {} Services, {sick} with a problem   {reporting} of {} nodes \
         report{trouble}",
        services.len(),
        nodes.len()
    )
}

fn head<const N: usize>(names: [&'static str; N]) -> Row<'static> {
    Row::new(names).style(Style::new().add_modifier(Modifier::DIM))
}

/// Red where something is wrong.
fn coloured(cells: Vec<String>, wrong: bool) -> Row<'static> {
    let row = Row::new(cells.into_iter().map(Cell::from));
    if wrong {
        row.style(Style::new().fg(Color::Red))
    } else {
        row
    }
}

pub(super) fn count(connections: Option<u64>) -> String {
    connections.map_or("-".to_owned(), |count| count.to_string())
}

/// `APAR`: a letter for each condition, small where it is not met.
pub(super) fn conditions(row: &ServiceRow) -> String {
    let letter = |(name, met): (&String, &bool)| {
        let first = name.chars().next().unwrap_or_default();
        if *met {
            first
        } else {
            first.to_ascii_lowercase()
        }
    };
    portico_view::CONDITIONS
        .iter()
        .filter_map(|name| row.conditions.get_key_value(*name))
        .map(letter)
        .collect()
}

fn draw_services(frame: &mut Frame, area: Rect, rows: &[ServiceRow], screen: &Screen) {
    let cells = |row: &ServiceRow| {
        let text = vec![
            row.name.clone(),
            row.type_.clone(),
            row.addresses.first().cloned().unwrap_or_default(),
            few(&row.ports, 2),
            format!("{}/{}", row.ready, row.endpoints),
            conditions(row),
            count(row.connections),
            row.problem.clone(),
        ];
        coloured(text, !row.problem.is_empty())
    };
    let widths = [
        Constraint::Fill(3),
        Constraint::Length(12),
        Constraint::Fill(2),
        Constraint::Fill(1),
        Constraint::Length(7),
        Constraint::Length(10),
        Constraint::Length(11),
        Constraint::Fill(3),
    ];
    let table = Table::new(rows.iter().map(cells), widths)
        .header(head([
            "SERVICE",
            "TYPE",
            "ADDRESS",
            "PORTS",
            "READY",
            "CONDITIONS",
            "CONNECTIONS",
            "PROBLEM",
        ]))
        .row_highlight_style(Modifier::REVERSED)
        .block(Block::bordered().title("Services"));
    let mut state = TableState::default()
        .with_selected((!rows.is_empty()).then(|| screen.chosen.min(rows.len() - 1)));
    frame.render_stateful_widget(table, area, &mut state);
}

fn draw_endpoints(frame: &mut Frame, area: Rect, service: &str, rows: &[EndpointRow]) {
    let cells = |row: &EndpointRow| {
        let text = vec![
            row.endpoint.clone(),
            row.node.clone(),
            row.state.to_string(),
            count(row.connections),
        ];
        coloured(text, row.state == EndpointState::NotReady)
    };
    let widths = [
        Constraint::Fill(2),
        Constraint::Fill(2),
        Constraint::Length(10),
        Constraint::Length(11),
    ];
    let table = Table::new(rows.iter().map(cells), widths)
        .header(head(["ENDPOINT", "NODE", "STATE", "CONNECTIONS"]))
        .block(Block::bordered().title(format!("Endpoints of {service}")));
    frame.render_widget(table, area);
}

fn draw_nodes(frame: &mut Frame, area: Rect, rows: &[NodeRow]) {
    let cells = |row: &NodeRow| {
        let text = vec![
            row.name.clone(),
            row.address.clone(),
            row.installed.clone(),
            row.median.clone(),
            row.slowest.clone(),
            count(row.connections),
            row.problem.clone(),
        ];
        coloured(text, !row.reports)
    };
    let widths = [
        Constraint::Fill(2),
        Constraint::Fill(2),
        Constraint::Fill(2),
        Constraint::Length(8),
        Constraint::Length(8),
        Constraint::Length(11),
        Constraint::Fill(3),
    ];
    let table = Table::new(rows.iter().map(cells), widths)
        .header(head([
            "NODE",
            "ADDRESS",
            "INSTALLED",
            "MEDIAN",
            "99%",
            "CONNECTIONS",
            "PROBLEM",
        ]))
        .block(Block::bordered().title("Nodes"));
    frame.render_widget(table, area);
}
