//! Which faults met which states.

use std::fmt::Write as _;

use r2ccl_core::Health;

use crate::fault::{KINDS, Kind};

const STATES: usize = Health::ALL.len();

/// How often each kind of fault struck a path in each state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Coverage {
    cells: [[u64; STATES]; KINDS.len()],
    /// How often each kind struck a connection with a send that had gone ahead of its credit.
    eager: [u64; KINDS.len()],
}

impl Default for Coverage {
    fn default() -> Self {
        Self {
            cells: [[0; STATES]; KINDS.len()],
            eager: [0; KINDS.len()],
        }
    }
}

impl Coverage {
    /// A fault strikes a path.
    pub fn record(&mut self, kind: Kind, health: Health) {
        let state = Health::ALL.iter().position(|state| *state == health);
        self.cells[kind as usize][state.unwrap_or(0)] += 1;
    }

    /// A fault strikes a connection, which may have a send open that went ahead of its credit.
    pub fn record_eager(&mut self, kind: Kind, is_open: bool) {
        self.eager[kind as usize] += u64::from(is_open);
    }

    /// Kinds that never struck a connection with such a send.
    pub fn missing_eager(&self) -> Vec<Kind> {
        let met = KINDS.iter().zip(&self.eager);
        met.filter(|(_, count)| **count == 0)
            .map(|(kind, _)| *kind)
            .collect()
    }

    /// Adds what another world has met.
    pub fn add(&mut self, other: &Self) {
        for (row, more) in self.cells.iter_mut().zip(&other.cells) {
            for (cell, count) in row.iter_mut().zip(more) {
                *cell += count;
            }
        }
        for (cell, count) in self.eager.iter_mut().zip(&other.eager) {
            *cell += count;
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
        let _ = writeln!(text, "{:>12}", "eager");
        for ((kind, row), eager) in KINDS.iter().zip(&self.cells).zip(&self.eager) {
            let _ = write!(text, "{:<20}", format!("{kind:?}"));
            for count in row {
                let _ = write!(text, "{count:>12}");
            }
            let _ = writeln!(text, "{eager:>12}");
        }
        text
    }
}
