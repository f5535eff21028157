//! What a person does: keys change what is chosen, sought and how it is sorted. Pure.

use super::state::{NodeRow, ServiceRow, State};
use ratatui::crossterm::event::KeyCode;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Order {
    #[default]
    Name,
    /// The sick first.
    Health,
    Connections,
}

impl Order {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Name => "name",
            Self::Health => "health",
            Self::Connections => "connections",
        }
    }

    fn next(self) -> Self {
        match self {
            Self::Name => Self::Health,
            Self::Health => Self::Connections,
            Self::Connections => Self::Name,
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Screen {
    /// Which of the rows that are shown.
    pub chosen: usize,
    pub filter: String,
    /// Keys are letters of the filter.
    pub typing: bool,
    pub order: Order,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Stay,
    Leave,
}

impl Screen {
    /// `rows` are there to choose from.
    pub(super) fn key(&mut self, key: KeyCode, rows: usize) -> Action {
        let last = rows.saturating_sub(1);
        match (key, self.typing) {
            (KeyCode::Esc, true) => (self.typing, self.filter) = (false, String::new()),
            (KeyCode::Enter, true) => self.typing = false,
            (KeyCode::Backspace, true) => drop(self.filter.pop()),
            (KeyCode::Char(letter), true) => self.filter.push(letter),
            (KeyCode::Char('q') | KeyCode::Esc, false) => return Action::Leave,
            (KeyCode::Char('/'), false) => self.typing = true,
            (KeyCode::Char('s'), false) => self.order = self.order.next(),
            (KeyCode::Up | KeyCode::Char('k'), _) => {
                self.chosen = self.chosen.min(last).saturating_sub(1)
            }
            (KeyCode::Down | KeyCode::Char('j'), _) => self.chosen = (self.chosen + 1).min(last),
            (KeyCode::PageUp, _) => self.chosen = self.chosen.saturating_sub(10),
            (KeyCode::PageDown, _) => self.chosen = (self.chosen + 10).min(last),
            (KeyCode::Home, _) => self.chosen = 0,
            (KeyCode::End, _) => self.chosen = last,
            _ => {}
        }
        Action::Stay
    }

    /// Those that are sought, in order.
    pub(super) fn services(&self, state: &State) -> Vec<ServiceRow> {
        let sought = |row: &ServiceRow| {
            let texts = [&row.name, &row.type_, &row.problem]
                .into_iter()
                .chain(&row.addresses);
            self.filter.is_empty()
                || texts
                    .into_iter()
                    .any(|text| text.to_lowercase().contains(&self.filter.to_lowercase()))
        };
        let mut rows: Vec<ServiceRow> = state.services().into_iter().filter(sought).collect();
        match self.order {
            Order::Name => {}
            Order::Health => rows.sort_by_key(|row| row.problem.is_empty()),
            Order::Connections => rows.sort_by_key(|row| std::cmp::Reverse(row.connections)),
        }
        rows
    }

    pub(super) fn nodes(&self, state: &State) -> Vec<NodeRow> {
        let mut rows = state.nodes();
        match self.order {
            Order::Name => {}
            Order::Health => rows.sort_by_key(|row| row.problem.is_empty()),
            Order::Connections => rows.sort_by_key(|row| std::cmp::Reverse(row.connections)),
        }
        rows
    }
}
