//! Which faults met which states.

use std::fmt::Write as _;

use r2ccl_core::Health;

use crate::fault::{KINDS, Kind};

const STATES: usize = Health::ALL.len();

/// How often each kind of fault struck a path in each state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Coverage {
    cells: [[u64; STATES]; KINDS.len()],
}

impl Default for Coverage {
    fn default() -> Self {
        Self {
            cells: [[0; STATES]; KINDS.len()],
        }
    }
}

impl Coverage {
    /// A fault strikes a path.
    pub fn record(&mut self, kind: Kind, health: Health) {
        let state = Health::ALL.iter().position(|state| *state == health);
        self.cells[kind as usize][state.unwrap_or(0)] += 1;
    }

    /// Adds what another world has met.
    pub fn add(&mut self, other: &Self) {
        for (row, more) in self.cells.iter_mut().zip(&other.cells) {
            for (cell, count) in row.iter_mut().zip(more) {
                *cell += count;
            }
        }
    }

    /// Combinations that never happened.
    pub fn missing(&self) -> Vec<(Kind, Health)> {
        let mut missing = Vec::new();
        for (kind, row) in KINDS.iter().zip(&self.cells) {
            for (state, count) in Health::ALL.iter().zip(row) {
                if *count == 0 {
                    missing.push((*kind, *state));
                }
            }
        }
        missing
    }

    /// A table for people: faults by states.
    pub fn table(&self) -> String {
        let mut text = format!("{:<20}", "fault");
        for state in Health::ALL {
            // Writing to a string cannot fail.
            let _ = write!(text, "{:>12}", format!("{state:?}"));
        }
        text.push('\n');
        for (kind, row) in KINDS.iter().zip(&self.cells) {
            let _ = write!(text, "{:<20}", format!("{kind:?}"));
            for count in row {
                let _ = write!(text, "{count:>12}");
            }
            text.push('\n');
        }
        text
    }
}
