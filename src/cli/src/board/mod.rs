//! What running jobs show on their boards, and what they can be told there.

mod chaos;
mod drain;
mod status;
mod tell;

pub use chaos::{ChaosArgs, chaos};
pub use drain::{DrainArgs, drain};
pub use status::{StatusArgs, status};

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use r2ccl::config::Settings;
use r2ccl::monitor::board::Board;

/// Pause between two looks at a board.
const LOOK: Duration = Duration::from_millis(10);

/// The folder of the boards.
fn folder() -> Result<PathBuf, String> {
    let folder = Settings::from_env().board;
    folder.ok_or_else(|| "R2CCL_BOARD=off: there is no board to look at".into())
}

/// All boards that can be read.
fn boards() -> Result<Vec<Board>, String> {
    Ok(boards_in(&folder()?))
}

/// Those in a folder.
fn boards_in(folder: &Path) -> Vec<Board> {
    let mut boards = Vec::new();
    for (path, board) in Board::open_all(folder) {
        match board {
            Ok(board) => boards.push(board),
            Err(reason) => eprintln!("r2ccl: {}: {reason}", path.display()),
        }
    }
    boards.sort_by(|one, other| one.host().cmp(other.host()));
    boards
}

/// A NIC of a host.
pub struct Target {
    board: Board,
    nic: String,
}

impl Target {
    /// Host and NIC.
    pub fn name(&self) -> String {
        format!("{}/{}", self.board.host(), self.nic)
    }

    /// The NIC that `text` names, as `soft0` or `h1/soft0`.
    fn find(text: &str) -> Result<Self, String> {
        Self::find_in(&folder()?, text)
    }

    /// The same, on the boards in a folder.
    pub fn find_in(folder: &Path, text: &str) -> Result<Self, String> {
        let mut found = Vec::new();
        let mut known = Vec::new();
        for board in boards_in(folder) {
            let host = board.host().to_owned();
            let named = |nic: &&String| *nic == text || format!("{host}/{nic}") == text;
            let nics = nics(&board);
            known.extend(nics.iter().map(|nic| format!("{host}/{nic}")));
            let nic = nics.iter().find(named).cloned();
            found.extend(nic.map(|nic| Target { board, nic }));
        }
        if found.len() > 1 {
            let names: Vec<_> = found.iter().map(Target::name).collect();
            return Err(format!("{text}: say which one: {}", names.join(", ")));
        }
        found.pop().ok_or_else(|| {
            if known.is_empty() {
                format!("{text}: no job of this user uses the plugin on this host")
            } else {
                format!(
                    "{text}: there is no such NIC; there are {}",
                    known.join(", ")
                )
            }
        })
    }
}

/// NICs of the jobs of a host, and those that are drained although nobody uses them now.
fn nics(board: &Board) -> BTreeSet<String> {
    let processes = board.processes().into_iter();
    let used = processes.flat_map(|process| process.nics.into_iter().map(|nic| nic.name));
    let commands = board.commands().unwrap_or_default().into_iter();
    let drained = commands.filter(|command| command.is_drained);
    used.chain(drained.map(|command| command.name)).collect()
}

/// A number of processes in words.
fn processes(count: usize) -> String {
    match count {
        1 => "1 process".into(),
        count => format!("{count} processes"),
    }
}
