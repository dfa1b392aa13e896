//! How do rows become columns?
//!
//! Without borders and without wrapping: one host is one line, so that `grep`, `sort` and `awk` work on it.

use std::io::IsTerminal;
use std::sync::OnceLock;

use comfy_table::{Cell, CellAlignment, Color, Table, presets};
use usher_proto::v1::HostState;

use crate::output::words;

static COLOURED: OnceLock<bool> = OnceLock::new();

/// Decides once whether states are coloured: only for a person at a terminal who did not forbid it.
pub(crate) fn colour_for_terminals() {
    let forbidden = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let _ = COLOURED.set(!forbidden && std::io::stdout().is_terminal());
}

/// Rows under headings.
#[derive(Debug)]
pub(crate) struct Grid {
    table: Table,
    right: &'static [usize],
}

impl Grid {
    /// A table without rows. The columns with these numbers, from 0, hold numbers and are aligned to the right.
    pub(crate) fn new(header: &[&str], right: &'static [usize]) -> Self {
        let mut grid = Self::bare();
        grid.right = right;
        grid.table.set_header(header);
        grid
    }

    fn bare() -> Self {
        let mut table = Table::new();
        table.load_style(presets::NOTHING);
        if COLOURED.get() == Some(&true) {
            table.enforce_styling();
        } else {
            table.force_no_tty();
        }
        Self { table, right: &[] }
    }

    /// Adds a row.
    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = Cell>) {
        self.table.add_row(cells);
    }

    /// The lines, without spaces at their ends.
    pub(crate) fn render(mut self) -> String {
        for (index, column) in self.table.column_iter_mut().enumerate() {
            column.set_padding((0, 2));
            if self.right.contains(&index) {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        self.table.trim_fmt()
    }
}

/// A cell of text that is clean already.
pub(crate) fn cell(text: impl Into<String>) -> Cell {
    Cell::new_owned(text.into())
}

/// A cell with the word for a host's state, coloured by how well it serves.
pub(crate) fn state_cell(number: i32) -> Cell {
    let colour = match HostState::try_from(number).unwrap_or_default() {
        HostState::Available => Color::Green,
        HostState::Warming | HostState::Busy | HostState::MaxUsers | HostState::Restricted => Color::Yellow,
        HostState::Offline | HostState::NotReady => Color::Red,
        HostState::Unknown | HostState::Unspecified => Color::Grey,
    };
    Cell::new_owned(words::word::<HostState>(number)).fg(colour)
}

/// Names with their values, one a line.
#[derive(Debug)]
pub(crate) struct Facts(Grid);

impl Facts {
    /// Nothing yet.
    pub(crate) fn new() -> Self {
        Self(Grid::bare())
    }

    /// Adds a line. The value is clean already.
    pub(crate) fn fact(&mut self, name: &str, value: impl Into<String>) {
        self.0.row([cell(name), cell(value)]);
    }

    /// Adds a line if there is a value.
    pub(crate) fn fact_if(&mut self, name: &str, value: Option<String>) {
        if let Some(value) = value {
            self.fact(name, value);
        }
    }

    /// The lines.
    pub(crate) fn render(self) -> String {
        self.0.render()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_without_borders_or_trailing_spaces() {
        let mut grid = Grid::new(&["NAME", "USERS"], &[1]);
        grid.row([cell("app1"), cell("7")]);
        grid.row([cell("a-longer-name"), cell("-")]);
        assert_eq!(grid.render(), "NAME           USERS\napp1               7\na-longer-name      -");
    }

    #[test]
    fn a_state_has_no_colour_unless_a_terminal_asked_for_it() {
        let mut grid = Grid::new(&["STATE"], &[]);
        grid.row([state_cell(HostState::MaxUsers.into())]);
        assert_eq!(grid.render(), "STATE\nMAXUSERS");
    }
}
