//! The table of deliberate bugs in docs/PROTOCOL.md.

/// A line: the bug, and what shows it: a seed, or "check" where no honest world can.
pub struct Row {
    /// Name of the bug.
    pub name: String,
    /// What shows it.
    pub shown_by: String,
}

/// All lines.
pub fn rows() -> Vec<Row> {
    let text = include_str!("../../../../docs/PROTOCOL.md");
    let lines = text.lines().skip_while(|line| *line != "## Rules on trial");
    let rows = lines.filter_map(|line| {
        let cells: Vec<_> = line.split('|').map(str::trim).collect();
        let [_, _, name, _, found, _] = cells[..] else {
            return None;
        };
        let name = name.strip_prefix('`')?.strip_suffix('`')?.to_owned();
        let shown_by = found.to_owned();
        Some(Row { name, shown_by })
    });
    rows.collect()
}
